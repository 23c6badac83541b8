"""Several turns of a leaf at once: the turns' statements side by side in the same loops.

Each turn is a lane. Its own sums stay in the order in which they were written, so that every
result has the bits it would have had alone. A loop whose bounds differ between lanes is
unrolled, each step with the lanes that take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.ir.dims import Bounds, Dim, simplify
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
from relax_aot.scheduling.writer import Names

UNROLLED = 16
"""Steps of one loop at most that are written out."""


class CannotJam(Exception):
    """The lanes' loops differ in a way that is known only at run time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the loops of a leaf are treated: `full` bounds that are known to hold, and how many
    steps of each loop stand side by side (0: all of them)."""

    full: Mapping[str, tuple[Dim, Dim]]
    steps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Lane:
    """What the names of a leaf mean in one turn."""

    dims: Mapping[str, Dim]
    locals: Mapping[str, Local]

    def at(self, name: str, value: Dim) -> Lane:
        return Lane({**self.dims, name: value}, self.locals)

    def with_local(self, name: str, local: Local) -> Lane:
        return Lane(self.dims, {**self.locals, name: local})


def jam(
    leaf: tuple[Stmt, ...], lanes: Sequence[Lane], plan: Plan, names: Names, bounds: Bounds
) -> tuple[Stmt, ...]:
    """The statements of all lanes, with what several of them load in a variable."""
    body, _ = _Jam(plan, names).block(leaf, list(lanes), bounds)
    return _share(tuple(body), names)


@dataclass
class _Jam:
    plan: Plan
    names: Names

    def block(
        self, body: tuple[Stmt, ...], lanes: list[Lane], bounds: Bounds
    ) -> tuple[list[Stmt], list[Lane]]:
        result: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in body:
            if not isinstance(stmt, For):
                run.append(stmt)
                continue
            lanes = self._straight(run, lanes, result)
            run = []
            self._loop(stmt, lanes, bounds, result)
        lanes = self._straight(run, lanes, result)
        return result, lanes

    def _straight(self, run: list[Stmt], lanes: list[Lane], result: list[Stmt]) -> list[Lane]:
        after = []
        for lane in lanes:
            for stmt in run:
                placed, lane = self._place(stmt, lane)
                result.append(placed)
            after.append(lane)
        return after

    def _place(self, stmt: Stmt, lane: Lane) -> tuple[Stmt, Lane]:
        rule = _in_lane(lane)
        match stmt:
            case Declare():
                value = map_expr(stmt.value, rule)
                local = Local(self.names.fresh(stmt.local.name), stmt.local.dtype)
                return Declare(local, value), lane.with_local(stmt.local.name, local)
            case Assign():
                return Assign(lane.locals[stmt.local.name], map_expr(stmt.value, rule)), lane
            case Store():
                index = tuple(dim.substitute(lane.dims) for dim in stmt.index)
                return Store(stmt.buffer, index, map_expr(stmt.value, rule)), lane
            case _:
                raise AssertionError(stmt)

    def _loop(self, loop: For, lanes: list[Lane], bounds: Bounds, result: list[Stmt]) -> None:
        ends = [self._ends(loop, lane, bounds) for lane in lanes]
        steps = self.plan.steps.get(loop.variable, 1)
        constant = all(start.is_constant and stop.is_constant for start, stop in ends)
        if constant and (steps == 0 or len(set(ends)) > 1):
            self._unrolled(loop, lanes, ends, bounds, result)
            return
        if len(set(ends)) > 1:
            raise CannotJam(loop.variable)
        name = f"{loop.variable}_end"
        start, bounds = named(name, ends[0][0], self.names, bounds, result)
        stop, bounds = named(name, ends[0][1], self.names, bounds, result)
        if steps > 1:
            self._by_steps(loop, lanes, (start, stop), steps, bounds, result)
        else:
            self._rolled(loop, lanes, (start, stop), bounds, result)

    def _ends(self, loop: For, lane: Lane, bounds: Bounds) -> tuple[Dim, Dim]:
        start, stop = self.plan.full.get(loop.variable, (loop.start, loop.stop))
        return (
            simplify(start.substitute(lane.dims), bounds),
            simplify(stop.substitute(lane.dims), bounds),
        )

    def _unrolled(
        self,
        loop: For,
        lanes: list[Lane],
        ends: list[tuple[Dim, Dim]],
        bounds: Bounds,
        result: list[Stmt],
    ) -> None:
        spans = [(start.constant, stop.constant) for start, stop in ends]
        low, high = min(a for a, _ in spans), max(b for _, b in spans)
        if high - low > UNROLLED:
            raise CannotJam(loop.variable)
        for step in range(low, high):
            taking = [
                lane.at(loop.variable, Dim.of(step))
                for lane, (start, stop) in zip(lanes, spans, strict=True)
                if start <= step < stop
            ]
            if taking:  # between the turns of two lanes there may be some of none
                result += self.block(loop.body, taking, bounds)[0]

    def _rolled(
        self,
        loop: For,
        lanes: list[Lane],
        ends: tuple[Dim, Dim],
        bounds: Bounds,
        result: list[Stmt],
    ) -> None:
        if ends[1] - ends[0] == 1:
            at_start = [lane.at(loop.variable, ends[0]) for lane in lanes]
            result += self.block(loop.body, at_start, bounds)[0]
            return
        variable = self.names.fresh(loop.variable)
        inner = over(bounds, variable, *ends)
        moved = [lane.at(loop.variable, Dim.of(variable)) for lane in lanes]
        body, _ = self.block(loop.body, moved, inner)
        result.append(For(variable, *ends, tuple(body)))

    def _by_steps(
        self,
        loop: For,
        lanes: list[Lane],
        ends: tuple[Dim, Dim],
        steps: int,
        bounds: Bounds,
        result: list[Stmt],
    ) -> None:
        start, stop = ends
        turns = (stop - start) // steps
        variable = self.names.fresh(loop.variable)
        inner = over(bounds, variable, Dim.of(0), turns)
        body: list[Stmt] = []
        for step in range(steps):
            place = start + Dim.of(variable) * steps + step
            body += self.block(loop.body, [lane.at(loop.variable, place) for lane in lanes], inner)[
                0
            ]
        result.append(For(variable, Dim.of(0), turns, tuple(body)))
        rest = (start + turns * steps, stop)
        if rest[0] != stop:
            self._rolled(loop, lanes, rest, bounds, result)


def over(bounds: Bounds, variable: str, start: Dim, stop: Dim) -> Bounds:
    """The bounds inside a loop."""
    return bounds.with_value(variable, start, stop - 1)


def named(
    name: str, dim: Dim, names: Names, bounds: Bounds, result: list[Stmt]
) -> tuple[Dim, Bounds]:
    """`dim`, computed once and beforehand where that takes a division or a choice."""
    if all(isinstance(atom, str) for _, factors in dim.terms for atom, _ in factors):
        return dim, bounds
    fresh = names.fresh(name)
    result.append(Let(fresh, dim))
    return Dim.of(fresh), bounds.with_value(fresh, dim, dim)


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
