# SPDX-License-Identifier: Apache-2.0
"""Integers that round sums as an exact scale does.

What is meant is `sum * scale`, rounded to nearest, halves to even. Rounding it by any of the
formulas of requantize grows with the sum, and so does what is meant: the two are equal where
they step from code to code at the same sums, which is a comparison of at most 255 numbers for
each scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from relax_aot.ops._op import Array

BITS = 31
"""Multipliers fit an i32."""

LEAST_SHIFT = 33
FEW_BITS = 12

Formula = Callable[[Array], Array]
"""Sums, a row for each scale -> what they are worth in steps, rounded."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """How to round: attribute and arguments of requantize."""

    rounding: str
    scale: Array
    shift: Array | None = None


def exact_rescale(
    scale: Array, low: int, high: int, most: int | Array, *, each: bool = False
) -> Rescale:
    """For sums of at most `most`, one number or one for each scale, and results in `low..high`,
    counted from the zero point. `scale` is in float64. Floats where they are right, since a vector
    has them; else integers, all with one shift where that is right. Where no formula is (a product
    nearer to a middle than 31 bits tell), the one that is wrong for the fewest quantized values.

    With `each`, the formula is the same whatever the scales: integers, each with a shift of its
    own. Scales of few bits, which meet middles, and those from 1/4 on keep floats."""
    rows = np.asarray(scale, np.float64).reshape(-1)
    steps = _steps(rows, low, high)
    levels = np.arange(low + 1, high + 1)
    largest = np.asarray(most, np.int64).reshape(-1)
    largest = np.broadcast_to(largest if largest.size == rows.size else largest.max(), rows.shape)
    limits = largest[:, None]

    def wrong(formula: Formula) -> int:
        """How many quantized values are stepped to at another sum."""
        reached = np.abs(steps) <= limits
        below = np.abs(steps - 1) <= limits
        least = np.clip(formula(np.clip(steps, -limits, limits)), low, high)
        before = np.clip(formula(np.clip(steps - 1, -limits, limits)), low, high)
        late, early = reached & (least < levels), below & (before >= levels)
        return int((late | early).sum())

    single = rows.astype(np.float32)
    best = Rescale("onnx", single.reshape(np.shape(scale)))
    fewest = wrong(lambda sums: np.rint(sums.astype(np.float32) * single[:, None]))
    if fewest == 0 and not each:
        return best
    own = np.array([_shift(r) for r in rows])
    spread = [own] if each else [np.full(rows.size, _shift(rows.max())), own]
    for shifts in spread:
        factors = np.rint(rows * 2.0**shifts).astype(np.int64)
        half = np.int64(1) << (shifts - 1)
        fits = factors.min() > 0 and factors.max() < 2**BITS and shifts.min() >= LEAST_SHIFT
        product = (factors * largest + half).max()
        if not fits or product >= 2**62 or (largest * rows).max() >= 2**30:
            continue

        def whole(sums: Array, f: Array = factors, h: Array = half, s: Array = shifts) -> Array:
            return np.asarray((sums * f[:, None] + h[:, None]) >> s[:, None])

        count = wrong(whole)
        if count < fewest or (each and not (count and _of_few_bits(rows))):
            shared = np.ndim(scale) == 0 or shifts is not own
            one = shifts[:1].reshape(()) if shared else shifts
            multipliers = factors.astype(np.int32).reshape(np.shape(scale))
            best, fewest = Rescale("nearest", multipliers, one.astype(np.int32)), count
        if fewest == 0:
            break
    return best


def _of_few_bits(rows: Array) -> bool:
    fractions = np.frexp(rows)[0] * 2.0**FEW_BITS
    return bool((fractions == np.rint(fractions)).all())


def _shift(scale: float) -> int:
    """So many places that the multiplier fills its bits; 62 at most."""
    exponent = int(np.frexp(scale)[1])
    return (
        min(BITS - exponent - 1, 62)
        if np.rint(np.frexp(scale)[0] * 2**BITS) >= 2**BITS
        else (min(BITS - exponent, 62))
    )


def _steps(rows: Array, low: int, high: int) -> Array:
    """For each scale and each result but the lowest, the least sum that gives it."""
    middles = np.arange(low + 1, high + 1) - 0.5
    steps = middles / rows[:, None]
    least = np.ceil(steps)
    # Halves go to the even one. Quotients of float64 near whole numbers are looked at exactly.
    for row, column in np.argwhere(np.abs(steps - np.rint(steps)) <= np.abs(steps) * 2.0**-48):
        exact = Fraction(float(middles[column])) / Fraction(float(rows[row]))
        whole = -(-exact.numerator // exact.denominator)
        if whole == exact and (low + 1 + column) % 2:
            whole += 1
        least[row, column] = whole
    return np.asarray(least.astype(np.int64))
