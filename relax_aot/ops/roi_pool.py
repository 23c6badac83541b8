# SPDX-License-Identifier: Apache-2.0
"""Pooling over regions of interest: roi_align and max_roi_pool.

The image of a region is an index from data: one outside the batch ends the run with a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Local, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    may_equal,
    must_equal,
    must_not_exceed,
    require,
)

FAR = 1 << 20
MOST_SAMPLES = 1 << 15
"""Samples of one cell along one axis; a region that asks for more is refused."""


def _number(size: Dim, dtype: DType) -> Expr:
    return Lit(float(size.constant), dtype) if size.is_constant else Cast(Index(size), dtype)


# roi_align


@dataclass(frozen=True, kw_only=True)
class Align:
    height: int
    width: int
    mode: str
    sampling: int
    scale: float
    half_pixel: bool


def _align_type(attrs: Align, x: TensorType, rois: TensorType, images: TensorType) -> TensorType:
    require(x.rank == 4 and rois.rank == 2 and images.rank == 1, f"roi_align cannot take {x}")
    require(may_equal(rois.shape[1], 4), f"roi_align needs four numbers a region, got {rois}")
    same = x.dtype is rois.dtype and x.dtype in (DType.F32, DType.F64)
    require(same, f"roi_align cannot take {x} at {rois}")
    cells = (Dim.of(attrs.height), Dim.of(attrs.width))
    return TensorType(x.dtype, (rois.shape[0], x.shape[1], *cells))


def _align_conditions(
    attrs: Align, x: TensorType, rois: TensorType, images: TensorType
) -> list[Condition]:
    there = [must_not_exceed(1, size, "roi_align of an empty image") for size in x.shape[2:]]
    there.append(must_equal(rois.shape[1], 4, "roi_align's regions"))
    return [must_equal(images.shape[0], rois.shape[0], "roi_align's regions"), *there]


def _align_lower(
    attrs: Align, k: KernelBuilder, x: Buffer, rois: Buffer, images: Buffer, y: Buffer
) -> None:
    work = x.dtype
    with k.loops(y.shape[0]) as (n,):
        image = k.index("image", images[(n,)], 0, x.shape[0] - 1)
        starts, bins, counts = [], [], []
        for axis, cells in ((1, attrs.height), (0, attrs.width)):
            offset = 0.5 if attrs.half_pixel else 0.0
            ends = [rois[(n, Dim.of(axis + side))] * attrs.scale - offset for side in (0, 2)]
            start = k.local("start", work, ends[0])
            length: Expr = ends[1] - start
            if not attrs.half_pixel:
                length = apply("max", length, 1.0)
            cell = k.local("cell", work, length / float(cells))
            starts.append(start)
            bins.append(cell)
            if attrs.sampling > 0:
                counts.append(Dim.of(attrs.sampling))
            else:
                requested = Cast(apply("ceil", cell), DType.I64, "saturate")
                counts.append(k.index("samples", apply("max", requested, 0), 0, MOST_SAMPLES))
        with k.loops(*y.shape[1:]) as (channel, *at):
            total = k.local("total", work, 0.0)
            seen = k.local("seen", DType.BOOL, False) if attrs.mode == "max" else None
            with k.loops(*counts) as sample:
                taps = []
                for i in range(2):
                    part = (_number(sample[i], work) + 0.5) * bins[i] / _number(counts[i], work)
                    place = starts[i] + _number(at[i], work) * bins[i] + part
                    taps.append(_neighbors(k, place, x.shape[i + 2], work))
                there = binary("&&", taps[0][0], taps[1][0])
                weighted = [
                    Select(there, w * v * x[(image, channel, p, q)], Lit(0.0, work))
                    for p, w in taps[0][1]
                    for q, v in taps[1][1]
                ]
                if seen is None:
                    k.assign(total, total + (weighted[0] + weighted[1] + weighted[2] + weighted[3]))
                else:
                    best = apply(
                        "max", apply("max", weighted[0], weighted[1]), apply("max", *weighted[2:])
                    )
                    k.assign(total, Select(seen, apply("max", total, best), best))
                    k.assign(seen, True)
            value: Expr = total
            if attrs.mode == "avg":
                value = total / _number(dim_max(counts[0] * counts[1], 1), work)
            k.store(y[(n, channel, *at)], value)


Neighbors = tuple[Expr, list[tuple[Dim, Expr]]]


def _neighbors(k: KernelBuilder, place: Expr, size: Dim, work: DType) -> Neighbors:
    """Whether the place is at the image at all, and its two neighbors with weights."""
    where = k.local("where", work, place)
    there = ~binary("||", binary("<", where, -1.0), binary("<", _number(size, work), where))
    inner = k.local("inner", work, apply("max", where, 0.0))
    last = _number(size - 1, work)
    k.assign(inner, apply("min", inner, last))
    low = k.clamped("low", apply("floor", inner), 0, size - 1)
    share = k.local("share", work, inner - _number(low, work))
    return there, [(low, 1.0 - share), (k.let("high", dim_min(low + 1, size - 1)), share)]


def _align_reference(attrs: Align, x: Array, rois: Array, images: Array) -> Array:
    y = np.zeros((len(rois), x.shape[1], attrs.height, attrs.width))
    for n, (roi, image) in enumerate(zip(rois.astype(np.float64), images, strict=True)):
        roi = roi * attrs.scale - (0.5 if attrs.half_pixel else 0.0)
        start = np.array([roi[1], roi[0]])
        length = np.array([roi[3], roi[2]]) - start
        length = length if attrs.half_pixel else np.maximum(length, 1.0)
        cell = length / (attrs.height, attrs.width)
        counts = [attrs.sampling or max(int(np.ceil(c)), 0) for c in cell]
        if min(counts) == 0:
            continue
        axes = [
            _weighted(begin + (np.arange(cells * count) + 0.5) * step / count, size)
            for begin, cells, count, step, size in zip(
                start, (attrs.height, attrs.width), counts, cell, x.shape[2:], strict=True
            )
        ]
        parts = np.array([
            x[int(image)][:, rows][:, :, columns] * (above[:, None] * left)
            for (rows, above), (columns, left) in product(*axes)
        ]).reshape(4, x.shape[1], attrs.height, counts[0], attrs.width, counts[1])  # fmt: skip
        if attrs.mode == "avg":
            y[n] = parts.sum(axis=0).mean(axis=(2, 4))
        else:
            y[n] = parts.max(axis=(0, 3, 5))
    return y.astype(x.dtype)


def _weighted(places: Array, size: int) -> list[tuple[Array, Array]]:
    """The two elements around each place along an axis, with their weights: 0 far outside."""
    inside = (places >= -1) & (places <= size)
    inner = np.clip(places, 0.0, size - 1.0)
    low = inner.astype(np.int64)
    share = inner - low
    return [
        (low, np.where(inside, 1 - share, 0.0)),
        (np.minimum(low + 1, size - 1), np.where(inside, share, 0.0)),
    ]


def _align_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(2, 3, 6, 7)).astype(np.float32)
    corner = rng.uniform(-1, 4, (5, 2))
    rois = np.concatenate([corner, corner + rng.uniform(0, 6, (5, 2))], axis=1).astype(np.float32)
    images = np.array([0, 1, 1, 0, 1])
    usual = {"height": 2, "width": 4, "mode": "avg", "sampling": 2, "scale": 1.0}
    return [
        Sample((x, rois, images), {**usual, "half_pixel": half, **more}, fixed=(4,),
               rtol=1e-4, atol=1e-4)
        for half in (False, True)
        for more in ({}, {"mode": "max"}, {"sampling": 0}, {"sampling": 0, "scale": 0.5})
    ]  # fmt: skip


ALIGN = Op(
    "roi_align", _align_type, _align_lower, _align_reference, _align_samples,
    conditions=_align_conditions, record=Align, values={"mode": ("avg", "max")},
)  # fmt: skip


# max_roi_pool


def _pool_type(
    x: TensorType, rois: TensorType, *, height: int, width: int, scale: float
) -> TensorType:
    fits = x.rank == 4 and rois.rank == 2 and may_equal(rois.shape[1], 5)
    require(fits and x.dtype is rois.dtype, f"max_roi_pool cannot take {x} at {rois}")
    require(x.dtype in (DType.F32, DType.F64), f"max_roi_pool cannot take {x}")
    return TensorType(x.dtype, (rois.shape[0], x.shape[1], Dim.of(height), Dim.of(width)))


def _pool_lower(
    k: KernelBuilder, x: Buffer, rois: Buffer, y: Buffer, *, height: int, width: int, scale: float
) -> None:
    with k.loops(y.shape[0]) as (n,):
        given = Cast(rois[(n, Dim.of(0))], DType.I64, "saturate")
        image = k.index("image", given, 0, x.shape[0] - 1)
        starts, bins = [], []
        for axis, cells in ((2, height), (1, width)):
            ends = [
                k.clamped("end", apply("round", rois[(n, Dim.of(axis + side))] * scale), -FAR, FAR)
                for side in (0, 2)
            ]
            length = k.let("length", dim_max(ends[1] - ends[0] + 1, 1))
            starts.append(ends[0])
            bins.append(k.local("cell", x.dtype, _number(length, x.dtype) / float(cells)))
        with k.loops(*y.shape[1:]) as (channel, *at):
            spans = []
            for i in range(2):
                place = _number(at[i], x.dtype)
                low = k.clamped("low", apply("floor", place * bins[i]), 0, FAR)
                high = k.clamped("high", apply("ceil", (place + 1.0) * bins[i]), 0, FAR)
                size = x.shape[i + 2]
                spans.append(
                    tuple(
                        k.let("edge", dim_min(dim_max(edge + starts[i], 0), size))
                        for edge in (low, high)
                    )
                )
            peak = k.local("peak", x.dtype, 0.0)
            seen: Local = k.local("seen", DType.BOOL, False)
            with k.span(*spans[0]) as row, k.span(*spans[1]) as column:
                value = x[(image, channel, row, column)]
                k.assign(peak, Select(seen, apply("max", peak, value), value))
                k.assign(seen, True)
            k.store(y[(n, channel, *at)], peak)


def _pool_reference(x: Array, rois: Array, *, height: int, width: int, scale: float) -> Array:
    y = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    f = x.dtype.type
    for n, roi in enumerate(rois):
        ends = [int(np.floor(abs(v) + f(0.5)) * np.sign(v)) for v in roi[1:] * f(scale)]
        spans = []
        for start, end, cells, size in (
            (ends[1], ends[3], height, x.shape[2]), (ends[0], ends[2], width, x.shape[3]),
        ):  # fmt: skip
            cell = f(max(end - start + 1, 1)) / f(cells)
            spans.append([
                (int(np.clip(np.floor(f(i) * cell) + start, 0, size)),
                 int(np.clip(np.ceil(f(i + 1) * cell) + start, 0, size)))
                for i in range(cells)
            ])  # fmt: skip
        for at in np.ndindex(height, width):
            (a, b), (c, d) = spans[0][at[0]], spans[1][at[1]]
            cut = x[int(roi[0]), :, a:b, c:d]
            y[(n, slice(None), *at)] = cut.max(axis=(1, 2)) if cut[0].size else 0
    return y


def _pool_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(2, 3, 6, 7)).astype(np.float32)
    corner = rng.uniform(-1, 8, (4, 2))
    ends = corner + rng.uniform(-1, 6, (4, 2))
    rois = np.concatenate([[[0], [1], [1], [0]], corner, ends], axis=1).astype(np.float32)
    return [
        Sample((x, rois), {"height": 2, "width": 3, "scale": scale}, fixed=(5,))
        for scale in (1.0, 0.6)
    ]


def _pool_conditions(x: TensorType, rois: TensorType, **_attrs: Any) -> list[Condition]:
    return [must_equal(rois.shape[1], 5, "max_roi_pool's regions")]


POOL = Op(
    "max_roi_pool", _pool_type, _pool_lower, _pool_reference, _pool_samples,
    conditions=_pool_conditions, traits=Trait.EXACT
)  # fmt: skip

OPS = (ALIGN, POOL)
