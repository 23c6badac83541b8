# SPDX-License-Identifier: Apache-2.0
"""What becomes of the sums of some channels and positions on Arm's DSP extension: bytes by a table
of multipliers, a sum with another quantized value, or other statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_min, row_major
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, Load
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Weighted, follow, moved, step_of, stride
from relax_aot.scheduling.epilogue import (
    Requantization,
    direct_store,
    quantized_add,
    scale_table,
    words_of,
)
from relax_aot.scheduling.packing import Arrays, Packed
from relax_aot.scheduling.weighted import Tile, Weights
from relax_aot.scheduling.writer import Writer


class Table:
    """Multipliers and, for integer ones, shifts of channels: words of both where each call's fit
    (`words_of`), else tables of both. One number where all channels have it."""

    def __init__(
        self, w: Writer, pack: Weights, one: Requantization, calls: Sequence[Arrays]
    ) -> None:
        self.one, self.pack = one, pack
        moved = any(stride(load, loop.variable) != 0 for load in one.loads for loop in pack.loops)
        self.loops = pack.loops if moved else ()
        self.shape = [loop.stop.constant for loop in self.loops] or [1]
        words = [words_of(one, self.loops, data) for data in calls]
        self.word = one.form != "f32" and bool(words) and all(w is not None for w in words)
        if self.word:
            self.scales = pack.buffer(w, "scales", DType.I32, (1 + prod(self.shape),))
            w.constant(Packed(self.scales, self._words))
            return
        self.scales = pack.buffer(w, "scales", one.table_type, self.shape)
        w.constant(Packed(self.scales, partial(self._part, 0)))
        if one.form != "f32":
            self.shifts = pack.buffer(w, "shifts", DType.I8, self.shape)
            w.constant(Packed(self.shifts, partial(self._part, 1)))

    def _part(self, part: int, data: Arrays) -> Array:
        return np.asarray(scale_table(self.one, self.loops, data)[..., part])

    def _words(self, data: Arrays) -> Array:
        words = words_of(self.one, self.loops, data)
        assert words is not None
        return words

    def _parts(self, *first: Dim) -> dict[str, Load]:
        """The operands from a channel on."""
        index = (*self.pack.index, *first)
        index = (*index, *(ZERO,) * (len(self.loops) - len(index))) if self.loops else (ZERO,)
        if self.word:
            at = row_major(index, list(map(Dim.of, self.shape))) + 1
            return {"scales": Load(self.scales, (at,)), "base": Load(self.scales, (ZERO,))}
        parts = {"scales": Load(self.scales, index)}
        return parts if self.one.form == "f32" else {**parts, "shifts": Load(self.shifts, index)}

    def requantize(
        self, w: Writer, out: Load, sums: Load | Buffer, first: Dim | None,
        extents: tuple[Dim, Dim], moves: tuple[Dim, Dim], sum_step: Dim,
    ) -> None:  # fmt: skip
        """Rows of sums, of channels from `first` on or, where it is None, of one; `moves`: from row
        to row of the result and along a row."""
        one, form = self.one, f"{self.one.form}_word" if self.word else self.one.form
        w.micro(
            f"raot_requantize_rows_{form}{one.suffix}", out=out, sums=sums,
            **self._parts(*(() if first is None else (first,))), channels=extents[0],
            positions=extents[1], channel_step=moves[0], step=moves[1], sum_step=sum_step,
            scale_step=ONE if self.loops and first is not None else ZERO, zero=one.zero,
            low=one.low, high=one.high,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Results:
    """`one`: the epilogue, None where sums do not become bytes; `rest`: what follows it. There are
    sums of at most `channels` channels and `wide` positions. `joint`: rows of positions follow each
    other; `block`: a tile has several of them."""

    found: Weighted
    w: Writer
    one: Requantization | None
    rest: Weighted
    table: Table | None
    channels: int
    wide: int
    joint: bool = False
    block: bool = False

    @property
    def last(self) -> str:
        return self.found.positions[-1].variable if self.found.positions else ""

    def store(
        self, tile: Tile, at: Mapping[str, Dim], sums: Load, first: Dim, channels: Dim
    ) -> None:
        """The results of `channels` channels from `first` on at the positions of a tile, which
        begins `at` these."""
        w, found, one, rest = self.w, self.found, self.one, self.rest
        if one is None:
            self._each(tile, found, sums, first, channels, by_position=False)
            return
        assert rest.store is not None
        store, at = direct_store(rest), {**at, found.own: first}
        if store is not None and (not self.last or stride(store, self.last) is not None):
            near = step_of(store, self.last) if self.last else ONE
            moves = (step_of(store, found.own), near)
            self._bytes(moved(store, at), sums, first, (channels, tile.count), moves)
            return
        by_position = step_of(rest.store, found.own) == 1
        wide, part = self.wide, self.channels
        staged = w.buffer("staged", one.dtype, *((wide, part) if by_position else (part, wide)))
        moves = (ONE, Dim.of(part)) if by_position else (Dim.of(wide), ONE)
        self._bytes(staged[(ZERO, ZERO)], sums, first, (channels, tile.count), moves)
        if not self._add_quantized(staged, at, (channels, tile.count), by_position):
            values = staged[(ZERO, ZERO)]
            self._each(tile, rest, values, first, channels, by_position=by_position)

    def _bytes(
        self, out: Load, sums: Load, first: Dim, extents: tuple[Dim, Dim], moves: tuple[Dim, Dim]
    ) -> None:
        """`moves`: from channel to channel, from position to position."""
        assert self.table is not None
        self.table.requantize(self.w, out, sums, first, extents, moves, sums.buffer.shape[-1])

    def _add_quantized(
        self, staged: Buffer, at: Mapping[str, Dim], extents: tuple[Dim, Dim], by_position: bool
    ) -> bool:
        """Adds another quantized value to the staged ones, as the result."""
        found, added = self.found, quantized_add(self.rest)
        if added is None or not self.last:
            return False
        places = (added.store, added.other)
        names = (self.last, found.own) if by_position else (found.own, self.last)
        (out, near), (other, near_too) = ([stride(p, n) for n in names] for p in places)
        if near != 1 or near_too != 1 or out is None or other is None:
            return False
        loops = found.positions
        if self.block and not all(follow(place, loops[0], loops[1]) for place in places):
            return False
        if self.joint and not found.joined(*places):
            return False
        rows, columns = extents[::-1] if by_position else extents
        target, read = (moved(place, at) for place in places)
        self.w.micro(
            added.kernel, out=target, a=staged, b=read, **added.numbers, rows=rows,
            columns=columns, out_step=out, a_step=staged.shape[1], b_step=other,
        )  # fmt: skip
        return True

    def _each(
        self, tile: Tile, rest: Weighted, values: Load, first: Dim, channels: Dim,
        *, by_position: bool,
    ) -> None:  # fmt: skip
        """The statements that follow each value."""
        w, found, lead = self.w, self.found, values.index[:-2]

        def element(row: Dim, column: Dim) -> Load:
            return Load(values.buffer, (*lead, row, column))

        count = w.short("channels", dim_min(channels, self.channels))
        if not by_position:  # what differs by channel alone stays in registers
            with w.range(found.own, count) as c, w.range("p", tile.count) as p:
                at = {**tile.at(w, p), found.own: first + c}
                w.finish(rest.after, rest.sum, element(c, p), at)
            return
        with w.range("p", tile.count) as p:
            at = tile.at(w, p)
            with w.range(found.own, count) as c:
                w.finish(rest.after, rest.sum, element(p, c), {**at, found.own: first + c})
