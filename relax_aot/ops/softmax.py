# SPDX-License-Identifier: Apache-2.0
"""softmax: exp(x) / sum(exp(x)) along one axis.

The largest element is subtracted first: the result is the same, and exp can then not
overflow. With `masked` a row of nothing but -inf, in which nothing may be attended to, gives
zeros and not NaN.
"""

from __future__ import annotations

from math import inf

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.loops import PLAIN, Buffer, Cast, Expr, Local, Select, apply, as_expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, normal_axis, require

HALF_HIGH = 65504.0
"""The largest number of half precision."""


def deduce(x: TensorType, *, axis: int = -1, masked: bool = False) -> TensorType:
    require(x.dtype.is_float, f"softmax needs a float tensor, got {x}")
    normal_axis(axis, x.rank)
    return x


def lower(k: KernelBuilder, x: Buffer, y: Buffer, *, axis: int = -1, masked: bool = False) -> None:
    at = normal_axis(axis, x.rank)
    length = x.shape[at]
    with k.loops(*x.shape[:at], *x.shape[at + 1 :]) as row:
        before, after = row[:at], row[at:]
        peak = k.local("peak", x.dtype, -inf)
        with k.loops(length) as j:
            k.assign(peak, apply("max", peak, x[before + j + after]))
        if masked:
            k.assign(peak, Select(binary("==", peak, -inf), as_expr(0.0, x.dtype), peak))
        total = k.local("total", x.dtype, 0.0)
        with k.loops(length) as j:
            power = _applied("exp_below", x[before + j + after], peak)
            k.store(y[before + j + after], power)
            k.assign(total, total + y[before + j + after])
        if masked:
            k.assign(total, Select(binary("==", total, 0.0), as_expr(1.0, x.dtype), total))
        if x.dtype is DType.F16:
            k.assign(total, _half(total))
        with k.loops(length) as j:
            k.store(y[before + j + after], _applied("fraction", y[before + j + after], total))


def _applied(function: str, left: Expr, right: Expr) -> Expr:
    """A function of PLAIN, which has its own form in single precision alone."""
    made = apply(function, left, right)
    return made if left.dtype is DType.F32 else PLAIN[function](*made.args)


def _half(total: Local) -> Expr:
    """The sum as the standard's steps have it, in half precision, where that can hold it."""
    wide = Cast(total, DType.F32)
    return Select(wide <= HALF_HIGH, Cast(wide, DType.F16), total)


def reference(x: Array, *, axis: int = -1, masked: bool = False) -> Array:
    return _in_double(x.astype(np.float64), axis, masked).astype(x.dtype)


def _in_double(x: Array, axis: int, masked: bool) -> Array:
    peak = x.max(axis=axis, keepdims=True, initial=-inf)
    if masked:
        e = np.exp(x - np.where(peak == -inf, x.dtype.type(0), peak))
        total = e.sum(axis=axis, keepdims=True)
        return np.asarray(e / np.where(total == 0, x.dtype.type(1), total))
    e = np.exp(x - peak)
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [(5,), (3, 7), (2, 3, 4), (1, 1)]
    usual = [Sample((rng.normal(size=s).astype(np.float32),)) for s in shapes]
    inner = Sample((rng.normal(size=(3, 5, 2)).astype(np.float32),), {"axis": 1})
    large = Sample((np.array([[1e4, -1e4, 9.99e3]], np.float32),))
    shut = np.array([[-inf, -inf, -inf], [1, -inf, 2], [np.nan, 0, 1]], np.float32)
    masked = [Sample((a,), {"masked": True}) for a in (shut, rng.normal(size=(2, 5)))]
    half = Sample((rng.normal(size=(2, 9)).astype(np.float16),), rtol=2e-3)
    return [*usual, inner, large, *masked, half]


OP = Op(
    "softmax",
    deduce,
    lower,
    reference,
    samples,
    value_range=lambda _x: (0.0, 1.0),
    traits=Trait.QUANTIZABLE | Trait.POSITIVE,
)
