# SPDX-License-Identifier: Apache-2.0
"""Products of rows of 16-bit integers and bytes, which are both computed while a model runs, as
those of attention over quantized caches.

Sums run along contiguous elements of both factors. Two rows are multiplied together
(`wide_rows.h`): heads that share keys and values are rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, Cast, For, Load, Local, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import (
    LEAST_DEPTH,
    Contraction,
    contraction_of,
    moved,
    number_of,
    step_of,
    stride,
)
from relax_aot.scheduling.epilogue import matched
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.strategies._texts import WIDE_ROWS, WIDE_SCALED
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Writer

SUM = Local("sum", DType.I32)
SCALED = Cast(SUM, DType.F32) * Local("row", DType.F32) * Local("column", DType.F32)
ROWS = 2
"""Rows whose sums are kept at once."""
COLUMNS = 128


def wide_rows(stmt: For, w: Writer, context: Context) -> Emit | None:
    """Rows of 16 bits by columns of bytes, where that is all that a loop nest computes."""
    found = contraction_of(stmt, w.bounds, (DType.I8, DType.I16))
    if found is None or context.target.compact or context.lean:
        return None
    found = found if found.left.dtype is DType.I16 else found.swapped
    loops = (*found.nest.loops, *found.reductions)
    if (found.left.dtype, found.right.dtype) != (DType.I16, DType.I8) or any(found.zeros):
        return None
    if found.sum.dtype is not DType.I32 or number_of(found.start) != 0:
        return None
    if len(found.reductions) != 1 or any(loop.start != 0 for loop in loops):
        return None
    (step,) = found.reductions
    contiguous = all(stride(f, step.variable) == 1 for f in (found.left, found.right))
    if not contiguous or found.clipped_by & found.free_variables or not found.is_regular(w.bounds):
        return None
    columns = found.columns
    if greatest(step.stop, w.bounds) < LEAST_DEPTH or not columns:
        return None
    column = max(columns, key=lambda loop: greatest(loop.stop, w.bounds))
    rows = [loop for loop in found.swapped.columns if loop in found.nest.loops]
    return lambda: _emit(found, column, rows[-1] if rows else None, w)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Results that are sums times a scale of the row and one of the column."""

    out: Store
    row_scale: Load
    column_scale: Load

    def emit(
        self, w: Writer, sums: Buffer, at: Mapping[str, Dim], row: tuple[For | None, Dim],
        columns: Dim,
    ) -> None:  # fmt: skip
        loop, rows = row
        steps = [ZERO if loop is None else step_of(one, loop.variable)
                 for one in (self.out, self.row_scale)]  # fmt: skip
        w.micro(
            "raot_scale_columns_f32", out=moved(self.out, at), sums=sums,
            row_scales=moved(self.row_scale, at), column_scales=moved(self.column_scale, at),
            rows=rows, columns=columns, out_row=steps[0], row_step=steps[1],
        )  # fmt: skip


def _scaled(found: Contraction, column: For, row: For | None) -> _Scaled | None:
    match found.after:
        case (Store() as out,):
            holes = matched(SCALED, out.value, {"sum": found.sum})
        case _:
            return None
    if holes is None or stride(out, column.variable) != 1:
        return None
    pair = [holes[name] for name in ("row", "column")]
    for one, other in (pair, pair[::-1]):
        if isinstance(one, Load) and isinstance(other, Load):
            along = stride(one, column.variable), stride(other, column.variable)
            if along == (ZERO, ONE) and (row is None or _steps(out, one, other, row.variable)):
                return _Scaled(out, one, other)
    return None


def _steps(out: Store, row_scale: Load, column_scale: Load, row: str) -> bool:
    """Whether scales of rows follow each other, and those of columns are the same for all rows."""
    known = stride(out, row) is not None and stride(row_scale, row) in (ZERO, ONE)
    return known and stride(column_scale, row) == 0


def _emit(found: Contraction, column: For, row: For | None, w: Writer) -> None:
    (step,) = found.reductions
    width = min(greatest(column.stop, w.bounds), COLUMNS)
    high = min(greatest(row.stop, w.bounds), ROWS) if row is not None else 1
    scaled = _scaled(found, column, row)
    sums = w.buffer("row_sums", DType.I32, high * width)
    with w.nest([loop for loop in found.nest.loops if loop not in (column, row)]) as at:
        at = {**at, step.variable: ZERO}
        left_row = step.stop if row is None else step_of(found.left, row.variable)
        with w.tiles(("row_tile", "rows"), ONE if row is None else row.stop, ROWS) as (r, rows):
            if row is not None:
                at[row.variable] = r
            with w.tiles(("tile", "columns"), column.stop, width) as (first, columns):
                at[column.variable] = first
                w.micro(
                    "raot_dot_wide_rows_s8", sums=sums, left=moved(found.left, at),
                    matrix=moved(found.right, at), rows=rows, columns=columns, depth=step.stop,
                    left_row=left_row, step=step_of(found.right, column.variable),
                )  # fmt: skip
                if scaled is not None:
                    scaled.emit(w, sums, at, (row, rows), columns)
                else:
                    _finish(found, w, sums, at, ((row, rows), (column, columns)))


def _finish(
    found: Contraction,
    w: Writer,
    sums: Buffer,
    at: Mapping[str, Dim],
    loops: tuple[tuple[For | None, Dim], tuple[For, Dim]],
) -> None:
    """The statements that follow each sum of a tile, which begins at `at`."""
    (row, rows), (column, columns) = loops
    with w.range("row", rows) as i, w.range(column.variable, columns) as j:
        place = {**at, column.variable: at[column.variable] + j}
        if row is not None:
            place[row.variable] = at[row.variable] + i
        w.finish(found.after, found.sum, Load(sums, (i * columns + j,)), place)


EXAMPLES = (
    Example(
        why="sums with a scale of the row and one of the column, as scores of quantized keys",
        target="dsp",
        before=WIDE_SCALED,
        after="""
            kernel @dot(...
            ...
                micro raot_dot_wide_rows_s8(..., %x[0, 0], %w[40*tile, 0]) [2, columns, 16, 16, 16]
                micro raot_scale_columns_f32(...) [2, columns, n, 1]
              }
            }""",
    ),
    Example(
        why="sums with a scale of the row",
        target="dsp",
        before=WIDE_ROWS,
        after="""
            kernel @dot(...
            ...
                micro raot_dot_wide_rows_s8(...
            ...
                micro raot_scale_lines_f32(...
            ...""",
    ),
)
