# SPDX-License-Identifier: Apache-2.0
"""Names of values, kernels, loop variables and scalars: unused ones, defined ones, other ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Module, Var
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    Declare,
    Expr,
    For,
    Kernel,
    Let,
    Local,
    Reserve,
    Stmt,
    bound_name,
    walk,
)
from relax_aot.ir.rewrite import map_buffers, map_exprs, map_index_dims, map_statements


def unused_name(wanted: str, taken: Container[str]) -> str:
    """`wanted`, with a number at its end if it is taken."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name


def defined_name(stmt: Stmt) -> str:
    """The loop variable, index, scalar or buffer that a statement defines; else nothing."""
    match stmt:
        case Declare():
            return stmt.local.name
        case Reserve():
            return stmt.buffer.name
        case _:
            return bound_name(stmt)


def renamed(
    body: tuple[Stmt, ...], names: Mapping[str, str], buffers: Mapping[str, str] | None = None
) -> tuple[Stmt, ...]:
    """Other names for loop variables, indices and scalars, and for `buffers`."""
    dims = {old: Dim.of(new) for old, new in names.items() if old != new}
    if not dims and not buffers:
        return body

    def local(old: Local) -> Local:
        return replace(old, name=names.get(old.name, old.name))

    def on_expr(expr: Expr) -> Expr:
        return local(expr) if isinstance(expr, Local) else expr

    def on_stmt(stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                return replace(stmt, variable=names.get(stmt.variable, stmt.variable))
            case Let() | Bind():
                return replace(stmt, name=names.get(stmt.name, stmt.name))
            case Declare() | Assign():
                return replace(stmt, local=local(stmt.local))
            case _:
                return stmt

    body = map_index_dims(body, lambda dim: dim.substitute(dims))
    if buffers:
        body = map_buffers(body, lambda old: replace(old, name=buffers.get(old.name, old.name)))
    return map_statements(map_exprs(body, on_expr), on_stmt)


def rename_indices(kernel: Kernel, taken: frozenset[str]) -> Kernel:
    """The kernel with other names for loop variables and bound indices that are `taken`."""
    used = {*map(bound_name, walk(kernel.body))}
    names: dict[str, str] = {}
    for name in sorted(used & taken):
        names[name] = unused_name(name, used | taken)
        used.add(names[name])
    return replace(kernel, body=renamed(kernel.body, names))


def names_of(module: Module) -> set[str]:
    """The names of all values and constants."""
    values = {v.name for f in module.functions for v in f.params}
    values |= {v.name for f in module.functions for line in f.body for v in line.outs}
    return values | {constant.name for constant in module.constants}


def scratch_of(line: Call, buffers: Iterable[Buffer], names: set[str]) -> tuple[Var, ...]:
    """Values for scratch buffers of a call; `names` are taken, and get those of the values."""
    made = []
    for buffer in buffers:
        name = unused_name(f"{line.outs[0].name}.{buffer.name}", names)
        names.add(name)
        made.append(Var(name, buffer.type))
    return tuple(made)
