"""Values as terms: what is computed, without the loops that compute it.

A term is an operator with operands and index expressions. A loop that changes scalars (or
arrays that are read again) is a `fold`: its definition `def` holds range, first values and
next values, in which `phi` stands for the value at the start of an iteration. `at` is the
value at the start of a given iteration, seen from outside the definition.

Equal terms are one object. Loop variables have names of their own everywhere, so nothing is
ever captured by a substitution.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from relax_aot.ir.dim_expr import Atom
from relax_aot.ir.dims import (
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
from relax_aot.ir.types import DType

ZERO = Dim.of(0)
ONE = Dim.of(1)
At = tuple[Dim, ...]


class Term:
    """Made by `World.term` alone."""

    __slots__ = ("args", "dims", "free", "kind", "label", "phis")

    def __init__(
        self,
        kind: str,
        label: Hashable,
        dims: tuple[Dim, ...],
        args: tuple[Term, ...],
        free: frozenset[str],
        phis: frozenset[tuple[int, str]],
    ) -> None:
        self.kind = kind
        self.label = label
        self.dims = dims
        self.args = args
        self.free = free
        """Names of loop variables and of bound indices in it."""
        self.phis = phis
        """What it takes from earlier iterations: a fold and what that carries."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An index that was read from data."""

    value: Term
    low: Dim
    high: Dim
    trusted: bool


@dataclass(frozen=True, slots=True)
class Fold:
    """A `def` term taken apart."""

    number: int
    variable: str
    start: Dim
    stop: Dim
    names: tuple[str, ...]
    first: tuple[Term, ...]
    next: tuple[Term, ...]


T = TypeVar("T")
NOTHING: frozenset[str] = frozenset()


def _union(one: frozenset[T], other: frozenset[T]) -> frozenset[T]:
    """Most are empty or equal."""
    if not other or one is other:
        return one
    return one | other if one else other


