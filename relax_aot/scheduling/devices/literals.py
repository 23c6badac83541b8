# SPDX-License-Identifier: Apache-2.0
"""Scalars of a kernel whose values are known, as literals: the factor of scores, and what stands
for keys that are shut. So a schedule knows that a factor is positive, or that shut keys are -inf.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Expr, Kernel, Lit, Load
from relax_aot.ir.rewrite import map_exprs


def with_literals(kernel: Kernel, module: Module) -> Kernel:
    """Where all calls of a kernel give the same number; not where it may be replaced later."""
    table, calls = module.constant_table, module.kernel_calls.get(kernel.name, ())
    values = dict[str, float]()
    for at, buffer in enumerate(kernel.inputs):
        given = {table.get(call.inputs[at].name) for call in calls}
        one = given.pop() if len(given) == 1 else None
        usable = one is not None and not (one.absent or one.limits) and not module.replaceable
        if one is not None and usable and buffer.dtype.is_float and one.data.size == 1:
            values[buffer.name] = float(one.data.reshape(())[()])
    if not values:
        return kernel

    def rule(expr: Expr) -> Expr:
        known = isinstance(expr, Load) and expr.buffer.name in values
        return Lit(values[expr.buffer.name], expr.dtype) if known else expr  # type: ignore[union-attr]

    return replace(kernel, body=map_exprs(kernel.body, rule))
