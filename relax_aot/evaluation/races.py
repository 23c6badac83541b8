# SPDX-License-Identifier: Apache-2.0
"""Parallel loops of the interpreter: iterations in random order, and the races between them.

Iterations are generators that stop at barriers. Every access of memory that iterations share is
recorded with the path of loops, barriers passed and iterations that leads to it. Two accesses are
a race if one of them writes and the first difference of their paths is the iteration: no barrier
orders them. This is exact for the data of the run, whatever order the iterations have.

Source: series-parallel order of fork-join programs (Mellor-Crummey, On-the-fly detection of data
races for programs with nested fork-join parallelism, Supercomputing 1991).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, overload

import numpy as np

from relax_aot.evaluation.kernel_values import Memory


@dataclass(frozen=True, slots=True)
class _Level:
    """Of the path of an iteration, for each parallel loop from the outside."""

    between: int
    """A number of the outer levels, the run of the loop and how many barriers the iteration has
    passed. No barrier orders two iterations with the same number."""
    loop: int
    iteration: int
    both: tuple[int, int]


Path = tuple[_Level, ...]
Iterations = dict[int, tuple[int, int]]
"""Of the accesses of one kind, for each `between` two iterations, which are equal if there is one:
any iteration differs from one of two."""


class RaceError(AssertionError):
    """Two iterations of a parallel loop access one element, or do not meet at a barrier."""


@dataclass(slots=True)
class _Accesses:
    """Of one element, since `since`, which is `between` of the outermost loop."""

    since: int
    writes: Iterations = field(default_factory=dict)
    reads: Iterations = field(default_factory=dict)


@dataclass
class Races:
    """The parallel loops of one run of a kernel."""

    random: Random
    path: Path = ()
    loops: list[str] = field(default_factory=list)
    """The description of each run of a loop."""
    numbers: Iterator[int] = field(default_factory=count)
    shared: dict[int, Memory] = field(default_factory=dict)

    def tracked(self, name: str, memory: Memory) -> Memory:
        """The same memory, whose accesses are recorded."""
        if isinstance(memory.data, Tracked):
            return memory
        known = self.shared.get(id(memory))
        if known is None:
            data = Tracked(self, name, memory)
            known = self.shared[id(memory)] = Memory(data, memory.shape, memory.dtype)
        return known

    def run(
        self, title: str, axis: str, iterations: range, body: Callable[[int], Iterator[str]]
    ) -> Iterator[str]:
        """Run the iterations in random order; yields the axes of barriers of outer loops."""
        number, depth = len(self.loops), len(self.path)
        self.loops.append(title)
        running = {at: body(at) for at in iterations}
        while running:
            outer = self.path[:depth]
            between = next(self.numbers)
            arrived: dict[int, str] = {}
            for at in self.random.sample(list(running), len(running)):
                self.path = (*outer, _Level(between, number, at, (at, at)))
                axis_of_barrier = next(running[at], None)
                if axis_of_barrier is not None:
                    arrived[at] = axis_of_barrier
            self.path = outer
            if arrived and (len(arrived) < len(running) or len(set(arrived.values())) > 1):
                raise RaceError(f"only some iterations of {title} arrive at a barrier")
            running = {at: running[at] for at in arrived}
            yield from {*arrived.values()} - {axis}

    def record(self, memory: Tracked, at: int, *, writes: bool) -> None:
        since = self.path[0].between
        found = memory.accesses.get(at)
        if found is None or found.since != since:
            found = memory.accesses[at] = _Accesses(since)
        now = "written" if writes else "read"
        if found.writes:
            self._compare(memory, at, found.writes, "written", now)
        if writes and found.reads:
            self._compare(memory, at, found.reads, "read", now)
        known = found.writes if writes else found.reads
        for level in self.path:
            before = known.setdefault(level.between, level.both)
            if before is not level.both and before[0] == before[1] != level.iteration:
                known[level.between] = (before[0], level.iteration)

    def _compare(self, memory: Tracked, at: int, others: Iterations, before: str, now: str) -> None:
        for level in self.path:
            both = others.get(level.between)
            if both is None:
                return
            if level.both != both:
                index = [int(i) for i in np.unravel_index(at, memory.shape)] if memory.shape else []
                other = both[0] if both[0] != level.iteration else both[1]
                raise RaceError(
                    f"{memory.name}{index} is {before} by iteration {other} and {now} by iteration"
                    f" {level.iteration} of {self.loops[level.loop]}, without a barrier between"
                )


class Tracked(MutableSequence[Any]):
    """The elements of a memory that parallel iterations share."""

    def __init__(self, races: Races, name: str, memory: Memory) -> None:
        self.races, self.name, self.shape = races, name, memory.shape
        self.values = memory.data
        self.accesses: dict[int, _Accesses] = {}
        self.kept = memory  # while it exists, no other has its identity

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> MutableSequence[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        assert isinstance(at, int), "elements are read one by one"
        self.races.record(self, at, writes=False)
        return self.values[at]

    @overload
    def __setitem__(self, at: int, value: Any) -> None: ...
    @overload
    def __setitem__(self, at: slice, value: Iterable[Any]) -> None: ...
    def __setitem__(self, at: int | slice, value: Any) -> None:
        assert isinstance(at, int), "elements are written one by one"
        self.races.record(self, at, writes=True)
        self.values[at] = value

    def __len__(self) -> int:
        return len(self.values)

    def __delitem__(self, at: int | slice) -> None:
        raise NotImplementedError("memory keeps its size")

    def insert(self, index: int, value: Any) -> None:
        raise NotImplementedError("memory keeps its size")


class Recorded(list[Any]):
    """A copy of some elements that remembers which of them were accessed."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.read: set[int] = set()
        self.written: set[int] = set()

    def __getitem__(self, at: Any) -> Any:
        self.read.add(at)
        return super().__getitem__(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        self.written.add(at)
        super().__setitem__(at, value)


def finished(loop: Iterator[str]) -> None:
    """Run a loop that no parallel loop is around."""
    for axis in loop:
        raise RaceError(f"a barrier of the axis {axis} is in no parallel loop on it")
