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
from relax_aot.scheduling.writer import Ends, Writer

Lanes = Sequence[tuple[Mapping[str, Dim], dict[Local, Expr]]]
"""The values of loop variables in each lane, and what its locals are called."""


def unroll_and_jam(
    leaf: tuple[Stmt, ...],
    lanes: Sequence[Mapping[str, Dim]],
    full: Mapping[str, Ends],
    steps: Mapping[str, int],
    w: Writer,
) -> None:
    """The statements of all lanes, each of which has its values of loop variables; what several
    of them load is loaded once. `full`: bounds of loops that are known to hold; `steps`: how many
    of each loop are unrolled (0: all of them)."""
    with w.block() as body:
        _Jam(full, steps, w).block(leaf, [(lane, {}) for lane in lanes])
    w.add(*_share(tuple(body), w))


@dataclass(frozen=True, slots=True)
class _Jam:
    full: Mapping[str, Ends]
    steps: Mapping[str, int]
    w: Writer

    def block(self, body: Sequence[Stmt], lanes: Lanes) -> None:
        for loops, group in groupby(body, lambda stmt: isinstance(stmt, For)):
            statements = tuple(group)
            for dims, locals_ in lanes if not loops else ():
                self.w.place(statements, locals_, dims)
            for stmt in statements:
                if isinstance(stmt, For):
                    self.loop(stmt, lanes)

    def loop(self, loop: For, lanes: Lanes) -> None:
        def run(at: Dim, taking: Lanes = lanes) -> None:
            self.block(loop.body, [({**dims, loop.variable: at}, own) for dims, own in taking])

        w, ends = self.w, [self.ends(loop, dims) for dims, _ in lanes]
        steps = self.steps.get(loop.variable, 1)
        if steps == 0 and all(end.is_constant for pair in ends for end in pair):
            spans = [range(start.constant, stop.constant) for start, stop in ends]
            for step in sorted({step for span in spans for step in span}):
                pairs = zip(lanes, spans, strict=True)
                run(Dim.of(step), [lane for lane, span in pairs if step in span])
            return
        if len(set(ends)) > 1:
            for lane in lanes:
                self.loop(loop, [lane])
            return
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

    def ends(self, loop: For, dims: Mapping[str, Dim]) -> Ends:
        start, stop = self.full.get(loop.variable, (loop.start, loop.stop))
        start, stop = start.substitute(dims), stop.substitute(dims)
        return simplify(start, self.w.bounds), simplify(stop, self.w.bounds)


# Loads that several statements of one block make


def _share(body: tuple[Stmt, ...], w: Writer) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for apart, group in groupby(body, lambda stmt: isinstance(stmt, For | Let)):
        run = tuple(group)
        parts = run if apart else _share_run(run, w)
        result += (replace(s, body=_share(s.body, w)) if isinstance(s, For) else s for s in parts)
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
