# SPDX-License-Identifier: Apache-2.0
"""Fixed-point arithmetic on expressions, and the same on arrays, as gemmlowp defines it.

A number of n integer bits is an i32 in steps of 2^(n - 31). Source: the fixedpoint of gemmlowp,
and tensorflow/lite/kernels/internal (MultiplyByQuantizedMultiplier).
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.loops import Cast, Expr, Lit, Local, Operand, Select, as_expr, binary
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array

I32, I64 = DType.I32, DType.I64


def shifted(x: Operand, places: int) -> Expr:
    """x << places."""
    value = as_expr(x, I32)
    return binary("<<", value, Lit(places, value.dtype)) if places else value


def high_product(x: Operand, y: Operand) -> Expr:
    """The high word of the doubled product, halves up (SaturatingRoundingDoublingHighMul);
    not for the lowest number times itself."""
    product = binary("*", Cast(as_expr(x, I32), I64), Cast(as_expr(y, I32), I64))
    return Cast(binary(">>", binary("+", product, Lit(1 << 30, I64)), Lit(31, I64)), I32)


def divided(k: KernelBuilder, x: Expr, places: int | Expr) -> Expr:
    """x / 2^places to nearest, halves away from 0 (RoundingDivideByPOT): what is below the last
    place decides, after a negative number is taken one lower. Not for the lowest number;
    `places` is positive if it is dynamic."""
    if isinstance(places, int) and places == 0:
        return x
    whole = x if isinstance(x, Local) else k.local("dividend", I32, x)
    lower = k.local("lower", I32, whole + binary(">>", whole, Lit(31, I32)))
    width = Lit(places, I32) if isinstance(places, int) else places
    before = Lit(places - 1, I32) if isinstance(places, int) else places - Lit(1, I32)
    last = binary("&", binary(">>", lower, before), Lit(1, I32))
    return binary("+", binary(">>", lower, width), last)


def times(k: KernelBuilder, x: Expr, factor: int, shift: int) -> Expr:
    """x * factor * 2^(shift - 31), rounded twice (MultiplyByQuantizedMultiplier)."""
    product = high_product(shifted(x, max(shift, 0)), Lit(factor, I32))
    return divided(k, product, max(-shift, 0))


def leading_zeros(k: KernelBuilder, x: Local) -> Expr:
    """How many of the upper bits of a positive number are 0."""
    rest = k.local("remaining", I32, x)
    count = k.local("leading_zeros", I32, 0)
    for places in (16, 8, 4, 2, 1):
        small = k.local("small", DType.BOOL, rest < Lit(1 << (31 - places), I32))
        k.assign(count, Select(small, count + places, count))
        k.assign(rest, Select(small, shifted(rest, places), rest))
    return count + 1


# On int64 arrays


def np_high_product(x: Array, y: Array | int) -> Array:
    return np.asarray((x.astype(np.int64) * y + (1 << 30)) >> 31)


def np_divided(x: Array, places: Array | int) -> Array:
    half = (np.int64(1) << np.asarray(places, np.int64)) >> 1
    sign = np.where(np.asarray(places) > 0, x >> 63, 0)
    return np.asarray((x + half + sign) >> places)


def np_times(x: Array, factor: int, shift: int) -> Array:
    wide = (x.astype(np.int64) << max(shift, 0)).astype(np.int32)
    return np_divided(np_high_product(wide, factor), max(-shift, 0))
