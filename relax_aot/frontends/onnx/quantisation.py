"""Operators of quantised models, as the arithmetic that defines them."""

from __future__ import annotations

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Refused, Results, dtype_of
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    "DequantizeLinear": "8, 16 and 32-bit integers; one scale, one per axis, or per block",
    "QuantizeLinear": "8 and 16-bit integers; one scale, one per axis, or per block",
}


def _spread(node: Node, value: Var, x: Var) -> Var:
    """A scale or zero point in a shape that broadcasts over x."""
    rank = x.type.rank
    block = int(node.attr("block_size", 0))
    if value.type.rank == 0 or value.type.elements == Dim.of(1):
        return node.reshape(value, ())
    axis = normal_axis(int(node.attr("axis", 1)), rank)
    if not block:
        if value.type.rank != 1:
            raise ModelError(f"scales per axis are a vector, got {value.type}")
        shape = [Dim.of(1)] * rank
        shape[axis] = value.type.shape[0]
        return node.reshape(value, shape)
    # One value per block along the axis: each is repeated, and the last block is cut.
    repeats = (*value.type.shape[: axis + 1], Dim.of(block), *value.type.shape[axis + 1 :])
    column = (*value.type.shape[: axis + 1], Dim.of(1), *value.type.shape[axis + 1 :])
    wide = node.emit("expand", node.reshape(value, column), shape=repeats)
    long = list(value.type.shape)
    long[axis] = value.type.shape[axis] * block
    whole, size = node.reshape(wide, long), x.type.shape[axis]
    if long[axis] == size:
        return whole
    return node.emit("slice", whole, starts=(0,), lengths=(size,), axes=(axis,), steps=(1,))


def _quantize(node: Node) -> Results:
    """saturate(round_half_even(x / scale) + zero)."""
    x, scale, zero = node.arg(0), node.arg(1), node.optional(2)
    to = zero.type.dtype if zero is not None else DType.U8
    if zero is None and node.attr("output_dtype", 0):
        to = dtype_of(node.attr("output_dtype"), "attribute 'output_dtype'")
    if not to.is_int or to.bytes > 2:
        raise Refused(f"quantising to {to.value} is not supported")
    if node.attr("precision", 0) not in (0, 1):
        raise Refused("attribute precision other than float32 is not supported")
    return _quantized(node, x, scale, zero, to)


def _quantized(node: Node, x: Var, scale: Var, zero: Var | None, to: DType) -> Var:
    wide = DType.F64 if x.type.dtype is DType.F64 else DType.F32
    x, scale = node.cast(x, wide), node.cast(scale, wide)
    rounded = node.emit("round_even", node.emit("div", x, _spread(node, scale, x)))
    if zero is not None:
        rounded = node.emit("add", rounded, node.cast(_spread(node, zero, x), wide))
    info = np.iinfo(to.numpy)
    low, high = node.scalar(info.min, rounded), node.scalar(info.max, rounded)
    return node.cast(node.emit("clip", rounded, low, high), to)


def _dequantize(node: Node) -> Results:
    """(x - zero) * scale, in the scale's type."""
    x, scale, zero = node.arg(0), node.arg(1), node.optional(2)
    return _dequantized(node, x, scale, zero)


def _dequantized(node: Node, x: Var, scale: Var, zero: Var | None) -> Var:
    kind = scale.type.dtype
    whole = node.cast(x, DType.I32)
    if zero is not None:
        whole = node.emit("sub", whole, node.cast(_spread(node, zero, x), DType.I32))
    return node.emit("mul", node.cast(whole, kind), _spread(node, scale, x))


HANDLERS: dict[str, Handler] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
