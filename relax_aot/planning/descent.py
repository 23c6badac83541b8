# SPDX-License-Identifier: Apache-2.0
"""The inner search of the memory planner: one depth-first descent within a capacity.

Time is cut into sections, so that two blocks meet exactly where they share one. Blocks are
stacked from the bottom: `floor` is how high each section is filled, `low` the lowest place
that is left for each block. A node takes a section in a valley of the floor and branches on
what stands there: each block that lies in the valley and fits on its floor, or nothing, in
which case each of those blocks lies on another one that is still to place. That covers every
packing that cannot be pushed further down, so a search that ends without one is a proof
that none exists.

Before branching, floors and lowest places are raised until they agree, and each section is
bounded by stacking its blocks in order of lowest place (the one-machine bound of scheduling).
What is left may fall into parts that share no section: each is solved by itself. A section
where branches fail gains weight, and heavy sections are branched on first (the dom/wdeg rule
of constraint programming). Valleys, valid bounds and decomposition are in the spirit of
MiniMalloc (Moffitt, ASPLOS 2023) and of skyline search for strip packing.

descent.c is the same search, move for move, and about a hundred times as fast. Both count
their work, not time, so that a result does not depend on which of them ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

WEIGHT_BASE = 100


class Verdict(Enum):
    EXHAUSTED = 0
    """No packing fits the capacity."""
    FOUND = 1
    STOPPED = 2
    """The budget was spent."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Blocks by number: first section, one past the last, and size (positive)."""

    sections: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Descent:
    verdict: Verdict
    offsets: tuple[int, ...]
    """Where found."""
    nodes: int
    work: int
    """What was used."""


def descend(
    problem: Problem,
    ranks: Sequence[int],
    weights: list[int],
    capacity: int,
    nodes: int,
    work: int,
) -> Descent:
    """Search once. Of several options the smallest rank is tried first; `weights` (one per
    section) are added to, so that the next descent starts where this one had trouble."""
    search = _Search(problem, ranks, weights, capacity, nodes, work)
    verdict = search.run()
    return Descent(verdict, tuple(search.offsets), nodes - search.nodes, work - search.work)


@dataclass(slots=True)
class _Node:
    """Blocks that share sections with each other, and what to try next."""

    ids: list[int]
    left: int
    right: int
    dirty_left: int
    dirty_right: int
    level: int = 0
    mark: int = 0
    options: tuple[int, ...] = ()
    next: int = 0


@dataclass(slots=True)
class _Parts:
    """Nodes that are to be solved one after the other."""

    nodes: list[_Node]
    next: int = 0


class _Floors:
    """Floors and lowest places, as far as the descent has come."""

    def __init__(
        self,
        problem: Problem,
        ranks: Sequence[int],
        weights: list[int],
        capacity: int,
        nodes: int,
        work: int,
    ) -> None:
        self.starts, self.stops, self.sizes = problem.starts, problem.stops, problem.sizes
        self.sections = problem.sections
        self.ranks = ranks
        self.weights = weights
        self.capacity = capacity
        self.nodes = nodes
        self.work = work
        self.offsets = [0] * len(self.sizes)
        self.floor = [0] * self.sections
        self.low = [0] * len(self.sizes)
        self.top = [0] * self.sections
        self.trail: list[tuple[list[int], int, int]] = []

    def set(self, values: list[int], place: int, value: int) -> None:
        self.trail.append((values, place, values[place]))
        values[place] = value

    def undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            values, place, old = self.trail.pop()
            values[place] = old

    def raise_floors(self, node: _Node) -> bool:
        """Raise lowest places and floors until they agree, then bound what changed."""
        starts, stops, floor, low = self.starts, self.stops, self.floor, self.low
        left, right = all_left, all_right = node.dirty_left, node.dirty_right
        while left < right:
            wide_left, wide_right = left, right
            self.work -= len(node.ids)
            for b in node.ids:
                if starts[b] >= right or stops[b] <= left:
                    continue
                lowest = max(floor[max(starts[b], left) : min(stops[b], right)])
                self.work -= stops[b] - starts[b]
                if lowest > low[b]:
                    self.set(low, b, lowest)
                    wide_left = min(wide_left, starts[b])
                    wide_right = max(wide_right, stops[b])
            all_left, all_right = min(all_left, wide_left), max(all_right, wide_right)
            least: list[int | None] = [None] * (wide_right - wide_left)
            for b in sorted(node.ids, key=lambda b: -low[b]):
                first, end = max(starts[b], wide_left), min(stops[b], wide_right)
                if first < end:
                    least[first - wide_left : end - wide_left] = [low[b]] * (end - first)
            left, right = wide_right, wide_left
            for x, lowest_here in enumerate(least, wide_left):
                if lowest_here is not None and lowest_here > floor[x]:
                    self.set(floor, x, lowest_here)
                    left, right = min(left, x), max(right, x + 1)
        node.ids.sort(key=lambda b: (low[b], b))
        return self.bound(node, all_left, all_right)

    def bound(self, node: _Node, left: int, right: int) -> bool:
        tops = [0] * max(right - left, 0)
        for b in node.ids:
            lowest, size = self.low[b], self.sizes[b]
            for x in range(max(self.starts[b], left), min(self.stops[b], right)):
                top = max(tops[x - left], lowest) + size
                if top > self.capacity:
                    self.weights[x] += 1
                    return False
                tops[x - left] = top
        for x, top in enumerate(tops, left):
            if top != self.top[x]:
                self.set(self.top, x, top)
        return True


