# SPDX-License-Identifier: Apache-2.0
"""Proves that the iterations of a loop may run in any order, or at once.

No iteration may access an element that another one writes (dependence tests of dependences.py),
except in scratch memory that is private: there, each iteration reads only what it has written
itself, so it may have a copy of its own. A read is covered by an earlier store of the iteration
whose addresses are one run of memory: loops whose strides are the lengths of the runs inside, and
loops over tiles.

Source: array privatization (Tu and Padua, Automatic array privatization, LCPC 1993).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile

from relax_aot.fusion.checking.dependences import Access, Accesses, Pair
from relax_aot.fusion.checking.ranges import Ranges, rise
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, Min, ceildiv
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    For,
    Kernel,
    Load,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
    walk,
)


def accesses_of(kernel: Kernel) -> Accesses:
    """Those that private_scratch compares, for all loops of the kernel."""
    overwritten = {read for read, _ in kernel.in_place}
    return Accesses(kernel, frozenset(_written(kernel) | overwritten))


def _written(kernel: Kernel) -> set[str]:
    return {buffer.name for buffer in (*kernel.outputs, *kernel.scratch)}


def private_scratch(
    kernel: Kernel, loop: For, bounds: Bounds, accesses: Accesses | None = None
) -> frozenset[str] | None:
    """The scratch buffers of which each iteration of `loop`, a loop of the kernel, needs a copy
    of its own; None where its iterations are not proven to be independent."""
    if not _keeps_to_itself(kernel, loop):
        return None
    written = _written(kernel)
    accesses = accesses or accesses_of(kernel)
    own = accesses.loops.get(id(loop))
    if own is None:
        return None
    pairs = [*((name, name) for name in sorted(written)), *kernel.in_place]
    test = _Independence(accesses, bounds, own)
    shared = {target for source, target in pairs if not test.proven(source, target)}
    scratch = {buffer.name for buffer in kernel.scratch}
    if not shared <= scratch or not all(map(test.private, sorted(shared))):
        return None
    return frozenset(shared)


def _keeps_to_itself(kernel: Kernel, loop: For) -> bool:
    """It cannot fail, and assigns no scalar and uses no registers from outside."""
    inner = list(walk(loop.body))
    if any(isinstance(stmt, Bind) and not stmt.trusted for stmt in inner):
        return False
    declared = {stmt.local for stmt in inner if isinstance(stmt, Declare)}
    if any(isinstance(stmt, Assign) and stmt.local not in declared for stmt in inner):
        return False
    reserved = {stmt.buffer.name for stmt in inner if isinstance(stmt, Reserve)}
    known = {buffer.name for buffer in kernel.buffers} | reserved
    return {buffer.name for stmt in inner for buffer in _buffers(stmt)} <= known


def _buffers(stmt: Stmt) -> Iterator[Buffer]:
    match stmt:
        case Store():
            yield stmt.buffer
        case Multiply():
            yield stmt.sums
        case _:
            pass
    yield from (expr.buffer for expr in expressions(stmt) if isinstance(expr, Load))


class _Independence:
    """The iterations of one loop."""

    def __init__(self, accesses: Accesses, bounds: Bounds, loop: For) -> None:
        self._accesses, self._bounds, self._loop = accesses, bounds, loop

    def proven(self, source: str, target: str) -> bool:
        """No iteration stores an element of `target` that another accesses in `source`."""
        pair = Pair(self._accesses, self._bounds, source, target)
        stores = self._inside(self._accesses.stores[target])
        others = self._inside(self._accesses.loads[source])
        others += self._inside(self._accesses.stores[source])
        return all(self._apart(pair, store, other) for store in stores for other in others)

    def _apart(self, pair: Pair, store: Access, other: Access) -> bool:
        common, level = _common(store, other), store.scope.loops.index(self._loop)
        return pair.differ(store, other, level, common) and pair.differ(other, store, level, common)

    def _inside(self, accesses: Sequence[Access]) -> list[Access]:
        return [one for one in accesses if self._loop in one.scope.loops]

    def private(self, name: str) -> bool:
        """The loop alone accesses the buffer, and each load follows a store of its iteration."""
        loads, stores = self._accesses.loads[name], self._accesses.stores[name]
        if self._inside(loads) != loads or self._inside(stores) != stores:
            return False
        if not all(store.places for store in stores):  # sums of tiles
            return False
        return all(any(self._covers(store, load) for store in stores) for load in loads)

    def _covers(self, store: Access, load: Access) -> bool:
        """The store precedes the load in the same iteration, and writes what it reads."""
        one, other = store.scope, load.scope
        common = _common(store, load)
        if one.path >= other.path or one.sides != other.sides[: len(one.sides)]:
            return False
        if self._loop not in one.loops[:common] or (one.call == other.call != (0, 0)):
            return False
        if one.call != (0, 0) and common > one.call[1]:
            return False
        ranges = Ranges(self._bounds)
        values: dict[str, Dim] = {}
        for loop in one.loops[:common]:
            _enter(loop, values, ranges)
        written = [_Addresses(at, (*one.loops[common:], *more)) for at, more in store.places]
        read = [_Addresses(at, (*other.loops[common:], *more)) for at, more in load.places]
        data = self._accesses.data.keys()
        return any(
            _within(*pair, values, ranges)
            for a, b in product(written, read)
            if not (a.at.symbols | b.at.symbols) & data
            for pair in ((a, b), _without_equal_loops(a, b, values, ranges))
        )


@dataclass(frozen=True, slots=True)
class _Addresses:
    """The values of `at` for all iterations of loops."""

    at: Dim
    loops: tuple[For, ...]

    def without(self, loop: For) -> _Addresses:
        """Those of the first iteration of one of the loops."""
        rest = tuple(other for other in self.loops if other != loop)
        return _Addresses(self.at.substitute({loop.variable: loop.start}), rest)

    def stride(self, loop: For) -> Dim | None:
        """The distance between iterations of a loop on which nothing else depends."""
        stride = rise(self.at, loop.variable)
        names = {other.variable for other in self.loops}
        ends = (loop.start.symbols | loop.stop.symbols | stride.symbols) & names
        bounded = any(loop.variable in o.start.symbols | o.stop.symbols for o in self.loops)
        return None if ends or bounded else stride


def _without_equal_loops(
    written: _Addresses, read: _Addresses, values: Mapping[str, Dim], ranges: Ranges
) -> tuple[_Addresses, _Addresses]:
    """Without pairs of loops with one stride, where that of the reads has no further iterations:
    for each of these, the stores of the same iteration are enough."""
    for loop in written.loops:
        for other in read.loops:
            strides = written.stride(loop), read.stride(other)
            if None in strides or strides[0] != strides[1] or loop.start != other.start:
                continue
            stops = (one.stop.substitute(values) for one in (other, loop))
            if ranges.known_le(*map(ranges.simplified, stops)):
                less = written.without(loop), read.without(other)
                return _without_equal_loops(*less, values, ranges)
    return written, read


def _within(
    written: _Addresses, read: _Addresses, values: Mapping[str, Dim], ranges: Ranges
) -> bool:
    """All addresses that are read are written, which are one run."""
    run = _run(written.at, written.loops, values, ranges)
    if run is None:
        return False
    first, length = (ranges.simplified(dim) for dim in run)
    own = dict(values)
    for loop in read.loops:
        _enter(loop, own, ranges)
    at = ranges.simplified(read.at.substitute(own) - first)
    return ranges.known_le(ZERO, at) and ranges.known_lt(at, length)


def _common(one: Access, other: Access) -> int:
    pairs = zip(one.scope.loops, other.scope.loops, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _enter(loop: For, values: dict[str, Dim], ranges: Ranges) -> None:
    start, stop = loop.start.substitute(values), loop.stop.substitute(values)
    values[loop.variable] = Dim.of(ranges.variable(loop.variable, start, stop))


def _run(
    address: Dim, loops: Sequence[For], values: Mapping[str, Dim], ranges: Ranges
) -> tuple[Dim, Dim] | None:
    """The first address and the number of addresses that follow each other, all of which the
    loops take; None where they are not proven to be one run."""
    free = {loop.variable: loop for loop in loops}
    first = address.substitute({name: loop.start for name, loop in free.items()})
    if first.symbols & free.keys():
        return None
    length = ONE
    while free:
        longer = (
            (name, joined)
            for name, loop in free.items()
            if (joined := _joined(rise(address, name), loop, length, free)) is not None
        )
        name, length = next(longer, ("", ZERO))
        if not name:
            return None
        extent = free.pop(name).extent
        if not extent.symbols & free.keys():
            extent = ranges.simplified(extent.substitute(values))
            if not ranges.known_le(ZERO, extent):
                return None
    return first.substitute(values), length.substitute(values)


def _joined(stride: Dim, loop: For, length: Dim, free: Mapping[str, For]) -> Dim | None:
    """The length of a run with another loop around it; None where it is no run."""
    name, extent = loop.variable, loop.extent
    if stride.symbols & free.keys():
        return None
    if name not in length.symbols:
        return extent * length if stride == length else None
    # Tiles: min(whole - stride * tile, stride) elements of each of ceil(whole / stride).
    if loop.start == ZERO and not extent.symbols & free.keys():
        for atom in length.atoms:
            if isinstance(atom, Min) and Dim.of(atom) == length and stride in atom.args:
                wholes = (rest + stride * Dim.of(name) for rest in atom.args)
                return next((w for w in wholes if extent == ceildiv(w, stride)), None)
    return None
