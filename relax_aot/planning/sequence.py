# SPDX-License-Identifier: Apache-2.0
"""The order of jobs that keeps the fewest bytes alive at a time.

A set of finished jobs fixes which values are alive, whatever the order in which they were done.
So of all orders that reach a set only the one with the lowest peak matters: the search walks
over such sets, one job longer at each level. Where it keeps every set, the order is the
best there is; where there are too many, it keeps the most promising ones (a beam). Two rules
keep the sets few: a set is dropped that cannot lead below the best order known, and a job
that is ready and costs nothing (the peak stays, no more bytes live after it) is done at once.

Work is counted, so the same jobs have the same order on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

NARROW, WIDEST = 8, 4_096
"""States per level: of the first search, whose order the second one has to beat."""
STEPS = 20_000
"""Jobs that one search may try; a state more per level is then given up. A third of a second."""
WHOLE = 250
"""Longer lists of jobs are improved in windows around the peak, not as a whole."""
WINDOWS = (12, 24, 48)
WINDOW_STEPS = 4_000
WINDOWS_TRIED = 60


@dataclass(frozen=True, slots=True)
class Job:
    """`after`, `reads` and `writes` are numbers of earlier jobs and of values."""

    after: frozenset[int]
    reads: frozenset[int]
    writes: frozenset[int]
    within: int = 0
    """Bytes that are alive only while it runs, in addition to its operands and results."""
    in_place: tuple[tuple[int, int], ...] = ()
    """A written value may take the memory of a read one that is of no use any more."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs in an order that is allowed. `kept` values live to the end."""

    jobs: tuple[Job, ...]
    sizes: tuple[int, ...]
    kept: frozenset[int]


@dataclass(frozen=True, slots=True)
class Ordered:
    order: tuple[int, ...]
    peak: int
    exact: bool
    """No order has a lower peak."""


def peak_of(jobs: Jobs, order: Sequence[int]) -> int:
    """The greatest number of bytes alive while any job runs."""
    facts = _Facts(jobs)
    live = peak = done = 0
    for job in order:
        during, live = facts.run(job, done, live)
        done |= 1 << job
        peak = max(peak, during)
    return peak


def lowest_order(jobs: Jobs) -> Ordered:
    """An order that is no worse than the given one, which is kept where it is as good."""
    facts = _Facts(jobs)
    given = tuple(range(len(jobs.jobs)))
    best = Ordered(given, peak_of(jobs, given), False)
    least = facts.least_peak()
    if best.peak > least and len(given) <= WHOLE:
        first = _beam(facts, best, NARROW, STEPS)
        best = first.ordered
        if not best.exact and best.peak > least:
            width = NARROW * STEPS // max(first.steps, 1)
            if width > NARROW:
                best = _beam(facts, best, min(width, WIDEST), STEPS).ordered
    if best.peak > least and not best.exact:
        best = _improved_in_windows(jobs, best, least)
    return Ordered(best.order, best.peak, best.exact or best.peak <= least)


