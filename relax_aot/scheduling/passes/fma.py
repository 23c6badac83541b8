# SPDX-License-Identifier: Apache-2.0
"""FMA contraction: sums of products by the fused multiply-add.

`RAOT_FMAF` is an instruction where the target has one and a multiply and an add where it
has none; stated in the code, it does not depend on the compiler's contraction mode.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Assign, Binary, Stmt, Store
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="a sum of products",
        before="""
            symbol n in 1..8
            kernel @dot(%x: f32[n], %w: f32[n]) -> (%y: f32[]) {
              local sum: f32 = 0.0:f32
              for i in 0..n {
                sum = (sum + (%x[i] * %w[i]))
              }
              %y[] = sum
            }""",
        after="""
            kernel @dot(%x: f32[n], %w: f32[n]) -> (%y: f32[]) {
              local sum: f32 = 0.0:f32
              for i in 0..n {
                sum = fma(%x[i], %w[i], sum)
              }
              %y[] = sum
            }""",
        target="fpu",
    ),
    Example(
        why="integer sums stay",
        before="""
            symbol n in 1..8
            kernel @dot(%x: i32[n], %w: i32[n]) -> (%y: i32[]) {
              local sum: i32 = 0:i32
              for i in 0..n {
                sum = (sum + (%x[i] * %w[i]))
              }
              %y[] = sum
            }""",
        target="fpu",
    ),
)


def run(module: Module, _: Target) -> Module:
    """`sum = sum + a * b` becomes `sum = fma(a, b, sum)`."""

    def rule(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Assign | Store) and stmt.value.dtype in (DType.F32, DType.F64):
            match stmt.value:
                case Binary("+", total, Binary("*", left, right)):
                    return replace(stmt, value=Apply("fma", (left, right, total)))
        return stmt

    kernels = (replace(k, body=map_statements(k.body, rule)) for k in module.kernels)
    return replace(module, kernels=tuple(kernels))
