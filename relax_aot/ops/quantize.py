# SPDX-License-Identifier: Apache-2.0
"""quantize and dequantize: real value = (quantized value - zero point) * scale.

Scale and zero point are one number, one per place of an axis, or one per block of `block`
places along it. quantize rounds to nearest, halves to even, and saturates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv
from relax_aot.ir.graph import Call, Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._narrow import narrowed
from relax_aot.ops._op import (
    Array,
    Limits,
    Op,
    ParameterLimits,
    Sample,
    Single,
    Trait,
    code_limits,
    must_equal,
    must_fit,
    normal_axis,
    require,
)
from relax_aot.ops._samples import normals

FLOATS = (DType.F32, DType.F16, DType.BF16)
QUANTIZED_TYPES = (
    DType.I8, DType.U8, DType.I16, DType.U16, DType.I4, DType.U4, DType.I2, DType.U2,
    DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1,
)  # fmt: skip


def _scale_limits(call: Call, _value: Any) -> Limits | None:
    scale = call.args[1]
    return Single() if scale is not None and scale.type.dtype is DType.F32 else None


PARAMETERS: dict[str, ParameterLimits] = {"scale": _scale_limits, "zero": code_limits}


def check_parts(
    what: str, x: TensorType, *parts: TensorType | None, axis: int, block: int = 0
) -> None:
    """Scales and zero points are numbers, or have an axis of x, or all of them in blocks."""
    for part in parts:
        if part is not None and part.elements != Dim.of(1):
            normal_axis(axis, x.rank)
            require(part.rank == (x.rank if block else 1), f"{what}: {part} does not fit {x}")


def part_conditions(
    x: TensorType, part: TensorType | None, axis: int, block: int
) -> list[Condition]:
    if part is None or part.elements == Dim.of(1):
        return []
    along = normal_axis(axis, x.rank)
    if not block:
        return [must_equal(part.shape[0], x.shape[along], "scales per axis")]
    requested = list(x.shape)
    requested[along] = ceildiv(x.shape[along], block)
    return must_fit(part, requested, "scales per block")


def part_at(part: Buffer, at: At, axis: int, block: int) -> Expr:
    """The scale or zero point of one element."""
    if part.type.elements == Dim.of(1):
        return part[(Dim.of(0),) * part.rank]
    along = normal_axis(axis, len(at))
    if not block:
        return part[(at[along],)]
    return part[(*at[:along], at[along] // block, *at[along + 1 :])]


def spread_part(part: Array, x: Array, axis: int, block: int) -> Array:
    """The same for arrays: a shape that broadcasts over x."""
    if part.size == 1:
        return part.reshape(())
    along = normal_axis(axis, x.ndim)
    if block:
        long = np.repeat(part, block, axis=along)
        return long.take(range(x.shape[along]), axis=along)
    return part.reshape([-1 if i == along else 1 for i in range(x.ndim)])


def _number(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Cast(value, dtype)


def coded(value: Expr, zero: Expr | None, to: DType, saturate: bool) -> Expr:
    """A quotient as a quantized value. f32 represents the sum with the zero point exactly if
    `to` does."""
    if to.is_stored_float:
        return Cast(value, to, "saturate" if saturate else "wrap")
    whole: Expr = apply("rint", value)
    if zero is not None:
        whole = whole + Cast(zero, DType.F32)
    return Cast(whole, to, "saturate")


def code_of(quotient: Array, zero: Array | None, to: DType, saturate: bool) -> Array:
    if to.is_stored_float:
        return narrowed(quotient, to, "saturate" if saturate else "wrap")
    whole = np.rint(quotient.astype(np.float64))
    if zero is not None:
        whole = whole + zero.astype(np.float64)
    low, high = to.limits
    return np.asarray(
        np.clip(np.nan_to_num(whole, nan=0.0), low, high).astype(np.int32).astype(to.numpy)
    )


# quantize


@dataclass(frozen=True, kw_only=True)
class Quantize:
    to: DType
    axis: int = 1
    block: int = 0
    saturate: bool = True
    precision: DType = DType.F32


def _quantize_type(
    attrs: Quantize, x: TensorType, scale: TensorType, zero: TensorType | None = None
) -> TensorType:
    require(attrs.to in QUANTIZED_TYPES, f"quantize to {attrs.to.value}")
    require(x.dtype in (*FLOATS, DType.I32), f"quantize of {x}")
    require(scale.dtype in FLOATS, f"quantize by {scale}")
    fits = zero is None or zero.dtype is attrs.to
    require(fits, f"quantize to {attrs.to.value} with the zero point {zero}")
    check_parts("quantize", x, scale, zero, axis=attrs.axis, block=attrs.block)
    return TensorType(attrs.to, x.shape)


def _quantize_conditions(
    attrs: Quantize | Dequantize, x: TensorType, scale: TensorType, zero: TensorType | None = None
) -> list[Condition]:
    axis, block = attrs.axis, attrs.block
    return [c for part in (scale, zero) for c in part_conditions(x, part, axis, block)]


def _quantize_lower(
    attrs: Quantize, k: KernelBuilder, x: Buffer, scale: Buffer, zero: Buffer | None, y: Buffer
) -> None:
    with k.loops(*y.shape) as at:
        left, right = (
            _number(_number(part, attrs.precision), DType.F32)
            for part in (x[at], part_at(scale, at, attrs.axis, attrs.block))
        )
        quotient: Expr = binary("/", left, right)
        if attrs.precision is not DType.F32:
            quotient = Cast(Cast(quotient, attrs.precision), DType.F32)
        given = None if attrs.to.is_stored_float else zero
        code = None if given is None else part_at(given, at, attrs.axis, attrs.block)
        k.store(y[at], coded(quotient, code, attrs.to, attrs.saturate))


def _quantize_reference(
    attrs: Quantize, x: Array, scale: Array, zero: Array | None = None
) -> Array:
    kind = attrs.precision.numpy
    quotient = x.astype(kind) / spread_part(scale, x, attrs.axis, attrs.block).astype(kind)
    code = None if zero is None else spread_part(zero, x, attrs.axis, attrs.block)
    return code_of(np.asarray(quotient), code, attrs.to, attrs.saturate)


def _quantize_samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    x, one = normal(3, 4, 5) * 20, np.array(0.25, np.float32)
    ties = np.array([0.5, 1.5, -0.5, -2.5, 0.0, 1e9, -1e9], np.float32)
    huge = np.array([1e30, -1e30, np.inf, -np.inf], np.float32)
    vector = np.array([0.1, 0.5, 1, 2], np.float32)
    blocks = rng.uniform(0.1, 1, (3, 2, 5)).astype(np.float32)
    integers = [to for to in QUANTIZED_TYPES if not to.is_stored_float]
    return [
        *(Sample((x, one), {"to": to}) for to in QUANTIZED_TYPES),
        *(Sample((ties, np.array(1, np.float32), np.array(1).astype(to.numpy)), {"to": to})
          for to in integers),
        *(Sample((huge, one), {"to": to}) for to in QUANTIZED_TYPES),
        Sample((ties, one), {"to": DType.F8E4M3FN, "saturate": False}),
        Sample((ties, one), {"to": DType.F8E5M2, "saturate": False}),
        Sample((x, vector, np.array([0, 1, 200, 255], np.uint8)), {"to": DType.U8, "axis": 1}),
        Sample((x, vector[:3], None), {"to": DType.I8, "axis": -3}),
        Sample((x, blocks, rng.integers(0, 9, (3, 2, 5)).astype(np.int8)),
               {"to": DType.I8, "axis": 1, "block": 2}, symbolic=False),
        Sample((x, blocks), {"to": DType.U4, "axis": 1, "block": 3}, symbolic=False),
        Sample((x.astype(np.float16), np.array(0.3, np.float16)),
               {"to": DType.I16, "precision": DType.F16}),
        Sample((np.array([-7, 5, 2**24 + 1], np.int32), np.array(2, np.float32)),
               {"to": DType.I16}),
        Sample((np.zeros((0, 4), np.float32), vector), {"to": DType.I8}),
    ]  # fmt: skip


QUANTIZE = Op(
    "quantize", _quantize_type, _quantize_lower, _quantize_reference, _quantize_samples,
    conditions=_quantize_conditions, any_type=True, record=Quantize,
    traits=Trait.QUANTIZED | Trait.ROUNDS, quantization=PARAMETERS,
)  # fmt: skip


# dequantize


@dataclass(frozen=True, kw_only=True)
class Dequantize:
    to: DType = DType.F32
    axis: int = 1
    block: int = 0


def _dequantize_type(
    attrs: Dequantize, x: TensorType, scale: TensorType, zero: TensorType | None = None
) -> TensorType:
    require(x.dtype in (*QUANTIZED_TYPES, DType.I32, DType.F8E8M0), f"dequantize of {x}")
    require(scale.dtype in (*FLOATS, DType.F8E8M0), f"dequantize by {scale}")
    require(attrs.to in FLOATS, f"dequantize to {attrs.to.value}")
    require(zero is None or zero.dtype is x.dtype, f"dequantize: {x} with the zero point {zero}")
    check_parts("dequantize", x, scale, zero, axis=attrs.axis, block=attrs.block)
    return TensorType(attrs.to, x.shape)


def _dequantize_lower(
    attrs: Dequantize, k: KernelBuilder, x: Buffer, scale: Buffer, zero: Buffer | None, y: Buffer
) -> None:
    with k.loops(*y.shape) as at:
        value: Expr = x[at]
        if not x.dtype.is_stored_float:
            value = _number(value, DType.I32)
            if zero is not None:
                value = value - _number(part_at(zero, at, attrs.axis, attrs.block), DType.I32)
        factor = _number(part_at(scale, at, attrs.axis, attrs.block), DType.F32)
        product = binary("*", _number(value, DType.F32), factor)
        k.store(y[at], _number(product, attrs.to))


def _dequantize_reference(
    attrs: Dequantize, x: Array, scale: Array, zero: Array | None = None
) -> Array:
    computed: type[Any] = np.float64 if attrs.to is DType.F64 else np.float32  # of error models
    if DType.of(x.dtype).is_stored_float:
        whole = x.astype(computed)
    else:
        whole = x.astype(np.int32)
        if zero is not None:
            whole = whole - spread_part(zero, x, attrs.axis, attrs.block).astype(np.int32)
    factor = spread_part(scale, x, attrs.axis, attrs.block).astype(computed)
    return np.asarray(whole.astype(computed) * factor).astype(attrs.to.numpy)


def _dequantize_samples(rng: np.random.Generator) -> list[Sample]:
    def quantized(to: DType, *shape: int) -> Array:
        bits = rng.integers(0, 2**to.bits, shape).astype(np.uint16 if to.bits == 16 else np.uint8)
        return bits.view(to.numpy)

    one = np.array(0.25, np.float32)
    vector = np.array([0.1, 0.5, 1, 2], np.float32)
    blocks = rng.uniform(0.1, 1, (3, 2, 5)).astype(np.float32)
    integers = [to for to in QUANTIZED_TYPES if not to.is_stored_float]
    return [
        *(Sample((quantized(to, 3, 4, 5), one), {}) for to in QUANTIZED_TYPES),
        *(Sample((quantized(to, 7), one, quantized(to)), {}) for to in integers),
        Sample((quantized(DType.U8, 3, 4), vector, quantized(DType.U8, 4)), {"axis": 1}),
        Sample((quantized(DType.I8, 3, 4, 5), vector, None), {"axis": -2}),
        Sample(
            (quantized(DType.I4, 3, 4, 5), blocks, quantized(DType.I4, 3, 2, 5)),
            {"axis": 1, "block": 2},
            symbolic=False,
        ),
        Sample((quantized(DType.F4E2M1, 3, 5, 5), blocks), {"axis": 1, "block": 3}, symbolic=False),
        Sample((quantized(DType.U8, 9), np.array(0.3, np.float16)), {"to": DType.F16}),
        Sample(
            (quantized(DType.U8, 9), np.array(0.3).astype(DType.BF16.numpy)), {"to": DType.BF16}
        ),
        Sample((np.array([-(2**31), 5, 2**31 - 1], np.int32), one), {}),
        Sample((quantized(DType.I8, 0, 4), vector), {}),
    ]


DEQUANTIZE = Op(
    "dequantize", _dequantize_type, _dequantize_lower, _dequantize_reference,
    _dequantize_samples, conditions=_quantize_conditions, any_type=True, record=Dequantize,
    traits=Trait.QUANTIZED | Trait.ROUNDS, quantization=PARAMETERS,
)  # fmt: skip


OPS = (QUANTIZE, DEQUANTIZE)
