# SPDX-License-Identifier: Apache-2.0
"""Products of bytes that are both computed while a model runs, as those of quantized attention, for
Arm's DSP extension, Helium, 64-bit Arm and hosts.

Each row of one factor is widened to 16 bits without its zero point (`byte_rows.h`), and multiplied
by columns of the other factor as they lie in memory: contiguous along the sum, or contiguous lines
of all columns. The zero point of the columns is subtracted from sums: `sum(x * (w - z))` is
`sum(x * w) - z * sum(x)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.dims import ZERO
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Expr, For, Load, binary
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import (
    LEAST_DEPTH,
    Contraction,
    moved,
    number_of,
    step_of,
    stride,
    suffix_of,
)
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.strategies._texts import COMPUTED_COLUMNS, COMPUTED_LINES
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Writer

LEAST_COLUMNS = 4
TILE = 64
"""Columns whose sums are kept at once."""


def byte_rows(found: Contraction, w: Writer, context: Context) -> Emit | None:
    """Rows of either factor by columns of the other one."""
    loops = (*found.nest.loops, *found.reductions)
    if context.target.compact or context.lean:
        return None
    if found.sum.dtype is not DType.I32 or len(found.reductions) != 1:
        return None
    if any(loop.start != 0 for loop in loops) or len(found.free) < len(found.nest.loops):
        return None
    if found.clipped_by & found.free_variables or not found.is_regular(w.bounds):
        return None
    ways = (_Rows(way, column, w) for way in (found, found.swapped) for column in way.columns)
    best = max((way for way in ways if way.matches), key=lambda way: way.rank, default=None)
    return None if best is None else best.emit


@dataclass(frozen=True, slots=True)
class _Rows:
    """The left factor of `found` by columns of the right one."""

    found: Contraction
    column: For
    w: Writer

    @property
    def step(self) -> For:
        (step,) = self.found.reductions
        return step

    @property
    def contiguous(self) -> bool:
        """Whether the elements of a column follow each other."""
        return stride(self.found.right, self.step.variable) == 1

    @property
    def matches(self) -> bool:
        lines = stride(self.found.right, self.column.variable) == 1
        many = greatest(self.column.stop, self.w.bounds) >= LEAST_COLUMNS
        deep = greatest(self.step.stop, self.w.bounds) >= LEAST_DEPTH
        return (self.contiguous or lines) and many and deep

    @property
    def rank(self) -> tuple[bool, int]:
        return self.contiguous, greatest(self.column.stop, self.w.bounds)

    def emit(self) -> None:
        found, w, own, step = self.found, self.w, self.column.variable, self.step
        depth, (zero, other) = step.stop, found.zeros
        row = w.buffer("wide_row", DType.I16, depth)
        start = w.buffer("row_start", DType.I32, 1)
        tile = min(greatest(self.column.stop, w.bounds), TILE)
        sums = w.buffer("row_sums", DType.I32, tile)
        with w.nest([loop for loop in found.nest.loops if loop != self.column]) as at:
            at = {**at, step.variable: ZERO}
            w.micro(
                f"raot_widen_row_{suffix_of(found.left.dtype)}", row=row, start=start,
                x=moved(found.left, at), depth=depth, step=step_of(found.left, step.variable),
                zero=zero, other=other,
            )  # fmt: skip
            with w.tiles(("tile", "columns"), self.column.stop, tile) as (first, columns):
                apart = own if self.contiguous else step.variable
                w.micro(
                    f"raot_{'dot' if self.contiguous else 'add'}_rows_"
                    f"{suffix_of(found.right.dtype)}",
                    sums=sums, matrix=moved(found.right, {**at, own: first}), row=row, start=start,
                    columns=columns, depth=depth, step=step_of(found.right, apart),
                )  # fmt: skip
                with w.range(own, columns) as column:
                    value: Expr = Load(sums, (column,))
                    if number_of(found.start) != 0:
                        value = binary("+", value, found.start)
                    w.finish(found.after, found.sum, value, {**at, own: first + column})


EXAMPLES = (
    Example(
        why="contiguous columns, as queries by keys",
        target="dsp",
        before=COMPUTED_COLUMNS,
        after="""
            kernel @dot(...
              for i in 0..n {
                micro raot_widen_row_s8(..., %x[i, 0]) [16, 1, 3, -5]
                for tile in 0..(n + 39) // 40 {
                  let columns = min(40, n - 40*tile)
                  micro raot_dot_rows_s8(..., %w[40*tile, 0], ...) [columns, 16, 16]
                  for j_0 in 0..columns {
                    %y[i, j_0 + 40*tile] = %row_sums[j_0]
                  }
                }
              }
            }""",
    ),
    Example(
        why="lines of all columns, as scores by values",
        target="mve",
        before=COMPUTED_LINES,
        after="""
            kernel @dot(...
              for i in 0..n {
                micro raot_widen_row_s8(..., %x[0, i]) [n, n, 3, -5]
                micro raot_add_rows_s8(..., %w[0, 0], ...) [48, n, 48]
            ...""",
    ),
)
