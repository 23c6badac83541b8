# SPDX-License-Identifier: Apache-2.0
"""Rows of queries that a kernel computes before their scores, as parts of the scores.

A query may be multiplied by a number, or cast, into a row of scratch. Schedules of an attention
compute the elements of queries once for a block, where they are loaded, and need no such row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import ZERO, Bounds, Dim
from relax_aot.ir.loops import Expr, For, Kernel, Load, Local, Stmt, Store, parts, walk
from relax_aot.ir.rewrite import map_exprs
from relax_aot.scheduling.attention import rows_of


def without_copies(kernel: Kernel, bounds: Bounds) -> Kernel:
    """With the values of leading rows of scratch in the place of their loads."""
    loops, body, found = rows_of(kernel, bounds)
    at = 0 if found is None else found.first
    if not loops or at == 0:
        return kernel
    scratch = {buffer.name for buffer in kernel.scratch}
    for _ in range(at):
        copy = _copy(body[0], scratch)
        if copy is None or _stored(body[1:], copy[0]):
            return kernel
        body = _inlined(body[1:], *copy)
        scratch.remove(copy[0].buffer.name)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    kept = tuple(buffer for buffer in kernel.scratch if buffer.name in scratch)
    return replace(kernel, body=body, scratch=kept)


def _copy(stmt: Stmt, scratch: set[str]) -> tuple[Store, list[str]] | None:
    """One store of each element of a row of scratch, and the loop variables that are its index."""
    variables = list[str]()
    while isinstance(stmt, For) and len(stmt.body) == 1 and stmt.start == ZERO:
        variables.append(stmt.variable)
        stmt = stmt.body[0]
    if not isinstance(stmt, Store) or stmt.buffer.name not in scratch:
        return None
    moving = [dim for dim in stmt.index if dim != ZERO]
    if moving != [Dim.of(name) for name in variables]:
        return None
    local = any(isinstance(part, Local) for part in parts(stmt.value))
    return None if local else (stmt, variables)


def _stored(body: Sequence[Stmt], copy: Store) -> bool:
    """Whether something that the copy reads or writes is changed later."""
    used = {copy.buffer.name}
    used |= {part.buffer.name for part in parts(copy.value) if isinstance(part, Load)}
    return any(isinstance(stmt, Store) and stmt.buffer.name in used for stmt in walk(body))


def _inlined(body: tuple[Stmt, ...], copy: Store, variables: Sequence[str]) -> tuple[Stmt, ...]:
    places = [n for n, dim in enumerate(copy.index) if dim != ZERO]

    def rule(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.buffer != copy.buffer:
            return expr
        at = {name: expr.index[n] for name, n in zip(variables, places, strict=True)}
        return substitute_in(copy.value, at)

    return map_exprs(body, rule)
