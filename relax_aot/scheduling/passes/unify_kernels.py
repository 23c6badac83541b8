# SPDX-License-Identifier: Apache-2.0
"""Kernel unification: equal structures share a function.

Where some tiles are clipped from below when they are stored, as by Relu, those of the other
kernels are clipped at minus infinity, which changes no bit.
"""

from __future__ import annotations

import math
from dataclasses import replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Expr, Kernel, Lit, Load, Multiply, Store, walk
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.targets import Target

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
    stores = [store for kernel in module.kernels for store in _results(kernel)]
    if not any(_is_clipped(store.value) for store in stores):
        return module
    return replace(module, kernels=tuple(map(_clipped, module.kernels)))


def _results(kernel: Kernel) -> list[Store]:
    """The stores of results of a kernel with tiles."""
    if not _sums(kernel):
        return []
    outputs = {buffer.name for buffer in kernel.outputs}
    return [s for s in walk(kernel.body) if isinstance(s, Store) and s.buffer.name in outputs]


def _sums(kernel: Kernel) -> set[str]:
    return {stmt.sums.name for stmt in walk(kernel.body) if isinstance(stmt, Multiply)}


def _is_clipped(value: Expr) -> bool:
    match value:
        case Apply("max", (_, Lit())):
            return value.dtype is DType.F32
    return False


def _clipped(kernel: Kernel) -> Kernel:
    """The kernel, its only result clipped where that is a sum of a tile."""
    results = _results(kernel)
    value = results[0].value if len(results) == 1 else None
    if not isinstance(value, Load) or value.buffer.name not in _sums(kernel):
        return kernel
    clipped = replace(results[0], value=Apply("max", (value, Lit(-math.inf, DType.F32))))
    body = map_statements(kernel.body, lambda stmt: clipped if stmt == results[0] else stmt)
    return replace(kernel, body=body)
