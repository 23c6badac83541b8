# SPDX-License-Identifier: Apache-2.0
"""The search for a lower packing of values with any conflict relation: local search over orders.

First fit places one block after the other at the lowest free offset, so a packing is an order. A
move takes a block that ends at the top, or one by chance, to an earlier place of the order; it is
kept where the packing is no higher. Chance is seeded and work is counted: the same blocks have the
same packing on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from relax_aot.planning.conflicts import Conflicts
from relax_aot.planning.greedy import first_fit
from relax_aot.planning.orientation import Block, Packing
from relax_aot.planning.search import Found

WORK = 30_000
"""Blocks that are placed in all."""
AT_TOP = 0.7
"""How often a block that ends at the top is moved."""


def improve_order(blocks: Sequence[Block], conflicts: Conflicts, start: Packing) -> Found:
    """A packing that is no higher than `start`, and a height that none is below."""
    least = clique_bound(blocks, conflicts)
    best = start
    order = sorted(range(len(blocks)), key=lambda i: (start.offsets[blocks[i].name], i))
    packing = first_fit(blocks, conflicts, order)
    chance = random.Random(0)
    for _ in range(WORK // max(len(blocks), 1)):
        if packing.height < best.height:
            best = packing
        if best.height <= least:
            break
        moved = _moved(blocks, packing, order, chance)
        trial = first_fit(blocks, conflicts, moved)
        if trial.height <= packing.height:
            order, packing = moved, trial
    return Found(packing if packing.height < best.height else best, least)


def _moved(
    blocks: Sequence[Block], packing: Packing, order: Sequence[int], chance: random.Random
) -> list[int]:
    tops = [
        place
        for place, i in enumerate(order)
        if packing.offsets[blocks[i].name] + blocks[i].size == packing.height
    ]
    at_top = tops and chance.random() < AT_TOP
    place = chance.choice(tops) if at_top else chance.randrange(len(order))
    moved = list(order)
    block = moved.pop(place)
    moved.insert(chance.randint(0, place), block)
    return moved


def clique_bound(blocks: Sequence[Block], conflicts: Conflicts) -> int:
    """The bytes of a set of blocks that all conflict: the best of those that grow from one block
    each, the largest neighbors first."""
    by_size = sorted(range(len(blocks)), key=lambda i: (-blocks[i].size, i))
    best = 0
    for first in by_size:
        common, total = conflicts.masks[first], blocks[first].size
        for other in by_size:
            if common >> other & 1:
                common &= conflicts.masks[other]
                total += blocks[other].size
        best = max(best, total)
    return best
