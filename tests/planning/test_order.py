# SPDX-License-Identifier: Apache-2.0
"""The order of calls against all orders there are, and on whole modules."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from relax_aot import lowering, planning, transforms
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.check import problems
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module, Symbol
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import deduce
from relax_aot.planning import order
from relax_aot.planning.sequence import Job, Jobs, lowest_order, peak_of
from tests.planning.random_modules import random_module


def random_jobs(source: random.Random, count: int, reach: int) -> Jobs:
    """Each job writes one value and reads a few earlier ones; some take a value's memory."""
    sizes = tuple(source.choice([0, 16, 64, 256, 1024]) for _ in range(count))
    jobs = []
    for number in range(count):
        near = range(max(0, number - reach), number)
        reads = frozenset(source.sample(near, min(len(near), source.randint(0, 3))))
        same = [(number, r) for r in sorted(reads) if sizes[r] == sizes[number]]
        shared = tuple(same) if source.random() < 0.5 else ()
        within = source.choice([0, 0, 0, 128])
        jobs.append(Job(reads, reads, frozenset({number}), within, shared))
    return Jobs(tuple(jobs), sizes, frozenset({count - 1}))


def all_orders(jobs: Jobs) -> Iterator[tuple[int, ...]]:
    def rest(done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(done) == len(jobs.jobs):
            yield done
        for number, job in enumerate(jobs.jobs):
            if number not in done and job.after <= set(done):
                yield from rest((*done, number))

    return rest(())


def peak_by_hand(jobs: Jobs, chosen: tuple[int, ...]) -> int:
    """By asking, at each moment, which values are there: no bookkeeping."""
    peak = 0
    for moment, number in enumerate(chosen):
        job = jobs.jobs[number]
        made = {v for n in chosen[: moment + 1] for v in jobs.jobs[n].writes}
        wanted = {v for n in chosen[moment + 1 :] for v in jobs.jobs[n].reads} | jobs.kept
        alive = {v for v in made if v in wanted or v in job.reads | job.writes}
        total = sum(jobs.sizes[v] for v in alive) + job.within
        dying = [w for w, r in job.in_place if r not in wanted]
        peak = max(peak, total - (jobs.sizes[dying[0]] if dying else 0))
    return peak


@pytest.mark.slow
def test_small_graphs_are_ordered_as_well_as_can_be() -> None:
    better = 0
    for seed in range(120):
        jobs = random_jobs(random.Random(seed), 7, 7)
        peaks = {chosen: peak_by_hand(jobs, chosen) for chosen in all_orders(jobs)}
        found = lowest_order(jobs)
        assert found.exact
        assert found.peak == peaks[found.order] == min(peaks.values())
        better += found.peak < peaks[tuple(range(7))]
    assert better > 20


@pytest.mark.slow
def test_large_graphs_are_ordered_and_never_worse() -> None:
    better = 0
    for seed, count in enumerate([30, 60, 120, 400, 1000]):
        jobs = random_jobs(random.Random(seed), count, 8)
        found = lowest_order(jobs)
        given = tuple(range(count))
        assert sorted(found.order) == list(given)
        place = {number: i for i, number in enumerate(found.order)}
        assert all(place[a] < place[n] for n, job in enumerate(jobs.jobs) for a in job.after)
        assert found.peak == peak_of(jobs, found.order) <= peak_of(jobs, given)
        assert found == lowest_order(jobs)
        better += found.peak < peak_of(jobs, given)
    assert better > 0


def wide() -> Module:
    """Two products that grow and shrink again; in the order of the text both are large at once."""
    b = FunctionBuilder()
    n = b.symbol(Symbol("n", 2, 32))
    x = b.param("x", TensorType(DType.F32, (n, Dim.of(1))))
    (turned,) = b.call("transpose", x, perm=(1, 0), name="turned")
    (left,) = b.call("matmul", x, turned, name="left")
    (right,) = b.call("matmul", x, turned, name="right")
    (small_left,) = b.call("matmul", left, x, name="small_left")
    (small_right,) = b.call("matmul", right, x, name="small_right")
    (total,) = b.call("add", small_left, small_right, name="total")
    return b.module([total])


def test_growing_values_are_made_one_after_the_other() -> None:
    module = lowering.lower(wide())
    ordered = order.run(module)
    names = [call.out.name for call in ordered.main.body]
    assert names.index("small_left") < names.index("right")
    assert planning.plan(module).arena_bytes >= 2 * 4 * 32 * 32
    assert planning.plan(ordered).arena_bytes < 1.2 * 4 * 32 * 32
    assert order.run(ordered) == ordered


@pytest.mark.slow
def test_modules_stay_right_and_never_need_more() -> None:
    """Branches, views, inner sizes: the order is allowed, and no plan becomes larger."""
    moved = 0
    for seed in range(15):
        module = lowering.lower(transforms.run(random_module(seed).module))
        ordered = order.run(module)
        assert set(problems(ordered, deduce)) <= set(problems(module, deduce))
        assert planning.plan(ordered).arena_bytes <= planning.plan(module).arena_bytes
        for one, other in zip(module.functions, ordered.functions, strict=True):
            assert sorted(map(str, one.body)) == sorted(map(str, other.body))
        moved += ordered != module
    assert moved > 0
