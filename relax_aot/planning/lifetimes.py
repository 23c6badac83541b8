# SPDX-License-Identifier: Apache-2.0
"""Who is alive together with whom.

Positions number the nodes in the order of the text, so the two sides of a branch get
different positions; that is safe, and no value of one side is needed on the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.planning.steps import End, Program, Repeat, touched, walk_steps


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Half-open range of positions: written at `start`, last read at `stop - 1`."""

    start: int
    stop: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.start < other.stop and other.start < self.stop


def lifetimes(program: Program, kept: frozenset[str] = frozenset()) -> dict[str, Lifetime]:
    """For each root that the program writes: from its first write to its last use.

    Values in `kept` are used once more after the end (results that are staged).
    """
    used = touches(program, kept)
    return {name: Lifetime(min(used[name]), max(used[name]) + 1) for name in used}


def touches(program: Program, kept: frozenset[str] = frozenset()) -> dict[str, list[int]]:
    """For each root that the program writes, the positions of the steps that use it."""
    used: dict[str, list[int]] = {}
    loops: list[tuple[int, int]] = []
    open_loops: list[int] = []
    position = -1
    for position, node in enumerate(walk_steps(program.nodes)):
        if isinstance(node, Repeat):
            open_loops.append(position)
        elif isinstance(node, End):
            loops.append((open_loops.pop(), position))
        for name in touched(node):
            used.setdefault(name, []).append(position)
    # What a body reads is needed again in the next iteration.
    for start, stop in loops:
        for places in used.values():
            if min(places) <= start and any(start < place < stop for place in places):
                places.append(stop)
    for name in kept & used.keys():
        used[name].append(position + 1)
    return {name: used[name] for name in program.values if name in used}
