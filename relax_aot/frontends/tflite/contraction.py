# SPDX-License-Identifier: Apache-2.0
"""Operators that sum products: convolutions and matrix products.

Of quantized values they end as an _integer op and `requantize`: the file's zero points, its bias in
steps of the product of the scales, and one multiplier per channel (or one for all)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.activation import activated
from relax_aot.frontends.tflite.context import QUANTIZED_TYPES, Handler, Node, Results
from relax_aot.frontends.tflite.fixed_point import (
    Formula,
    code_limits,
    multipliers,
    rounded_in_float64,
    rounded_once,
    rounded_twice,
)
from relax_aot.frontends.tflite.hybrid import products
from relax_aot.frontends.tflite.model import Array
from relax_aot.frontends.tflite.schema import OPTIONS
from relax_aot.frontends.tflite.windows import padding, windows
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

HYBRID = "f32; f32 with weights of i8; quantized i8, u8 and i16"
LIMITS: dict[str, str] = {
    "BATCH_MATMUL": "f32; quantized i8",
    "CONV_2D": f"{HYBRID}; one scale or one per filter; groups",
    "DEPTHWISE_CONV_2D": f"{HYBRID}; one scale or one per channel",
    "FULLY_CONNECTED": f"{HYBRID}; one scale or one per row; plain weights",
    "TRANSPOSE_CONV": "f32; quantized i8, u8 and i16; sizes constant or derived from sizes",
}


# Parts


@dataclass(frozen=True, slots=True)
class _Codes:
    """The quantization of one contraction: scales of sums in steps of the result."""

    x_zero: int
    w_zero: int
    y_zero: int
    scales: Array
    limits: tuple[int, int]


def _bias(node: Node, index: int) -> Var | None:
    b = node.optional(index)
    return None if b is None else node.reshape(b, (b.type.elements,))


def _codes(node: Node, axis: int, x_index: int = 0) -> _Codes:
    """`axis` is that of the weights along which results lie."""
    x_scale, x_zero = node.single(node.tensor(x_index))
    y_scale, y_zero = node.single(node.result())
    found = node.quantization(node.tensor(1))
    if not found.is_single and found.axis != axis:
        raise Refused(f"scales along axis {found.axis} of the weights are not supported")
    if np.any(found.zeros != found.zeros[0]):
        raise Refused("weights with several zero points are not supported")
    scales = np.float64(x_scale) * found.scales.astype(np.float64) / np.float64(y_scale)
    fused = "activation" in OPTIONS[node.operator.name]
    activation = node.activation() if fused else "NONE"
    limits = code_limits(activation, y_scale, y_zero, node.result_type())
    return _Codes(x_zero, int(found.zeros[0]), y_zero, scales, limits)


def _zero(node: Node, value: int, dtype: DType) -> Var | None:
    return node.scalar(value, dtype) if value else None


def _zero_of_x(node: Node, codes: _Codes, dtype: DType) -> Var | None:
    return (
        node.scalar(codes.x_zero, dtype) if node.replaceable else _zero(node, codes.x_zero, dtype)
    )


def _zeros(
    node: Node, x: Var, w: Var, b: Var | None, codes: _Codes, axis: int, pads: tuple[Dim, ...] = ()
) -> tuple[Var | None, Var | None, Var | None]:
    """Zero points of x and w, and the bias. Where every product is summed, the zero point of x
    goes into the bias: sum((x - zero) * w) = sum(x * w) - zero * sum(w)."""
    w_zero = _zero(node, codes.w_zero, w.type.dtype)
    weights = node.builder.numeric(w)
    bias = None if b is None else node.builder.numeric(b)
    whole = all(pad == Dim.of(0) for pad in pads)
    kept = codes.x_zero == 0 and not node.replaceable
    if kept or not whole or weights is None or (b is not None and bias is None):
        return _zero_of_x(node, codes, x.type.dtype), w_zero, b
    others = tuple(i for i in range(weights.ndim) if i != axis)
    sums = (weights.astype(np.int64) - codes.w_zero).sum(axis=others) * codes.x_zero
    kind = np.int32 if bias is None else bias.dtype
    moved = (0 if bias is None else bias.astype(np.int64)) - sums
    if np.any(moved != moved.astype(kind)):
        return _zero_of_x(node, codes, x.type.dtype), w_zero, b
    return None, w_zero, node.constant(moved.astype(kind), "bias")


def _is_hybrid(x: Var, w: Var) -> bool:
    return x.type.dtype is DType.F32 and w.type.dtype is DType.I8


def _with_bias(node: Node, y: Var, b: Var | None) -> Var:
    y = y if b is None else node.emit("add", y, b)
    return activated(node, y, node.activation())


def _is_float(node: Node, x: Var, w: Var) -> bool:
    """Whether both are floats; refused where they do not go together."""
    if x.type.dtype.is_float and w.type.dtype is x.type.dtype:
        return True
    pair = f"{x.type.dtype.value} with weights of {w.type.dtype.value}"
    if x.type.dtype not in QUANTIZED_TYPES or w.type.dtype not in (DType.I8, DType.U8):
        raise Refused(f"{pair} is not supported")
    return False


def _requantized(node: Node, total: Var, codes: _Codes) -> Var:
    """Sums in steps of the result, rounded as the kernels of convolutions do: twice, or once
    where that is equal for all sums."""
    factors, shifts = multipliers(codes.scales)
    if total.type.dtype is DType.I32 and np.all(shifts <= 0):
        found = None
        if not node.replaceable:
            found = _once(node, codes, rounded_twice(factors, shifts))
        if found is not None:
            return _rounded(node, total, codes, "nearest", *found)
        if np.all(shifts < 0):
            return _rounded(node, total, codes, "twice", factors, -1 - shifts)
    return _rounded(node, total, codes, "tflite", factors, shifts)


def _once(node: Node, codes: _Codes, formula: Formula) -> tuple[Array, Array] | None:
    if node.result_type() not in QUANTIZED_TYPES[:2]:
        return None  # of 65536 steps, some are always elsewhere
    low, high = (limit - codes.y_zero for limit in codes.limits)
    return rounded_once(codes.scales, low, high, formula, each=node.replaceable)


def _rounded_once(node: Node, total: Var, codes: _Codes) -> Var:
    """The same as the kernels of products of matrices do: in float64, halves away from 0."""
    found = _once(node, codes, rounded_in_float64(codes.scales))
    if found is None or total.type.dtype is not DType.I32:
        return _in_float64(node, total, codes)
    return _rounded(node, total, codes, "nearest", *found)


def _in_float64(node: Node, total: Var, codes: _Codes) -> Var:
    to = node.result_type()
    scales = codes.scales.reshape(()) if codes.scales.size == 1 else codes.scales
    exact = node.emit("mul", node.cast(total, DType.F64), node.constant(scales, "scales"))
    steps = node.emit("cast", node.emit("round_away", exact), to=DType.I32, saturate=True)
    if codes.y_zero or node.replaceable:
        steps = node.emit("add", steps, node.scalar(codes.y_zero, DType.I32))
    ends = [node.scalar(limit, DType.I32) for limit in codes.limits]
    return node.cast(node.emit("clip", steps, *ends), to)


def _rounded(
    node: Node, total: Var, codes: _Codes, rounding: str, factors: Array, shifts: Array
) -> Var:
    factors, shifts = (part.reshape(()) if part.size == 1 else part for part in (factors, shifts))
    to = node.result_type()
    return node.emit(
        "requantize", total, node.constant(factors, "factors"), node.scalar(codes.y_zero, to),
        node.constant(shifts, "shifts"), to=to, axis=total.type.rank - 1, rounding=rounding,
        limits=codes.limits if codes.limits != to.limits else (),
    )  # fmt: skip


# Convolutions


def _groups(x: Var, w: Var) -> int:
    channels, per_group = x.type.shape[-1], w.type.shape[-1]
    if not (channels.is_constant and per_group.is_constant and per_group.constant > 0):
        raise ModelError(f"the channels of {x.type} and {w.type} must be known")
    return channels.constant // per_group.constant


def _conv_2d(node: Node) -> Results:
    x, w, b = node.arg(0), node.arg(1), _bias(node, 2)
    attrs = windows(node, x.type.shape[1:3], w.type.shape[1:3])
    attrs["group"] = _groups(x, w)
    if _is_hybrid(x, w):
        single = node.quantization(node.tensor(1)).is_single
        y = products(node, "conv_nhwc_integer", x, w, 0, symmetric=single, **attrs)
        return _with_bias(node, y, b)
    if _is_float(node, x, w):
        return activated(node, node.emit("conv_nhwc", x, w, b, **attrs), node.activation())
    codes = _codes(node, 0)
    parts = _zeros(node, x, w, b, codes, 0, attrs["pads"])
    return _requantized(node, node.emit("conv_nhwc_integer", x, w, *parts, **attrs), codes)


def _depthwise_conv_2d(node: Node) -> Results:
    x, w, b = node.arg(0), node.arg(1), _bias(node, 2)
    if w.type.rank != 4 or w.type.shape[0] != Dim.of(1):
        raise ModelError(f"its filter is {w.type}, expected [1, height, width, channels]")
    w = node.reshape(w, w.type.shape[1:])
    attrs = windows(node, x.type.shape[1:3], w.type.shape[:2])
    if _is_hybrid(x, w):
        y = products(node, "depthwise_nhwc_integer", x, w, 3, symmetric=False, **attrs)
        return _with_bias(node, y, b)
    if _is_float(node, x, w):
        return activated(node, node.emit("depthwise_nhwc", x, w, b, **attrs), node.activation())
    codes = _codes(node, 3)
    parts = _zeros(node, x, w, b, codes, 2, attrs["pads"])
    total = node.emit("depthwise_nhwc_integer", x, w, *parts, **attrs)
    return _requantized(node, total, codes)


# Products of matrices


def flattened(node: Node, x: Var, width: Dim) -> Var:
    """x as rows of `width` elements."""
    if x.type.rank == 2 and x.type.shape[1] == width:
        return x
    if not width.is_constant or width == Dim.of(0):
        raise ModelError(f"{x.type} cannot be rows of {width}")
    return node.reshape(x, (x.type.elements // width, width))


def _fully_connected(node: Node) -> Results:
    x, w, b = node.arg(0), node.arg(1), _bias(node, 2)
    if node.number("weights_format") != 0:
        raise Refused("its weights are shuffled; only the default order is supported")
    shape = (*x.type.shape[:-1], w.type.shape[0])
    rows = flattened(node, x, w.type.shape[1])
    if _is_hybrid(x, w):
        columns = node.emit("transpose", w, perm=(1, 0))
        symmetric = not node.number("asymmetric")
        y = products(node, "matmul_integer", rows, columns, 0, symmetric=symmetric)
        y = _with_bias(node, y, b)
    elif _is_float(node, x, w):
        y = activated(node, node.emit("gemm", rows, w, b, trans_b=True), node.activation())
    else:
        codes = _codes(node, 0)
        columns = node.emit("transpose", w, perm=(1, 0))
        parts = _zeros(node, x, columns, b, codes, 1)
        y = _rounded_once(node, node.emit("matmul_integer", rows, columns, *parts), codes)
    return node.reshape(y, shape) if node.number("keep_num_dims") else y


def _transpose_conv(node: Node) -> Results:
    """The sizes of the result come first; a batch that the user opened is that of x."""
    w, x, b = node.arg(1), node.arg(2), _bias(node, 3)
    sizes = node.dims(0)[1:3]
    if x.type.rank != 4 or w.type.rank != 4 or len(sizes) != 2:
        raise ModelError(f"it needs four axes, got {x.type} and {w.type}")
    strides = (node.number("stride_h"), node.number("stride_w"))
    if min(strides) < 1:
        raise ModelError(f"its strides {strides} must be positive")
    pads = padding(node, sizes, w.type.shape[1:3], strides)[:2]
    attrs = {"sizes": sizes, "strides": strides, "pads": pads}
    if _is_float(node, x, w):
        return activated(
            node, node.emit("conv_transpose_nhwc", x, w, b, **attrs), node.activation()
        )
    codes = _codes(node, 0, x_index=2)
    zeros = _zero_of_x(node, codes, x.type.dtype), _zero(node, codes.w_zero, w.type.dtype)
    total = node.emit("conv_transpose_nhwc_integer", x, w, *zeros, b, **attrs)
    return _requantized(node, total, codes)


def _batch_matmul(node: Node) -> Results:
    a, b = node.arg(0), node.arg(1)
    floats = _is_float(node, a, b)
    a, b = (
        _turned(node, x) if node.number(f"adj_{side}") else x for x, side in ((a, "x"), (b, "y"))
    )
    if floats:
        return node.emit("matmul", a, b)
    codes = _codes(node, 0)
    zeros = _zero_of_x(node, codes, a.type.dtype), _zero(node, codes.w_zero, b.type.dtype)
    return _requantized(node, node.emit("matmul_integer", a, b, *zeros, None), codes)


def _turned(node: Node, x: Var) -> Var:
    rank = x.type.rank
    return node.emit("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))


HANDLERS: dict[str, Handler] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transpose_conv,
}
