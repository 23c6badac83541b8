"""Comparisons that give the same whatever the data are: compilers warn of them."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.loops import (
    Assign,
    Binary,
    Cast,
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
        known = _decided(expr) if isinstance(expr, Binary) else None
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


def _decided(compared: Binary) -> bool | None:
    """None where that is not known. A float is not less than itself, and equals itself but where
    it is no number."""
    if compared.op == "<" and _is_zero(compared.right) and _never_negative(compared.left):
        return False
    if compared.left != compared.right:
        return None
    if compared.op == "<":
        return False
    if compared.left.dtype.is_float:
        return None
    return {"<=": True, "==": True, "!=": False}.get(compared.op)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Lit) and expr.dtype.is_int and expr.value == 0


def _never_negative(expr: Expr) -> bool:
    """Unsigned, or widened from unsigned."""
    if isinstance(expr, Cast) and expr.dtype.bytes > expr.value.dtype.bytes:
        return _never_negative(expr.value)
    return expr.dtype is DType.BOOL or (expr.dtype.is_int and not expr.dtype.is_signed)
