# SPDX-License-Identifier: Apache-2.0
"""Sizes of the blocks of an attention by matrix units, by the registers that a thread needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relax_aot.ir.axes import LANES
from relax_aot.ir.loops import Expr, Select, parts
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.attention_bits import opened
from relax_aot.scheduling.devices.attention_scores import Score
from relax_aot.scheduling.devices.attention_seen import Seen, seen_of
from relax_aot.scheduling.devices.operands import Product
from relax_aot.scheduling.devices.units import ROWS
from relax_aot.scheduling.devices.vectors import VECTOR

ADDRESSES = 66
"""Registers of a thread that hold no elements of matrices."""
MASK = {"": 0, "bits": 2, "keys": 2, "places": 2, "added": 8, "chosen": 12}
"""Registers for the parts of a mask that are on their way, for each matrix of queries, or for its
bits, or for the places of rows that are computed by divisions."""
COUNTS = 2
"""Registers for counts of keys, more than for the places of rows, for each matrix of queries."""
REST = 8
"""Registers for what weights lose by rounding."""
GATHERED = 8
"""Registers for the values of a factor that are on their way, where they are no vectors."""
ROOM = 250
"""Registers of a thread at most, of 255."""
MOST_BYTES = 80 << 10
"""Of shared memory with queries: two blocks have room in a processor."""
WIDE, WIDEST, MOST_WIDE = 128, 160, 192
"""Elements of heads that leave registers for masks with any number of keys, that leave some for
queries, and that leave some for sums."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Warps of a block, matrices of ROWS queries of each, and keys that are in shared memory at a
    time. `shared`: queries are there too, else in registers."""

    warps: int
    matrices: int
    keys: int
    shared: bool = False

    @property
    def rows(self) -> int:
        """Queries of a warp."""
        return self.matrices * ROWS

    @property
    def queries(self) -> int:
        return self.warps * self.rows

    @property
    def threads(self) -> int:
        return self.warps * LANES

    def bytes(self, depth: int, width: int) -> int:
        """Of shared memory at most."""
        tiles = [lines * self.keys + VECTOR * max(lines, self.keys) for lines in (depth, width)]
        if self.shared:
            tiles.append(depth * self.queries + VECTOR * max(depth, self.queries))
        return sum(tiles) * DType.F16.bytes

    def room(self, shared: int) -> int:
        """Bytes of shared memory, of which a function may have so many without asking for them."""
        return MOST_BYTES if self.shared else shared

    def registers(self, depth: int, width: int, mask: str) -> int:
        """Of a thread: queries, sums, scores and others."""
        held = VECTOR // 2 if self.shared else depth // 4
        own = held + width // 2 + self.keys // 2 + 10 + MASK[mask]
        return self.matrices * own + ADDRESSES

    def is_short(self, depth: int, width: int, mask: str, seen: Seen | None) -> bool:
        """Whether keys are few enough. Where positions or bits decide which of them a query sees,
        this takes registers too, which wide heads leave to few."""
        widest = max(depth, width)
        if widest > WIDEST:
            return self.shared and widest <= MOST_WIDE
        plain = seen is None and mask != "bits"
        return plain or widest <= WIDE or self.keys <= 32


BLOCKS = (
    *(Blocks(4, 2, keys) for keys in (64, 48)),
    *(Blocks(warps, 1, keys) for keys in (64, 48, 32, 16) for warps in (8, 4)),
    *(Blocks(warps, 1, keys, shared=True) for keys in (32, 16) for warps in (8, 4)),
)
"""The first that fits in shared memory and registers is taken; those with more queries than others
only where there are more. Keys and values are copied once for all queries of a block."""


def with_fewer_registers(
    sizes: Sequence[Blocks], registers: Callable[[Blocks], int], times: int
) -> Blocks:
    """The first size, or so many times the next one that takes fewer registers, if any does."""
    best, *others = sizes
    for size in others:
        if times and registers(size) < registers(best):
            best, times = size, times - 1
    return best


def mask_of(score: Score, product: Product, by_bits: Sequence[Expr]) -> str:
    """Whether scores are chosen, or numbers are added, and whether only keys decide on that.
    `by_bits`: conditions that are bits."""
    seen = seen_of(score.value, product)
    value = score.value if seen is None else seen.value
    if value == score.sum and score.start is None:
        return "places" if seen is not None and len(product.rows) > 1 else ""
    rest = [opened(expr, by_bits) for expr in (value, score.start) if expr is not None]
    used = frozenset[str]().union(*map(indexed_by, rest))
    if not used & {loop.variable for loop in (*product.rows, *product.columns)}:
        return "bits" if by_bits else ""
    chosen = any(isinstance(part, Select) for expr in rest for part in parts(expr))
    if chosen and not used & {loop.variable for loop in product.rows}:
        return "keys"
    return "chosen" if chosen else "added"
