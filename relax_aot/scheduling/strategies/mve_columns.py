# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of any window for Helium: VMLADAV adds up to sixteen taps.

Some positions of a few channels at a time are copied to strips of image columns with a border, in
which windows are contiguous. Windows of at most a vector become bytes at once
(`depthwise_bytes.h`), where one vector of a strip serves up to four positions; longer ones, and
those whose sums become floats, have sums in memory (`depthwise_columns.h`). Works for
channels-first and channels-last, for strides, dilations and any length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from relax_aot.ir.dims import Dim, ceildiv, dim_max, dim_min, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import EIGHT
from relax_aot.microkernels.mve import BLOCK
from relax_aot.scheduling.contraction import Weighted, moved, step_of, stride
from relax_aot.scheduling.epilogue import Requantization, by_channel, direct_store, scale_table
from relax_aot.scheduling.packing import Arrays, Packed, round_up
from relax_aot.scheduling.scaled import scaled_store
from relax_aot.scheduling.strategies._roles import Roles
from relax_aot.scheduling.strategies._texts import LONG_WINDOWS, LONGER_WINDOWS
from relax_aot.scheduling.strategies.mve import MOST_APART, roles_on_axis
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import WHOLE, Tile, Weights, position_tiles, rests
from relax_aot.scheduling.writer import Writer

POSITIONS = 512
"""Of a tile at most, if sums are not kept, which take four times the bytes."""
KEPT = 2048
"""Bytes of strips and sums that are kept at once, if one channel does not have more."""
FOUR = 4
SHARED = (FOUR, 1)
"""Positions whose windows may be read as one vector."""


