# SPDX-License-Identifier: Apache-2.0
"""Means and softmax of quantized 8-bit values, with quantized results.

Sums are exact, or they are sums of f32 in the order in which ONNX Runtime adds, where the middle
between two quantized values may be met and that order therefore decides:

    exact     integers; the quotient is rounded to f32 once more
    rows      element by element
    columns   each column of a window from top to bottom, then the columns
    lanes     four sums of every fourth element, (0 + 2) + (1 + 3), then what is left over

`checked` ones of f32 are computed where the exact mean is near a middle, and are exact elsewhere:
their results are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import c_float
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Load, Local, apply, binary
from relax_aot.ir.parameters import FloatParameter
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import pool
from relax_aot.ops._op import (
    Array,
    Op,
    ParameterLimits,
    Sample,
    Single,
    Trait,
    code_limits,
    normal_axis,
    require,
)
from relax_aot.ops._window import Window, taps_of
from relax_aot.ops.fixed_softmax import step_below
from relax_aot.ops.qarithmetic import EIGHT
from relax_aot.ops.quantize import code_of, coded

PARAMETERS: dict[str, ParameterLimits] = {
    "scales": Single(), "scale": Single(), "zeros": code_limits, "zero": code_limits,
}  # fmt: skip
POOL_ORDERS = ("exact", "rows", "columns")


def _check(name: str, x: TensorType, to: DType, scales: Sequence[float]) -> None:
    require(x.dtype in EIGHT and to in EIGHT, f"{name} of {x} to {to.value}")
    require(len(scales) == 2, f"{name} takes the scale of its operand and that of its result")


def _number(k: KernelBuilder, x: Expr, zero: int, scale: float | None) -> Expr:
    """A quantized value as an exact integer, or with a scale as the f32 result of dequantize,
    which is rounded before it is added."""
    whole: Expr = Cast(x, DType.I32)
    whole = whole - zero if zero else whole
    if scale is None:
        return whole
    product = binary("*", Cast(whole, DType.F32), Lit(scale, DType.F32))
    return k.local("value", DType.F32, product)


def _ratio(left: float, right: float) -> float:
    """left / right, rounded to 32 bits."""
    value = c_float(float.__truediv__(left, right)).value
    named = [n.symbol for n in (left, right) if isinstance(n, FloatParameter)]
    return FloatParameter.of(value, "_over_".join(named), 2.0**127) if named else value


def _code(
    total: Expr, count: Expr, scales: Sequence[float], zero: int, to: DType, exact: bool
) -> Expr:
    step = Lit(scales[1], DType.F32)
    if exact:
        ratio = _ratio(scales[0], scales[1])
        single: Expr = Cast(total, DType.F32)
        quotient = binary("/", single * ratio if ratio != 1.0 else single, count)
    else:
        quotient = binary("/", binary("/", total, count), step)
    return coded(quotient, Lit(zero, DType.I32), to, saturate=True)


def _codes(
    total: Array, count: Array, scales: Sequence[float], zero: int, to: DType, exact: bool
) -> Array:
    """The same of arrays."""
    divisor = np.asarray(count).astype(np.float32)
    if exact:
        ratio = np.float32(float(scales[0]) / float(scales[1]))
        quotient = total.astype(np.float32) * ratio / divisor
    else:
        quotient = total / divisor / np.float32(scales[1])
    return code_of(np.asarray(quotient), np.asarray(zero), to, saturate=True)


NEAR = 2.0**-24
"""By how much of the greatest value the rounding of one addition changes a mean at most."""


@contextmanager
def _near_middle(
    k: KernelBuilder, x: Buffer, total: Expr, count: Expr, attrs: QuantizedPool | Mean, to: Load
) -> Iterator[None]:
    """Stores the mean of exact integers; what is in the block follows where the sum of as many
    floats, in any order, might be nearer to another value."""
    ratio = float(attrs.scales[0]) / float(attrs.scales[1])
    low, high = (abs(end - attrs.zeros[0]) for end in x.type.dtype.limits)
    quotient = k.local("quotient", DType.F32, Cast(total, DType.F32) * ratio / count)
    apart = k.local("apart", DType.F32, apply("abs", quotient - apply("rint", quotient)))
    error = (count + 16.0) * (max(low, high) * ratio * NEAR)
    k.store(to, coded(quotient, Lit(attrs.zeros[1], DType.I32), attrs.to, saturate=True))
    with k.when(binary("<", Lit(0.5, DType.F32) - error, apart)):
        yield


# qaverage_pool


@dataclass(frozen=True, kw_only=True)
class QuantizedPool(pool.AveragePool):
    order: str
    scales: Sequence[float]
    zeros: Sequence[int]
    to: DType
    checked: bool = False


def _pool_type(attrs: QuantizedPool, x: TensorType) -> TensorType:
    _check("qaverage_pool", x, attrs.to, attrs.scales)
    axes = len(attrs.kernel)
    known = attrs.order in POOL_ORDERS and (attrs.order != "columns" or axes == 2)
    require(known, f"qaverage_pool: order {attrs.order!r} over {axes} axes")
    return TensorType(attrs.to, pool.deduce(attrs, x).shape)


def _pool_lower(attrs: QuantizedPool, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    exact = attrs.order == "exact"
    with k.loops(*y.shape) as at, ExitStack() as block:
        count = Cast(Index(pool.count(attrs, k, at[2:], x.shape[2:])), DType.F32)
        if attrs.checked or exact:
            total = k.local("total", DType.I32, 0)
            with _taps(attrs, k, x, at, slice(None)) as (_, place):
                k.assign(total, total + _number(k, x[at[:2] + place], attrs.zeros[0], None))
        if attrs.checked:
            block.enter_context(_near_middle(k, x, total, count, attrs, y[at]))
        if not exact:
            total = _floats(attrs, k, x, at)
        k.store(y[at], _code(total, count, attrs.scales, attrs.zeros[1], attrs.to, exact))


def _floats(attrs: QuantizedPool, k: KernelBuilder, x: Buffer, at: At) -> Local:
    zero, scale = attrs.zeros[0], attrs.scales[0]
    total = k.local("total", DType.F32, 0.0)
    if attrs.order == "columns":
        with _taps(attrs, k, x, at, slice(1, 2)) as (_, across):
            column = k.local("column", DType.F32, 0.0)
            with _taps(attrs, k, x, at, slice(0, 1)) as (_, down):
                number = _number(k, x[at[:2] + down + across], zero, scale)
                k.assign(column, column + number)
            k.assign(total, total + column)
    else:
        with _taps(attrs, k, x, at, slice(None)) as (_, place):
            k.assign(total, total + _number(k, x[at[:2] + place], zero, scale))
    return total


def _taps(attrs: QuantizedPool, k: KernelBuilder, x: Buffer, at: At, which: slice) -> Any:
    """The loops over some of a window's axes."""
    rank = len(attrs.kernel)
    window = Window(
        kernel=attrs.kernel[which], strides=attrs.strides[which],
        pads=(*attrs.pads[:rank][which], *attrs.pads[rank:][which]),
        dilations=attrs.dilations[which],
    )  # fmt: skip
    return taps_of(k, at[2:][which], x.shape[2:][which], window, always=attrs.ceil_mode)


