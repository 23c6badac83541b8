# SPDX-License-Identifier: Apache-2.0
"""Keys that a row of a lane sees by positions alone, as bits of a word that is computed.

Where heads share keys, rows are several loops, and each row of a lane has ends of its own: a
comparison or two for each score. Instead, the keys of a lane up to each end are counted once for a
row. In a block, the bits from one count on up to the other one are those of the keys that are seen,
and become predicates several at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.loops import (
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Local,
    Select,
    Store,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.attention_bits import NUMBER, QUAD
from relax_aot.scheduling.devices.attention_operands import LOWEST
from relax_aot.scheduling.devices.attention_seen import End, Seen, seen_of
from relax_aot.scheduling.devices.operands import At, Product
from relax_aot.scheduling.devices.units import COLUMNS
from relax_aot.scheduling.devices.window_bits import ONE_BIT, bit_at, is_set
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class Counts:
    """`counts`: for each row of a lane, its keys up to the last one that is seen, and before the
    first one, if there are `ends` of that kind. `keys`: of a block. `word`: the local that holds
    the bits of a block."""

    counts: Buffer
    ends: tuple[End, ...]
    keys: int
    word: Local

    def chosen(self, seen: Seen) -> Expr:
        """The score by the bit of a key."""
        return Select(is_set(self.word, Dim.of(NUMBER)), seen.value, LOWEST)

    def start(self, w: Writer, lane: Dim, i: Dim, at: At, length: Dim) -> None:
        """Counts the keys of row `i` of a lane, whose loop variables are `at`."""
        keys = {
            last: [end.key.substitute(dict(at)) for end in self.ends if end.last is last]
            for last in (True, False)
        }
        stops = [dim_max(dim_min(*keys[True], length - 1), -1)]
        if keys[False]:
            before = dim_min(dim_max(*keys[False], 0), length) - 1
            stops.append(dim_min(before, stops[0]))
        for number, stop in enumerate(stops):
            near = w.named("near", stop) - lane % QUAD * 2 + COLUMNS
            count = near // COLUMNS + (near - 1) // COLUMNS
            place = (lane, i, Dim.of(number))
            w.add(Store(self.counts, place, Cast(Index(count), DType.I32)))

    def bits(self, w: Writer, lane: Dim, i: Dim, part: Dim, length: Dim) -> Local:
        """The word of row `i` of a lane for a block of keys."""
        each, ends = self.keys // QUAD, list[Expr]()
        most = ceildiv(length, COLUMNS) * 2
        for number in range(self.counts.shape[-1].constant):
            name, count = w.fresh("count"), self.counts[(lane, i, Dim.of(number))]
            w.add(Bind(name, Cast(count, DType.I64), ZERO, most, "clamped"))
            w.bounds = w.bounds.with_value(name, ZERO, most)
            near = dim_min(dim_max(Dim.of(name) - part * each, 0), each)
            ends.append(bit_at(w.let("near", near, ZERO, Dim.of(each))))
        word = Local(w.fresh("seen"), DType.I32)
        w.add(Declare(word, Binary("-", ends[0], ends[1] if len(ends) > 1 else ONE_BIT)))
        return word


def counts_of(
    w: Writer, seen: Seen | None, product: Product, rows: int, keys: int
) -> Counts | None:
    """Reserves the counts of so many rows of a lane; None where no row has ends of its own."""
    if not has_counts(seen, product) or seen is None:
        return None
    kinds = 1 + seen.window
    counts = w.reserve("counts", DType.I32, "lane", LANES, rows, kinds)
    return Counts(counts, seen.ends, keys, Local(w.fresh("seen"), DType.I32))


def has_counts(seen: Seen | None, product: Product) -> bool:
    return seen is not None and seen.shut and len(product.rows) > 1


def rows_of(product: Product, exprs: Sequence[Expr], *, counted: bool) -> tuple[For, ...]:
    """The loops over rows that these depend on, a score and its start; none where they only do so
    by ends that are `counted`."""
    seen, every = seen_of(exprs[0], product), [*exprs]
    if counted and seen is not None and has_counts(seen, product):
        every[0] = seen.value
    moving = {loop.variable for loop in product.rows}
    if not any(moving & indexed_by(expr) for expr in every):
        return ()
    used = frozenset[str]().union(*map(indexed_by, exprs))
    return tuple(loop for loop in product.rows if loop.variable in used)
