# SPDX-License-Identifier: Apache-2.0
"""Operators that sample images at places between elements: Resize, Upsample, GridSample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim, Proof, dim_max, dim_min, interval, simplify
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array, normal_axis

TRIED = 2**20
"""Sizes for which a product with a scale is compared with exact arithmetic."""

EXACT = 2**24
"""Up to there, the product with an integer is not rounded."""

OLD = {"transform": "asymmetric", "rounding": "legacy"}
"""Upsample and the first Resize, which have no such attributes."""


Scale = float | tuple[Dim, Dim] | None
"""A constant, the quotient of two sizes in float32, or data."""

MODES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@dataclass(frozen=True, slots=True)
class _Resizing:
    """What is resized along which axes, and the attributes of resize but sizes and scales."""

    node: Node
    x: Var
    axes: list[int]
    attrs: dict[str, Any]
    region: Var | None = None

    def to(
        self, sizes: Sequence[Dim], scales: Sequence[float], factors: Var | None = None, **more: Any
    ) -> Var:
        attrs = {**self.attrs, "sizes": tuple(sizes), "scales": tuple(scales), **more}
        attrs["mode"] = MODES.get(attrs["mode"], attrs["mode"])
        return self.node.emit("resize", self.x, factors, self.region, **attrs)

    @property
    def kept(self) -> list[float]:
        """Scales of 1 for the other axes."""
        return [0.0 if axis in self.axes else 1.0 for axis in range(self.x.type.rank)]

    def by_factors(self, given: Var) -> Var:
        """Scales from data: the user bounds the sizes that they lead to. Parts of the list may be
        constants, such as the scales of the batch and of the channels, or quotients of sizes."""
        found = {axis: self.scale_at(given, n) for n, axis in enumerate(self.axes)}
        scales = {axis: _constant(one) for axis, one in found.items()}
        if None not in scales.values():
            return self.scaled(scales, None)
        factors = self.node.cast(self.whole(given, 1), DType.F32)
        return self.scaled(scales, factors, found)

    def scaled(
        self,
        given: Mapping[int, float | None],
        factors: Var | None,
        quotients: Mapping[int, Scale] = MappingProxyType({}),
    ) -> Var:
        """By constants, and by `factors` for axes with None. The program computes a size where no
        expression rounds as ONNX Runtime does."""
        old, scales = self.x.type.shape, self.kept
        sizes = list(old)
        for axis, scale in given.items():
            known = None if scale is None else _scaled(self.node, old[axis], scale)
            if known is None and factors is None:
                listed = np.array([given[axis] for axis in self.axes], np.float32)
                factors = self.whole(self.node.constant(listed), 1)
            if known is None:
                assert factors is not None
                products = self.node.emit("resize_sizes", factors, sizes=old)
                most = self.greatest(old[axis], scale or quotients.get(axis))
                known = self.node.size_of(products, axis, axis, most)
            sizes[axis], scales[axis] = known, scale or 0.0
        if factors is None:
            scales = [0.0 if scale == 1 else scale for scale in scales]
        return self.to(sizes, scales, factors)

    def greatest(self, old: Dim, scale: Scale) -> Dim | None:
        """What the product of a size with its scale is at most. Rounding makes that with new / old
        new, or one less, as of 7 * (31 / 7)."""
        high = partial(interval, bounds=self.node.builder.bounds)
        if isinstance(scale, float):
            return Dim.of(int(_products(np.array(high(old)[1]), scale)))
        known = scale is not None and scale[1] == old and high(scale[0])[1] < EXACT // 2
        return scale[0] if scale is not None and known else None

    def scale_at(self, given: Var, place: int) -> Scale:
        """An element of a list of scales."""
        builder = self.node.builder
        for part, at in [(given, place), *self.node.origins(given, place)]:
            known = builder.numeric(part)
            if known is not None:
                return _positive(float(known.reshape(-1)[at]))
            made = next((c for c in builder.body if part in c.outs), None)
            if made is None or made.op != "div" or part.type.dtype is not DType.F32:
                continue
            sides = [builder.measured(side) for side in made.inputs]
            new, old = (None if v is None else v.reshape(-1)[at % v.size] for v in sides)
            if new is None or old is None or new.under != 1 or old.under != 1:
                return None
            high = [interval(side.over, builder.bounds)[1] for side in (new, old)]
            times = high[0] // max(high[1], 1)
            return float(times) if times and new.over == old.over * times else (new.over, old.over)
        return None

    def whole(self, given: Var, parts: int) -> Var:
        """A region (two parts) or a list of scales for all axes: those without one stay as they
        are."""
        node, axes = self.node, self.axes
        rank, dtype = self.x.type.rank, given.type.dtype.numpy
        count = Dim.of(parts * len(axes))
        if given.type.shape != (count,):
            if given.type.rank != 1 or given.type.shape[0].is_constant:
                raise Refused(f"{given.type} has not one number for each axis")
            given = node.emit("match_cast", given, shape=(count,))
        if axes == list(range(rank)):
            return given
        ends = [node.constant(np.array([value], dtype)) for value in (1.0, 0.0)]
        pieces = []
        for part in range(parts):
            for axis in range(rank):
                if axis not in axes:
                    pieces.append(ends[1] if parts == 2 and part == 0 else ends[0])
                    continue
                pieces.append(node.part(given, 0, part * len(axes) + axes.index(axis), 1))
        return node.emit("concat", *pieces, axis=0)

    def by_scales(self, scales: list[float]) -> Var:
        if len(scales) != len(self.axes):
            raise ModelError(f"a Resize has {len(scales)} scales for {len(self.axes)} axes")
        return self.scaled(dict(zip(self.axes, map(_positive, scales), strict=True)), None)

    def by_sizes(self, given: tuple[Dim, ...]) -> Var:
        if len(given) != len(self.axes):
            raise ModelError(f"a Resize has {len(given)} sizes for {len(self.axes)} axes")
        shape = self.x.type.shape
        wanted = dict(zip(self.axes, given, strict=True))
        policy = self.node.attr("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            sizes = [wanted.get(axis, size) for axis, size in enumerate(shape)]
            return self.to(sizes, (0.0,) * len(shape))
        if policy not in ("not_larger", "not_smaller"):
            raise ModelError(f"a Resize has the policy {policy!r}")
        # One scale for all axes, the least or largest ratio; sizes are rounded, halves up.
        choose = dim_min if policy == "not_larger" else dim_max
        sizes = list(shape)
        for axis in self.axes:
            ratios = [
                (other * shape[axis] * 2 + shape[at]) // (shape[at] * 2)
                for at, other in wanted.items()
            ]
            sizes[axis] = simplify(choose(*ratios), self.node.builder.bounds)
        every = tuple(wanted.get(axis, Dim.of(0)) for axis in range(len(shape)))
        return self.to(sizes, self.kept, wanted=every, policy=policy)


def _constant(scale: Scale) -> float | None:
    return scale if isinstance(scale, float) else None


def _positive(scale: float) -> float:
    if not scale > 0:
        raise ModelError(f"a Resize has the scale {scale}")
    return scale


def _resize(node: Node) -> Results:
    x = node.arg(0)
    axes = _axes(node, x)
    old = node.opset < 11
    at = 1 if old else 2
    sizes = None if old or _absent(node, 3) else node.sizes(3, axes)
    scales = None if sizes is not None or not _known(node, at) else _values(node, at)
    attrs: dict[str, Any] = {
        "mode": node.attr("mode", "nearest"),
        "transform": node.attr("coordinate_transformation_mode", "half_pixel"),
        "rounding": node.attr("nearest_mode", "round_prefer_floor"),
        "cubic_a": node.attr("cubic_coeff_a", -0.75),
        "exclude_outside": node.attr("exclude_outside", False),
        "antialias": node.attr("antialias", False),
        "extrapolation": node.attr("extrapolation_value", 0.0),
    }
    crops = attrs["transform"] == "tf_crop_and_resize"
    if old:
        attrs |= OLD
    resizing = _Resizing(node, x, axes, attrs)
    if crops and _known(node, 1):
        attrs["roi"] = _region(node, x, axes)
    elif crops:
        resizing = replace(resizing, region=resizing.whole(node.arg(1), 2))
    if sizes is not None:
        return resizing.by_sizes(sizes)
    if scales is not None:
        return resizing.by_scales(scales)
    if _absent(node, at):
        raise ModelError("a Resize needs either scales or sizes")
    return resizing.by_factors(node.arg(at))


def _upsample(node: Node) -> Results:
    if node.has("scales"):
        scales = [float(scale) for scale in node.attr("scales")]
    elif node.has("height_scale"):
        scales = [1.0, 1.0, node.attr("height_scale"), node.attr("width_scale")]
    else:
        scales = (_values(node, 1) if _known(node, 1) else None) or []
    x = node.arg(0)
    attrs: dict[str, Any] = {
        **OLD, "mode": node.attr("mode", "nearest"), "cubic_a": -0.75, "exclude_outside": False,
        "antialias": False, "extrapolation": 0.0,
    }  # fmt: skip
    resizing = _Resizing(node, x, list(range(x.type.rank)), attrs)
    return resizing.by_scales(scales) if scales else resizing.by_factors(node.arg(1))


def _known(node: Node, index: int) -> bool:
    return _absent(node, index) or node.builder.numeric(node.arg(index)) is not None


def _absent(node: Node, index: int) -> bool:
    """Not given, or an empty tensor, which stands for the same."""
    given = node.optional(index)
    return given is None or given.type.elements == Dim.of(0)


def _values(node: Node, index: int) -> list[float] | None:
    if _absent(node, index):
        return None
    return [float(value) for value in node.array(index).reshape(-1)]


def _axes(node: Node, x: Var) -> list[int]:
    axes = node.attr("axes") if node.has("axes") else range(x.type.rank)
    places = [normal_axis(int(axis), x.type.rank) for axis in axes]
    if len(set(places)) < len(places):
        raise ModelError(f"a Resize has axes {list(axes)}")
    return places


def _region(node: Node, x: Var, axes: list[int]) -> tuple[float, ...]:
    given = _values(node, 1)
    if given is None or len(given) != 2 * len(axes):
        raise ModelError("a Resize with tf_crop_and_resize needs a roi for each axis")
    starts, ends = [0.0] * x.type.rank, [1.0] * x.type.rank
    for position, axis in enumerate(axes):
        starts[axis], ends[axis] = given[position], given[position + len(axes)]
    return (*starts, *ends)


def _scaled(node: Node, size: Dim, scale: float) -> Dim | None:
    """floor(size * scale), where the product is rounded to f32 as ONNX Runtime does; None where
    rounding changes some sizes, or may."""
    exact = Fraction(float(np.float32(scale)))
    near = exact.limit_denominator(1024)
    ratio = near if np.float32(float(near)) == np.float32(scale) else exact
    low, high = interval(size, node.builder.bounds)
    if size.is_constant:
        return Dim.of(int(_products(np.array(high), scale)))
    if ratio.denominator > 1 or high * ratio > EXACT:
        tried = np.arange(max(low, 0), high + 1)
        wanted = [n * ratio.numerator // ratio.denominator for n in tried[:TRIED].tolist()]
        if len(tried) > TRIED or _products(tried, scale).tolist() != wanted:
            return None
    node.builder.accept(Proof(True, (("<=", size, Dim.of(high)),)))
    return simplify(size * ratio.numerator // ratio.denominator, node.builder.bounds)


def _products(sizes: Array, scale: float) -> Array:
    products: Array = np.floor(sizes.astype(np.float32) * np.float32(scale))
    return products.astype(np.int64)


def _grid_sample(node: Node) -> Results:
    mode = node.attr("mode", "linear")
    return node.emit(
        "grid_sample", node.arg(0), node.arg(1), mode=MODES.get(mode, mode),
        padding=node.attr("padding_mode", "zeros"), align_corners=node.attr("align_corners", False),
    )  # fmt: skip


HANDLERS: dict[str, Handler] = {
    "GridSample": _grid_sample,
    "Resize": _resize,
    "Upsample": _upsample,
}
