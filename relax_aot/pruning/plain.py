# SPDX-License-Identifier: Apache-2.0
"""A kernel as the analyses here read it: index expressions of loop variables alone, and loops by
number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    BODIES,
    Apply,
    Assign,
    Binary,
    Bind,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    held,
    parts,
    walk,
)
from relax_aot.ir.rewrite import map_index_dims

GREATEST = 1 << 16
"""Longer loops and axes are left as they are."""


@dataclass(frozen=True)
class Plain:
    """`body` has no name of `let` in any index. `numbers` counts loops in the order of the text,
    by identity."""

    kernel: Kernel
    body: tuple[Stmt, ...]
    lets: dict[str, Dim]

    @cached_property
    def loops(self) -> tuple[For, ...]:
        return tuple(stmt for stmt in walk(self.body) if isinstance(stmt, For))

    @cached_property
    def numbers(self) -> dict[int, int]:
        return {id(loop): number for number, loop in enumerate(self.loops)}


def plain(kernel: Kernel) -> Plain | None:
    """None for kernels with statements of schedules, and those that name two sizes alike."""
    statements = (For, Store, Declare, Assign, Let, Bind, If)
    lets: dict[str, Dim] = {}
    for stmt in walk(kernel.body):
        if not isinstance(stmt, statements) or (isinstance(stmt, For) and stmt.axis):
            return None
        if isinstance(stmt, Let):
            if stmt.name in lets:
                return None
            lets[stmt.name] = stmt.value.substitute(lets)
    body = map_index_dims(kernel.body, lambda dim: dim.substitute(lets))
    found = Plain(kernel, body, lets)
    return found if len(found.numbers) == len(found.loops) else None


def span(loop: For) -> range | None:
    """The iterations, where they are few and known."""
    if not (loop.start.is_constant and loop.stop.is_constant):
        return None
    found = range(loop.start.constant, loop.stop.constant)
    return found if 1 <= len(found) <= GREATEST else None


def fold_of(stmt: Stmt) -> tuple[str, Expr] | None:
    """The function and what it takes in, of `x = x + e`, `x = max(x, e)` and their like."""
    if not isinstance(stmt, Assign):
        return None
    match stmt.value:
        case Binary("+", left, right):
            name = "+"
        case Apply(("max" | "min") as name, (left, right)):
            pass
        case _:
            return None
    for own, other in ((left, right), (right, left)):
        if own == stmt.local and stmt.local not in locals_of(other):
            return name, other
    return None


def locals_of(expr: Expr) -> set[Local]:
    return {part for part in parts(expr) if isinstance(part, Local)}


def folded(loop: For) -> dict[str, str] | None:
    """The scalars from around a loop that it changes, each by one function and read nowhere else
    in it: name -> function. None where one is changed or read in another way."""
    inner = [*walk(loop.body)]
    own = {stmt.local.name for stmt in inner if isinstance(stmt, Declare)}
    changed: dict[str, str] = {}
    for stmt in inner:
        if isinstance(stmt, Assign) and stmt.local.name not in own:
            fold = fold_of(stmt)
            if fold is None or changed.setdefault(stmt.local.name, fold[0]) != fold[0]:
                return None
    for stmt in inner:
        read = {x.name for e in expressions(stmt) for x in parts(e) if isinstance(x, Local)}
        fold = fold_of(stmt)
        if fold is not None and isinstance(stmt, Assign):
            read = {local.name for local in locals_of(fold[1])}
        if read & changed.keys():
            return None
    return changed


def assigned(body: tuple[Stmt, ...]) -> set[str]:
    return {stmt.local.name for stmt in walk(body) if isinstance(stmt, Assign)}


def loads_of(stmt: Stmt) -> Iterator[Load]:
    return (expr for expr in expressions(stmt) if isinstance(expr, Load))


def children(stmt: Stmt) -> list[Stmt]:
    return held(stmt, BODIES)
