# SPDX-License-Identifier: Apache-2.0
"""Smaller tiles for the launches of a GPU for which registers do not suffice.

Schedules count registers before a compiler has seen the code. Where its machine code spills
nevertheless, and more registers for each thread do not help or halve the warps of a processor, the
kernel is scheduled again with the next smaller tiles, as long as any are left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from relax_aot.ir.loops import Kernel

Crowded = Mapping[tuple[str, int], tuple[int, bool]]
"""The launches of a GPU for which registers do not suffice, by the name of the kernel and the
number of the launch: the bytes of local memory of a thread, and whether less than a quarter of the
threads of a processor are resident, and fewer than usual."""
FREE = (0, False)
"""Of all other launches."""
MOST = 4
"""Times that tiles become smaller."""
Reduced = tuple[tuple[str, int], ...]
"""Launches, each as often as its tiles are smaller than usual (Target.reduced)."""


class HasCrowded(Protocol):
    """A project."""

    @property
    def crowded(self) -> Crowded: ...


Planned = TypeVar("Planned")
Project = TypeVar("Project", bound=HasCrowded)


def with_registers(
    planned: Callable[[Reduced], Planned],
    kernels: Callable[[Planned], Mapping[str, object]],
    assembled: Callable[[Planned], Project],
) -> Project:
    """The project with the tiles for which most launches have registers, the largest of them."""
    plan = planned(())
    made: dict[Reduced, Project] = {(): assembled(plan)}
    costs = dict(made[()].crowded)
    times, tried = dict.fromkeys(costs, 0), set(costs)
    for count in range(1, MOST + 1 if tried else 1):
        reduced = _reduced(times | dict.fromkeys(tried, count))
        before, plan = kernels(plan), planned(reduced)
        after = kernels(plan)
        changed = {one for one in tried if after[one[0]] != before[one[0]]}
        if not changed:
            continue
        made[reduced] = assembled(plan)
        for one in changed:
            cost = made[reduced].crowded.get(one, FREE)
            if cost < costs[one]:
                costs[one], times[one] = cost, count
        tried = {one for one in tried if costs[one] != FREE}
        if not tried:
            break
    best = _reduced(times)
    return made[best] if best in made else assembled(planned(best))


def together(tables: Sequence[Mapping[str, Kernel]]) -> dict[str, list[Kernel | None]]:
    """The kernels of each name."""
    names = {name for table in tables for name in table}
    return {name: [table.get(name) for table in tables] for name in names}


def _reduced(times: Mapping[tuple[str, int], int]) -> Reduced:
    return tuple(one for one, count in sorted(times.items()) for _ in range(count))
