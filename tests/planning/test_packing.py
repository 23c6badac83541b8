# SPDX-License-Identifier: Apache-2.0
"""Packings against first fit, as it stands in textbooks, and orientations at other sizes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from relax_aot.planning.conflicts import conflicts_of_lifetimes
from relax_aot.planning.lifetimes import Lifetime
from relax_aot.planning.orientation import Block, lower_bound, offsets_at, orient
from relax_aot.planning.packing import pack
from relax_aot.planning.search import Budget


def graph_blocks(source: random.Random, count: int) -> list[Block]:
    """Values of a random graph: most die soon, some live long; few sizes or many."""
    sizes = source.choice(
        [[64, 128, 1024], list(range(16, 4096, 16)), [2**k for k in range(4, 20)]]
    )
    reach = source.choice([2, 5, count])
    blocks = []
    for number in range(count):
        stop = number + 1 + min(int(source.expovariate(1 / reach)), count)
        blocks.append(Block(f"v{number}", Lifetime(number, stop + 1), source.choice(sizes)))
    return blocks


def first_fit_by_size(blocks: list[Block]) -> int:
    """The reference: by falling size, each at the lowest offset that is free all its life."""
    placed: list[tuple[int, Block]] = []
    for block in sorted(blocks, key=lambda b: -b.size):
        near = [
            (offset, offset + other.size)
            for offset, other in placed
            if other.lifetime.start < block.lifetime.stop
            and block.lifetime.start < other.lifetime.stop
        ]
        candidates = [0, *sorted(top for _, top in near)]
        offset = next(
            c for c in candidates if all(c >= top or c + block.size <= low for low, top in near)
        )
        placed.append((offset, block))
    return max(offset + block.size for offset, block in placed)


@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(0, 500, 50)])
def test_no_worse_than_first_fit_by_size(seeds: range) -> None:
    for seed in seeds:
        source = random.Random(seed)
        blocks = graph_blocks(source, source.randint(1, 60))
        found = pack(blocks, Budget(work=1_000_000))
        assert lower_bound(blocks) <= found.packing.height <= first_fit_by_size(blocks)


def test_an_orientation_holds_at_every_size() -> None:
    """Whatever the sizes become, what lived together does not overlap; at the sizes that were
    planned for, the orientation is as low as the packing."""
    for seed in range(60):
        source = random.Random(seed)
        blocks = graph_blocks(source, source.randint(2, 40))
        conflicts = conflicts_of_lifetimes([b.lifetime for b in blocks])
        found = pack(blocks, Budget(work=100_000))
        below = orient(blocks, found.packing, conflicts)
        for turn in range(4):
            sizes = {b.name: b.size if turn == 0 else source.randint(0, 500) for b in blocks}
            offsets = offsets_at(below, sizes)
            height = max(offsets[b.name] + sizes[b.name] for b in blocks)
            assert turn > 0 or height <= found.packing.height
            for one, other in conflicts.pairs():
                a, b = blocks[one].name, blocks[other].name
                assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a], (
                    seed,
                    a,
                    b,
                )


def test_an_orientation_has_no_pair_that_follows_from_others() -> None:
    for seed in range(30):
        blocks = graph_blocks(random.Random(seed), 25)
        conflicts = conflicts_of_lifetimes([b.lifetime for b in blocks])
        below = orient(blocks, pack(blocks, Budget(work=1)).packing, conflicts)

        def reaches(high: str, low: str, below: dict[str, tuple[str, ...]] = below) -> bool:
            return any(u == low or reaches(u, low) for u in below[high])

        for supports in below.values():
            for low in supports:
                assert not any(reaches(other, low) for other in supports if other != low)


def test_lifetimes_conflict_where_they_share_a_moment() -> None:
    for seed in range(20):
        source = random.Random(seed)
        lives = []
        for _ in range(30):
            start = source.randrange(15)
            lives.append(Lifetime(start, start + source.randint(1, 5)))
        expected = {
            (i, j)
            for i in range(30)
            for j in range(i + 1, 30)
            if np.intersect1d(
                np.arange(lives[i].start, lives[i].stop), np.arange(lives[j].start, lives[j].stop)
            ).size
        }
        conflicts = conflicts_of_lifetimes(lives)
        assert set(conflicts.pairs()) == expected
        assert all(conflicts.row(i)[j] and conflicts.row(j)[i] for i, j in expected)
