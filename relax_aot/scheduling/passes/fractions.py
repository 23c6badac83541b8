# SPDX-License-Identifier: Apache-2.0
"""Fractions of a total as products with its reciprocal, on targets that sum in lanes.

The reciprocal of a total t is computed once, as r + s with r = 1 / t rounded and s = (1 - r t) r,
the first step of Newton's method. Then x / t is `fma(x, r, x * s)`, whose error is below 0.501
units in the last place with FMA: in most cases it has the bits of the quotient. The domain of
`fraction`, 0 <= x <= t and 1 <= t <= 2^64, excludes overflow and the product of zero and infinity.

Other targets divide: one division takes as long there as the two products, or the order of the
operations is that of the model (`--numerics ordered`, which also computes the function `exp_below`
by `exp`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    PLAIN,
    Apply,
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
    Unary,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.nest import names_in
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

_BEFORE = """
            symbol n in 1..8
            kernel @share(%x: f32[n], %t: f32[1]) -> (%y: f32[n]) {
              local total: f32 = %t[0]
              for i in 0..n {
                %y[i] = fraction(%x[i], total)
              }
            }"""

EXAMPLES = (
    Example(
        why="the reciprocal is computed once",
        before=_BEFORE,
        after="""
            symbol n in 1..8
            kernel @share(%x: f32[n], %t: f32[1]) -> (%y: f32[n]) {
              local total: f32 = %t[0]
              local reciprocal: f32 = (1.0:f32 / total)
              local rest: f32 = (fma((-reciprocal), total, 1.0:f32) * reciprocal)
              for i in 0..n {
                %y[i] = fma(%x[i], reciprocal, (%x[i] * rest))
              }
            }""",
        target="host",
    ),
    Example(
        why="targets without lanes divide",
        before=_BEFORE,
        after="""
            symbol n in 1..8
            kernel @share(%x: f32[n], %t: f32[1]) -> (%y: f32[n]) {
              local total: f32 = %t[0]
              for i in 0..n {
                %y[i] = (%x[i] / total)
              }
            }""",
        target="fpu",
    ),
)


def plain(module: Module, functions: Collection[str] = PLAIN) -> Module:
    """Functions of a restricted domain by those of every domain."""

    def rule(expr: Expr) -> Expr:
        if isinstance(expr, Apply) and expr.function in functions:
            return PLAIN[expr.function](*expr.args)
        return expr

    kernels = (replace(k, body=map_exprs(k.body, rule)) for k in module.kernels)
    return replace(module, kernels=tuple(kernels))


def run(module: Module, target: Target) -> Module:
    if target.partial_sums < 2:
        return plain(module, ("fraction",))
    kernels = tuple(_by_reciprocals(kernel, module) for kernel in module.kernels)
    return replace(module, kernels=kernels)


def _by_reciprocals(kernel: Kernel, module: Module) -> Kernel:
    if not any(map(_fractions, walk(kernel.body))):
        return kernel
    w = Writer(names_in(kernel), module.bounds)
    with w.block() as body:
        _Reciprocals(w).block(kernel.body)
    return replace(kernel, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _Reciprocals:
    w: Writer

    def block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, For):
            inner = self.outside(stmt)
            self.w.add(replace(inner, body=self.nested(inner.body)))
        elif isinstance(stmt, If):
            then, otherwise = self.nested(stmt.then), self.nested(stmt.otherwise)
            self.w.add(replace(stmt, then=then, otherwise=otherwise))
        else:
            for one in _fractions(stmt):
                (stmt,) = self.replaced((stmt,), one.args[1])
            self.w.add(stmt)

    def nested(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        with self.w.block() as found:
            self.block(body)
        return tuple(found)

    def outside(self, loop: For) -> For:
        """A loop without other loops, whose totals are divided by before it begins."""
        inside = [*walk(loop.body)]
        if any(isinstance(stmt, For) for stmt in inside):
            return loop
        changed = {stmt.local for stmt in inside if isinstance(stmt, Declare | Assign)}
        totals = dict.fromkeys(one.args[1] for stmt in inside for one in _fractions(stmt))
        for total in totals:
            if isinstance(total, Local) and total not in changed:
                loop = replace(loop, body=self.replaced(loop.body, total))
        return loop

    def replaced(self, body: tuple[Stmt, ...], total: Expr) -> tuple[Stmt, ...]:
        """Every fraction of `total` by its reciprocal, which is declared here."""
        w, one = self.w, Lit(1.0, total.dtype)
        if not isinstance(total, Local):
            total, of = Local(w.fresh("total"), total.dtype), total
            w.add(Declare(total, of))
            body = map_exprs(body, lambda e: total if e == of else e)
        reciprocal, rest = (Local(w.fresh(n), total.dtype) for n in ("reciprocal", "rest"))
        w.add(Declare(reciprocal, Binary("/", one, total)))
        left = Apply("fma", (Unary("-", reciprocal), total, one))
        w.add(Declare(rest, Binary("*", left, reciprocal)))

        def rule(expr: Expr) -> Expr:
            match expr:
                case Apply("fraction", (x, of)) if of == total:
                    return Apply("fma", (x, reciprocal, Binary("*", x, rest)))
            return expr

        return map_exprs(body, rule)


def _fractions(stmt: Stmt) -> list[Apply]:
    """Those in single precision. Others are printed as quotients."""
    return [
        expr
        for expr in expressions(stmt)
        if isinstance(expr, Apply) and expr.function == "fraction" and expr.dtype is DType.F32
    ]
