# SPDX-License-Identifier: Apache-2.0
"""fixed_softmax: integer softmax along the last axis, as TensorFlow Lite's reference kernel.

`table` holds exp(-d * scale * beta) for d = 0, 1, ... in steps of 2^-31, 0 where the kernel leaves
it out. Its last entry stands for all d behind it, up to 255: entries below 2^11 count as 0. The sum
has 12 integer bits; its reciprocal comes from three steps of Newton's method.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Local, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._fixed import (
    divided,
    high_product,
    leading_zeros,
    np_divided,
    np_high_product,
    shifted,
)
from relax_aot.ops._op import Array, Op, Sample, must_not_exceed, require

I32, I64 = DType.I32, DType.I64
RESULTS = (DType.I8, DType.U8, DType.I16)

SUM_BITS = 12
"""Integer bits of a sum of exponentials."""
# 48/17 and -32/17 with two integer bits: the best line through 1 / (1 + x) for 0 <= x < 1.
INTERCEPT, SLOPE = 1515870810, -1010580540
TWO_BITS_ONE = 1 << 29
GREATEST = 2**31 - 1
UINT8_MAX = 255


def deduce(x: TensorType, table: TensorType, *, to: DType) -> TensorType:
    require(x.dtype in (DType.I8, DType.U8) and x.rank > 0, f"fixed_softmax does not take {x}")
    fits = table.dtype is I32 and table.rank == 1
    require(fits, f"fixed_softmax needs a table of i32, got {table}")
    require(to in RESULTS, f"fixed_softmax to {to.value}")
    return TensorType(to, x.shape)


def conditions(x: TensorType, table: TensorType, *, to: DType) -> list[Condition]:
    length = must_not_exceed(x.shape[-1], (1 << SUM_BITS) - 1, "fixed_softmax' sum")
    return [must_not_exceed(table.shape[0], 256, "entries of a table"), length]


def lower(k: KernelBuilder, x: Buffer, table: Buffer, y: Buffer, *, to: DType) -> None:
    low, high = to.limits
    with k.loops(*x.shape[:-1]) as row:
        peak = k.local("peak", x.dtype, x.dtype.limits[0])
        with k.loops(x.shape[-1]) as j:
            k.assign(peak, apply("max", peak, x[row + j]))

        def exponential(j: tuple[Dim, ...]) -> Expr:
            return table[
                (step_below(k, binary("-", Cast(peak, I32), Cast(x[row + j], I32)), table),)
            ]

        total = k.local("total", I32, 0)
        with k.loops(x.shape[-1]) as j:
            k.assign(total, total + divided(k, exponential(j), SUM_BITS))
        zeros = k.local("headroom", I32, leading_zeros(k, total))
        scale = _reciprocal(k, total, zeros)
        places = k.local("right_shift", I32, Lit(SUM_BITS + 31 - to.bits, I32) - zeros)
        with k.loops(x.shape[-1]) as j:
            share = divided(k, high_product(scale, exponential(j)), places)
            code = apply("min", share + Lit(low, I32), Lit(high, I32))
            k.store(y[row + j], Cast(code, to))


def step_below(k: KernelBuilder, difference: Expr, table: Buffer) -> Dim:
    """Where a table of steps below the largest byte has that of a difference of bytes: the largest
    is not below, so a byte holds the difference, whatever is known of it."""
    below: Expr = Cast(difference, DType.U8)
    last = table.shape[0] - 1
    if not last.is_constant or last.constant < UINT8_MAX:
        below = apply("min", Cast(below, I32), Cast(Index(last), I32))
    return k.placed("difference", Cast(below, I64), 0, last)


def _reciprocal(k: KernelBuilder, total: Local, zeros: Local) -> Local:
    """1 / (1 + a), where 1 + a is `total` shifted to the top: a in 0..1."""
    over = binary("^", binary("<<", total, zeros), Lit(-(2**31), I32))
    # (1 + a) / 2, halves up; both are positive.
    wide = binary("+", Cast(over, I64), Lit(GREATEST + 1, I64))
    half = k.local("half_denominator", I32, Cast(binary(">>", wide, Lit(1, I64)), I32))
    x = k.local("x", I32, high_product(half, Lit(SLOPE, I32)) + Lit(INTERCEPT, I32))
    for _ in range(3):
        rest = Lit(TWO_BITS_ONE, I32) - high_product(half, x)
        k.assign(x, x + _doubled(k, high_product(x, rest), 2))
    return k.local("scale", I32, _doubled(k, x, 1))


def _doubled(k: KernelBuilder, x: Expr, places: int) -> Expr:
    """x * 2^places, saturated."""
    value = k.local("value", I32, x)
    above = Select(binary("<", Lit(GREATEST >> places, I32), value), Lit(GREATEST, I32), value)
    raised = shifted(value, places)
    lowest = Lit(-(2**31), I32)
    below = binary("<", value, Lit(-(2**31) >> places, I32))
    return Select(below, lowest, replace(above, otherwise=raised))


def reference(x: Array, table: Array, *, to: DType) -> Array:
    if x.size == 0:
        return np.zeros(x.shape, to.numpy)
    rows = x.reshape(-1, x.shape[-1]).astype(np.int64)
    below = rows.max(axis=1, keepdims=True) - rows
    parts = table.astype(np.int64)[np.minimum(below, len(table) - 1)]
    total = np_divided(parts, SUM_BITS).sum(axis=1, keepdims=True)
    zeros = 32 - np.array([int(t).bit_length() for t in total.flat], np.int64).reshape(total.shape)
    over = (total << zeros) - (1 << 31)
    half = (over + GREATEST + 1) >> 1
    place = np_high_product(half, SLOPE) + INTERCEPT
    for _ in range(3):
        rest = TWO_BITS_ONE - np_high_product(half, place)
        place = place + _np_doubled(np_high_product(place, rest), 2)
    scale = _np_doubled(place, 1)
    share = np_divided(np_high_product(scale, parts), SUM_BITS - zeros + 31 - to.bits)
    low, high = to.limits
    return np.asarray(np.clip(share + low, low, high).astype(to.numpy).reshape(x.shape))


def _np_doubled(x: Array, places: int) -> Array:
    return np.asarray(np.clip(x << places, -(2**31), GREATEST))


def samples(rng: np.random.Generator) -> list[Sample]:
    def table(step: float) -> Array:
        exact = np.exp(-np.arange(256) * step) * 2**31
        return np.where(np.arange(256) * step > 31, 0, np.minimum(exact, GREATEST)).astype(np.int32)

    a = rng.integers(-128, 128, (5, 12)).astype(np.int8)
    b = rng.integers(0, 256, (2, 3, 40)).astype(np.uint8)
    same = np.full((1, 300), 7, np.int8)
    return [
        Sample((a, table(0.14)), {"to": DType.I8}, fixed=(256,)),
        Sample((a, table(0.003)), {"to": DType.I16}, fixed=(256,)),
        Sample((b, table(1.5)), {"to": DType.U8}, fixed=(256,)),
        Sample((same, table(0.1)), {"to": DType.I8}, symbolic=False),
        Sample((a, table(0.2)[:68]), {"to": DType.I8}, fixed=(68,)),
        # What lies behind a table would show.
        Sample((a, table(0.01)[:40]), {"to": DType.I8}, fixed=(40,)),
    ]


OP = Op("fixed_softmax", deduce, lower, reference, samples, conditions=conditions)
