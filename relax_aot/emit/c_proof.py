# SPDX-License-Identifier: Apache-2.0
"""What helps a value analysis of generated C (Frama-C Eva) to be exact, as ACSL comments.

`loop unroll` and `split` say in which order an analysis goes through the program. They assume
nothing: whatever they say, each iteration and each size is still checked. `admit` states the range
of an index that a kernel before has checked; that kernel itself is analyzed without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from relax_aot.emit.c_dims import Names, dim_c
from relax_aot.emit.c_reach import Apart, apart
from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.loops import (
    Apply,
    Bind,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Micro,
    Reserve,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)


@dataclass(frozen=True, slots=True)
class _Inside:
    """What is done in a statement: whether a number in it depends on data, and the names that sizes
    cut off, that arrays of the kernel are written along, and read along."""

    counted: bool = False
    clipped: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    def __or__(self, other: _Inside) -> _Inside:
        return _Inside(
            self.counted or other.counted,
            self.clipped | other.clipped,
            self.written | other.written,
            self.read | other.read,
        )


def admitted(name: str, low: Dim, high: Dim, names: Names, bounds: Bounds) -> str:
    """The range of an index. A size that C computes by a function other than a minimum or maximum
    is given by its range, since ACSL calls no functions of C."""
    ends = []
    for size, end in ((low, 0), (high, 1)):
        text = dim_c(size, names, bounds)
        text = text.replace("raot_min_i32(", r"\min(").replace("raot_max_i32(", r"\max(")
        ends.append(str(interval(size, bounds)[end]) if "raot_" in text else text)
    return f"/*@ admit {ends[0]} <= {name} && {name} <= {ends[1]}; */"


class Hints:
    """What is said of one kernel: of its loops, its cases and its sizes. `sizes`: those that are
    analyzed one by one."""

    def __init__(self, kernel: Kernel, sizes: Collection[str], bounds: Bounds) -> None:
        stmts = list(walk(kernel.body))
        self._reserved = {stmt.buffer.name for stmt in stmts if isinstance(stmt, Reserve)}
        self._known: dict[int, tuple[Stmt, _Inside]] = {}
        """By identity, with the statement, so that no other takes its place."""
        loops = (stmt for stmt in stmts if isinstance(stmt, For))
        known = Apart(
            frozenset(loop.variable for loop in loops if self.one_by_one(loop)),
            self._size_by_size(stmts, sizes),
        )
        alone = apart(kernel, known, bounds)
        self._loops = alone.loops
        self.sizes = (alone.sizes | self._filled_at_once(stmts)) & frozenset(sizes)

    def of_loop(self, loop: For, stop: str) -> list[str]:
        """An analysis ends a loop with fewer iterations earlier than after these 4096. Where `stop`
        says how much of an array of the kernel is filled, each value of it is clear by itself."""
        alone = self.one_by_one(loop) or loop.variable in self._loops
        fills = not loop.stop.is_constant and loop.variable in self._inside(loop).written
        # ACSL calls no functions of C.
        return [f"split {stop}"] * (fills and "raot_" not in stop) + ["loop unroll 4096"] * alone

    def one_by_one(self, loop: For) -> bool:
        """Whether the prover must analyze each iteration of a loop separately: the loop fills an
        array of the kernel or goes through its rows, counts by data, or has a body that depends
        on a size."""
        nested = any(isinstance(stmt, For) for stmt in loop.body)
        inside = self._inside(loop)
        along = inside.clipped | inside.written | (inside.read if nested else frozenset())
        return inside.counted or loop.variable in along

    def filled_in(self, case: If) -> bool:
        """Whether more of an array of the kernel is filled in one case: each is clear by itself."""
        return bool(self._inside(case).written)

    def _inside(self, stmt: Stmt) -> _Inside:
        known = self._known.get(id(stmt))
        if known is None:
            known = self._known[id(stmt)] = (stmt, self._looked_at(stmt))
        return known[1]

    def _looked_at(self, stmt: Stmt) -> _Inside:
        clipped = (part for dim in index_dims(stmt) for part in dim.parts[1:])
        # A micro-kernel writes where its sizes add up, as the first step of a window and the
        # number of steps that follow do.
        sizes = (size.symbols for size in (stmt.sizes if isinstance(stmt, Micro) else ()))
        own = _Inside(
            isinstance(stmt, Bind) and stmt.trusted and not _held(stmt.value),
            frozenset[str]().union(*(part.symbols for part in clipped), *sizes),
            self._along([(stmt.buffer, stmt.index)] if isinstance(stmt, Store) else []),
            self._along([(e.buffer, e.index) for e in expressions(stmt) if isinstance(e, Load)]),
        )
        match stmt:
            case For():
                parts = stmt.body
            case If():
                parts = stmt.then + stmt.otherwise
            case _:
                parts = ()
        return reduce(or_, map(self._inside, parts), own)

    def _size_by_size(self, stmts: Iterable[Stmt], sizes: Collection[str]) -> frozenset[str]:
        """Sizes of which something is a difference, where a loop begins whose iterations are looked
        at one by one, or that a micro-kernel takes twice, as the columns of an image and of the
        part that is read: what is done is clear for each value by itself."""
        rests_on: dict[str, frozenset[str]] = {name: frozenset({name}) for name in sizes}
        found: set[str] = set()
        for stmt in stmts:
            if isinstance(stmt, Let):
                rests_on[stmt.name] = _sizes(stmt.value, rests_on)
                found |= _subtracted(stmt.value, rests_on)
            if isinstance(stmt, For):
                found |= _subtracted(stmt.start, rests_on) | _subtracted(stmt.stop, rests_on)
                first, inside = _sizes(stmt.start, rests_on), self._inside(stmt)
                if first and (inside.counted or stmt.variable in inside.clipped):
                    found |= first | _sizes(stmt.stop, rests_on)
            if isinstance(stmt, Micro):
                for size in {one for one in stmt.sizes if stmt.sizes.count(one) > 1}:
                    found |= _sizes(size, rests_on)
        return frozenset(found)

    def _filled_at_once(self, stmts: Iterable[Stmt]) -> frozenset[str]:
        """Sizes on which rests how many rows of an array of the kernel one micro-kernel fills: an
        interval of lengths says of none of the rows behind the first that it is filled."""
        fills = (
            size
            for stmt in stmts
            if isinstance(stmt, Micro)
            and any(load.buffer.name in self._reserved for load in stmt.written)
            for size in stmt.sizes
        )
        rows = (size for size in fills if any(factor != 1 for factor, _ in size.terms))
        return frozenset[str]().union(*(size.symbols for size in rows))

    def _along(self, places: Iterable[tuple[Buffer, tuple[Dim, ...]]]) -> frozenset[str]:
        own = (dim for buffer, index in places if buffer.name in self._reserved for dim in index)
        return frozenset[str]().union(*(dim.symbols for dim in own))


def _held(value: Expr) -> bool:
    """Whether least and greatest values stand in the C themselves."""
    while isinstance(value, Cast):
        value = value.value
    match value:
        case Apply("max", (Apply("min"), _)):
            return True
        case _:
            return False


def differences(dim: Dim) -> tuple[str, ...]:
    """The symbols of which `dim` is a difference, in order of their names."""
    return tuple(sorted(_subtracted(dim, {name: frozenset({name}) for name in dim.symbols})))


def _sizes(dim: Dim, rests_on: dict[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(rests_on.get(name, frozenset()) for name in dim.symbols))


def _subtracted(dim: Dim, rests_on: dict[str, frozenset[str]]) -> frozenset[str]:
    """The sizes of differences of two sizes, inside min and the like too."""
    found = frozenset[str]()
    for part in dim.parts:
        terms = [(coefficient, Dim(((1, factors),))) for coefficient, factors in part.terms]
        less = [_sizes(term, rests_on) for coefficient, term in terms if coefficient < 0]
        more = [_sizes(term, rests_on) for coefficient, term in terms if coefficient > 0]
        if any(less) and any(more):
            found = found.union(*less, *more)
    return found
