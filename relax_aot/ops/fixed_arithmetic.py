# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops on quantized values, as TensorFlow Lite's reference kernels define them.

The real value is (value - zero) * scale; scales are integers (`_fixed.py`).

    fixed_add      both operands are brought to one scale with `left` more bits, added (or, with
                   `sign` -1, subtracted), and brought to the scale of the result; a finer
                   scale shifts sums to the left, which saturates
    fixed_rescale  values or sums less a zero point, with `left` more bits, times one scale, as i32
    fixed_mul      the product less the zero points, times one scale
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.graph import Call
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._fixed import np_times, shifted, times
from relax_aot.ops._op import (
    WORDS,
    Array,
    Limits,
    Op,
    Sample,
    all_operands,
    broadcast,
    broadcast_conditions,
    clamp_limits,
    code_limits,
    require,
    spread,
)
from relax_aot.ops._samples import integers

QUANTIZED_TYPES = (DType.I8, DType.U8, DType.I16)
I32 = DType.I32


def _pair_type(what: str, x: TensorType, y: TensorType) -> TensorType:
    fits = x.dtype is y.dtype and x.dtype in QUANTIZED_TYPES
    require(fits, f"{what} needs two tensors of i8, u8 or i16, got {x} and {y}")
    return TensorType(x.dtype, broadcast(x.shape, y.shape))


def less(value: Expr, zero: int) -> Expr:
    wide = Cast(value, I32)
    return wide - Lit(zero, I32) if zero else wide


def stored(value: Expr, zero: int, limits: Sequence[int], to: DType) -> Expr:
    """A number in units of the result's scale as a quantized value within limits."""
    code = value + Lit(zero, I32) if zero else value
    low, high = limits
    return Cast(apply("min", apply("max", code, Lit(low, I32)), Lit(high, I32)), to)


def _stored(value: Array, zero: int, limits: Sequence[int], to: Any) -> Array:
    low, high = limits
    return np.asarray(np.clip(value + zero, low, high).astype(to))


# fixed_add


@dataclass(frozen=True, kw_only=True)
class Sum:
    zeros: Sequence[int]
    factors: Sequence[int]
    shifts: Sequence[int]
    left: int
    limits: Sequence[int]
    sign: int = 1


def _sum_type(attrs: Sum, x: TensorType, y: TensorType) -> TensorType:
    return _pair_type("fixed_add", x, y)


def _most(attrs: Sum) -> int:
    """A sum beyond it does not fit 32 bits where it is shifted to the left; its result is a limit
    in any case."""
    return (1 << (31 - max(attrs.shifts[2], 0))) - 1


def _sum_lower(attrs: Sum, k: KernelBuilder, x: Buffer, y: Buffer, z: Buffer) -> None:
    with k.loops(*z.shape) as at:
        parts = []
        scales = zip(attrs.zeros, attrs.factors, attrs.shifts, strict=True)
        for part, (zero, factor, shift) in zip((x, y), scales, strict=False):
            code = less(part[spread(at, part.shape)], zero)
            parts.append(k.local("part", I32, times(k, shifted(code, attrs.left), factor, shift)))
        raw: Expr = binary("+" if attrs.sign > 0 else "-", parts[0], parts[1])
        if attrs.shifts[2] > 0:
            most = _most(attrs)
            raw = apply("min", apply("max", raw, Lit(-most, I32)), Lit(most, I32))
        value = times(k, raw, attrs.factors[2], attrs.shifts[2])
        k.store(z[at], stored(value, attrs.zeros[2], attrs.limits, z.dtype))


def _sum_reference(attrs: Sum, x: Array, y: Array) -> Array:
    wide = [
        (part.astype(np.int64) - zero) << attrs.left
        for part, zero in zip((x, y), attrs.zeros, strict=False)
    ]
    a, b = (np_times(p, f, s) for p, f, s in zip(wide, attrs.factors, attrs.shifts, strict=False))
    raw = np.clip(a + attrs.sign * b, -_most(attrs), _most(attrs))
    total = np_times(raw, attrs.factors[2], attrs.shifts[2])
    return _stored(total, attrs.zeros[2], attrs.limits, x.dtype)


def _sum_samples(rng: np.random.Generator) -> list[Sample]:
    quantized = integers(rng)
    attrs = {
        "zeros": (-3, 17, 5), "factors": (1879048192, 1100000003, 1999999999),
        "shifts": (-1, 0, -18), "left": 20, "limits": (-100, 127),
    }  # fmt: skip
    wide = {**attrs, "zeros": (0, 0, 0), "left": 15, "shifts": (0, -2, -15)}
    return [
        Sample((quantized(np.int8, 3, 50), quantized(np.int8, 3, 50)), attrs),
        Sample((quantized(np.int8, 3, 50), quantized(np.int8, 50)), {**attrs, "sign": -1}),
        Sample((quantized(np.uint8, 7), quantized(np.uint8)), {**attrs, "limits": (0, 255)}),
        Sample((quantized(np.int8, 9), quantized(np.int8, 9)), {**attrs, "shifts": (-1, 0, 8)}),
        Sample(
            (quantized(np.int16, 40), quantized(np.int16, 40)), {**wide, "limits": (-32768, 32767)}
        ),
    ]


