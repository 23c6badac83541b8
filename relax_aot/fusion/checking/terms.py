# SPDX-License-Identifier: Apache-2.0
"""Values as terms: what is computed, without the loops that compute it.

A term is an operator with operands and index expressions. A loop that changes scalars (or
arrays that are read again) is a `fold`: its definition `def` holds range, first values and
next values, in which `phi` stands for the value at the start of an iteration. `at` is the
value at the start of a given iteration, seen from outside the definition.

Equal terms are one object. A substitution leaves the variables of a `def` and of a `box` inside of
them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from relax_aot.fusion.checking.ranges import Ranges
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.types import DType


@dataclass(eq=False, slots=True)
class Term:
    """Made by `World.term` alone."""

    kind: str
    label: Hashable
    dims: tuple[Dim, ...]
    args: tuple[Term, ...]
    free: frozenset[str]
    """Names of loop variables and of bound indices in it."""
    phis: frozenset[tuple[int, str]]
    """What it takes from earlier iterations: a fold and what that carries."""


class Bound(NamedTuple):
    """An index that was read from data."""

    value: Term
    low: Dim
    high: Dim
    trusted: bool


class Fold(NamedTuple):
    """A `def` term taken apart."""

    number: int
    variable: str
    start: Dim
    stop: Dim
    names: tuple[str, ...]
    first: tuple[Term, ...]
    next: tuple[Term, ...]

    @staticmethod
    def of(definition: Term) -> Fold:
        label = definition.label
        assert isinstance(label, tuple)
        number, variable, names = label
        count = len(names)
        first, following = definition.args[:count], definition.args[count:]
        start, stop = definition.dims
        return Fold(number, variable, start, stop, names, first, following)


def _own(kind: str, label: Hashable) -> frozenset[str]:
    """The variables of a term that have no meaning outside of it."""
    if kind not in ("def", "box"):
        return _NOTHING
    assert isinstance(label, tuple)
    return frozenset((label[1],) if kind == "def" else label)


_T = TypeVar("_T")
_NOTHING: frozenset[str] = frozenset()


def _union(one: frozenset[_T], other: frozenset[_T]) -> frozenset[_T]:
    """Most are empty or equal."""
    if not other or one is other:
        return one
    return one | other if one else other


class World(Ranges):
    """All terms of one check."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.bound: dict[str, Bound] = {}
        self._bound_names: dict[Bound, str] = {}
        self._terms: dict[tuple[Hashable, ...], Term] = {}
        self._substituted: dict[frozenset[tuple[str, Dim]], dict[Term, Term]] = {}
        self._free: dict[Dim, frozenset[str]] = {}

    def term(
        self,
        kind: str,
        label: Hashable = None,
        dims: tuple[Dim, ...] = (),
        args: tuple[Term, ...] = (),
    ) -> Term:
        key = (kind, label, dims, args)
        found = self._terms.get(key)
        if found is None:
            free, phis = self._open(kind, label, dims, args)
            found = self._terms[key] = Term(kind, label, dims, args, free, phis)
        return found

    def _open(
        self, kind: str, label: Hashable, dims: tuple[Dim, ...], args: tuple[Term, ...]
    ) -> tuple[frozenset[str], frozenset[tuple[int, str]]]:
        """`free` and `phis` of a term."""
        free: frozenset[str] = _NOTHING
        phis: frozenset[tuple[int, str]] = frozenset()
        for dim in dims:
            free = _union(free, self.free(dim))
        for arg in args:
            free, phis = _union(free, arg.free), _union(phis, arg.phis)
        if not free.isdisjoint(self.from_data):
            for name in free & self.from_data:
                phis = _union(phis, self.bound[name].value.phis)
        if kind == "phi":
            assert isinstance(label, tuple)
            phis |= {label}
        elif kind == "def":
            assert isinstance(label, tuple)
            phis = frozenset(phi for phi in phis if phi[0] != label[0])
        return free - _own(kind, label), phis

    def free(self, dim: Dim) -> frozenset[str]:
        """Variables in it; of a bound index, also those of its value."""
        result = self._free.get(dim)
        if result is None:
            names = dim.symbols
            result = frozenset(name for name in names if name in self.ranges or name in self.bound)
            for bound in (self.bound[name] for name in names if name in self.bound):
                result |= bound.value.free | self.free(bound.low) | self.free(bound.high)
            self._free[dim] = result
        return result

    def bind(self, bound: Bound) -> Dim:
        """The name of an index from data: the same for the same value and range."""
        name = self._bound_names.get(bound)
        if name is None:
            name = f"bound'{self.number()}"
            self._bound_names[bound] = name
            self.bound[name] = bound
            self.from_data.add(name)
        return Dim.of(name)

    def substitute(self, term: Term, values: Mapping[str, Dim]) -> Term:
        """With index expressions in place of variables."""
        names = frozenset(values)
        if term.free.isdisjoint(names):
            return term
        done = self._substituted.setdefault(frozenset(values.items()), {})
        return self._rebuild(term, values, lambda one: not one.free.isdisjoint(names), done)

    def substitute_dim(self, dim: Dim, values: Mapping[str, Dim]) -> Dim:
        """The same for an index expression. `Dim.substitute` leaves variables in the values of
        bound indices as they are."""
        (result,) = self.substitute(self.term("dim", None, (dim,)), values).dims
        return result

    def replace_phis(self, term: Term, number: int, rule: Callable[[Term], Term]) -> Term:
        """With another term in place of each `phi` of a fold."""
        if all(phi[0] != number for phi in term.phis):
            return term

        def concerned(one: Term) -> bool:
            return any(phi[0] == number for phi in one.phis)

        def on_phi(one: Term) -> Term:
            of_fold = one.kind == "phi" and isinstance(one.label, tuple) and one.label[0] == number
            return rule(one) if of_fold else one

        return self._rebuild(term, {}, concerned, {}, on_phi)

    def _rebuild(
        self,
        term: Term,
        values: Mapping[str, Dim],
        concerned: Callable[[Term], bool],
        done: dict[Term, Term],
        rule: Callable[[Term], Term] | None = None,
    ) -> Term:
        """`done`: terms that are rebuilt already."""
        names = values.keys()
        done_dims: dict[Dim, Dim] = {}

        def on_dim(dim: Dim) -> Dim:
            found = done_dims.get(dim)
            if found is None:
                found = done_dims[dim] = new_dim(dim)
            return found

        def new_dim(dim: Dim) -> Dim:
            if not dim.symbols:
                return dim
            replaced: dict[str, Dim] = {n: values[n] for n in dim.symbols if n in values}
            for name in dim.symbols & self.bound.keys():
                bound = self.bound[name]
                if concerned(bound.value) or names & (self.free(bound.low) | self.free(bound.high)):
                    made = Bound(on_term(bound.value), on_dim(bound.low), on_dim(bound.high),
                                 bound.trusted)  # fmt: skip
                    replaced[name] = self.bind(made)
            return self.of_digits(dim.substitute(replaced)) if replaced else dim

        def on_term(one: Term) -> Term:
            found = done.get(one)
            if found is not None:
                return found
            if not concerned(one):
                return one
            if own := names & _own(one.kind, one.label):
                return self.substitute(one, {n: v for n, v in values.items() if n not in own})
            dims, args = tuple(map(on_dim, one.dims)), tuple(map(on_term, one.args))
            made = self.term(one.kind, one.label, dims, args)
            if rule is not None:
                made = rule(made)
            done[one] = made
            return made

        return on_term(term)


