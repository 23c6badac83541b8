# SPDX-License-Identifier: Apache-2.0
"""Operators of quantized models."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results, dtype_of
from relax_aot.frontends.onnx.convolution import windows
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

ACCEPTED = "integers of 2 to 16 bits, 8-bit floats, f4e2m1; one scale, or one per axis or block"
LIMITS = {
    "DequantizeLinear": f"{ACCEPTED}; also 32-bit integers",
    "QuantizeLinear": ACCEPTED,
}


def _places(node: Node, x: Var, *parts: Var | None) -> dict[str, Any]:
    """Along which axis scales lie, and how far each reaches; nothing for one scale."""
    if all(
        part is None or (part.type.elements.is_constant and part.type.elements.constant == 1)
        for part in parts
    ):
        return {}
    axis = normal_axis(int(node.attr("axis", 1)), x.type.rank)
    return {"axis": axis, "block": int(node.attr("block_size", 0))}


def _type_attribute(node: Node, name: str) -> DType | None:
    given = node.attr(name, 0)
    return dtype_of(given, f"attribute {name!r}") if given else None


def _quantize(node: Node) -> Results:
    """saturate(round_half_even(x / scale) + zero), the quotient in the type of `precision`."""
    x, scale, zero = node.arg(0), node.arg(1), node.optional(2)
    to = zero.type.dtype if zero is not None else _type_attribute(node, "output_dtype")
    precision = _type_attribute(node, "precision") or scale.type.dtype
    if x.type.dtype is DType.F64:
        raise Refused("quantization f64 is not supported; cast to float")
    saturate = bool(node.attr("saturate", 1))
    return node.emit(
        "quantize", x, scale, zero, to=to or DType.U8, saturate=saturate, precision=precision,
        **_places(node, x, scale, zero),
    )  # fmt: skip


def _dequantize(node: Node) -> Results:
    """(x - zero) * scale."""
    x, scale, zero = node.arg(0), node.arg(1), node.optional(2)
    to = _type_attribute(node, "output_dtype") or scale.type.dtype
    if x.type.dtype.is_stored_float:
        # Their zero point is 0 by the standard.
        zero = None
    return node.emit("dequantize", x, scale, zero, to=to, **_places(node, x, scale, zero))


def zero_point(node: Node, index: int, *, weights: bool = False) -> Var | None:
    """A zero point that is an input; None where it is known to be 0, in all trainings."""
    zero = node.optional(index)
    value = None if zero is None else node.builder.numeric(zero)
    if node.builder.shared.replaceable and not weights:
        return zero
    return None if value is not None and not value.any() else zero


def _matmul_integer(node: Node) -> Results:
    zeros = zero_point(node, 2), zero_point(node, 3, weights=True)
    moved = _moved_by_data(node, *zeros)
    if moved is None:
        return node.emit("matmul_integer", node.arg(0), node.arg(1), *zeros)
    total = node.emit("matmul_integer", node.arg(0), node.arg(1), None, zeros[1])
    return node.emit("sub", total, moved)


def _moved_by_data(node: Node, zero: Var | None, other: Var | None) -> Var | None:
    """The effect of a dynamic zero point on the products with constant weights:
    itself times the sum of each column. Both wrap equally."""
    weights = node.builder.numeric(node.arg(1))
    less = np.zeros((), np.int64) if other is None else node.builder.numeric(other)
    if zero is None or weights is None or less is None or node.builder.numeric(zero) is not None:
        return None
    if weights.ndim != 2 or less.size != 1 or zero.type.elements != 1:
        return None
    columns = (weights.astype(np.int64) - less.astype(np.int64).reshape(())).sum(0)
    wrapped = columns.astype(np.uint64).astype(np.uint32).view(np.int32)
    point = node.reshape(node.cast(zero, DType.I32), ())
    return node.emit("mul", point, node.constant(wrapped))


def _conv_integer(node: Node) -> Results:
    zeros = zero_point(node, 2), zero_point(node, 3, weights=True)
    return convolved(node, node.arg(0), node.arg(1), *zeros)


def convolved(node: Node, x: Var, w: Var, *rest: Var | None) -> Var:
    attrs = windows(node, x, w.type.shape[2:])
    return node.emit("conv_integer", x, w, *rest, group=int(node.attr("group", 1)), **attrs)


def combined_scale(node: Node, first: Var, second: Var, result: Var) -> Var:
    """What a sum of products is worth in steps of the result."""
    parts = [node.cast(part, DType.F32) for part in (first, second, result)]
    parts = [
        node.reshape(part, ())
        if part.type.elements.is_constant and part.type.elements.constant == 1
        else part
        for part in parts
    ]
    return node.emit("div", node.emit("mul", parts[0], parts[1]), parts[2])


def _qlinear_matmul(node: Node) -> Results:
    for index in (1, 2, 4, 5, 6, 7):
        part, columns = node.arg(index).type, node.arg(3).type.shape[-1]
        if part.rank == 1 and not part.elements.is_constant and part.elements != columns:
            # One for all, unless its size says otherwise.
            node.as_long(index, 1)
    a, a_scale, b, b_scale, y_scale = (node.arg(index) for index in (0, 1, 3, 4, 6))
    zeros = zero_point(node, 2), zero_point(node, 5, weights=True)
    total = node.emit("matmul_integer", a, b, *zeros)
    zero = node.arg(7)
    if a_scale.type.rank == 1 and a_scale.type.elements != 1:
        raise Refused("scales per row are not supported")
    scale = combined_scale(node, a_scale, b_scale, y_scale)
    axis = {"axis": total.type.rank - 1} if scale.type.rank else {}
    return node.emit("requantize", total, scale, zero, to=zero.type.dtype, **axis)


def _qlinear_conv(node: Node) -> Results:
    x, x_scale, w, w_scale, y_scale = (node.arg(index) for index in (0, 1, 3, 4, 6))
    zeros = zero_point(node, 2), zero_point(node, 5, weights=True)
    total = convolved(node, x, w, *zeros, node.optional(8))
    zero = node.arg(7)
    scale = combined_scale(node, x_scale, w_scale, y_scale)
    axis = {"axis": 1} if scale.type.rank else {}
    return node.emit("requantize", total, scale, zero, to=zero.type.dtype, **axis)


def dynamic_codes(node: Node, x: Var) -> tuple[Var, Var, Var]:
    """Quantized u8 values, their scale and their zero point; the range includes 0."""
    if x.type.dtype is not DType.F32:
        raise ModelError(f"only f32 is quantized by its range, got {x.type}")
    axes = tuple(range(x.type.rank))
    nothing = node.constant_scalar(0.0, DType.F32)

    def end(kind: str, op: str) -> Var:
        found = node.emit("reduce", x, kind=kind, axes=axes, keepdims=False)
        return node.emit(op, found, nothing)

    low, high = end("min", "min"), end("max", "max")
    steps = node.constant_scalar(255.0, DType.F32)
    scale = node.emit("div", node.emit("sub", high, low), steps)
    # Where all is 0, any scale will do.
    empty = node.emit("equal", high, low)
    scale = node.emit("where", empty, node.constant_scalar(1.0, DType.F32), scale)
    place = node.emit("round_even", node.emit("div", node.emit("neg", low), scale))
    limited = node.emit("clip", place, nothing, steps)
    zero = node.cast(limited, DType.U8)
    return node.emit("quantize", x, scale, zero, to=DType.U8), scale, zero


def _dynamic_quantize(node: Node) -> Results:
    return dynamic_codes(node, node.arg(0))


HANDLERS: dict[str, Handler] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
}