def _shift(call: Call, shift: Any) -> Limits | None:
    """To the right alone; other shifts stay in the code."""
    return (-31, -1) if shift < 0 else None


# fixed_rescale


@dataclass(frozen=True, kw_only=True)
class Scale:
    zero: int
    left: int
    factor: int
    shift: int


def _scale_type(attrs: Scale, x: TensorType) -> TensorType:
    require(x.dtype in (*QUANTIZED_TYPES, I32), f"fixed_rescale does not take {x}")
    return TensorType(I32, x.shape)


def _scale_lower(attrs: Scale, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        value = x[at] if x.dtype is I32 else Cast(x[at], I32)
        number = value - Lit(attrs.zero, I32) if attrs.zero else value
        k.store(y[at], times(k, shifted(number, attrs.left), attrs.factor, attrs.shift))


def _scale_reference(attrs: Scale, x: Array) -> Array:
    wide = (x.astype(np.int64) - attrs.zero) << attrs.left
    return np_times(wide, attrs.factor, attrs.shift).astype(np.int32)


def _scale_samples(rng: np.random.Generator) -> list[Sample]:
    attrs = {"zero": -7, "left": 8, "factor": 1912345678, "shift": -3}
    bytes_ = rng.integers(-128, 128, (3, 40)).astype(np.int8)
    wide = rng.integers(-(2**30), 2**30, 50).astype(np.int32)
    return [
        Sample((bytes_,), attrs),
        Sample((bytes_.astype(np.int16),), {**attrs, "left": 0, "shift": 2}),
        Sample((wide,), {**attrs, "zero": 0, "left": 0, "shift": -12}),
    ]


# fixed_mul


@dataclass(frozen=True, kw_only=True)
class Product:
    zeros: Sequence[int]
    factor: int
    shift: int
    limits: Sequence[int]


def _product_type(attrs: Product, x: TensorType, y: TensorType) -> TensorType:
    return _pair_type("fixed_mul", x, y)


def _product_lower(attrs: Product, k: KernelBuilder, x: Buffer, y: Buffer, z: Buffer) -> None:
    with k.loops(*z.shape) as at:
        a, b = (
            less(part[spread(at, part.shape)], zero)
            for part, zero in zip((x, y), attrs.zeros, strict=False)
        )
        value = times(k, binary("*", a, b), attrs.factor, attrs.shift)
        k.store(z[at], stored(value, attrs.zeros[2], attrs.limits, z.dtype))


def _product_reference(attrs: Product, x: Array, y: Array) -> Array:
    product = (x.astype(np.int64) - attrs.zeros[0]) * (y.astype(np.int64) - attrs.zeros[1])
    scaled = np_times(product, attrs.factor, attrs.shift)
    return _stored(scaled, attrs.zeros[2], attrs.limits, x.dtype)


def _product_samples(rng: np.random.Generator) -> list[Sample]:
    a, b = rng.integers(-128, 128, (2, 3, 60)).astype(np.int8)
    c, d = rng.integers(-32768, 32768, (2, 60)).astype(np.int16)
    attrs = {"zeros": (-3, 17, 5), "factor": 1879048192, "shift": -7, "limits": (-100, 127)}
    wide = {**attrs, "zeros": (0, 0, 0), "shift": -14, "limits": (-32768, 32767)}
    return [Sample((a, b), attrs), Sample((a, b[0]), attrs), Sample((c, d), wide)]


OPS = (
    Op(
        "fixed_add", _sum_type, _sum_lower, _sum_reference, _sum_samples,
        conditions=broadcast_conditions, broadcasts=all_operands, record=Sum,
        former=("fixed_sum",),
    ),
    Op(
        "fixed_rescale", _scale_type, _scale_lower, _scale_reference, _scale_samples,
        former=("fixed_scale",), record=Scale,
        quantization={"zero": WORDS, "factor": WORDS, "shift": _shift},
    ),
    Op(
        "fixed_mul", _product_type, _product_lower, _product_reference, _product_samples,
        conditions=broadcast_conditions, broadcasts=all_operands, record=Product,
        former=("fixed_product",),
        quantization={
            "zeros": code_limits, "factor": WORDS, "shift": _shift, "limits": clamp_limits,
        },
    ),
)  # fmt: skip
