# SPDX-License-Identifier: Apache-2.0
"""Symbols, names and conditions of a function under construction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.ir.check import checked_relations
from relax_aot.ir.dim_expr import Value
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    Proof,
    Relation,
    assume,
    prove,
    prove_lt,
    simplify,
)
from relax_aot.ir.graph import (
    Call,
    Condition,
    Constant,
    Function,
    Symbol,
    Var,
    attrs_of,
)
from relax_aot.ir.names import unused_name
from relax_aot.ops._op import Array

MADE_FOR = "a bound of the generated code"


class SizeError(RelaxAotError):
    """A condition on sizes that no allowed size fulfills."""


class UnboundedSize(RelaxAotError):
    """A data-dependent size without a bound."""

    def __init__(self, symbol: str, origin: str) -> None:
        self.symbol = symbol
        super().__init__(f"{origin} depends on data; give --bound {symbol}=... for the maximum")


@dataclass
class Shared:
    """What all functions of a module under construction share."""

    symbols: list[Symbol] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    by_digest: dict[tuple[str, str], Var] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    known: dict[str, Array] = field(default_factory=dict)
    measured: dict[str, Array] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    operators: dict[str, str] = field(default_factory=dict)
    """By the origin of calls, the operator of the source model."""
    narrowed: dict[str, tuple[int, int]] = field(default_factory=dict)
    requested: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What the user says of symbols of data-dependent sizes."""
    used: set[str] = field(default_factory=set)
    """Those of them that the model turned out to have."""
    bounds: Bounds = field(default_factory=lambda: Bounds.of({}))
    replaceable: bool = False
    keeps_half: bool = False
    """Weights of half precision stay so on every board (see Module.keeps_half)."""

    assumed: list[Relation] = field(default_factory=list)
    assumptions: list[Relation] = field(default_factory=list)
    """What proofs took from highs that may be raised when the project is compiled."""
    assumptions_in_part: list[Relation] = field(default_factory=list)
    """The same where it needs to hold for the narrowed sizes only."""

    def set_bounds(self) -> None:
        declared = {s.name: (s.low, s.high) for s in self.symbols}
        ranges = declared | self.narrowed
        raisable = frozenset(
            s.name
            for s in self.symbols
            for low, high in [ranges[s.name]]
            if s.raisable and high == s.high and (low == s.low or low < high)
        )
        self.bounds = assume(replace(Bounds.of(ranges), raisable=raisable), self.assumed)


def value_name(requested: str) -> str:
    """A value name of the text form: letters, digits, `_`, `.`."""
    base = re.sub(r"[^A-Za-z0-9_.]+", "_", requested).strip("_.") or "v"
    return f"v{base}" if base[0].isdigit() else base


