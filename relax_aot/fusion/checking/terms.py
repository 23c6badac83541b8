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

from relax_aot.ir.dims import Bounds, Dim, prove_eq, prove_le
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


class World:
    """All terms of one check, the ranges of loop variables, and what is known of sizes."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        self.bound: dict[str, Bound] = {}
        self._bound_names: dict[Bound, str] = {}
        self._terms: dict[tuple[Hashable, ...], Term] = {}
        self._count = 0
        self._proofs: dict[Dim, bool] = {}

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
            free = frozenset[str]().union(*map(self.free, dims), *(a.free for a in args))
            phis = frozenset[tuple[int, str]]().union(*(a.phis for a in args))
            for name in free:
                if name in self.bound:
                    phis |= self.bound[name].value.phis
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
        names = dim.symbols
        result = frozenset(name for name in names if name in self.ranges or name in self.bound)
        for name in names:
            if name in self.bound:
                bound = self.bound[name]
                result |= bound.value.free | self.free(bound.low) | self.free(bound.high)
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
        return self._rebuild(term, values, lambda one: bool(one.free & names), None)

    def replace_phis(self, term: Term, number: int, rule: Callable[[Term], Term]) -> Term:
        """With another term in place of each `phi` of a fold."""

        def concerned(one: Term) -> bool:
            return any(phi[0] == number for phi in one.phis)

        def on_phi(one: Term) -> Term:
            of_fold = one.kind == "phi" and isinstance(one.label, tuple) and one.label[0] == number
            return rule(one) if of_fold else one

        return self._rebuild(term, {}, concerned, on_phi)

    def _rebuild(
        self,
        term: Term,
        values: Mapping[str, Dim],
        concerned: Callable[[Term], bool],
        rule: Callable[[Term], Term] | None,
    ) -> Term:
        names = values.keys()
        done: dict[Term, Term] = {}
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
            return dim.substitute(replaced) if replaced else dim

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
        rise = dim.substitute({name: Dim.of(name) + 1}) - dim
        if name in rise.symbols:
            return False
        start, stop = self.ranges[name]
        if self.known_le(ZERO, rise):
            return self._nonnegative(dim.substitute({name: start}), steps - 1)
        if self.known_le(rise, ZERO):
            return self._nonnegative(dim.substitute({name: stop - 1}), steps - 1)
        return False


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
