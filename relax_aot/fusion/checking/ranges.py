# SPDX-License-Identifier: Apache-2.0
"""Index expressions over loop variables: what is known of them for all sizes.

A variable has a name of its own everywhere, so a range belongs to the name.
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.dim_expr import Atom, combined, term_quotient
from relax_aot.ir.dims import (
    ONE,
    ZERO,
    Bounds,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    dim_max,
    dim_min,
    prove_eq,
    prove_le,
)

MOST_WORK = 100
"""Steps after which a proof is given up. Those that succeed take a few dozen. With many minima and
maxima of several sizes, the steps of the others grow exponentially."""


@dataclass(frozen=True, slots=True)
class Digits:
    """`dim` with variables `upper` and `lower` for quotient and remainder of `value`."""

    dim: Dim
    value: Dim
    upper: Dim
    lower: Dim


class Ranges:
    """The ranges of variables, and proofs for all their values."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        self.from_data: set[str] = set()
        """Names of indices from data, of which nothing is known."""
        self.digits: set[str] = set()
        """Variables of loops that were split where the source divides."""
        self._proofs: dict[Dim, bool] = {}
        self._simplified: dict[Dim, Dim] = {}
        self._count = 0
        self._work = 0
        """Steps of the proof that is being looked for."""

    def number(self) -> int:
        self._count += 1
        return self._count

    def variable(self, name: str, start: Dim, stop: Dim) -> str:
        fresh = f"{name.partition(chr(39))[0]}'{self.number()}"
        self.ranges[fresh] = (start, stop)
        return fresh

    def of_digits(self, dim: Dim) -> Dim:
        """Simplified where it speaks of a loop that was split for its divisions."""
        return self.simplified(dim) if dim.symbols & self.digits else dim

    def simplified(self, dim: Dim) -> Dim:
        """Without divisions and limits that make no difference for the variables' ranges."""
        if dim.is_polynomial:
            return dim
        found = self._simplified.get(dim)
        if found is None:
            found = self._simplified[dim] = Dim.of(combined(dim, self._atom))
        return found

    def _atom(self, atom: Atom) -> Dim:
        match atom:
            case str():
                return Dim.of(atom)
            case FloorDiv() | Mod():
                divides = isinstance(atom, FloorDiv)
                value, by = self.simplified(atom.numerator), self.simplified(atom.denominator)
                return self.divided(value, by)[0 if divides else 1]
            case Min() | Max():
                least = isinstance(atom, Min)
                kept: list[Dim] = []
                for part in map(self.simplified, atom.args):
                    if any(self.known_le(*((k, part) if least else (part, k))) for k in kept):
                        continue
                    kept = [k for k in kept
                            if not self.known_le(*((part, k) if least else (k, part)))]  # fmt: skip
                    kept.append(part)
                return dim_min(*kept) if least else dim_max(*kept)

    def divided(self, dim: Dim, by: Dim) -> tuple[Dim, Dim]:
        """Quotient and remainder, without a division where the terms allow."""
        if by == ONE:
            return dim, ZERO
        quotient, rest = ZERO, dim
        for name in sorted(n for n in dim.symbols if n in self.ranges):
            stride = rise(dim, name)
            times = exact_quotient(stride, by)
            if times is not None and name not in stride.symbols:
                quotient, rest = quotient + times * Dim.of(name), rest - stride * Dim.of(name)
        for factor, monomial in rest.terms:
            term = Dim(((factor, monomial),))
            times = exact_quotient(term, by)
            if times is not None:
                quotient, rest = quotient + times, rest - term
        if self.known_le(ZERO, rest) and self.known_lt(rest, by):
            return quotient, rest
        return quotient + rest // by, rest % by

    def digits_of(self, dim: Dim) -> Digits | None:
        """Where `dim` has the quotient of a value of at least 0 by a constant, and the value."""
        for atom in sorted(dim.atoms, key=str):
            if not isinstance(atom, FloorDiv) or not atom.denominator.is_constant:
                continue
            value, by = atom.numerator, atom.denominator
            name = max((n for n in value.symbols if n in self.ranges), key=age, default="")
            if not name or not self.known_le(ZERO, value):
                continue
            upper = Dim.of(self.variable("upper", ZERO, value // by + 1))
            lower = Dim.of(self.variable("lower", ZERO, by))
            named = _replaced(dim, atom, upper)
            times = exact_quotient(rise(named, name), rise(value, name))
            if times is None:
                continue
            return Digits(named + times * (by * upper + lower - value), value, upper, lower)
        return None

    def known_le(self, low: Dim, high: Dim) -> bool:
        """low <= high for all sizes and all values of the variables; False: not proven."""
        apart = high - low
        if apart.is_constant:
            return apart.constant >= 0
        found = self._proofs.get(apart)
        if found is not None:
            return found
        outermost = self._work == 0
        found = self._nonnegative(apart, len(self.ranges))
        if found or outermost or self._work <= MOST_WORK:
            self._proofs[apart] = found
        if outermost:
            self._work = 0
        return found

    def known_lt(self, low: Dim, high: Dim) -> bool:
        return self.known_le(low + ONE, high)

    def known_eq(self, one: Dim, other: Dim) -> bool:
        if one == other:
            return True
        apart = one - other
        if apart.is_constant:
            return False
        if not any(name in self.ranges or name in self.from_data for name in apart.symbols):
            return prove_eq(one, other, self.bounds)
        return self.known_le(one, other) and self.known_le(other, one)

    def _nonnegative(self, dim: Dim, steps: int) -> bool:
        """The newest variable at the end of its range where `dim` is least, and so on."""
        self._work += 1
        if self._work > MOST_WORK:
            return False
        names = [n for n in dim.symbols if n in self.ranges]
        if not self.from_data.isdisjoint(dim.symbols):
            return False
        if names and not dim.is_polynomial and self._limits(dim):
            return True
        if not names or steps == 0:
            return not names and prove_le(0, dim, self.bounds)
        name = max(names, key=age)
        stride = rise(dim, name)
        if name in stride.symbols:
            return False
        start, stop = self.ranges[name]
        if self.known_le(ZERO, stride):
            return self._nonnegative(dim.substitute({name: start}), steps - 1)
        if self.known_le(stride, ZERO):
            return self._nonnegative(dim.substitute({name: stop - 1}), steps - 1)
        return False

    def _limits(self, dim: Dim) -> bool:
        """With an argument in place of a minimum or a maximum: with any that bounds it, or each."""
        for factor, monomial in dim.terms:
            for atom, power in monomial:
                if not isinstance(atom, Min | Max) or power != 1:
                    continue
                times = Dim(((factor, tuple(pair for pair in monomial if pair[0] != atom)),))
                rising = self.known_le(ZERO, times)
                if not rising and not self.known_le(times, ZERO):
                    continue
                rest = dim - Dim.of(atom) * times
                enough = all if isinstance(atom, Min) == rising else any
                if enough(self.known_le(ZERO, rest + arg * times) for arg in atom.args):
                    return True
            (atom, power), *others = monomial or (("", 0),)
            if isinstance(atom, FloorDiv) and power == 1 and not others:
                rest, by = dim - Dim.of(atom) * factor, atom.denominator
                if not by.is_constant or by.constant <= 0:
                    continue
                if factor > 0:  # at least 0, if the numerator is
                    limits = [atom.numerator, rest]
                elif factor % by.constant == 0:
                    limits = [rest + atom.numerator * (factor // by.constant)]
                else:
                    continue
                if all(self.known_le(ZERO, limit) for limit in limits):
                    return True
        return False


def _replaced(dim: Dim, part: Atom, value: Dim) -> Dim:
    return Dim.of(combined(dim, lambda atom: value if atom == part else Dim.of(atom)))


def age(name: str) -> int:
    """The number of a variable; newer ones have greater numbers."""
    return int(name.rpartition("'")[2])


def rise(dim: Dim, name: str) -> Dim:
    """How much more it is when the variable is one more."""
    if dim.symbol == name:
        return ONE
    total = ZERO
    for factor, monomial in dim.terms:
        kept = tuple(pair for pair in monomial if pair[0] != name)
        others = Dim(((factor, kept),))
        if len(monomial) - len(kept) == 1 and (name, 1) in monomial and name not in others.symbols:
            total = total + others
        elif name in Dim(((factor, monomial),)).symbols:
            return dim.substitute({name: Dim.of(name) + ONE}) - dim
    return total


def exact_quotient(dim: Dim, by: Dim) -> Dim | None:
    """How many times `by` is `dim`, as one product; None where something is left."""
    if not dim.terms or not by.terms:
        return None
    times = term_quotient(dim.terms[0], by.terms[0])
    return times if times is not None and times * by == dim else None
