# SPDX-License-Identifier: Apache-2.0
"""Indices that a kernel only moves are read where they come from.

    for i { for j { at[i, j] = to[i] } }                 for i { k = to[i]
    for i { for j { y[at[i, j], j] += x[i, j] } }   ->           for j { y[k, j] += x[i, j] } }

Exporters write a sum over the edges of a graph with one index for each element, expanded from
one for each row. The check of an index is a step between the two kernels, so fusion would leave
the expanded indices in memory. What an index needs is computed outside loops that do not change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, Bounds, prove_le
from relax_aot.ir.graph import Call, Function, Module, Var
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.names import defined_name, unused_name
from relax_aot.ir.rewrite import map_exprs

_Move = tuple[Var, tuple[str, ...], At]
"""A source, loops over a result, and the index of the element that each iteration copies."""


def read_at_source(module: Module) -> Module:
    """A lowered module -> the same where kernels that check indices read them at their source."""
    kernels = dict(module.kernel_table)
    functions = tuple(_in_function(function, module, kernels) for function in module.functions)
    called = {c.ref("kernel") for f in functions for c in f.body if c.op == "call_kernel"}
    gone = {name for name, calls in module.kernel_calls.items() if calls} - called
    kept = tuple(kernel for kernel in kernels.values() if kernel.name not in gone)
    return replace(module, functions=functions, kernels=kept)


def _in_function(function: Function, module: Module, kernels: dict[str, Kernel]) -> Function:
    body: list[Call] = []
    moves: dict[str, _Move] = {}
    for call in function.body:
        if call.op == "call_kernel":
            name = call.ref("kernel")
            move = _moved(kernels[name])
            if move is not None:
                moves[call.out.name] = (call.inputs[0], *move)
            elif len(module.kernel_calls[name]) == 1:
                call, kernels[name] = _at_source(call, kernels[name], moves, module.bounds)
        body.append(call)
    read = {value.name for call in body for value in call.inputs}
    read |= {value.name for value in function.results}
    unread = moves.keys() - read
    kept = (call for call in body if not any(out.name in unread for out in call.outs))
    return replace(function, body=tuple(kept))


def _at_source(
    call: Call, kernel: Kernel, moves: Mapping[str, _Move], bounds: Bounds
) -> tuple[Call, Kernel]:
    if not kernel.fallible or kernel.parallel:
        return call, kernel
    wanted = _read_for_indices(kernel.body)
    for buffer, value in zip(kernel.inputs, call.inputs, strict=True):
        if buffer.name in wanted and buffer.dtype.is_int and value.name in moves:
            call, kernel = _reading(call, kernel, buffer, moves[value.name])
            kernel = replace(kernel, body=_outside_loops(kernel.body, bounds))
    return call, kernel


def _moved(kernel: Kernel) -> tuple[tuple[str, ...], At] | None:
    """The loops and the index of a kernel that does no more than a `_Move`."""
    if len(kernel.inputs) != 1 or len(kernel.outputs) != 1 or kernel.scratch or kernel.parallel:
        return None
    body, spans = kernel.body, {}
    while len(body) == 1 and isinstance(body[0], For):
        spans[body[0].variable] = (body[0].start, body[0].stop)
        body = body[0].body
    match body:
        case (Store(index=at, value=Load(index=source)),):
            names = tuple(dim.symbol or "" for dim in at)
            whole = zip(names, ((ZERO, size) for size in kernel.outputs[0].shape), strict=True)
            each_once = len(spans) == len(names) and dict(whole) == spans
            return (names, source) if each_once else None
    return None


def _reading(call: Call, kernel: Kernel, buffer: Buffer, move: _Move) -> tuple[Call, Kernel]:
    """The source in place of what `buffer` holds."""
    source, names, index = move
    taken = {one.name for one in kernel.buffers}
    read = Buffer(unused_name(source.name, taken), source.type.dtype, source.type.shape)

    def rule(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.buffer != buffer:
            return expr
        at = dict(zip(names, expr.index, strict=True))
        return Load(read, tuple(dim.substitute(at) for dim in index))

    operands = zip(kernel.inputs, call.inputs, strict=True)
    pairs = [(read, source) if one == buffer else (one, value) for one, value in operands]
    inputs = tuple(one for one, _ in pairs)
    kernel = replace(kernel, inputs=inputs, body=map_exprs(kernel.body, rule))
    return replace(call, args=tuple(value for _, value in pairs)), kernel


def _read_for_indices(body: tuple[Stmt, ...]) -> set[str]:
    """Buffers whose elements are in the value of a `Bind`, also by way of locals."""
    values = {s.local.name: s for s in walk(body) if isinstance(s, Declare)}
    waiting: list[Stmt] = [stmt for stmt in walk(body) if isinstance(stmt, Bind)]
    found: set[str] = set()
    while waiting:
        used = list(expressions(waiting.pop()))
        found |= {part.buffer.name for part in used if isinstance(part, Load)}
        names = {part.name for part in used if isinstance(part, Local)}
        waiting += (values.pop(name) for name in sorted(names & values.keys()))
    return found


def _outside_loops(body: tuple[Stmt, ...], bounds: Bounds) -> tuple[Stmt, ...]:
    """With definitions at the beginning of loops before these, where no iteration changes them
    and there is one for all sizes."""
    defined = Counter(map(defined_name, walk(body)))
    stored = {stmt.buffer.name for stmt in walk(body) if isinstance(stmt, Store)}
    assigned = {stmt.local.name for stmt in walk(body) if isinstance(stmt, Assign)}

    def unchanged(stmt: Stmt, variable: str) -> bool:
        name = defined_name(stmt)
        if not isinstance(stmt, Declare | Bind | Let) or defined[name] > 1 or name in assigned:
            return False
        used = list(expressions(stmt))
        names = {part.name for part in used if isinstance(part, Local)}
        names |= {symbol for dim in index_dims(stmt) for symbol in dim.symbols}
        loaded = {part.buffer.name for part in used if isinstance(part, Load)}
        return not (names & (assigned | {variable}) or loaded & stored)

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, For):
                inner = list(block(stmt.body))
                if prove_le(ONE, stmt.stop - stmt.start, bounds):
                    while inner and unchanged(inner[0], stmt.variable):
                        made.append(inner.pop(0))
                stmt = replace(stmt, body=tuple(inner))
            made.append(stmt)
        return tuple(made)

    return block(body)
