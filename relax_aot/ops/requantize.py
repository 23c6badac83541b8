# SPDX-License-Identifier: Apache-2.0
"""requantize: rescales 32-bit accumulators to 8 or 16 bits, or, in integers, to 32 bits.

What is meant is `sum * scale + zero`, saturated, within `limits` where they are given (a
fused ReLU or clip is that). How it is rounded is an attribute, since formats differ in it:

    onnx     the scale is f32; the product is rounded to f32, then to nearest, halves to even
             (QLinearConv of ONNX Runtime)
    nearest  the scale is `scale / 2^shift` in integers, and the exact product is rounded once,
             halves up; shifts are 33 to 62
    tflite   the scale is `scale * 2^(shift - 31)` in integers, rounded twice: the high word of
             the doubled product, halves up; then the shift to the right, halves away from 0
             (MultiplyByQuantizedMultiplier of the reference kernels). Sums of 64 bits take
             the upper 16 bits of the scale, and are rounded once, halves up

    twice    what tflite says, for scales below 1/2: the scale is `scale / 2^(shift + 32)`, where
             `scale` and `shift` are not negative

Scales, shifts and zero points are one number, or one per place of an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.graph import Call, Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Limits,
    Op,
    Sample,
    Single,
    Trait,
    clamp_limits,
    code_limits,
    require,
)
from relax_aot.ops.quantize import (
    check_parts,
    code_of,
    coded,
    part_at,
    part_conditions,
    spread_part,
)

ROUNDINGS = ("onnx", "nearest", "tflite", "twice")
RESULTS = (DType.I8, DType.U8, DType.I16, DType.U16)


@dataclass(frozen=True, kw_only=True)
class Requantize:
    to: DType
    axis: int = 1
    rounding: str = "onnx"
    limits: Sequence[int] = ()


def _type(
    attrs: Requantize,
    x: TensorType,
    scale: TensorType,
    zero: TensorType | None = None,
    shift: TensorType | None = None,
) -> TensorType:
    to, rounding, limits = attrs.to, attrs.rounding, attrs.limits
    kind = DType.F32 if rounding == "onnx" else DType.I32
    sums = x.dtype is DType.I32 or (x.dtype is DType.I64 and rounding in ("nearest", "tflite"))
    require(sums and scale.dtype is kind, f"requantize of {x} by {scale}")
    kept = to is DType.I32 and rounding != "onnx"
    require(to in RESULTS or kept, f"requantize to {to.value}")
    require(zero is None or zero.dtype is to, f"requantize to {to.value} with {zero}")
    shifts = rounding != "onnx"
    require((shift is not None) is shifts, f"requantize: {rounding} with the shift {shift}")
    require(shift is None or shift.dtype is DType.I32, f"requantize: shift {shift}")
    low, high = to.limits
    fits = not limits or (len(limits) == 2 and low <= limits[0] <= limits[1] <= high)
    require(fits, f"requantize: limits {tuple(limits)} in {to.value}")
    check_parts("requantize", x, scale, zero, shift, axis=attrs.axis)
    return TensorType(to, x.shape)


def _conditions(attrs: Requantize, x: TensorType, *parts: TensorType | None) -> list[Condition]:
    return [c for part in parts for c in part_conditions(x, part, attrs.axis, 0)]


def _lower(
    attrs: Requantize,
    k: KernelBuilder,
    x: Buffer,
    scale: Buffer,
    zero: Buffer | None,
    shift: Buffer | None,
    y: Buffer,
) -> None:
    with k.loops(*y.shape) as at:
        code = None if zero is None else part_at(zero, at, attrs.axis, 0)
        if shift is None:
            product = binary("*", Cast(x[at], DType.F32), part_at(scale, at, attrs.axis, 0))
            value: Expr = coded(product, code, attrs.to, saturate=True)
        else:
            factor, places = part_at(scale, at, attrs.axis, 0), part_at(shift, at, attrs.axis, 0)
            if attrs.rounding == "nearest":
                value = _rounded_once(x[at], factor, places, code)
            else:
                twice = _rounded_below if attrs.rounding == "twice" else _rounded_twice
                rounded = _rounded_wide if x.dtype is DType.I64 else twice
                value = rounded(k, x[at], factor, places)
                value = value if code is None else value + Cast(code, DType.I32)
            value = Cast(value, attrs.to, "saturate")
        k.store(y[at], within(value, attrs.to, attrs.limits))


def within(code: Expr, to: DType, limits: Sequence[int]) -> Expr:
    """A quantized value clamped to limits; those of the element type itself cost nothing."""
    if not limits:
        return code
    low, high = limits
    if low != to.limits[0]:
        code = apply("max", code, Lit(low, to))
    return apply("min", code, Lit(high, to)) if high != to.limits[1] else code


def _rounded_once(x: Expr, factor: Expr, shift: Expr, code: Expr | None) -> Expr:
    """(x * factor + half) >> shift, and the zero point. Shifts are 33 to 62, so that the high
    word of the product is enough: (floor(2p) + 1) >> 1 rounds p."""
    wide = binary("*", Cast(x, DType.I64), Cast(factor, DType.I64))
    high = Cast(binary(">>", wide, 32), DType.I32)
    doubled = binary(">>", high, binary("-", shift, 33))
    one: Expr = Lit(1, DType.I32)
    if code is not None:
        one = binary("+", binary("*", Cast(code, DType.I32), 2), one)
    return binary(">>", binary("+", doubled, one), 1)


def _rounded_twice(k: KernelBuilder, x: Expr, factor: Expr, shift: Expr) -> Expr:
    """gemmlowp's SaturatingRoundingDoublingHighMul, then its RoundingDivideByPOT."""
    zero = Lit(0, DType.I32)
    left, right = apply("max", shift, zero), apply("max", binary("-", zero, shift), zero)
    shifted = Cast(binary("<<", x, left), DType.I64)
    product = binary("+", binary("*", shifted, Cast(factor, DType.I64)), 1 << 30)
    high = Cast(binary(">>", product, 31), DType.I32, "saturate")
    whole = k.local("high", DType.I32, high)
    places = k.local("right_shift", DType.I32, right)
    one = Lit(1, DType.I32)
    mask = binary("-", binary("<<", one, places), one)
    rest = binary("&", whole, mask)
    negative = Select(whole < 0, one, zero)
    half = binary("+", binary(">>", mask, one), negative)
    return binary("+", binary(">>", whole, places), Select(half < rest, one, zero))


