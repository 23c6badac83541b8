# SPDX-License-Identifier: Apache-2.0
"""Operators over windows of one tensor."""

from __future__ import annotations

from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.activation import activated
from relax_aot.frontends.tflite.context import Handler, Node, Results
from relax_aot.frontends.tflite.fixed_point import code_limits
from relax_aot.frontends.tflite.movement import same_scale
from relax_aot.frontends.tflite.rescaling import uncoded
from relax_aot.frontends.tflite.windows import windows
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

LIMITS: dict[str, str] = {
    "AVERAGE_POOL_2D": "f32; quantized i8, u8 and i16",
    "L2_POOL_2D": "f32",
    "MAX_POOL_2D": "f32; quantized i8, u8 and i16",
    "RESIZE_BILINEAR": "f32; quantized i8 and i16; sizes constant or derived from sizes",
    "RESIZE_NEAREST_NEIGHBOR": "sizes constant or derived from sizes",
}


def _pool(node: Node) -> dict[str, Any]:
    kernel = (node.number("filter_height"), node.number("filter_width"))
    if min(kernel) < 1:
        raise ModelError(f"its window {kernel} is empty")
    attrs = windows(node, node.arg(0).type.shape[1:3], kernel, dilated=False)
    del attrs["dilations"]
    return {"kernel": kernel, **attrs}


def _kept(node: Node, op: str) -> Var:
    """A pool keeps the scale, so that an activation is a clip of quantized values."""
    y = node.emit(op, node.arg(0), **_pool(node))
    if y.type.dtype.is_float:
        return activated(node, y, node.activation())
    limits = code_limits(node.activation(), *node.single(node.result()), y.type.dtype)
    if limits == y.type.dtype.limits:
        return y
    return node.emit("clip", y, *(node.scalar(limit, y.type.dtype) for limit in limits))


def _l2(node: Node) -> Results:
    x = uncoded(node)
    mean = node.emit("average_pool_nhwc", node.emit("mul", x, x), **_pool(node))
    return activated(node, node.emit("sqrt", mean), node.activation())


def _sides(node: Node) -> tuple[bool, bool]:
    align, half = bool(node.number("align_corners")), bool(node.number("half_pixel_centers"))
    if align and half:
        raise ModelError("it sets both align_corners and half_pixel_centers")
    return align, half


def _resized(node: Node, x: Var, mode: str, transform: str, rounding: str) -> Var:
    n, _, _, channels = x.type.shape
    return node.emit(
        "resize", x, sizes=(n, *_two(node), channels), scales=(0.0,) * 4, mode=mode,
        transform=transform, rounding=rounding, cubic_a=-0.75, exclude_outside=False,
        antialias=False, extrapolation=0.0,
    )  # fmt: skip


def _two(node: Node) -> tuple[Dim, ...]:
    sizes = node.dims(1)
    if len(sizes) != 2 or node.arg(0).type.rank != 4:
        raise ModelError(f"it resizes {node.arg(0).type} to {len(sizes)} sizes")
    return sizes


def _nearest(node: Node) -> Results:
    x = node.arg(0)
    same_scale(node, 0)
    align, half = _sides(node)
    if align:
        return _resized(node, x, "nearest", "align_corners", "round_prefer_ceil")
    return _resized(node, x, "nearest", "tf_half_pixel_for_nn" if half else "asymmetric", "floor")


def _bilinear(node: Node) -> Results:
    x = node.arg(0)
    same_scale(node, 0)
    align, half = _sides(node)
    if x.type.dtype is DType.U8:
        raise Refused("quantized u8 RESIZE_BILINEAR is not supported; convert to i8")
    if not x.type.dtype.is_float:
        return node.emit("fixed_resize", x, sizes=_two(node), align=align, half=half)
    transform = "align_corners" if align else "half_pixel" if half else "asymmetric"
    return _resized(node, x, "linear", transform, "floor")


HANDLERS: dict[str, Handler] = {
    "L2_POOL_2D": _l2,
    "RESIZE_BILINEAR": _bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _nearest,
    "AVERAGE_POOL_2D": lambda node: _kept(node, "average_pool_nhwc"),
    "MAX_POOL_2D": lambda node: _kept(node, "max_pool_nhwc"),
}
