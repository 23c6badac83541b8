# SPDX-License-Identifier: Apache-2.0
"""cast converts element types; bit_cast reinterprets the bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim, prove
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._narrow import narrowed
from relax_aot.ops._op import Array, Op, Sample, Trait, require


def _cast_type(
    x: TensorType, *, to: DType, saturate: bool = False, rounding: str = ""
) -> TensorType:
    known = rounding in (("", "up", "down", "nearest") if to is DType.F8E8M0 else ("",))
    require(known, f"cast to {to.value} with rounding {rounding!r}")
    return TensorType(to, x.shape)


def _mode(saturate: bool, rounding: str) -> str:
    return ("saturate" if saturate else "wrap") + (f"_{rounding}" if rounding else "")


def _cast_lower(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    to: DType,
    saturate: bool = False,
    rounding: str = "",
) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], Cast(x[at], to, _mode(saturate, rounding)))


def _cast_reference(x: Array, *, to: DType, saturate: bool = False, rounding: str = "") -> Array:
    source = DType.of(x.dtype)
    if to is DType.BOOL:
        return np.asarray(x.astype(np.float32) != 0 if source.is_storage else x != 0)
    if to.is_stored_float:
        return narrowed(x.astype(np.float32), to, _mode(saturate, rounding))
    if to.is_float:
        return x.astype(np.float32).astype(to.numpy) if source.is_storage else x.astype(to.numpy)
    # Integers, by way of exact ones.
    if source.is_float or source.is_stored_float:
        whole = [_whole(v, saturate) for v in np.trunc(x.astype(np.float64)).flat]
    else:
        wide = x.astype(np.int64) if source.is_stored_int else x
        whole = [int(v) for v in wide.flat]
    low, high = to.limits
    if saturate:
        kept = [min(max(v, low), high) for v in whole]
    else:
        kept = [(v - low) % (high - low + 1) + low for v in whole]
    exact = np.dtype(np.int64 if low < 0 else np.uint64)
    return np.array(kept, exact).astype(to.numpy).reshape(x.shape)


def _whole(value: float, saturate: bool) -> int:
    """NaN is 0; so are the low bits of an infinity, and beyond int64 no low bits are left."""
    if np.isnan(value):
        return 0
    if not saturate and np.isinf(value):
        return 0
    return int(value) if np.isfinite(value) else (2**70 if value > 0 else -(2**70))


def _cast_symbolic(
    _bounds: Bounds, x: Array, *, to: DType, saturate: bool = False, rounding: str = ""
) -> Array | None:
    if any(isinstance(v, float) for v in x.flat) or to.is_float:
        return None
    bools = any(isinstance(v, bool | Condition) for v in x.flat)
    if to is DType.BOOL:
        return x if bools else _truths(_bounds, x)
    if bools:
        if any(isinstance(v, Condition) for v in x.flat):
            return None
        return np.array([int(v) for v in x.flat] + [None], object)[:-1].reshape(x.shape)
    return x if to in (DType.I32, DType.I64) else None


def _truths(bounds: Bounds, x: Array) -> Array | None:
    found: list[Any] = []
    for value in x.flat:
        dim = Dim.of(value)
        if zero := prove(dim, "==", 0, bounds):
            found.append(zero.then(False))
        elif other := prove(0, "<", dim, bounds) or prove(dim, "<", 0, bounds):
            found.append(other.then(True))
        else:
            found.append(Condition("!=", dim, Dim.of(0)))
    return np.array([*found, None], object)[:-1].reshape(x.shape)


def _narrow_samples() -> list[Sample]:
    """Every code of each storage type, and numbers around the midpoints between them."""
    samples = []
    for to in DType:
        if not to.is_storage:
            continue
        quantized = np.arange(2**to.bits, dtype=np.uint8).view(to.numpy)
        single = quantized.astype(np.float32)
        finite = np.sort(single[np.isfinite(single)])
        middles = (finite[1:] + finite[:-1]) / 2
        ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e9, -1e9, 1e-9], np.float32)
        if to.is_stored_int:
            ends = ends[np.abs(ends) < 2]
        near = [np.nextafter(middles, np.float32(way)) for way in (np.inf, -np.inf)]
        numbers = np.concatenate([finite, middles, *near, ends]).astype(np.float32)
        roundings = ("", "up", "down", "nearest") if to is DType.F8E8M0 else ("",)
        if to is DType.F8E8M0:
            numbers = np.abs(numbers)
            normal = numbers[np.isfinite(numbers) & (numbers >= 2.0**-126)]
            samples += [
                Sample((normal,), {"to": to, "saturate": True, "rounding": r}) for r in roundings
            ]
        samples += [
            Sample((numbers,), {"to": to, "saturate": saturate, "rounding": rounding})
            for saturate in (True, False)
            for rounding in roundings
        ]
        samples += [
            Sample((quantized,), {"to": back}) for back in (DType.F32, DType.F16, DType.BOOL)
        ]
        if to.is_stored_int:
            samples.append(Sample((quantized,), {"to": DType.I64}))
        whole = np.array([-300, -9, -2, 0, 1, 7, 9, 200])
        whole = np.abs(whole) if to is DType.F8E8M0 else whole
        samples.append(Sample((whole,), {"to": to, "saturate": True}))
    return samples


CAST = Op(
    "cast",
    _cast_type,
    _cast_lower,
    _cast_reference,
    values={"rounding": ("", "up", "down", "nearest")},
    samples=lambda rng: [
        Sample((np.array([1.9, -1.9, 0.2, 100.7], np.float32),), {"to": DType.I32}),
        Sample((np.array([300.0, -5.0, np.nan, np.inf], np.float32),),
               {"to": DType.U8, "saturate": True}),
        Sample((rng.integers(-300, 300, (6,)),), {"to": DType.I8}),
        *(
            Sample((np.array([-300, -1, 0, 7, 300]),), {"to": to, "saturate": True})
            for to in (DType.I8, DType.U8, DType.U32, DType.U64)
        ),
        *(
            Sample((np.array([0, 7, 2**63, 2**64 - 1], np.uint64),), {"to": to, "saturate": True})
            for to in (DType.I8, DType.U16, DType.I32, DType.I64, DType.U64)
        ),
        Sample((rng.integers(-9, 9, (2, 3)),), {"to": DType.F32}),
        Sample((np.array([0.0, -0.0, np.nan, 2.0], np.float32),), {"to": DType.BOOL}),
        Sample((np.array([True, False]),), {"to": DType.F32}),
        Sample((rng.normal(size=(4,)),), {"to": DType.F32}),
        *_narrow_samples(),
    ],
    symbolic=_cast_symbolic,
    any_type=True, traits=Trait.SAME | Trait.ROUNDS, value_range=lambda x: x
)  # fmt: skip


def _bit_cast_type(x: TensorType, *, to: DType) -> TensorType:
    require(x.dtype.bytes == to.bytes, f"bit_cast keeps the width, got {x} to {to.value}")
    return TensorType(to, x.shape)


def _bit_cast_lower(k: KernelBuilder, x: Buffer, y: Buffer, *, to: DType) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], Cast(x[at], to, "bits"))


def _bit_cast_reference(x: Array, *, to: DType) -> Array:
    # A bool is 1 where its byte is not 0.
    return x != 0 if to is DType.BOOL else np.ascontiguousarray(x).view(to.numpy).reshape(x.shape)


def _bit_cast_samples(rng: np.random.Generator) -> list[Sample]:
    single = np.array([0.0, -0.0, 1.5, -2.5, np.inf, np.nan, 1e-42], np.float32)
    whole = rng.integers(0, 2**16, (7,)).astype(np.uint16)
    return [
        Sample((single,), {"to": DType.I32}),
        Sample((single.astype(np.float64),), {"to": DType.U64}),
        Sample((rng.integers(-(2**31), 2**31, (2, 3)).astype(np.int32),), {"to": DType.U32}),
        Sample((np.array([0, 2**31, 0x3F800000], np.uint32),), {"to": DType.F32}),
        Sample((np.array([0, -(2**63), 0x3FF0000000000000]),), {"to": DType.F64}),
        Sample((whole,), {"to": DType.I16}),
        Sample((single.astype(np.float16),), {"to": DType.I16}),
        Sample((single.astype(DType.BF16.numpy),), {"to": DType.U16}),
        Sample((np.array([0, 0x3C00, 0xC100, 0x7C00, 0x0001], np.uint16),), {"to": DType.F16}),
        Sample((np.array([0, 0x3C00, -0x3F00], np.int16),), {"to": DType.BF16}),
        Sample((np.array([1.5, -2], np.float16),), {"to": DType.BF16}),
        Sample((np.array([True, False]),), {"to": DType.U8}),
        Sample((np.array([0, 1], np.int8),), {"to": DType.BOOL}),
    ]


BIT_CAST = Op(
    "bit_cast",
    _bit_cast_type,
    _bit_cast_lower,
    _bit_cast_reference,
    _bit_cast_samples,
)


OPS = (CAST, BIT_CAST)