class Sizes:
    """The sizes of a function: what is proved of them, and what the C has to check."""

    def __init__(self, name: str = "main", shared: Shared | None = None) -> None:
        self.name = name
        self.shared = shared or Shared()
        self.params: list[Var] = []
        self.body: list[Call] = []

    # Names and symbols

    def unique(self, requested: str) -> str:
        """A value name that is unique in the module."""
        name = unused_name(value_name(requested), self.shared.names)
        self.shared.names.add(name)
        return name

    def symbol(self, symbol: Symbol) -> Dim:
        assert all(symbol.name != s.name for s in self.shared.symbols), symbol
        self.shared.symbols.append(symbol)
        self.shared.set_bounds()
        return Dim.of(symbol.name)

    def inner_name(self, requested: str) -> str:
        """A name for a symbol that the model computes; users bound it by that name."""
        taken = {s.name.lower() for s in self.shared.symbols}
        base = re.sub(r"[^A-Za-z0-9_]+", "_", requested).strip("_") or "size"
        base = base if base[0].isalpha() else f"n_{base}"
        name, count = base, 1
        while name.lower() in taken:
            count += 1
            name = f"{base}_{count}"
        return name

    @contextmanager
    def narrowed(self, ranges: Mapping[str, tuple[int, int]]) -> Iterator[None]:
        """What is built inside runs for these sizes only, so that proofs may use them."""
        shared, outer = self.shared, self.shared.narrowed
        shared.narrowed = outer | dict(ranges)
        shared.set_bounds()
        try:
            yield
        finally:
            shared.narrowed = outer
            shared.set_bounds()

    @contextmanager
    def during(self, relation: Relation) -> Iterator[None]:
        """What is built inside runs only where the relation holds, so that proofs may use it."""
        self.shared.assumed.append(relation)
        self.shared.set_bounds()
        try:
            yield
        finally:
            self.shared.assumed.remove(relation)
            self.shared.set_bounds()

    @property
    def bounds(self) -> Bounds:
        return self.shared.bounds

    # Conditions

    def relations(self) -> list[Relation]:
        """The equations that hold from here on: they are checked on entry, or in a call above."""
        stated = [(c.relation, c.left, c.right) for c in self.shared.conditions]
        checked = [relation for call in self.body for relation in checked_relations(call)]
        return [relation for relation in (*stated, *checked) if relation[0] == "=="]

    def proves(self, left: Value, relation: str, right: Value) -> bool:
        """Whether it holds; what that assumes is kept."""
        return self.accept(prove(left, relation, right, self.bounds))

    def accept(self, proof: Proof) -> bool:
        """Keep what a proof assumes, so that it is checked. Whether the proof holds."""
        self._keep_assumptions_of(proof)
        return bool(proof)

    def _keep_assumptions_of(self, proof: Proof) -> None:
        shared = self.shared
        kept = shared.assumptions_in_part if shared.narrowed else shared.assumptions
        kept += proof.assumptions

    def accepted(self, result: Array) -> Array:
        """The elements of a result of shape arithmetic, once their assumptions are kept."""
        values = np.array(result, object)
        for at, value in enumerate(values.flat):
            if isinstance(value, Proof):
                self._keep_assumptions_of(value)  # not `accept`: a size is neither true nor false
                values.flat[at] = value.value
        return values

    def same_sizes(self, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
        return len(a) == len(b) and all(self.proves(x, "==", y) for x, y in zip(a, b, strict=True))

    def assume(self, conditions: Iterable[Condition]) -> None:
        """Conditions that the user states: checked on entry, and facts from here on."""
        for condition in conditions:
            self.require(condition)
            self.shared.assumed.append((condition.relation, condition.left, condition.right))
        self.shared.set_bounds()

    def require(self, condition: Condition, origin: str = "") -> None:
        """Prove a condition, or keep it for a check on entry."""
        left, right = condition.left, condition.right
        inner = {s.name for s in self.shared.symbols if s.inner}
        # Sizes that the model computes cannot be checked on entry.
        computed = bool((left.symbols | right.symbols) & inner)
        proof = prove(left, condition.relation, right, self.bounds)
        if proof and (computed or not proof.assumptions):
            self.accept(proof)
            return
        closed = self.bounds.closed
        if prove_lt(right, left, closed) or (
            condition.relation == "==" and prove_lt(left, right, closed)
        ):
            why = f": {condition.origin}" if condition.origin else ""
            used = [s for s in self.shared.symbols if s.name in left.symbols | right.symbols]
            allowed = ", ".join(f"{s.name} is {s.low}..{s.high}" for s in used)
            bound = f"; {allowed} (--bound)" if used else ""
            raise SizeError(
                f"{left} {condition.relation} {right} does not hold for any allowed size"
                f"{why}{bound}"
            )
        left, right = simplify(left, self.bounds), simplify(right, self.bounds)
        found = Condition(condition.relation, left, right, condition.origin or origin)
        if computed:
            self._check(found)
        else:
            self._keep(found)

    def _keep(self, found: Condition) -> None:
        if all(str(found) != str(c) for c in self.shared.conditions):
            self.shared.conditions.append(found)

    def keep_assumptions(self) -> None:
        """What followed from highs becomes a check, so that they may be raised. Where it
        cannot be checked on entry, or holds in part only, the highs are what is checked."""
        shared = self.shared
        entry = {s.name: s.high for s in shared.symbols if not s.inner and s.low < s.high}
        fixed = {s.name for s in shared.symbols if not s.inner} - entry.keys()
        highs: set[str] = set()
        for relation, left, right in shared.assumptions:
            symbols = left.symbols | right.symbols
            if symbols <= entry.keys() | fixed:
                self.require(Condition(relation, left, right, MADE_FOR))
            else:
                highs |= entry.keys()
        for _, left, right in shared.assumptions_in_part:
            symbols = left.symbols | right.symbols
            highs |= symbols if symbols <= entry.keys() | fixed else entry.keys()
        for name in sorted(highs & entry.keys()):
            self.require(Condition("<=", Dim.of(name), Dim.of(entry[name]), MADE_FOR))

    def _check(self, condition: Condition) -> None:
        """A check where the sizes are known: some of them the model computes."""
        attrs = {name: getattr(condition, name) for name in ("relation", "left", "right")}
        call = Call((), "check", (), attrs_of(attrs), condition.origin)
        if call not in self.body:
            self.body.append(call)
