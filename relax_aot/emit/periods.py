# SPDX-License-Identifier: Apache-2.0
"""Runs of a sequence that repeat right behind each other, by comparing it with itself shifted.

A sequence has the period d from i to j if each of its items there equals the one d places later;
so the runs of a period are the runs of equal items of the sequence and its shift by d.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Run:
    """`length` items from `start` on have a period."""

    start: int
    period: int
    length: int

    @property
    def count(self) -> int:
        """Whole periods."""
        return self.length // self.period

    @property
    def stop(self) -> int:
        return self.start + self.length


def periodic_runs(items: Sequence[Hashable | None], least: int) -> list[Run]:
    """The maximal runs of at least `least` periods, those that cover most first, and of those that
    cover the same the shortest period. An item that is None equals nothing, also itself."""
    numbers: dict[Hashable, int] = {}
    ids = np.array(
        [-1 if item is None else numbers.setdefault(item, len(numbers)) for item in items],
        np.int64,
    )
    found: list[Run] = []
    for period in range(1, len(items) // least + 1):
        equal = (ids[:-period] == ids[period:]) & (ids[period:] >= 0)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            run = Run(start, period, stop - start + period)
            if run.count >= least:
                found.append(run)
    return sorted(found, key=lambda run: (-run.count * run.period, run.period, run.start))
