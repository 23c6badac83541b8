# SPDX-License-Identifier: Apache-2.0
"""3 x 3 depthwise convolutions for Arm's DSP extension, four rows of a column at a time.

Some rows of a channel at a time are gathered as pairs of adjacent rows (`depthwise_pairs.h`), which
two rows of results share. Rows may be columns of the image: they run along the axis that wastes
less of the last four rows. Works for channels-first and channels-last.
"""

from __future__ import annotations

from functools import partial

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, Load
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Weighted, moved, stride
from relax_aot.scheduling.epilogue import by_channel, direct_store
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Packed, round_up
from relax_aot.scheduling.strategies._results import Table
from relax_aot.scheduling.strategies._texts import DEPTHWISE_INTEGER, LONG_WINDOWS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights
from relax_aot.scheduling.windows import Axis, image_of, window_axes
from relax_aot.scheduling.writer import Writer

ROWS = {1: 28, 2: 12}
"""Rows of results at once, for each stride along them."""
TILE, GATHER = 58.0, 2.5
"""Cycles of a tile of four rows, and of gathering an element of contiguous rows."""
PAIRS = 16
"""Pairs of a column."""


def depthwise_pairs(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """3 x 3 windows of one channel."""
    axes = window_axes(found)
    if context.target.compact or context.lean or axes is None or not found.fits_bytes:
        return None
    if not found.known_by_channel(found.start, context.constants):
        return None
    if any(axis.taps != 3 for axis in axes):
        return None
    choices = [pair for pair in (axes, axes[::-1]) if pair[0].stride in ROWS]
    if not choices:
        return None
    best = min(choices, key=lambda pair: _cost(w, *pair))
    return partial(_emit, found, w, best, context)


def _cost(w: Writer, rows: Axis, columns: Axis) -> float:
    """Cycles, about: of tiles of four rows, and of gathering and storing elements."""
    count, wide = (greatest(axis.positions, w.bounds) for axis in (rows, columns))
    tiles = wide * (-(-count // 4) + 0.5) * TILE
    elements = (wide * columns.stride + 2) * (count * rows.stride + 2)
    return tiles + elements * (GATHER if rows.step == 1 else 2 * GATHER)


def _emit(found: Weighted, w: Writer, axes: tuple[Axis, Axis], context: Context) -> None:
    rows, columns = axes
    one, rest = by_channel(found, context.constants) or (None, found)
    store = direct_store(rest) if one is not None else None
    steps = [stride(store, axis.variable) for axis in axes] if store is not None else [None]
    order = [found.reductions.index(axis.reduction) for axis in (columns, rows) if axis.reduction]
    loads = one.loads if one is not None and None not in steps else ()
    pack = Weights(found, order, *loads)
    weights = pack.buffer(w, "windows", DType.I8, (*pack.lead, 3, 3))
    w.constant(Packed(weights, pack.values))
    bias = pack.packed_starts(w, 0)
    table = Table(w, pack, one, context.calls) if one is not None and None not in steps else None
    highest = min(greatest(rows.positions, w.bounds), ROWS[rows.stride])
    width = (columns.positions - 1) * columns.stride + 3
    with w.nest([*found.shared, *found.positions[:-2]]):
        pairs = w.buffer("pairs", DType.I16, width, 2 * PAIRS)
        sums = w.buffer("sums", DType.I32, columns.positions * round_up(highest, 4))
        with w.tiles(("band", "height"), rows.positions, highest) as (first, high):
            w.micro(
                f"raot_gather_columns_{found.suffix}", pairs=pairs, image=image_of(found, axes),
                zero=found.x_zero, rows=(high - 1) * rows.stride + 3,
                top=first * rows.stride - rows.before, image_rows=rows.size, row_step=rows.step,
                columns=width, left=-columns.before, image_columns=columns.size,
                column_step=columns.step,
            )  # fmt: skip
            w.micro(
                f"raot_depthwise_pairs_{rows.stride}", sums=sums, pairs=pairs,
                weights=pack.first(weights), bias=pack.first(bias), columns=columns.positions,
                rows=high, step=columns.stride,
            )  # fmt: skip
            apart = w.short("apart", (high + 3) // 4 * 4)
            if table is not None and store is not None:
                near, far = (step for step in steps if step is not None)
                out = moved(store, {rows.variable: first, columns.variable: ZERO})
                extents = (columns.positions, high)
                table.requantize(w, out, sums, None, extents, (far, near), apart)
            else:
                _each(found, w, axes, sums, (first, high), apart)


def _each(
    found: Weighted, w: Writer, axes: tuple[Axis, Axis], sums: Buffer, band: tuple[Dim, Dim],
    apart: Dim,
) -> None:  # fmt: skip
    """The statements that follow each sum; `band`: its first row and its height."""
    rows, columns = axes
    with w.range("column", columns.positions) as c, w.range("row", band[1]) as r:
        at = {columns.variable: c, rows.variable: band[0] + r}
        w.finish(found.after, found.sum, Load(sums, (c * apart + r,)), at)


EXAMPLES = (
    Example(
        why="the rows of a channel in pairs",
        target="dsp",
        before=DEPTHWISE_INTEGER,
        after="""
            kernel @conv(...
              for c in 0..2 {
                micro raot_gather_columns_s8(...
                micro raot_depthwise_pairs_1(...
                micro raot_requantize_rows_f32(...
              }
            }""",
    ),
    Example(why="windows of more than three taps", target="dsp", before=LONG_WINDOWS),
)
