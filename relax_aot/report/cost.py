# SPDX-License-Identifier: Apache-2.0
"""What a kernel does at given sizes, counted from its loops.

A loop whose inside costs the same each time is multiplied; one whose inside depends on its
variable (tiles with a rest, causal rows) is walked. For data-dependent branches, the more
expensive side counts, and the cost says that it is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from relax_aot.ir.access_ranges import access_ranges
from relax_aot.ir.axes import DEVICE_AXES
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    PLAIN,
    Apply,
    Assign,
    Barrier,
    Binary,
    Bind,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Micro,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
    walk,
)
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.report.blocks import first_block, on_device


@dataclass(frozen=True, slots=True)
class Cost:
    """`a + b * c` and `fma` are one multiply-add; index arithmetic is not counted. Bytes are
    those of all loads and stores that the loops make, whatever a cache saves."""

    multiply_adds: int = 0
    operations: int = 0
    """Other arithmetic."""
    functions: int = 0
    """exp, sqrt, max and the like."""
    loaded_bytes: int = 0
    stored_bytes: int = 0
    exact: bool = True

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.multiply_adds + other.multiply_adds,
            self.operations + other.operations,
            self.functions + other.functions,
            self.loaded_bytes + other.loaded_bytes,
            self.stored_bytes + other.stored_bytes,
            self.exact and other.exact,
        )

    def times(self, count: int) -> Cost:
        if count <= 0:
            return NOTHING
        return Cost(
            self.multiply_adds * count,
            self.operations * count,
            self.functions * count,
            self.loaded_bytes * count,
            self.stored_bytes * count,
            self.exact,
        )


NOTHING = Cost()

Sizes = Mapping[str, int]
Memo = dict[tuple[int, tuple[int, ...]], Cost]


def cost_of(kernel: Kernel, sizes: Sizes) -> Cost:
    """`sizes` has a value for every symbol of the kernel."""
    if on_device(kernel):
        kernel = first_block(kernel, sizes)
    return _body(kernel.body, dict(sizes), {})


def _total(costs: Iterable[Cost]) -> Cost:
    total = NOTHING
    for cost in costs:
        total += cost
    return total


def _body(body: tuple[Stmt, ...], sizes: dict[str, int], memo: Memo) -> Cost:
    sizes = dict(sizes)
    total = NOTHING
    for stmt in body:
        match stmt:
            case Let():
                if stmt.value.symbols <= sizes.keys():
                    sizes[stmt.name] = stmt.value.evaluate(sizes)
            case Bind():
                total += _expr(stmt.value)
                sizes[stmt.name] = max(stmt.high.evaluate(sizes), 0)
            case _:
                total += _stmt(stmt, sizes, memo)
    return total


def _stmt(stmt: Stmt, sizes: dict[str, int], memo: Memo) -> Cost:
    match stmt:
        case For():
            return _loop(stmt, sizes, memo)
        case Store():
            stored = Cost(stored_bytes=stmt.buffer.dtype.bytes)
            return _expr(stmt.value) + stored
        case Declare() | Assign():
            return _expr(stmt.value)
        case If():
            then = _body(stmt.then, sizes, memo)
            otherwise = _body(stmt.otherwise, sizes, memo)
            return _expr(stmt.condition) + _dearer(then, otherwise)
        case Multiply():
            rows, columns = stmt.rows.evaluate(sizes), stmt.columns.evaluate(sizes)
            depth = prod(max(level[0].evaluate(sizes), 0) for level in stmt.levels)
            rows, columns = max(rows, 0), max(columns, 0)
            left, right = stmt.left.dtype.bytes, stmt.right.dtype.bytes
            return Cost(
                multiply_adds=rows * columns * depth,
                loaded_bytes=(rows * left + columns * right) * depth,
            )
        case Micro():
            return _micro(stmt.kernel, tuple(size.evaluate(sizes) for size in stmt.sizes))
        case Let() | Bind() | Reserve() | Barrier():
            return NOTHING


@lru_cache(maxsize=4096)
def _micro(kernel: MicroKernel, sizes: tuple[int, ...]) -> Cost:
    """The multiply-adds of the meaning; each operand is moved once."""
    named = dict(zip(kernel.sizes, sizes, strict=True))
    moved = list(zip(kernel.operands, access_ranges(kernel, sizes), strict=True))
    written = kernel.written
    return Cost(
        multiply_adds=_body(kernel.meaning.body, named, {}).multiply_adds,
        loaded_bytes=sum(n * o.dtype.bytes for o, n in moved if o.name not in written),
        stored_bytes=sum(n * o.dtype.bytes for o, n in moved if o.name in written),
    )


def _loop(loop: For, sizes: dict[str, int], memo: Memo) -> Cost:
    start, stop = loop.start.evaluate(sizes), loop.stop.evaluate(sizes)
    if stop <= start:
        return NOTHING
    deciding = _deciding(loop.body)
    key = (id(loop), (start, stop, *(sizes[n] for n in sorted(deciding & sizes.keys()))))
    if key not in memo:
        if loop.variable in deciding and loop.axis in DEVICE_AXES:
            # Blocks and threads at the edges do less than the first; there are millions of them.
            first = _body(loop.body, {**sizes, loop.variable: start}, memo)
            memo[key] = replace(first.times(stop - start), exact=False)
        elif loop.variable in deciding:
            iterations = (
                _body(loop.body, {**sizes, loop.variable: turn}, memo)
                for turn in range(start, stop)
            )
            memo[key] = _total(iterations)
        else:
            once = _body(loop.body, {**sizes, loop.variable: start}, memo)
            memo[key] = once.times(stop - start)
    return memo[key]


def _deciding(body: tuple[Stmt, ...]) -> set[str]:
    """The symbols that decide how often something in `body` runs."""
    names: set[str] = set()
    for stmt in reversed(list(walk(body))):
        if isinstance(stmt, Let):
            if stmt.name in names:
                names |= stmt.value.symbols
        else:
            names |= {name for dim in _extents(stmt) for name in dim.symbols}
    return names


def _extents(stmt: Stmt) -> Iterator[Dim]:
    match stmt:
        case For():
            yield from (stmt.start, stmt.stop)
        case Multiply():
            yield from (stmt.rows, stmt.columns, *(level[0] for level in stmt.levels))
        case Bind():
            yield stmt.high
        case Micro():
            yield from stmt.sizes
        case _:
            return


def _dearer(one: Cost, other: Cost) -> Cost:
    if one == other:
        return one
    return Cost(
        max(one.multiply_adds, other.multiply_adds),
        max(one.operations, other.operations),
        max(one.functions, other.functions),
        max(one.loaded_bytes, other.loaded_bytes),
        max(one.stored_bytes, other.stored_bytes),
        exact=False,
    )


def _expr(expr: Expr) -> Cost:
    match expr:
        case Load():
            return Cost(loaded_bytes=expr.dtype.bytes)
        case Binary(op="+" | "-", left=left, right=Binary(op="*") as product):
            return _expr(left) + _expr(product.left) + _expr(product.right) + Cost(1)
        case Binary(op="+", left=Binary(op="*") as product, right=right):
            return _expr(right) + _expr(product.left) + _expr(product.right) + Cost(1)
        case Binary():
            inside = _expr(expr.left) + _expr(expr.right)
            return inside + Cost(operations=1) if expr.op in ("+", "-", "*", "/", "%") else inside
        case Apply() if expr.function in PLAIN:
            return _expr(PLAIN[expr.function](*expr.args))
        case Apply():
            inside = _total(_expr(arg) for arg in expr.args)
            return inside + (Cost(1) if expr.function == "fma" else Cost(functions=1))
        case Unary() | Cast():
            return _expr(expr.value)
        case Select():
            return _expr(expr.condition) + _dearer(_expr(expr.then), _expr(expr.otherwise))
        case Lit() | Local() | Index():
            return NOTHING
