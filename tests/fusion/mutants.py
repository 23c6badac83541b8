# SPDX-License-Identifier: Apache-2.0
"""Fused kernels with one defect each, and what a kernel computes at small sizes.

A mutant is the kernel with one statement or expression changed: a condition dropped or turned
round, indices exchanged or shifted, a store doubled, dropped or moved into a loop, bounds
shifted, sums started elsewhere, operands exchanged, roundings lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from relax_aot.evaluation.interpret import Array, IndexFault, run_kernel
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Bind,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Lit,
    Load,
    Select,
    Stmt,
    Store,
    binary,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_expr

Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    kernel: Kernel
    what: str


def mutants(kernel: Kernel) -> Iterator[Mutant]:
    """Every single defect of every kind, in a fixed order."""
    for what, body in _blocks(kernel.body, ()):
        yield Mutant(replace(kernel, body=body), what)


def _blocks(body: Block, loops: tuple[For, ...]) -> Iterator[tuple[str, Block]]:
    for place, stmt in enumerate(body):
        before, after = body[:place], body[place + 1 :]
        for what, changed in _statement(stmt, loops):
            yield what, (*before, *changed, *after)
        if after and _may_swap(stmt, after[0]):
            yield "statements exchanged", (*before, after[0], stmt, *after[1:])


def _may_swap(one: Stmt, other: Stmt) -> bool:
    """The names that a statement makes are there when the other needs them."""
    return not isinstance(one, Declare | Let | Bind) and not isinstance(other, Let | Bind | Declare)


def _statement(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[str, Block]]:
    match stmt:
        case For():
            yield "loop starts later", (replace(stmt, start=stmt.start + 1),)
            yield "loop ends earlier", (replace(stmt, stop=stmt.stop - 1),)
            yield "loop ends later", (replace(stmt, stop=stmt.stop + 1),)
            yield "loop runs once", (replace(stmt, stop=stmt.start + 1),)
            first = stmt.body[0] if stmt.body else None
            if isinstance(first, Declare) and stmt.variable not in _names(first):
                yield "start moved out of a loop", (first, replace(stmt, body=stmt.body[1:]))
            if isinstance(first, For) and len(stmt.body) == 1:
                free = stmt.variable not in first.start.symbols | first.stop.symbols
                if free:
                    yield (
                        "loops interchanged",
                        (replace(first, body=(replace(stmt, body=first.body),)),),
                    )
            for what, body in _blocks(stmt.body, (*loops, stmt)):
                yield what, (replace(stmt, body=body),)
        case If():
            yield "condition dropped", stmt.then
            if stmt.otherwise:
                yield "branches exchanged", (If(stmt.condition, stmt.otherwise, stmt.then),)
            else:
                yield "condition turned round", (If(stmt.condition, (), stmt.then),)
            for what, condition in _expression(stmt.condition, loops):
                yield what, (replace(stmt, condition=condition),)
            for what, body in _blocks(stmt.then, loops):
                yield what, (replace(stmt, then=body),)
            for what, body in _blocks(stmt.otherwise, loops):
                yield what, (replace(stmt, otherwise=body),)
        case Store():
            yield "store dropped", ()
            if stmt.value.dtype.is_float:
                again = Load(stmt.buffer, stmt.index)
                yield "store doubled", (stmt, replace(stmt, value=binary("+", again, stmt.value)))
            for loop in loops[-1:]:
                inner = For("again", Dim.of(0), loop.stop - loop.start, (stmt,))
                yield "store repeated", (inner,)
            for index in _indices(stmt.index, loops):
                yield "store elsewhere", (replace(stmt, index=index),)
            condition = binary("<", Lit(0, stmt.value.dtype), stmt.value)
            if stmt.value.dtype.is_float:
                condition = binary("<", Lit(0.0, stmt.value.dtype), stmt.value)
                yield "store on a condition", (If(condition, (stmt,)),)
            for what, value in _expression(stmt.value, loops):
                yield what, (replace(stmt, value=value),)
        case Assign():
            yield "assignment dropped", ()
            yield "assignment doubled", (stmt, stmt)
            for what, value in _expression(stmt.value, loops):
                yield what, (replace(stmt, value=value),)
        case Declare() | Bind():
            for what, value in _expression(stmt.value, loops):
                yield what, (replace(stmt, value=value),)
        case Let():
            yield "index shifted", (replace(stmt, value=stmt.value + 1),)
        case _:
            pass


def _names(stmt: Declare) -> set[str]:
    found: set[str] = set()
    for expr in expressions(stmt):
        if isinstance(expr, Load):
            found |= {name for dim in expr.index for name in dim.symbols}
    return found


def _indices(index: Sequence[Dim], loops: tuple[For, ...]) -> Iterator[tuple[Dim, ...]]:
    variables = [loop.variable for loop in loops]
    for axis, dim in enumerate(index):
        for changed in (dim + 1, dim - 1, Dim.of(0)):
            if changed != dim:
                yield (*index[:axis], changed, *index[axis + 1 :])
        for other in range(axis):
            if index[other] != dim:
                swapped = list(index)
                swapped[axis], swapped[other] = swapped[other], swapped[axis]
                yield tuple(swapped)
        for name in sorted(dim.symbols & set(variables)):
            loop = loops[variables.index(name)]
            reversed_ = dim.substitute({name: loop.stop - 1 - Dim.of(name)})
            yield (*index[:axis], reversed_, *index[axis + 1 :])


def _expression(expr: Expr, loops: tuple[For, ...]) -> Iterator[tuple[str, Expr]]:
    """One part of an expression changed."""
    for part in dict.fromkeys(_parts(expr)):
        for what, changed in _part(part, loops):
            yield what, _with(expr, part, changed)


def _parts(expr: Expr) -> Iterator[Expr]:
    found: list[Expr] = []

    def rule(part: Expr) -> Expr:
        found.append(part)
        return part

    map_expr(expr, rule)
    yield from found


def _with(expr: Expr, part: Expr, changed: Expr) -> Expr:
    return map_expr(expr, lambda e: changed if e == part else e)


PREDICATES = {"<": "<=", "<=": "<", "==": "!=", "!=": "=="}
OPERATORS = {"+": "-", "-": "+", "*": "+"}


def _part(part: Expr, loops: tuple[For, ...]) -> Iterator[tuple[str, Expr]]:
    match part:
        case Load():
            for index in _indices(part.index, loops):
                yield "load of another element", replace(part, index=index)
        case Binary() if part.op in PREDICATES:
            yield "another predicate", replace(part, op=PREDICATES[part.op])
        case Binary() if part.op in ("-", "/"):
            yield "operands exchanged", Binary(part.op, part.right, part.left)
        case Binary() if part.op in OPERATORS:
            yield "another operator", replace(part, op=OPERATORS[part.op])
        case Select():
            yield "choices exchanged", Select(part.condition, part.otherwise, part.then)
            yield "choice dropped", part.then
        case Lit() if part.dtype.is_float:
            yield "another number", Lit(float(part.value) + 1.0, part.dtype)
        case Cast() if part.value.dtype is part.dtype:
            yield "rounding lost", part.value
        case _:
            pass


# What kernels compute


Outcome = list[Array] | str
Fill = Callable[[Random, tuple[int, ...], str], Array]


def kernel_inputs(kernel: Kernel, sizes: dict[str, int], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for buffer in kernel.inputs:
        shape = tuple(size.evaluate(sizes) for size in buffer.shape)
        if buffer.dtype.is_float:
            arrays.append(rng.normal(size=shape).astype(buffer.dtype.numpy))
        else:
            arrays.append(rng.integers(0, 2, shape).astype(buffer.dtype.numpy))
    return arrays


def outcome(kernel: Kernel, inputs: list[Array], sizes: dict[str, int]) -> Outcome:
    """The results, or what went wrong."""
    try:
        return run_kernel(kernel, inputs, sizes)
    except IndexFault as fault:
        return f"fault {fault}"
    except (AssertionError, KeyError, ZeroDivisionError, IndexError) as error:
        return f"invalid: {type(error).__name__}"


def same_outcome(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)
    return all(
        np.array_equal(a.view(np.uint8), b.view(np.uint8)) if a.ndim else a.tobytes() == b.tobytes()
        for a, b in zip(one, other, strict=True)
    )


def work(kernel: Kernel, sizes: dict[str, int]) -> int:
    """About how many statements run, at most."""
    return _work(kernel.body, sizes)


def _work(body: Block, sizes: dict[str, int]) -> int:
    total = 0
    for stmt in body:
        if isinstance(stmt, For):
            known = {n: sizes.get(n, 0) for n in stmt.start.symbols | stmt.stop.symbols}
            turns = max(stmt.stop.evaluate(known) - stmt.start.evaluate(known), 1)
            total += turns * _work(stmt.body, sizes)
        elif isinstance(stmt, If):
            total += 1 + _work(stmt.then, sizes) + _work(stmt.otherwise, sizes)
        else:
            total += 1
    return total


def is_valid(kernel: Kernel) -> bool:
    return any(isinstance(stmt, Store) for stmt in walk(kernel.body))
