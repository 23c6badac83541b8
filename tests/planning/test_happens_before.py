# SPDX-License-Identifier: Apache-2.0
"""Values of steps that may run at the same time do not share memory; a chain's do."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from relax_aot import lowering, planning
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module, Symbol
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import check
from relax_aot.planning.conflicts import (
    HappensBefore,
    conflicts_of_lifetimes,
    conflicts_of_touches,
    sequential,
)
from relax_aot.planning.lifetimes import Lifetime

LEFT = ("left1", "left2", "left3")
RIGHT = ("right1", "right2", "right3")


def two_chains() -> Module:
    """x -> left1 -> left2 -> left3 and x -> right1 -> right2 -> right3, then their sum.

    In the order of the text the left chain is done before the right one begins.
    """
    b = FunctionBuilder()
    n = b.symbol(Symbol("n", 1, 9))
    x = b.param("x", TensorType(DType.F32, (n, Dim.of(3))))
    ends = []
    for names in (LEFT, RIGHT):
        value = x
        for name in names:
            (value,) = b.call("softmax", value, axis=-1, name=name)
        ends.append(value)
    (total,) = b.call("add", *ends, name="total")
    return lowering.lower(b.module([total]))


DEPENDENCES = ((0, 1), (1, 2), (3, 4), (4, 5), (2, 6), (5, 6))
CHAIN = tuple((i, i + 1) for i in range(6))


def share_a_byte(plan: planning.Plan, one: str, other: str) -> bool:
    slots = {slot.var.name: slot for slot in plan.slots}
    a, b = slots[one], slots[other]
    return a.offset < b.offset + b.greatest_bytes and b.offset < a.offset + a.greatest_bytes


def test_parallel_chains_share_nothing() -> None:
    plan = planning.plan(two_chains(), happens_before=DEPENDENCES)
    assert not any(share_a_byte(plan, a, b) for a in LEFT for b in RIGHT)
    assert share_a_byte(plan, "left1", "left3"), "within a chain memory is used again"
    assert plan.arena_bytes == 4 * 112


def test_a_chain_of_all_steps_is_the_sequential_plan() -> None:
    plan = planning.plan(two_chains(), happens_before=CHAIN)
    assert any(share_a_byte(plan, a, b) for a in LEFT[:2] for b in RIGHT)
    assert plan.arena_bytes == 3 * 112


def test_the_checker_refuses_a_sequential_plan_for_parallel_steps() -> None:
    plan = planning.plan(two_chains(), happens_before=CHAIN)
    with pytest.raises(check.PlanError, match="overlap"):
        check.check(replace(plan, happens_before=DEPENDENCES))


def test_the_checker_wants_writes_before_reads() -> None:
    plan = planning.plan(two_chains(), happens_before=CHAIN)
    without = tuple(edge for edge in DEPENDENCES if edge != (1, 2))
    with pytest.raises(check.PlanError, match="before it is written"):
        check.check(replace(plan, happens_before=without))
    with pytest.raises(check.PlanError, match="before itself"):
        check.check(replace(plan, happens_before=(*CHAIN, (3, 2))))


def test_the_relation_of_a_chain_is_that_of_ranges() -> None:
    for seed in range(30):
        source = random.Random(seed)
        touches = [sorted(source.sample(range(12), source.randint(1, 4))) for _ in range(15)]
        ranges = conflicts_of_lifetimes([Lifetime(min(t), max(t) + 1) for t in touches])
        assert conflicts_of_touches(touches, sequential(12)) == ranges


def test_a_weaker_order_conflicts_more_and_never_less() -> None:
    for seed in range(30):
        source = random.Random(seed)
        touches = [sorted(source.sample(range(12), source.randint(1, 4))) for _ in range(15)]
        edges = [(a, b) for b in range(12) for a in range(b) if source.random() < 0.2]
        order = HappensBefore(12, tuple(edges))
        expected = set()
        reach = {(a, b) for a, b in edges}
        for k in range(12):
            reach |= {(a, b) for a in range(12) for b in range(12) if {(a, k), (k, b)} <= reach}
        for i in range(15):
            for j in range(i):
                forth = all((a, b) in reach for a in touches[i] for b in touches[j])
                back = all((b, a) in reach for a in touches[i] for b in touches[j])
                if not forth and not back:
                    expected.add((j, i))
        assert set(conflicts_of_touches(touches, order).pairs()) == expected
        assert set(conflicts_of_touches(touches, sequential(12)).pairs()) <= expected
