# SPDX-License-Identifier: Apache-2.0
"""Conditions around loops become conditions inside of them, so that the loops are launches of their
own and have independent iterations.

The condition is that of each iteration: no statement under it changes what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relax_aot.ir.loops import Expr, For, If, Kernel, Let, Local, Stmt, expressions
from relax_aot.scheduling.devices.proofs import accessed, assigned


def with_inner_conditions(kernel: Kernel) -> Kernel:
    """The kernel with the conditions of its body moved into the loops under them."""
    body = tuple(made for stmt in kernel.body for made in _moved(stmt, kernel))
    return kernel if body == kernel.body else replace(kernel, body=body)


def _moved(stmt: Stmt, kernel: Kernel) -> Iterator[Stmt]:
    if not isinstance(stmt, If) or not _is_steady(stmt, kernel):
        yield stmt
        return
    sides = [[made for one in side for made in _moved(one, kernel)]
             for side in (stmt.then, stmt.otherwise)]  # fmt: skip
    if not all(isinstance(one, For) for side in sides for one in side):
        yield stmt
        return
    for holds, side in zip((True, False), sides, strict=True):
        for one in side:
            assert isinstance(one, For)
            yield _under(one, stmt.condition, holds=holds)


def _is_steady(stmt: If, kernel: Kernel) -> bool:
    """Whether nothing under a condition changes what it reads."""
    sides, same = (*stmt.then, *stmt.otherwise), kernel.same_memory
    asked = (replace(stmt, then=(), otherwise=()),)

    def names(body: tuple[Stmt, ...], *, stored: bool) -> set[str]:
        found = (load.buffer.name for load, is_stored in accessed(body) if is_stored or not stored)
        return {same.get(name, name) for name in found}

    scalars = {expr for expr in expressions(asked[0]) if isinstance(expr, Local)}
    apart = names(asked, stored=False).isdisjoint(names(sides, stored=True))
    return apart and scalars.isdisjoint(assigned(sides))


def _under(loop: For, condition: Expr, *, holds: bool) -> For:
    """The loop with a condition around the body of the innermost one of perfectly nested loops."""
    *names, last = loop.body or (None,)
    if isinstance(last, For) and all(isinstance(stmt, Let) for stmt in names):
        return replace(loop, body=(*loop.body[:-1], _under(last, condition, holds=holds)))
    inner = If(condition, loop.body, ()) if holds else If(condition, (), loop.body)
    return replace(loop, body=(inner,))
