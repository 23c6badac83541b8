# SPDX-License-Identifier: Apache-2.0
"""Row blocks: several rows at a time of a kernel that works row by row, so that its contractions
get tiles.

Attention fused by rows multiplies one row by a matrix at a time. In row blocks, each step of the
body is done for a few rows before the next one: the scratch memory of a row becomes that of a
block, and a contraction reads its matrix once for all rows of it. Every row is computed as
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from relax_aot.fusion.accesses import accesses
from relax_aot.ir.builder import At
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    For,
    If,
    Index,
    Kernel,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_accesses, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Contraction, contraction_of
from relax_aot.scheduling.nest import bounds_known, coefficient, names_in, ranges, without_lets
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="four rows of scratch in place of one",
        before="""
            symbol n in 1..8
            kernel @attend(%q: f32[n, 4], %k: f32[n, 4]) -> (%y: f32[n]) scratch (%s: f32[n]) {
              for i in 0..n {
                for j in 0..n {
                  local sum: f32 = 0.0:f32
                  for d in 0..4 {
                    sum = fma(%q[i, d], %k[j, d], sum)
                  }
                  %s[j] = sum
                }
                local peak: f32 = -inf:f32
                for m in 0..n {
                  peak = max(peak, %s[m])
                }
                %y[i] = peak
              }
            }""",
        after="""
            kernel @attend(...) -> (%y: f32[n]) scratch (%s: f32[min(4, n), n]) {
              for i_block in 0..(n + 3) // 4 {
                let height = max(1, min(-4*i_block + n, 4))
                for r in 0..height {
                  for j in 0..n {
                    local sum: f32 = 0.0:f32
                    for d in 0..4 {
                      sum = fma(%q[4*i_block + r, d], %k[j, d], sum)
                    }
                    %s[r, j] = sum
                  }
                }
                for r_0 in 0..height {
                  local peak: f32 = -inf:f32
                  for m in 0..n {
                    peak = max(peak, %s[r_0, m])
                  }
                  %y[4*i_block + r_0] = peak
                }
              }
            }""",
        target="fpu",
    ),
    Example(
        why="seven sums at a time where latency counts",
        before="""
            symbol n in 1..70
            kernel @center(%x: f32[n, 4]) -> (%y: f32[n, 4]) scratch (%m: f32[]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + %x[i, j])
                }
                %m[] = total
                for k in 0..4 {
                  %y[i, k] = (%x[i, k] - %m[])
                }
              }
            }""",
        after="""
            kernel @center(%x: f32[n, 4]) -> (%y: f32[n, 4]) scratch (%m: f32[min(7, n)]) {
              for i_block in 0..(n + 6) // 7 {
                let height = max(1, min(-7*i_block + n, 7))
                for r in 0..height {
                  local total: f32 = 0.0:f32
                  for j in 0..4 {
                    total = (total + %x[7*i_block + r, j])
                  }
                  %m[r] = total
                }
                for r_0 in 0..height {
                  for k in 0..4 {
                    %y[7*i_block + r_0, k] = (%x[7*i_block + r_0, k] - %m[r_0])
                  }
                }
              }
            }""",
        target="host",
    ),
    Example(
        why="heads have keys of their own, so a block of heads would only take more scratch",
        before="""
            symbol m in 1..8
            kernel @attend(%q: f32[2, 4], %k: f32[2, m, 4]) -> (%y: f32[2]) scratch (%s: f32[m]) {
              for h in 0..2 {
                for j in 0..m {
                  local sum: f32 = 0.0:f32
                  for d in 0..4 {
                    sum = fma(%q[h, d], %k[h, j, d], sum)
                  }
                  %s[j] = sum
                }
                local peak: f32 = -inf:f32
                for j in 0..m {
                  peak = max(peak, %s[j])
                }
                %y[h] = peak
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Row blocks where they help; the scratch of calls grows with them."""
    kernels = {
        k.name: block_rows(k, module.bounds, target.rows, target.sums) for k in module.kernels
    }
    return with_kernels(module, kernels)


def block_rows(kernel: Kernel, bounds: Bounds, rows: int, sums: int = 0) -> Kernel:
    """The kernel in blocks of `rows`, or of `sums` where it has no contractions but reductions;
    unchanged where it has neither in a loop over rows, or where rows share no factor."""
    if kernel.parallel:
        return kernel
    loops: list[For] = []
    body, inside = without_lets(kernel.body), bounds
    while len(body) == 1 and isinstance(body[0], For) and bounds_known(body[0], inside):
        loops.append(body[0])
        inside, body = ranges((body[0],), inside), body[0].body
    if not loops or not kernel.scratch:
        return kernel
    steps: list[tuple[Stmt, ...]] = []
    products = [found for stmt in body if (found := _product(stmt, inside))]
    for contraction, group in groupby(body, lambda stmt: _product(stmt, inside) is not None):
        together = tuple(group)
        steps += [(stmt,) for stmt in together] if contraction else [together]
    if products and not any(_shares(found, loops[-1].variable, kernel) for found in products):
        return kernel
    if not products:
        steps, rows = _reductions(body), sums
        if len(steps) < 2 or not rows:
            return kernel
    if not _independent(kernel, steps, [loop.variable for loop in loops]):
        return kernel
    row = loops.pop()
    extent, height = row.extent, Dim.of(rows)
    if extent.symbols <= set(bounds):  # else it differs between iterations of an outer loop
        height = simplify(dim_max(dim_min(extent, rows), 1), bounds)
    scratch = tuple(replace(buffer, shape=(height, *buffer.shape)) for buffer in kernel.scratch)
    w = Writer(names_in(kernel), bounds)
    name, count = f"{row.variable}_block", ceildiv(row.extent, rows)
    with w.block() as blocked, w.nest(loops), w.range(name, count) as block:
        first = row.start + block * rows
        # A block has a row; the maximum shows it to analyses that do not see it from the loop.
        left = dim_max(dim_min(row.stop - first, rows), 1)
        height = w.let("height", left, left, left)
        for step in steps:
            with w.range("r", height) as r:
                w.add(*_placed(step, {row.variable: first + r}, r, scratch))
    return replace(kernel, scratch=scratch, body=tuple(blocked))


def _reductions(body: tuple[Stmt, ...]) -> list[tuple[Stmt, ...]]:
    """Steps that share no scalar, so that each reduction is in the loop over rows alone; none
    without a reduction."""
    steps: list[tuple[Stmt, ...]] = []
    reduces = False
    for stmt in body:
        used = {e for inner in walk((stmt,)) for e in expressions(inner) if isinstance(e, Local)}
        summed = {inner.local for inner in walk((stmt,)) if isinstance(inner, Assign)}
        used |= summed
        made = [{s.local for s in step if isinstance(s, Declare)} for step in steps]
        first = next((n for n, names in enumerate(made) if names & used), len(steps))
        reduces |= isinstance(stmt, For) and any(names & summed for names in made)
        steps[first:] = [(*(s for step in steps[first:] for s in step), stmt)]
    return steps if reduces else []


def _product(stmt: Stmt, bounds: Bounds) -> Contraction | None:
    found = contraction_of(stmt, bounds)
    return found if found is not None and found.sum.dtype is DType.F32 else None


def _shares(found: Contraction, row: str, kernel: Kernel) -> bool:
    """Whether all rows read one factor, such as the keys of a head. Heads have keys of their
    own: a block of them would only take more scratch."""
    scratch = {buffer.name for buffer in kernel.scratch}
    return any(
        load.buffer.name not in scratch and not any(row in dim.symbols for dim in load.index)
        for load in (found.left, found.right)
    )


def _independent(kernel: Kernel, steps: Sequence[tuple[Stmt, ...]], loops: Sequence[str]) -> bool:
    """Whether each row writes results of its own, reads no result and only the scratch that it
    wrote, and no scalar lives across steps. Rows that access the same elements of scratch, none
    before the first store, read what they wrote: the first row has nothing else to read.
    `loops`: the variables, the row's last."""
    outputs = {buffer.name for buffer in kernel.outputs}
    scratch = frozenset(buffer.name for buffer in kernel.scratch)
    unwritten, row = set(scratch), loops[-1]
    for step in steps:
        if not _scratch_symbols(step, scratch).isdisjoint(loops):
            return False
        made = {stmt.local for stmt in walk(step) if isinstance(stmt, Declare)}
        for stmt in walk(step):
            exprs = [*expressions(stmt)]
            carried = {expr for expr in exprs if isinstance(expr, Local)} - made
            read = {expr.buffer.name for expr in exprs if isinstance(expr, Load)}
            if isinstance(stmt, Bind | If) or carried or read & (outputs | unwritten):
                return False
            if isinstance(stmt, Store):
                unwritten.discard(stmt.buffer.name)
                own = (dim.symbols == {row} and coefficient(dim, row) for dim in stmt.index)
                if stmt.buffer.name in outputs and not any(own):
                    return False
    return True


def _scratch_symbols(step: tuple[Stmt, ...], scratch: frozenset[str]) -> frozenset[str]:
    """The names that decide which elements of scratch a step accesses. Of a condition, any index
    may decide whether there is a load."""
    found = [access for access in accesses(step) if access.name in scratch]
    around = {loop for access in found for loop in access.loops}
    dims = [dim for access in found for dim in access.index]
    dims += [end for loop in around for end in (loop.start, loop.stop)]
    if not all(access.stored for access in found):
        exprs = (expr for stmt in walk(step) for expr in expressions(stmt))
        dims += [expr.dim for expr in exprs if isinstance(expr, Index)]
    return frozenset[str]().union(*(dim.symbols for dim in dims))


def _placed(
    step: tuple[Stmt, ...], at: Mapping[str, Dim], r: Dim, scratch: Iterable[Buffer]
) -> tuple[Stmt, ...]:
    """A step in row `r` of a block; `at`: the row's variable."""
    blocks = {buffer.name: buffer for buffer in scratch}

    def rule(buffer: Buffer, index: At) -> tuple[Buffer, At]:
        kept = blocks.get(buffer.name)
        return (buffer, index) if kept is None else (kept, (r, *index))

    return map_accesses(map_index_dims(step, lambda dim: dim.substitute(at)), rule)
