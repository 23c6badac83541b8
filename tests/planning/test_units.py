# SPDX-License-Identifier: Apache-2.0
"""Plans for steps of several units that run at the same time, against brute force.

A unit runs its steps in order; a step waits for the steps of other units that write what it
reads. Memory is simulated by the byte, for orders of the steps that this allows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations
from random import Random

import pytest

from relax_aot import lowering, planning
from relax_aot.fusion import in_place
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module, Symbol, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import check
from relax_aot.planning.check_order import PlanError
from relax_aot.planning.conflicts import (
    Conflicts,
    HappensBefore,
    conflicts_of_touches,
    sequential,
)
from relax_aot.planning.greedy import best_greedy
from relax_aot.planning.lifetimes import Lifetime
from relax_aot.planning.orders import clique_bound, improve_order
from relax_aot.planning.orientation import Block
from relax_aot.planning.steps import Step, program_of

SEEDS = range(60)
ORDERS = 12


@cache
def random_module(seed: int) -> Module:
    """Calls on results of earlier ones; values have two shapes, so that some may be in place."""
    source = Random(seed)
    b = FunctionBuilder()
    n = b.symbol(Symbol("n", 1, 9))
    shapes = [(n, Dim.of(3)), (n, Dim.of(5))]
    pools: list[list[Var]] = [
        [b.param(f"x{i}", TensorType(DType.F32, shape))] for i, shape in enumerate(shapes)
    ]
    for number in range(source.randint(5, 14)):
        which = source.randrange(2)
        pool = pools[which]
        match source.choice(("relu", "softmax", "add", "slice")):
            case "relu":
                (out,) = b.call("relu", source.choice(pool[-3:]), name=f"v{number}")
            case "softmax":
                (out,) = b.call("softmax", source.choice(pool[-3:]), axis=-1, name=f"v{number}")
            case "add":
                (out,) = b.call(
                    "add", source.choice(pool[-3:]), source.choice(pool), name=f"v{number}"
                )
            case _:
                other = source.choice(pools[1 - which][-3:])
                (row,) = b.call("reduce", other, kind="max", axes=(1,), keepdims=True)
                (out,) = b.call("add", source.choice(pool[-3:]), row, name=f"v{number}")
        pool.append(out)
    results = list({pool[-1].name: pool[-1] for pool in pools if len(pool) > 1}.values())
    return in_place.mark(lowering.lower(b.module(results)), lenient=False)


def random_edges(module: Module, seed: int) -> tuple[tuple[int, int], ...]:
    """Steps of up to three units."""
    source = Random(seed)
    steps = program_of(module).nodes
    units = source.randint(1, 3)
    last: dict[int, int] = {}
    writer: dict[str, int] = {}
    edges = set()
    for number, step in enumerate(steps):
        assert isinstance(step, Step)
        unit = source.randrange(units)
        if unit in last:
            edges.add((last[unit], number))
        last[unit] = number
        edges |= {(writer[name], number) for name in step.args if name in writer}
        writer |= dict.fromkeys(step.outs, number)
    return tuple(sorted(edges))


def reachable(count: int, edges: tuple[tuple[int, int], ...]) -> set[tuple[int, int]]:
    reach = set(edges)
    for k in range(count):
        before = [a for a in range(count) if (a, k) in reach]
        after = [b for b in range(count) if (k, b) in reach]
        reach |= {(a, b) for a in before for b in after}
    return reach


def run_in_some_order(plan: planning.Plan, source: Random) -> None:
    """Each byte of memory holds the name of the value that was written there; a step that reads
    wants its own operands, by the graph."""
    steps = [node for node in plan.program.nodes if isinstance(node, Step)]
    assert plan.happens_before is not None
    waits = {n: {a for a, b in plan.happens_before if b == n} for n in range(len(steps))}
    slots = {slot.var.name: slot for slot in plan.slots}
    memory: dict[tuple[str, int], str] = {}
    copied = {
        call.out.name: call.inputs[0].name
        for call in plan.module.main.body
        if call.op == "view" or call.outs[0].name not in {step.name for step in steps}
    }

    def places(name: str) -> list[tuple[str, int]]:
        root = plan.program.root(name)
        if root not in slots:
            return [(root, 0)]
        return [("", slots[root].offset + i) for i in range(slots[root].greatest_bytes)]

    def value(name: str) -> str:
        return value(copied[name]) if name in copied else name

    params = {param.name for param in plan.module.main.params}
    done: set[int] = set()
    while len(done) < len(steps):
        ready = [n for n in waits if n not in done and waits[n] <= done]
        number = source.choice(ready)
        call = steps[number].call
        for var in call.inputs:
            if value(var.name) not in params:
                held = {memory.get(place) for place in places(var.name)}
                assert held == {value(var.name)}, (call.out.name, var.name, held)
        for out in call.outs:
            memory |= dict.fromkeys(places(out.name), out.name)
        done.add(number)
    for result in plan.module.main.results:
        assert {memory.get(place) for place in places(result.name)} == {value(result.name)}


def bytes_of(plan: planning.Plan, roots: set[str]) -> set[int]:
    return {
        slot.offset + i
        for slot in plan.slots
        if slot.var.name in roots
        for i in range(slot.greatest_bytes)
    }


@pytest.mark.slow
def test_every_order_finds_its_operands() -> None:
    for seed in SEEDS:
        module = random_module(seed)
        plan = planning.plan(module, happens_before=random_edges(module, seed))
        for number in range(ORDERS):
            run_in_some_order(plan, Random(number))


@pytest.mark.slow
def test_steps_that_may_run_at_once_share_no_byte_that_one_writes() -> None:
    for seed in SEEDS:
        module = random_module(seed)
        plan = planning.plan(module, happens_before=random_edges(module, seed))
        steps = [node for node in plan.program.nodes if isinstance(node, Step)]
        assert plan.happens_before is not None
        reach = reachable(len(steps), plan.happens_before)
        for a, one in enumerate(steps):
            for b, other in enumerate(steps[:a]):
                if (a, b) in reach or (b, a) in reach:
                    continue
                for first, second in ((one, other), (other, one)):
                    written = bytes_of(plan, {*first.outs})
                    assert not written & bytes_of(plan, {*second.outs, *second.args})


@pytest.mark.slow
def test_results_take_the_memory_of_operands() -> None:
    shared = smaller = 0
    for seed in SEEDS:
        module = random_module(seed)
        edges = random_edges(module, seed)
        plan = planning.plan(module, happens_before=edges)
        shared += len(plan.program.roots)
        bare = replace(module, kernels=tuple(replace(k, in_place=()) for k in module.kernels))
        apart = planning.plan(bare, happens_before=edges)
        smaller += plan.arena_bytes < apart.arena_bytes
        assert plan.arena_bytes <= apart.arena_bytes * 1.5
    assert shared > 40 and smaller > 10, (shared, smaller)


@pytest.mark.slow
def test_one_unit_is_the_list() -> None:
    for seed in SEEDS:
        module = random_module(seed)
        count = len(program_of(module).nodes)
        one = planning.plan(module, happens_before=sequential(count).edges)
        plain = planning.plan(module)
        assert {s.var.name: s.offset for s in one.slots} == {
            s.var.name: s.offset for s in plain.slots
        }
        assert one.homes == plain.homes and one.commits == plain.commits


@pytest.mark.slow
def test_the_checker_refuses_a_value_that_is_written_over() -> None:
    """Without one of the edges, some order loses a value."""
    refused = 0
    for seed in SEEDS[::3]:
        module = random_module(seed)
        plan = planning.plan(module, happens_before=random_edges(module, seed))
        assert plan.happens_before is not None
        count = len(plan.program.nodes)
        for edge in plan.happens_before:
            rest = tuple(one for one in plan.happens_before if one != edge)
            weaker = replace(plan, happens_before=rest)
            if reachable(count, rest) == reachable(count, plan.happens_before):
                check.check(weaker)
                continue
            try:
                for number in range(ORDERS):
                    run_in_some_order(weaker, Random(number))
            except AssertionError:
                with pytest.raises(PlanError):
                    check.check(weaker)
                refused += 1
    assert refused > 20, refused


def test_a_failing_step_of_another_unit_stages_the_result() -> None:
    b = FunctionBuilder()
    n = b.symbol(Symbol("n", 1, 9))
    x = b.param("x", TensorType(DType.F32, (n, Dim.of(3))))
    at = b.param("at", TensorType(DType.I64, (n,)))
    (row,) = b.call("gather", x, at, axis=0, name="row")
    (early,) = b.call("relu", x, name="early")
    module = lowering.lower(b.module([row, early]))
    assert [k.fallible for k in module.kernels] == [True, False]
    chain = planning.plan(module, happens_before=((0, 1),))
    assert chain.homes["early"] is planning.Home.OUTPUT
    apart = planning.plan(module, happens_before=())
    assert {commit.source for commit in apart.commits} == {"row", "early"}


def random_blocks(seed: int, count: int, steps: int) -> tuple[list[Block], Conflicts]:
    """Values of two units whose steps alternate, and which meet every few steps."""
    source = Random(seed)
    edges = [(step - 2, step) for step in range(2, steps)]
    edges += [(step - 1, step) for step in range(1, steps) if step % 9 == 0]
    touches = []
    for _ in range(count):
        first = source.randrange(steps - 2)
        last = first + 2 * source.randint(0, 6)
        touches.append([first, last if last < steps else first])
    blocks = [
        Block(f"b{i}", Lifetime(min(t), max(t) + 1), 16 * source.randint(1, 9))
        for i, t in enumerate(touches)
    ]
    return blocks, conflicts_of_touches(touches, HappensBefore(steps, tuple(edges)))


def exact(blocks: list[Block], conflicts: Conflicts) -> int:
    """The lowest height, by trying for each order of the blocks the lowest free offsets."""
    best = sum(block.size for block in blocks)
    for order in permutations(range(len(blocks))):
        offsets: dict[int, int] = {}
        for i in order:
            near = [j for j in offsets if conflicts.masks[i] >> j & 1]
            tops = sorted({0, *(offsets[j] + blocks[j].size for j in near)})
            offsets[i] = next(
                t
                for t in tops
                if all(
                    t + blocks[i].size <= offsets[j] or offsets[j] + blocks[j].size <= t
                    for j in near
                )
            )
        best = min(best, max(offsets[i] + blocks[i].size for i in offsets))
    return best


def test_the_search_finds_the_lowest_packing_of_small_orders() -> None:
    for seed in range(20):
        blocks, conflicts = random_blocks(seed, 6, 9)
        found = improve_order(blocks, conflicts, best_greedy(blocks, conflicts))
        lowest = exact(blocks, conflicts)
        assert found.packing.height == lowest and found.lower_bound <= lowest
        assert clique_bound(blocks, conflicts) == found.lower_bound


@pytest.mark.slow
def test_the_search_is_lower_than_first_fit() -> None:
    better = 0
    for seed in range(3):
        blocks, conflicts = random_blocks(seed, 60, 60)
        greedy = best_greedy(blocks, conflicts)
        found = improve_order(blocks, conflicts, greedy)
        assert seed or found == improve_order(blocks, conflicts, greedy)
        assert found.lower_bound <= found.packing.height <= greedy.height
        for i, j in conflicts.pairs():
            one, other = (found.packing.offsets[blocks[k].name] for k in (i, j))
            assert one + blocks[i].size <= other or other + blocks[j].size <= one
        better += found.packing.height < greedy.height
    assert better > 0
