# SPDX-License-Identifier: Apache-2.0
"""A packing of blocks at their greatest sizes: greedy first, a search where that is not enough.

The search inside a compile counts its work, so that the same module has the same plan on
every machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from relax_aot.planning.conflicts import Conflicts, conflicts_of_lifetimes
from relax_aot.planning.greedy import best_greedy
from relax_aot.planning.orders import improve_order
from relax_aot.planning.orientation import Block
from relax_aot.planning.search import Budget, Found, improve

WORK_IN_A_COMPILE = 60_000_000
"""Moves: about 0.2 s by the search in C, some seconds by the one in Python."""


def pack(blocks: Sequence[Block], budget: Budget | None = None, enough: int = 0) -> Found:
    """The lowest packing that the budget finds, of values that live in ranges of one sequence.

    Never higher than first fit by size. Any height of at most `enough` will do.
    """
    begin = time.monotonic()
    budget = budget or Budget(work=WORK_IN_A_COMPILE)
    greedy = best_greedy(blocks, conflicts_of_lifetimes([block.lifetime for block in blocks]))
    if budget.seconds is not None:
        budget = replace(budget, seconds=budget.seconds - (time.monotonic() - begin))
    return improve(blocks, greedy, budget, enough)


def pack_by_conflicts(blocks: Sequence[Block], conflicts: Conflicts) -> Found:
    """Of values with any relation: one that is that of their ranges takes the search above, since
    a sequence of steps is the order of one unit."""
    if conflicts == conflicts_of_lifetimes([block.lifetime for block in blocks]):
        return pack(blocks)
    return improve_order(blocks, conflicts, best_greedy(blocks, conflicts))
