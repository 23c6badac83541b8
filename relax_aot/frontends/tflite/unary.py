# SPDX-License-Identifier: Apache-2.0
"""Operators on single elements.

For bytes a table of 256 entries is worked out here, in the arithmetic of the kernel: f32 or
fixed point, whichever it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, sqrt
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.activation import activated
from relax_aot.frontends.tflite.context import QUANTIZED_TYPES, Handler, Node, Results
from relax_aot.frontends.tflite.fixed_point import (
    code_limits,
    exponentials,
    multiplier,
    ratio,
    rescaled_code,
    rounded_away,
)
from relax_aot.frontends.tflite.model import Array
from relax_aot.frontends.tflite.rescaling import coded, is_coded, scaled, uncoded
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

BYTES = (DType.I8, DType.U8)
TABLED = "f32; quantized i8 and u8"
LIMITS: dict[str, str] = {
    "ABS": "f32, i32; quantized i8 and i16",
    "CAST": "not of complex numbers or text",
    "DEQUANTIZE": "f16; quantized i8, u8, i16, i32, one scale or one per element of an axis",
    "ELU": TABLED,
    "GELU": TABLED,
    "HARD_SWISH": TABLED,
    "LEAKY_RELU": "f32; quantized i8, u8 and i16",
    "LOGISTIC": TABLED,
    "LOG": "f32; quantized i8",
    "LOG_SOFTMAX": "f32",
    "QUANTIZE": "from f32, and between quantized i8, u8, i16, i32; one scale",
    "RELU": "f32; quantized i8, u8 and i16",
    "RELU6": "f32; quantized i8, u8 and i16",
    "RELU_N1_TO_1": "f32; quantized i8, u8 and i16",
    "SOFTMAX": "f32; quantized i8 and u8",
    "TANH": TABLED,
}


# Tables


def _codes_of(dtype: DType) -> Array:
    """Every code of a byte, in the order of its bits."""
    bits = np.arange(256, dtype=np.uint8)
    return bits.view(np.int8).astype(np.int64) if dtype is DType.I8 else bits.astype(np.int64)


def _table(node: Node, x: Var, entries: Array) -> Var:
    to = node.result_type()
    quantized = np.clip(entries, *to.limits).astype(to.numpy)
    return node.emit("lookup", x, node.constant(quantized, "table"))


def by_float(node: Node, x: Var, function: Callable[[Array], Array]) -> Var:
    """A table through f32. The function is given float64, and rounds to f32 where the kernel does;
    its result is rounded."""
    if x.type.dtype not in BYTES:
        kind = x.type.dtype.value
        raise Refused(
            f"quantized {kind} {node.operator.name} is not supported; use 8-bit values or f32"
        )
    (x_scale, x_zero), (y_scale, y_zero) = node.singles(0)
    numbers = np.float32(x_scale) * (_codes_of(x.type.dtype) - x_zero).astype(np.float32)
    with np.errstate(all="ignore"):
        values = function(numbers.astype(np.float64)).astype(np.float32)
    steps = values * (np.float32(1) / np.float32(y_scale))
    return _table(node, x, rounded_away(steps.astype(np.float64)) + y_zero)


def _function(op: str, function: Callable[[Array], Array], **attrs: Any) -> Handler:
    def handler(node: Node) -> Results:
        x = node.arg(0)
        return by_float(node, x, function) if is_coded(node, x) else node.emit(op, x, **attrs)

    return handler


def _only_float(op: str) -> Handler:
    return lambda node: node.emit(op, uncoded(node))


def _log(node: Node) -> Results:
    x = node.arg(0)
    if not is_coded(node, x):
        return node.emit("log", x)
    y_scale, y_zero = node.single(node.result())
    least = float(np.float32(node.result_type().limits[0] - y_zero) * np.float32(y_scale))
    return by_float(node, x, lambda v: np.where(v <= 0, least, np.log(np.maximum(v, 1e-300))))


def _gelu(node: Node) -> Results:
    x, near = node.arg(0), bool(node.number("approximate"))
    if not is_coded(node, x):
        return node.emit("gelu", x, approximate="tanh" if near else "none")
    return by_float(node, x, _tanh_gelu if near else _erf_gelu)


def _sigmoid(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x).astype(np.float32))


def _erf_gelu(x: Array) -> Array:
    scaled = x.astype(np.float32) * np.float32(-sqrt(0.5))
    tails = np.array([erfc(v) for v in scaled.astype(np.float64)]).astype(np.float32)
    return np.asarray(np.float32(0.5) * x.astype(np.float32) * tails)


def _tanh_gelu(x: Array) -> Array:
    x = x.astype(np.float32)
    near = np.float32(sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    tanh = np.tanh(near.astype(np.float64)).astype(np.float32)
    return np.asarray(np.float32(0.5) * x * (np.float32(1) + tanh))


# Fixed point


def _clamp(activation: str) -> Handler:
    """RELU and its like; quantized values may change their scale on the way."""

    def handler(node: Node) -> Results:
        x = node.arg(0)
        if not is_coded(node, x):
            return activated(node, x, activation)
        (x_scale, x_zero), (y_scale, y_zero) = node.singles(0)
        limits = code_limits(activation, y_scale, y_zero, node.result_type())
        if (x_scale, x_zero) == (y_scale, y_zero):
            return node.emit("clip", x, *(node.scalar(end, x.type.dtype) for end in limits))
        return _rescaled(node, x, x_zero, ratio(x_scale, to=y_scale), limits)

    return handler


def _rescaled(
    node: Node, x: Var, zero: int, scale: float, limits: tuple[int, int] | None = None
) -> Var:
    if x.type.dtype in BYTES and node.result_type() in QUANTIZED_TYPES:
        _, y_zero = node.single(node.result())
        low, high = limits or node.result_type().limits
        steps = rescaled_code(_codes_of(x.type.dtype) - zero, scale)
        return _table(node, x, np.clip(steps + y_zero, low, high))
    return coded(node, scaled(node, x, zero, scale), limits)


def _leaky_relu(node: Node) -> Results:
    x, alpha = node.arg(0), float(node.option("alpha"))
    if not is_coded(node, x):
        return node.emit("leaky_relu", x, alpha=alpha)
    (x_scale, x_zero), (y_scale, y_zero) = node.singles(0)
    slope = ratio(x_scale, alpha, to=y_scale)
    scales = (ratio(x_scale, to=y_scale), abs(slope))
    if x.type.dtype in BYTES:
        quantized = _codes_of(x.type.dtype) - x_zero
        kept, sloped = (rescaled_code(quantized, scale) for scale in scales)
        steps = np.where(quantized >= 0, kept, -sloped if slope < 0 else sloped)
        return _table(node, x, steps + y_zero)
    above, below = (scaled(node, x, x_zero, scale) for scale in scales)
    if slope < 0:  # The kernel negates what it rounded.
        below = node.emit("neg", below)
    negative = node.emit("less", x, node.scalar(x_zero, x.type.dtype))
    return coded(node, node.emit("where", negative, below, above))


def _abs(node: Node) -> Results:
    x = node.arg(0)
    if not is_coded(node, x):
        return node.emit("abs", x)
    (x_scale, x_zero), (y_scale, _) = node.singles(0)
    wide = node.emit("sub", node.cast(x, DType.I32), node.scalar(x_zero, DType.I32))
    wide = node.emit("abs", wide)
    if x_scale != y_scale:
        wide = scaled(node, wide, 0, ratio(x_scale, to=y_scale))
    return coded(node, wide)


def _hard_swish(node: Node) -> Results:
    x = node.arg(0)
    if not is_coded(node, x):
        return node.emit("hard_swish", x)
    if x.type.dtype not in BYTES:
        raise Refused("quantized i16 HARD_SWISH is not supported")
    (x_scale, x_zero), (y_scale, y_zero) = node.singles(0)
    fine = np.float32(1 / 128) * np.float32(x_scale)
    value = (_codes_of(x.type.dtype) - x_zero) * 128
    factor, shift = _half_multiplier(float(fine / np.float32(y_scale)))
    part, part_shift = _half_multiplier(float(fine / (np.float32(3) / np.float32(32768))))
    if shift > 0:
        raise ModelError("the scale of its result is finer than its kernel supports")
    gate = value
    if part_shift > 0:
        gate = _half_clip(gate << (part_shift - 1))
    gate = _half_product(gate, part)
    if part_shift > 0:
        gate = _half_clip(gate << 1)
    if part_shift < 0:
        gate = _divided(gate, -part_shift)
    gate = (gate + (1 << 15)) >> 1
    product = gate * _half_product(value, factor)
    steps = np.sign(product) * (np.abs(product) >> 15)
    return _table(node, x, _divided(steps, -shift) + y_zero)


def _half_multiplier(scale: float) -> tuple[int, int]:
    """A scale with 15 bits."""
    factor, shift = multiplier(scale)
    return (32767 if factor >= 2**31 - 1 - (1 << 15) else (factor + (1 << 15)) >> 16), shift


def _half_product(x: Array, y: int) -> Array:
    return np.asarray((x * y + (1 << 14)) >> 15)


def _half_clip(x: Array) -> Array:
    return np.asarray(np.clip(x, -32768, 32767))


def _divided(x: Array, places: int) -> Array:
    """Halves away from 0. The kernel masks what it drops with 16 bits; where more are dropped, the
    mask is -1 and it rounds each number away from 0, and 0 up."""
    if places > 15:
        return np.where(x < 0, -1, 1)
    return np.asarray(np.sign(x) * ((np.abs(x) + ((1 << places) >> 1)) >> places))


# Softmax


def _softmax(node: Node) -> Results:
    x, beta = node.arg(0), float(node.option("beta"))
    if is_coded(node, x):
        if x.type.dtype is DType.I16:
            raise Refused("quantized i16 softmax is not supported")
        table = exponentials(beta * node.single(node.tensor(0))[0])
        if not node.replaceable:
            table = table[: np.count_nonzero(table >= 1 << 11) + 1]
        return node.emit("fixed_softmax", x, node.constant(table, "exp"), to=node.result_type())
    if beta != 1.0:
        x = node.emit("mul", x, node.scalar(beta, x.type.dtype))
    return node.emit("softmax", x, axis=-1)


def _log_softmax(node: Node) -> Results:
    x = uncoded(node)
    total = node.emit("reduce", x, kind="log_sum_exp", axes=(x.type.rank - 1,), keepdims=True)
    return node.emit("sub", x, total)


# To quantized values, from quantized values, between types


def _quantize(node: Node) -> Results:
    x = node.arg(0)
    y_scale, y_zero = node.single(node.result())
    if x.type.dtype is DType.F32:
        steps = node.emit("div", x, node.scalar(y_scale, DType.F32))
        whole = node.emit("cast", node.emit("round_away", steps), to=DType.I32, saturate=True)
        if node.result_type() is DType.I32:
            return whole
        return coded(node, _kept(node, whole, y_zero))
    x_scale, x_zero = node.single(node.tensor(0))
    return _rescaled(node, x, x_zero, x_scale / y_scale)


def _kept(node: Node, whole: Var, zero: int) -> Var:
    """Far from every code, so that adding the zero point does not wrap."""
    far = (1 << 30) + abs(zero)
    return node.emit("clip", whole, *(node.scalar(end, DType.I32) for end in (-far, far)))


def _dequantize(node: Node) -> Results:
    x, tensor = node.arg(0), node.tensor(0)
    if x.type.dtype.is_float:
        return node.cast(x, node.result_type())
    found = node.quantization(tensor)
    scales, zeros = found.scales, found.zeros.astype(x.type.dtype.numpy)
    if found.is_single:
        scales, zeros = scales.reshape(()), zeros.reshape(())
    zero = node.constant(zeros, "zeros") if np.any(zeros) else None
    scale = node.constant(scales, "scales")
    axis = {} if found.is_single else {"axis": found.axis}
    return node.emit("dequantize", x, scale, zero, to=DType.F32, **axis)


def _square(node: Node) -> Results:
    x = uncoded(node)
    return node.emit("mul", x, x)


def _zero_to_one(node: Node) -> Results:
    x = uncoded(node)
    return node.emit("clip", x, *(node.scalar(end, x.type.dtype) for end in (0.0, 1.0)))


HANDLERS: dict[str, Handler] = {
    "ABS": _abs,
    "CAST": lambda node: node.cast(node.arg(0), node.result_type()),
    "CEIL": _only_float("ceil"),
    "COS": _only_float("cos"),
    "DEQUANTIZE": _dequantize,
    "ELU": _function("elu", lambda x: np.where(x < 0, np.expm1(x), x), alpha=1.0),
    "EXP": _function("exp", np.exp),
    "FLOOR": _only_float("floor"),
    "GELU": _gelu,
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky_relu,
    "LOG": _log,
    "LOGISTIC": _function("sigmoid", _sigmoid),
    "LOG_SOFTMAX": _log_softmax,
    "NEG": _only_float("neg"),
    "QUANTIZE": _quantize,
    "RELU": _clamp("RELU"),
    "RELU6": _clamp("RELU6"),
    "RELU_0_TO_1": _zero_to_one,
    "RELU_N1_TO_1": _clamp("RELU_N1_TO_1"),
    "ROUND": _only_float("round_even"),
    "RSQRT": lambda node: node.emit("reciprocal", node.emit("sqrt", uncoded(node))),
    "SIGN": _only_float("sign"),
    "SIN": _only_float("sin"),
    "SOFTMAX": _softmax,
    "SQRT": _only_float("sqrt"),
    "SQUARE": _square,
    "TANH": _function("tanh", np.tanh),
}