class World:
    """All terms of one check, the ranges of loop variables, and what is known of sizes."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        self.bound: dict[str, Bound] = {}
        self._bound_names: dict[Bound, str] = {}
        self._terms: dict[tuple[Hashable, ...], Term] = {}
        self._count = 0
        self._substituted: dict[frozenset[tuple[str, Dim]], dict[Term, Term]] = {}
        self._free: dict[Dim, frozenset[str]] = {}
        self._proofs: dict[Dim, bool] = {}
        self._simplified: dict[Dim, Dim] = {}
        self.digits: set[str] = set()
        """Variables of loops that were split where the source divides."""

    def number(self) -> int:
        self._count += 1
        return self._count

    def variable(self, name: str, start: Dim, stop: Dim) -> str:
        fresh = f"{name.partition(chr(39))[0]}'{self.number()}"
        self.ranges[fresh] = (start, stop)
        return fresh

    # Terms

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
            free: frozenset[str] = NOTHING
            phis: frozenset[tuple[int, str]] = frozenset()
            for dim in dims:
                free = _union(free, self.free(dim))
            for arg in args:
                free, phis = _union(free, arg.free), _union(phis, arg.phis)
            if self.bound:
                for name in free & self.bound.keys():
                    phis = _union(phis, self.bound[name].value.phis)
            if kind == "phi":
                assert isinstance(label, tuple)
                phis |= {label}
            elif kind == "def":
                assert isinstance(label, tuple)
                phis = frozenset(phi for phi in phis if phi[0] != label[0])
                free -= {label[1]}
            elif kind == "box":
                assert isinstance(label, tuple)
                free -= set(label)
            found = Term(kind, label, dims, args, free, phis)
            self._terms[key] = found
        return found

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
        return Dim.of(name)

    # Rebuilding

    def substitute(self, term: Term, values: Mapping[str, Dim]) -> Term:
        """With index expressions in place of variables."""
        names = frozenset(values)
        if term.free.isdisjoint(names):
            return term
        done = self._substituted.setdefault(frozenset(values.items()), {})
        return self._rebuild(term, values, lambda one: not one.free.isdisjoint(names), done)

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
            dims, args = tuple(map(on_dim, one.dims)), tuple(map(on_term, one.args))
            made = self.term(one.kind, one.label, dims, args)
            if rule is not None:
                made = rule(made)
            done[one] = made
            return made

        return on_term(term)

    def definition(
        self,
        number: int,
        variable: str,
        span: tuple[Dim, Dim],
        parts: Mapping[str, tuple[Term, Term]],
    ) -> Term:
        """A fold; `parts` are first and next value of each thing that it carries."""
        names = tuple(parts)
        values = (*(parts[n][0] for n in names), *(parts[n][1] for n in names))
        return self.term("def", (number, variable, names), span, values)

    def fold(self, definition: Term) -> Fold:
        label = definition.label
        assert isinstance(label, tuple)
        number, variable, names = label
        count = len(names)
        first, following = definition.args[:count], definition.args[count:]
        start, stop = definition.dims
        return Fold(number, variable, start, stop, names, first, following)

    # Narrow floats: computed wide, rounded where they are stored

    def rounded(self, value: Term, dtype: DType) -> Term:
        """The value as memory of this type gives it back."""
        if not is_narrow(dtype) or representable(value, dtype):
            return value
        return self.term("round", dtype, (), (value,))

    def cast(self, value: Term, source: DType, target: DType, mode: str) -> Term:
        if target is DType.F32 and is_narrow(source):
            return value
        if mode == "wrap" and is_narrow(target) and (source is DType.F32 or source is target):
            return self.rounded(value, target)
        return self.term("cast", (source, target, mode), (), (value,))

    # Index expressions

    def of_digits(self, dim: Dim) -> Dim:
        """Simplified where it speaks of a loop that was split for its divisions."""
        return self.simplified(dim) if dim.symbols & self.digits else dim

    def simplified(self, dim: Dim) -> Dim:
        """Without divisions and limits that make no difference for the variables' ranges."""
        if all(isinstance(atom, str) for _, monomial in dim.terms for atom, _ in monomial):
            return dim
        found = self._simplified.get(dim)
        if found is None:
            found = ZERO
            for factor, monomial in dim.terms:
                term = Dim.of(factor)
                for atom, power in monomial:
                    for _ in range(power):
                        term = term * self._atom(atom)
                found = found + term
            self._simplified[dim] = found
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

    # Proofs

    def known_le(self, low: Dim, high: Dim) -> bool:
        """low <= high for all sizes and all values of the variables; False: not proven."""
        apart = high - low
        if apart.is_constant:
            return apart.constant >= 0
        found = self._proofs.get(apart)
        if found is None:
            found = self._nonnegative(apart, len(self.ranges))
            self._proofs[apart] = found
        return found

    def known_lt(self, low: Dim, high: Dim) -> bool:
        return self.known_le(low + 1, high)

    def known_eq(self, one: Dim, other: Dim) -> bool:
        if one == other:
            return True
        apart = one - other
        if apart.is_constant:
            return False
        if not any(name in self.ranges or name in self.bound for name in apart.symbols):
            return prove_eq(one, other, self.bounds)
        return self.known_le(one, other) and self.known_le(other, one)

    def _nonnegative(self, dim: Dim, steps: int) -> bool:
        """The newest variable at the end of its range where `dim` is least, and so on."""
        names = [n for n in dim.symbols if n in self.ranges]
        if any(name in self.bound for name in dim.symbols):
            return False
        if not names or steps == 0:
            return not names and prove_le(0, dim, self.bounds)
        name = max(names, key=lambda n: int(n.rpartition("'")[2]))
        stride = rise(dim, name)
        if name in stride.symbols:
            return False
        start, stop = self.ranges[name]
        if self.known_le(ZERO, stride):
            return self._nonnegative(dim.substitute({name: start}), steps - 1)
        if self.known_le(stride, ZERO):
            return self._nonnegative(dim.substitute({name: stop - 1}), steps - 1)
        return False


def rise(dim: Dim, name: str) -> Dim:
    """How much more it is when the variable is one more."""
    return ONE if dim.symbol == name else dim.substitute({name: Dim.of(name) + 1}) - dim


def is_narrow(dtype: DType) -> bool:
    return dtype in (DType.F16, DType.BF16) or dtype.is_stored_float


def representable(value: Term, dtype: DType) -> bool:
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
            return representable(value.args[1], dtype) and representable(value.args[2], dtype)
    return False


def exact_quotient(dim: Dim, by: Dim) -> Dim | None:
    """How many times `by` is `dim`, as one product; None where something is left."""
    if not dim.terms or not by.terms:
        return None
    (factor, monomial), (divisor, atoms) = dim.terms[0], by.terms[0]
    if factor % divisor:
        return None
    powers = dict(monomial)
    for atom, power in atoms:
        powers[atom] = powers.get(atom, 0) - power
    if any(power < 0 for power in powers.values()):
        return None
    kept = tuple((atom, powers[atom]) for atom, _ in monomial if powers[atom])
    times = Dim(((factor // divisor, kept),))
    return times if times * by == dim else None
