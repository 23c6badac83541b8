# SPDX-License-Identifier: Apache-2.0
"""Which statements of a warp need an order of memory behind them, and which loops are unrolled.

At warp level each statement ends before the next one begins; a device promises that for registers
alone. A `__syncwarp()` is needed between two statements that access the same memory, one of them
writing, unless a barrier of the block stands between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from relax_aot.emit.c_outline import written_buffers
from relax_aot.ir.axes import LANE, REGISTER, SHARED
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Barrier,
    Buffer,
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
    walk,
)
from relax_aot.microkernels import decode, mma, mma_bytes, mma_tf32


@dataclass(frozen=True, slots=True)
class _Access:
    """What one statement of a warp does with memory that lanes share."""

    stmt: Stmt
    loops: tuple[int, ...]
    """The identities of the serial loops around it."""
    read: frozenset[str]
    written: frozenset[str]
    later: frozenset[str] = frozenset()
    """What is written by copies that no thread waits for here."""

    def of(self, same: Mapping[str, str]) -> _Access:
        """By one name for all buffers that may be the same memory."""
        read, written, later = (
            frozenset(same.get(name, name) for name in names)
            for names in (self.read, self.written, self.later)
        )
        return replace(self, read=read, written=written, later=later)

    def conflicts(self, other: _Access) -> bool:
        """With what is behind it. Whoever reads what a copy writes waits for the copy, and then
        for all threads."""
        touched, now = other.read | other.written, self.written - self.later
        return not (now.isdisjoint(touched) and other.written.isdisjoint(self.read))


@dataclass(frozen=True, slots=True)
class _Barrier:
    loops: tuple[int, ...]


class Ordered:
    """The statements of a loop over warps. `same`: one name for buffers that may be the same
    memory."""

    def __init__(self, body: tuple[Stmt, ...], same: Mapping[str, str]) -> None:
        self._needed = frozenset(_needed(body, same))

    def needs_order(self, stmt: Stmt) -> bool:
        """Behind the statement; behind the condition of an `if`."""
        return id(stmt) in self._needed


def _needed(body: tuple[Stmt, ...], same: Mapping[str, str]) -> Iterator[int]:
    found: list[_Access | _Barrier] = []
    _collect(body, (), _own(body), found)
    barriers = [(at, one.loops) for at, one in enumerate(found) if isinstance(one, _Barrier)]
    accesses = [(at, one.of(same)) for at, one in enumerate(found) if isinstance(one, _Access)]

    def ordered(first: int, before: _Access, second: int, after: _Access, loop: int) -> bool:
        """Whether a barrier is on the way from one access to the other, which leads through the
        end of a loop (0: of none)."""
        for at, loops in barriers:
            leaves = at > first and set(loops) <= set(before.loops)
            arrives = at < second and set(loops) <= set(after.loops)
            if (loop in loops and (leaves or arrives)) or (
                not loop and first < at < second and (leaves or arrives)
            ):
                return True
        return False

    for first, before in accesses:
        for second, after in accesses:
            ways = set(before.loops) & set(after.loops) | ({0} if second > first else set())
            conflict = ways and before.conflicts(after)
            if conflict and not all(ordered(first, before, second, after, way) for way in ways):
                yield id(before.stmt)
                break


def _own(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Arrays of a thread."""
    reserved = (stmt.buffer for stmt in walk(body) if isinstance(stmt, Reserve))
    return frozenset(buffer.name for buffer in reserved)


def _collect(
    body: tuple[Stmt, ...],
    loops: tuple[int, ...],
    own: frozenset[str],
    found: list[_Access | _Barrier],
) -> None:
    """Accesses and barriers in their order. All warps take the same side of a condition around a
    barrier, so that a side is, for what is inside, as a loop that runs once."""
    for stmt in body:
        match stmt:
            case For() if stmt.axis != "lane":
                _collect(stmt.body, (*loops, id(stmt)), own, found)
            case If():
                if asked := frozenset(_read(stmt)) - own:
                    found.append(_Access(stmt, loops, asked, frozenset()))
                for side in (stmt.then, stmt.otherwise):
                    _collect(side, (*loops, id(side)), own, found)
            case Barrier():
                found.append(_Barrier(loops))
            case _:
                written = frozenset(written_buffers((stmt,))) - own
                read = frozenset(name for part in walk((stmt,)) for name in _read(part)) - own
                if written or read:
                    found.append(_Access(stmt, loops, read, written, _written_later(stmt)))


