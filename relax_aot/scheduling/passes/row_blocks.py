# SPDX-License-Identifier: Apache-2.0
"""Row blocks: several rows at a time of a kernel that works row by row, so that its contractions
get tiles.

Attention fused by rows multiplies one row by a matrix at a time. In row blocks, each step of the
body is done for a few rows before the next one: the scratch memory of a row becomes that of a
block, and a contraction reads its matrix once for all rows of it. Every row is computed as
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

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
from relax_aot.ir.rewrite import map_accesses, map_index_dims, map_statements
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
        why="a loop that all rows share stays around the rows of a block",
        before="""
            symbol n in 1..8
            kernel @sums(%q: f32[n, 4], %k: f32[8, 4]) -> (%y: f32[n]) scratch (%s: f32[4], %t: f32[]) {
              for i in 0..n {
                %t[] = 0.0:f32
                for b in 0..2 {
                  for j in 0..4 {
                    local sum: f32 = 0.0:f32
                    for d in 0..4 {
                      sum = fma(%q[i, d], %k[4*b + j, d], sum)
                    }
                    %s[j] = sum
                  }
                  local part: f32 = %t[]
                  for j in 0..4 {
                    part = (part + %s[j])
                  }
                  %t[] = part
                }
                %y[i] = %t[]
              }
            }""",  # noqa: E501
        after="""
            kernel @sums(%q: f32[n, 4], %k: f32[8, 4]) -> (%y: f32[n]) scratch (%s: f32[min(4, n), 4], %t: f32[min(4, n)]) {
              for i_block in 0..(n + 3) // 4 {
                let height = max(1, min(-4*i_block + n, 4))
                for r in 0..height {
                  %t[r] = 0.0:f32
                }
                for b in 0..2 {
                  for r_0 in 0..height {
                    for j in 0..4 {
                      local sum: f32 = 0.0:f32
                      for d in 0..4 {
                        sum = fma(%q[4*i_block + r_0, d], %k[4*b + j, d], sum)
                      }
                      %s[r_0, j] = sum
                    }
                  }
                  for r_1 in 0..height {
                    local part: f32 = %t[r_1]
                    for j in 0..4 {
                      part = (part + %s[r_1, j])
                    }
                    %t[r_1] = part
                  }
                }
                for r_2 in 0..height {
                  %y[4*i_block + r_2] = %t[r_2]
                }
              }
            }""",  # noqa: E501
        target="fpu",
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


@dataclass(frozen=True, slots=True)
class _Loop:
    """Steps that are repeated in a serial loop, such as a block of keys at a time."""

    loop: For
    steps: tuple[_Step, ...]


_Step = tuple[Stmt, ...] | _Loop


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
    variables = [loop.variable for loop in loops]
    steps = _steps(body, inside, variables[-1])
    products = [*_products(steps, inside)]
    if products and not any(_shares(found, variables[-1], kernel) for found in products):
        return kernel
    if not products:
        steps, rows = list[_Step](_reductions(body)), sums
        if len(steps) < 2 or not rows:
            return kernel
    if not _independent(kernel, [*_flat(steps)], variables):
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
        _each_row(steps, w, height, lambda step, r: _placed(step, row.variable, first, r, scratch))
    return replace(kernel, scratch=scratch, body=tuple(blocked))


def _steps(body: tuple[Stmt, ...], bounds: Bounds, row: str) -> list[_Step]:
    """Each contraction, each loop of contractions that is the same for all rows, and what is
    between them."""

    def kind(stmt: Stmt) -> int:
        if not isinstance(stmt, For) or _product(stmt, bounds):
            return int(isinstance(stmt, For))
        common = bounds_known(stmt, bounds) and row not in stmt.start.symbols | stmt.stop.symbols
        inside = ranges((stmt,), bounds) if common else bounds
        return 2 if common and any(_product(inner, inside) for inner in stmt.body) else 0

    steps: list[_Step] = []
    for which, group in groupby(body, kind):
        for stmt in (together := tuple(group)):
            if which == 1:
                steps.append((stmt,))
            elif which == 2 and isinstance(stmt, For):
                inner = _steps(stmt.body, ranges((stmt,), bounds), row)
                steps.append(_Loop(replace(stmt, body=()), tuple(inner)))
        steps += [together] if which == 0 else []
    return steps


def _flat(steps: Iterable[_Step]) -> Iterator[tuple[Stmt, ...]]:
    for step in steps:
        if isinstance(step, _Loop):
            yield from _flat(step.steps)
        else:
            yield step


def _products(steps: Iterable[_Step], bounds: Bounds) -> Iterator[Contraction]:
    for step in steps:
        if isinstance(step, _Loop):
            yield from _products(step.steps, ranges((step.loop,), bounds))
        elif found := _product(step[0], bounds):
            yield found


def _each_row(
    steps: Iterable[_Step],
    w: Writer,
    height: Dim,
    placed: Callable[[tuple[Stmt, ...], Dim], tuple[Stmt, ...]],
) -> None:
    """Every step for all rows of a block before the next one. In a loop of steps, lengths that
    take a minimum are computed once."""
    for step in steps:
        if not isinstance(step, _Loop):
            with w.range("r", height) as r:
                w.add(*placed(step, r))
            continue
        with w.loop(step.loop.variable, step.loop.start, step.loop.stop):
            stops = [s.stop for s in walk(chain(*_flat(step.steps))) if isinstance(s, For)]
            known = dict.fromkeys(stop for stop in stops if stop.symbols <= set(w.bounds))
            lengths = {stop: w.named("width", stop) for stop in known}
            inner = [_with_stops(inner, lengths) for inner in step.steps]
            _each_row(inner, w, height, placed)


def _with_stops(step: _Step, lengths: Mapping[Dim, Dim]) -> _Step:
    if isinstance(step, _Loop):
        return replace(step, steps=tuple(_with_stops(inner, lengths) for inner in step.steps))

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.stop not in lengths:
            return stmt
        return replace(stmt, stop=lengths[stmt.stop])

    return map_statements(step, rule)


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
    step: tuple[Stmt, ...], row: str, first: Dim, r: Dim, scratch: Iterable[Buffer]
) -> tuple[Stmt, ...]:
    """A step in row `r` of a block that begins with row `first`; `row`: the variable."""
    at = {row: first + r}
    blocks = {buffer.name: buffer for buffer in scratch}

    def rule(buffer: Buffer, index: At) -> tuple[Buffer, At]:
        kept = blocks.get(buffer.name)
        return (buffer, index) if kept is None else (kept, (r, *index))

    return map_accesses(map_index_dims(step, lambda dim: dim.substitute(at)), rule)