def _pool_reference(attrs: QuantizedPool, x: Array) -> Array:
    whole = x.astype(np.int32) - np.int32(attrs.zeros[0])
    exact = attrs.order == "exact"
    numbers = whole if exact else whole.astype(np.float32) * np.float32(attrs.scales[0])
    taps = pool.views(attrs, numbers, 0)
    if exact:
        total = taps.sum(axis=-1)
    elif attrs.order == "rows":
        total = _one_by_one(taps)
    else:
        grid = taps.reshape(*taps.shape[:-1], *map(int, attrs.kernel))
        total = _one_by_one(_one_by_one(np.moveaxis(grid, -2, -1)))
    return _codes(total, pool.counts(attrs, x), attrs.scales, attrs.zeros[1], attrs.to, exact)


def _one_by_one(x: Array) -> Array:
    """Sums along the last axis, from the first to the last."""
    return np.asarray(np.add.accumulate(x, axis=-1)[..., -1])


def _pool_samples(rng: np.random.Generator) -> list[Sample]:
    samples = []
    for number, (x, attrs) in enumerate(pool.cases(rng)):
        order = POOL_ORDERS[number % 3] if len(attrs["kernel"]) == 2 else POOL_ORDERS[number % 2]
        kind = (np.int8, np.uint8)[number % 2]
        info = np.iinfo(kind)
        quantized = rng.integers(info.min, info.max + 1, x.shape).astype(kind)
        given = {"scales": (0.25, 0.5), "zeros": (3, 5), "to": DType.of(np.dtype(kind))}
        samples += [
            Sample((quantized,), {**attrs, **given, "order": order, "count_include_pad": include,
                                  "checked": number % 4 > 1 and order != "exact"},
                   symbolic=False)
            for include in (False, True)
        ]  # fmt: skip
    return samples


