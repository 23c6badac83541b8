# SPDX-License-Identifier: Apache-2.0
"""Loop fission at barriers: the parts between barriers become parallel loops of their own.

All iterations of a part end before the next part begins, which is what the barrier says, so a
core that runs parallel loops as serial ones needs no barrier. A serial loop around a barrier moves
out of the parallel loop. A scalar or register that is used behind a barrier belongs to one
iteration, and no loop after another has it: such a kernel is refused.

Source: loop distribution (Allen and Kennedy, Optimizing Compilers for Modern Architectures,
section 6.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relax_aot.errors import RelaxAotError
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Bind,
    Declare,
    For,
    If,
    Kernel,
    Load,
    Local,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.names import defined_name
from relax_aot.scheduling.nest import without_lets
from relax_aot.scheduling.targets import Target

EXAMPLES = (
    Example(
        why="two parts",
        before="""
            symbol n in 1..64
            kernel @turn(%x: f32[n]) -> (%y: f32[n]) scratch (%s: f32[n]) {
              for i in 0..n parallel(thread) {
                let back = n - i - 1
                %s[i] = (%x[i] * 2.0:f32)
                barrier thread
                %y[i] = %s[back]
              }
            }""",
        after="""
            kernel @turn(%x: f32[n]) -> (%y: f32[n]) scratch (%s: f32[n]) {
              for i in 0..n parallel(thread) {
                %s[i] = (%x[i] * 2.0:f32)
              }
              for i in 0..n parallel(thread) {
                %y[i] = %s[-i + n - 1]
              }
            }""",
        target="host",
    ),
    Example(
        why="a serial loop around a barrier",
        before="""
            symbol n in 1..64
            kernel @halve(%x: f32[64]) -> (%y: f32[64]) {
              for i in 0..64 parallel(lane) {
                %y[i] = %x[i]
                barrier lane
                for step in 0..n {
                  if (index(i) == 0:i64) {
                    %y[0] = (%y[0] + %y[63])
                  }
                  barrier lane
                }
              }
            }""",
        after="""
            kernel @halve(%x: f32[64]) -> (%y: f32[64]) {
              for i in 0..64 parallel(lane) {
                %y[i] = %x[i]
              }
              for step in 0..n {
                for i in 0..64 parallel(lane) {
                  if (index(i) == 0:i64) {
                    %y[0] = (%y[0] + %y[63])
                  }
                }
              }
            }""",
        target="host",
    ),
)


def run(module: Module, _: Target) -> Module:
    """Every kernel without barriers."""
    return replace(module, kernels=tuple(map(_without_barriers, module.kernels)))


def _without_barriers(kernel: Kernel) -> Kernel:
    """Inner loops first: at a barrier of an outer axis they end as well."""
    if not any(isinstance(stmt, Barrier) for stmt in walk(kernel.body)):
        return kernel
    return replace(kernel, body=_block(kernel.body, kernel.name))


def _block(body: tuple[Stmt, ...], kernel: str) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                stmt = replace(stmt, body=_block(stmt.body, kernel))
                result += _split(stmt, kernel) if stmt.axis else (stmt,)
            case If(condition, then, otherwise):
                result.append(If(condition, _block(then, kernel), _block(otherwise, kernel)))
            case _:
                result.append(stmt)
    return tuple(result)


def _split(loop: For, kernel: str) -> tuple[Stmt, ...]:
    """A parallel loop as parts without barriers; barriers of outer loops stand between them."""
    if not _has_barrier(loop):
        return (loop,)
    result: list[Stmt] = []
    part: list[Stmt] = []
    own: set[str] = set()
    """What the parts before hold for each iteration."""

    def end_part() -> None:
        if part:
            result.append(replace(loop, body=tuple(part)))
        own.update(filter(None, map(_own_name, part)))
        part.clear()

    for stmt in without_lets(loop.body):
        used = own.intersection(name for inner in walk((stmt,)) for name in _used(inner))
        if used:
            raise RelaxAotError(
                f"kernel @{kernel}: {min(used)} is used behind a barrier of the loop over"
                f" {loop.variable} that it is declared before; C has no such scalars for all"
                " iterations. Store it in a buffer, or compute it again behind the barrier"
            )
        match stmt:
            case Barrier():
                end_part()
                if stmt.axis != loop.axis:
                    result.append(stmt)
            case If() if _has_barrier(stmt):
                raise RelaxAotError(
                    f"kernel @{kernel}: a barrier of the loop over {loop.variable} is under a"
                    " condition, which C for one core does not have. Move the condition around the"
                    " loop"
                )
            case For() if _has_barrier(stmt):
                end_part()
                inner = _split(replace(loop, body=stmt.body), kernel)
                result.append(replace(stmt, body=inner))
            case _:
                part.append(stmt)
    end_part()
    return tuple(result)


def _has_barrier(stmt: Stmt) -> bool:
    return any(isinstance(inner, Barrier) for inner in walk((stmt,)))


def _own_name(stmt: Stmt) -> str:
    return defined_name(stmt) if isinstance(stmt, Declare | Bind | Reserve) else ""


def _used(stmt: Stmt) -> Iterator[str]:
    """Scalars, indices and buffers that a statement itself speaks of."""
    for dim in index_dims(stmt):
        yield from dim.symbols
    for expr in expressions(stmt):
        if isinstance(expr, Local):
            yield expr.name
        if isinstance(expr, Load):
            yield expr.buffer.name
    match stmt:
        case Store():
            yield stmt.buffer.name
        case Multiply():
            yield stmt.sums.name
        case Assign():
            yield stmt.local.name
