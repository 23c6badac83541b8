# SPDX-License-Identifier: Apache-2.0
"""The search against brute force, published optima, and its own twin in Python."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from relax_aot.planning import descent, engine
from relax_aot.planning.csv_plan import read_table
from relax_aot.planning.descent import Verdict
from relax_aot.planning.lifetimes import Lifetime
from relax_aot.planning.orientation import Block, Packing, lower_bound
from relax_aot.planning.packing import pack
from relax_aot.planning.search import Budget, problem_of

INSTANCES = Path(__file__).resolve().parents[3] / "shared" / "minimalloc"
CAPACITY = 1048576


def random_blocks(source: random.Random, count: int, positions: int, longest: int) -> list[Block]:
    blocks = []
    for number in range(count):
        start = source.randrange(positions)
        stop = start + source.randint(1, longest)
        blocks.append(Block(f"b{number}", Lifetime(start, stop), source.randint(0, 9) * 16))
    return blocks


def assert_packed(blocks: list[Block], packing: Packing) -> None:
    offsets = packing.offsets
    assert all(offsets[b.name] >= 0 for b in blocks)
    assert packing.height == max(offsets[b.name] + b.size for b in blocks)
    for one, other in itertools.combinations(blocks, 2):
        together = (
            one.lifetime.start < other.lifetime.stop and other.lifetime.start < one.lifetime.stop
        )
        apart = (
            offsets[one.name] + one.size <= offsets[other.name]
            or offsets[other.name] + other.size <= offsets[one.name]
        )
        assert apart or not together, (one, other)


ABOVE_THE_BOUND = [
    [(0, 1, 6), (1, 2, 4), (0, 3, 2), (2, 3, 1), (0, 4, 2), (2, 4, 3), (1, 5, 2), (3, 5, 3)]
    + [(4, 5, 5)],
    [(0, 1, 6), (1, 2, 4), (0, 3, 4), (2, 3, 1), (0, 4, 2), (2, 4, 3), (1, 5, 2), (3, 5, 5)]
    + [(4, 6, 5), (5, 6, 4), (5, 6, 3)],
]
"""Start, stop, size: the lowest packing is one higher than the greatest sum alive at one time."""


def fits(blocks: list[Block], height: int) -> bool:
    """By trying every whole offset for every block."""
    taken = [0] * max(b.lifetime.stop for b in blocks)

    def rest(number: int) -> bool:
        if number == len(blocks):
            return True
        block = blocks[number]
        life = range(block.lifetime.start, block.lifetime.stop)
        for offset in range(height - block.size + 1):
            mask = ((1 << block.size) - 1) << offset
            if any(taken[t] & mask for t in life):
                continue
            for t in life:
                taken[t] |= mask
            if rest(number + 1):
                return True
            for t in life:
                taken[t] &= ~mask
        return False

    return rest(0)


@pytest.mark.parametrize("table", ABOVE_THE_BOUND)
def test_what_the_lower_bound_does_not_rule_out_the_search_does(
    table: list[tuple[int, int, int]],
) -> None:
    blocks = [Block(f"b{i}", Lifetime(*life), size) for i, (*life, size) in enumerate(table)]
    least = lower_bound(blocks)
    found = pack(blocks, Budget(work=10_000_000))
    assert_packed(blocks, found.packing)
    assert found.proved and found.packing.height == found.lower_bound == least + 1
    assert fits(blocks, least + 1) and not fits(blocks, least)


def test_small_problems_are_solved_to_the_optimum_and_proved() -> None:
    for seed in range(300):
        source = random.Random(seed)
        blocks = random_blocks(source, source.randint(1, 12), 8, 5)
        found = pack(blocks, Budget(work=10_000_000))
        assert_packed(blocks, found.packing)
        assert found.proved
        assert found.packing.height == lower_bound(blocks)


def test_the_search_in_c_and_in_python_are_the_same() -> None:
    in_c = engine.best_engine()
    if in_c is descent.descend:
        pytest.skip("no C compiler: there is one search only")
    seen = set()
    for seed in range(200):
        source = random.Random(seed)
        blocks = [b for b in random_blocks(source, source.randint(1, 40), 30, 12) if b.size]
        problem = problem_of(blocks)
        weights, other_weights = [0] * problem.sections, [0] * problem.sections
        for _ in range(3):
            ranks = list(range(len(blocks)))
            source.shuffle(ranks)
            capacity = lower_bound(blocks) + 16 * source.randint(-1, 2)
            budget = (capacity, source.choice([20, 1000]), source.choice([2000, 10**7]))
            one = in_c(problem, ranks, weights, *budget)
            other = descent.descend(problem, ranks, other_weights, *budget)
            assert (one.verdict, one.nodes, one.work) == (other.verdict, other.nodes, other.work)
            assert weights == other_weights
            if one.verdict is Verdict.FOUND:
                assert one.offsets == other.offsets
            seen.add(one.verdict)
    assert seen == set(Verdict)


def test_without_a_compiler_the_search_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "there-is-no-such-compiler")
    engine.best_engine.cache_clear()
    try:
        assert engine.best_engine() is descent.descend
        blocks = random_blocks(random.Random(3), 30, 20, 8)
        found = pack(blocks, Budget(work=2_000_000))
        assert_packed(blocks, found.packing)
    finally:
        engine.best_engine.cache_clear()


def test_sizes_beyond_the_integers_of_c_are_planned() -> None:
    blocks = [
        Block("a", Lifetime(0, 2), 2**70),
        Block("b", Lifetime(1, 4), 2**71),
        Block("c", Lifetime(3, 5), 2**70),
        Block("d", Lifetime(0, 1), 2**71),
    ]
    found = pack(blocks, Budget(work=100_000))
    assert_packed(blocks, found.packing)
    assert found.packing.height == 3 * 2**70


@pytest.mark.slow
@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_public_instances_fit(name: str) -> None:
    """Google's hard instances; first fit overshoots them by 17 to 41 %."""
    if not INSTANCES.is_dir():
        pytest.skip("the public instances are not next to this checkout")
    blocks = read_table(INSTANCES / f"{name}.{CAPACITY}.csv")
    found = pack(blocks, Budget(work=30_000_000_000), enough=CAPACITY)
    assert_packed(blocks, found.packing)
    assert found.packing.height <= CAPACITY
