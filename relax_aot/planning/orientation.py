# SPDX-License-Identifier: Apache-2.0
"""Offsets as an acyclic orientation of the conflict graph.

Two values that are alive together must not overlap: one lies above the other. A plan
says, for each such pair, which; then

    offset(v) = max over u below v of offset(u) + size(u)

is right for every size of the values. A packing at the greatest sizes gives the
orientation: whoever ends below the start of the other is below it. Pairs that follow
from others are left out, so the expressions stay short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relax_aot.planning.conflicts import Conflicts
from relax_aot.planning.lifetimes import Lifetime


@dataclass(frozen=True, slots=True)
class Block:
    """A value to place. `size` is its greatest size in bytes, rounded up to alignment."""

    name: str
    lifetime: Lifetime
    size: int


@dataclass(frozen=True, slots=True)
class Packing:
    """Offsets at the greatest sizes."""

    offsets: Mapping[str, int]
    height: int


def lower_bound(blocks: Sequence[Block]) -> int:
    """The greatest sum of sizes alive at one time: no packing is lower."""
    events: dict[int, int] = {}
    for block in blocks:
        events[block.lifetime.start] = events.get(block.lifetime.start, 0) + block.size
        events[block.lifetime.stop] = events.get(block.lifetime.stop, 0) - block.size
    live = peak = 0
    for position in sorted(events):
        live += events[position]
        peak = max(peak, live)
    return peak


def orient(
    blocks: Sequence[Block], packing: Packing, conflicts: Conflicts
) -> dict[str, tuple[str, ...]]:
    """For each value, those directly below it; values in an order of rising offset."""
    offsets = packing.offsets
    order = sorted(
        range(len(blocks)),
        key=lambda i: (offsets[blocks[i].name], blocks[i].lifetime.start, blocks[i].name),
    )
    below: dict[str, tuple[str, ...]] = {}
    met = conflicts.reordered(order)
    under: list[int] = []
    for position, i in enumerate(order):
        candidates = met[position] & ((1 << position) - 1)
        direct: list[str] = []
        covered = 0
        while candidates:
            highest = candidates.bit_length() - 1
            direct.append(blocks[order[highest]].name)
            covered |= under[highest] | (1 << highest)
            candidates &= ~covered
        below[blocks[i].name] = tuple(reversed(direct))
        under.append(covered)
    return below


def offsets_at(below: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> dict[str, int]:
    """The offsets of an orientation for given sizes. `below` lists values bottom-up."""
    offsets: dict[str, int] = {}
    for name, supports in below.items():
        offsets[name] = max((offsets[u] + sizes[u] for u in supports), default=0)
    return offsets