def depthwise_columns(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Windows of one channel each."""
    if found.channel is not None or not found.shared or rests(found, context.calls) is not False:
        return None
    parts, roles = by_channel(found, context.constants), roles_on_axis(found)
    store = direct_store(parts[1]) if parts is not None else scaled_store(found)
    if store is None or roles is None:
        return None
    channel, last = found.shared[-1].variable, found.positions[-1].variable
    apart = stride(store, last)
    places = stride(store, channel), stride(found.x, channel), stride(found.w, channel)
    if apart is None or None in places or places[2] == 0:
        return None
    step = roles.across.step * roles.across.dilation
    for distance in (apart * roles.phases, step):
        if not distance.is_constant or not 0 < distance.constant <= MOST_APART:
            return None
    if not found.known_by_channel(found.start, context.constants):
        return None
    return _Columns(found, w, roles, parts and parts[0], store, 0 if context.lean else KEPT).emit


class _Columns:
    """`one`: the epilogue of bytes, None where sums become floats; `direct`: whether bytes are made
    without sums in memory; `shared`: positions per vector; `reach`: bytes of their windows;
    `size`: positions of a tile, at least `least`; `kept`: bytes of strips and sums at once, if one
    channel does not have more."""

    def __init__(
        self,
        found: Weighted,
        w: Writer,
        roles: Roles,
        one: Requantization | None,
        store: Store,
        kept: int,
    ) -> None:
        self.found, self.w, self.roles, self.one, self.store = found, w, roles, one, store
        self.channel = found.shared[-1]
        levels = (roles.column, roles.line, roles.channel)
        loads = one.loads if one is not None else ()
        self.pack = Weights(found, [at for at in levels if at is not None], *loads)
        self.piece = prod(found.counts[at] for at in roles.inner)
        self.step = roles.advance * self.piece
        shared = SHARED if one is not None else SHARED[-1:]
        fits = (n for n in shared if found.depth + (n - 1) * self.step <= BLOCK)
        self.shared = next(fits, 1)
        self.reach = round_up(found.depth + (self.shared - 1) * self.step, BLOCK)
        self.direct = one is not None and self.reach == BLOCK
        low, high = interval(found.positions[-1].stop, w.bounds)
        low, high = low // roles.phases, -(-high // roles.phases)
        most = POSITIONS if self.direct else POSITIONS // 4
        self.size = max(1, min(high, most))
        self.least = max(1, low) if high <= most else 1
        self.kept = kept

    def _width(self, count: Dim) -> Dim:
        """The bytes of a strip for so many positions."""
        taps = self.roles.across.taps * self.piece + (self.shared - 1) * self.step
        return (ceildiv(count, FOUR) * FOUR - self.shared) * self.step + max(self.reach, taps)

    def _part(self, count: Dim, width: Dim) -> Dim:
        """How many channels are done at once."""
        each = width if self.direct else width + _pitch(count) * 4
        return dim_min(self.channel.stop, dim_max(self.kept // each, 1))

    def _most(self, one: Callable[[Dim], Dim]) -> int:
        """The most elements of all channels that are done at once; `one`: those of a channel."""
        groups = range(self.least, self.size + FOUR, FOUR)
        counts = [Dim.of(min(count, self.size)) for count in groups]
        return max((one(n) * self._part(n, self._width(n))).constant for n in counts)

    def emit(self) -> None:
        found, w, pack, roles, one = self.found, self.w, self.pack, self.roles, self.one
        shape = (*pack.lead, self.shared, self.reach)
        self.weights = pack.buffer(w, "columns", DType.I8, shape)
        w.constant(Packed(self.weights, partial(_shifted, self)))
        start = pack.packed_starts(w, found.flip)
        if one is not None:
            scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, len(one.numbers)))
            w.constant(Packed(scales, partial(scale_table, one, pack.loops)))
        strips = w.buffer("strips", DType.I8, self._most(self._width))
        around = replace(found, shared=found.shared[:-1])
        name, last = self.channel.variable, found.positions[-1].variable
        with ExitStack() as loops:
            tile = loops.enter_context(position_tiles(w, around, self.size, False, roles.phases))
            width = w.short("width", self._width(tile.count))
            part = w.short("part_channels", self._part(tile.count, width))
            parts = w.tiles(("part", "channels"), self.channel.stop, part)
            first, channels = loops.enter_context(parts)
            at = tile.at(w)
            columns = (tile.count - 1) * roles.advance + roles.across.taps
            self._gather({**at, name: first}, strips, columns, channels, width)
            of = self.pack.of_channel
            weights = of(self.weights, first)
            sizes: dict[str, Dim | int] = {
                "channels": channels, "count": tile.count, "depth": found.depth,
                "step": self.step, "width": width,
            }  # fmt: skip
            if one is None:
                sums = self._sums(strips, weights, sizes)
                self._each(tile, sums, start, (first, channels))
                return
            result: dict[str, Load | Dim | int] = {
                "out": moved(self.store, {**at, name: first}), "start": of(start, first),
                "scale": of(scales, first), "channel_step": step_of(self.store, name),
                "zero": one.zero, "low": one.low, "high": one.high,
            }  # fmt: skip
            apart = step_of(self.store, last) * roles.phases
            if self.direct:
                w.micro(
                    f"raot_depthwise_bytes_{one.form}{one.suffix}", strips=strips,
                    weights=weights, shared=self.shared, out_step=apart, **sizes, **result,
                )  # fmt: skip
                return
            w.micro(
                f"raot_requantize_channels_{one.form}{one.suffix}", channels=channels,
                sums=self._sums(strips, weights, sizes), count=tile.count, step=apart, **result,
            )  # fmt: skip

    def _sums(self, strips: Buffer, weights: Load, sizes: Mapping[str, Dim | int]) -> Buffer:
        sums = self.w.buffer("sums", DType.I32, self._most(_pitch))
        name = "raot_depthwise_columns_s8"
        self.w.micro(name, sums=sums, strips=strips, weights=weights, **sizes)
        return sums

    def _each(self, tile: Tile, sums: Buffer, start: Buffer, part: tuple[Dim, Dim]) -> None:
        """The statements that follow each sum; `part`: the first channel and how many."""
        found, w = self.found, self.w
        with w.range("c", part[1]) as c, w.range("p", tile.count) as p:
            at = {**tile.at(w, p), self.channel.variable: part[0] + c}
            total = Load(sums, (c * _pitch(tile.count) + p,))
            total_from = Binary("+", total, self.pack.of_channel(start, part[0] + c))
            w.finish(found.after, found.sum, total_from, at)

    def _gather(
        self, at: dict[str, Dim], strips: Buffer, columns: Dim, channels: Dim, width: Dim
    ) -> None:
        """Copies the columns of some channels, each to a strip of its own."""
        found, w, roles = self.found, self.w, self.roles
        if len(roles.inner) > 1:
            with w.range("c", channels) as c:
                here = {**at, self.channel.variable: at[self.channel.variable] + c}
                roles.gather(w, found, here, strips[(c * width,)], columns)
            return
        spans, image, sizes = roles.source(w, found, at, columns)
        line = spans[0] if spans else WHOLE
        w.micro(
            f"raot_depthwise_strips_{found.suffix}", strips=strips, image=image,
            channels=channels, channel_step=step_of(found.x, self.channel.variable),
            lines=line.count, first1=line.first, last1=line.last, line_step=line.step,
            pitch=width, **sizes,
        )  # fmt: skip


def _pitch(count: Dim) -> Dim:
    """How many sums a channel has for so many positions."""
    return ceildiv(count, EIGHT) * EIGHT


def _shifted(p: _Columns, data: Arrays) -> Array:
    """The window of each channel once for each position of a vector, moved by its steps."""
    matrix = p.pack.matrix(data)
    packed = np.zeros((*matrix.shape[:-1], p.shared, p.reach), np.int8)
    for n in range(p.shared):
        packed[..., n, n * p.step : n * p.step + matrix.shape[-1]] = matrix
    return packed


EXAMPLES = (
    Example(
        why="windows of more than four taps",
        target="mve",
        before=LONG_WINDOWS,
        after="""
            kernel @conv(...
              for i in 0..6 {
                ...
                micro raot_depthwise_strips_s8(...
                micro raot_depthwise_bytes_f32(...
              }
            }""",
    ),
    Example(
        why="windows of more than a vector",
        target="mve",
        before=LONGER_WINDOWS,
        after="""
            kernel @conv(...
              for i in 0..6 {
                ...
                micro raot_depthwise_strips_s8(...
                micro raot_depthwise_columns_s8(...
                micro raot_requantize_channels_f32(...
              }
            }""",
    ),
)
