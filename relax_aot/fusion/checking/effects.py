# SPDX-License-Identifier: Apache-2.0
"""The loads and stores of each loop of a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relax_aot.fusion.checking.ranges import Ranges, exact_quotient, rise
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, Dim, FloorDiv, Mod
from relax_aot.ir.loops import (
    Assign,
    Bind,
    For,
    If,
    Let,
    Load,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.rewrite import map_index_dims

_Touched = tuple[bool, At, Mapping[str, tuple[Dim, Dim]]]
"""Whether it is stored, its index, and the ranges of the loops around it."""


@dataclass(frozen=True, slots=True)
class _Effects:
    """What a loop does, inner loops included."""

    stores: Mapping[str, int]
    """How many statements store to a buffer."""
    loads: frozenset[str]
    assigned: frozenset[str]
    divided: frozenset[tuple[str, Dim]]
    """Variables that an index of a store divides, and by what."""


class Loops:
    """The loops of one kernel. They live as long as this does, so that `id` names them."""

    DIGITS = ("/", "%")
    """Ends of the names of loops that one loop was split into."""

    def __init__(self) -> None:
        self._effects: dict[int, _Effects] = {}
        self._loads: dict[int, tuple[Load, ...]] = {}
        self._splits: dict[int, For] = {}

    def loads(self, stmt: Stmt) -> tuple[Load, ...]:
        """In the expressions of the statement itself."""
        found = self._loads.get(id(stmt))
        if found is None:
            found = tuple(expr for expr in expressions(stmt) if isinstance(expr, Load))
            self._loads[id(stmt)] = found
        return found

    def effects(self, loop: For) -> _Effects:
        found = self._effects.get(id(loop))
        if found is None:
            stores: Counter[str] = Counter()
            loads: set[str] = set()
            assigned: set[str] = set()
            divided: set[tuple[str, Dim]] = set()
            waiting = list(loop.body)
            while waiting:
                stmt = waiting.pop()
                match stmt:
                    case For():
                        inner = self.effects(stmt)
                        stores.update(inner.stores)
                        loads |= inner.loads
                        assigned |= inner.assigned
                        divided |= inner.divided
                    case If():
                        waiting += stmt.then + stmt.otherwise
                    case Store():
                        stores[stmt.buffer.name] += 1
                        divided |= set(_divided(stmt))
                    case Assign():
                        assigned.add(stmt.local.name)
                    case _:
                        pass
                loads |= {load.buffer.name for load in self.loads(stmt)}
            found = _Effects(stores, frozenset(loads), frozenset(assigned), frozenset(divided))
            self._effects[id(loop)] = found
        return found

    def split(self, loop: For, start: Dim, stop: Dim, ranges: Ranges) -> For:
        """A loop whose variable stores divide, as one loop in another: the same iterations in
        the same order."""
        if start != ZERO:
            return loop
        found = self._splits.get(id(loop))
        if found is None:
            found = loop
            outer, inner = (f"{loop.variable}{mark}" for mark in self.DIGITS)
            divided = sorted(self.effects(loop).divided, key=str)
            parts = [(by, exact_quotient(stop, by)) for n, by in divided if n == loop.variable]
            sizes = [(by, n) for by, n in parts if n is not None and n != ONE and by != ONE]
            known = ranges.known_le
            if sizes and not {outer, inner} & _names(loop.body):
                by, n = max(sizes, key=lambda s: s[0].constant if s[0].is_constant else 0)
                value = {loop.variable: Dim.of(outer) * by + Dim.of(inner)}
                if known(ZERO, by) and known(ZERO, n):
                    body = map_index_dims(loop.body, lambda dim: dim.substitute(value))
                    found = For(outer, ZERO, n, (For(inner, ZERO, by, body),))
            self._splits[id(loop)] = found
        return found

    def own_rows(
        self, loop: For, name: str, variable: str, dims: Mapping[str, Dim], ranges: Ranges
    ) -> bool:
        """On one axis, all that an iteration stores is its own, and what it loads is its own or
        stored by later iterations only."""
        found: list[_Touched] = []
        for stored, index, inner in self._touched(loop.body, name, dims, {}):
            if not any(variable in dim.symbols for dim in index):
                return False
            touched = (stored, tuple(map(ranges.simplified, index)), inner)
            found += [touched] if touched not in found else []
        found.sort(key=lambda touched: not touched[0])
        return bool(found) and any(
            _own_on(axis, found, variable, ranges) for axis in range(len(found[0][1]))
        )

    def _touched(
        self,
        body: tuple[Stmt, ...],
        name: str,
        dims: Mapping[str, Dim],
        ranges: Mapping[str, tuple[Dim, Dim]],
    ) -> Iterator[_Touched]:
        """Indices of loads and stores, with the ranges of the loops around them in `body`."""
        dims = dict(dims)
        for stmt in body:
            for load in self.loads(stmt):
                if load.buffer.name == name:
                    yield False, tuple(dim.substitute(dims) for dim in load.index), ranges
            match stmt:
                case Store() if stmt.buffer.name == name:
                    yield True, tuple(dim.substitute(dims) for dim in stmt.index), ranges
                case For():
                    inner = f"{stmt.variable}'in"
                    span = (stmt.start.substitute(dims), stmt.stop.substitute(dims))
                    around = {**dims, stmt.variable: Dim.of(inner)}
                    yield from self._touched(stmt.body, name, around, {**ranges, inner: span})
                case If():
                    yield from self._touched(stmt.then, name, dims, ranges)
                    yield from self._touched(stmt.otherwise, name, dims, ranges)
                case Let():
                    dims[stmt.name] = stmt.value.substitute(dims)
                case Bind():
                    # Nothing is known of it: no expression in it is the same twice.
                    dims[stmt.name] = Dim.of(f"{stmt.name}'data")
                    ranges = {**ranges, f"{stmt.name}'data": (ZERO, ZERO - 1)}
                case _:
                    pass


def _names(body: tuple[Stmt, ...]) -> set[str]:
    names: set[str] = set()
    for stmt in walk(body):
        names = names.union(*(dim.symbols for dim in index_dims(stmt)))
        names |= {stmt.variable} if isinstance(stmt, For) else set()
    return names


def _divided(store: Store) -> Iterator[tuple[str, Dim]]:
    """Names that the index divides, and by what."""
    for dim in store.index:
        for _, monomial in () if dim.is_polynomial else dim.terms:
            for atom, _ in monomial:
                if isinstance(atom, FloorDiv | Mod) and atom.numerator.symbol is not None:
                    yield atom.numerator.symbol, atom.denominator


def _own_on(axis: int, found: list[_Touched], variable: str, ranges: Ranges) -> bool:
    """`found` begins with stores, which say which rows are an iteration's own."""
    first = _row(found[0], axis, variable, ranges)
    if first is None:
        return False
    stride, low = first
    for touched in found[1:]:
        if _row(touched, axis, variable, ranges) != first:
            # Rows of later iterations are as they were before the loop.
            stored, index, inner = touched
            ends = _extremes(index[axis], inner)
            if stored or ends is None or not ranges.known_lt(ZERO, stride):
                return False
            least = ranges.simplified(ends[0])
            if not ranges.known_le(stride * Dim.of(variable) + low, least):
                return False
    return True


