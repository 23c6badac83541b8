"""Comparisons that give the same whatever the data are, replaced by what they give."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Binary, Expr, Kernel, Lit
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.ir.unused import swept
from relax_aot.ir.value_ranges import compared
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="an unsigned value is never negative",
        before="""
            symbol n in 1..8
            kernel @limit(%x: u8[n]) -> (%y: u8[n]) {
              for i in 0..n {
                %y[i] = select((%x[i] < 0:u8), 1:u8, %x[i])
              }
            }""",
        after="""
            kernel @limit(%x: u8[n]) -> (%y: u8[n]) {
              for i in 0..n {
                %y[i] = select(false:bool, 1:u8, %x[i])
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, _: Target) -> Module:
    return replace(module, kernels=tuple(map(fold_comparisons, module.kernels)))


def fold_comparisons(kernel: Kernel) -> Kernel:
    """With what they give in their place, and without locals that nothing else asks for."""

    def rule(expr: Expr) -> Expr:
        known = compared(expr) if isinstance(expr, Binary) else None
        return expr if known is None else Lit(known, DType.BOOL)

    body = map_exprs(kernel.body, rule)
    return kernel if body == kernel.body else replace(kernel, body=swept(body))
