# SPDX-License-Identifier: Apache-2.0
"""Polynomials in symbols with fractions as coefficients, none of them negative. Part of fits.py.

A number of parts times the size of a part is about the whole: `128 * ((n + 127) // 128)` is not
above `n + 127`, as long as the quotient is not rounded up to `n`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

from relax_aot.ir.dim_expr import Monomial
from relax_aot.ir.dims import ZERO, Dim


@dataclass(frozen=True, slots=True)
class Polynomial:
    """The coefficient of each product of symbols."""

    terms: Mapping[Monomial, Fraction]

    @staticmethod
    def of(value: int | str) -> Polynomial:
        return Polynomial({monomial: Fraction(c) for c, monomial in Dim.of(value).terms})

    @property
    def above(self) -> Dim:
        """With the next integers as coefficients."""
        return sum((Dim(((ceil(c), own),)) for own, c in self.terms.items()), ZERO)

    def __add__(self, other: Polynomial) -> Polynomial:
        found = dict(self.terms)
        for monomial, c in other.terms.items():
            found[monomial] = found.get(monomial, 0) + c
        return Polynomial(found)

    def __mul__(self, other: Polynomial) -> Polynomial:
        found = dict[Monomial, Fraction]()
        for own, a in self.terms.items():
            for its, b in other.terms.items():
                both = _product(own, its)
                found[both] = found.get(both, 0) + a * b
        return Polynomial(found)

    def __truediv__(self, by: int) -> Polynomial:
        return Polynomial({monomial: c / by for monomial, c in self.terms.items()})


NOTHING = Polynomial({})


def join(*polynomials: Polynomial) -> Polynomial:
    """A polynomial that none of these passes: the greatest of each coefficient."""
    greatest = dict[Monomial, Fraction]()
    for polynomial in polynomials:
        for monomial, c in polynomial.terms.items():
            greatest[monomial] = max(greatest.get(monomial, c), c)
    return Polynomial(greatest)


@lru_cache(4096)
def _product(a: Monomial, b: Monomial) -> Monomial:
    ((_, monomial),) = (Dim(((1, a),)) * Dim(((1, b),))).terms
    return monomial