def _row(touched: _Touched, axis: int, variable: str, ranges: Ranges) -> tuple[Dim, Dim] | None:
    """The distance between rows of two iterations, and the first index in that of iteration 0;
    None where an iteration touches more than its row."""
    _, index, inner = touched
    dim = index[axis]
    stride = rise(dim, variable)
    if stride.symbols & {variable, *inner} or stride == ZERO:
        return None
    rest = dim - stride * Dim.of(variable)
    if variable in rest.symbols:
        return None
    ends = _extremes(rest, inner)
    if ends is None or not (ends[0].symbols | ends[1].symbols).isdisjoint({variable}):
        return None
    low, high = ends
    width = stride if ranges.known_lt(ZERO, stride) else -stride
    return (stride, low) if ranges.known_lt(high - low, width) else None


def _extremes(dim: Dim, ranges: Mapping[str, tuple[Dim, Dim]]) -> tuple[Dim, Dim] | None:
    """Least and greatest value over inner loops whose strides are positive numbers."""
    low = high = dim
    for name in reversed(list(ranges)):
        start, stop = ranges[name]
        for which, end in enumerate((low, high)):
            if name not in end.symbols:
                continue
            stride = rise(end, name)
            if not stride.is_constant or stride.constant <= 0 or start == stop + 1:
                return None
            put = end.substitute({name: stop - 1 if which else start})
            low, high = (low, put) if which else (put, high)
    return low, high
