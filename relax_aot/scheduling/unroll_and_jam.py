# SPDX-License-Identifier: Apache-2.0
"""Unroll-and-jam: several iterations of a leaf at once, their statements in the same loops.

Each iteration is a lane. Its own sums stay in the order in which they were written, so that
every result has the bits it would have had alone. A loop whose bounds differ between lanes is
unrolled, each step with the lanes that take it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from relax_aot.ir.dims import Dim, simplify
from relax_aot.ir.loops import (
    PARTS,
    Binary,
    Declare,
    Expr,
    For,
    Let,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    held,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.scheduling.writer import Writer

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
    locals: Mapping[Local, Expr]

    def at(self, name: str, value: Dim) -> Lane:
        return Lane({**self.dims, name: value}, self.locals)


def unroll_and_jam(leaf: tuple[Stmt, ...], lanes: Sequence[Lane], plan: Plan, w: Writer) -> None:
    """The statements of all lanes; what several of them load is loaded once."""
    with w.block() as body:
        _block(leaf, list(lanes), plan, w)
    w.add(*_share(tuple(body), w))


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
    values = dict(lane.locals)
    w.place(run, values, lane.dims)
    return Lane(lane.dims, values)


def _loop(loop: For, lanes: list[Lane], plan: Plan, w: Writer) -> None:
    def run(at: Dim) -> None:
        _block(loop.body, [lane.at(loop.variable, at) for lane in lanes], plan, w)

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
                run(start + at * steps + step)
        start = start + count * steps
    if start != stop:
        w.each(loop.variable, start, stop, run)


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
            _block(loop.body, taking, plan, w)


# Loads that several statements of one block make


def _share(body: tuple[Stmt, ...], w: Writer) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for straight, group in groupby(body, lambda stmt: not isinstance(stmt, For | Let)):
        if straight:
            result += _share_run(tuple(group), w)
        else:
            result += (
                replace(stmt, body=_share(stmt.body, w)) if isinstance(stmt, For) else stmt
                for stmt in group
            )
    return tuple(result)


def _share_run(run: tuple[Stmt, ...], w: Writer) -> Iterator[Stmt]:
    """Only loads that are always made, of memory that the run does not write."""
    written = {stmt.buffer.name for stmt in run if isinstance(stmt, Store)}
    count = Counter(load for stmt in run for load in _loaded(stmt))
    shared: dict[Load, Local] = {}
    for stmt in run:
        for load in _loaded(stmt):
            if load not in shared and count[load] > 1 and load.buffer.name not in written:
                shared[load] = Local(w.fresh(f"{load.buffer.name}_at"), load.dtype)
                yield Declare(shared[load], load)
        yield from map_exprs((stmt,), lambda e: shared.get(e, e) if isinstance(e, Load) else e)


def _loaded(node: Expr | Stmt) -> Iterator[Load]:
    """The loads that evaluating it makes whatever the data are."""
    match node:
        case Load():
            yield node
        case Binary("&&" | "||", always, _) | Select(always):
            yield from _loaded(always)
        case _:
            for part in held(node, PARTS):
                yield from _loaded(part)
