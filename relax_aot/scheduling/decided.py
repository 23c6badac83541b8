"""Comparisons that give the same whatever the data are, replaced by what they give."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.compared import decided
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Lit,
    Local,
    Stmt,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType


def decide(kernel: Kernel) -> Kernel:
    """With what they give in their place, and without locals that nothing else asks for."""

    def rule(expr: Expr) -> Expr:
        known = decided(expr) if isinstance(expr, Binary) else None
        return expr if known is None else Lit(known, DType.BOOL)

    body = map_exprs(kernel.body, rule)
    return kernel if body == kernel.body else replace(kernel, body=_without_idle(body))


def _without_idle(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    asked = {e.name for stmt in walk(body) for e in expressions(stmt) if isinstance(e, Local)}
    asked |= {stmt.local.name for stmt in walk(body) if isinstance(stmt, Assign)}
    return _asked_for(body, asked)


def _asked_for(body: tuple[Stmt, ...], asked: set[str]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Declare() if stmt.local.name not in asked:
                pass
            case For():
                result.append(replace(stmt, body=_asked_for(stmt.body, asked)))
            case If():
                then, rest = (_asked_for(part, asked) for part in (stmt.then, stmt.otherwise))
                result.append(replace(stmt, then=then, otherwise=rest))
            case _:
                result.append(stmt)
    return tuple(result)
