# SPDX-License-Identifier: Apache-2.0
"""Sums and products of contiguous floats by a micro-kernel, on cores with an FPU and without
vectors.

Compilers load and store floats one by one: a product of two elements takes six instructions with
its loop, and two by the micro-kernel, with the same bits (`raot/lines_f32.h`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ZERO
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Binary, Expr, For, Kernel, Lit, Load, Local, Store
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.types import DType
from relax_aot.microkernels.lines import (
    PRODUCT,
    SCALED,
    SCALED_PRODUCT,
    SCALED_SUM,
    SUM,
    THREE,
)
from relax_aot.scheduling.apply import rewrite_nests
from relax_aot.scheduling.contraction import moved, stride
from relax_aot.scheduling.nest import names_in, without_lets
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="rows that are added",
        before="""
            symbol n in 1..99
            kernel @add(%a: f32[3, n], %b: f32[n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                for j in 0..n {
                  %y[i, j] = (%a[i, j] + %b[j])
                }
              }
            }""",
        after="""
            kernel @add(%a: f32[3, n], %b: f32[n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                micro raot_line_sum_f32(...) [n]
              }
            }""",
        target="fpu",
    ),
    Example(
        why="products with a scalar and with weights",
        before="""
            symbol n in 1..99
            kernel @norm(%x: f32[n], %w: f32[n]) -> (%y: f32[n]) {
              local by: f32 = (1.0:f32 / %x[0])
              for j in 0..n {
                %y[j] = (%w[j] * (by * %x[j]))
              }
            }""",
        after="""
            kernel @norm(%x: f32[n], %w: f32[n]) -> (%y: f32[n]) {
              local by: f32 = (1.0:f32 / %x[0])
              reserve %j_by: f32[1]
              %j_by[0] = by
              micro raot_line_scaled_product_f32(...) [n]
            }""",
        target="fpu",
    ),
    Example(
        why="rows with a scale each",
        before="""
            symbol n in 1..99
            kernel @scale(%a: f32[3, n], %s: f32[3]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                for j in 0..n {
                  %y[i, j] = (%a[i, j] * %s[i])
                }
              }
            }""",
        after="""
            kernel @scale(%a: f32[3, n], %s: f32[3]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                micro raot_line_scaled_f32(...) [n]
              }
            }""",
        target="fpu",
    ),
    Example(
        why="scaled rows that are added to a bias",
        before="""
            symbol n in 1..99
            kernel @scale(%a: f32[3, n], %s: f32[3], %b: f32[n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                for j in 0..n {
                  %y[i, j] = ((%a[i, j] * %s[i]) + %b[j])
                }
              }
            }""",
        after="""
            kernel @scale(%a: f32[3, n], %s: f32[3], %b: f32[n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                micro raot_line_scaled_sum_f32(...) [n]
              }
            }""",
        target="fpu",
    ),
    Example(
        why="the elements of a column are not contiguous",
        before="""
            symbol n in 1..99
            kernel @add(%a: f32[n, 3], %b: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = (%a[i, 1] + %b[i])
              }
            }""",
        target="fpu",
    ),
    Example(
        why="short rows",
        before="""
            kernel @add(%a: f32[9], %b: f32[9]) -> (%y: f32[9]) {
              for i in 0..9 {
                %y[i] = (%a[i] + %b[i])
              }
            }""",
        target="fpu",
    ),
)
_LEAST = 16
"""Fewer elements are not worth a call."""


def run(module: Module, target: Target) -> Module:
    """Lines by micro-kernels, where the target takes them."""
    if not target.softmax:
        return module
    return replace(module, kernels=tuple(_by_lines(kernel, module) for kernel in module.kernels))


def _by_lines(kernel: Kernel, module: Module) -> Kernel:
    if kernel.parallel:
        return kernel
    w = Writer(names_in(kernel), module.bounds)

    def match(loop: For, _: tuple[For, ...]) -> Emit | None:
        found = _line_of(loop)
        return None if found is None else lambda: found.emit(w)

    with w.block() as body:
        rewrite_nests(kernel.body, w, match)
    return replace(kernel, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _Line:
    """The store of a loop, by a micro-kernel of contiguous operands, and of one number `by`."""

    loop: For
    store: Store
    kernel: MicroKernel
    operands: Mapping[str, Load]
    by: Expr | None = None

    def emit(self, w: Writer) -> None:
        first = {self.loop.variable: self.loop.start}
        operands = {name: moved(load, first) for name, load in self.operands.items()}
        if isinstance(self.by, Load):
            operands["by"] = self.by
        elif self.by is not None:
            scalar = w.reserve(f"{self.loop.variable}_by", DType.F32, REGISTER, 1)
            w.add(Store(scalar, (ZERO,), self.by))
            operands["by"] = Load(scalar, (ZERO,))
        w.micro(
            self.kernel.name, values=moved(self.store, first), count=self.loop.extent, **operands
        )


def _line_of(loop: For) -> _Line | None:
    extent = loop.extent
    if loop.axis or (extent.is_constant and extent.constant < _LEAST):
        return None
    match without_lets(loop.body):
        case (Store(buffer, _, value) as store,) if buffer.dtype is DType.F32:
            pass
        case _:
            return None
    if stride(store, loop.variable) != 1 or value.dtype is not DType.F32:
        return None

    def line(expr: Expr) -> Load | None:
        if isinstance(expr, Load) and stride(expr, loop.variable) == 1:
            return expr if expr.dtype is DType.F32 else None
        return None

    def steady(expr: Expr) -> bool:
        """Whether it is one number, which the loop does not store."""
        if isinstance(expr, Load):
            return expr.buffer != buffer and stride(expr, loop.variable) == 0
        return isinstance(expr, Local | Lit)

    def with_factor(left: Expr, right: Expr) -> tuple[Load, Expr] | None:
        for one, other in ((left, right), (right, left)):
            if (first := line(one)) and steady(other) and other.dtype is DType.F32:
                return first, other
        return None

    match value:
        case Binary("+" | "*" as op, left, right) if (one := line(left)) and (two := line(right)):
            kernel = SUM if op == "+" else PRODUCT
            return _Line(loop, store, kernel, {"left": one, "right": two})
        case Binary("*", left, right) if factor := with_factor(left, right):
            return _Line(loop, store, SCALED, {"left": factor[0]}, factor[1])
        case Binary("+", Binary("*", left, right), added) if (
            factor := with_factor(left, right)
        ) and (two := line(added)):
            return _Line(loop, store, SCALED_SUM, {"left": factor[0], "right": two}, factor[1])
        case Binary("*", Binary("*") as first, last) | Binary("*", last, Binary("*") as first):
            pass
        case _:
            return None
    third, sides = line(last), (first.left, first.right)
    if third is None:
        return None
    match [line(side) for side in sides]:
        case [Load() as one, Load() as two]:
            return _Line(loop, store, THREE, {"left": one, "right": two, "third": third})
    if factor := with_factor(*sides):
        operands = {"left": factor[0], "right": third}
        return _Line(loop, store, SCALED_PRODUCT, operands, factor[1])
    return None
