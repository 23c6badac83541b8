# SPDX-License-Identifier: Apache-2.0
"""Unroll-and-jam: several iterations of a leaf at once, their statements in the same loops.

Each iteration is a lane. Its own sums stay in the order in which they were written, so that
every result has the bits it would have had alone. A loop whose bounds differ between lanes is
unrolled, each step with the lanes that take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.ir.dims import Dim, simplify
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Let,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    Unary,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.scheduling.writer import Names, Writer

UNROLLED = 16
"""Steps of one loop at most that are written out."""


class CannotJam(Exception):
    """The lanes' loops differ in a way that depends on dynamic sizes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the loops of a leaf are treated: `full` bounds that are known to hold, and how many
    steps of each loop are unrolled (0: all of them)."""

    full: Mapping[str, tuple[Dim, Dim]]
    steps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Lane:
    """The values of the names of a leaf in one iteration."""

    dims: Mapping[str, Dim]
    locals: Mapping[str, Local]

    def at(self, name: str, value: Dim) -> Lane:
        return Lane({**self.dims, name: value}, self.locals)


def unroll_and_jam(leaf: tuple[Stmt, ...], lanes: Sequence[Lane], plan: Plan, w: Writer) -> None:
    """The statements of all lanes; what several of them load is loaded once."""
    with w.block() as body:
        _block(leaf, list(lanes), plan, w)
    w.add(*_share(tuple(body), w.names))


def _block(body: Sequence[Stmt], lanes: list[Lane], plan: Plan, w: Writer) -> None:
    run: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For):
            lanes = [_straight(run, lane, w) for lane in lanes]
            run = []
            _loop(stmt, lanes, plan, w)
        else:
            run.append(stmt)
    for lane in lanes:
        _straight(run, lane, w)


def _straight(run: Sequence[Stmt], lane: Lane, w: Writer) -> Lane:
    """The statements of one lane, and what its locals are called."""
    for stmt in run:
        rule = _in_lane(lane)
        match stmt:
            case Declare():
                value = map_expr(stmt.value, rule)
                local = Local(w.names.fresh(stmt.local.name), stmt.local.dtype)
                w.add(Declare(local, value))
                lane = Lane(lane.dims, {**lane.locals, stmt.local.name: local})
            case Assign():
                w.add(Assign(lane.locals[stmt.local.name], map_expr(stmt.value, rule)))
            case Store():
                index = tuple(dim.substitute(lane.dims) for dim in stmt.index)
                w.add(Store(stmt.buffer, index, map_expr(stmt.value, rule)))
            case _:
                raise AssertionError(stmt)
    return lane


def _loop(loop: For, lanes: list[Lane], plan: Plan, w: Writer) -> None:
    ends = [_ends(loop, lane, plan, w) for lane in lanes]
    steps = plan.steps.get(loop.variable, 1)
    constant = all(start.is_constant and stop.is_constant for start, stop in ends)
    if constant and (steps == 0 or len(set(ends)) > 1):
        _unrolled(loop, lanes, [(a.constant, b.constant) for a, b in ends], plan, w)
        return
    if len(set(ends)) > 1:
        raise CannotJam(loop.variable)
    start = w.named(f"{loop.variable}_begin", ends[0][0])
    stop = w.named(f"{loop.variable}_end", ends[0][1])
    if steps > 1:
        count = (stop - start) // steps
        with w.range(loop.variable, count) as at:
            for step in range(steps):
                here = start + at * steps + step
                _block(loop.body, [lane.at(loop.variable, here) for lane in lanes], plan, w)
        start = start + count * steps
    if start != stop:
        _rolled(loop, lanes, (start, stop), plan, w)


def _ends(loop: For, lane: Lane, plan: Plan, w: Writer) -> tuple[Dim, Dim]:
    start, stop = plan.full.get(loop.variable, (loop.start, loop.stop))
    start, stop = start.substitute(lane.dims), stop.substitute(lane.dims)
    return simplify(start, w.bounds), simplify(stop, w.bounds)


def _unrolled(
    loop: For, lanes: list[Lane], spans: list[tuple[int, int]], plan: Plan, w: Writer
) -> None:
    low, high = min(a for a, _ in spans), max(b for _, b in spans)
    if high - low > UNROLLED:
        raise CannotJam(loop.variable)
    for step in range(low, high):
        taking = [
            lane.at(loop.variable, Dim.of(step))
            for lane, (start, stop) in zip(lanes, spans, strict=True)
            if start <= step < stop
        ]
        if taking:  # between the iterations of two lanes there may be some of none
            with w.block() as body:
                _block(loop.body, taking, plan, w)
            w.add(*body)


def _rolled(loop: For, lanes: list[Lane], ends: tuple[Dim, Dim], plan: Plan, w: Writer) -> None:
    start, stop = ends
    if stop - start == 1:
        with w.block() as body:
            _block(loop.body, [lane.at(loop.variable, start) for lane in lanes], plan, w)
        w.add(*body)
        return
    with w.range(loop.variable, stop, start) as at:
        _block(loop.body, [lane.at(loop.variable, at) for lane in lanes], plan, w)


def _in_lane(lane: Lane) -> Callable[[Expr], Expr]:
    def rule(expr: Expr) -> Expr:
        match expr:
            case Load():
                index = tuple(dim.substitute(lane.dims) for dim in expr.index)
                return Load(expr.buffer, index)
            case Index():
                return replace(expr, dim=expr.dim.substitute(lane.dims))
            case Local():
                return lane.locals.get(expr.name, expr)
            case _:
                return expr

    return rule


# Loads that several statements of one block make


def _share(body: tuple[Stmt, ...], names: Names) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    run: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For | Let):
            result += _share_run(run, names)
            run = []
            result.append(
                replace(stmt, body=_share(stmt.body, names)) if isinstance(stmt, For) else stmt
            )
        else:
            run.append(stmt)
    return (*result, *_share_run(run, names))


def _share_run(run: list[Stmt], names: Names) -> list[Stmt]:
    """Only loads that are always made, of memory that the run does not write."""
    written = {stmt.buffer.name for stmt in run if isinstance(stmt, Store)}
    count: dict[Load, int] = {}
    for stmt in run:
        assert isinstance(stmt, Declare | Assign | Store)
        for load in always_loaded(stmt.value):
            count[load] = count.get(load, 0) + 1
    shared: dict[Load, Local] = {}
    result: list[Stmt] = []
    for stmt in run:
        assert isinstance(stmt, Declare | Assign | Store)
        for load in always_loaded(stmt.value):
            fresh = load not in shared and count[load] > 1
            if fresh and load.buffer.name not in written:
                local = Local(names.fresh(f"{load.buffer.name}_at"), load.dtype)
                shared[load] = local
                result.append(Declare(local, load))

        def rule(expr: Expr) -> Expr:
            return shared.get(expr, expr) if isinstance(expr, Load) else expr

        result.append(replace(stmt, value=map_expr(stmt.value, rule)))
    return result


def always_loaded(expr: Expr) -> list[Load]:
    """The loads that evaluating `expr` makes whatever the data are."""
    match expr:
        case Load():
            return [expr]
        case Unary() | Cast():
            return always_loaded(expr.value)
        case Binary():
            left = always_loaded(expr.left)
            return left if expr.op in ("&&", "||") else left + always_loaded(expr.right)
        case Apply():
            return [load for arg in expr.args for load in always_loaded(arg)]
        case Select():
            return always_loaded(expr.condition)
        case Lit() | Local() | Index():
            return []
