# SPDX-License-Identifier: Apache-2.0
"""What is known of symbols, and what follows for sizes. Part of dims.py.

Everything here is sound: an interval encloses, a proof holds. "Not proven" is no proof of
the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice, product
from math import lcm, prod
from typing import Any

import numpy as np

from relax_aot.ir.dim_expr import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Value,
    atom_parts,
    linear,
    term_quotient,
)
from relax_aot.ir.evaluate import evaluate_all, magnitude

Relation = tuple[str, Dim, Dim]
"""`left == right` or `left <= right`, with the relation in front."""


@dataclass(frozen=True)
class Bounds:
    """What is known of symbols: the range of each, both ends included, and relations.

    The high of a symbol in `raisable` may be raised when the generated project is compiled,
    so a proof must not depend on it; `prove` returns the relations that did.
    """

    ranges: tuple[tuple[str, tuple[int, int]], ...]
    facts: tuple[Dim, ...] = ()
    """Each is 0 or more."""
    equalities: tuple[tuple[str, Dim], ...] = ()
    """Symbols that equal an expression in the others; see assume.py."""
    raisable: frozenset[str] = frozenset()
    raised: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Ranges that names of values have, in place of theirs, once highs have been raised."""

    @staticmethod
    def of(ranges: Mapping[str, tuple[int, int]]) -> Bounds:
        return Bounds(tuple(sorted((n, (int(a), int(b))) for n, (a, b) in ranges.items())))

    @cached_property
    def _table(self) -> dict[str, tuple[int, int]]:
        return dict(self.ranges)

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        """Intervals by size, and what holds by relation and size."""
        return {}

    @cached_property
    def _stepping(self) -> dict[str, Bounds]:
        """By symbol: where it can still grow by one."""
        return {}

    @cached_property
    def spelling(self) -> dict[str, Dim]:
        return dict(self.equalities)

    @cached_property
    def all_facts(self) -> tuple[Dim, ...]:
        """With the ranges of symbols that are equalities by others."""
        ends = [
            side
            for name, dim in self.equalities
            for side in (dim - self._table[name][0], -dim + self._table[name][1])
            if not (side.is_constant and side.constant >= 0)
        ]
        return (*self.facts, *ends)

    @cached_property
    def inside(self) -> Bounds:
        """The ranges that the facts leave, by going round them; without facts."""
        return _inside(self)

    @cached_property
    def open(self) -> Bounds:
        """The same for highs that have been raised: what holds here holds then."""
        if not self.raisable:
            return self
        ranges = {
            name: (low, max(high, GREATEST) if name in self.raisable else high)
            for name, (low, high) in self.ranges
        } | dict(self.raised)
        return replace(Bounds.of(ranges), facts=self.facts, equalities=self.equalities)

    @cached_property
    def lows(self) -> Bounds:
        """With no highs but that of an int32_t: highs may be raised when a project is built."""
        return Bounds.of({name: (low, max(low, GREATEST)) for name, (low, _) in self.ranges})

    @cached_property
    def closed(self) -> Bounds:
        """The same for these highs only."""
        if not self.raisable:
            return self
        return replace(self, raisable=frozenset(), raised=())

    def range(self, name: str) -> tuple[int, int]:
        return self._table[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def with_range(self, name: str, low: int, high: int) -> Bounds:
        ranges = tuple(sorted({**self._table, name: (int(low), int(high))}.items()))
        raised = tuple(pair for pair in self.raised if pair[0] != name)
        return Bounds(ranges, self.facts, self.equalities, self.raisable, raised)

    def with_ranges(self, ranges: Mapping[str, tuple[int, int] | None]) -> Bounds:
        """With further names; those without a range are none."""
        bounds = self
        for name, ends in ranges.items():
            bounds = bounds.with_range(name, *ends) if ends else bounds
        return bounds

    def with_value(self, name: str, least: Dim, most: Dim) -> Bounds:
        """With a name of something from `least` to `most`, or that is `least` where there is
        nothing in between. What follows for it changes as highs are raised."""
        made = self.with_range(name, *_ends(least, most, self))
        after = _ends(least, most, self.open)
        if after == made.range(name):
            return made
        raised = (*made.raised, (name, after))
        return replace(made, raised=raised)


GREATEST = 2**31 - 1
MOST_REACHED = 50
"""Expressions that one more step of a proof leads to; relations between many minima and maxima lead
to thousands."""


def _ends(least: Dim, most: Dim, bounds: Bounds) -> tuple[int, int]:
    low, high = interval(least, bounds)[0], interval(most, bounds)[1]
    return low, max(low, high)


def interval(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """Least and greatest value; sound always, exact where `dim` is monotone in each symbol
    or the box is small. Highs count as they are."""
    if dim.is_constant:
        return dim.constant, dim.constant
    cached: tuple[int, int] | None = bounds._cache.get(dim)
    if cached is None:
        found = _related if bounds.facts or bounds.equalities else _interval
        cached = bounds._cache[dim] = found(dim, bounds)
    return cached


def _related(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """Within what the relations leave of the ranges, tightened by one fact at a time."""
    dim = dim.substitute(bounds.spelling)
    inner = bounds.inside
    low, high = _interval(dim, inner)
    for fact in bounds.all_facts:
        for factor in _factors(dim, fact, inner):
            low = max(low, _interval(dim - fact * factor, inner)[0])
        for factor in _factors(-dim, fact, inner):
            high = min(high, _interval(dim + fact * factor, inner)[1])
    return low, high


def _inside(bounds: Bounds) -> Bounds:
    ranges = {n: r for n, r in bounds.ranges if n not in bounds.spelling}
    for _ in range(8):  # how often facts are gone round to tighten ranges
        before = dict(ranges)
        box = Bounds.of(ranges)
        for fact in bounds.all_facts:
            for name in sorted(fact.symbols & ranges.keys()):
                ranges[name] = _narrowed(fact, name, box)
        if any(low > high for low, high in ranges.values()):
            return Bounds.of(before)
        if ranges == before:
            break
    return Bounds.of(ranges)


def _narrowed(fact: Dim, name: str, box: Bounds) -> tuple[int, int]:
    """What `fact >= 0` leaves of a symbol that occurs in it once, by itself."""
    low, high = box.range(name)
    split = linear(fact, name)
    if split is None:
        return low, high
    coefficient, rest = split
    most = _interval(rest, box)[1]
    if coefficient > 0:  # the symbol is at least -most / coefficient
        return max(low, -(most // coefficient)), high
    return low, min(high, most // -coefficient)


def _factors(dim: Dim, fact: Dim, inner: Bounds) -> list[Dim]:
    """What to multiply `fact` by so that its difference from `dim` has a term less."""
    found: list[Dim] = []
    if dim.symbols.isdisjoint(fact.symbols):
        return found
    for left, right in product(dim.terms, fact.terms):
        factor = term_quotient(left, right) if right[1] and left[0] * right[0] > 0 else None
        if factor is None or factor in found:
            continue
        if factor.is_constant or _interval(factor, inner)[0] >= 0:
            found.append(factor)
    return found


def _interval(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """Without relations. It follows from the ranges of its own symbols alone, so boxes that
    differ in other symbols share it."""
    if dim.is_constant:
        return dim.constant, dim.constant
    return _in_box(dim, tuple(bounds.range(name) for name in dim.sorted_symbols))


@lru_cache(maxsize=1 << 16)
def _in_box(dim: Dim, box: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    names = dim.sorted_symbols
    bounds = Bounds(tuple(zip(names, box, strict=True)))
    natural = _natural(dim, bounds)
    factors = [factor for _, monomial in dim.terms for factor in monomial]
    if len(factors) == len({atom for atom, power in factors if atom in names and power == 1}):
        return natural  # exact, as each symbol occurs once, in no atom
    at_low: dict[str, int] = {}
    at_high: dict[str, int] = {}
    for name in names:
        sign = direction(dim, name, bounds)
        if not sign:
            break
        at_low[name], at_high[name] = bounds.range(name)[::sign]
    else:
        try:
            return dim.evaluate(at_low), dim.evaluate(at_high)
        except ZeroDivisionError:  # where a divisor is 0 there is no size
            return natural
    ranges = [bounds.range(name) for name in names]
    small = prod(stop - start + 1 for start, stop in ranges) <= 4096
    greatest = {n: max(map(abs, bounds.range(n))) for n in names}
    if small and magnitude(dim, greatest) < 2**63:
        grids = np.meshgrid(*(np.arange(a, b + 1) for a, b in ranges), indexing="ij")
        with np.errstate(divide="ignore"):  # where a divisor is 0 there is no size
            values = np.asarray(evaluate_all(dim, dict(zip(names, grids, strict=True))))
        return int(values.min()), int(values.max())
    return natural


def direction(dim: Dim, name: str, bounds: Bounds) -> int:
    """+1 where dim never falls as the symbol grows, -1 where it never rises, else 0."""
    start, stop = bounds.range(name)
    if start == stop:
        return 1
    if name not in bounds._stepping:
        bounds._stepping[name] = bounds.with_range(name, start, stop - 1)
    low, high = _step(dim, name, bounds._stepping[name])
    return 1 if low >= 0 else -1 if high <= 0 else 0


def _step(dim: Dim, name: str, bounds: Bounds) -> tuple[int, int]:
    """Bounds of how much `dim` changes when the symbol grows by one."""
    low = high = 0
    for c, monomial in dim.terms:
        if len(monomial) == 1 and monomial[0][1] == 1:
            least, most = _atom_step(monomial[0][0], name, bounds)
            ends = (c * least, c * most)
        else:
            term = Dim(((c, monomial),))
            if name not in term.symbols:
                continue
            ends = _natural(term.substitute({name: Dim.of(name) + 1}) - term, bounds)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _atom_step(atom: Atom, name: str, bounds: Bounds) -> tuple[int, int]:
    if isinstance(atom, str):
        return (1, 1) if atom == name else (0, 0)
    parts = [_step(part, name, bounds) for part in atom_parts(atom)]
    if all(part == (0, 0) for part in parts):
        return 0, 0
    if isinstance(atom, FloorDiv) and atom.denominator.is_constant:
        k = atom.denominator.constant
        return parts[0][0] // k, -(-parts[0][1] // k)
    if isinstance(atom, Min | Max):
        return min(low for low, _ in parts), max(high for _, high in parts)
    low, high = atom_interval(atom, bounds)
    after = _natural(Dim.of(atom).substitute({name: Dim.of(name) + 1}), bounds)
    return after[0] - high, after[1] - low


def _natural(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """Interval arithmetic over the normal form."""
    low = high = 0
    for c, monomial in dim.terms:
        term = (c, c)
        for atom, power in monomial:
            base = atom_interval(atom, bounds)
            for _ in range(power):
                corners = [x * y for x in term for y in base]
                term = (min(corners), max(corners))
        low, high = low + term[0], high + term[1]
    return low, high


def atom_interval(atom: Atom, bounds: Bounds) -> tuple[int, int]:
    match atom:
        case str():
            return bounds.range(atom)
        case FloorDiv():
            a, b = (interval(part, bounds) for part in atom_parts(atom))
            if b[0] <= 0 <= b[1]:
                widest = max(abs(a[0]), abs(a[1]))
                return -widest - 1, widest + 1
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        case Mod():
            a, b = interval(atom.numerator, bounds), interval(atom.denominator, bounds)
            if b[0] <= 0:
                widest = max(abs(b[0]), abs(b[1]))
                return -widest, widest
            if a[0] >= 0:
                return (0 if a[1] >= b[0] else a[0]), min(a[1], b[1] - 1)
            return 0, b[1] - 1
        case Min() | Max():
            best = min if isinstance(atom, Min) else max
            lows, highs = zip(*(interval(arg, bounds) for arg in atom.args), strict=True)
            return best(lows), best(highs)


def prove_le(a: Value, b: Value, bounds: Bounds) -> bool:
    """a <= b for all values in bounds, however highs are raised; False: "not proven"."""
    return _holds("<=", Dim.of(b) - a, bounds.open)


def prove_lt(a: Value, b: Value, bounds: Bounds) -> bool:
    return _holds("<=", Dim.of(b) - a - 1, bounds.open)


def prove_eq(a: Value, b: Value, bounds: Bounds) -> bool:
    return _holds("==", Dim.of(b) - a, bounds.open)


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a relation holds, or another value, if `assumptions` do: they need a check at run
    time. `p or q` is the first proof that holds; `p & q` has the assumptions of both."""

    value: Any
    assumptions: tuple[Relation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __and__(self, other: Proof) -> Proof:
        return Proof(self.value and other.value, self.assumptions + other.assumptions)

    def then(self, value: Any) -> Any:
        """A value that follows, with the assumptions."""
        return Proof(value, self.assumptions) if self.assumptions else value


def prove(left: Value, relation: str, right: Value, bounds: Bounds) -> Proof:
    """`left == right`, `left <= right` or `left < right`, for these highs if it does not follow
    for raised ones."""
    a, b = Dim.of(left) + (relation == "<"), Dim.of(right)
    relation = "==" if relation == "==" else "<="
    if _holds(relation, b - a, bounds.open):
        return Proof(True)
    if not bounds.raisable or not _holds(relation, b - a, bounds.closed):
        return Proof(False)
    return Proof(True, ((relation, a, b),))


def _holds(relation: str, apart: Dim, bounds: Bounds) -> bool:
    """`apart` is 0, or it is 0 or more: as it stands, or for each remainder that divisors leave
    of the symbols. With `n = 4*q + r`, what divides n by 4 or 2 has no division left."""
    if apart.is_constant:
        return apart.constant == 0 if relation == "==" else apart.constant >= 0
    if not all(name in bounds for name in apart.symbols):
        return False
    low, high = interval(apart, bounds)
    if low == high == 0 or (low >= 0 and relation != "=="):
        return True
    if bounds.equalities:
        apart = apart.substitute(bounds.spelling)
    key = (relation, apart)
    if key not in bounds._cache:
        plainly = _plainly(relation, apart, bounds)
        bounds._cache[key] = plainly or _case_by_case(relation, apart, bounds)
    return bool(bounds._cache[key])


def _plainly(relation: str, apart: Dim, bounds: Bounds) -> bool:
    low, high = interval(apart, bounds)
    if relation == "==":
        both = low == high == 0 or _plainly("<=", apart, bounds)
        return both and (low == high == 0 or _plainly("<=", -apart, bounds))
    if low >= 0 or _divided(apart, bounds.inside):
        return True
    facts = bounds.all_facts
    return bool(facts) and _implied(apart, facts, bounds.inside, steps=3)


def _case_by_case(relation: str, dim: Dim, bounds: Bounds) -> bool:
    names, period = _divided_symbols(dim)
    if not names or period == 1 or period ** len(names) > 64:
        return False
    for remainders in product(range(period), repeat=len(names)):
        parts: dict[str, Dim] = {}
        inner = bounds
        for name, remainder in zip(sorted(names), remainders, strict=True):
            low, high = bounds.range(name)
            ends = -((remainder - low) // period), (high - remainder) // period
            if ends[0] > ends[1]:
                break
            fresh = f"{name}/{period}"
            parts[name] = Dim.of(fresh) * period + remainder
            inner = inner.with_range(fresh, *ends)
        else:
            facts = tuple(fact.substitute(parts) for fact in bounds.all_facts)
            inner = replace(inner, facts=facts, equalities=())
            if not _plainly(relation, dim.substitute(parts), inner):
                return False
    return True


def _divided_symbols(dim: Dim) -> tuple[frozenset[str], int]:
    """Symbols inside divisions and remainders, and a multiple of all divisors; period 1
    where a divisor is no number."""
    names: frozenset[str] = frozenset()
    period = 1
    for _, monomial in dim.terms:
        for atom, _power in monomial:
            if isinstance(atom, str):
                continue
            for part in atom_parts(atom):
                inner, factor = _divided_symbols(part)
                names |= inner
                period *= factor
            if isinstance(atom, FloorDiv | Mod):
                if not atom.denominator.is_constant:
                    return frozenset(), 1
                names |= atom.numerator.symbols
                period = lcm(period, abs(atom.denominator.constant))
    return names, min(period, 65)


def _implied(dim: Dim, facts: tuple[Dim, ...], inner: Bounds, steps: int) -> bool:
    """dim >= fact * factor >= 0, or so after a few such steps. What several orders of steps reach
    is looked at once."""
    reached = [dim]
    for step in range(steps + 1):
        if any(_interval(one, inner)[0] >= 0 for one in reached):
            return True
        if step < steps:
            further = (
                one - fact * factor
                for one in reached
                for fact in facts
                for factor in _factors(one, fact, inner)
            )
            reached = list(dict.fromkeys(islice(further, MOST_REACHED)))
    return False


def _divided(dim: Dim, bounds: Bounds) -> bool:
    """One division at a time: q*b <= a <= q*b + b - 1."""
    for c, monomial in dim.terms:
        for atom, power in monomial:
            if not isinstance(atom, FloorDiv) or power != 1 or len(monomial) != 1:
                continue
            if not atom.denominator.is_constant or atom.denominator.constant <= 0:
                continue
            k = atom.denominator.constant
            bound = atom.numerator - (k - 1) if c > 0 else atom.numerator
            rest = dim - Dim.of(atom) * c
            if _interval(rest * k + bound * c, bounds)[0] >= 0:
                return True
    return False
