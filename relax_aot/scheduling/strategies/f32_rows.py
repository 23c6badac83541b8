# SPDX-License-Identifier: Apache-2.0
"""A few rows of floats by a matrix in memory, such as the queries of a decode step by the cached
keys and values that they share.

Tiles of `raot_multiply_f32` keep sums in memory, which one row or two rows begin and store for few
products. Here a micro-kernel writes the results.
"""

from __future__ import annotations

from relax_aot.ir.dims import ONE, ZERO, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.loops import For, Lit, Load, Micro, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.rows import FUSED, ROUNDED
from relax_aot.scheduling.contraction import Contraction, moved, step_of, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.strategies._panels import ABSENT
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Writer

MOST = 3
"""Rows; of more, tiles read four at a time."""
WIDTHS = {1: 16, 2: 8, 3: 16}
"""Columns of a block, by the number of rows; narrower results are not worth a call."""


def rows(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Matches plain sums of contiguous rows of the left operand that are stored one behind the
    other. Constants are packed for tiles instead, and small programs have tiles for all products.
    """
    left, right, loops = found.left, found.right, found.nest.loops
    match found.after, found.reductions:
        case (Store() as store,), (For() as steps,) if store.value == found.sum:
            begins = steps.start == ZERO and found.start == Lit(0.0, DType.F32)
        case _:
            return None
    if not begins or found.computed or len(found.free) < len(loops) or context.target.compact:
        return None
    outer = {loop.variable for loop in loops}
    if steps.stop.symbols & outer or stride(left, steps.variable) != ONE:
        return None
    if right.buffer.name in context.constants or store.buffer.dtype is not DType.F32:
        return None
    near = [lp for lp in found.columns if stride(right, lp.variable) == ONE]
    across = next((lp for lp in near if stride(store, lp.variable) == ONE), ABSENT)
    down, *more = found.swapped.columns or (ABSENT,)
    most = greatest(down.extent, w.bounds)
    if more or not 0 < most <= MOST or greatest(across.extent, w.bounds) < WIDTHS[most]:
        return None
    if down != ABSENT and stride(store, down.variable) != across.extent:
        return None
    left_row = steps.extent if down == ABSENT else step_of(left, down.variable)
    right_row = step_of(right, steps.variable)
    if not all(prove_le(ZERO, step, w.bounds) for step in (left_row, right_row)):
        return None

    def emit() -> None:
        others = [loop for loop in loops if loop not in (across, down)]
        with w.nest(others):
            first = {loop.variable: loop.start for loop in (across, down, steps)}
            w.add(
                Micro.of(
                    ROUNDED if context.target.separate else FUSED,
                    to=moved(Load(store.buffer, store.index), first), left=moved(left, first),
                    right=moved(right, first), rows=down.extent, columns=across.extent,
                    depth=steps.extent,
                    left_row=left_row, right_row=right_row,
                )
            )  # fmt: skip

    return 0, emit


def _products(rows: int, result: str) -> str:
    return f"""
    symbol n in 1..99
    kernel @dot(%q: f32[{rows}, 32], %k: f32[32, n]) -> (%y: f32[{result}]) {{
      for i in 0..{rows} {{
        for j in 0..n {{
          local sum: f32 = 0.0:f32
          for k in 0..32 {{
            sum = fma(%q[i, k], %k[k, j], sum)
          }}
          %y[{result.replace(str(rows), "i").replace("n", "j")}] = sum
        }}
      }}
    }}"""


EXAMPLES = (
    Example(
        why="two queries read the keys once",
        target="dsp",
        before=_products(2, "2, n"),
        after="""
            kernel @dot(...) -> (%y: f32[2, n]) {
              micro raot_multiply_rows_f32(%y[0, 0], %q[0, 0], %k[0, 0]) [2, n, 32, 32, n]
            }""",
    ),
    Example(
        why="four rows are those of a tile, or of four calls where none matches",
        target="dsp",
        before=_products(4, "4, n"),
        after="""
            kernel @dot(...) -> (%y: f32[4, n]) {
              for i in 0..4 {
                micro raot_multiply_rows_f32(%y[i, 0], %q[i, 0], %k[0, 0]) [1, n, 32, 32, n]
              }
            }""",
    ),
    Example(
        why="the results of a row are not contiguous", target="dsp", before=_products(2, "n, 2")
    ),
)
