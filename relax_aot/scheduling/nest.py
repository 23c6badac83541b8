# SPDX-License-Identifier: Apache-2.0
"""Loop nests that a schedule may rebuild, recognized by what they do and not by a name.

A nest is a chain of loops around a leaf that sums up something: `for outputs { sum = 0; for
reductions { sum += a * b }; store f(sum) }`. A loop of the chain is *free* if its
iterations write different elements and none reads what another writes: they may run in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.fusion.legality import strides, undetermined
from relax_aot.ir.dims import ZERO, Bounds, Dim, interval
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Declare,
    For,
    If,
    Kernel,
    Let,
    Load,
    Micro,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.names import defined_name
from relax_aot.ir.rewrite import map_index_dims


@dataclass(frozen=True, slots=True)
class Nest:
    """`loops` from the outermost on, bodies left empty; names of index expressions are
    written out, so that every index is one of loop variables and sizes."""

    loops: tuple[For, ...]
    leaf: tuple[Stmt, ...]
    free: frozenset[str]

    @property
    def reductions(self) -> tuple[For, ...]:
        """The loops of the leaf, outer ones first."""
        return tuple(stmt for stmt in walk(self.leaf) if isinstance(stmt, For))


def nest_of(stmt: Stmt, bounds: Bounds) -> Nest | None:
    """The nest that begins with `stmt`; None where it is none that a schedule may rebuild."""
    if not isinstance(stmt, For):
        return None
    inner = list(walk(stmt.body))
    if not any(isinstance(one, Assign) for one in inner):
        return None  # it sums nothing up
    if any(isinstance(one, Bind) for one in inner):
        return None
    found = chain_of(stmt, bounds)
    return found if found is not None and _sums_up(found.leaf) else None


def chain_of(stmt: For, bounds: Bounds) -> Nest | None:
    """The nest that begins with `stmt`, whatever its leaf does. It may read places that a table
    holds; None where it adds to a scalar that is declared before it."""
    found: set[str] = set()
    inside = {inner.local for inner in walk(stmt.body) if isinstance(inner, Declare)}
    for inner in walk(stmt.body):
        if isinstance(inner, Assign) and inner.local not in inside:
            return None
        if isinstance(inner, If | Reserve | Multiply | Micro):
            return None
        if isinstance(inner, Bind):
            if not inner.trusted:
                return None
            found.add(inner.name)
        if isinstance(inner, Store) and any(dim.symbols & found for dim in inner.index):
            return None
    loops: list[For] = []
    block: tuple[Stmt, ...] = without_lets((stmt,))
    while len(block) == 1 and isinstance(block[0], For):
        loop = block[0]
        if not bounds_known(loop, bounds):
            return None
        bounds = bounds.with_value(loop.variable, loop.start, loop.stop - 1)
        loops.append(For(loop.variable, loop.start, loop.stop, ()))
        block = loop.body
    return Nest(tuple(loops), block, _free(loops, block, bounds))


def free_nest(stmt: Stmt, bounds: Bounds) -> Nest | None:
    """The nest that begins with `stmt`, if all of its loops are free and count from 0 to ends that
    none of them changes."""
    nest = nest_of(stmt, bounds)
    if nest is None or not nest.loops or len(nest.free) < len(nest.loops):
        return None
    if any(loop.start != 0 or not bounds_known(loop, bounds) for loop in nest.loops):
        return None
    return nest


def nested(stmt: Stmt) -> tuple[list[For], tuple[Stmt, ...]]:
    """Loops one in the other from `stmt` on, and what the last one does."""
    loops: list[For] = []
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1 and isinstance(body[0], For):
        loops.append(body[0])
        body = body[0].body
    return loops, body


def counted_loops(stmt: For, bounds: Bounds) -> tuple[list[For], Sequence[Stmt]] | None:
    """The loops that begin with `stmt`, and what the last one does, if they count from 0 to ends
    that are known and that none of them changes."""
    loops, body = nested(*without_lets((stmt,)))
    names = {loop.variable for loop in loops}
    if any(loop.start != 0 or loop.stop.symbols & names for loop in loops):
        return None
    return (loops, body) if all(bounds_known(loop, bounds) for loop in loops) else None


def greatest(extent: Dim, bounds: Bounds) -> int:
    """The greatest value of an extent, at least one; one where it is not known."""
    return max(interval(extent, bounds)[1], 1) if extent.symbols <= set(bounds) else 1


def bounds_known(loop: For, bounds: Bounds) -> bool:
    return (loop.start.symbols | loop.stop.symbols) <= set(bounds)


def without_lets(body: tuple[Stmt, ...], around: Mapping[str, Dim] = {}) -> tuple[Stmt, ...]:
    """Every name of an index expression replaced by the expression; `around`: the names that
    hold there already."""
    result: list[Stmt] = []
    values = dict(around)

    def written_out(dim: Dim) -> Dim:
        return dim.substitute(values)

    for stmt in body:
        match stmt:
            case Let():
                values[stmt.name] = written_out(stmt.value)
            case For():
                start, stop = written_out(stmt.start), written_out(stmt.stop)
                inner = without_lets(stmt.body, values)
                result.append(replace(stmt, start=start, stop=stop, body=inner))
            case _:
                result += map_index_dims((stmt,), written_out) if values else (stmt,)
    return tuple(result)


def _sums_up(leaf: tuple[Stmt, ...]) -> bool:
    declared = {stmt.local for stmt in leaf if isinstance(stmt, Declare)}
    return any(
        isinstance(inner, Assign) and inner.local in declared
        for stmt in leaf
        if isinstance(stmt, For)
        for inner in walk(stmt.body)
    )


def _free(loops: list[For], leaf: tuple[Stmt, ...], bounds: Bounds) -> frozenset[str]:
    written = {(stmt.buffer.name, stmt.index) for stmt in walk(leaf) if isinstance(stmt, Store)}
    names = {name for name, _ in written}
    loads = (e for stmt in walk(leaf) for e in expressions(stmt) if isinstance(e, Load))
    read = {(load.buffer.name, load.index) for load in loads if load.buffer.name in names}
    if not read <= written or len(names) != len(written):
        return frozenset()
    inner = [stmt for stmt in walk(leaf) if isinstance(stmt, For)]
    free = {loop.variable for loop in loops}
    for _, index in written:
        free -= undetermined(index, (*loops, *inner), bounds)
    return frozenset(free)


def coefficient_dim(dim: Dim, name: str) -> Dim | None:
    """`c` where dim = c * name + rest and neither depends on name; None if it does not exist."""
    found = strides(dim, (name,))
    return None if found is None else found[0].get(name, ZERO)


def coefficient(dim: Dim, name: str) -> int | None:
    step = coefficient_dim(dim, name)
    return step.constant if step is not None and step.is_constant else None


def ranges(loops: tuple[For, ...], bounds: Bounds) -> Bounds:
    """`bounds` and the range of every loop variable."""
    for loop in loops:
        bounds = bounds.with_value(loop.variable, loop.start, loop.stop - 1)
    return bounds


def names_in(kernel: Kernel) -> set[str]:
    """Every name that a kernel uses: those that it defines, and sizes, also of its body alone."""
    found = {*(buffer.name for buffer in kernel.buffers), *map(defined_name, walk(kernel.body))}
    return found.union(
        *(buffer.type.symbols for buffer in kernel.buffers),
        *(dim.symbols for stmt in walk(kernel.body) for dim in index_dims(stmt)),
    )
