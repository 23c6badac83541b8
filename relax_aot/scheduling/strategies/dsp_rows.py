# SPDX-License-Identifier: Apache-2.0
"""Contractions of rows of bytes whose sums become floats, for Arm's DSP extension with an FPU: four
channels of a row at a time (`raot_multiply_pair_row_f32`), or two channels of three rows, which
share the loads of their weights (`raot_multiply_pair_rows_f32`).

The statement behind a sum is `sum * scale * row + start`, with a scale and a start for each channel
and a factor for the row, as of activations that are quantized row by row. Where these are scratch,
passes/row_pairs.py quantizes them to the pairs that are gathered here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Cast, If, Index, Lit, Load, Local, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Weighted, moved, number_of, stride
from relax_aot.scheduling.epilogue import matched
from relax_aot.scheduling.packing import Arrays, Packed, padded, round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, SCALED_ROW, SCALED_ROWS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights
from relax_aot.scheduling.writer import Writer

ROWS = 4
"""More rows are multiplied twelve at a time (dsp_pairs.py), as are two where weights wait."""
TOGETHER = 3
TILES = ("tile", "rows")
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
    """Few rows, three together or each by itself."""
    known = found.w.dtype is DType.I8 and found.w.buffer.name in context.balanced
    if context.target.compact or not known or found.w_zero or found.x_zero or found.flip:
        return None
    if found.channel is None or len(found.reductions) != 1 or found.clipped:
        return None
    if stride(found.x, found.reductions[0].variable) != 1 or number_of(found.start) != 0:
        return None
    if not found.has_depth(context.constants) or found.shared or found.taken is not None:
        return None
    scaled = _scaled(found)
    if scaled is None:
        return None
    single = context.target.waits and _distance(found, w, scaled) is None
    few = interval(found.position_count, w.bounds)[1] <= (1 if single else ROWS)
    return partial(_emit, found, w, scaled) if few else None


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


def _distance(found: Weighted, w: Writer, scaled: _Scaled) -> Dim | None:
    """From a row to the next one; None where rows are not multiplied together."""
    if len(found.positions) != 1 or interval(found.positions[0].stop, w.bounds)[1] < TOGETHER:
        return None
    row = found.positions[0].variable
    places = (scaled.scale, scaled.start, scaled.row, scaled.store)
    fits = [stride(place, row) for place in places] == [ZERO, ZERO, ONE, Dim.of(found.channels)]
    return stride(found.x, row) if fits else None


def _emit(found: Weighted, w: Writer, scaled: _Scaled) -> None:
    pack = Weights(found, [0])
    steps, channels = round_up(-(-found.depth // 2), 2), round_up(found.channels, 4)
    weights = pack.buffer(w, "pairs", DType.I16, (channels // 4, steps // 2, 2, 2, 2))

    def packed(data: Arrays) -> Array:
        values = padded(pack.matrix(data), (channels, 2 * steps))
        groups = values.reshape(-1, 2, 2, steps // 2, 2, 2).astype(np.int64)
        both = groups[:, :, 0] + 256 * groups[:, :, 1]
        return np.swapaxes(both, 1, 2).astype(np.int16)

    w.constant(Packed(weights, packed))
    rows = _Rows(found, w, scaled, weights, steps)
    far = _distance(found, w, scaled)
    if far is None:
        with w.nest(found.positions) as at:
            rows.multiply(at, 1, ONE)
        return
    (loop,) = found.positions
    one = interval(loop.stop, w.bounds)[1] == TOGETHER
    tiles = nullcontext((ZERO, loop.stop)) if one else w.tiles(TILES, loop.stop, TOGETHER)
    with tiles as (first, count):
        if count == TOGETHER:
            rows.multiply({loop.variable: first}, TOGETHER, far)
            return
        with w.block() as whole:
            rows.multiply({loop.variable: first}, TOGETHER, far)
        with w.block() as single, w.range("row", count) as row:
            rows.multiply({loop.variable: first + row}, 1, ONE)
        w.add(If(Binary("==", Index(count), Index(Dim.of(TOGETHER))), tuple(whole), tuple(single)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of `found`, whose weights are of `steps` pairs."""

    found: Weighted
    w: Writer
    scaled: _Scaled
    weights: Buffer
    steps: int

    def multiply(self, at: Mapping[str, Dim], count: int, far: Dim) -> None:
        """`count` rows from `at` on, which are `far` apart."""
        found, w, scaled, steps = self.found, self.w, self.scaled, self.steps
        at = {**at, found.own: ZERO, found.reductions[0].variable: ZERO}
        pairs = w.buffer("pairs", DType.I16, steps, count, 2)
        for place in range(found.depth, 2 * steps):
            for row in range(count):
                end = (Dim.of(place // 2), Dim.of(row), Dim.of(place % 2))
                w.add(Store(pairs, end, Lit(0, DType.I16)))
        w.micro(
            "raot_gather_pairs_s8", pairs=pairs[(ZERO, ZERO, ZERO)], image=moved(found.x, at),
            zero=0, channels=found.depth, channel_step=ONE, lines=1, first1=0, last1=1, line_step=0,
            taps=1, dilation=1, columns=count, first=0, stride=1, width=count, column_step=far,
            wide=count,
        )  # fmt: skip
        w.micro(
            f"raot_multiply_pair_row{'s' if count > 1 else ''}_f32", out=moved(scaled.store, at),
            weights=self.weights, pairs=pairs, scales=moved(scaled.scale, at),
            **{"rows" if count > 1 else "row": moved(scaled.row, at)},
            starts=moved(scaled.start, at), channels=found.channels, count=steps,
        )  # fmt: skip


EXAMPLES = (
    Example(
        why="a row of bytes and its scale",
        target="dsp",
        before=SCALED_ROW,
        after="""
            kernel @dot(..., %w.pairs: i16[2, 2, 2, 2, 2]) -> (%y: f32[6]) ...
              %pairs[3, 0, 1] = 0:i16
              micro raot_gather_pairs_s8(%pairs[0, 0, 0], %x[0]) ...
              micro raot_multiply_pair_row_f32(%y[0], ...) [6, 4]
            }""",
    ),
    Example(
        why="up to three rows",
        target="dsp",
        before=SCALED_ROWS,
        after="""
            kernel @dot(..., %w.pairs: i16[2, 2, 2, 2, 2]) -> (%y: f32[n, 6]) ...
              if (index(n) == index(3)) {
                micro raot_gather_pairs_s8(%pairs[0, 0, 0], %x[0, 0]) ...
                micro raot_multiply_pair_rows_f32(%y[0, 0], ...) [6, 4]
              } else {
                for row in 0..n {
                  micro raot_gather_pairs_s8(%pairs_0[0, 0, 0], %x[row, 0]) ...
                  micro raot_multiply_pair_row_f32(%y[row, 0], ...) [6, 4]
                }
              }
            }""",
    ),
    Example(why="sums that stay integers", target="dsp", before=INTEGER_MATMUL),
)
