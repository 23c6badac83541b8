# SPDX-License-Identifier: Apache-2.0
"""deform_columns: the taps of a deformable convolution, sampled bilinearly at moved places.

Each channel of the image becomes a channel for each tap of the window, so that a pointwise
convolution finishes the deformable one. Outside the image lies zero. The places of taps are
shared by the channels of an offset group.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Local, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, must_fit, must_not_exceed, require
from relax_aot.ops._samples import normals
from relax_aot.ops._window import Window, usual

FAR = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DeformColumns(Window):
    offset_group: int

    @property
    def taps(self) -> Dim:
        return prod(map(Dim.of, self.kernel), start=Dim.of(1))


def _type(
    attrs: DeformColumns, x: TensorType, offset: TensorType, mask: TensorType | None = None
) -> TensorType:
    require(x.rank == offset.rank >= 3, f"deform_columns needs one rank, got {x} and {offset}")
    require(x.dtype in (DType.F32, DType.F64), f"deform_columns cannot take {x}")
    given = (offset, mask)
    require(all(t is None or t.dtype is x.dtype for t in given), "deform_columns needs one type")
    channels = x.shape[1] * attrs.taps
    return TensorType(x.dtype, (x.shape[0], channels, *attrs.sizes(x.shape[2:])))


def _conditions(
    attrs: DeformColumns, x: TensorType, offset: TensorType, mask: TensorType | None = None
) -> list[Condition]:
    y = _type(attrs, x, offset, mask)
    taps = attrs.taps * attrs.offset_group
    conditions = [must_not_exceed(0, n, "deform_columns' output size") for n in y.shape[2:]]
    conditions += [must_not_exceed(1, n, "deform_columns of an empty image") for n in x.shape[2:]]
    together = x.shape[1] // attrs.offset_group * attrs.offset_group
    conditions.append(must_equal(together, x.shape[1], "deform_columns' offset groups"))
    for given, channels in ((offset, taps * (x.rank - 2)), (mask, taps)):
        shape = (x.shape[0], channels, *y.shape[2:])
        conditions += must_fit(given, shape, "deform_columns' offsets")
    return conditions


def _lower(
    attrs: DeformColumns,
    k: KernelBuilder,
    x: Buffer,
    offset: Buffer,
    mask: Buffer | None,
    y: Buffer,
) -> None:
    spatial, kernel = x.rank - 2, tuple(map(Dim.of, attrs.kernel))
    strides, pads, dilations = attrs.strides, attrs.pads, attrs.dilations
    shared, taps = x.shape[1] // attrs.offset_group, attrs.taps
    groups = Dim.of(attrs.offset_group)
    with k.loops(y.shape[0], groups, *kernel, *y.shape[2:]) as (image, group, *rest):
        tap, at = rest[:spatial], rest[spatial:]
        number = Dim.of(0)
        for axis in range(spatial):
            number = number * kernel[axis] + tap[axis]
        place = group * taps + number
        corners = []
        for axis in range(spatial):
            start = at[axis] * strides[axis] - pads[axis] + tap[axis] * dilations[axis]
            moved = offset[(image, place * spatial + axis, *at)]
            center = Cast(Index(start), y.dtype) + moved
            corners.append(_corners(k, center, x.shape[axis + 2], y.dtype))
        shares = _shares(k, corners, y.dtype)
        with k.loops(shared) as (c,):
            channel = group * shared + c
            value: Expr = _mixed(k, x, (image, channel), shares)
            if mask is not None:
                value = binary("*", value, mask[(image, place, *at)])
            k.store(y[(image, channel * taps + number, *at)], value)


Corner = tuple[Dim, Expr, Expr]
Share = tuple[tuple[Dim, ...], Expr, Expr]


def _corners(k: KernelBuilder, center: Expr, size: Dim, work: DType) -> list[Corner]:
    """The two neighbors along an axis: the nearest place inside, whether it is that, weight."""
    where = k.local("where", work, center)
    left = apply("floor", where)
    first = k.clamped("from", left, -FAR, FAR)
    share = k.local("share", work, where - left)
    weights: tuple[Expr, Expr] = (1.0 - share, share)
    corners: list[Corner] = []
    for i, weight in enumerate(weights):
        place = k.let("corner", first + i)
        inside = binary("&&", binary("<=", 0, place), binary("<", place, size))
        corners.append((k.let("held", dim_min(dim_max(place, 0), size - 1)), inside, weight))
    return corners


def _shares(k: KernelBuilder, corners: list[list[Corner]], work: DType) -> list[Share]:
    """The neighbors along all axes: their places, whether these are inside, weights."""
    shares: list[Share] = []
    for chosen in product(*corners):
        inside, weight = chosen[0][1], chosen[0][2]
        for _, there, share in chosen[1:]:
            inside, weight = binary("&&", inside, there), binary("*", weight, share)
        held, factor = k.local("inside", DType.BOOL, inside), k.local("weight", work, weight)
        shares.append((tuple(place for place, _, _ in chosen), held, factor))
    return shares


def _mixed(k: KernelBuilder, x: Buffer, lead: tuple[Dim, Dim], shares: list[Share]) -> Local:
    """Elements are read inside the image and then chosen, so that no load is conditional."""
    value = k.local("value", x.dtype, 0.0)
    for places, inside, weight in shares:
        element = k.local("element", x.dtype, x[(*lead, *places)])
        part = Select(inside, element, Lit(0.0, x.dtype))
        k.assign(value, value + binary("*", weight, part))
    return value


def _reference(attrs: DeformColumns, x: Array, offset: Array, mask: Array | None = None) -> Array:
    spatial = x.ndim - 2
    strides, dilations = attrs.strides, attrs.dilations
    n, taps = x.shape[0], [int(size) for size in attrs.kernel]
    pads = [int(size) for size in attrs.pads]
    at = offset.shape[2:]
    moved = offset.reshape(n, attrs.offset_group, *taps, spatial, *at).astype(np.float64)
    weight = np.ones((n, attrs.offset_group, *taps, *at))
    if mask is not None:
        weight = mask.reshape(weight.shape).astype(np.float64)
    per_offset = x.shape[1] // attrs.offset_group
    images = np.moveaxis(x.reshape(n, attrs.offset_group, per_offset, *x.shape[2:]), 2, -1)
    centers = [
        _along(2 + a, np.arange(taps[a]) * dilations[a] - pads[a], moved.ndim - 1)
        + _along(2 + spatial + a, np.arange(at[a]) * strides[a], moved.ndim - 1)
        + moved.take(a, 2 + spatial)
        for a in range(spatial)
    ]
    lead = np.ix_(range(n), range(attrs.offset_group), *[[0]] * (2 * spatial))[:2]
    columns = np.zeros((*weight.shape, per_offset))
    for corner in product((0, 1), repeat=spatial):
        inside, share, places = np.array(True), weight, []
        for center, side, size in zip(centers, corner, x.shape[2:], strict=True):
            place = np.floor(center) + side
            there = (place >= 0) & (place < size)
            inside, share = inside & there, share * (1 - abs(center - place))
            places.append(np.where(there, place, 0).astype(np.int64))
        columns += images[(*lead, *places)] * np.where(inside, share, 0.0)[..., None]
    channels = x.shape[1] * prod(taps)
    return np.moveaxis(columns, -1, 2).reshape(n, channels, *at).astype(x.dtype)


def _along(axis: int, values: Array, rank: int) -> Array:
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal, spread = normals(rng), normals(rng, 1.5)

    def case(
        x: tuple[int, ...], kernel: tuple[int, ...], *, masked: bool = False, **attrs: Any
    ) -> Sample:
        rank = len(x) - 2
        full = usual(rank, **{"kernel": kernel, "offset_group": 1, **attrs})
        at = DeformColumns(**full).counts(x[2:])
        taps = prod(kernel) * full["offset_group"]
        offset = spread(x[0], taps * rank, *at)
        mask = normal(x[0], taps, *at) if masked else None
        return Sample((normal(*x), offset, mask), full, symbolic=False, rtol=1e-4, atol=1e-4)

    return [
        case((1, 1, 3, 3), (2, 2)),
        case((2, 2, 4, 5), (2, 3), pads=(1, 0, 1, 1), masked=True),
        case((1, 4, 5, 4), (2, 2), offset_group=2, strides=(2, 1), masked=True),
        case((1, 2, 5, 5), (2, 2), dilations=(2, 1)),
        case((1, 1, 6), (3,)),
    ]


OP = Op(
    "deform_columns", _type, _lower, _reference, _samples,
    conditions=_conditions, record=DeformColumns,
)  # fmt: skip
