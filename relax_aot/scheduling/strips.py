# SPDX-License-Identifier: Apache-2.0
"""What of a loop can be computed for a strip of its iterations before the rest
(passes/function_strips.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relax_aot.ir.loops import (
    LOGICAL,
    Apply,
    Assign,
    Binary,
    Declare,
    Expr,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    expressions,
    parts,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType

_CHEAP = 8
"""Values of more loads, constants and operations are stored instead of computed twice."""


def declared(body: tuple[Stmt, ...], values: Iterable[Expr]) -> tuple[Declare, ...]:
    """The scalars of a loop that these values are computed from, directly or not."""
    read = {part for value in values for part in parts(value)}
    found: list[Declare] = []
    for stmt in reversed(body):
        if isinstance(stmt, Declare) and stmt.local in read:
            found.insert(0, stmt)
            read |= set(parts(stmt.value))
    return tuple(found)


def kept_scalars(
    body: tuple[Stmt, ...], computed: tuple[Declare, ...]
) -> tuple[tuple[Stmt, ...], tuple[Local, ...]]:
    """The body without those computed scalars that it does not need to compute again, and which of
    these it reads: those of many operations."""
    rest: list[Stmt] = []
    read: set[Expr] = set()
    kept: list[Local] = []
    for stmt in reversed(body):
        if stmt in computed:
            assert isinstance(stmt, Declare)
            if stmt.local not in read:
                continue
            work = sum(len(list(parts(s.value))) for s in (stmt, *declared(computed, [stmt.value])))
            if work > _CHEAP and stmt.local.dtype in (DType.F32, DType.I16):
                kept.insert(0, stmt.local)
                continue
        rest.insert(0, stmt)
        read |= set(expressions(stmt))
    return tuple(rest), tuple(kept)


def may_compute(stmt: Stmt) -> Iterator[Apply]:
    """Functions that every iteration computes or, as one side of a choice, may compute: what their
    arguments read is read in any case."""
    chosen = {
        id(part) for expr in expressions(stmt) for branch in choices(expr) for part in parts(branch)
    }
    read = {e for e in expressions(stmt) if isinstance(e, Load) and id(e) not in chosen}
    for expr in expressions(stmt):
        if isinstance(expr, Apply):
            loads = {part for part in parts(expr) if isinstance(part, Load)}
            if id(expr) not in chosen or loads <= read:
                yield expr


def choices(expr: Expr) -> tuple[Expr, ...]:
    """The parts of an expression that are evaluated only under a condition."""
    match expr:
        case Select():
            return (expr.then, expr.otherwise)
        case Binary(op, _, right) if op in LOGICAL:
            return (right,)
    return ()


def written_out(argument: Expr, body: tuple[Stmt, ...]) -> Expr | None:
    """The argument without scalars that the loop declares; None where it changes one of them."""
    changed = {stmt.local for stmt in body if isinstance(stmt, Assign)}
    values = {stmt.local: stmt.value for stmt in body if isinstance(stmt, Declare)}
    while used := {part for part in parts(argument) if isinstance(part, Local)} & (
        changed | values.keys()
    ):
        if used & changed:
            return None
        argument = map_expr(argument, lambda e: values.get(e, e) if isinstance(e, Local) else e)
    return argument


def reads_early(argument: Expr, before: tuple[Stmt, ...], body: tuple[Stmt, ...]) -> bool:
    """Whether the argument reads nothing that another iteration stores, or this one before it."""
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    earlier = {stmt.buffer for stmt in before if isinstance(stmt, Store)}
    return all(
        load.buffer not in earlier
        and all(load.buffer != one.buffer or load.index == one.index for one in stores)
        for load in parts(argument)
        if isinstance(load, Load)
    )
