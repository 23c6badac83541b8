# SPDX-License-Identifier: Apache-2.0
"""Runs that repeat, against a search that tries every start, period and length."""

from __future__ import annotations

import random

from relax_aot.emit.periods import Run, periodic_runs


def every_run(items: list[int | None], least: int) -> set[Run]:
    def equal(at: int, period: int) -> bool:
        inside = 0 <= at < len(items) - period
        return inside and items[at] is not None and items[at] == items[at + period]

    found = set()
    for period in range(1, len(items)):
        for start in range(len(items)):
            stop = start
            while equal(stop, period):
                stop += 1
            whole = (stop - start + period) // period
            if stop > start and not equal(start - 1, period) and whole >= least:
                found.add(Run(start, period, stop - start + period))
    return found


def test_all_maximal_runs_are_found() -> None:
    for seed in range(400):
        source = random.Random(seed)
        choice = [*range(source.randint(1, 3)), None][: source.randint(1, 4)]
        part = source.choices(choice, k=source.randint(1, 5))
        items = [*source.choices(choice, k=3), *part * source.randint(1, 5)]
        items += source.choices(choice, k=source.randint(0, 4))
        least = source.randint(2, 4)
        assert set(periodic_runs(items, least)) == every_run(items, least), (items, least)


def test_what_covers_most_comes_first() -> None:
    first, *_ = periodic_runs([0, 1, 1, 1, 2, 3, 2, 3, 2, 3, 2], 3)
    assert first == Run(4, 2, 7)
    assert (first.count, first.stop) == (3, 11)
    assert [run.period for run in periodic_runs([5] * 7, 3)] == [1, 2]
    assert periodic_runs([], 3) == periodic_runs([None] * 9, 3) == []
