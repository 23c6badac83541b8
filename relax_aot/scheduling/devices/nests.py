# SPDX-License-Identifier: Apache-2.0
"""Perfectly nested loops as one range of iterations, and whether lanes should share what is inside.

Threads with adjacent numbers should access adjacent elements. Where they do so along the loops of
a nest, each iteration is a thread; where they do so along loops inside an iteration, as for sums
along the last axis, the lanes of a warp or the threads of a block share one iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, dim_max, row_major, simplify
from relax_aot.ir.loops import Bind, Declare, For, If, Let, Stmt
from relax_aot.ir.names import defined_name
from relax_aot.ir.rewrite import map_index_dims
from relax_aot.scheduling.devices.choices import choice_of
from relax_aot.scheduling.devices.proofs import Proofs, accessed, outer_scalars
from relax_aot.scheduling.nest import coefficient, greatest, without_lets

FEW = 2048
"""Iterations that leave most of a device without work, if each is one thread."""
FEWER = 512
"""Iterations with which it has no work, if those inside have an order."""
LEAST = 4
"""Iterations that are worth sharing."""
NEAR = 2
"""Elements between accesses of adjacent threads that use most of what memory delivers."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops whose bounds do not depend on each other, and the statements in the innermost one,
    which begin with the scalars and names of sizes between the loops. `count` is the number of
    all iterations, `greatest` at the greatest sizes."""

    loops: tuple[For, ...]
    body: tuple[Stmt, ...]
    count: Dim
    greatest: int

    def variables(self, at: Dim) -> Iterator[Let]:
        """The loop variables of iteration `at` of all."""
        inner = ONE
        for loop in reversed(self.loops):
            extent = loop.extent
            whole = loop is self.loops[0]
            value = at // inner if whole else at // inner % extent
            yield Let(loop.variable, loop.start + value)
            inner = inner * extent


def nest_of(loop: For, bounds: Bounds, fits: Callable[[For], bool]) -> Nest | None:
    """The nest that begins with a loop, of loops that fit; None where the loop itself does not."""
    if not fits(loop):
        return None
    loops, named, body = [loop], list[Stmt](), loop.body
    while True:
        *names, inner = body or (None,)
        if not isinstance(inner, For) or not fits(inner):
            break
        if not all(isinstance(stmt, Let | Bind | Declare) for stmt in names):
            break
        own = {one.variable for one in loops} | {defined_name(stmt) for stmt in (*named, *names)}
        changed = {local.name for local in outer_scalars((inner,))}
        if (inner.start.symbols | inner.stop.symbols | changed) & own:
            break
        loops.append(inner)
        named += names
        body = inner.body
    extents = [simplify(dim_max(one.extent, 0), bounds) for one in loops if _known(one, bounds)]
    extents += [dim_max(one.extent, 0) for one in loops if not _known(one, bounds)]
    count = ONE
    for extent in extents:
        count = count * extent
    most = prod(greatest(extent, bounds) for extent in extents)
    return Nest(tuple(loops), (*named, *body), count, most)


def _known(loop: For, bounds: Bounds) -> bool:
    return (loop.start.symbols | loop.stop.symbols) <= set(bounds)


def bounds_inside(loop: For, bounds: Bounds) -> Bounds:
    """What holds in a loop."""
    if not _known(loop, bounds):
        return bounds
    return bounds.with_value(loop.variable, loop.start, loop.stop - 1)


def bounds_after(stmt: Stmt, bounds: Bounds) -> Bounds:
    """What holds behind a statement that may name a size."""
    match stmt:
        case Let(name, value):
            low = high = value
        case Bind():
            name, low, high = stmt.name, stmt.low, stmt.high
        case _:
            return bounds
    return (
        bounds.with_value(name, low, high)
        if (low.symbols | high.symbols) <= set(bounds)
        else bounds
    )


def shared_inside(body: tuple[Stmt, ...], proofs: Proofs, bounds: Bounds) -> int:
    """The most iterations inside of `body` that lanes could share; 0 where there are too few."""
    most = 0
    for stmt in body:
        bounds = bounds_after(stmt, bounds)
        match stmt:
            case For():
                nest = nest_of(stmt, bounds, proofs.independent)
                nest = nest or nest_of(stmt, bounds, lambda one: bool(proofs.reduced(one)))
                nest = nest or nest_of(stmt, bounds, lambda one: choice_of(one) is not None)
                inner = shared_inside(stmt.body, proofs, bounds_inside(stmt, bounds))
                most = max(most, nest.greatest if nest is not None else 0, inner)
            case If():
                for side in (stmt.then, stmt.otherwise):
                    most = max(most, shared_inside(side, proofs, bounds))
            case _:
                pass
    return most if most >= LEAST else 0


def gains_rows(nest: Nest, proofs: Proofs, bounds: Bounds) -> bool:
    """Whether lanes should share the iterations of a nest rather than take one each."""
    inside = shared_inside(nest.body, proofs, bounds)
    if inside < LANES // 2:
        return False
    if nest.greatest <= FEWER and inside >= LANES:
        return True
    as_threads = _scattered(nest.body, lambda _: nest.loops[-1].variable)
    as_rows = _scattered(nest.body, lambda inner: inner)
    if as_threads == as_rows:
        return nest.greatest < FEW and inside > nest.greatest
    return as_rows < as_threads


def _scattered(body: tuple[Stmt, ...], variable_of: Callable[[str], str]) -> int:
    """Accesses in loops where adjacent threads access elements that are not near, if the variable
    of threads is that of the innermost loop around, or another."""
    count = 0
    for variable, inner in _innermost(without_lets(body), ""):
        for load, _ in accessed((inner,)):
            address = row_major(load.index, load.buffer.shape)
            step = coefficient(address, variable_of(variable))
            count += step is None or abs(step) > NEAR
    return count


def _innermost(body: tuple[Stmt, ...], variable: str) -> Iterator[tuple[str, Stmt]]:
    """The statements in loops, each with the variable of the innermost one around it."""
    for stmt in body:
        match stmt:
            case For(name, start):
                yield from _innermost(_from_zero(stmt.body, name, start), name)
            case If():
                yield from _innermost((*stmt.then, *stmt.otherwise), variable)
            case _ if variable:
                yield variable, stmt
            case _:
                pass


def _from_zero(body: tuple[Stmt, ...], name: str, start: Dim) -> tuple[Stmt, ...]:
    """The body of a loop that begins at 0, where it is part of a longer one. The start of a
    window that is clipped moves little and stays."""
    if start == ZERO or not start.is_polynomial:
        return body
    return map_index_dims(body, lambda dim: dim.substitute({name: start + Dim.of(name)}))


def part(count: Dim, first: Dim, step: int) -> Dim:
    """How many of `first, first + step, ...` are below `count`, for `0 <= first < step`."""
    return (count - first + (step - 1)) // step
