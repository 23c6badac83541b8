# SPDX-License-Identifier: Apache-2.0
"""deform_conv: convolution with data-dependent offsets, sampled bilinearly.

Outside the image lies zero. The places of taps are shared by the channels of an offset group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Local, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, must_fit, must_not_exceed, require
from relax_aot.ops._samples import normals
from relax_aot.ops._window import Strides, usual

FAR = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DeformConv(Strides):
    pads: Sequence[int]
    group: int
    offset_group: int


def _type(
    attrs: DeformConv,
    x: TensorType,
    w: TensorType,
    offset: TensorType,
    b: TensorType | None = None,
    mask: TensorType | None = None,
) -> TensorType:
    same = x.rank == w.rank == offset.rank and x.rank >= 3
    require(same, f"deform_conv needs one rank, got {x}, {w} and {offset}")
    require(x.dtype in (DType.F32, DType.F64), f"deform_conv cannot take {x}")
    given = (w, offset, b, mask)
    require(all(t is None or t.dtype is x.dtype for t in given), "deform_conv needs one type")
    spatial = attrs.window(w.shape[2:]).sizes(x.shape[2:])
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial))


def _conditions(
    attrs: DeformConv,
    x: TensorType,
    w: TensorType,
    offset: TensorType,
    b: TensorType | None = None,
    mask: TensorType | None = None,
) -> list[Condition]:
    y = _type(attrs, x, w, offset, b, mask)
    taps = prod(w.shape[2:], start=Dim.of(attrs.offset_group))
    conditions = [must_not_exceed(0, n, "deform_conv's output size") for n in y.shape[2:]]
    outs = w.shape[0]
    conditions += [
        must_equal(x.shape[1], w.shape[1] * attrs.group, "deform_conv's channels"),
        must_equal(outs // attrs.group * attrs.group, outs, "deform_conv's groups"),
        must_equal(
            x.shape[1] // attrs.offset_group * attrs.offset_group, x.shape[1],
            "deform_conv's offset groups",
        ),
    ]  # fmt: skip
    for given, channels in ((offset, taps * (x.rank - 2)), (mask, taps)):
        conditions += must_fit(given, (x.shape[0], channels, *y.shape[2:]), "deform_conv's offsets")
    return conditions + must_fit(b, w.shape[:1], "deform_conv's bias")


def _lower(
    attrs: DeformConv,
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    offset: Buffer,
    b: Buffer | None,
    mask: Buffer | None,
    y: Buffer,
) -> None:
    spatial, per_group = x.rank - 2, w.shape[1]
    strides, pads, dilations = attrs.strides, attrs.pads, attrs.dilations
    filters, shared = w.shape[0] // attrs.group, x.shape[1] // attrs.offset_group
    with k.loops(y.shape[0], attrs.group, filters, *y.shape[2:]) as (image, part, filter_, *at):
        out = part * filters + filter_
        total = k.local("total", y.dtype, 0.0 if b is None else b[(out,)])
        with k.loops(per_group, *w.shape[2:]) as (c, *tap):
            channel = k.let("channel", part * per_group + c)
            place = channel // shared
            for axis in range(spatial):
                place = place * w.shape[axis + 2] + tap[axis]
            place = k.let("place", place)
            corners = []
            for axis in range(spatial):
                start = at[axis] * strides[axis] - pads[axis] + tap[axis] * dilations[axis]
                moved = offset[(image, place * spatial + axis, *at)]
                center = Cast(Index(start), y.dtype) + moved
                corners.append(_corners(k, center, x.shape[axis + 2], y.dtype))
            value: Expr = _mixed(k, x, (image, channel), corners)
            if mask is not None:
                value = binary("*", value, mask[(image, place, *at)])
            k.assign(total, total + binary("*", value, w[(out, c, *tap)]))
        k.store(y[(image, out, *at)], total)


Corner = tuple[Dim, Expr, Expr]


def _corners(k: KernelBuilder, center: Expr, size: Dim, work: DType) -> list[Corner]:
    """The two neighbors along an axis: place, whether it is there, weight."""
    where = k.local("where", work, center)
    left = apply("floor", where)
    first = k.clamped("from", left, -FAR, FAR)
    share = k.local("share", work, where - left)
    weights: tuple[Expr, Expr] = (1.0 - share, share)
    return [
        (first + i, binary("&&", binary("<=", 0, first + i), binary("<", first + i, size)), weight)
        for i, weight in enumerate(weights)
    ]


def _mixed(
    k: KernelBuilder, x: Buffer, lead: tuple[Dim, Dim], corners: list[list[Corner]]
) -> Local:
    value = k.local("value", x.dtype, 0.0)
    for chosen in product(*corners):
        inside, weight = chosen[0][1], chosen[0][2]
        for _, there, share in chosen[1:]:
            inside, weight = binary("&&", inside, there), binary("*", weight, share)
        element = x[(*lead, *(place for place, _, _ in chosen))]
        k.assign(value, value + Select(inside, binary("*", weight, element), Lit(0.0, x.dtype)))
    return value


def _reference(
    attrs: DeformConv,
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
) -> Array:
    spatial = x.ndim - 2
    strides, pads, dilations = attrs.strides, attrs.pads, attrs.dilations
    n, outs, taps = x.shape[0], w.shape[0], w.shape[2:]
    at = offset.shape[2:]
    moved = offset.reshape(n, attrs.offset_group, *taps, spatial, *at).astype(np.float64)
    weight = np.ones((n, attrs.offset_group, *taps, *at))
    if mask is not None:
        weight = mask.reshape(weight.shape).astype(np.float64)
    per_group, per_offset = w.shape[1], x.shape[1] // attrs.offset_group
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
    columns = np.moveaxis(columns, -1, 2).reshape(n, attrs.group, per_group, prod(taps), -1)
    filters = w.astype(np.float64).reshape(attrs.group, -1, per_group, prod(taps))
    y = np.einsum("ngctp,goct->ngop", columns, filters).reshape(n, outs, *at)
    if b is not None:
        y = y + b.reshape(1, -1, *[1] * spatial)
    return y.astype(x.dtype)


def _along(axis: int, values: Array, rank: int) -> Array:
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal, spread = normals(rng), normals(rng, 1.5)

    def case(
        x: tuple[int, ...], w: tuple[int, ...], *, masked: bool = False, **attrs: Any
    ) -> Sample:
        rank = len(x) - 2
        full = usual(rank, **{"group": 1, "offset_group": 1, **attrs})
        at = DeformConv(**full).window(w[2:]).counts(x[2:])
        taps = prod(w[2:]) * full["offset_group"]
        offset = spread(x[0], taps * rank, *at)
        b, mask = (normal(w[0]), normal(x[0], taps, *at)) if masked else (None, None)
        args = (normal(*x), normal(*w), offset, b, mask)
        return Sample(args, full, symbolic=False, rtol=1e-4, atol=1e-4)

    return [
        case((1, 1, 3, 3), (1, 1, 2, 2)),
        case((2, 2, 4, 5), (3, 2, 2, 3), pads=(1, 0, 1, 1), masked=True),
        case((1, 4, 5, 4), (2, 2, 2, 2), group=2, offset_group=2, strides=(2, 1), masked=True),
        case((1, 2, 5, 5), (2, 2, 2, 2), dilations=(2, 1)),
        case((1, 1, 6), (1, 1, 3)),
    ]


OP = Op(
    "deform_conv", _type, _lower, _reference, _samples, conditions=_conditions, record=DeformConv
)
