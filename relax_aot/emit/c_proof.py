"""What helps a value analysis of generated C (Frama-C Eva) to be exact, as ACSL comments.

`loop unroll` and `split` say in which order an analysis goes through the program. They assume
nothing: whatever they say, each turn and each size is still checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from relax_aot.ir.dims import Dim, FloorDiv, Max, Min, Mod
from relax_aot.ir.loops import (
    Bind,
    For,
    Let,
    Load,
    Reserve,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)

TURNS = 4096
"""Turns that are looked at one by one. A loop that has fewer ends earlier."""


def turn_by_turn(loop: For, reserved: Collection[str]) -> bool:
    """Whether a loop is clear only when each turn is looked at by itself: it fills an array of
    the kernel or goes through its rows, counts what data decide, or what is done in a turn is
    cut off by a size."""
    nested = any(isinstance(stmt, For) for stmt in loop.body)
    for stmt in (loop, *walk(loop.body)):
        if isinstance(stmt, Bind) and stmt.trusted:
            return True
        if any(loop.variable in clipped(dim) for dim in index_dims(stmt)):
            return True
        places = [] if not nested else [(load.buffer, load.index) for load in _loads(stmt)]
        if isinstance(stmt, Store):
            places.append((stmt.buffer, stmt.index))
        for buffer, index in places:
            along = any(loop.variable in dim.symbols for dim in index)
            if buffer.name in reserved and along:
                return True
    return False


def _loads(stmt: Stmt) -> Iterator[Load]:
    for expr in expressions(stmt):
        if isinstance(expr, Load):
            yield expr


@lru_cache(maxsize=1 << 14)
def clipped(dim: Dim) -> frozenset[str]:
    """Symbols inside min, max, quotients and remainders."""
    found: set[str] = set()
    for _, factors in dim.terms:
        for atom, _ in factors:
            found |= {name for inner in _inside(atom) for name in inner.symbols}
    return frozenset(found)


def reserved_names(body: Iterable[Stmt]) -> frozenset[str]:
    return frozenset(stmt.buffer.name for stmt in walk(body) if isinstance(stmt, Reserve))


def size_by_size(body: tuple[Stmt, ...], sizes: Collection[str]) -> tuple[str, ...]:
    """Sizes of which something is a difference, or where a loop begins whose turns are looked
    at one by one: what is done is clear for each value by itself."""
    rests_on: dict[str, frozenset[str]] = {name: frozenset({name}) for name in sizes}
    found: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Let):
            rests_on[stmt.name] = _sizes(stmt.value, rests_on)
            found |= _subtracted(stmt.value, rests_on)
        if isinstance(stmt, For):
            found |= _subtracted(stmt.start, rests_on) | _subtracted(stmt.stop, rests_on)
            first = _sizes(stmt.start, rests_on)
            if first and turn_by_turn(stmt, ()):
                found |= first | _sizes(stmt.stop, rests_on)
    return tuple(name for name in sizes if name in found)


def _sizes(dim: Dim, rests_on: dict[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(rests_on.get(name, frozenset()) for name in dim.symbols))


def _subtracted(dim: Dim, rests_on: dict[str, frozenset[str]]) -> frozenset[str]:
    """The sizes of differences of two sizes, inside min and the like too."""
    parts = [(coefficient, Dim(((1, factors),))) for coefficient, factors in dim.terms]
    less = [_sizes(part, rests_on) for coefficient, part in parts if coefficient < 0]
    more = [_sizes(part, rests_on) for coefficient, part in parts if coefficient > 0]
    found = frozenset[str]()
    if any(less) and any(more):
        found = found.union(*less, *more)
    for _, factors in dim.terms:
        for atom, _ in factors:
            for inner in _inside(atom):
                found |= _subtracted(inner, rests_on)
    return found


def _inside(atom: object) -> tuple[Dim, ...]:
    match atom:
        case FloorDiv() | Mod():
            return atom.numerator, atom.denominator
        case Min() | Max():
            return atom.args
        case _:
            return ()
