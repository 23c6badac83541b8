# SPDX-License-Identifier: Apache-2.0
"""Scales as integers, exactly as TensorFlow Lite prepares them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import floor, frexp
from operator import mul

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.tflite.activation import limits_of
from relax_aot.frontends.tflite.model import Array
from relax_aot.ir.types import DType
from relax_aot.ops._fixed import np_divided, np_high_product, np_times


def ratio(*scales: float, to: float) -> float:
    """The product of scales in units of another, in f32 as most kernels work it out."""
    with np.errstate(all="ignore"):
        return float(reduce(mul, map(np.float32, scales)) / np.float32(to))


def multiplier(scale: float) -> tuple[int, int]:
    """scale = multiplier * 2^(shift - 31), rounded; one too small to matter is 0
    (QuantizeMultiplier)."""
    if scale >= 2.0**31:
        raise ModelError("a scale is too fine for those that it is computed from")
    if scale == 0.0:
        return 0, 0
    fraction, shift = frexp(scale)
    whole = floor(fraction * (1 << 31) + 0.5)
    if whole == 1 << 31:
        whole, shift = whole // 2, shift + 1
    return (0, 0) if shift < -31 else (whole, shift)


def rescaled_code(x: Array, scale: float) -> Array:
    """x * scale, rounded twice, for integers that are known."""
    return np_times(x, *multiplier(scale))


def multipliers(scales: Array) -> tuple[Array, Array]:
    """The same of each, as constants."""
    pairs = [multiplier(float(scale)) for scale in scales]
    factors, shifts = np.array(pairs, np.int64).T
    return factors.astype(np.int32), shifts.astype(np.int32)


Formula = Callable[[Array], Array]
"""Sums, a row for each scale -> what they are worth in steps, rounded."""
MOST_PLACES = 52
"""Middles between results, with this many places, fit 64 bits."""
REACH = 4
"""How far from its exact place a step may lie: two roundings move it by less than 2."""


def rounded_in_float64(scales: Array) -> Formula:
    """round(sum * scale) of C in float64: halves away from 0."""
    return lambda sums: rounded_away(sums.astype(np.float64) * scales[:, None])


def rounded_twice(factors: Array, shifts: Array) -> Formula:
    """MultiplyByQuantizedMultiplier for scales below 1."""

    def formula(sums: Array) -> Array:
        high = np_high_product(sums, factors.astype(np.int64)[:, None])
        return np_divided(high, -shifts.astype(np.int64)[:, None])

    return formula


def rounded_once(
    scales: Array, low: int, high: int, formula: Formula, *, each: bool = False
) -> tuple[Array, Array] | None:
    """Factors and shifts with (sum * factor + half) >> shift equal to `formula` wherever the
    result is in `low..high`, and beyond on the same side; None if they do not exist. One shift
    for all where that will do, unless `each` has one of its own.

    Both grow with the sum, so they are equal if they step to each result at the same sum. That
    puts each factor between two bounds for each step.
    """
    levels = np.arange(low + 1, high + 1)
    if not levels.size or scales.min() <= 2.0**-31 or scales.max() >= 0.25:
        return None
    near = np.ceil((levels - 0.5) / scales[:, None]).astype(np.int64)
    window = near[:, :, None] + np.arange(-REACH, REACH + 1)
    values = formula(window.reshape(scales.size, -1)).reshape(window.shape)
    reached = values >= levels[:, None]
    if reached[:, :, 0].any() or not reached[:, :, -1].all():
        return None
    steps = near - REACH + np.argmax(reached, axis=2)
    own = np.array([min(31 - frexp(scale)[1], MOST_PLACES) for scale in scales], np.int64)
    for shifts in (own,) if each else (np.full(scales.size, own.min()), own):
        factors = _factors(scales, levels, steps, shifts)
        if factors is not None:
            same = shifts[:1] if (shifts == shifts[0]).all() and not each else shifts
            return factors.astype(np.int32), same.astype(np.int32)
    return None


def _factors(scales: Array, levels: Array, steps: Array, shifts: Array) -> Array | None:
    """Factors that reach each level at its step and not one before."""
    middles = (2 * levels - 1) << (shifts[:, None] - 1)
    before = steps - 1
    least, most = np.int64(1), np.int64(2**31 - 1)
    at, under = np.where(steps == 0, 1, steps), np.where(before == 0, 1, before)
    lower = np.maximum(
        np.where(steps > 0, -(-middles // at), least),
        np.where(before < 0, middles // under + 1, least),
    ).max(axis=1)
    upper = np.minimum(
        np.where(before > 0, -(-middles // under) - 1, most),
        np.where(steps < 0, middles // at, most),
    ).min(axis=1)
    if np.any(lower > upper):
        return None
    exact = np.rint(np.ldexp(scales, shifts)).astype(np.int64)
    return np.asarray(np.clip(exact, lower, upper))


def rounded_away(x: Array) -> Array:
    """To nearest, halves away from 0; NaN as 0."""
    x = np.clip(np.nan_to_num(x, nan=0.0), -(2.0**62), 2.0**62)
    whole = np.trunc(x)
    return np.asarray(whole + np.copysign(np.abs(x - whole) >= 0.5, x)).astype(np.int64)


EXP_BITS = 5
"""Integer bits of the argument of exp in a softmax."""


def exponentials(scale: float) -> Array:
    """exp(-d * scale) for d = 0..255 in steps of 2^-31, in the integers of gemmlowp's
    exp_on_negative_values; 0 beyond what its argument can hold."""
    most = float((1 << 31) - 1)
    factor, shift = multiplier(min(scale * (1 << (31 - EXP_BITS)), most))
    shift = max(shift, 0)
    reach = floor(((1 << EXP_BITS) - 1) * (1 << (31 - EXP_BITS)) / (1 << shift))
    diffs = -np.arange(256, dtype=np.int64)
    given = np_high_product((diffs << shift).astype(np.int32), factor)
    return np.where(-diffs <= reach, _exp(given), 0).astype(np.int32)


QUARTER = 1 << (29 - EXP_BITS)
# exp(-2^k) for k = -2..4, in steps of 2^-31.
POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def _exp(x: Array) -> Array:
    """x <= 0 with five integer bits: the rest of x by quarters through a polynomial, each bit
    of the quarters by a factor."""
    rest = (x & (QUARTER - 1)) - QUARTER
    found = _exp_of_quarter(rest << EXP_BITS)
    bits = rest - x
    for power, place in zip(POWERS, range(-2, EXP_BITS), strict=True):
        chosen = bits & (1 << (31 - EXP_BITS + place)) != 0
        found = np.where(chosen, np_high_product(found, power), found)
    return np.where(x == 0, (1 << 31) - 1, found)


def _exp_of_quarter(a: Array) -> Array:
    """exp of -1/4 <= a < 0 by four terms around -1/8."""
    middle, third = 1895147668, 715827883  # exp(-1/8) and 1/3
    x = a + (1 << 28)
    x2 = np_high_product(x, x)
    x3 = np_high_product(x2, x)
    x4 = np_divided(np_high_product(x2, x2), 2)
    terms = np_divided(np_high_product(x4 + x3, third) + x2, 1)
    return middle + np_high_product(x + terms, middle)


def code_of(value: float, scale: float, zero: int) -> int:
    """The code of a number that is known: f32 division, halves away from 0."""
    quotient = float(np.float32(value) / np.float32(scale))
    return zero + (floor(quotient + 0.5) if quotient >= 0 else -floor(-quotient + 0.5))


def code_limits(activation: str, scale: float, zero: int, dtype: DType) -> tuple[int, int]:
    """The quantized values between which an activation keeps results
    (CalculateActivationRangeQuantized)."""
    low, high = dtype.limits
    least, most = limits_of(activation)
    if least is not None:
        low = max(low, code_of(least, scale, zero))
    if most is not None:
        high = min(high, code_of(most, scale, zero))
    return low, high
