# SPDX-License-Identifier: Apache-2.0
"""Removes unused values of a kernel.

Fused and specialized kernels leave values behind: an index along an axis of size 1, the place
of an extremum that is only compared with itself, scratch memory whose readers are gone. C
compilers warn of them. Removed are scalars, index names, stores to memory of the kernel's own
and the loops and branches around them, as long as no result depends on them. Every expression
is free of side effects, so what stays computes the same. A `Bind` that can fail stays, and so
does what decides whether it is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Module
from relax_aot.ir.loops import (
    DIMS,
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
    Lit,
    Load,
    Local,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
    expressions,
    held,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims, map_statements
from relax_aot.ir.types import DType
from relax_aot.ir.value_ranges import compared


def without_unused_module(module: Module) -> Module:
    """Every kernel without unused values; calls no longer provide scratch that is gone."""
    kernels = {kernel.name: without_unused(kernel) for kernel in module.kernels}
    functions = tuple(
        replace(f, body=tuple(_call(call, module, kernels) for call in f.body))
        for f in module.functions
    )
    return replace(module, functions=functions, kernels=tuple(kernels.values()))


def _call(call: Call, module: Module, kernels: Mapping[str, Kernel]) -> Call:
    if call.op != "call_kernel":
        return call
    name = call.ref("kernel")
    before, after = module.kernel_table[name].scratch, kernels[name].scratch
    if len(before) == len(after):
        return call
    results = len(call.outs) - len(before)
    kept = {buffer.name for buffer in after}
    provided = zip(call.outs[results:], before, strict=True)
    scratch = (out for out, buffer in provided if buffer.name in kept)
    return replace(call, outs=(*call.outs[:results], *scratch))


def without_unused(kernel: Kernel) -> Kernel:
    """The same results from what they need alone."""
    body = swept(_settled(kernel.body), kernel.scratch)
    touched = {name for stmt in walk(body) for name in _used(stmt)}
    kept = tuple(buffer for buffer in kernel.scratch if buffer in touched)
    if body == kernel.body and kept == kernel.scratch:
        return kernel
    return replace(kernel, body=body, scratch=kept)


def swept(body: tuple[Stmt, ...], scratch: Iterable[Buffer] = ()) -> tuple[Stmt, ...]:
    """Without definitions that nothing asks for, and without stores to `scratch` that nothing
    reads."""
    reserved = (stmt.buffer for stmt in walk(body) if isinstance(stmt, Reserve))
    return _swept(body, frozenset(), frozenset({*scratch, *reserved}))[0]


def _settled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Decided comparisons and loops of one iteration ask for no names."""

    def on_expr(expr: Expr) -> Expr:
        match expr:
            case Binary():
                known = compared(expr)
                return expr if known is None else Lit(known, DType.BOOL)
            case Select(condition=Lit() as condition):
                return expr.then if condition.value else expr.otherwise
            case _:
                return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.extent != 1:
            return stmt
        only = {stmt.variable: stmt.start}
        inner = map_index_dims(stmt.body, lambda dim: dim.substitute(only))
        return replace(stmt, start=Dim.of(0), stop=Dim.of(1), body=inner)

    return map_statements(map_exprs(body, on_expr), on_stmt)


# An index is its name, a scalar or a buffer is itself.
_Name = str | Local | Buffer


def _used(stmt: Stmt) -> frozenset[_Name]:
    """What a statement itself speaks of."""
    names: set[_Name] = set()
    for node in (stmt, *expressions(stmt)):
        for dim in held(node, DIMS):
            names |= dim.symbols
        match node:
            case Local():
                names.add(node)
            case Load() | Store():
                names.add(node.buffer)
            case Multiply():
                names.add(node.sums)
    return frozenset(names)


def _set(stmt: Stmt) -> _Name | None:
    """The value or memory that a statement sets."""
    match stmt:
        case Declare() | Assign():
            return stmt.local
        case Let() | Bind():
            return stmt.name
        case Reserve() | Store():
            return stmt.buffer
        case _:
            return None


_Names = frozenset[_Name]


def _swept(body: tuple[Stmt, ...], live: _Names, own: _Names) -> tuple[tuple[Stmt, ...], _Names]:
    """Strong liveness, backwards: the statements that set what is `live` after the body or what
    kept statements need, and what is live before it. `own`: buffers that are no results."""
    definitions = {_set(stmt) for stmt in body if not isinstance(stmt, Assign | Store)}
    hidden, live = live & definitions, live - definitions
    kept: list[Stmt] = []
    for stmt in reversed(body):
        found: list[Stmt]
        made = _set(stmt)
        match stmt:
            case For():
                inner, before = _swept(stmt.body, live, own)
                while not before - {stmt.variable} <= live:
                    live |= before - {stmt.variable}
                    inner, before = _swept(stmt.body, live, own)
                found = [replace(stmt, body=inner)] if inner else []
            case If():
                then, before = _swept(stmt.then, live, own)
                otherwise, before_other = _swept(stmt.otherwise, live, own)
                live |= before | before_other
                found = [If(stmt.condition, then, otherwise)] if then else []
                if otherwise and not then:
                    found = [If(Unary("!", stmt.condition), otherwise)]
            case Store():
                found = [stmt] if made in live or made not in own else []
            case Bind() if not stmt.trusted:
                found = [stmt]
            case _:
                found = [stmt] if made is None or made in live else []
        if not isinstance(stmt, Assign | Store):
            live -= {made}
        if found:
            live |= _used(stmt)
            kept = found + kept
    return tuple(kept), live | hidden
