# SPDX-License-Identifier: Apache-2.0
"""Sums of half-precision products as sums of floats.

Scalars of half precision are computed as floats and rounded when they are stored. Written out, with
a cast of each load and store, the sums are contractions of floats, which have tiles.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    Kernel,
    Lit,
    Load,
    Local,
    Micro,
    Multiply,
    Stmt,
    Store,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="a product is rounded as it is stored",
        before="""
            symbol n in 1..8
            kernel @dot(%x: f16[n], %w: f16[n]) -> (%y: f16[]) {
              local sum: f16 = 0.0:f16
              for i in 0..n {
                sum = (sum + (%x[i] * %w[i]))
              }
              %y[] = max(sum, 0.0:f16)
            }""",
        after="""
            kernel @dot(%x: f16[n], %w: f16[n]) -> (%y: f16[]) {
              local sum: f32 = 0.0:f32
              for i in 0..n {
                sum = (sum + (cast(%x[i], f32, wrap) * cast(%w[i], f32, wrap)))
              }
              %y[] = cast(max(sum, 0.0:f32), f16, wrap)
            }""",
        target="fpu",
    ),
    Example(
        why="no products",
        before="""
            symbol n in 1..8
            kernel @double(%x: f16[n]) -> (%y: f16[n]) {
              for i in 0..n {
                %y[i] = (%x[i] + %x[i])
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel with such a sum, for targets that convert operands in tiles."""
    if not target.half_sums:
        return module
    kernels = (_widened(k) if _sums_halves(k) else k for k in module.kernels)
    return replace(module, kernels=tuple(kernels))


def _sums_halves(kernel: Kernel) -> bool:
    if any(isinstance(stmt, Multiply | Micro) for stmt in walk(kernel.body)):
        return False
    return any(_adds_product(stmt) for stmt in walk(kernel.body))


def _adds_product(stmt: Stmt) -> bool:
    match stmt:
        case Assign(local, Binary("+", left, right)) if local in (left, right):
            product = right if left == local else left
            return local.dtype.is_half and isinstance(product, Binary) and product.op == "*"
    return False


def _widened(kernel: Kernel) -> Kernel:
    return replace(kernel, body=map_statements(map_exprs(kernel.body, _float), _floats))


def _float(expr: Expr) -> Expr:
    """An expression whose parts are floats already."""
    match expr:
        case Cast(value, DType.F32) if value.dtype is DType.F32:
            return value
        case Load() if expr.dtype.is_half:
            return Cast(expr, DType.F32)
        case Cast() if expr.dtype.is_half:
            return Cast(expr, DType.F32)
        case Lit(value) if expr.dtype.is_half:
            return Lit(value, DType.F32)
        case Local(name) if expr.dtype.is_half:
            return Local(name, DType.F32)
        case _:
            return expr


def _floats(stmt: Stmt) -> Stmt:
    match stmt:
        case Store(buffer) if buffer.dtype.is_half and stmt.value.dtype is DType.F32:
            return replace(stmt, value=Cast(stmt.value, buffer.dtype))
        case Declare(local) | Assign(local) if local.dtype.is_half:
            return replace(stmt, local=Local(local.name, DType.F32))
        case _:
            return stmt
