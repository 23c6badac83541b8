# SPDX-License-Identifier: Apache-2.0
"""Relations between symbols, made into what bounds can use. Part of dims.py.

An equation spells one symbol by the others. A congruence such as `n % 8 == 0` spells its
symbol by a new one, `n = 8*q`. All else is kept as an expression that is 0 or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd

from relax_aot.ir.bounds import Bounds, Relation, interval, prove_lt
from relax_aot.ir.dim_expr import Atom, Dim, Min, Mod
from relax_aot.ir.simplify import solve_for


def assume(bounds: Bounds, relations: Iterable[Relation]) -> Bounds:
    """The bounds with what the relations say. Those that say nothing usable are left out."""
    for relation, left, right in relations:
        apart = (right - left).substitute(bounds.spelling)
        if relation == "==":
            bounds = _equal(apart, bounds)
        else:
            bounds = _at_least_zero(apart, bounds)
    return bounds


def _at_least_zero(dim: Dim, bounds: Bounds) -> Bounds:
    if not dim.symbols <= set(bounds) or interval(dim, bounds.open)[0] >= 0:
        return bounds
    return replace(bounds, facts=(*bounds.facts, dim))


def _equal(apart: Dim, bounds: Bounds) -> Bounds:
    """`apart == 0`."""
    if not apart.symbols <= set(bounds) or apart.is_constant or _is_choice(apart):
        return bounds
    congruence = _congruence(apart)
    if congruence is not None:
        return _multiple(*congruence, bounds)
    solutions = [(name, solve_for(apart, name, Dim.of(0))) for name in sorted(apart.symbols)]
    for name, solution in solutions:
        if solution is not None and solution[1] == 0:
            return _spell(bounds, name, solution[0])
        if solution is not None and solution[1].is_constant:
            return _never(bounds)
    for _, solution in solutions:
        congruence = None if solution is None else _congruence(solution[1])
        if congruence is not None:
            more = _multiple(*congruence, bounds)
            if more != bounds:
                return _equal(apart.substitute(more.spelling), more)
    return _at_least_zero(-apart, _at_least_zero(apart, bounds))


def _is_choice(apart: Dim) -> bool:
    """It says that one of several sizes is 0, which no interval can use."""
    return len(apart.terms) == 1 and any(isinstance(a, Min) for a, _ in apart.terms[0][1])


def _congruence(apart: Dim) -> tuple[Dim, int] | None:
    """(a, k) where `apart == 0` says that a is a multiple of k."""
    rest = Dim.of(0)
    found: Mod | None = None
    for c, monomial in apart.terms:
        atom: Atom | None = monomial[0][0] if len(monomial) == 1 else None
        whole = isinstance(atom, Mod) and monomial[0][1] == 1 and abs(c) == 1
        if whole and isinstance(atom, Mod) and found is None and atom.denominator.is_constant:
            found = atom
            sign = c
        else:
            rest = rest + Dim(((c, monomial),))
    if found is None or not rest.is_constant:
        return None
    k, remainder = found.denominator.constant, -sign * rest.constant
    if not 0 <= remainder < k:
        return None
    return found.numerator - remainder, k


def _multiple(dim: Dim, k: int, bounds: Bounds) -> Bounds:
    """`dim` is a multiple of k; used where it has one symbol, by itself."""
    dim = dim.substitute(bounds.spelling)
    if len(dim.symbols) != 1:
        return bounds
    (name,) = dim.symbols
    if any(monomial not in ((), ((name, 1),)) for _, monomial in dim.terms):
        return bounds
    factor = next(c for c, monomial in dim.terms if monomial)
    rest = sum(c for c, monomial in dim.terms if not monomial)
    common = gcd(factor, k)
    if rest % common:
        return _never(bounds)
    k, factor, rest = k // common, factor // common, rest // common
    if k == 1:
        return bounds
    remainder = -rest * pow(factor, -1, k) % k
    low, high = bounds.range(name)
    fresh = f"{name}/{k}"
    ends = (-((remainder - low) // k), (high - remainder) // k)
    if ends[0] > ends[1]:
        return _never(bounds)
    raisable = bounds.raisable | ({fresh} if name in bounds.raisable else set())
    bounds = replace(bounds.with_range(fresh, *ends), raisable=frozenset(raisable))
    return _spell(bounds, name, Dim.of(fresh) * k + remainder)


def _never(bounds: Bounds) -> Bounds:
    """With a fact that no size makes true: that -1 is 0 or more."""
    return replace(bounds, facts=(*bounds.facts, Dim.of(-1)))


def _spell(bounds: Bounds, name: str, dim: Dim) -> Bounds:
    step = {name: dim}
    return replace(
        bounds,
        facts=tuple(fact.substitute(step) for fact in bounds.facts),
        equalities=(*((n, d.substitute(step)) for n, d in bounds.equalities), (name, dim)),
    )


def any_size(bounds: Bounds, relations: Sequence[Relation]) -> bool:
    """False where no size in bounds fulfills the relations: ranges are halved until one is
    found, or none can be. True too where that takes too long."""
    assumed = assume(bounds, relations)
    facts = assumed.all_facts
    for fact in facts:
        others = tuple(other for other in assumed.facts if other != fact)
        if prove_lt(fact, 0, replace(assumed, facts=others)):
            return False
    wanted = [(r, (b - a).substitute(assumed.spelling)) for r, a, b in relations]
    dims = (*(apart for _, apart in wanted), *facts)
    names = frozenset[str]().union(*(dim.symbols for dim in dims))
    boxes = [Bounds.of({name: assumed.range(name) for name in names})]
    for _ in range(4000):  # boxes that are looked at before the question is given up
        if not boxes:
            return False
        box = boxes.pop()
        if any(interval(fact, box)[1] < 0 for fact in facts):
            continue
        if any(_impossible(relation, apart, box) for relation, apart in wanted):
            continue
        middle = {name: sum(box.range(name)) // 2 for name in box}
        if all(fact.evaluate(middle) >= 0 for fact in facts) and all(
            _holds(relation, apart.evaluate(middle)) for relation, apart in wanted
        ):
            return True
        name = max(box, key=lambda n: box.range(n)[1] - box.range(n)[0], default="")
        low, high = box.range(name) if name else (0, 0)
        if low < high:
            half = (low + high) // 2
            boxes += [box.with_range(name, half + 1, high), box.with_range(name, low, half)]
    return True


def _impossible(relation: str, apart: Dim, box: Bounds) -> bool:
    low, high = interval(apart, box)
    return high < 0 or (relation == "==" and low > 0)


def _holds(relation: str, apart: int) -> bool:
    return apart == 0 if relation == "==" else apart >= 0
