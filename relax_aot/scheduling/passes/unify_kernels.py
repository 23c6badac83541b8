# SPDX-License-Identifier: Apache-2.0
"""Kernel unification: equal structures share a function.

Where some tiles are clipped from below when they are stored, as by Relu, those of the other
kernels are clipped at minus infinity, which changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Expr, Kernel, Lit, Load, Multiply, Stmt, Store, walk
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.targets import Target

NOTHING = Lit(-math.inf, DType.F32)


EXAMPLES = (
    Example(
        why="one kernel is clamped, so all are",
        before="""
            kernel @relu(%x: f32[4, 8], %w: f32[8, 4]) -> (%y: f32[4, 4]) {
              reserve %sums: f32[4, 4]
              multiply %sums[4, 4] = %x[0, 0], 8, %w[0, 0], [8, 1, 4]
              for i in 0..4 {
                for j in 0..4 {
                  %y[i, j] = max(%sums[i, j], 0.0:f32)
                }
              }
            }
            kernel @linear(%x: f32[4, 8], %w: f32[8, 4]) -> (%y: f32[4, 4]) {
              reserve %sums: f32[4, 4]
              multiply %sums[4, 4] = %x[0, 0], 8, %w[0, 0], [8, 1, 4]
              for i in 0..4 {
                for j in 0..4 {
                  %y[i, j] = %sums[i, j]
                }
              }
            }""",
        after="""
            ...
                  %y[i, j] = max(%sums[i, j], -inf:f32)
                }
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, _: Target) -> Module:
    return replace(module, kernels=unify_kernels(module.kernels))


def unify_kernels(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    found = tuple(kernels)
    clipped = any(_clip(stmt.value) for kernel in found for stmt in _results(kernel))
    return tuple(_clipped(kernel) for kernel in found) if clipped else found


def _sums(kernel: Kernel) -> set[str]:
    return {stmt.sums.name for stmt in walk(kernel.body) if isinstance(stmt, Multiply)}


def _results(kernel: Kernel) -> list[Store]:
    """What becomes of the sums of tiles."""
    sums = _sums(kernel)
    if not sums:
        return []
    outputs = {buffer.name for buffer in kernel.outputs}
    return [s for s in walk(kernel.body) if isinstance(s, Store) and s.buffer.name in outputs]


def _clip(value: Expr) -> bool:
    match value:
        case Apply("max", (_, Lit())) if value.dtype is DType.F32:
            return True
        case _:
            return False


def _clipped(kernel: Kernel) -> Kernel:
    results, sums = _results(kernel), _sums(kernel)
    if len(results) != 1 or not _plain(results[0].value, sums):
        return kernel

    def rule(stmt: Stmt) -> Stmt:
        if stmt is not results[0] and stmt != results[0]:
            return stmt
        assert isinstance(stmt, Store)
        return replace(stmt, value=Apply("max", (stmt.value, NOTHING)))

    return replace(kernel, body=map_statements(kernel.body, rule))


def _plain(value: Expr, sums: set[str]) -> bool:
    return isinstance(value, Load) and value.buffer.name in sums