# qmean


@dataclass(frozen=True, kw_only=True)
class Mean:
    order: str
    scales: Sequence[float]
    zeros: Sequence[int]
    to: DType
    checked: bool = False


def _mean_type(attrs: Mean, x: TensorType) -> TensorType:
    _check("qmean", x, attrs.to, attrs.scales)
    require(x.rank >= 1, f"qmean of {x}")
    return TensorType(attrs.to, x.shape[:-1])


def _mean_lower(attrs: Mean, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    exact = attrs.order == "exact"
    length = x.shape[-1]
    count = Cast(Index(length), DType.F32)
    with k.loops(*y.shape) as at, ExitStack() as block:
        if attrs.checked or exact:
            total = k.local("total", DType.I32, 0)
            with k.loops(length) as j:
                k.assign(total, total + _number(k, x[at + j], attrs.zeros[0], None))
        if attrs.checked:
            block.enter_context(_near_middle(k, x, total, count, attrs, y[at]))
        if not exact:
            total = _lanes(k, x, at, attrs.zeros[0], attrs.scales[0])
        k.store(y[at], _code(total, count, attrs.scales, attrs.zeros[1], attrs.to, exact))


def _lanes(k: KernelBuilder, x: Buffer, at: At, zero: int, scale: float) -> Local:
    length = x.shape[-1]
    blocks = length // 4
    lanes = [k.local(f"lane{number}", DType.F32, 0.0) for number in range(4)]
    with k.loops(blocks) as (four,):
        for number, lane in enumerate(lanes):
            k.assign(lane, lane + _number(k, x[(*at, four * 4 + number)], zero, scale))
    joined = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    total = k.local("total", DType.F32, joined)
    with k.span(blocks * 4, length) as rest:
        k.assign(total, total + _number(k, x[(*at, rest)], zero, scale))
    return total


def _mean_reference(attrs: Mean, x: Array) -> Array:
    whole = x.astype(np.int32) - np.int32(attrs.zeros[0])
    length = x.shape[-1]
    count, result = np.asarray(length), (attrs.scales, attrs.zeros[1], attrs.to)
    if attrs.order == "exact":
        return _codes(whole.sum(axis=-1), count, *result, True)
    numbers = whole.astype(np.float32) * np.float32(attrs.scales[0])
    aligned = length // 4 * 4
    total = np.zeros(x.shape[:-1], np.float32)
    if aligned:
        lanes = numbers[..., :aligned].reshape(*x.shape[:-1], aligned // 4, 4)
        sums = _one_by_one(np.moveaxis(lanes, -1, -2))
        total = (sums[..., 0] + sums[..., 2]) + (sums[..., 1] + sums[..., 3])
    for j in range(aligned, length):
        total = total + numbers[..., j]
    return _codes(total, count, *result, False)


def _mean_samples(rng: np.random.Generator) -> list[Sample]:
    attrs = {"scales": (0.3, 0.3), "zeros": (-128, -100), "to": DType.I8}
    return [
        Sample(
            (rng.integers(-128, 128, shape).astype(np.int8),),
            {**attrs, "order": order, "checked": checked},
        )
        for shape in ((2, 3, 16), (3, 7), (5, 3), (2, 5))
        for order, checked in (("exact", False), ("lanes", False), ("lanes", True))
    ]


# qsoftmax


@dataclass(frozen=True, kw_only=True)
class Softmax:
    axis: int
    scale: float
    zero: int
    to: DType


def _softmax_type(attrs: Softmax, x: TensorType, table: TensorType) -> TensorType:
    require(x.dtype in EIGHT and attrs.to in EIGHT, f"qsoftmax of {x} to {attrs.to.value}")
    fits = table.rank == 1 and table.shape[0].is_constant and 0 < table.shape[0].constant <= 256
    require(fits and table.dtype is DType.F32, f"qsoftmax with {table}, not a table of f32")
    normal_axis(attrs.axis, x.rank)
    return TensorType(attrs.to, x.shape)


def _softmax_lower(attrs: Softmax, k: KernelBuilder, x: Buffer, table: Buffer, y: Buffer) -> None:
    """`table[d]` is exp of d steps below the largest, its last entry that of all further d."""
    at = normal_axis(attrs.axis, x.rank)
    length = x.shape[at]

    def power(place: At, peak: Local) -> Expr:
        return table[(step_below(k, peak - Cast(x[place], DType.I32), table),)]

    with k.loops(*x.shape[:at], *x.shape[at + 1 :]) as row:
        before, after = row[:at], row[at:]
        peak = k.local("peak", DType.I32, -128)
        with k.loops(length) as j:
            k.assign(peak, apply("max", peak, Cast(x[before + j + after], DType.I32)))
        total = k.local("total", DType.F32, 0.0)
        with k.loops(length) as j:
            k.assign(total, total + power(before + j + after, peak))
        with k.loops(length) as j:
            place = before + j + after
            share = binary("/", binary("/", power(place, peak), total), Lit(attrs.scale, DType.F32))
            code = coded(share, Lit(attrs.zero, DType.I32), attrs.to, saturate=True)
            k.store(y[place], code)


def _softmax_reference(attrs: Softmax, x: Array, table: Array) -> Array:
    wide, axis = x.astype(np.int64), attrs.axis
    peak = wide.max(axis=axis, keepdims=True, initial=-128)
    powers = table[np.minimum(peak - wide, len(table) - 1)]
    share = powers / powers.sum(axis=axis, keepdims=True, dtype=np.float64)
    quotient = np.asarray(share / attrs.scale)
    return code_of(quotient, np.asarray(attrs.zero), attrs.to, saturate=True)


def _softmax_samples(rng: np.random.Generator) -> list[Sample]:
    table = np.exp(-0.0731 * np.arange(256)).astype(np.float32)
    return [
        Sample((rng.integers(-128, 128, (3, 7)).astype(np.int8), table),
               {"axis": -1, "scale": 1 / 256, "zero": -128, "to": DType.I8}, fixed=(256,)),
        Sample((rng.integers(0, 256, (3, 5, 2)).astype(np.uint8), table),
               {"axis": 1, "scale": 1 / 256, "zero": 0, "to": DType.U8}, fixed=(256,)),
        Sample((rng.integers(-128, 128, (2, 9)).astype(np.int8), table[:30]),
               {"axis": -1, "scale": 1 / 256, "zero": -128, "to": DType.I8}, fixed=(30,)),
    ]  # fmt: skip


OPS = (
    Op("qaverage_pool", _pool_type, _pool_lower, _pool_reference, _pool_samples,
       conditions=pool.conditions, record=QuantizedPool, former=("average_codes",),
       values={"order": POOL_ORDERS}, traits=Trait.QUANTIZED, quantization=PARAMETERS),
    Op("qmean", _mean_type, _mean_lower, _mean_reference, _mean_samples,
       record=Mean, former=("mean_codes",), values={"order": ("exact", "lanes")},
       traits=Trait.QUANTIZED, quantization=PARAMETERS),
    Op("qsoftmax", _softmax_type, _softmax_lower, _softmax_reference, _softmax_samples,
       record=Softmax, former=("softmax_codes",), traits=Trait.QUANTIZED,
       quantization=PARAMETERS),
)  # fmt: skip
