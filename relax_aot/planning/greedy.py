# SPDX-License-Identifier: Apache-2.0
"""Packings by placing one block after another, each at the lowest free offset.

Several orders are tried. Every order of first fit that other planners use is among them (by
falling size; by start; by area; by length), so the best is never worse than theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.planning.conflicts import Conflicts
from relax_aot.planning.orientation import Block, Packing

Key = Callable[[Block], tuple[int, ...]]


def _length(block: Block) -> int:
    return block.lifetime.stop - block.lifetime.start


KEYS: tuple[Key, ...] = (
    lambda b: (-b.size, b.lifetime.start),
    lambda b: (b.lifetime.start, -b.size),
    lambda b: (-b.size * _length(b), b.lifetime.start),
    lambda b: (-_length(b), -b.size, b.lifetime.start),
)


def best_greedy(blocks: Sequence[Block], conflicts: Conflicts) -> Packing:
    """The lowest of the packings of all orders; ties keep the first. Deterministic."""
    best: Packing | None = None
    for key in KEYS:
        order = sorted(range(len(blocks)), key=lambda i: (key(blocks[i]), blocks[i].name))
        packing = first_fit(blocks, conflicts, order)
        if best is None or packing.height < best.height:
            best = packing
    assert best is not None
    return best


def first_fit(blocks: Sequence[Block], conflicts: Conflicts, order: Sequence[int]) -> Packing:
    """First fit: each block at the lowest offset without a conflict."""
    total = sum(block.size for block in blocks)
    number = np.int64 if total < 2**62 else np.object_
    # Of the placed blocks, by rising offset: offset, top, index.
    bottoms: NDArray[Any] = np.zeros(len(blocks), number)
    tops: NDArray[Any] = np.zeros(len(blocks), number)
    indices = np.zeros(len(blocks), np.int64)
    offsets = [0] * len(blocks)
    for count, i in enumerate(order):
        near = np.flatnonzero(conflicts.row(i)[indices[:count]])
        size = blocks[i].size
        offset = _lowest_gap(bottoms[near], tops[near], size)
        offsets[i] = offset
        at = int(np.searchsorted(bottoms[:count], offset, side="right"))
        for column, value in ((bottoms, offset), (tops, offset + size), (indices, i)):
            column[at + 1 : count + 1] = column[at:count]
            column[at] = value
    height = max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)
    return Packing({b.name: o for b, o in zip(blocks, offsets, strict=True)}, height)


def _lowest_gap(bottoms: NDArray[Any], tops: NDArray[Any], size: int) -> int:
    """Between blocks that are sorted by where they begin."""
    if bottoms.size == 0 or int(bottoms[0]) >= size:
        return 0
    filled = np.maximum.accumulate(tops)
    gaps = np.flatnonzero(bottoms[1:] - filled[:-1] >= size)
    return int(filled[gaps[0]] if gaps.size else filled[-1])
