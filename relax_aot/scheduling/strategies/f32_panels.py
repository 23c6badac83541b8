# SPDX-License-Identifier: Apache-2.0
"""A few rows of floats by weights that are packed in panels of eight columns, such as the input or
the state of a recurrent layer.

Sums begin with a row in memory, such as a bias, or with the sum of two constant rows, which is
added while compiling. The micro-kernel writes the results; tiles of `raot_multiply_f32` keep sums
in memory, which one row or two rows begin and store for few products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, For, Load, Micro, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.rows import PANELS, ROUNDED_PANELS
from relax_aot.scheduling.contraction import Contraction, indexed_by, moved, step_of, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Arrays, Packed, elements, padded, round_up
from relax_aot.scheduling.strategies._panels import ABSENT
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Writer

MOST = 4
"""Rows: weights are read once for two of them. One where they wait for flash."""
PANEL = 8
LEAST = 2 * PANEL
"""Fewer columns are not worth a call."""
UNUSED = 16
"""One column of so many may be unused, in the last panel."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Rows `down` of sums of `across` columns. `starts`: the row, or rows, that they begin with."""

    found: Contraction
    store: Store
    steps: For
    across: For
    down: For
    starts: tuple[Load, ...]

    def emit(self, w: Writer, context: Context) -> None:
        found, across, down, steps = self.found, self.across, self.down, self.steps
        weights, start = self._packed(w), self._start(w)
        with w.nest([loop for loop in found.nest.loops if loop not in (across, down)]):
            first = {loop.variable: loop.start for loop in (across, down, steps)}
            alone, columns = down == ABSENT, across.extent
            w.add(
                Micro.of(
                    ROUNDED_PANELS if context.target.separate else PANELS,
                    to=moved(Load(self.store.buffer, self.store.index), first),
                    left=moved(found.left, first), right=weights[(ZERO, ZERO, ZERO)],
                    starts=moved(start, first), rows=down.extent, columns=columns,
                    depth=steps.extent,
                    left_row=steps.extent if alone else step_of(found.left, down.variable),
                    to_row=columns if alone else step_of(self.store, down.variable),
                )
            )  # fmt: skip

    def _packed(self, w: Writer) -> Buffer:
        right, loops = self.found.right, (self.across, self.steps)
        names, extents = zip(*((lp.variable, lp.extent.constant) for lp in loops), strict=True)
        columns, depth = round_up(extents[0], PANEL), extents[1]

        def values(arrays: Arrays) -> Array:
            where = {loop.variable: loop.start.constant for loop in loops}
            found = elements(right, arrays[right.buffer.name], names, extents, where)
            return np.swapaxes(padded(found, (columns, depth)).reshape(-1, PANEL, depth), 1, 2)

        shape = tuple(map(Dim.of, (columns // PANEL, depth, PANEL)))
        weights = Buffer(w.fresh(f"{right.buffer.name}.packed"), DType.F32, shape)
        w.constant(Packed(weights, values, origin=right.buffer.name))
        return weights

    def _start(self, w: Writer) -> Load:
        first, *more = self.starts
        if not more:
            return first
        across = self.across
        row = Buffer(w.fresh(f"{first.buffer.name}.sum"), DType.F32, (across.extent,))

        def values(arrays: Arrays) -> Array:
            names, counts = [across.variable], [across.extent.constant]
            where = {across.variable: across.start.constant}
            found = [
                elements(load, arrays[load.buffer.name], names, counts, where)
                for load in self.starts
            ]
            return np.add(*found)

        w.constant(Packed(row, values))
        return row[(Dim.of(across.variable) - across.start,)]


def panels(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Matches plain sums of contiguous rows of the left operand by constants, which begin and are
    stored as rows. Small programs have tiles for all products."""
    left, right, loops = found.left, found.right, found.nest.loops
    match found.after, found.reductions:
        case (Store() as store,), (For() as steps,) if store.value == found.sum:
            constant = right.buffer.name in context.constants
        case _:
            return None
    if not constant or found.computed or len(found.free) < len(loops) or context.target.compact:
        return None
    if {store.buffer.dtype, left.dtype, right.dtype} != {DType.F32}:
        return None
    near = [lp for lp in found.columns if stride(store, lp.variable) == ONE]
    across, (down, *more) = (near or [ABSENT])[0], found.swapped.columns or [ABSENT]
    starts = _starts(found, across, context)
    if not starts or store.buffer in [load.buffer for load in starts] or more:
        return None
    if stride(starts[0], down.variable) != ZERO:
        down = ABSENT
    most = 1 if context.target.waits else MOST
    if not 0 < greatest(down.extent, w.bounds) <= most or not _packs(right, across, steps):
        return None
    if not _in_rows(found, store, across, down, w) or stride(left, steps.variable) != ONE:
        return None
    sums = _Sums(found, store, steps, across, down, starts)
    return 0, partial(sums.emit, w, context)


def _in_rows(found: Contraction, store: Store, across: For, down: For, w: Writer) -> bool:
    """Whether the micro-kernel takes the steps between rows."""
    if down == ABSENT:
        return True
    steps = (
        (ZERO, stride(found.left, down.variable)),
        (across.extent, stride(store, down.variable)),
    )
    return all(step is not None and prove_le(least, step, w.bounds) for least, step in steps)


def _packs(right: Load, across: For, steps: For) -> bool:
    """Whether weights of only these loops take about as much memory in panels."""
    used = {name for dim in right.index for name in dim.symbols}
    bounds = [bound for loop in (across, steps) for bound in (loop.start, loop.extent)]
    if used - {across.variable, steps.variable} or not all(one.is_constant for one in bounds):
        return False
    columns, depth = across.extent.constant, steps.extent.constant
    unused = round_up(columns, PANEL) - columns
    return columns >= LEAST and depth > 0 and unused * UNUSED <= columns


def _starts(found: Contraction, across: For, context: Context) -> tuple[Load, ...]:
    """The rows whose sum the results begin with; empty where these are no rows."""
    loads: tuple[Load, ...] = ()
    match found.start:
        case Load() as load:
            loads = (load,)
        case Binary("+", Load() as first, Load() as second):
            constant = {first.buffer.name, second.buffer.name} <= context.constants
            if constant and indexed_by(found.start) == {across.variable}:
                loads = (first, second)
    rows = [load.dtype is DType.F32 and stride(load, across.variable) == ONE for load in loads]
    return loads if all(rows) else ()


def _layer(rows: int) -> str:
    return f"""
    const %w: f32[24, 32] = splat 0.5
    kernel @layer(%x: f32[{rows}, 32], %w: f32[24, 32], %b: f32[24]) -> (%y: f32[{rows}, 24]) {{
      for i in 0..{rows} {{
        for j in 0..24 {{
          local sum: f32 = %b[j]
          for k in 0..32 {{
            sum = fma(%w[j, k], %x[i, k], sum)
          }}
          %y[i, j] = sum
        }}
      }}
    }}"""


EXAMPLES = (
    Example(
        why="rows that begin with a bias",
        target="dsp",
        before=_layer(3),
        after="""
            kernel @layer(...) -> (%y: f32[3, 24]) {
              micro raot_multiply_panels_f32(%y[0, 0], ...) [3, 24, 32, 32, 24]
            }""",
    ),
    Example(
        why="five rows are those of tiles, or of five calls where none matches",
        target="dsp",
        before=_layer(5),
        after="""
            kernel @layer(...) -> (%y: f32[5, 24]) {
              for i in 0..5 {
                micro raot_multiply_panels_f32(%y[i, 0], ...) [1, 24, 32, 32, 24]
              }
            }""",
    ),
)