# Narrow floats are computed wide and rounded where they are stored


def rounded(world: World, value: Term, dtype: DType) -> Term:
    """The value as memory of this type gives it back."""
    if not dtype.is_narrow or _representable(value, dtype):
        return value
    return world.term("round", dtype, (), (value,))


def cast(world: World, value: Term, source: DType, target: DType, mode: str) -> Term:
    if target is DType.F32 and source.is_narrow:
        return value
    if mode == "wrap" and target.is_narrow and (source is DType.F32 or source is target):
        return rounded(world, value, target)
    return world.term("cast", (source, target, mode), (), (value,))


def _representable(value: Term, dtype: DType) -> bool:
    """Memory of the type holds the value as it is."""
    match value.kind:
        case "leaf" | "read" | "undefined":
            assert isinstance(value.label, tuple)
            return value.label[1] is dtype
        case "round":
            return value.label is dtype
        case "cast":
            assert isinstance(value.label, tuple)
            return value.label[1] is dtype
        case "select":
            return _representable(value.args[1], dtype) and _representable(value.args[2], dtype)
    return False


def reachable(world: World, terms: Iterable[Term]) -> set[Term]:
    """These terms and all that they are made of, indices from data included."""
    found: set[Term] = set()
    ahead = list(terms)
    while ahead:
        term = ahead.pop()
        if term not in found:
            found.add(term)
            ahead += term.args
            names = frozenset[str]().union(*(dim.symbols for dim in term.dims))
            ahead += (world.bound[name].value for name in names & world.bound.keys())
    return found