def _improved_in_windows(jobs: Jobs, best: Ordered, least: int) -> Ordered:
    """Reorder a few jobs around the peak, as long as that lowers it."""
    order = list(best.order)
    for _ in range(WINDOWS_TRIED):
        moments = _moments(jobs, order)
        peak = max(moments)
        if peak <= least:
            break
        at = moments.index(peak)
        for length in WINDOWS:
            first = max(0, min(at - length // 2, len(order) - length))
            window = order[first : first + length]
            found = _window(jobs, order, first, len(window))
            if found != window:
                order[first : first + length] = found
                break
        else:
            break
    return Ordered(tuple(order), max(_moments(jobs, order)), False)


def _moments(jobs: Jobs, order: Sequence[int]) -> list[int]:
    facts = _Facts(jobs)
    moments, live, done = [], 0, 0
    for job in order:
        during, live = facts.run(job, done, live)
        done |= 1 << job
        moments.append(during)
    return moments


def _window(jobs: Jobs, order: Sequence[int], first: int, length: int) -> list[int]:
    """These jobs alone: what was made before is written by a job in front of them, and what is
    read after them is kept."""
    window = order[first : first + length]
    number = {job: i + 1 for i, job in enumerate(window)}
    inside = [jobs.jobs[job] for job in window]
    made = frozenset().union(*(job.writes for job in inside))
    read = frozenset().union(*(job.reads for job in inside))
    later = frozenset().union(*(jobs.jobs[job].reads for job in order[first + length :]))
    front = Job(frozenset(), frozenset(), read - made)
    local = Jobs(
        (
            front,
            *(
                replace(job, after=frozenset({0, *(number[a] for a in job.after if a in number)}))
                for job in inside
            ),
        ),
        jobs.sizes,
        jobs.kept | later,
    )
    given = tuple(range(len(local.jobs)))
    start = Ordered(given, peak_of(local, given), False)
    found = _beam(_Facts(local), start, WIDEST, WINDOW_STEPS).ordered
    return [window[i - 1] for i in found.order if i > 0]


class _Facts:
    """What the jobs mean for the bytes that are alive."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs.jobs
        self.sizes = jobs.sizes
        self.needs = [sum(1 << j for j in job.after) for job in jobs.jobs]
        self.users = [0] * len(jobs.sizes)
        self.followers: list[list[int]] = [[] for _ in jobs.jobs]
        for number, job in enumerate(jobs.jobs):
            for value in job.reads:
                self.users[value] |= 1 << number
            for earlier in job.after:
                self.followers[earlier].append(number)
        for value in jobs.kept:
            self.users[value] |= 1 << len(jobs.jobs)
        self.made = [sum(jobs.sizes[v] for v in job.writes) for job in jobs.jobs]

    def run(self, number: int, done: int, live: int) -> tuple[int, int]:
        """Bytes alive while the job runs, and after it."""
        job = self.jobs[number]
        done |= 1 << number
        after = during = live + self.made[number]
        for value in job.reads | job.writes:
            if not self.users[value] & ~done:
                after -= self.sizes[value]
        for written, read in job.in_place:
            if not self.users[read] & ~done:
                during -= self.sizes[written]
                break
        return during + job.within, after

    def least_peak(self) -> int:
        """What some job needs by itself."""
        peak = 0
        for job in self.jobs:
            alone = sum(self.sizes[v] for v in job.reads | job.writes) + job.within
            shared = max((self.sizes[written] for written, _ in job.in_place), default=0)
            peak = max(peak, alone - shared)
        return peak


_Path = tuple[int, "_Path"] | None


@dataclass(slots=True)
class _State:
    done: int
    ready: tuple[int, ...]
    live: int
    peak: int
    path: _Path


@dataclass(frozen=True, slots=True)
class _Tried:
    ordered: Ordered
    steps: int


def _beam(facts: _Facts, best: Ordered, width: int, limit: int) -> _Tried:
    count = len(facts.jobs)
    first = tuple(number for number, needs in enumerate(facts.needs) if not needs)
    levels: list[dict[int, _State]] = [{} for _ in range(count + 1)]
    levels[0][0] = _State(0, first, 0, 0, None)
    complete, steps = True, 0
    for level in range(count):
        states = sorted(levels[level].values(), key=lambda s: (s.peak, s.live, s.done))
        levels[level].clear()
        here = width if steps < limit else 1
        complete = complete and len(states) <= here
        for state in states[:here]:
            free = _free(facts, state)
            for number in state.ready if free is None else (free,):
                steps += 1
                after = _after(facts, state, number)
                if after.peak >= best.peak:
                    continue
                known = levels[level + 1].get(after.done)
                if known is None or after.peak < known.peak:
                    levels[level + 1][after.done] = after
    for state in levels[count].values():
        best = Ordered(_order(state.path), state.peak, complete)
    return _Tried(Ordered(best.order, best.peak, complete), steps)


def _free(facts: _Facts, state: _State) -> int | None:
    """A job that costs nothing now: doing it first is as good as any order."""
    for number in state.ready:
        during, live = facts.run(number, state.done, state.live)
        if during <= state.peak and live <= state.live:
            return number
    return None


def _after(facts: _Facts, state: _State, number: int) -> _State:
    during, live = facts.run(number, state.done, state.live)
    done = state.done | 1 << number
    opened = tuple(n for n in facts.followers[number] if not facts.needs[n] & ~done)
    ready = tuple(sorted((*(n for n in state.ready if n != number), *opened)))
    return _State(done, ready, live, max(state.peak, during), (number, state.path))


def _order(path: _Path) -> tuple[int, ...]:
    jobs: list[int] = []
    while path is not None:
        number, path = path
        jobs.append(number)
    return tuple(reversed(jobs))