def _rounded_below(k: KernelBuilder, x: Expr, factor: Expr, shift: Expr) -> Expr:
    """The same for scales below 1/2, and factors that are not negative. A negative number is
    taken one lower, after which (floor(2p) + 1) >> 1 rounds its halves away from 0 too."""
    product = binary("*", Cast(x, DType.I64), Cast(factor, DType.I64))
    high = binary(">>", binary("+", product, Lit(1 << 30, DType.I64)), 31)
    whole = k.local("high", DType.I32, Cast(high, DType.I32))
    lower = binary("+", whole, binary(">>", whole, Lit(31, DType.I32)))
    return binary(">>", binary("+", binary(">>", lower, shift), Lit(1, DType.I32)), 1)


def _below(x: Array, factor: Array, shift: Array) -> Array:
    return rescaled(x, factor, -1 - shift)


REDUCED = (1 << 31) - (1 << 16)
"""From here on a scale of 31 bits is rounded to the largest of 15."""


def _rounded_wide(_k: KernelBuilder, x: Expr, factor: Expr, shift: Expr) -> Expr:
    """A sum of 48 bits times the upper half of the scale, in 64 bits."""
    half = binary(">>", binary("+", factor, 1 << 15), 16)
    reduced = Select(factor < REDUCED, half, Lit((1 << 15) - 1, DType.I32))
    places = Cast(binary("-", Lit(15, DType.I32), shift), DType.I64)
    middle = binary("<<", Lit(1, DType.I64), binary("-", places, 1))
    product = binary("*", x, Cast(reduced, DType.I64))
    return Cast(binary(">>", binary("+", product, middle), places), DType.I32)


def rescaled_wide(x: Array, factor: Array, shift: Array) -> Array:
    """The same of int64 arrays."""
    reduced = np.where(factor < REDUCED, (factor + (1 << 15)) >> 16, (1 << 15) - 1)
    places = 15 - shift
    return np.asarray((x * reduced + (np.int64(1) << (places - 1))) >> places).astype(np.int32)


def rescaled(x: Array, factor: Array, shift: Array) -> Array:
    """The same of int64 arrays: what `scale * 2^(shift - 31)` makes of integers."""
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    high = ((x << left).astype(np.int32).astype(np.int64) * factor + (1 << 30)) >> 31
    high = np.minimum(high, 2**31 - 1)
    mask = (np.int64(1) << right) - 1
    half = (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + ((high & mask) > half))


def _nearest(x: Array, factor: Array, shift: Array) -> Array:
    return np.asarray((x * factor + (np.int64(1) << (shift - 1))) >> shift)


