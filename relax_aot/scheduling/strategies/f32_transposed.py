# SPDX-License-Identifier: Apache-2.0
"""Products of floats that are both computed and whose right operand lies along the sum, as queries
by keys. Its columns are copied into panels, which all tiles of rows read."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from relax_aot.ir.dims import Dim
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, Load
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import (
    Computed,
    Contraction,
    indexed_by,
    stride,
    symbols_of,
)
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.strategies._texts import FEW_KEYS, KEYS
from relax_aot.scheduling.strategies.f32_tiles import tiles
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Writer

LEAST = 8
"""Rows, and products of a sum, for which copies are worth it."""


def transposed(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Tiles of a copy, if the innermost loop of the right operand moves its columns."""
    right, loops = found.right, found.nest.loops
    if found.computed or right.dtype is not DType.F32 or right.buffer.name in context.constants:
        return None
    used = indexed_by(right)
    outer = [loop for loop in loops if loop.variable in used]
    steps = [loop for loop in found.reductions if loop.variable in used]
    if not outer or outer[-1] not in found.columns or len(steps) < len(found.reductions):
        return None
    variables = {loop.variable for loop in (*loops, *steps)}
    if stride(right, steps[-1].variable) != 1 or symbols_of(*outer, *steps) & variables:
        return None
    rows = max((greatest(lp.extent, w.bounds) for lp in found.swapped.columns), default=0)
    if min(rows, prod(greatest(lp.extent, w.bounds) for lp in steps)) < LEAST:
        return None
    axes = (*outer[:-1], *steps, outer[-1])
    copy = Buffer("_transposed", DType.F32, tuple(loop.extent for loop in axes))
    load = Load(copy, tuple(Dim.of(loop.variable) - loop.start for loop in axes))
    computed = (Computed(load, right),)
    return tiles(replace(found, right=load, computed=computed), w, context)


EXAMPLES = (
    Example(
        why="keys are copied for nine queries",
        target="host",
        before=KEYS,
        after="""
            kernel @scores(...) -> (%y: f32[9, 12]) scratch (%panel: f32[16, 12]) {
              for k_0 in 0..16 {
                for column in 0..12 {
                  %panel[k_0, column] = %keys[column, k_0]
                }
              }
              micro raot_multiply_store_f32(%y[0, 0], %q[0, 0], ...) [9, 12, 1, 1, 16, ...]
            }""",
    ),
    Example(why="few queries read keys in place", target="host", before=FEW_KEYS),
)
