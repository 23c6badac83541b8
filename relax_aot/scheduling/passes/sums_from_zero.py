# SPDX-License-Identifier: Apache-2.0
"""Loops around sums of products that begin with a number begin with 0.

Where an axis has a fixed size, the first taps of a window may always lie in its padding, and no
loop reads them. Strategies pack weights and copy lines of images by the number of iterations, from
the first element on.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Assign, Binary, For, Kernel, Stmt, walk
from relax_aot.ir.rewrite import map_index_dims, map_statements
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="the first two taps lie in the padding",
        before="""
            symbol n in 1..99
            kernel @conv(%x: i8[n, 8], %w: i8[5]) -> (%y: i32[n]) {
              for i in 0..n {
                local sum: i32 = 0:i32
                for k in 2..5 {
                  sum = (sum + (cast(%x[i, k - 2], i32, wrap) * cast(%w[k], i32, wrap)))
                }
                %y[i] = sum
              }
            }""",
        after="""
            kernel @conv(%x: i8[n, 8], %w: i8[5]) -> (%y: i32[n]) {
              for i in 0..n {
                local sum: i32 = 0:i32
                for k in 0..3 {
                  sum = (sum + (cast(%x[i, k], i32, wrap) * cast(%w[k + 2], i32, wrap)))
                }
                %y[i] = sum
              }
            }""",
        target="dsp",
    ),
    Example(
        why="no product is added",
        before="""
            symbol n in 1..99
            kernel @sum(%x: i8[n, 8]) -> (%y: i32[n]) {
              for i in 0..n {
                local sum: i32 = 0:i32
                for k in 2..5 {
                  sum = (sum + cast(%x[i, k], i32, wrap))
                }
                %y[i] = sum
              }
            }""",
        target="dsp",
    ),
)


def run(module: Module, _: Target) -> Module:
    return replace(module, kernels=tuple(map(_from_zero, module.kernels)))


def _from_zero(kernel: Kernel) -> Kernel:
    later = [s for s in walk(kernel.body) if isinstance(s, For) and _is_later(s)]
    return replace(kernel, body=map_statements(kernel.body, _rule)) if later else kernel


def _is_later(loop: For) -> bool:
    if not loop.start.is_constant or loop.start == 0:
        return False
    return any(isinstance(stmt, Assign) and _adds_product(stmt) for stmt in walk(loop.body))


def _adds_product(stmt: Assign) -> bool:
    match stmt.value:
        case Binary("+", left, right) if stmt.local in (left, right):
            added = right if left == stmt.local else left
            return isinstance(added, Binary) and added.op == "*"
    return False


def _rule(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For) or not _is_later(stmt):
        return stmt
    moved = {stmt.variable: Dim.of(stmt.variable) + stmt.start}
    body = map_index_dims(stmt.body, lambda dim: dim.substitute(moved))
    return replace(stmt, start=ZERO, stop=stmt.stop - stmt.start, body=body)
