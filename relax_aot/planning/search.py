# SPDX-License-Identifier: Apache-2.0
"""The search for a lower packing: many descents from different orders, at falling heights.

A descent (descent.py) answers for one capacity: a packing, a proof that none exists, or the
budget ended. The search starts at the lower bound; where that cannot be reached soon it aims
half-way between the lower bound and the best packing, and each packing that is found moves
the aim down. Every descent of a round tries the blocks in another order: by area, length or
size, later with chance mixed in (a seeded one), with budgets that grow by Luby's series.

The same input and the same budget give the same packing on every machine, unless the
budget is time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd

from relax_aot.planning.descent import Descent, Problem, Verdict
from relax_aot.planning.engine import Engine, best_engine
from relax_aot.planning.orientation import Block, Packing, lower_bound
from relax_aot.progress import finished, step

NODES_PER_DESCENT = 500
NODES_PER_BLOCK = 1.25
"""At the least: placing each block takes one node."""
UNLIMITED = 2**62
FIRST_WORK = 500_000
"""Of the first descent where time counts: it shows how fast this machine is. Its order is
tried again with more."""
DESCENTS_PER_AIM = 30
"""After so many descents that were stopped, the aim is raised."""
SPREAD = 0.15
"""How far chance moves a block in the order, as a fraction of its key."""


@dataclass(frozen=True, slots=True)
class Budget:
    """When the search ends. `work` counts the moves of the descents."""

    work: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    packing: Packing
    lower_bound: int
    """No packing is lower: the greatest sum alive at one time, or what the search ruled out."""

    @property
    def proved(self) -> bool:
        return self.packing.height <= self.lower_bound


def improve(
    blocks: Sequence[Block],
    start: Packing,
    budget: Budget,
    enough: int = 0,
    engine: Engine | None = None,
) -> Found:
    """A packing that is no higher than `start`. Ends at a proof, at a height of at most
    `enough` or a proof that none exists, or with the budget."""
    solid = [block for block in blocks if block.size > 0]
    least = lower_bound(solid)
    best = start
    if best.height <= max(least, enough) or 0 < enough < least:
        return Found(best, least)
    problem = problem_of(solid)
    grain = gcd(*problem.sizes)
    descents = _Descents(problem, budget, engine or best_engine())
    aim = least
    while best.height > max(least, enough) and not 0 < enough < least:
        highest = best.height - grain
        aim = min(max(aim, enough // grain * grain), highest)
        step(f"planning: height {best.height}, at least {least}, trying {aim}", *descents.spent())
        result = descents.at(aim, DESCENTS_PER_AIM)
        if result is None:
            break
        if result.verdict is Verdict.FOUND:
            best = _packing(blocks, solid, result)
            aim = least + (best.height - least) // (2 * grain) * grain
        elif result.verdict is Verdict.EXHAUSTED:
            least = aim + grain
            aim = least
        else:
            aim += max((highest - aim) // (2 * grain) * grain, grain)
    finished()
    return Found(best, least)


def problem_of(blocks: Sequence[Block]) -> Problem:
    """Time as sections: a new one begins where a block starts after another has stopped."""
    events = sorted(
        [(b.lifetime.start, True, i) for i, b in enumerate(blocks)]
        + [(b.lifetime.stop, False, i) for i, b in enumerate(blocks)]
    )
    starts, stops = [0] * len(blocks), [0] * len(blocks)
    section, stopped = 0, False
    for _, is_start, i in events:
        if is_start:
            section += stopped
            stopped = False
            starts[i] = section
        else:
            stopped = True
            stops[i] = section + 1
    return Problem(section + 1, tuple(starts), tuple(stops), tuple(b.size for b in blocks))


class _Descents:
    """Draws one descent after another until the budget is spent."""

    def __init__(self, problem: Problem, budget: Budget, engine: Engine) -> None:
        self.problem = problem
        self.engine = engine
        self.weights = [0] * problem.sections
        self.work = budget.work
        self.begin = time.monotonic()
        self.seconds = budget.seconds
        self.done = 0
        self.ranks: Iterator[list[int]] = _orders(problem)
        self.nodes = max(NODES_PER_DESCENT, int(NODES_PER_BLOCK * len(problem.sizes)))
        self.lengths = _luby()

    def at(self, capacity: int, number: int) -> Descent | None:
        """The last of `number` descents, or the first with an answer; None: budget spent."""
        result = None
        for _ in range(number):
            length = next(self.lengths)
            work = self.work_left()
            if work <= 0:
                return None
            ranks = next(self.ranks)
            if work == FIRST_WORK:
                self.ranks = chain([ranks], self.ranks)
            result = self.engine(
                self.problem, ranks, self.weights, capacity,
                self.nodes * length, work,
            )  # fmt: skip
            self.done += result.work
            if result.verdict is not Verdict.STOPPED:
                return result
        return result

    def spent(self) -> tuple[int, int] | tuple[()]:
        """How much of the budget, where that is known."""
        if self.seconds is not None:
            return int(100 * (time.monotonic() - self.begin) / max(self.seconds, 1e-9)), 100
        return () if self.work is None else (100 * self.done // max(self.work, 1), 100)

    def work_left(self) -> int:
        """Seconds become work at the speed so far."""
        left = UNLIMITED if self.work is None else self.work - self.done
        if self.seconds is None:
            return left
        spent = time.monotonic() - self.begin
        if spent >= self.seconds:
            return 0
        if self.done == 0:
            return min(left, FIRST_WORK)
        by_time = int(self.done / max(spent, 1e-6) * (self.seconds - spent)) + 1
        return min(left, by_time)


def _orders(problem: Problem) -> Iterator[list[int]]:
    lengths = [b - a for a, b in zip(problem.starts, problem.stops, strict=True)]
    sizes = problem.sizes
    keys: tuple[Callable[[int], float], ...] = (
        lambda i: float(sizes[i] * lengths[i]),
        lambda i: lengths[i] + sizes[i] / (max(sizes) + 1),
        lambda i: float(sizes[i]),
        lambda i: sizes[i] / max(sizes) / 1000 - lengths[i],
    )
    source = random.Random(0)
    first = True
    while True:
        for key in keys:
            values = [key(i) for i in range(len(sizes))]
            if not first:
                values = [v * (1 + SPREAD * (2 * source.random() - 1)) for v in values]
            order = sorted(range(len(sizes)), key=lambda i: (-values[i], i))
            ranks = [0] * len(order)
            for rank, i in enumerate(order):
                ranks[i] = rank
            yield ranks
        first = False


def _luby() -> Iterator[int]:
    """1 1 2 1 1 2 4 ...: within a constant of the best restarts, whatever that is."""
    u, v = 1, 1
    while True:
        yield v
        u, v = (u + 1, 1) if u & -u == v else (u, 2 * v)


def _packing(blocks: Sequence[Block], solid: Sequence[Block], result: Descent) -> Packing:
    offsets = {block.name: 0 for block in blocks}
    offsets |= {b.name: o for b, o in zip(solid, result.offsets, strict=True)}
    return Packing(offsets, max(offsets[b.name] + b.size for b in solid))
