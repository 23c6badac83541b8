# SPDX-License-Identifier: Apache-2.0
"""Which loops of a deep nest have their body in a function of its own.

C that people read is nested at most `DEEPEST` blocks deep, that of the function included. Where a
kernel is deeper, one iteration of one of its loops becomes a `static inline` function, which
compilers put back in its place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from relax_aot.emit.c_windows import window_of
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    For,
    If,
    Micro,
    Multiply,
    Stmt,
    Store,
    walk,
)
from relax_aot.ir.rewrite import map_accesses, map_index_dims

DEEPEST = 6


def flattened(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same with fewer blocks: where they are nested too deep, the two outermost loops are one
    where they walk neighboring axes."""
    return tuple(map(_merged, body)) if 1 + _height(body, ()) > DEEPEST else body


def _merged(stmt: Stmt) -> Stmt:
    """A loop that holds nothing but a loop, both of them indices of neighboring axes alone."""
    match stmt:
        case For(outer, Dim(terms=()), rows, (For(inner, Dim(terms=()), columns, body, ""),), ""):
            pair, name = (Dim.of(outer), Dim.of(inner)), f"{outer}_{inner}"
        case _:
            return stmt

    def rule(buffer: Buffer, at: tuple[Dim, ...]) -> tuple[Buffer, tuple[Dim, ...]]:
        for axis in range(len(at) - 1):
            if at[axis : axis + 2] == pair and buffer.shape[axis + 1] == columns:
                return buffer, (*at[:axis], Dim.of(0), Dim.of(name), *at[axis + 2 :])
        return buffer, at

    used: set[str] = set()

    def noted(dim: Dim) -> Dim:
        used.update(dim.symbols)
        return dim

    merged = map_accesses(body, rule)
    map_index_dims(merged, noted)
    apart = used & {outer, inner} or columns.symbols & {outer}
    return stmt if apart else For(name, Dim.of(0), rows * columns, merged)


def outlined_loops(body: tuple[Stmt, ...]) -> frozenset[int]:
    """The identities of the loops whose bodies become functions: those in the middle of the
    nest."""
    found: set[int] = set()
    pending = [body]
    while pending:
        part = pending.pop()
        while 1 + _height(part, found) > DEEPEST:
            loops = list(_too_deep(part, 1, found))
            if not loops:
                break  # a sum over more loops than blocks may be nested
            _, best = min(
                reversed(loops), key=lambda one: max(one[0], 1 + _height(one[1].body, found))
            )
            found.add(id(best))
            pending.append(best.body)
    return frozenset(found)


def _height(stmts: tuple[Stmt, ...], found: Collection[int]) -> int:
    """How many blocks the statements open within each other."""
    return max((_blocks(stmt, found) for stmt in stmts), default=0)


def _blocks(stmt: Stmt, found: Collection[int]) -> int:
    match stmt:
        case For():
            if window_of(stmt) is not None:
                return 0
            inside = 0 if id(stmt) in found else _height(stmt.body, found)
            return inside + (stmt.extent != 1)
        case If():
            return 1 + max(_height(stmt.then, found), _height(stmt.otherwise, found))
        case Bind():
            return int(not stmt.trusted)
        case _:
            return 0


def _too_deep(
    stmts: tuple[Stmt, ...], depth: int, found: Collection[int]
) -> Iterator[tuple[int, For]]:
    """Loops inside `depth` blocks that lead too deep, and whose body may be a function,
    each with the blocks around its body."""
    for stmt in stmts:
        if depth + _blocks(stmt, found) <= DEEPEST or (isinstance(stmt, For) and id(stmt) in found):
            continue
        if isinstance(stmt, If):
            yield from _too_deep(stmt.then + stmt.otherwise, depth + 1, found)
        elif isinstance(stmt, For):
            opens = stmt.extent != 1
            if opens and _separable(stmt.body):
                yield depth + 1, stmt
            yield from _too_deep(stmt.body, depth + opens, found)


def _separable(body: tuple[Stmt, ...]) -> bool:
    """It changes no scalar from outside, and the kernel does not end in it."""
    inner = tuple(walk(body))
    declared = {stmt.local for stmt in inner if isinstance(stmt, Declare)}
    assigned = {stmt.local for stmt in inner if isinstance(stmt, Assign)}
    ends = any(isinstance(stmt, Bind) and not stmt.trusted for stmt in inner)
    return assigned <= declared and not ends


def written_buffers(body: tuple[Stmt, ...]) -> set[str]:
    names: set[str] = set()
    for stmt in walk(body):
        match stmt:
            case Store():
                names.add(stmt.buffer.name)
            case Multiply():
                names.add(stmt.sums.name)
            case Micro():
                names |= {load.buffer.name for load in stmt.written}
    return names


@lru_cache(maxsize=1 << 12)
def role_of(name: str) -> str:
    """What a variable counts: `tile` of `i3_tile_2`, `i3` of `i3_2`."""
    stem = re.sub(r"_\d+$", "", name)
    role = re.fullmatch(r"[a-z]+\d+_([a-z_]+)", stem)
    return role[1] if role else stem