class _Search(_Floors):
    def run(self) -> Verdict:
        """An explicit stack: a descent is as deep as there are blocks."""
        everything = list(range(len(self.sizes)))
        frames: list[_Node | _Parts] = [
            self.parts(_Node(everything, 0, self.sections, 0, self.sections))
        ]
        returned: Verdict | None = None
        while frames:
            frame = frames[-1]
            if isinstance(frame, _Parts):
                if returned is Verdict.EXHAUSTED or frame.next == len(frame.nodes):
                    returned = returned or Verdict.FOUND
                    frames.pop()
                    continue
                node = frame.nodes[frame.next]
                frame.next += 1
                opened = self.open(node)
                if opened is Verdict.FOUND:
                    frames.append(node)
                    returned = None
                else:
                    returned = opened
            elif returned is Verdict.FOUND:
                frames.pop()
                continue
            else:
                if returned is Verdict.EXHAUSTED:
                    self.undo(frame.mark)
                returned = None
                if frame.next < len(frame.options):
                    block = frame.options[frame.next]
                    frame.next += 1
                    if not self.is_repeated(frame, block):
                        frames.append(self.parts(self.place(frame, block)))
                    continue
                returned = self.leave_empty(frame)
                if returned is Verdict.FOUND:
                    returned = self.open(frame)
                    if returned is Verdict.FOUND:
                        returned = None
                if returned is Verdict.EXHAUSTED:
                    frames.pop()
            if returned is Verdict.STOPPED:
                return Verdict.STOPPED
        assert returned is not None
        return returned

    def open(self, node: _Node) -> Verdict:
        if self.nodes <= 0 or self.work <= 0:
            return Verdict.STOPPED
        self.nodes -= 1
        if not self.raise_floors(node):
            return Verdict.EXHAUSTED
        self.branch(node)
        return Verdict.FOUND

    def branch(self, node: _Node) -> None:
        """Choose the section to branch on, and list what may stand there."""
        starts, stops, floor, low = self.starts, self.stops, self.floor, self.low
        valley_end = [0] * (node.right - node.left)
        x = node.left
        while x < node.right:
            end = x
            while end < node.right and floor[end] == floor[x]:
                end += 1
            walled = x == node.left or floor[x - 1] > floor[x]
            if walled and (end == node.right or floor[end] > floor[x]):
                valley_end[x - node.left : end - node.left] = [end] * (end - x)
            x = end
        self.work -= node.right - node.left + len(node.ids)
        options = []
        counts = [0] * (node.right - node.left)
        for b in node.ids:
            x = starts[b]
            if stops[b] <= valley_end[x - node.left] and low[b] == floor[x]:
                options.append(b)
                self.work -= stops[b] - x
                for y in range(x, stops[b]):
                    counts[y - node.left] += 1
        best, cost, share = -1, 0, 1
        for x, count in enumerate(counts, node.left):
            if count:
                new_cost = 2 * count + (self.top[x] < self.capacity)
                new_share = WEIGHT_BASE + self.weights[x]
                if best < 0 or new_cost * share < cost * new_share:
                    best, cost, share = x, new_cost, new_share
        assert best >= 0, "the lowest block of a node lies on its floor"
        there = [b for b in options if starts[b] <= best < stops[b]]
        node.level = floor[best]
        node.mark = len(self.trail)
        node.options = tuple(sorted(there, key=lambda b: self.ranks[b]))
        node.next = 0

    def is_repeated(self, node: _Node, block: int) -> bool:
        """An equal block has been tried: this one would fail in the same way."""
        return any(
            self.starts[b] == self.starts[block]
            and self.stops[b] == self.stops[block]
            and self.sizes[b] == self.sizes[block]
            for b in node.options[: node.next - 1]
        )

    def place(self, node: _Node, block: int) -> _Node:
        """Put the block at the node's level; what is left."""
        start, stop = self.starts[block], self.stops[block]
        self.offsets[block] = node.level
        for x in range(start, stop):
            self.set(self.floor, x, node.level + self.sizes[block])
        ids = [b for b in node.ids if b != block]
        return _Node(ids, node.left, node.right, start, stop)

    def parts(self, node: _Node) -> _Parts:
        """Blocks that are connected by shared sections, the smallest group first."""
        groups: list[_Node] = []
        for b in sorted(node.ids, key=lambda b: self.starts[b]):
            if groups and self.starts[b] < groups[-1].right:
                groups[-1].ids.append(b)
                groups[-1].right = max(groups[-1].right, self.stops[b])
            else:
                groups.append(_Node([b], self.starts[b], self.stops[b], 0, 0))
        for group in groups:
            group.dirty_left = max(node.dirty_left, group.left)
            group.dirty_right = min(node.dirty_right, group.right)
        groups.sort(key=lambda group: len(group.ids))
        return _Parts(groups)

    def leave_empty(self, node: _Node) -> Verdict:
        """Nothing stands at this level of the section: each option lies on another block."""
        starts, stops, low, sizes = self.starts, self.stops, self.low, self.sizes
        node.dirty_left, node.dirty_right = node.right, node.left
        for b in node.options:
            supports = [
                low[c] + sizes[c]
                for c in node.ids
                if c != b and starts[c] < stops[b] and starts[b] < stops[c]
            ]
            if not supports:
                return Verdict.EXHAUSTED
            if min(supports) > low[b]:
                self.set(low, b, min(supports))
            node.dirty_left = min(node.dirty_left, starts[b])
            node.dirty_right = max(node.dirty_right, stops[b])
        self.work -= len(node.options) * len(node.ids)
        return Verdict.FOUND
