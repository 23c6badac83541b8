# SPDX-License-Identifier: Apache-2.0
"""mel_weights: a matrix that converts the bins of a spectrum to the mel scale.

The edges of the triangles lie evenly apart on that scale, from `low` to `high` hertz, and on
whole bins of the spectrum; one outside the spectrum ends the run with a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, not_negative, require

PER_DECADE, CORNER = 2595.0, 700.0
"""mel = 2595 log10(1 + hertz / 700)"""
WIDE = DType.F64


@dataclass(frozen=True, kw_only=True)
class Mel:
    rows: int | Dim
    bins: int | Dim


def deduce(
    attrs: Mel, length: TensorType, rate: TensorType, low: TensorType, high: TensorType
) -> TensorType:
    whole = length.dtype is rate.dtype is DType.I64
    edges = low.dtype is high.dtype is WIDE
    require(whole and edges, f"mel_weights of {length}, {rate}, {low}, {high}")
    return TensorType(WIDE, (Dim.of(attrs.rows), Dim.of(attrs.bins)))


def conditions(attrs: Mel, *_types: TensorType) -> list[Condition]:
    return not_negative("rows", "bins")(rows=attrs.rows, bins=attrs.bins)


def lower(
    attrs: Mel, k: KernelBuilder, length: Buffer, rate: Buffer, low: Buffer, high: Buffer, y: Buffer
) -> None:
    size, speed, least, most = (b[(Dim.of(0),) * b.rank] for b in (length, rate, low, high))
    places = k.scratch("places", DType.I64, (Dim.of(attrs.bins) + 2,))
    scale = Lit(PER_DECADE / log(10), WIDE)

    def mel(hertz: Expr) -> Expr:
        return binary("*", scale, apply("log1p", binary("/", hertz, Lit(CORNER, WIDE))))

    start = k.local("start", WIDE, mel(least))
    step = binary("/", binary("-", mel(most), start), Cast(Index(Dim.of(attrs.bins) + 2), WIDE))
    pace = k.local("pace", WIDE, step)
    with k.loops(Dim.of(attrs.bins) + 2) as (i,):
        point = binary("+", binary("*", Cast(Index(i), WIDE), pace), start)
        hertz = binary("*", Lit(CORNER, WIDE), apply("expm1", binary("/", point, scale)))
        share = binary("*", Cast(binary("+", size, Lit(1, DType.I64)), WIDE), hertz)
        place = apply("floor", binary("/", share, Cast(speed, WIDE)))
        k.store(places[(i,)], Cast(place, DType.I64, "saturate"))
    with k.loops(attrs.bins) as (column,):
        edges = [
            k.index(name, places[(column + i,)], 0, Dim.of(attrs.rows) - 1)
            for i, name in enumerate(("left", "center", "right"))
        ]
        left, center, right = edges
        with k.loops(attrs.rows) as (row,):
            up = binary("<=", left, row) & binary("<=", row, center)
            rising = _share(row - left, center - left)
            rising = Select(binary("==", left, center), Lit(1.0, WIDE), rising)
            down = binary("<=", center, row) & binary("<", row, right)
            falling = Select(down, _share(right - row, right - center), Lit(0.0, WIDE))
            k.store(y[(row, column)], Select(up & ~down, rising, falling))


def _share(part: Dim, whole: Dim) -> Expr:
    return binary("/", Cast(Index(part), WIDE), Cast(Index(whole), WIDE))


def reference(attrs: Mel, length: Array, rate: Array, low: Array, high: Array) -> Array:
    size, speed = int(length.reshape(())), int(rate.reshape(()))
    edges = PER_DECADE * np.log10(1 + np.array([low.reshape(()), high.reshape(())]) / CORNER)
    rows, bins = int(attrs.rows), int(attrs.bins)
    points = edges[0] + np.arange(bins + 2) * (edges[1] - edges[0]) / (bins + 2)
    hertz = CORNER * (10 ** (points / PER_DECADE) - 1)
    places = np.floor((size + 1) * hertz / speed).astype(np.int64)
    if places.min() < 0 or places.max() >= rows:
        raise IndexError("an edge lies outside the spectrum")
    y = np.zeros((rows, bins))
    for column in range(bins):
        left, center, right = (int(p) for p in places[column : column + 3])
        if left == center:
            y[center, column] = 1
        for row in range(left, center + 1 if center > left else left):
            y[row, column] = (row - left) / (center - left)
        for row in range(center, right):
            y[row, column] = (right - row) / (right - center)
    return y


def samples(rng: np.random.Generator) -> list[Sample]:
    def case(bins: int, length: int, rate: int, low: float, high: float) -> Sample:
        args = (np.array(length), np.array(rate), np.array(low), np.array(high))
        return Sample(args, {"rows": length // 2 + 1, "bins": bins}, ("rows", "bins"))

    return [
        case(8, 16, 8192, 0.0, 4096.0),
        case(40, 400, 16000, 20.0, 7600.0),
        case(3, 33, 8000, 100.5, 900.0),
    ]


OP = Op("mel_weights", deduce, lower, reference, samples, conditions=conditions, record=Mel)
