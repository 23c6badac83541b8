# SPDX-License-Identifier: Apache-2.0
"""Copies of floats by blocks that a micro-kernel transposes, where one axis is contiguous in what
is read and another one in what is written.

Loops read or write such an axis with a stride, and compilers do not turn them into vectors. Axes
that move both accesses as if they were one become one axis first.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from relax_aot.ir.dims import ZERO, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import with_nests
from relax_aot.scheduling.contraction import follow, loops_as_one, moved, step_of, stride
from relax_aot.scheduling.nest import Nest, chain_of, greatest
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="the pixels of an image are one axis",
        before="""
            symbol n in 1..99
            kernel @last(%x: f32[n, 16, 9, 10]) -> (%y: f32[n, 9, 10, 16]) {
              for i in 0..n {
                for h in 0..9 {
                  for w in 0..10 {
                    for c in 0..16 {
                      %y[i, h, w, c] = %x[i, c, h, w]
                    }
                  }
                }
              }
            }""",
        after="""
            kernel @last(...) -> (%y: f32[n, 9, 10, 16]) {
              for i in 0..n {
                micro raot_transpose_f32(%y[i, 0, 0, 0], %x[i, 0, 0, 0]) [16, 90, 90, 16]
              }
            }""",
        target="host",
    ),
    Example(
        why="both accesses are contiguous along one axis",
        before="""
            symbol n in 1..99
            kernel @heads(%x: f32[n, 16, 32]) -> (%y: f32[16, n, 32]) {
              for h in 0..16 {
                for i in 0..n {
                  for c in 0..32 {
                    %y[h, i, c] = %x[i, h, c]
                  }
                }
              }
            }""",
        target="host",
    ),
    Example(
        why="there are no elements",
        before="""
            symbol n in 1..99
            kernel @none(%x: f32[n, 0, 16]) -> (%y: f32[16, n, 0]) {
              for c in 0..16 {
                for i in 0..n {
                  for j in 0..0 {
                    %y[c, i, j] = %x[i, j, c]
                  }
                }
              }
            }""",
        target="host",
    ),
    Example(
        why="pixels of three channels fill no block",
        before="""
            kernel @last(%x: f32[3, 90]) -> (%y: f32[90, 3]) {
              for p in 0..90 {
                for c in 0..3 {
                  %y[p, c] = %x[c, p]
                }
              }
            }""",
        target="host",
    ),
)
_SIDE = 8
"""Rows and columns of a block."""


def run(module: Module, target: Target) -> Module:
    """Copies by blocks, where the target has them."""
    if not target.transposes:
        return module
    kernels = tuple(with_nests(kernel, module.bounds, _match) for kernel in module.kernels)
    return replace(module, kernels=kernels)


def _match(stmt: For, w: Writer) -> Emit | None:
    nest = chain_of(stmt, w.bounds)
    if nest is None or len(nest.free) < len(nest.loops):
        return None
    match nest.leaf:
        case (Store(value=Load() as x) as y,) if x.dtype is y.buffer.dtype is DType.F32:
            pass
        case _:
            return None
    variables = [loop.variable for loop in nest.loops]
    strided = any(stride(place, name) is None for place in (x, y) for name in variables)
    if strided or x.buffer == y.buffer or any(loop.start != ZERO for loop in nest.loops):
        return None
    names = set(variables)
    if any(loop.stop == 0 or loop.stop.symbols & names for loop in nest.loops):
        return None
    return _transposed(_joined(nest), w)


def _joined(nest: Nest) -> Nest:
    """The nest with axes that are one."""
    (leaf,) = nest.leaf
    assert isinstance(leaf, Store)
    assert isinstance(leaf.value, Load)
    for outer, inner in pairwise(nest.loops):
        if follow(leaf, outer, inner) and follow(leaf.value, outer, inner):
            return _joined(loops_as_one(nest, outer, inner)[0])
    return nest


def _transposed(nest: Nest, w: Writer) -> Emit | None:
    (y,) = nest.leaf
    assert isinstance(y, Store)
    x = y.value
    assert isinstance(x, Load)
    rows = [loop for loop in nest.loops if stride(y, loop.variable) == 1]
    columns = [loop for loop in nest.loops if stride(x, loop.variable) == 1]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    (row,), (column,) = rows, columns
    if any(greatest(loop.stop, w.bounds) < _SIDE for loop in (row, column)):
        return None
    row_step, to_step = step_of(x, row.variable), step_of(y, column.variable)
    apart = ((column.stop, row_step), (row.stop, to_step))
    if not all(prove_le(length, step, w.bounds) for length, step in apart):
        return None

    def emit() -> None:
        first = {row.variable: ZERO, column.variable: ZERO}
        with w.nest([loop for loop in nest.loops if loop not in (row, column)]):
            w.micro(
                "raot_transpose_f32", to=moved(y, first), x=moved(x, first), rows=row.stop,
                columns=column.stop, row_step=row_step, to_step=to_step,
            )  # fmt: skip

    return emit
