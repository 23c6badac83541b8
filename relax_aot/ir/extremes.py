# SPDX-License-Identifier: Apache-2.0
"""Greatest and least sizes as expressions that follow the highs of symbols. Part of dims.py."""

from __future__ import annotations

from relax_aot.ir.bounds import Bounds, atom_interval, direction, interval
from relax_aot.ir.dim_expr import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Monomial,
    dim_max,
    dim_min,
)


def maximize(dim: Dim, bounds: Bounds) -> Dim:
    """A bound that follows the highs: in the result a symbol stands for its declared high.

    For all boxes with these lows and any highs, no value of `dim` in the box is greater.
    """
    return _extremize(dim, bounds, upwards=True)


def minimize(dim: Dim, bounds: Bounds) -> Dim:
    return _extremize(dim, bounds, upwards=False)


def _extremize(dim: Dim, bounds: Bounds, *, upwards: bool) -> Dim:
    if dim.is_constant:
        return dim
    wide = bounds.lows
    signs = {name: direction(dim, name, wide) for name in dim.symbols}
    if all(signs.values()):
        taken_low = {n: bounds.range(n)[0] for n, s in signs.items() if (s > 0) != upwards}
        return dim.substitute(taken_low)
    total = Dim.of(0)
    for c, monomial in dim.terms:
        total = total + _extremize_term(c, monomial, bounds, wide, upwards=upwards)
    return total


def _extremize_term(
    c: int, monomial: Monomial, bounds: Bounds, wide: Bounds, *, upwards: bool
) -> Dim:
    """A product's bound: exact where no factor can be negative, else by magnitudes."""
    term = Dim.of(c)
    if all(atom_interval(atom, wide)[0] >= 0 for atom, _ in monomial):
        for atom, power in monomial:
            base = _extremize_atom(atom, bounds, wide, upwards=(c > 0) == upwards)
            for _ in range(power):
                term = term * base
        return term
    if len(monomial) == 1 and monomial[0][1] == 1:
        return _extremize_atom(monomial[0][0], bounds, wide, upwards=(c > 0) == upwards) * c
    magnitude = Dim.of(abs(c))
    for atom, power in monomial:
        high = _extremize_atom(atom, bounds, wide, upwards=True)
        low = _extremize_atom(atom, bounds, wide, upwards=False)
        for _ in range(power):
            magnitude = magnitude * dim_max(high, -low)
    return magnitude if upwards else -magnitude


def _extremize_atom(atom: Atom, bounds: Bounds, wide: Bounds, *, upwards: bool) -> Dim:
    match atom:
        case str():
            return Dim.of(atom) if upwards else Dim.of(bounds.range(atom)[0])
        case FloorDiv():
            a = _extremize(atom.numerator, bounds, upwards=upwards)
            if interval(atom.denominator, wide)[0] <= 0:
                # The divisor may be negative: no quotient is further from 0 than this.
                high = _extremize(atom.numerator, bounds, upwards=True)
                low = _extremize(atom.numerator, bounds, upwards=False)
                magnitude = dim_max(high, -low) + 1
                return magnitude if upwards else -magnitude
            ends = (
                a // _extremize(atom.denominator, bounds, upwards=False),
                a // _extremize(atom.denominator, bounds, upwards=True),
            )
            return dim_max(*ends) if upwards else dim_min(*ends)
        case Mod():
            if interval(atom.denominator, wide)[0] <= 0:
                high = _extremize(atom.denominator, bounds, upwards=True)
                low = _extremize(atom.denominator, bounds, upwards=False)
                magnitude = dim_max(high, -low)
                return magnitude if upwards else -magnitude
            if not upwards:
                return Dim.of(0)
            top = _extremize(atom.denominator, bounds, upwards=True) - 1
            if interval(atom.numerator, wide)[0] < 0:
                return top
            return dim_min(_extremize(atom.numerator, bounds, upwards=True), top)
        case Min():
            return dim_min(*(_extremize(a, bounds, upwards=upwards) for a in atom.args))
        case Max():
            return dim_max(*(_extremize(a, bounds, upwards=upwards) for a in atom.args))
