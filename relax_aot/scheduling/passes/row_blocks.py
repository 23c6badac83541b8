"""Row blocks: several rows at a time of a kernel that works row by row, so that its contractions
get tiles.

Attention fused by rows multiplies one row by a matrix at a time. In row blocks, each step of the
body is done for a few rows before the next one: the scratch memory of a row becomes that of a
block, and a contraction reads its matrix once for all rows of it. Every row is computed as
before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Module, Var
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims, map_statements
from relax_aot.ir.types import TensorType
from relax_aot.scheduling.nest import coefficient, names_in, nest_of, ranges, without_lets
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Names

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
              for i_strip in 0..(n + 3) // 4 {
                let height = max(1, min(-4*i_strip + n, 4))
                for r in 0..height {
                  for j in 0..n {
                    local sum: f32 = 0.0:f32
                    for d in 0..4 {
                      sum = fma(%q[4*i_strip + r, d], %k[j, d], sum)
                    }
                    %s[r, j] = sum
                  }
                }
                for r_0 in 0..height {
                  local peak: f32 = -inf:f32
                  for m in 0..n {
                    peak = max(peak, %s[r_0, m])
                  }
                  %y[4*i_strip + r_0] = peak
                }
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, target: Target) -> Module:
    return block_rows(module, target.rows)


def block_rows(module: Module, rows: int) -> Module:
    """Blocks of `rows` rows where they help; the scratch of calls grows with them."""
    kernels = {k.name: block_kernel_rows(k, module.bounds, rows) for k in module.kernels}
    functions = tuple(
        replace(f, body=tuple(_call(call, kernels) for call in f.body)) for f in module.functions
    )
    return replace(module, functions=functions, kernels=tuple(kernels.values()))


def _call(call: Call, kernels: dict[str, Kernel]) -> Call:
    if call.op != "call_kernel":
        return call
    scratch = kernels[call.ref("kernel")].scratch
    kept = len(call.outs) - len(scratch)
    grown = (
        Var(out.name, TensorType(out.type.dtype, buffer.shape))
        for out, buffer in zip(call.outs[kept:], scratch, strict=True)
    )
    return replace(call, outs=(*call.outs[:kept], *grown))


def block_kernel_rows(kernel: Kernel, bounds: Bounds, rows: int) -> Kernel:
    """The kernel in row blocks; unchanged where it has no contractions in a loop over rows."""
    loops: list[For] = []
    body = without_lets(kernel.body)
    while len(body) == 1 and isinstance(body[0], For):
        loops.append(body[0])
        body = body[0].body
    if not loops or not kernel.scratch or not _known(loops, bounds):
        return kernel
    steps = _steps(body, ranges(tuple(loops), bounds))
    row = loops[-1].variable
    if not any(step.contraction for step in steps) or not _independent(kernel, body, steps, row):
        return kernel
    names, scratch = Names(names_in(kernel)), {b.name: b for b in kernel.scratch}
    block = _RowBlock(loops[-1], rows, names, scratch, _height(loops[-1], rows, bounds))
    inner = block.loop(steps)
    for loop in reversed(loops[:-1]):
        inner = For(loop.variable, loop.start, loop.stop, (inner,))
    grown = tuple(block.grown(buffer) for buffer in kernel.scratch)
    return replace(kernel, scratch=grown, body=(inner,))


def _height(row: For, rows: int, bounds: Bounds) -> Dim:
    """The rows of the largest block."""
    extent = row.stop - row.start
    if not extent.symbols <= set(bounds):
        return Dim.of(rows)  # it differs between iterations of an outer loop
    return simplify(dim_max(dim_min(extent, rows), 1), bounds)


def _known(loops: list[For], bounds: Bounds) -> bool:
    inner = set(bounds)
    for loop in loops:
        if not (loop.start.symbols | loop.stop.symbols) <= inner:
            return False
        inner.add(loop.variable)
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """Statements that stay together; or one contraction."""

    body: tuple[Stmt, ...]
    contraction: bool


def _steps(body: tuple[Stmt, ...], bounds: Bounds) -> list[_Step]:
    steps: list[_Step] = []
    for stmt in body:
        if _multiplies(stmt, bounds):
            steps.append(_Step((stmt,), True))
        elif steps and not steps[-1].contraction:
            steps[-1] = _Step((*steps[-1].body, stmt), False)
        else:
            steps.append(_Step((stmt,), False))
    return steps


def _multiplies(stmt: Stmt, bounds: Bounds) -> bool:
    nest = nest_of(stmt, bounds)
    return nest is not None and any(
        isinstance(inner, Assign) and _is_product(inner.value) for inner in walk(nest.leaf)
    )


def _is_product(value: Expr) -> bool:
    return getattr(value, "function", "") == "fma"


def _independent(kernel: Kernel, body: tuple[Stmt, ...], steps: list[_Step], row: str) -> bool:
    """Whether rows are independent: each writes results of its own, reads no result and only the
    scratch that it wrote, and no scalar lives across steps."""
    if any(isinstance(stmt, Bind | If) for stmt in walk(body)):
        return False
    outputs = {buffer.name for buffer in kernel.outputs}
    scratch = {buffer.name: buffer for buffer in kernel.scratch}
    results = [s for s in walk(body) if isinstance(s, Store) and s.buffer.name in outputs]
    for store in results:
        if not any(coefficient(d, row) not in (None, 0) and _plain(d) for d in store.index):
            return False
    if any(load.buffer.name in outputs for load in _loads(body)):
        return False
    filled: set[str] = set()
    for stmt in body:
        if not _reads_its_own((stmt,), frozenset(scratch) - filled, frozenset()):
            return False
        filled |= {name for name in scratch if _covers(stmt, scratch[name], {})}
    return all(_scalars_stay(step.body) for step in steps)


def _scalars_stay(body: tuple[Stmt, ...]) -> bool:
    made = {s.local.name for s in walk(body) if isinstance(s, Declare)}
    used = {e.name for s in walk(body) for e in expressions(s) if isinstance(e, Local)}
    return used <= made


Stored = frozenset[tuple[str, tuple[Dim, ...]]]


def _reads_its_own(body: tuple[Stmt, ...], unfilled: frozenset[str], stored: Stored) -> bool:
    """Elements of `unfilled` buffers are read only after they were stored in the same iteration."""
    for stmt in body:
        loads = [expr for expr in expressions(stmt) if isinstance(expr, Load)]
        if any(e.buffer.name in unfilled and (e.buffer.name, e.index) not in stored for e in loads):
            return False
        match stmt:
            case Store():
                stored |= {(stmt.buffer.name, stmt.index)}
            case For():
                kept = frozenset(
                    (name, index)
                    for name, index in stored
                    if all(stmt.variable not in dim.symbols for dim in index)
                )
                if not _reads_its_own(stmt.body, unfilled, kept):
                    return False
            case _:
                pass
    return True


def _plain(dim: Dim) -> bool:
    return len(dim.symbols) == 1


def _loads(body: tuple[Stmt, ...]) -> Iterator[Load]:
    for stmt in walk(body):
        for expr in expressions(stmt):
            if isinstance(expr, Load):
                yield expr


def _covers(stmt: Stmt, buffer: Buffer, whole: dict[str, Dim]) -> bool:
    """A chain of loops in the statement writes every element."""
    match stmt:
        case For():
            inner = {**whole, stmt.variable: stmt.stop} if stmt.start == 0 else whole
            return any(_covers(part, buffer, inner) for part in stmt.body)
        case Store() if stmt.buffer == buffer:
            used: set[str] = set()
            for dim, size in zip(stmt.index, buffer.shape, strict=True):
                name = str(dim)
                if dim == 0 and size == 1:
                    continue
                if whole.get(name) != size or name in used:
                    return False
                used.add(name)
            return True
        case _:
            return False


@dataclass
class _RowBlock:
    """Writes the loop over row blocks."""

    row: For
    rows: int
    names: Names
    scratch: dict[str, Buffer]
    height: Dim
    """Rows of the largest block."""

    def grown(self, buffer: Buffer) -> Buffer:
        return Buffer(buffer.name, buffer.dtype, (self.height, *buffer.shape))

    def loop(self, steps: list[_Step]) -> For:
        strip = self.names.fresh(f"{self.row.variable}_strip")
        first = self.row.start + Dim.of(strip) * self.rows
        height = self.names.fresh("height")
        # A block has a row; the maximum shows it to analyses that do not see it from the loop.
        left = dim_max(dim_min(self.row.stop - first, self.rows), 1)
        body: list[Stmt] = [Let(height, left)]
        for step in steps:
            r = self.names.fresh("r")
            placed = self._placed(step.body, Dim.of(r), first + Dim.of(r))
            body.append(For(r, Dim.of(0), Dim.of(height), placed))
        count = ceildiv(self.row.stop - self.row.start, self.rows)
        return For(strip, Dim.of(0), count, tuple(body))

    def _placed(self, body: tuple[Stmt, ...], r: Dim, place: Dim) -> tuple[Stmt, ...]:
        def on_expr(expr: Expr) -> Expr:
            if isinstance(expr, Load) and expr.buffer.name in self.scratch:
                return Load(self.grown(expr.buffer), (r, *expr.index))
            return expr

        def on_stmt(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Store) and stmt.buffer.name in self.scratch:
                return Store(self.grown(stmt.buffer), (r, *stmt.index), stmt.value)
            return stmt

        values = {self.row.variable: place}
        body = map_index_dims(body, lambda dim: dim.substitute(values))
        return map_statements(map_exprs(body, on_expr), on_stmt)
