# SPDX-License-Identifier: Apache-2.0
"""The invariants of parallel loops, barriers and scopes of memory. Part of check_kernel.py.

Every iteration of a parallel loop arrives at the same barriers: a barrier stands under no
condition, and a serial loop around it has the same range in each iteration. A scalar belongs to
the iteration that declares it. Races are the matter of the interpreter (evaluation/races.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.ir.axes import PARALLEL_AXES, REGISTER
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Bind,
    Buffer,
    Declare,
    For,
    If,
    Kernel,
    Let,
    Load,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
)


@dataclass(frozen=True, slots=True)
class _Level:
    """A parallel loop around a statement. `uneven`: why not all of its iterations arrive there."""

    axis: str
    variable: str
    uneven: str = ""


@dataclass(frozen=True, slots=True)
class _Around:
    """What is around a statement. `own`: scalars and registers of the innermost parallel
    iteration; `foreign`: those of iterations around it."""

    levels: tuple[_Level, ...] = ()
    own: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    varying: Mapping[str, int] = field(default_factory=dict)
    """By the name of an index: the number of levels whose iterations it depends on."""

    def depth(self, names: frozenset[str]) -> int:
        """The number of levels whose iterations differ in these indices."""
        return max((self.varying.get(name, 0) for name in names), default=0)

    def named(self, name: str, depth: int) -> _Around:
        return replace(self, varying={**self.varying, name: depth})

    def within(self, reason: str, depth: int) -> _Around:
        """Inside what the iterations of the outer `depth` levels do not have in common."""
        levels = (
            replace(level, uneven=level.uneven or reason) if number < depth else level
            for number, level in enumerate(self.levels)
        )
        return replace(self, levels=tuple(levels))


def parallel_problems(kernel: Kernel) -> Iterator[str]:
    yield from _block(kernel.body, _Around())


def _block(body: tuple[Stmt, ...], around: _Around) -> Iterator[str]:
    for stmt in body:
        yield from _statement(stmt, around)
        match stmt:
            case For() if stmt.axis:
                levels = (*around.levels, _Level(stmt.axis, stmt.variable))
                inner = replace(
                    around, levels=levels, own=frozenset(), foreign=around.foreign | around.own
                )
                yield from _block(stmt.body, inner.named(stmt.variable, len(levels)))
            case For():
                depth = around.depth(stmt.start.symbols | stmt.stop.symbols)
                inner = around.within(f"the range of {stmt.variable}", depth)
                yield from _block(stmt.body, inner.named(stmt.variable, depth))
            case If():
                inner = around.within("a condition", len(around.levels))
                for side in (stmt.then, stmt.otherwise):
                    yield from _block(side, inner)
            case Let():
                around = around.named(stmt.name, around.depth(stmt.value.symbols))
            case Bind():
                around = around.named(stmt.name, len(around.levels))
            case Declare():
                around = replace(around, own=around.own | {stmt.local.name})
            case Reserve() if stmt.buffer.scope == REGISTER:
                around = replace(around, own=around.own | {f"%{stmt.buffer.name}"})
            case _:
                pass


def _statement(stmt: Stmt, around: _Around) -> Iterator[str]:
    if isinstance(stmt, For) and stmt.axis:
        if stmt.axis not in PARALLEL_AXES:
            yield f"the loop over {stmt.variable}: {stmt.axis} is no axis of parallel loops"
        for level in around.levels:
            if level.axis == stmt.axis:
                both = f"{level.variable} and {stmt.variable}"
                yield f"the loops over {both} are both parallel({stmt.axis})"
    if isinstance(stmt, Barrier):
        own = next((one for one in around.levels if one.axis == stmt.axis), None)
        if own is None:
            yield f"barrier {stmt.axis}: no loop around it is parallel({stmt.axis})"
        elif own.uneven:
            yield (
                f"barrier {stmt.axis}: {own.uneven} differs between the iterations of"
                f" {own.variable}, so not all of them arrive"
            )
    if isinstance(stmt, Assign) and stmt.local.name in around.foreign:
        yield f"the scalar {stmt.local.name} is assigned inside a parallel loop, declared outside"
    for buffer in _buffers(stmt):
        if f"%{buffer.name}" in around.foreign:
            yield f"%{buffer.name} is in registers of one iteration, and is used by others"


def _buffers(stmt: Stmt) -> Iterator[Buffer]:
    yield from (expr.buffer for expr in expressions(stmt) if isinstance(expr, Load))
    if isinstance(stmt, Store):
        yield stmt.buffer
    if isinstance(stmt, Multiply):
        yield stmt.sums
