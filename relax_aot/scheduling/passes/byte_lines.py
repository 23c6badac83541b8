# SPDX-License-Identifier: Apache-2.0
"""Constant weights of bytes as lines of whole vectors, the steps of a sum next to each other.

Devices multiply bytes in groups along the steps. So the weights of a product are packed by lines
(rows or columns), each of which begins at a multiple of 16. A step of a convolution is a channel
of one pixel of the window, with the channels last where they are a multiple of 16: these are of one
condition, that the pixel is inside. Sums of integers do not depend on the order of their steps.

Weights of half precision are packed too where no vectors of them are aligned, or for the channels
of windows. Matrix units add floats in an order of their own. Those of floats are packed for the
channels of windows alone, unless sums are to keep their order.

Zero points of weights are subtracted while compiling, where the results are bytes. That of the
other factor is a constant for each line, except where windows are clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array, Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Stmt,
    apply,
    binary,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import contraction_of, indexed_by, stride, symbols_of
from relax_aot.scheduling.devices.operands import Product, product_of
from relax_aot.scheduling.devices.vectors import vector_axes
from relax_aot.scheduling.packing import GREATEST, Arrays, Packed, elements, padded, round_up
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

BYTES = 16
"""Of which each line is a multiple."""
EXAMPLES = (
    Example(
        why="weights by rows, both factors with zero points",
        before="""
            symbol n in 1..9
            const %w: u8[20, 24] = splat 120
            kernel @dot(%x: i8[n, 20], %w: u8[20, 24], %b: i32[24]) -> (%y: i32[n, 24]) {
              for i in 0..n {
                for j in 0..24 {
                  local sum: i32 = %b[j]
                  for k in 0..20 {
                    sum = (sum + ((cast(%x[i, k], i32, wrap) - 3:i32)
                      * (cast(%w[k, j], i32, wrap) - 128:i32)))
                  }
                  %y[i, j] = sum
                }
              }
            }""",
        after="""
            kernel @dot(%x: i8[n, 20], %b: i32[24], %w.lines: i8[24, 32], %sums: i32[24]) -> (...) {
              for i in 0..n {
                for j in 0..24 {
                  local sum: i32 = (%b[j] + %sums[j])
                  for k in 0..20 {
                    sum = (sum + (cast(%x[i, k], i32, wrap) * cast(%w.lines[j, k], i32, wrap)))
                  }
                  %y[i, j] = sum
                }
              }
            }""",
        target="cuda_mma",
    ),
    Example(
        why="windows of planes",
        before="""
            symbol n in 1..9
            const %w: i8[6, 16, 3] = splat 2
            kernel @conv(%x: u8[n, 16, 9], %w: i8[6, 16, 3]) -> (%y: i32[n, 6, 9]) {
              for b in 0..n {
                for c in 0..6 {
                  for j in 0..9 {
                    local sum: i32 = 0:i32
                    for d in 0..16 {
                      for l in max(-j + 1, 0)..min(-j + 10, 3) {
                        sum = (sum + ((cast(%x[b, d, j + l - 1], i32, wrap) - 5:i32)
                          * cast(%w[c, d, l], i32, wrap)))
                      }
                    }
                    %y[b, c, j] = sum
                  }
                }
              }
            }""",
        after="""
            kernel @conv(%x: u8[n, 16, 9], %w.lines: i8[6, 48]) -> (%y: i32[n, 6, 9]) {
              for b in 0..n {
                for c in 0..6 {
                  for j in 0..9 {
                    local sum: i32 = 0:i32
                    for l in max(-j + 1, 0)..min(-j + 10, 3) {
                      for d in 0..16 {
                        sum = (sum + ...
                      }
                    }
                    %y[b, c, j] = sum
                  }
                }
              }
            }""",
        target="cuda_mma",
    ),
    Example(
        why="windows of half precision",
        before="""
            symbol n in 1..9
            const %w: f16[6, 16, 3] = splat 2.0
            kernel @conv(%x: f16[n, 16, 9], %w: f16[6, 16, 3]) -> (%y: f16[n, 6, 9]) {
              for b in 0..n {
                for c in 0..6 {
                  for j in 0..9 {
                    local sum: f16 = 0.0:f16
                    for d in 0..16 {
                      for l in max(-j + 1, 0)..min(-j + 10, 3) {
                        sum = (sum + (%x[b, d, j + l - 1] * %w[c, d, l]))
                      }
                    }
                    %y[b, c, j] = sum
                  }
                }
              }
            }""",
        after="""
            kernel @conv(%x: f16[n, 16, 9], %w.lines: f16[6, 48]) -> (%y: f16[n, 6, 9]) {
              for b in 0..n {
                for c in 0..6 {
                  for j in 0..9 {
                    local sum: f16 = 0.0:f16
                    for l in max(-j + 1, 0)..min(-j + 10, 3) {
                      for d in 0..16 {
                        sum = (sum + (...))
                      }
                    }
                    %y[b, c, j] = sum
                  }
                }
              }
            }""",
        target="cuda_mma",
    ),
    Example(
        why="windows of floats",
        before="""
            symbol n in 1..9
            const %w: f32[6, 4, 3] = splat 2.0
            kernel @conv(%x: f32[n, 4, 9], %w: f32[6, 4, 3]) -> (%y: f32[n, 6, 9]) {
              for b in 0..n {
                for c in 0..6 {
                  for j in 0..9 {
                    local sum: f32 = 0.0:f32
                    for d in 0..4 {
                      for l in max(-j + 1, 0)..min(-j + 10, 3) {
                        sum = fma(%x[b, d, j + l - 1], %w[c, d, l], sum)
                      }
                    }
                    %y[b, c, j] = sum
                  }
                }
              }
            }""",
        after="""
            kernel @conv(%x: f32[n, 4, 9], %w.lines: f32[6, 12]) -> (%y: f32[n, 6, 9]) {
              for b in 0..n {
                for c in 0..6 {
                  for j in 0..9 {
                    local sum: f32 = 0.0:f32
                    for l in max(-j + 1, 0)..min(-j + 10, 3) {
                      for d in 0..4 {
                        sum = fma(...)
                      }
                    }
                    %y[b, c, j] = sum
                  }
                }
              }
            }""",
        target="cuda",
    ),
    Example(
        why="weights that are lines already",
        before="""
            symbol n in 1..9
            const %w: i8[24, 32] = splat 2
            kernel @dot(%x: i8[n, 32], %w: i8[24, 32]) -> (%y: i32[n, 24]) {
              for i in 0..n {
                for j in 0..24 {
                  local sum: i32 = 0:i32
                  for k in 0..32 {
                    sum = (sum + (cast(%x[i, k], i32, wrap) * cast(%w[j, k], i32, wrap)))
                  }
                  %y[i, j] = sum
                }
              }
            }""",
        target="cuda_mma",
    ),
    Example(
        why="rows of half precision of an odd length",
        before="""
            symbol n in 1..9
            const %w: f16[24, 21] = splat 2.0
            kernel @dot(%x: f16[n, 21], %w: f16[24, 21]) -> (%y: f16[n, 24]) {
              for i in 0..n {
                for j in 0..24 {
                  local sum: f16 = 0.0:f16
                  for k in 0..21 {
                    sum = (sum + (%x[i, k] * %w[j, k]))
                  }
                  %y[i, j] = sum
                }
              }
            }""",
        after="""
            kernel @dot(%x: f16[n, 21], %w.lines: f16[24, 24]) -> (%y: f16[n, 24]) {
              for i in 0..n {
                for j in 0..24 {
                  local sum: f16 = 0.0:f16
                  for k in 0..21 {
                    sum = (sum + (%x[i, k] * %w.lines[j, k]))
                  }
                  %y[i, j] = sum
                }
              }
            }""",
        target="cuda_mma",
    ),
)


def run(module: Module, target: Target) -> Module:
    """The module with packed weights, for devices."""
    if not target.device:
        return module
    return apply_module(module, target, _match)


def _match(stmt: For, w: Writer, context: Context) -> Emit | None:
    found = contraction_of(stmt, w.bounds)
    product = product_of(found, context) if found is not None else None
    if product is None or not product.rows or not product.columns or product.found.computed:
        return None
    kind = product.found.sum.dtype
    if kind not in (DType.I32, DType.F32) and not kind.is_half:
        return None
    pair = (product.found.left, product.found.right)
    known = [at for at, load in enumerate(pair) if load.buffer.name in context.constants]
    if len(known) != 1:
        return None
    packing = _Packing(w, context, product, known[0])
    useful = packing.possible and packing.supported and packing.useful
    return packing.emit if useful else None


@dataclass(frozen=True, slots=True)
class _Packing:
    """`side`: which factor the weights are."""

    w: Writer
    context: Context
    product: Product
    side: int

    @property
    def load(self) -> Load:
        found = self.product.found
        return (found.left, found.right)[self.side]

    @property
    def other(self) -> Load:
        found = self.product.found
        return (found.right, found.left)[self.side]

    @property
    def zero(self) -> int:
        return self.product.found.zeros[self.side]

    @property
    def other_zero(self) -> int:
        return self.product.found.zeros[1 - self.side]

    @property
    def lines(self) -> tuple[For, ...]:
        return (self.product.rows, self.product.columns)[self.side]

    @property
    def lead(self) -> tuple[For, ...]:
        """Loops over a batch of weights."""
        return tuple(lp for lp in self.product.batch if lp.variable in indexed_by(self.load))

    @property
    def clipped(self) -> frozenset[str]:
        return frozenset(lp.variable for lp in self.product.found.reductions if symbols_of(lp))

    @property
    def steps(self) -> tuple[For, ...]:
        """In their new order."""
        steps, product = self.product.steps, self.product
        others = (product.columns, product.rows)[self.side]
        if vector_axes(product, self.other, others, self.w.bounds):
            return steps
        width = self.width
        whole = [lp for lp in steps if lp.extent % width == 0 and lp.variable not in self.clipped]
        near = [lp for lp in whole if stride(self.other, lp.variable) == 1]
        last = (near or whole)[-1:]
        return (*(lp for lp in steps if lp not in last), *last)

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return BYTES // self.load.dtype.bytes

    @property
    def supported(self) -> bool:
        """Floats are packed only where all vectors of a line are whole, or where those of half
        precision are products without windows, whose lines are filled up with zeros."""
        target, kind = self.context.target, self.product.found.sum.dtype
        if kind is DType.I32:
            return DType.I8 in target.matrices
        whole = prod(_extents(self.steps)) % self.width == 0
        whole = whole or (kind.is_half and len(self.steps) == 1 and not self.clipped)
        same = self.load.dtype is self.other.dtype is kind
        known = kind in target.matrices or kind is DType.F32
        return same and whole and target.partial_sums > 1 and known

    @property
    def possible(self) -> bool:
        loops = (*self.lead, *self.lines, *self.steps)
        fixed = all(loop.start == 0 and loop.extent.is_constant for loop in loops)
        alone = indexed_by(self.load) <= {loop.variable for loop in loops}
        if not fixed or not alone or self.load == self.product.padded:
            return False
        return 0 < prod(_extents(loops)) <= GREATEST

    @property
    def packs(self) -> bool:
        """Whether the weights have another order or other values."""
        ordered = replace(self.product, steps=self.steps)
        lines = vector_axes(ordered, self.load, self.lines, self.w.bounds)
        return not lines or self.kind != (self.load.dtype, self.zero)

    @property
    def shifts(self) -> bool:
        """Whether the zero point of the other factor becomes a constant."""
        return self.other_zero != 0 and not self.clipped

    @property
    def useful(self) -> bool:
        moves = self.steps != self.product.steps
        return moves or (self.load.dtype is not DType.F32 and (self.packs or self.shifts))

    @property
    def kind(self) -> tuple[DType, int]:
        """The type of packed weights, and their zero point."""
        if self.load.dtype.is_float:
            return self.load.dtype, 0
        low, high = (limit - self.zero for limit in self.load.dtype.limits)
        for kind in (DType.I8, DType.U8):
            least, most = kind.limits
            if least <= low and high <= most:
                return kind, 0
        return self.load.dtype, self.zero

    def emit(self) -> None:
        w, found = self.w, self.product.found
        weights, other = _shifted(self.load, self.zero), _shifted(self.other, self.other_zero)
        start = found.start
        if self.packs:
            index = (*map(_variable, self.lead), _position(self.lines), _position(self.steps))
            weights = _shifted(Load(self.packed(), index), self.kind[1])
        if self.shifts:
            other = _shifted(self.other, 0)
            sums = Load(self.sums(), (*map(_variable, self.lead), _position(self.lines)))
            start = sums if start == Lit(0, DType.I32) else Binary("+", start, sums)
        factors = (weights, other) if self.side == 0 else (other, weights)
        total: Expr = binary("+", found.sum, binary("*", *factors))
        if found.sum.dtype is DType.F32:
            total = apply("fma", *factors, found.sum)
        body: Stmt = Assign(found.sum, total)
        loops = {loop.variable: loop for loop in found.reductions}
        for step in reversed(self.steps):
            body = replace(loops[step.variable], body=(body,))
        with w.nest(found.nest.loops):
            w.add(Declare(found.sum, start), body, *found.after)

    def packed(self) -> Buffer:
        (kind, zero), depth = self.kind, prod(_extents(self.steps))
        shape = (*_extents(self.lead), prod(_extents(self.lines)), round_up(depth, self.width))
        shift = self.zero - zero

        def values(arrays: Arrays) -> Array:
            matrix = self.matrix(arrays)
            return padded(matrix - shift if shift else matrix, shape)

        name = self.w.fresh(f"{self.load.buffer.name}.lines")
        buffer = Buffer(name, kind, tuple(map(Dim.of, shape)))
        return self.w.constant(Packed(buffer, values, self.load.buffer.name))

    def sums(self) -> Buffer:
        """What the zero point of the other factor adds to each line."""
        shape = (*_extents(self.lead), prod(_extents(self.lines)))

        def values(arrays: Arrays) -> Array:
            sums = (self.matrix(arrays) - self.zero).sum(-1) * -self.other_zero
            made: Array = sums.astype(np.int32)
            return made

        buffer = Buffer(self.w.fresh("sums"), DType.I32, tuple(map(Dim.of, shape)))
        return self.w.constant(Packed(buffer, values))

    def matrix(self, arrays: Arrays) -> Array:
        """Lines and steps of the weights, behind axes of a batch."""
        loops = (*self.lead, *self.lines, *self.steps)
        names = [loop.variable for loop in loops]
        data = elements(self.load, arrays[self.load.buffer.name], names, _extents(loops))
        shape = (*_extents(self.lead), prod(_extents(self.lines)), -1)
        wide = data if self.load.dtype.is_float else data.astype(np.int64)
        matrix: Array = wide.reshape(shape)
        return matrix


def _extents(loops: Sequence[For]) -> list[int]:
    return [loop.extent.constant for loop in loops]


def _variable(loop: For) -> Dim:
    return Dim.of(loop.variable)


def _position(loops: Sequence[For]) -> Dim:
    """On the axis that loops are together."""
    position = ZERO
    for loop in loops:
        position = position * loop.extent + _variable(loop)
    return position


def _shifted(load: Load, zero: int) -> Expr:
    if load.dtype.is_float:
        return load
    value = Cast(load, DType.I32)
    return binary("-", value, Lit(zero, DType.I32)) if zero else value