def _reference(
    attrs: Requantize, x: Array, scale: Array, zero: Array | None = None, shift: Array | None = None
) -> Array:
    code = None if zero is None else spread_part(zero, x, attrs.axis, 0)
    if shift is None:
        product = x.astype(np.float32) * spread_part(scale, x, attrs.axis, 0)
        quantized = code_of(np.asarray(product), code, attrs.to, saturate=True)
    else:
        parts = (spread_part(part, x, attrs.axis, 0).astype(np.int64) for part in (scale, shift))
        twice = rescaled_wide if x.dtype == np.int64 else rescaled
        formula = {"nearest": _nearest, "tflite": twice, "twice": _below}[attrs.rounding]
        whole = formula(x.astype(np.int64), *parts).astype(np.int64)
        whole = whole if code is None else whole + code.astype(np.int64)
        quantized = np.clip(whole, *attrs.to.limits).astype(attrs.to.numpy)
    low, high = attrs.limits or attrs.to.limits
    return np.asarray(np.clip(quantized, low, high).astype(attrs.to.numpy))


def _samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.integers(-20000, 20000, (3, 4, 5)).astype(np.int32)
    ends = np.array([2**31 - 1, -(2**31), -(2**31) + 1, 0, 1, -1], np.int32)
    vector = np.array([0.001, 0.005, 0.01, 0.02], np.float32)
    factors = rng.integers(2**30, 2**31, 4).astype(np.int32)
    shifts = np.array([-8, -7, 0, 2], np.int32)
    one = {"to": DType.I8, "rounding": "tflite"}

    def integer(value: int) -> Array:
        return np.array(value, np.int32)

    return [
        *(Sample((x, np.array(0.01, np.float32), np.array(3).astype(to.numpy)), {"to": to})
          for to in RESULTS),
        Sample((x, vector, None), {"to": DType.I8, "axis": 1}),
        Sample((x, vector, np.array(-128, np.int8)),
               {"to": DType.I8, "axis": 1, "limits": (-128, 90)}),
        Sample((x, vector, np.array(7, np.uint8)),
               {"to": DType.U8, "axis": 1, "limits": (7, 200)}),
        Sample((x[0, 0], np.array([0.5], np.float32)), {"to": DType.I16, "axis": 0}),
        Sample((ends[:2], np.array(1, np.float32)), {"to": DType.U8}),
        Sample((x, factors, np.array(5, np.int8), shifts), {**one, "limits": (5, 127)}),
        Sample((x, factors, None, shifts), {**one, "to": DType.I16}),
        Sample((x, factors, np.array(5, np.int8), shifts + 41),
               {**one, "rounding": "nearest", "limits": (5, 127)}),
        Sample((x, integer(2**30 + 12345), None, integer(38)),
               {**one, "rounding": "nearest", "to": DType.U8}),
        Sample((x, integer(2**30), None, integer(-9)), one),
        Sample((x, factors, np.array(5, np.int8), np.array([0, 7, 9, 12], np.int32)),
               {**one, "rounding": "twice", "limits": (5, 127)}),
        Sample((np.arange(-999, 999, dtype=np.int32), integer(2**30), None, integer(3)),
               {**one, "rounding": "twice", "to": DType.I16}),
        Sample((ends[1:], integer(2**31 - 1), None, integer(19)),
               {**one, "rounding": "twice", "to": DType.I16}),
        Sample((x.astype(np.int64) << 20, factors, None, shifts - 18), {**one, "to": DType.I16}),
        Sample((np.arange(-40, 40, dtype=np.int32), integer(2**30), None, integer(-2)), one),
        Sample((x, factors, None, shifts), {**one, "to": DType.I32}),
        Sample((x, factors, None, np.array([0, 7, 9, 12], np.int32)),
               {**one, "rounding": "twice", "to": DType.I32}),
        Sample((ends, integer(-(2**31)), None, integer(0)), {**one, "to": DType.I16}),
        Sample((ends, integer(2**31 - 1), None, integer(-20)), {**one, "to": DType.I16}),
    ]  # fmt: skip


def _scale_limits(call: Call, _value: Any) -> Limits:
    (scale,) = (arg for arg in call.args[1:2] if arg is not None)
    return Single() if scale.type.dtype is DType.F32 else (0, 2**31 - 1)


def _zero_limits(call: Call, value: Any) -> Limits | None:
    """The lowest quantized value, as after a relu, is the limit of the type: no clamp is needed."""
    low, _ = call.out.type.dtype.limits
    return (low, low) if np.all(value == low) else code_limits(call, value)


SHIFTS = {"nearest": (33, 62), "twice": (0, 30), "tflite": (-31, 31)}


OP = Op(
    "requantize", _type, _lower, _reference, _samples, conditions=_conditions,
    record=Requantize, values={"rounding": ROUNDINGS}, traits=Trait.QUANTIZED,
    quantization={
        "scale": _scale_limits, "zero": _zero_limits, "limits": clamp_limits,
        "shift": lambda call, _: SHIFTS[str(call.attr("rounding"))],
    },
)  # fmt: skip
