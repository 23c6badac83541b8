# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops on quantized 8-bit values, with quantized results.

qadd       (x * left + y * right + offset) >> shift, all of it in 32 bits; whoever makes
                one has shown for all quantized values that it is what is meant
qmul      ((x - zeros[0]) * (y - zeros[1]) * 2^14 * factor >> 32) + offset, shifted to the right;
                whoever makes one has shown the same
qbinary   the same numbers as dequantize, an operator of floats, quantize
lookup          the entry of a table of 256 for each quantized value
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, apply, binary
from relax_aot.ir.parameters import plain
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    WORDS,
    Array,
    Limits,
    Op,
    Sample,
    Single,
    Trait,
    all_operands,
    broadcast,
    broadcast_conditions,
    clamp_limits,
    code_limits,
    require,
    spread,
)
from relax_aot.ops._samples import integers
from relax_aot.ops.quantize import code_of, coded

EIGHT = (DType.I8, DType.U8)
KINDS = {"add": "+", "sub": "-", "mul": "*"}


def _pair_type(name: str, x: TensorType, y: TensorType, to: DType) -> TensorType:
    bytes_ = x.dtype in EIGHT and y.dtype in EIGHT and to in EIGHT
    require(bytes_, f"{name} works on bytes, got {x} and {y} to {to.value}")
    return TensorType(to, broadcast(x.shape, y.shape))


def _check_limits(limits: Sequence[int], to: DType) -> None:
    low, high = to.limits
    fits = len(limits) == 2 and low <= limits[0] <= limits[1] <= high
    require(fits, f"limits {tuple(limits)} of {to.value}")


def clamped(value: Expr, to: DType, limits: Sequence[int]) -> Expr:
    """An i32 within limits, as a quantized value."""
    if tuple(limits) == to.limits:
        return Cast(value, to, "saturate")
    inside = apply("min", apply("max", value, limits[0]), limits[1])
    return Cast(inside, to)


# qadd

