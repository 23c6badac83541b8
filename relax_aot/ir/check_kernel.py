# SPDX-License-Identifier: Apache-2.0
"""The invariants of a kernel, and its accesses that are certainly out of bounds. Part of check.py.

Certain means: there are sizes within the bounds for which the access is reached. What a
condition or data guard is not looked at, so a kernel that passes is not proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from relax_aot.ir.axes import ARENA, CORE
from relax_aot.ir.check_parallel import parallel_problems
from relax_aot.ir.dims import Dim, row_major
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    LOGICAL,
    PARTS,
    Assign,
    Binary,
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
    Micro,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    bound_name,
    expressions,
    held,
    index_dims,
    walk,
)
from relax_aot.ir.types import DType


def kernel_problems(module: Module, kernel: Kernel, *, runs: bool) -> Iterator[str]:
    """Its accesses are looked at where nothing else is wrong and it `runs` for all sizes."""
    found = list(_problems(kernel, frozenset(symbol.name for symbol in module.symbols)))
    yield from found
    if not found and runs:
        yield from _outside(module, kernel)


def _problems(kernel: Kernel, symbols: frozenset[str]) -> Iterator[str]:
    names = [buffer.name for buffer in kernel.buffers]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two buffers are called %{name}"
    bound = set(map(bound_name, walk(kernel.body)))
    # A name of the kernel's own hides a symbol of the module that no buffer shows.
    shaped = (symbols - bound).union(*(buffer.type.symbols for buffer in kernel.buffers))
    readonly = {buffer.name for buffer in kernel.inputs}
    outputs = {buffer.name for buffer in kernel.outputs}
    for read, written in kernel.in_place:
        if read not in readonly or written not in outputs:
            yield f"in_place (%{read} = %{written}) is not a pair of an input and an output"
    for buffer in kernel.buffers:
        allowed = (ARENA, CORE) if buffer in kernel.scratch else (ARENA,)
        if buffer.scope not in allowed:
            yield f"%{buffer.name}: the scope {buffer.scope} is not {' or '.join(allowed)}"
    yield from _block(kernel.body, kernel, {}, set(), shaped, readonly)
    yield from parallel_problems(kernel)


def _block(
    body: tuple[Stmt, ...],
    kernel: Kernel,
    locals_: Mapping[str, Local],
    indices: set[str],
    shaped: frozenset[str],
    readonly: set[str],
) -> Iterator[str]:
    """Statements in order; names made in a block end with it."""
    locals_, indices = dict(locals_), set(indices)
    for stmt in body:
        buffers = {buffer.name: buffer for buffer in kernel.buffers}
        for dim in index_dims(stmt):
            for name in sorted(dim.symbols - shaped - indices):
                yield f"{dim}: unknown size {name}"
        for expr in expressions(stmt):
            if isinstance(expr, Local) and locals_.get(expr.name) != expr:
                yield f"the scalar {expr.name} is not declared above"
            if isinstance(expr, Load):
                yield from _access(expr, buffers)
        name = bound_name(stmt)
        if name in indices | shaped:
            what = "the loop variable " if isinstance(stmt, For) else ""
            yield f"{what}{name} has the name of another size"
        yield from _stmt(stmt, buffers, locals_, readonly)
        match stmt:
            case For():
                inner = indices | {stmt.variable}
                yield from _block(stmt.body, kernel, locals_, inner, shaped, readonly)
            case If():
                for side in (stmt.then, stmt.otherwise):
                    yield from _block(side, kernel, locals_, indices, shaped, readonly)
            case Declare():
                locals_[stmt.local.name] = stmt.local
            case Let() | Bind():
                indices = indices | {stmt.name}
            case Reserve():
                kernel = replace(kernel, scratch=(*kernel.scratch, stmt.buffer))
            case _:
                pass


def _stmt(
    stmt: Stmt, buffers: Mapping[str, Buffer], locals_: Mapping[str, Local], readonly: set[str]
) -> Iterator[str]:
    """What is wrong with a statement itself, where its expressions are right."""
    match stmt:
        case Store():
            if stmt.buffer.name in readonly:
                yield f"%{stmt.buffer.name} is an input, and is written"
            else:
                yield from _access(Load(stmt.buffer, stmt.index), buffers)
            if stmt.value.dtype is not stmt.buffer.dtype:
                yield f"a {stmt.value.dtype.value} is stored into {stmt.buffer.type}"
        case Declare() | Assign():
            if isinstance(stmt, Assign) and locals_.get(stmt.local.name) != stmt.local:
                yield f"the scalar {stmt.local.name} is not declared above"
            if stmt.value.dtype is not stmt.local.dtype:
                yield f"{stmt.local.name} is {stmt.local.dtype.value}, not its value's type"
        case Bind() if not stmt.value.dtype.is_int:
            yield f"{stmt.name} is bound to a {stmt.value.dtype.value}, not to an integer"
        case Reserve():
            if stmt.buffer.name in buffers:
                yield f"two buffers are called %{stmt.buffer.name}"
            if stmt.buffer.scope == ARENA:
                yield f"%{stmt.buffer.name}: reserved memory is not of the arena"
            if not stmt.buffer.type.elements.is_constant:
                yield f"%{stmt.buffer.name}: {stmt.buffer.type} is no number of elements"
        case Multiply():
            if buffers.get(stmt.sums.name) != stmt.sums or stmt.sums.name in readonly:
                yield f"%{stmt.sums.name} is no buffer that the kernel writes"
            narrow = [f.dtype for f in (stmt.left, stmt.right) if f.dtype is not DType.F32]
            fits = len(narrow) < 2 and all(dtype.is_half for dtype in narrow)
            if stmt.sums.dtype is not DType.F32 or not fits:
                yield f"%{stmt.sums.name}: tiles are of f32, or of half precision on one side"
        case Micro():
            yield from _micro(stmt, readonly)
        case _:
            return


def _access(load: Load, buffers: Mapping[str, Buffer]) -> Iterator[str]:
    buffer = load.buffer
    if buffers.get(buffer.name) != buffer:
        yield f"%{buffer.name} is no buffer of the kernel"
    elif len(load.index) != buffer.rank:
        yield f"%{buffer.name}: {len(load.index)} indices for {buffer.type}"


def _micro(stmt: Micro, readonly: set[str]) -> Iterator[str]:
    """Operands are buffers of the types that the micro-kernel takes."""
    if len(stmt.sizes) != len(stmt.kernel.sizes):
        yield f"{stmt.name} takes {len(stmt.kernel.sizes)} sizes, not {len(stmt.sizes)}"
    for (name, allowed), size in zip(stmt.kernel.sizes.items(), stmt.sizes, strict=False):
        if size.is_constant and not allowed.may_be(size.constant):
            yield f"{stmt.name}: {name} is {size}, not {allowed}"
    for wanted, load in zip(stmt.kernel.operands, stmt.operands, strict=True):
        if load.dtype is not wanted.dtype:
            yield f"{stmt.name}: {wanted.name} is {wanted.dtype.value}, not {load.dtype.value}"
        if wanted.name in stmt.kernel.written and load.buffer.name in readonly:
            yield f"%{load.buffer.name} is an input, and is written"


# Accesses outside


@dataclass(frozen=True, slots=True)
class _Access:
    """`index` is free of names that `let` gave; `loops` are those around it, outer first."""

    buffer: Buffer
    index: tuple[Dim, ...]
    loops: tuple[For, ...]


def _outside(module: Module, kernel: Kernel) -> Iterator[str]:
    """For kernels that run whatever the data; told for the first sizes where it is so."""
    used = set(kernel.free_symbols).union(*(b.type.symbols for b in kernel.buffers))
    used = used.union(*(c.left.symbols | c.right.symbols for c in module.conditions))
    if used & module.inner or not used <= set(module.bounds):
        return
    reached = _reached(kernel.body, (), {}, set())
    accesses = [(one, [_ends(dim, one.loops) for dim in one.index]) for one in reached]
    for step in range(9):  # from the least to the greatest sizes
        ranges = {name: module.bounds.range(name) for name in sorted(used)}
        sizes = {name: low + (high - low) * step // 8 for name, (low, high) in ranges.items()}
        sides = ((c, c.left.evaluate(sizes), c.right.evaluate(sizes)) for c in module.conditions)
        if any(a != b if c.relation == "==" else a > b for c, a, b in sides):
            continue
        found = [line for access, ends in accesses for line in _at(access, ends, sizes)]
        yield from found
        if found:
            return


def _at(access: _Access, ends: list[list[_Ends]], sizes: dict[str, int]) -> Iterator[str]:
    buffer = access.buffer
    for axis, dim in enumerate(access.index):
        for value in _extremes(dim, access.loops, ends[axis], sizes):
            if not 0 <= value < buffer.shape[axis].evaluate(sizes):
                index = ", ".join(map(str, access.index))
                at = ", ".join(f"{name}={size}" for name, size in sizes.items())
                where = f"{value} on axis {axis}" + (f" for {at}" if at else "")
                yield f"%{buffer.name}[{index}] is outside {buffer.type}: {where}"


def _reached(
    body: Sequence[Stmt], loops: tuple[For, ...], lets: dict[str, Dim], data: set[str]
) -> Iterator[_Access]:
    """Accesses that no condition guards, and whose index does not depend on data."""
    lets, data = dict(lets), set(data)

    def access(
        buffer: Buffer, index: tuple[Dim, ...], counts: tuple[Dim, ...] = ()
    ) -> Iterator[_Access]:
        plain = tuple(dim.substitute(lets) for dim in index)
        inner_loops = tuple(
            For(f"iteration {n}", Dim.of(0), count.substitute(lets), ())
            for n, count in enumerate(counts)
        )
        symbols = (
            dim.symbols for dim in (*plain, *(inner_loop.stop for inner_loop in inner_loops))
        )
        if not any(names & data for names in symbols):
            yield _Access(buffer, plain, (*loops, *inner_loops))

    for stmt in body:
        if isinstance(stmt, Multiply):
            # With no steps, or no sums, it reads nothing.
            counts = (stmt.rows, stmt.columns, *(count for count, _, _ in stmt.levels))
            for load in (stmt.left, stmt.right):
                yield from access(load.buffer, load.index, counts)
            continue
        if isinstance(stmt, Micro):  # it accesses what its operands have, from an address on
            sizes = dict(zip(stmt.kernel.sizes, stmt.sizes, strict=True))
            for operand, load in zip(stmt.kernel.operands, stmt.operands, strict=True):
                buffer = replace(load.buffer, shape=(load.buffer.type.elements,))
                count = operand.type.elements.substitute(sizes)
                place = row_major(load.index, load.buffer.shape) + Dim.of("iteration 0")
                yield from access(buffer, (place,), (count,))
            continue
        for whole in [*held(stmt, PARTS)][:1]:
            for load in _certain(whole):
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


def _certain(expr: Expr) -> Iterator[Load]:
    """Loads that happen whenever the expression is evaluated."""
    match expr:
        case Load():
            yield expr
        case Binary() if expr.op in LOGICAL:
            yield from _certain(expr.left)
        case Select():
            yield from _certain(expr.condition)
        case _:
            for part in held(expr, PARTS):
                yield from _certain(part)


_Ends: TypeAlias = tuple[Dim, ...]
"""What the variable of each loop is where an index is greatest or least."""


def _ends(dim: Dim, loops: Sequence[For]) -> list[_Ends]:
    """Both, as far as the index is linear in the variables."""
    found: list[_Ends] = []
    for upwards in (True, False):
        rest, values = dim, list[Dim]()
        for loop in reversed(loops):
            step = rest.substitute({loop.variable: Dim.of(loop.variable) + 1}) - rest
            if not step.is_constant:
                return found
            last = (step.constant > 0) == upwards and step != 0
            values.append(loop.stop - 1 if last else loop.start)
            rest = rest.substitute({loop.variable: values[-1]})
        found.append(tuple(reversed(values)))
    return found


def _extremes(
    dim: Dim, loops: Sequence[For], ends: Sequence[_Ends], sizes: dict[str, int]
) -> Iterator[int]:
    """Greatest and least value of an index where the loops reach them."""
    for values in ends:
        point = dict(sizes)
        for loop, value in zip(loops, values, strict=True):
            point[loop.variable] = value.evaluate(point)
            if not loop.start.evaluate(point) <= point[loop.variable] < loop.stop.evaluate(point):
                break
        else:
            yield dim.evaluate(point)
