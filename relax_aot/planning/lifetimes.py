"""Who is alive together with whom.

Positions number the nodes in the order of the text, so the two sides of a branch get
different positions; that is safe, and no value of one side is needed on the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.planning.steps import Branch, Program, walk_steps


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
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    position = -1
    for position, node in enumerate(walk_steps(program.nodes)):
        if isinstance(node, Branch):
            touched: tuple[str, ...] = (node.condition,)
        else:
            touched = node.args + node.outs
        for name in touched:
            first.setdefault(name, position)
            last[name] = position
    end = position + 1
    return {
        name: Lifetime(first[name], (end if name in kept else last[name]) + 1)
        for name in program.values
        if name in first
    }
