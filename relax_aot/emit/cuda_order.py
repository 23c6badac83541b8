# SPDX-License-Identifier: Apache-2.0
"""Which statements of a warp need an order of memory behind them, and which loops are unrolled.

At warp level each statement ends before the next one begins; a device promises that for registers
alone. A `__syncwarp()` is needed between two statements that access the same memory, one of them
writing, unless a barrier of the block stands between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.emit.c_outline import written_buffers
from relax_aot.ir.axes import LANE, REGISTER
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Let,
    Load,
    Reserve,
    Stmt,
    Store,
    expressions,
    walk,
)


@dataclass(frozen=True, slots=True)
class _Access:
    """What one statement of a warp does with memory that lanes share."""

    stmt: Stmt
    loops: tuple[int, ...]
    """The identities of the serial loops around it."""
    read: frozenset[str]
    written: frozenset[str]

    def conflicts(self, other: _Access) -> bool:
        touched = other.read | other.written
        return not (self.written.isdisjoint(touched) and other.written.isdisjoint(self.read))


class Ordered:
    """The statements of a loop over warps."""

    def __init__(self, body: tuple[Stmt, ...]) -> None:
        self._needed = frozenset(_needed(body))

    def needs_order(self, stmt: Stmt) -> bool:
        return id(stmt) in self._needed


def _needed(body: tuple[Stmt, ...]) -> Iterator[int]:
    accesses: list[_Access] = []
    before_barrier: set[int] = set()
    _collect(body, (), _own(body), accesses, before_barrier)
    for number, access in enumerate(accesses):
        later = accesses[number + 1 :]
        again = (other for other in accesses[: number + 1] if set(access.loops) & set(other.loops))
        if id(access.stmt) in before_barrier:
            continue
        if any(map(access.conflicts, later)) or any(map(access.conflicts, again)):
            yield id(access.stmt)


def _own(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Arrays of a thread."""
    reserved = (stmt.buffer for stmt in walk(body) if isinstance(stmt, Reserve))
    return frozenset(buffer.name for buffer in reserved)


def _collect(
    body: tuple[Stmt, ...],
    loops: tuple[int, ...],
    own: frozenset[str],
    accesses: list[_Access],
    before_barrier: set[int],
) -> None:
    for number, stmt in enumerate(body):
        match stmt:
            case For() if stmt.axis != "lane":
                _collect(stmt.body, (*loops, id(stmt)), own, accesses, before_barrier)
                continue
            case If():
                for side in (stmt.then, stmt.otherwise):
                    _collect(side, loops, own, accesses, before_barrier)
                continue
            case _:
                pass
        parts = (stmt,)
        written = frozenset(written_buffers(parts)) - own
        read = frozenset(name for part in walk(parts) for name in _read(part)) - own
        if written or read:
            accesses.append(_Access(stmt, loops, read, written))
        if number + 1 < len(body) and isinstance(body[number + 1], Barrier):
            before_barrier.add(id(stmt))


def _read(stmt: Stmt) -> Iterator[str]:
    return (expr.buffer.name for expr in expressions(stmt) if isinstance(expr, Load))


def unrolled(kernel: Kernel) -> Iterator[int]:
    """The identities of the serial loops whose variable, or a size computed from it, is an index
    of an array in registers: only a number as index keeps the array there."""
    loops = (stmt for stmt in walk(kernel.body) if isinstance(stmt, For) and not stmt.axis)
    for loop in loops:
        if loop.extent.is_constant and loop.variable in _register_indices(loop.body):
            yield id(loop)


def _register_indices(body: tuple[Stmt, ...]) -> frozenset[str]:
    rests_on: dict[str, frozenset[str]] = {}
    used: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Let):
            names = stmt.value.symbols
            rests_on[stmt.name] = names.union(*(rests_on.get(name, ()) for name in names))
        for buffer, index in _places(stmt):
            if buffer.scope in (LANE, REGISTER):
                used.update(*(dim.symbols for dim in index[buffer.scope == LANE :]))
    return frozenset(used).union(*(rests_on.get(name, ()) for name in used))


def _places(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Dim, ...]]]:
    yield from ((e.buffer, e.index) for e in expressions(stmt) if isinstance(e, Load))
    if isinstance(stmt, Store):
        yield stmt.buffer, stmt.index
