"""Accesses of a kernel that are certainly outside their buffer. Part of check.py.

Certain means: there are sizes within the bounds for which the access is reached. What a
condition or data guard is not looked at, so a kernel that passes is not proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition, Module
from relax_aot.ir.loops import (
    LOGICAL,
    Apply,
    Binary,
    Bind,
    Buffer,
    Cast,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Multiply,
    Select,
    Stmt,
    Store,
    Unary,
    expressions,
    free_symbols,
)

Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class _Access:
    """`index` is free of names that `let` gave; `loops` are those around it, outer first."""

    buffer: Buffer
    index: tuple[Dim, ...]
    loops: tuple[For, ...]


def outside(module: Module, kernel: Kernel) -> Iterator[str]:
    """For kernels that run whatever the data; told for the first sizes where it is so."""
    used = set(free_symbols(kernel)).union(*(b.type.symbols for b in kernel.buffers))
    used = used.union(*(c.left.symbols | c.right.symbols for c in module.conditions))
    inner = {symbol.name for symbol in module.symbols if symbol.inner}
    if used & inner or not used <= set(module.bounds):
        return
    accesses = list(_reached(kernel.body, (), {}, set()))
    for step in range(STEPS + 1):
        ranges = {name: module.bounds.range(name) for name in sorted(used)}
        sizes = {name: low + (high - low) * step // STEPS for name, (low, high) in ranges.items()}
        if any(_broken(condition, sizes) for condition in module.conditions):
            continue
        found = [line for access in accesses for line in _at(access, sizes)]
        yield from found
        if found:
            return


STEPS = 8
"""From the least to the greatest sizes in so many steps."""


def _at(access: _Access, sizes: Sizes) -> Iterator[str]:
    buffer = access.buffer
    for axis, dim in enumerate(access.index):
        for value in _extremes(dim, access.loops, sizes):
            if not 0 <= value < buffer.shape[axis].evaluate(sizes):
                index = ", ".join(map(str, access.index))
                at = ", ".join(f"{name}={size}" for name, size in sizes.items())
                where = f"{value} on axis {axis}" + (f" for {at}" if at else "")
                yield f"%{buffer.name}[{index}] is outside {buffer.type}: {where}"


def _broken(condition: Condition, sizes: Mapping[str, int]) -> bool:
    left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
    return left != right if condition.relation == "==" else left > right


def _reached(
    body: Sequence[Stmt], loops: tuple[For, ...], lets: dict[str, Dim], data: set[str]
) -> Iterator[_Access]:
    """Accesses that no condition guards, and whose index does not depend on data."""
    lets, data = dict(lets), set(data)

    def access(
        buffer: Buffer, index: tuple[Dim, ...], counts: tuple[Dim, ...] = ()
    ) -> Iterator[_Access]:
        plain = tuple(dim.substitute(lets) for dim in index)
        turns = tuple(
            For(f"turn {n}", Dim.of(0), count.substitute(lets), ())
            for n, count in enumerate(counts)
        )
        symbols = (dim.symbols for dim in (*plain, *(turn.stop for turn in turns)))
        if not any(names & data for names in symbols):
            yield _Access(buffer, plain, (*loops, *turns))

    for stmt in body:
        if isinstance(stmt, Multiply):
            # With no steps, or no sums, it reads nothing.
            counts = (stmt.rows, stmt.columns, *(count for count, _, _ in stmt.levels))
            for load in (stmt.left, stmt.right):
                yield from access(load.buffer, load.index, counts)
            continue
        for load in _loads(stmt):
            yield from access(load.buffer, load.index)
        match stmt:
            case Store():
                yield from access(stmt.buffer, stmt.index)
            case For():
                start, stop = (dim.substitute(lets) for dim in (stmt.start, stmt.stop))
                if not (start.symbols | stop.symbols) & data:
                    loop = For(stmt.variable, start, stop, ())
                    yield from _reached(stmt.body, (*loops, loop), lets, data)
            case Let():
                lets[stmt.name] = stmt.value.substitute(lets)
            case Bind():
                data.add(stmt.name)
            case _:
                pass


def _loads(stmt: Stmt) -> Iterator[Load]:
    for whole in expressions(stmt):
        yield from _certain(whole)
        return  # the first expression is the whole one


def _certain(expr: Expr) -> Iterator[Load]:
    """Loads that happen whenever the expression is evaluated."""
    match expr:
        case Load():
            yield expr
        case Unary() | Cast():
            yield from _certain(expr.value)
        case Binary():
            yield from _certain(expr.left)
            if expr.op not in LOGICAL:
                yield from _certain(expr.right)
        case Apply():
            for arg in expr.args:
                yield from _certain(arg)
        case Select():
            yield from _certain(expr.condition)
        case _:
            return


def _extremes(dim: Dim, loops: Sequence[For], sizes: Sizes) -> Iterator[int]:
    """Greatest and least value of an index where the loops reach them."""
    for upwards in (True, False):
        rest, values = dim, []
        for loop in reversed(loops):
            step = rest.substitute({loop.variable: Dim.of(loop.variable) + 1}) - rest
            if not step.is_constant:
                return
            last = (step.constant > 0) == upwards and step != 0
            values.append(loop.stop - 1 if last else loop.start)
            rest = rest.substitute({loop.variable: values[-1]})
        point = dict(sizes)
        for loop, value in zip(loops, reversed(values), strict=True):
            point[loop.variable] = value.evaluate(point)
            if not loop.start.evaluate(point) <= point[loop.variable] < loop.stop.evaluate(point):
                break
        else:
            yield dim.evaluate(point)
