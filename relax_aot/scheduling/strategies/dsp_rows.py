# SPDX-License-Identifier: Apache-2.0
"""Contractions of rows of bytes whose sums become floats, for Arm's DSP extension with an FPU: four
channels at a time (`raot_multiply_pair_row_f32`).

The statement behind a sum is `sum * scale * row + start`, with a scale and a start for each channel
and a factor for the row, as of activations that are quantized row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Cast, Lit, Load, Local, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Weighted, moved, number_of, stride
from relax_aot.scheduling.epilogue import matched
from relax_aot.scheduling.packing import Arrays, Packed, padded, round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, SCALED_ROW
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights
from relax_aot.scheduling.writer import Writer

ROWS = 4
"""More rows share the loads of their weights (dsp_pairs.py); where these wait, any two do."""
SUM = Local("sum", DType.I32)
SCALED = Cast(SUM, DType.F32) * Local("scale", DType.F32) * Local("row", DType.F32) + Local(
    "start", DType.F32
)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """What follows a sum."""

    scale: Load
    row: Load
    start: Load
    store: Store


def rows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Few rows, each by itself."""
    known = found.w.dtype is DType.I8 and found.w.buffer.name in context.balanced
    if context.target.compact or not known or found.w_zero or found.x_zero or found.flip:
        return None
    if found.channel is None or len(found.reductions) != 1 or found.clipped:
        return None
    if stride(found.x, found.reductions[0].variable) != 1 or number_of(found.start) != 0:
        return None
    if not found.has_depth(context.constants) or found.shared:
        return None
    scaled = _scaled(found)
    most = 1 if context.target.waits else ROWS
    few = interval(found.position_count, w.bounds)[1] <= most
    return partial(_emit, found, w, scaled) if scaled is not None and few else None


def _scaled(found: Weighted) -> _Scaled | None:
    store = found.store
    holes = matched(SCALED, store.value, {"sum": found.sum}) if store is not None else None
    if store is None or holes is None:
        return None
    loads = [holes[name] for name in ("scale", "row", "start")]
    steps = [stride(load, found.own) if isinstance(load, Load) else None for load in loads]
    if steps != [ONE, ZERO, ONE] or stride(store, found.own) != 1:
        return None
    scale, row, start = (load for load in loads if isinstance(load, Load))
    if store.buffer in (scale.buffer, row.buffer, start.buffer):
        return None
    return _Scaled(scale, row, start, store)


def _emit(found: Weighted, w: Writer, scaled: _Scaled) -> None:
    pack = Weights(found, [0])
    steps, channels = round_up(-(-found.depth // 2), 2), round_up(found.channels, 4)
    weights = pack.buffer(w, "pairs", DType.I16, (channels // 4, steps, 2, 2))

    def packed(data: Arrays) -> Array:
        values = padded(pack.matrix(data), (channels, 2 * steps))
        groups = values.reshape(-1, 2, 2, steps, 2)
        both = groups[:, :, 0].astype(np.int64) + 256 * groups[:, :, 1].astype(np.int64)
        return np.swapaxes(both, 1, 2).astype(np.int16)

    w.constant(Packed(weights, packed))
    pairs = w.buffer("pairs", DType.I16, steps, 2)
    for place in range(found.depth, 2 * steps):
        w.add(Store(pairs, (Dim.of(place // 2), Dim.of(place % 2)), Lit(0, DType.I16)))
    with w.nest(found.positions) as at:
        at = {**at, found.own: ZERO, found.reductions[0].variable: ZERO}
        w.micro(
            "raot_gather_pairs_s8", pairs=pairs[(ZERO, ZERO)], image=moved(found.x, at), zero=0,
            channels=found.depth, channel_step=ONE, lines=1, first1=0, last1=1, line_step=0,
            taps=1, dilation=1, columns=1, first=0, stride=1, width=1, column_step=1, wide=1,
        )  # fmt: skip
        w.micro(
            "raot_multiply_pair_row_f32", out=moved(scaled.store, at), weights=weights,
            pairs=pairs, scales=moved(scaled.scale, at), row=moved(scaled.row, at),
            starts=moved(scaled.start, at), channels=found.channels, count=steps,
        )  # fmt: skip


EXAMPLES = (
    Example(
        why="a row of bytes and its scale",
        target="dsp",
        before=SCALED_ROW,
        after="""
            kernel @dot(..., %w.pairs: i16[2, 4, 2, 2]) -> (%y: f32[6]) ...
              %pairs[3, 1] = 0:i16
              micro raot_gather_pairs_s8(%pairs[0, 0], %x[0]) ...
              micro raot_multiply_pair_row_f32(%y[0], ...) [6, 4]
            }""",
    ),
    Example(why="sums that stay integers", target="dsp", before=INTEGER_MATMUL),
)
