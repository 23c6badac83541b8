# SPDX-License-Identifier: Apache-2.0
"""An independent proof that no two values which are alive together share a byte.

Shares no code with the planner: it works out lifetimes again, from the steps alone, by
following each value backwards from its uses, and places slots by evaluating offsets at
the lowest, the highest and random sizes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from relax_aot.planning.check_order import PlanError, unordered

if TYPE_CHECKING:
    from relax_aot.ir.graph import State
    from relax_aot.ir.loops import Stmt
    from relax_aot.planning import Plan
    from relax_aot.planning.steps import Node, Repeat

__all__ = ["PlanError", "check"]

RANDOM_SIZES = 16


def check(plan: Plan) -> None:
    """Raise `PlanError` where the plan does not hold for some size."""
    _check_nothing_is_lost(plan)
    _check_states(plan)
    conflicts = _conflicts(plan) if plan.happens_before is None else unordered(plan)
    greatest = {slot.var.name: slot.greatest_bytes for slot in plan.slots}
    fixed = {slot.var.name: slot.offset for slot in plan.slots}
    regions = {slot.var.name: slot.region for slot in plan.slots}
    highest = {s.name: s.high for s in plan.module.symbols}
    if not plan.dynamic:
        _check_apart(conflicts, highest, regions, greatest, fixed)
        _check_room(plan, highest, greatest, fixed)
    for sizes in _sizes(plan):
        bytes_of = {s.var.name: _evaluate_bytes(s.bytes, sizes) for s in plan.slots}
        offsets: dict[str, int] = {}
        for slot in plan.slots:
            offset = 0
            for name in slot.below:
                if name not in offsets or regions[name] != slot.region:
                    raise PlanError(f"slot {slot.var.name} comes before {name}, which is below it")
                offset = max(offset, offsets[name] + bytes_of[name])
            offsets[slot.var.name] = offset
            if offset % plan.alignment:
                raise PlanError(f"slot {slot.var.name} is misaligned at {sizes}")
        _check_apart(conflicts, sizes, regions, bytes_of, offsets)
        if _allowed(plan, sizes):
            _check_room(plan, sizes, bytes_of, offsets)
            for name in (n for n, size in bytes_of.items() if size > greatest[n]):
                raise PlanError(f"slot {name} has {bytes_of[name]} bytes at {sizes}")


def _check_apart(
    conflicts: set[tuple[str, str]],
    sizes: dict[str, int],
    regions: dict[str, int],
    bytes_of: dict[str, int],
    offsets: dict[str, int],
) -> None:
    for one, other in conflicts:
        if regions[one] != regions[other]:
            continue
        low, high = sorted((one, other), key=lambda name: offsets[name])
        if offsets[low] + bytes_of[low] > offsets[high] and bytes_of[high] > 0:
            raise PlanError(f"slots {low} and {high} overlap at {sizes}")


def _check_room(
    plan: Plan, sizes: dict[str, int], bytes_of: dict[str, int], offsets: dict[str, int]
) -> None:
    for number, arena in enumerate(plan.arenas):
        ends = (
            offsets[s.var.name] + bytes_of[s.var.name] for s in plan.slots if s.region == number
        )
        top = max(ends, default=0)
        room = arena.region.bytes
        if top > arena.bytes or (room is not None and arena.bytes > room):
            raise PlanError(f"{top} bytes are needed at {sizes}, the plan has {arena.bytes}")


def _evaluate_bytes(dim: object, sizes: dict[str, int]) -> int:
    from relax_aot.ir.dims import Dim

    assert isinstance(dim, Dim)
    return max(dim.evaluate(sizes), 0)


def _sizes(plan: Plan) -> Iterator[dict[str, int]]:
    symbols = [s for s in plan.module.symbols if not s.inner]
    yield {s.name: s.low for s in symbols}
    yield {s.name: s.high for s in symbols}
    source = random.Random(0)
    for _ in range(RANDOM_SIZES if symbols else 0):
        sizes = {s.name: source.randint(s.low, s.high) for s in symbols}
        yield sizes
        if not _allowed(plan, sizes):
            yield _edge(plan, sizes, source)


def _allowed(plan: Plan, sizes: dict[str, int]) -> bool:
    """Whether the conditions of the model hold: a run refuses other sizes."""
    for condition in plan.module.conditions:
        if condition.left.symbols | condition.right.symbols <= sizes.keys():
            left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
            if left != right if condition.relation == "==" else left > right:
                return False
    return True


def _edge(plan: Plan, sizes: dict[str, int], source: random.Random) -> dict[str, int]:
    """Shrink refused sizes towards the lowest ones until a run accepts them, then raise one
    symbol after the other as far as it does."""
    symbols = [s for s in plan.module.symbols if not s.inner]
    for part in range(RANDOM_SIZES):
        inside = {s.name: s.low + (sizes[s.name] - s.low) * part // RANDOM_SIZES for s in symbols}
        if not _allowed(plan, inside):
            break
        sizes = inside
    for symbol in source.sample(symbols, len(symbols)):
        step = symbol.high - symbol.low
        while step:
            raised = {**sizes, symbol.name: sizes[symbol.name] + step}
            if raised[symbol.name] <= symbol.high and _allowed(plan, raised):
                sizes = raised
            else:
                step //= 2
    return sizes


def _conflicts(plan: Plan) -> set[tuple[str, str]]:
    """Pairs of slots that are alive at one moment, by a backward walk over the steps.

    Beyond liveness, what a step writes must not touch anything it reads or that lives on.
    """
    slots = {s.var.name for s in plan.slots}
    conflicts: set[tuple[str, str]] = set()

    def meet(written: set[str], alive: set[str]) -> None:
        for one in written:
            for other in alive - {one}:
                conflicts.add((min(one, other), max(one, other)))

    def backwards(nodes: tuple[Node, ...], alive: set[str]) -> set[str]:
        from relax_aot.planning.steps import Branch, Check, Define, Repeat, Step

        for node in reversed(nodes):
            match node:
                case Step():
                    written = set(node.outs) & slots
                    read = (set(node.args) | set(node.updates)) & slots
                    meet(written, alive | read | written)
                    alive = (alive - written) | read
                case Branch():
                    then = backwards(node.then, set(alive))
                    otherwise = backwards(node.otherwise, set(alive))
                    alive = then | otherwise | ({node.condition} & slots)
                case Define():
                    alive = alive | ({node.source} & slots)
                case Check():
                    pass
                case Repeat():
                    alive = around(node, alive)
        return alive

    def around(node: Repeat, after: set[str]) -> set[str]:
        """A loop: values alive at the start of an iteration are alive at the end of the last."""
        carried = {t.target for t in node.first} & slots
        results = carried | ({t.target for t in node.rows} & slots)
        moved = {t.source for t in (*node.following, *node.rows)} & slots
        again: set[str] = set()
        for _ in range(2):
            at_end = after | results | again
            meet(results, at_end | moved)
            again = backwards(node.nodes, at_end | moved)
        initial = {t.source for t in node.first} & slots
        before = (again | after) - results
        meet(results, before | initial | results)
        return before | initial

    at_end = {commit.source for commit in plan.commits} & slots
    unwritten = backwards(plan.program.nodes, at_end)
    if unwritten:
        raise PlanError(f"read before they are written: {sorted(unwritten)}")
    return conflicts


def _check_nothing_is_lost(plan: Plan) -> None:
    """Where values share memory, a call must not write over one that is read later.

    Follows the graph's own values backwards; of the planner's work it takes only which
    memory each value has.
    """
    from relax_aot.ir.graph import Loop

    functions, appended = plan.module.function_table, _appended(plan)
    bases = {
        call.out.name: call.inputs[0].name
        for function in plan.module.functions
        for call in function.body
        if call.op in ("view", "guard")
    }

    for function in plan.module.functions:
        for call in function.body:
            count = Loop.of(call).carried if call.op == "loop" else 1
            first = count if call.op == "loop" else 0
            for side in call.bodies:
                pairs = zip(functions[side].params[first:], call.inputs[count:], strict=True)
                bases |= {p.name: v.name for p, v in pairs if p.name != v.name}

    def base(name: str) -> str:
        while name in bases:
            name = bases[name]
        return name

    def backwards(name: str, alive: set[str]) -> set[str]:
        for call in reversed(functions[name].body):
            outs = {out.name for out in call.outs}
            if call.op in ("call_kernel", "call_extern"):
                memory = {plan.program.root(out) for out in outs}
                lost = sorted(v for v in alive - outs - appended if plan.program.root(v) in memory)
                if lost:
                    raise PlanError(f"{call.outs[0].name} is written over {lost[0]}, read later")
            rest = alive - outs
            # Captured values are read where a body reads them.
            count = Loop.of(call).carried if call.op == "loop" else 1 if call.bodies else None
            if call.op != "view":
                alive = rest | {base(v.name) for v in call.inputs[:count]}
            for side in call.bodies:
                results = {base(v.name) for v in functions[side].results}
                carried = set[str]()
                if call.op == "loop":  # values read by one iteration are read again by the next
                    carried = {p.name for p in functions[side].params[:count]}
                    results |= alive | backwards(side, alive | results)
                alive |= backwards(side, rest | results) - carried
        return alive

    backwards(plan.module.main.name, {base(v.name) for v in plan.module.main.results})


def _check_states(plan: Plan) -> None:
    """Nothing can fail once a state is changed, and no step is given one array twice."""
    from relax_aot.ir.extern import Extern
    from relax_aot.planning.steps import Branch, Check, Define, Repeat, Step

    states = {state.input for state in plan.module.states} - _appended(plan)

    def forwards(nodes: tuple[Node, ...], changed: set[str]) -> set[str]:
        def may_fail(where: str) -> None:
            if changed:
                raise PlanError(f"{where} can fail after {min(changed)} was changed")

        for node in nodes:
            match node:
                case Step():
                    read, written = (
                        {plan.program.root(name) for name in names}
                        for names in (node.args, node.outs)
                    )
                    twice = read & written
                    if twice and not isinstance(node.callee, Extern):
                        raise PlanError(f"{node.callee.name} reads and writes {min(twice)} apart")
                    changed = changed | (set(node.outs) & states)
                    if node.callee.fallible:
                        may_fail(node.callee.name)
                case Define() | Check():
                    may_fail(node.call.op)
                case Branch():
                    changed = forwards(node.then, changed) | forwards(node.otherwise, changed)
                case Repeat():
                    written = {t.target for t in (*node.first, *node.rows)} & states
                    changed = changed | written
                    for _ in range(2):  # what an iteration changes, the next one may not lose
                        changed = changed | forwards(node.nodes, changed)
                    if node.fallible:
                        may_fail(node.call.op)
        return changed

    forwards(plan.program.nodes, set())


def _appended(plan: Plan) -> set[str]:
    """The growing states of which no row that they hold is written, at any of the sizes."""
    sizes = [one for one in _sizes(plan) if _allowed(plan, one)]
    in_place = (
        state
        for state in plan.module.states
        if state.length and plan.program.root(state.output) == state.input != state.output
    )
    return {s.input for s in in_place if all(_keeps_rows(plan, s, one) for one in sizes)}


def _keeps_rows(plan: Plan, state: State, sizes: dict[str, int]) -> bool:
    """No step writes a row of the state below its length, by intervals of its indices."""
    from relax_aot.ir.loops import Kernel
    from relax_aot.planning.steps import Repeat, Step, walk_steps, written_by

    for node in walk_steps(plan.program.nodes):
        if isinstance(node, Repeat) and state.input in written_by(node):
            return False
        if not isinstance(node, Step) or state.input not in node.outs:
            continue
        if not isinstance(node.callee, Kernel):
            return False
        ranges = {name: (size, size) for name, size in sizes.items()}
        pairs = zip(node.callee.outputs, node.outs, strict=False)
        buffers = {buffer.name for buffer, out in pairs if out == state.input}
        rows = _written_rows(node.callee.body, buffers, state.axis, ranges)
        if any(row is None or row < sizes[state.length] for row in rows):
            return False
    return True


def _written_rows(
    body: tuple[Stmt, ...], buffers: set[str], axis: int, ranges: dict[str, tuple[int, int]]
) -> Iterator[int | None]:
    """The lowest index on the axis of each write; None where it is not known."""
    from relax_aot.ir.dims import Bounds, interval
    from relax_aot.ir.loops import For, If, Let, Micro, Multiply, Store

    ranges = dict(ranges)
    for stmt in body:
        bounds = Bounds.of(ranges)
        match stmt:
            case For() if stmt.start.symbols | stmt.stop.symbols <= ranges.keys():
                low, high = interval(stmt.start, bounds)[0], interval(stmt.stop, bounds)[1] - 1
                inside = {**ranges, stmt.variable: (low, high)}
                yield from _written_rows(stmt.body, buffers, axis, inside) if low <= high else ()
            case For():
                yield from _written_rows(stmt.body, buffers, axis, ranges)
            case If():
                for side in (stmt.then, stmt.otherwise):
                    yield from _written_rows(side, buffers, axis, ranges)
            case Let() if stmt.value.symbols <= ranges.keys():
                ranges[stmt.name] = interval(stmt.value, bounds)
            case Store() | Micro():
                for one in [stmt] if isinstance(stmt, Store) else stmt.written:
                    if one.buffer.name in buffers:
                        known = one.index[axis].symbols <= ranges.keys()
                        yield interval(one.index[axis], bounds)[0] if known else None
            case Multiply() if stmt.sums.name in buffers:
                yield None
            case _:
                pass
