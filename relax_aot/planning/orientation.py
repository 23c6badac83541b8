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


def pack(blocks: Sequence[Block]) -> Packing:
    """The best of several greedy orders; ties keep the first. Deterministic."""
    orders = [
        sorted(blocks, key=lambda b: (-b.size, b.lifetime.start, b.name)),
        sorted(blocks, key=lambda b: (b.lifetime.start, -b.size, b.name)),
        sorted(blocks, key=lambda b: (-b.size * _length(b), b.lifetime.start, b.name)),
        sorted(blocks, key=lambda b: (-_length(b), -b.size, b.lifetime.start, b.name)),
    ]
    return min((_place(order) for order in orders), key=lambda packing: packing.height)


def _length(block: Block) -> int:
    return block.lifetime.stop - block.lifetime.start


def _place(order: Sequence[Block]) -> Packing:
    """Each block in turn at the lowest offset that is free during its whole life."""
    placed: list[tuple[int, Block]] = []
    offsets: dict[str, int] = {}
    for block in order:
        offset = 0
        for start, other in placed:
            if not block.lifetime.overlaps(other.lifetime):
                continue
            if offset + block.size <= start:
                break
            offset = max(offset, start + other.size)
        offsets[block.name] = offset
        placed.append((offset, block))
        placed.sort(key=lambda pair: (pair[0], pair[1].name))
    height = max((start + block.size for start, block in placed), default=0)
    return Packing(offsets, height)


def orient(blocks: Sequence[Block], packing: Packing) -> dict[str, tuple[str, ...]]:
    """For each value, those directly below it; values in an order of rising offset."""
    offsets = packing.offsets
    order = sorted(blocks, key=lambda b: (offsets[b.name], b.lifetime.start, b.name))
    below: dict[str, tuple[str, ...]] = {}
    under: dict[str, set[str]] = {}
    for position, block in enumerate(order):
        candidates = [
            other for other in order[:position] if other.lifetime.overlaps(block.lifetime)
        ]
        direct: list[str] = []
        covered: set[str] = set()
        for other in reversed(candidates):
            if other.name not in covered:
                direct.append(other.name)
                covered |= under[other.name]
                covered.add(other.name)
        below[block.name] = tuple(reversed(direct))
        under[block.name] = covered
    return below


def offsets_at(below: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> dict[str, int]:
    """The offsets of an orientation for given sizes. `below` lists values bottom-up."""
    offsets: dict[str, int] = {}
    for name, supports in below.items():
        offsets[name] = max((offsets[u] + sizes[u] for u in supports), default=0)
    return offsets