HALF = 16
"""Bits of the lower parts of weights whose sums need 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Sum:
    left: int
    right: int
    offset: int
    shift: int
    to: DType
    limits: Sequence[int]


def _sum_type(attrs: Sum, x: TensorType, y: TensorType) -> TensorType:
    found = _pair_type("qadd", x, y, attrs.to)
    _check_limits(attrs.limits, attrs.to)
    require(0 <= attrs.shift < 62, f"qadd: a shift of {attrs.shift}")
    wide = _sum_dtype(x, y, attrs.left, attrs.right, attrs.offset)
    fits = all(abs(w) < 2**31 for w in (attrs.left, attrs.right)) and wide is not None
    require(fits, f"qadd: weights {attrs.left} and {attrs.right}, offset {attrs.offset}")
    return found


def _sum_dtype(x: TensorType, y: TensorType, left: int, right: int, offset: int) -> DType | None:
    """What sums of all quantized values fit."""
    ends = [[w * c for c in t.dtype.limits] for w, t in ((left, x), (right, y))]
    least, most = (offset + sum(map(end, ends)) for end in (min, max))
    for dtype in (DType.I32, DType.I64):
        low, high = dtype.limits
        if low <= least and most <= high and low <= offset <= high:
            return dtype
    return None


def _sum_lower(attrs: Sum, k: KernelBuilder, x: Buffer, y: Buffer, z: Buffer) -> None:
    numbers = tuple(map(plain, (attrs.left, attrs.right, attrs.offset)))
    wide = _sum_dtype(x.type, y.type, *numbers)
    assert wide is not None
    halves = _halves(x.type, y.type, numbers, attrs.shift) if wide is DType.I64 else None
    with k.loops(*z.shape) as at:
        values = [Cast(b[spread(at, b.shape)], DType.I32) for b in (x, y)]

        def total(numbers: Sequence[int], dtype: DType) -> Expr:
            left, right, offset = (Lit(number, dtype) for number in numbers)
            a, b = values if dtype is DType.I32 else [Cast(one, dtype) for one in values]
            return binary("+", binary("+", binary("*", a, left), binary("*", b, right)), offset)

        if halves is None:
            # Numbers of 32 bits may be those of replaceable weights, so they are not plain.
            given = (attrs.left, attrs.right, attrs.offset)
            whole: Expr = binary(">>", total(given, wide), attrs.shift)
        else:
            high, low = (total(part, DType.I32) for part in halves)
            whole = binary("+", high, binary(">>", low, HALF))
            whole = binary(">>", whole, attrs.shift - HALF)
        if wide is DType.I64 and halves is None:
            whole = Cast(whole, DType.I32, "saturate")
        k.store(z[at], clamped(whole, attrs.to, attrs.limits))


def _halves(
    x: TensorType, y: TensorType, numbers: Sequence[int], shift: int
) -> tuple[list[int], list[int]] | None:
    """The numbers divided by 2^16 and what remains, where sums with either fit 32 bits. The first
    sum and 2^-16 of the second one, rounded down, are the sum of 64 bits shifted by 16."""
    low = [(number + (1 << 15)) % (1 << HALF) - (1 << 15) for number in numbers]
    high = [(number - rest) >> HALF for number, rest in zip(numbers, low, strict=True)]
    left, right, offset = high
    # The second sum is below 2^24 in magnitude.
    carried = [[left, right, offset + carry] for carry in (-256, 0, 256)]
    fits = all(_sum_dtype(x, y, *part) is DType.I32 for part in (low, *carried))
    return (high, low) if fits and shift >= HALF else None


def _sum_reference(attrs: Sum, x: Array, y: Array) -> Array:
    low, high = attrs.limits
    total = x.astype(np.int64) * attrs.left + y.astype(np.int64) * attrs.right + attrs.offset
    return np.asarray(np.clip(total >> attrs.shift, low, high).astype(attrs.to.numpy))


def _sum_samples(rng: np.random.Generator) -> list[Sample]:
    attrs = {"left": 700000, "right": -500000, "offset": 3 << 18, "shift": 20}
    i8, u8 = np.int8, np.uint8
    return [
        Sample((integers(rng)(i8, 3, 50), integers(rng)(i8, 3, 50)),
               {**attrs, "to": DType.I8, "limits": (-128, 127)}),
        Sample((integers(rng)(u8, 2, 1, 9), integers(rng)(i8, 3, 1)),
               {**attrs, "to": DType.U8, "limits": (3, 200)}),
        Sample((integers(rng)(i8, 3, 50), integers(rng)(u8, 3, 50)),
               {"left": 2**31 - 5, "right": 1 << 30, "offset": 3 << 38, "shift": 31,
                "to": DType.I8, "limits": (-128, 127)}),
    ]  # fmt: skip


def _word(call: Call, _value: Any) -> Limits | None:
    """Sums of 64 bits keep their numbers in the code."""
    attrs: dict[str, Any] = dict(call.attrs)
    x, y = call.inputs
    numbers = (int(attrs[name]) for name in ("left", "right", "offset"))
    return WORDS if _sum_dtype(x.type, y.type, *numbers) is DType.I32 else None


# qmul

LIFT = 14
"""Products of differences of bytes are below 2^16 in magnitude."""


@dataclass(frozen=True, kw_only=True)
class Product:
    zeros: Sequence[int]
    factor: int
    offset: int
    shift: int
    to: DType
    limits: Sequence[int]


def _product_type(attrs: Product, x: TensorType, y: TensorType) -> TensorType:
    found = _pair_type("qmul", x, y, attrs.to)
    _check_limits(attrs.limits, attrs.to)
    fits = 0 <= attrs.factor < 2**31 and abs(attrs.offset) < 2**30 and 0 <= attrs.shift < 31
    require(fits, f"qmul: factor {attrs.factor}, offset {attrs.offset}, shift {attrs.shift}")
    kinds = zip(attrs.zeros, (x, y), strict=False)
    inside = all(t.dtype.limits[0] <= zero <= t.dtype.limits[1] for zero, t in kinds)
    require(len(attrs.zeros) == 2 and inside, f"qmul: zeros {tuple(attrs.zeros)} of {x} and {y}")
    return found


def _product_lower(attrs: Product, k: KernelBuilder, x: Buffer, y: Buffer, z: Buffer) -> None:
    with k.loops(*z.shape) as at:
        left, right = (
            Cast(b[spread(at, b.shape)], DType.I32) - zero
            for b, zero in zip((x, y), attrs.zeros, strict=True)
        )
        lifted = Cast(binary("*", left, right) * Lit(1 << LIFT, DType.I32), DType.I64)
        scaled = binary(">>", lifted * Lit(attrs.factor, DType.I64), 32)
        total = Cast(scaled, DType.I32) + Lit(attrs.offset, DType.I32)
        k.store(z[at], clamped(binary(">>", total, attrs.shift), attrs.to, attrs.limits))


def product_of(x: Array, y: Array, zeros: Sequence[int], factor: int) -> Array:
    """What the offset is added to."""
    whole = (x.astype(np.int64) - zeros[0]) * (y.astype(np.int64) - zeros[1])
    return np.asarray((whole << LIFT) * factor >> 32)


def _product_reference(attrs: Product, x: Array, y: Array) -> Array:
    low, high = attrs.limits
    total = product_of(x, y, attrs.zeros, attrs.factor) + attrs.offset
    return np.asarray(np.clip(total >> attrs.shift, low, high).astype(attrs.to.numpy))


def _product_samples(rng: np.random.Generator) -> list[Sample]:
    attrs = {"factor": 1723118578, "offset": -55312390, "shift": 19}
    i8, u8 = np.int8, np.uint8
    return [
        Sample((integers(rng)(i8, 3, 50), integers(rng)(i8, 3, 50)),
               {**attrs, "zeros": (-118, -128), "to": DType.I8, "limits": (-128, 127)}),
        Sample((integers(rng)(u8, 2, 1, 9), integers(rng)(i8, 3, 1)),
               {**attrs, "zeros": (255, 127), "to": DType.U8, "limits": (3, 200)}),
        Sample((integers(rng)(i8, 4, 30), integers(rng)(u8)),
               {**attrs, "zeros": (3, 0), "shift": 0, "to": DType.I8, "limits": (-128, 127)}),
    ]  # fmt: skip


# qbinary


@dataclass(frozen=True, kw_only=True)
class Combination:
    kind: str
    scales: Sequence[float]
    zeros: Sequence[int]
    to: DType
    limits: Sequence[int]


def _combine_type(attrs: Combination, x: TensorType, y: TensorType) -> TensorType:
    three = len(attrs.scales) == 3 and len(attrs.zeros) == 3
    require(three, "qbinary takes scales and zeros of two operands and the result")
    _check_limits(attrs.limits, attrs.to)
    return _pair_type("qbinary", x, y, attrs.to)


def _combine_lower(attrs: Combination, k: KernelBuilder, x: Buffer, y: Buffer, z: Buffer) -> None:
    with k.loops(*z.shape) as at:
        parts = []
        for buffer, scale, zero in zip((x, y), attrs.scales, attrs.zeros, strict=False):
            whole: Expr = Cast(buffer[spread(at, buffer.shape)], DType.I32)
            whole = whole - zero if zero else whole
            parts.append(binary("*", Cast(whole, DType.F32), Lit(scale, DType.F32)))
        value = binary(KINDS[attrs.kind], parts[0], parts[1])
        quotient = binary("/", value, Lit(attrs.scales[2], DType.F32))
        wide = coded(quotient, Lit(attrs.zeros[2], DType.I32), DType.I32, saturate=True)
        k.store(z[at], clamped(wide, attrs.to, attrs.limits))


def combined(
    x: Array, y: Array, kind: str, scales: Sequence[float], zeros: Sequence[int], to: DType
) -> Array:
    """Quantized values of the formula in floats, before limits."""
    a, b, step = (np.float32(s) for s in scales)
    left = (x.astype(np.int32) - np.int32(zeros[0])).astype(np.float32) * a
    right = (y.astype(np.int32) - np.int32(zeros[1])).astype(np.float32) * b
    value = left + right if kind == "add" else left - right if kind == "sub" else left * right
    return code_of(np.asarray(value / step), np.asarray(zeros[2]), to, saturate=True)


def _combine_reference(attrs: Combination, x: Array, y: Array) -> Array:
    low, high = attrs.limits
    quantized = combined(x, y, attrs.kind, attrs.scales, attrs.zeros, attrs.to)
    return np.asarray(np.clip(quantized, low, high).astype(attrs.to.numpy))


def _combine_samples(rng: np.random.Generator) -> list[Sample]:
    samples = []
    for kind in KINDS:
        attrs = {"kind": kind, "scales": (0.125, 0.5, 0.25), "zeros": (-3, 7, 5)}
        samples += [
            Sample((integers(rng)(np.int8, 4, 30), integers(rng)(np.uint8, 4, 30)),
                   {**attrs, "to": DType.I8, "limits": (-128, 127)}),
            Sample((integers(rng)(np.int8, 30), integers(rng)(np.int8)),
                   {**attrs, "to": DType.U8, "limits": (5, 255)}),
        ]  # fmt: skip
    return samples


# lookup


def _lookup_type(x: TensorType, table: TensorType) -> TensorType:
    require(x.dtype in EIGHT, f"lookup of {x}")
    require(table.shape == (Dim.of(256),), f"lookup in {table}, not a table of 256")
    return TensorType(table.dtype, x.shape)


def _lookup_lower(k: KernelBuilder, x: Buffer, table: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        bits = Cast(x[at], DType.U8)
        code = k.placed("code", Cast(bits, DType.I64), 0, 255)
        k.store(y[at], table[(code,)])


def _lookup_reference(x: Array, table: Array) -> Array:
    return np.asarray(table[x.astype(np.uint8)])


def _lookup_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((integers(rng)(kind, 3, 40), integers(rng)(to, 256)), fixed=(256,))
        for kind in (np.int8, np.uint8)
        for to in (np.int8, np.uint8, np.int16)
    ]


OPS = (
    Op("qadd", _sum_type, _sum_lower, _sum_reference, _sum_samples,
       conditions=broadcast_conditions, broadcasts=all_operands, former=("sum_codes",),
       traits=Trait.QUANTIZED, record=Sum,
       quantization={"left": _word, "right": _word, "offset": _word, "limits": clamp_limits,
                   "shift": lambda call, value: None if _word(call, value) is None else (1, 31)}),
    Op("qmul", _product_type, _product_lower, _product_reference, _product_samples,
       conditions=broadcast_conditions, broadcasts=all_operands, traits=Trait.QUANTIZED,
       record=Product),
    Op("qbinary", _combine_type, _combine_lower, _combine_reference, _combine_samples,
       conditions=broadcast_conditions, broadcasts=all_operands, former=("combine_codes",),
       record=Combination, values={"kind": KINDS}, traits=Trait.QUANTIZED,
       quantization={"scales": Single(), "zeros": code_limits, "limits": clamp_limits}),
    Op("lookup", _lookup_type, _lookup_lower, _lookup_reference, _lookup_samples),
)  # fmt: skip
