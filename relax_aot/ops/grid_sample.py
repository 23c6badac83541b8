# SPDX-License-Identifier: Apache-2.0
"""grid_sample: samples x at the positions of a grid.

A place counts from -1 to 1 along each axis, the last axis of x first. The places are worked
out once for all channels. A place that is NaN reads the first element.
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
    may_equal,
    must_equal,
    must_not_exceed,
    require,
)

MODES = ("nearest", "linear", "cubic")
PADDING = ("zeros", "border", "reflection")
FAR = 1 << 20
A = -0.75
"""The parameter of the cubic, as in PyTorch."""


@dataclass(frozen=True, slots=True)
class _Tap:
    """One neighbor along one axis: where, whether there is an element, its weight."""

    place: Dim
    inside: Expr | None
    weight: Expr | None


@dataclass(frozen=True, kw_only=True)
class Sampling:
    mode: str
    padding: str
    align_corners: bool


def _type(attrs: Sampling, x: TensorType, grid: TensorType) -> TensorType:
    spatial = x.rank - 2
    fits = spatial >= 1 and grid.rank == x.rank and may_equal(grid.shape[-1], spatial)
    require(fits, f"grid_sample cannot take {x} at {grid}")
    require(grid.dtype.is_float, f"grid_sample needs a float grid, got {grid}")
    require(x.dtype.is_float or attrs.mode == "nearest", f"grid_sample cannot mix elements of {x}")
    return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))


def _conditions(attrs: Sampling, x: TensorType, grid: TensorType) -> list[Condition]:
    there = [must_not_exceed(1, size, "grid_sample of an empty image") for size in x.shape[2:]]
    there.append(must_equal(grid.shape[-1], x.rank - 2, "grid_sample's places"))
    return [must_equal(grid.shape[0], x.shape[0], "grid_sample's batch"), *there]


def _lower(attrs: Sampling, k: KernelBuilder, x: Buffer, grid: Buffer, y: Buffer) -> None:
    spatial = x.rank - 2
    work = DType.F64 if grid.dtype is DType.F64 else DType.F32
    value_type = x.dtype if x.dtype.is_float and x.dtype.bytes >= 4 else DType.F32
    with k.loops(y.shape[0], *y.shape[2:]) as (image, *at):
        axes = []
        for axis in range(spatial):
            given = grid[(image, *at, Dim.of(spatial - 1 - axis))]
            size = x.shape[axis + 2]
            center = _center(attrs, k, given, size, work)
            axes.append(_taps(attrs, k, center, size, value_type))
        with k.loops(y.shape[1]) as (channel,):
            if attrs.mode == "nearest":
                value = _element(x, (image, channel), tuple(taps[0] for taps in axes))
            else:
                total = k.local("total", value_type, 0.0)
                for chosen in product(*axes):
                    element = _element(x, (image, channel), chosen)
                    part = element if x.dtype is value_type else Cast(element, value_type)
                    for tap in chosen:
                        assert tap.weight is not None
                        part = binary("*", part, tap.weight)
                    k.assign(total, total + part)
                value = total if x.dtype is value_type else Cast(total, x.dtype)
            k.store(y[(image, channel, *at)], value)


def _element(x: Buffer, lead: tuple[Dim, Dim], taps: tuple[_Tap, ...]) -> Expr:
    value: Expr = x[(*lead, *(tap.place for tap in taps))]
    inside = [tap.inside for tap in taps if tap.inside is not None]
    if not inside:
        return value
    condition = inside[0]
    for part in inside[1:]:
        condition = binary("&&", condition, part)
    zero: Lit = Lit(0.0 if x.dtype.is_float else 0, x.dtype)
    return Select(condition, value, zero)


def _number(size: Dim, work: DType) -> Expr:
    return Lit(float(size.constant), work) if size.is_constant else Cast(Index(size), work)


def _center(attrs: Sampling, k: KernelBuilder, given: Expr, size: Dim, work: DType) -> Local:
    """The place in elements; one outside is brought inside as `padding` says. With cubic
    mixing only the neighbors are kept at the border, as PyTorch and ONNX Runtime do."""
    place = given if given.dtype is work else Cast(given, work)
    length = _number(size, work)
    if attrs.align_corners:
        value: Expr = (place + 1.0) / 2.0 * (length - 1.0)
        low, high = Lit(0.0, work), length - 1.0
    else:
        value = ((place + 1.0) * length - 1.0) / 2.0
        low, high = Lit(-0.5, work), length - 0.5
    center = k.local("center", work, value)
    if attrs.mode == "nearest":
        k.assign(center, apply("rint", center))
    outside = binary("||", binary("<", center, low), binary("<", high, center))
    if attrs.padding == "border" and attrs.mode != "cubic":
        with k.when(outside):
            k.assign(center, apply("max", apply("min", center, length - 1.0), 0.0))
    if attrs.padding == "reflection":
        range_ = k.local("range", work, high - low)
        away = k.local("away", work, apply("abs", center - low))
        periods = k.local("periods", work, apply("floor", away / range_))
        rest = k.local("rest", work, away - periods * range_)
        odd = binary("!=", apply("floor", periods / 2.0) * 2.0, periods)
        folded = Select(odd, high - rest, low + rest)
        folded = Select(binary("<", Lit(0.0, work), range_), folded, low)
        with k.when(outside):
            k.assign(center, folded)
    return center


def _taps(
    attrs: Sampling, k: KernelBuilder, center: Local, size: Dim, value_type: DType
) -> list[_Tap]:
    left = apply("floor", center)
    single = size == Dim.of(1) and attrs.padding != "zeros"
    first = Dim.of(0) if single else k.clamped("from", left, -FAR, FAR)
    if attrs.mode == "nearest":
        return [_tap(attrs, k, first, size, None)]
    offset = center - left
    ratio: Expr = offset if offset.dtype is value_type else Cast(offset, value_type)
    t = k.local("t", value_type, ratio)
    start, weights = (0, (1.0 - t, t)) if attrs.mode == "linear" else (-1, _cubic(t))
    return [
        _tap(attrs, k, first + start + i, size, k.local("weight", value_type, w))
        for i, w in enumerate(weights)
    ]


def _cubic(t: Local) -> tuple[Expr, ...]:
    def far(s: Expr) -> Expr:
        return ((s * A - 5.0 * A) * s + 8.0 * A) * s - 4.0 * A

    def near(s: Expr) -> Expr:
        return (s * (A + 2.0) - (A + 3.0)) * s * s + 1.0

    return far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)


def _tap(attrs: Sampling, k: KernelBuilder, place: Dim, size: Dim, weight: Expr | None) -> _Tap:
    if attrs.padding == "zeros":
        named = k.let("tap", place)
        inside = binary("&&", binary("<=", 0, named), binary("<", named, size))
        return _Tap(named, inside, weight)
    if attrs.padding == "border":
        return _Tap(k.let("tap", dim_min(dim_max(place, 0), size - 1)), None, weight)
    # The mirrors stand at the centers of the outer elements, or at their outer edges.
    period = dim_max((size - 1) * 2, 1) if attrs.align_corners else size * 2
    phase = k.let("phase", place % period)
    back = period - phase if attrs.align_corners else period - 1 - phase
    folded = dim_min(dim_max(dim_min(phase, back), 0), size - 1)
    return _Tap(k.let("tap", folded), None, weight)


def _reference(attrs: Sampling, x: Array, grid: Array) -> Array:
    spatial = x.ndim - 2
    axes = [
        _axis(attrs, grid[..., spatial - 1 - axis].astype(np.float64), x.shape[axis + 2])
        for axis in range(spatial)
    ]
    images = np.moveaxis(x, 1, -1)
    (image, *_) = np.ix_(range(x.shape[0]), *[[0]] * spatial)
    total = np.zeros((*grid.shape[:-1], x.shape[1]))
    for chosen in product(*axes):
        inside, weight = np.array(True), np.array(1.0)
        for _, there, share in chosen:
            inside, weight = inside & there, weight * share
        elements = images[(image, *(place for place, _, _ in chosen))]
        total += np.where(inside[..., None], elements * weight[..., None], 0.0)
    return np.moveaxis(total, -1, 1).astype(x.dtype)


Neighbors = list[tuple[Array, Array, Array]]
"""For each neighbor along an axis: where it is, whether it is inside, its weight."""


def _axis(attrs: Sampling, given: Array, size: int) -> Neighbors:
    mode, padding, align_corners = attrs.mode, attrs.padding, attrs.align_corners
    if align_corners:
        center, low, high = (given + 1) / 2 * (size - 1), 0.0, size - 1.0
    else:
        center, low, high = ((given + 1) * size - 1) / 2, -0.5, size - 0.5
    if mode == "nearest":
        center = np.rint(center)
    outside = (center < low) | (center > high)
    if padding == "border" and mode != "cubic":
        center = np.where(outside, np.clip(center, 0.0, size - 1.0), center)
    elif padding == "reflection":
        center = np.where(outside, _mirrored(center, low, high), center)
    first = np.floor(center)
    t = center - first
    if mode == "nearest":
        weights, start = [np.ones_like(t)], 0
    elif mode == "linear":
        weights, start = [1 - t, t], 0
    else:
        start = -1
        weights = [
            np.where(
                s > 1,
                ((s * A - 5 * A) * s + 8 * A) * s - 4 * A,
                (s * (A + 2) - (A + 3)) * s * s + 1,
            )
            for s in (t + 1, t, 1 - t, 2 - t)
        ]
    found = []
    for i, weight in enumerate(weights, start):
        place = first + i
        inside = np.asarray((place >= 0) & (place < size) | (padding != "zeros"))
        if padding == "reflection":
            place = np.rint(_mirrored(place, low, high))
        found.append((np.clip(place, 0, size - 1).astype(np.int64), inside, weight))
    return found


def _mirrored(value: Array, low: float, high: float) -> Array:
    if high <= low:
        return np.full_like(value, low)
    phase = np.mod(value - low, 2 * (high - low))
    return low + np.minimum(phase, 2 * (high - low) - phase)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(x: tuple[int, ...], grid: tuple[int, ...], wide: float = 1.3, **attrs: Any) -> Sample:
        usual = {"mode": "linear", "padding": "zeros", "align_corners": False}
        where = rng.uniform(-wide, wide, grid).astype(np.float32)
        images = rng.normal(size=x).astype(attrs.pop("dtype", np.float32))
        return Sample((images, where), {**usual, **attrs}, fixed=(grid[-1],), rtol=1e-4, atol=1e-4)

    every = [
        case((1, 3, 4, 5), (1, 7, 6, 2), mode=mode, padding=padding, align_corners=align)
        for mode in MODES
        for padding in PADDING
        for align in (False, True)
    ]
    return [
        *every,
        case((3, 4, 5, 6), (3, 7, 8, 2), wide=4.0, padding="reflection"),
        case((1, 1, 3, 4, 5), (1, 2, 4, 6, 3), mode="linear", padding="border"),
        case((1, 1, 3, 4, 5), (1, 2, 4, 6, 3), mode="nearest", padding="reflection"),
        case((1, 1, 4), (1, 6, 1), mode="cubic", padding="reflection"),
        case((1, 1, 1, 1), (1, 3, 3, 2), padding="reflection", align_corners=True),
        case((1, 3, 4, 5), (1, 7, 6, 2), mode="nearest", dtype=np.float16),
    ]


OP = Op("grid_sample", _type, _lower, _reference, _samples, conditions=_conditions, record=Sampling,
        values={"mode": MODES, "padding": PADDING})  # fmt: skip