def _written_later(stmt: Stmt) -> frozenset[str]:
    """The buffers that only copies write which no thread waits for."""
    inner = [one for one in walk((stmt,)) if isinstance(one, Store | Micro)]
    copies = [one for one in inner if isinstance(one, Micro) and one.kernel.name in COPIES]
    others = written_buffers(tuple(one for one in inner if one not in copies))
    return frozenset(written_buffers(tuple(copies))) - frozenset(others)


def _read(stmt: Stmt) -> Iterator[str]:
    """What a micro-kernel writes counts as read, as it may add to it; copies do not."""
    copied = stmt.written if isinstance(stmt, Micro) and stmt.kernel.name in COPIES else ()
    loads = (expr for expr in expressions(stmt) if isinstance(expr, Load))
    return (load.buffer.name for load in loads if load not in copied)


COPIES = frozenset(
    kernel.name
    for kernel in (
        *mma.COPIES,
        *mma_bytes.COPIES,
        *mma_tf32.COPIES,
        *decode.PUTS,
    )
)
MOST = 16
"""Iterations of a loop that is unrolled for its addresses alone."""
DISTANCES = frozenset(("near", "far"))
"""Sizes of micro-kernels that are numbers in the addresses of instructions."""
LONG = 1
"""Iterations up to which compilers take a loop apart."""


def unrolled(kernel: Kernel) -> Iterator[int]:
    """The identities of the serial loops whose variable, or a size computed from it, is an index
    of an array in registers: only a number as index keeps the array there. Short ones that move an
    operand of a micro-kernel, too, as a number is a part of its address; those with barriers only
    in a loop of some length, since compilers mix what no loop holds together, and registers do
    not suffice for that."""
    yield from _unrolled(kernel.body, within=False)


def _unrolled(body: tuple[Stmt, ...], *, within: bool) -> Iterator[int]:
    """`within`: of a serial loop that stays one, of more iterations than compilers take apart."""
    for stmt in body:
        match stmt:
            case For(axis="") if stmt.extent.is_constant:
                here = stmt.extent.constant
                short = here <= MOST and (within or not _has_barrier(stmt.body))
                if stmt.variable in _indices(stmt.body, operands=short):
                    yield id(stmt)
                    yield from _unrolled(stmt.body, within=within)
                else:
                    yield from _unrolled(stmt.body, within=within or here > LONG)
            case For():
                yield from _unrolled(stmt.body, within=within or not stmt.axis)
            case If():
                yield from _unrolled(stmt.then, within=within)
                yield from _unrolled(stmt.otherwise, within=within)


def _has_barrier(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(stmt, Barrier) for stmt in walk(body))


def _indices(body: tuple[Stmt, ...], *, operands: bool) -> frozenset[str]:
    """The names that indices of registers depend on, and those of `operands` in shared memory."""
    rests_on: dict[str, frozenset[str]] = {}
    used: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Let):
            names = stmt.value.symbols
            rests_on[stmt.name] = names.union(*(rests_on.get(name, ()) for name in names))
        micro = operands and isinstance(stmt, Micro)
        if operands and isinstance(stmt, Micro):
            pairs = zip(stmt.kernel.sizes, stmt.sizes, strict=True)
            used.update(*(size.symbols for name, size in pairs if name in DISTANCES))
        for buffer, index in _places(stmt):
            if buffer.scope in (LANE, REGISTER) or (micro and buffer.scope == SHARED):
                used.update(*(dim.symbols for dim in index[buffer.scope == LANE :]))
    return frozenset(used).union(*(rests_on.get(name, ()) for name in used))


def _places(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Dim, ...]]]:
    yield from ((e.buffer, e.index) for e in expressions(stmt) if isinstance(e, Load))
    if isinstance(stmt, Store):
        yield stmt.buffer, stmt.index
