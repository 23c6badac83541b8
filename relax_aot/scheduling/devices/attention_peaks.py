# SPDX-License-Identifier: Apache-2.0
"""The greatest score of a row before its first key, and where masks alone make it."""

from __future__ import annotations

from relax_aot.ir.loops import Binary, Expr, Lit, Select
from relax_aot.ir.types import DType

RATES = tuple(
    (Lit(below_, DType.F32), Lit(rate, DType.F32))
    for below_, rate in ((-(2.0**26), 2.0**-18), (-(2.0**40), 2.0**-126))
)
"""Peaks that masks alone make, and the rates of the exponents of such rows: numbers of the size of
the peak have no weight below it, and roundings of the peak are nearly 0."""
LEAST_PEAKS = tuple(Lit(-(2.0**power), DType.F32) for power in (127, 126, 100))
"""The maximum of no key, in the place of -inf, which would be subtracted from itself: of scores
that may be far, of those whose exponents are less, and of others. Products with powers of 2 have no
rounding, which would be more than an exponent."""


def least_peak(rate: Expr, *, far: bool) -> Expr:
    """The maximum of no key. `rate`: of exponents; `far`: whether scores may be far."""
    most, small, large = LEAST_PEAKS
    return most if far else Select(Binary("<", rate, Lit(1.0, DType.F32)), small, large)


def rate_below(peak: Expr, rate: Expr, *, far: bool) -> Expr:
    """Of the exponents of a row. Where masks may shut all keys of a row by such numbers as the
    lowest float, products with `rate` would be rounded by more than an exponent."""
    for least, own in RATES if far else ():
        rate = Select(Binary("<", peak, least), own, rate)
    return rate
