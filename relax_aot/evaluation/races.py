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
from random import Random
from typing import Any, overload

import numpy as np

from relax_aot.evaluation.kernel_values import Memory

Path = tuple[tuple[int, int, int], ...]
"""For each parallel loop around an access, from the outside: the run of the loop, how many
barriers the iteration has passed, and the iteration."""


class RaceError(AssertionError):
    """Two iterations of a parallel loop access one element, or do not meet at a barrier."""


@dataclass(slots=True)
class _Accesses:
    """Of one element, since `since`: a run of the outermost loop, and the barriers passed."""

    since: tuple[int, int]
    writes: dict[Path, None] = field(default_factory=dict)
    reads: dict[Path, None] = field(default_factory=dict)


@dataclass
class Races:
    """The parallel loops of one run of a kernel."""

    random: Random
    path: Path = ()
    loops: list[str] = field(default_factory=list)
    """The description of each run of a loop."""
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
        number, depth, phase = len(self.loops), len(self.path), 0
        self.loops.append(title)
        running = {at: body(at) for at in iterations}
        while running:
            outer = self.path[:depth]
            arrived: dict[int, str] = {}
            for at in self.random.sample(list(running), len(running)):
                self.path = (*outer, (number, phase, at))
                axis_of_barrier = next(running[at], None)
                if axis_of_barrier is not None:
                    arrived[at] = axis_of_barrier
            self.path = outer
            if arrived and (len(arrived) < len(running) or len(set(arrived.values())) > 1):
                raise RaceError(f"only some iterations of {title} arrive at a barrier")
            running = {at: running[at] for at in arrived}
            phase += 1
            for other in {*arrived.values()} - {axis}:
                yield other
                phase -= 1

    def record(self, memory: Tracked, at: int, *, writes: bool) -> None:
        since = self.path[0][:2]
        found = memory.accesses.get(at)
        if found is None or found.since != since:
            found = memory.accesses[at] = _Accesses(since)
        for verb, others in (("written", found.writes), ("read", found.reads)):
            if verb == "written" or writes:
                for other in others:
                    self._compare(memory, at, other, verb, "written" if writes else "read")
        (found.writes if writes else found.reads)[self.path] = None

    def _compare(self, memory: Tracked, at: int, other: Path, before: str, now: str) -> None:
        for (loop, phase, one), (loop_now, phase_now, two) in zip(other, self.path, strict=False):
            if (loop, phase, one) == (loop_now, phase_now, two):
                continue
            if (loop, phase) == (loop_now, phase_now):
                index = [int(i) for i in np.unravel_index(at, memory.shape)] if memory.shape else []
                raise RaceError(
                    f"{memory.name}{index} is {before} by iteration {one} and {now} by iteration"
                    f" {two} of {self.loops[loop]}, without a barrier between"
                )
            return


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
