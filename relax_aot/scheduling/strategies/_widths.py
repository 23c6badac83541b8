# SPDX-License-Identifier: Apache-2.0
"""How many columns a panel of packed weights has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relax_aot.ir.dims import ONE, ZERO, interval, prove_le
from relax_aot.ir.loops import For
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.strategies._panels import ABSENT, Span
from relax_aot.scheduling.strategies._sums import stored_end
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

LEAST_COLUMNS = 8
"""Narrower results are not worth a tile."""
WIDENED_ROWS = 32
"""Rows for which it is worth to convert weights of half precision to a panel of floats."""
FILLED = 8
"""One in how many columns of a wide panel may be empty."""
FEW = 6
"""Rows of a tile of many columns: weights are read once for them."""


def widened_columns(
    found: Contraction, across: For, full: Sequence[For], w: Writer, context: Context
) -> int:
    """Columns whose weights of half precision are converted to a panel of floats, before all rows,
    on targets whose arena counts; 0 where tiles convert them."""
    if not full or found.computed or not found.right.dtype.is_half:
        return 0
    if not context.target.spare_panel:
        return 0
    others = [loop for loop in found.nest.loops if loop != across]
    moved_by = [loop for loop in others if stride(found.right, loop.variable) != 0]
    if moved_by or across.variable in found.clipped_by:
        return 0
    rows = prod(interval(loop.extent, w.bounds)[0] for loop in others)
    depth = prod((loop.stop for loop in full), start=ONE)
    if rows < WIDENED_ROWS or not depth.is_constant or depth == 0:
        return 0
    width = min(greatest(across.extent, w.bounds), COLUMNS)
    room = context.target.panel_columns(depth.constant)
    return width if room >= width else room // LEAST_COLUMNS * LEAST_COLUMNS


def row_columns(found: Contraction, across: For, w: Writer, context: Context) -> int:
    """The columns of a tile: more where it has few rows, which a micro-kernel begins and stores."""
    target, rows = context.target, found.swapped.columns
    if not target.stores or found.computed or len(rows) > 1:
        return COLUMNS
    count = greatest(across.extent, w.bounds)
    if -count % target.stores > count // FILLED:
        return COLUMNS
    loops = ((rows or [ABSENT])[0], ABSENT, across)
    row, line, columns = (Span(loop.variable, loop.start, loop.extent, "") for loop in loops)
    few = row.count.is_constant and 0 < row.count.constant <= FEW
    if not few or stored_end(found, w, (row, line, columns)) is None:
        return COLUMNS
    steps = [stride(found.left, loop.variable) for loop in found.reductions]
    forward = all(step is not None and prove_le(ZERO, step, w.bounds) for step in steps)
    return target.stores if forward else COLUMNS
