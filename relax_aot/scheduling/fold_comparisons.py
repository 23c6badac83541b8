"""Comparisons that give the same whatever the data are, replaced by what they give."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.folded_comparison import folded_comparison
from relax_aot.ir.loops import Binary, Expr, Kernel, Lit
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.ir.unused import swept


def fold_comparisons(kernel: Kernel) -> Kernel:
    """With what they give in their place, and without locals that nothing else asks for."""

    def rule(expr: Expr) -> Expr:
        known = folded_comparison(expr) if isinstance(expr, Binary) else None
        return expr if known is None else Lit(known, DType.BOOL)

    body = map_exprs(kernel.body, rule)
    return kernel if body == kernel.body else replace(kernel, body=swept(body))
