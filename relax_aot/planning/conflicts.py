# SPDX-License-Identifier: Apache-2.0
"""Which values must not share memory.

Two values may share bytes only if every use of one *happens before* the first write of the
other. What happens before what is an input: a sequential program is a chain, in which each
step ends before the next begins; an executor with several units, which run at the same time,
passes the weaker order that it keeps: that of each unit, and what waits for other units. Where
one step neither happens before the other nor after it, the two may run at once, and what they
touch is kept apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

import numpy as np
from numpy.typing import NDArray

from relax_aot.planning.lifetimes import Lifetime

Touches = Sequence[int]
"""The steps that write or read a value."""

Row = NDArray[np.bool_]


@dataclass(frozen=True)
class HappensBefore:
    """A partial order of steps `0 .. count`, from edges (earlier, later).

    Edges go from a smaller number to a greater one: the numbers are one of the sequential
    orders that are allowed.
    """

    count: int
    edges: tuple[tuple[int, int], ...]
    before: tuple[int, ...] = field(init=False)
    """For each step, the set (as bits) of the steps that end before it begins."""

    def __post_init__(self) -> None:
        before = [0] * self.count
        for earlier, later in sorted(self.edges, key=lambda edge: edge[1]):
            assert 0 <= earlier < later < self.count, (earlier, later)
            before[later] |= before[earlier] | (1 << earlier)
        object.__setattr__(self, "before", tuple(before))

    def precedes(self, earlier: int, later: int) -> bool:
        """The one ends before the other begins."""
        return bool(self.before[later] >> earlier & 1)

    def without(self, steps: Collection[int]) -> HappensBefore:
        """The order of the other steps, which get the numbers that follow each other."""
        kept = [step for step in range(self.count) if step not in steps]
        pairs = combinations(enumerate(kept), 2)
        edges = ((i, j) for (i, one), (j, other) in pairs if self.precedes(one, other))
        return HappensBefore(len(kept), tuple(edges)) if steps else self


def sequential(count: int) -> HappensBefore:
    return HappensBefore(count, tuple((i, i + 1) for i in range(count - 1)))


@dataclass(frozen=True)
class Conflicts:
    """A symmetric relation over values by number, as sets of bits."""

    masks: tuple[int, ...]

    def row(self, value: int) -> Row:
        size = len(self.masks)
        data = self.masks[value].to_bytes((size + 7) // 8, "little")
        return np.unpackbits(np.frombuffer(data, np.uint8), count=size, bitorder="little") > 0

    def reordered(self, order: Sequence[int]) -> list[int]:
        """The same relation where value number `order[k]` is called k."""
        columns = np.asarray(order, np.int64)
        packed = (np.packbits(self.row(i)[columns], bitorder="little") for i in order)
        return [int.from_bytes(row.tobytes(), "little") for row in packed]

    def pairs(self) -> Iterator[tuple[int, int]]:
        for one, mask in enumerate(self.masks):
            rest = mask >> (one + 1)
            while rest:
                lowest = rest & -rest
                yield one, one + lowest.bit_length()
                rest ^= lowest


def conflicts_of_lifetimes(lifetimes: Sequence[Lifetime]) -> Conflicts:
    """Of values that live in ranges of one sequence of steps."""
    begun = _prefixes((life.start, i) for i, life in enumerate(lifetimes))
    ended = _prefixes((life.stop, i) for i, life in enumerate(lifetimes))
    masks = []
    for i, life in enumerate(lifetimes):
        masks.append(begun(life.stop - 1) & ~ended(life.start) & ~(1 << i))
    return Conflicts(tuple(masks))


def conflicts_of_touches(touches: Sequence[Touches], order: HappensBefore) -> Conflicts:
    """Of values that are written and read by the steps of a partial order."""
    used = [sum(1 << step for step in set(steps)) for steps in touches]
    gone = []
    for steps in touches:
        earlier = -1
        for step in steps:
            earlier &= order.before[step]
        gone.append(earlier)
    masks = [0] * len(touches)
    for i in range(len(touches)):
        for j in range(i):
            if used[i] & ~gone[j] and used[j] & ~gone[i]:
                masks[i] |= 1 << j
                masks[j] |= 1 << i
    return Conflicts(tuple(masks))


def _prefixes(events: Iterable[tuple[int, int]]) -> Callable[[int], int]:
    """A function from a time to the set of values whose event is not later."""
    times: list[float] = [-inf]
    masks, mask = [0], 0
    for time, value in sorted(events):
        mask |= 1 << value
        if times[-1] == time:
            masks[-1] = mask
        else:
            times.append(time)
            masks.append(mask)
    return lambda time: masks[bisect_right(times, time) - 1]
