# SPDX-License-Identifier: Apache-2.0
"""Integer contractions for Helium: VMLADAVA adds sixteen products.

Where sums become bytes, two output positions and four channels are done at once: windows in one
piece are read in place, others from a strip of image columns with a border, so that adjacent
windows reuse their overlapping columns. Other sums come from up to eight gathered rows of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_min, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, Load
from relax_aot.ir.types import DType
from relax_aot.microkernels.mve import BLOCK, ROWS, channel_order
from relax_aot.scheduling.contraction import Weighted, clipped, moved, step_of, stride, symbols_of
from relax_aot.scheduling.epilogue import (
    Requantization,
    by_channel,
    direct_store,
    quantized_add,
    scale_table,
)
from relax_aot.scheduling.packing import Arrays, Packed, padded, permuted, round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, SHORT_SUMS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import (
    WHOLE,
    Span,
    Tile,
    Weights,
    copy_lines,
    position_tiles,
    tile_size,
    window,
)
from relax_aot.scheduling.windows import Axis, axis_of
from relax_aot.scheduling.writer import Writer

SUMS = 1024
"""Bytes of sums and columns that are kept at once, if two positions do not take more."""
POSITIONS = 16
LEAST_GROUPS = 4
MOST_APART = 9362
"""Elements from one result to the next at most: seven times that are 16 bits."""


# Windows that are gathered


@dataclass(frozen=True, slots=True)
class _Roles:
    """The reduction loops by what windows do along them: `across` is the axis of the last loop
    over positions, where `column` moves and may be clipped; `line` may be clipped elsewhere;
    `channel` is never clipped. Without a column, `across` counts positions themselves."""

    across: Axis
    column: int | None
    line: int | None
    channel: int | None

    @property
    def inner(self) -> list[int]:
        return [level for level in (self.line, self.channel) if level is not None]

    def image(
        self, w: Writer, found: Weighted, at: Mapping[str, Dim]
    ) -> tuple[Span, Span, Load, Dim]:
        """Lines and channels of the window at a position, the element that its columns count
        from, and its first column."""
        spans, first = window(w, found, self.inner, at)
        known: dict[int | None, Span] = dict(zip(self.inner, spans, strict=True))
        line, channel = (known.get(level, WHOLE) for level in (self.line, self.channel))
        if self.column is None:
            return line, channel, first, ZERO
        axis = self.across
        index = (ZERO if n == axis.dimension else dim for n, dim in enumerate(first.index))
        lead = at[axis.variable] * axis.stride - axis.before
        return line, channel, Load(first.buffer, tuple(index)), lead


def _roles_of(found: Weighted) -> _Roles | None:
    if not found.positions or len(found.reductions) > 3:
        return None
    last = found.positions[-1]
    axis = axis_of(found.x, last, found.reductions, found.counts)
    if axis is None:
        return None
    column = None if axis.reduction is None else found.reductions.index(axis.reduction)
    if axis.reduction is None:
        step = step_of(found.x, last.variable)
        axis = replace(axis, stride=1, dilation=0, size=Dim.of(ROWS), step=step)
    elif clipped(axis.reduction) and axis.clips != (True, True):
        return None
    rest = [at for at in range(len(found.reductions)) if at != column]
    if any(last.variable in symbols_of((found.reductions[at],)) for at in rest):
        return None
    cut = [at for at in rest if clipped(found.reductions[at])]
    others = [at for at in rest if at not in cut]
    if len(cut) > 1 or len(rest) > 2:
        return None
    # Channels innermost: contiguous ones are copied in one go.
    line = cut[0] if cut else (others.pop(0) if len(others) > 1 else None)
    return _Roles(axis, column, line, others[0] if others else None)


# Rows of bytes


def rows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Up to eight positions, a gathered row of bytes each."""
    if found.channel is None or not found.fits_bytes or not found.has_depth(context.constants):
        return None
    roles = _roles_of(found)
    return None if roles is None else lambda: _emit_rows(found, w, roles)


def _emit_rows(found: Weighted, w: Writer, roles: _Roles) -> None:
    order = [at for at in (roles.line, roles.column, roles.channel) if at is not None]
    pack = Weights(found, order)
    depth, channels = round_up(found.depth, BLOCK), round_up(found.channels, 4)
    weights = pack.packed(
        w, "blocks", "raot_multiply_rows_s8", "weights", {"channels": channels, "depth": depth}
    )
    bias = pack.packed_starts(w, found.flip, 4)
    axis, joint = roles.across, roles.column is None and found.joined(found.x)
    most = (tile_size(w, found, ROWS, joint) + 1) // 2 * 2  # pairs are multiplied
    gathered = w.buffer("rows", DType.I8, most, depth)
    sums = w.buffer("sums", DType.I32, channels, ROWS)
    with position_tiles(w, found, ROWS, joint) as tile:
        line, channel, image, lead = roles.image(w, found, tile.at(w))
        w.micro(
            f"raot_im2col_{found.suffix}", rows=gathered, image=image,
            zero=found.x_zero - found.flip, flip=found.flip, depth=depth, positions=tile.count,
            count0=channel.count, step0=channel.step, to0=1, count1=line.count,
            first1=line.first, last1=line.last, step1=line.step, to1=channel.count * axis.taps,
            count2=axis.taps, step2=axis.step, to2=channel.count, lead=lead, apart=axis.stride,
            tap=axis.dilation, width=axis.size,
        )  # fmt: skip
        w.micro(
            "raot_multiply_rows_s8", sums=sums, weights=pack.first(weights), rows=gathered,
            bias=pack.first(bias), channels=channels, depth=depth, positions=tile.count,
        )  # fmt: skip
        with w.range(found.own, Dim.of(found.channels)) as c, w.range("p", tile.count) as p:
            at = {**tile.at(w, p), found.own: c}
            w.finish(found.after, found.sum, Load(sums, (c, p)), at)


# Two positions and four channels


def pairs(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Two positions and four channels at a time, where sums become bytes."""
    if found.channel is None or not found.fits_bytes or not found.has_depth(context.constants):
        return None
    order, roles = _in_place_order(found), None
    if order is None:
        roles = _roles_of(found)
        if roles is None or (roles.column is not None and roles.across.dilation != 1):
            return None
        levels = (roles.column, roles.line, roles.channel)
        order = [at for at in levels if at is not None]
    parts = by_channel(found, context.constants)
    store = parts[1].store if parts is not None else None
    if parts is None or store is None or stride(store, found.own) is None:
        return None
    return lambda: _Pairs(found, w, order, roles, *parts).emit()


def _in_place_order(found: Weighted) -> list[int] | None:
    """The order of the reductions in windows of contiguous signed bytes."""
    if found.clipped or found.flip:
        return None
    order, expected = found.farthest_first, 1
    for at in reversed(order):
        step = stride(found.x, found.reductions[at].variable)
        if step != expected and found.counts[at] > 1:
            return None
        expected *= found.counts[at]
    return order


class _Pairs:
    """`roles` where windows are read from a strip. `lanes`: the channel of each lane of four, -1
    for none; `size`: positions of a tile; `part`: groups of four channels at once; `apart`: from
    channel to channel of the result; `joint`: rows of positions follow each other."""

    def __init__(
        self,
        found: Weighted,
        w: Writer,
        order: list[int],
        roles: _Roles | None,
        one: Requantization,
        rest: Weighted,
    ) -> None:
        assert rest.store is not None
        self.found, self.w, self.roles, self.one, self.rest = found, w, roles, one, rest
        self.pack = Weights(found, order, *one.loads)
        self.lanes = channel_order(found.channels)
        self.groups = len(self.lanes) // 4
        self.last = found.positions[-1].variable if found.positions else ""
        self.column = roles is not None and roles.column is not None
        self.joint = not self.column and found.joined(found.x, rest.store)
        positions = found.positions if self.joint else found.positions[-1:]
        count = interval(prod((loop.stop for loop in positions), start=ONE), w.bounds)[1]
        copied = found.depth if roles is not None and not self.column else 0
        most = max(SUMS // (len(self.lanes) * 4 + copied) // 2 * 2, 2)
        self.size = max(1, min(most, POSITIONS, count))
        self.part = self._part(copied * self.size)
        self.apart = step_of(rest.store, found.own)

    def _part(self, copied: int) -> int:
        """As many groups as have sums that are not too large: an even number, or all."""
        pair = (self.size + 1) // 2 * 32
        most = max((SUMS - copied) // pair // 2 * 2, LEAST_GROUPS)
        if self.groups <= most:
            return self.groups
        return round_up(-(-self.groups // -(-self.groups // most)), 2)

    def emit(self) -> None:
        found, w, pack, roles, one = self.found, self.w, self.pack, self.roles, self.one
        words, width = 8 + round_up(found.depth, BLOCK), self.groups * 4 * len(one.numbers)
        self.weights = pack.buffer(w, "groups", DType.I32, (*pack.lead, self.groups, words))
        self.scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, width))
        w.constant(Packed(self.weights, partial(_stream, self)))
        w.constant(Packed(self.scales, partial(_scales, self)))
        self.sums = w.buffer("sums", DType.I32, (self.size + 1) // 2 * self.part * 8)
        if roles is not None:
            columns = self.size
            if self.column:
                columns = (self.size - 1) * roles.across.stride + roles.across.taps
            inner = prod(found.counts[at] for at in roles.inner)
            self.strip = w.buffer("columns", DType.I8, columns * inner)
        with position_tiles(w, found, self.size, self.joint) as tile:
            at = tile.at(w)
            self._tile(tile, at, *self._windows(at, tile.count))

    def _windows(self, at: Mapping[str, Dim], count: Dim) -> tuple[Load, Dim]:
        """The window of the first position, and the distance of the next one."""
        w, found, roles = self.w, self.found, self.roles
        if roles is None:
            origin = {**at, **{loop.variable: ZERO for loop in found.reductions}}
            return moved(found.x, origin), step_of(found.x, self.last)
        line, channel, image, lead = roles.image(w, found, at)
        axis, columns, width = roles.across, count, count
        if self.column:
            columns, width = (count - 1) * axis.stride + axis.taps, axis.size
        w.micro(
            f"raot_im2col_nhwc_{found.suffix}", strip=self.strip, image=image,
            zero=found.x_zero - found.flip, flip=found.flip, channels=channel.count,
            lines=line.count, first1=line.first, last1=line.last, line_step=line.step,
            channel_step=ONE if roles.channel is None else channel.step, columns=columns,
            first=lead, width=width, column_step=axis.step,
        )  # fmt: skip
        return self.strip[(ZERO,)], Dim.of(axis.stride * channel.count * line.count)

    def _tile(self, tile: Tile, at: Mapping[str, Dim], windows: Load, step: Dim) -> None:
        w, found, rest = self.w, self.found, self.rest
        store, channels, apart = direct_store(rest), Dim.of(found.channels), self.apart

        def multiply(out: Callable[[Dim], Load], moves: tuple[Dim, Dim]) -> None:
            self._multiply(tile.count, windows, step, out, moves)

        if store is not None and apart.is_constant and 0 < apart.constant <= MOST_APART:
            moves = (step_of(store, self.last) if self.last else channels, apart)
            multiply(lambda c: moved(store, {**at, found.own: c}), moves)
            return
        at, by_position = {**at, found.own: ZERO}, apart == 1
        shape = (self.size, found.channels) if by_position else (found.channels, self.size)
        staged = w.buffer("staged", self.one.dtype, *shape)

        def staged_at(channel: Dim, position: Dim = ZERO) -> Load:
            return staged[(position, channel) if by_position else (channel, position)]

        moves = (channels, ONE) if by_position else (ONE, Dim.of(self.size))
        multiply(staged_at, moves)
        if store is not None and self.last and stride(store, self.last) == 1:
            extents, steps = (channels, tile.count), (apart, moves[1])
            copy_lines(w, moved(store, at), staged_at(ZERO), extents, steps)
        elif not _add_quantized(self, staged, at, tile.count):
            tile.finish(w, rest, staged_at)

    def _multiply(
        self,
        positions: Dim,
        windows: Load,
        step: Dim,
        out: Callable[[Dim], Load],
        moves: tuple[Dim, Dim],
    ) -> None:
        """The sums of a tile and their bytes, some groups of channels at a time. `out`: where
        the byte of a channel goes; `moves`: from position to position, from channel to channel."""
        w, one, part, channels = self.w, self.one, self.part, Dim.of(self.found.channels)
        with w.tiles(("part", "groups"), self.groups, part) as (first, groups):
            if part < self.groups:
                channels = w.short("channels", dim_min(channels - first * 4, part * 4))
            w.micro(
                "raot_multiply_nhwc_s8", sums=self.sums, rows=windows, groups=groups,
                weights=self.pack.first(self.weights, first), depth=self.found.depth,
                positions=positions, row_step=step,
            )  # fmt: skip
            w.micro(
                f"raot_requantize_nhwc_{one.form}{one.suffix}", out=out(first * 4),
                sums=self.sums, scales=self.pack.first(self.scales, first * (4 * len(one.numbers))),
                channels=channels, positions=positions, out_step=moves[0],
                channel_step=moves[1], zero=one.zero, low=one.low, high=one.high,
            )  # fmt: skip


def _add_quantized(p: _Pairs, staged: Buffer, at: Mapping[str, Dim], count: Dim) -> bool:
    """Adds another quantized value to the staged ones, as the result."""
    found, added, by_position = p.found, quantized_add(p.rest), p.apart == 1
    if added is None or not p.last:
        return False
    places, channels = (added.store, added.other), Dim.of(found.channels)
    names = (p.last, found.own) if by_position else (found.own, p.last)
    (out, near), (other, near_too) = ([stride(place, name) for name in names] for place in places)
    if near != 1 or near_too != 1 or out is None or other is None:
        return False
    if p.joint and not all(found.rows_follow(place) for place in places):
        return False
    sizes: tuple[Dim, ...] = (count, channels, out, channels, other)
    if not by_position:
        sizes = (channels, count, out, Dim.of(p.size), other)
    elif out == channels == other:
        sizes = (ONE, count * channels, ZERO, ZERO, ZERO)
    p.w.micro(
        "raot_qadd_s8", out=moved(added.store, at), a=staged, b=moved(added.other, at),
        a_factor=added.factor, b_factor=added.other_factor, offset=added.offset, shift=added.shift,
        **dict(zip(("rows", "columns", "out_step", "a_step", "b_step"), sizes, strict=True)),
    )  # fmt: skip
    return True


def _in_lanes(p: _Pairs, values: Array) -> Array:
    """Channels in the order of lanes; zeros where a lane has none."""
    axis, width = len(p.pack.lead), p.found.channels
    room = (*values.shape[:axis], width + 1, *values.shape[axis + 1 :])
    lanes = [width if channel < 0 else channel for channel in p.lanes]
    return np.take(padded(values, room), lanes, axis)


def _stream(p: _Pairs, data: Arrays) -> Array:
    """Of each four channels: their starts, twice, and blocks of their weights."""
    shape, steps = (*p.pack.lead, p.groups), -(-p.found.depth // BLOCK)
    matrix = _in_lanes(p, p.pack.matrix(data)).astype(np.int8)
    layout = permuted(p.pack.lead, (p.groups, steps, 4, BLOCK), (0, 2, 1, 3))
    blocks = layout.pack(padded(matrix, (*matrix.shape[:-1], steps * BLOCK)))
    starts = _in_lanes(p, p.pack.starts(data, p.found.flip))
    parts = [starts.astype(np.int32), starts.astype(np.int32), blocks.view(np.int32)]
    return np.concatenate([part.reshape(*shape, -1) for part in parts], axis=-1)


def _scales(p: _Pairs, data: Arrays) -> Array:
    """Multipliers and shifts as micro-kernels read them: four of each in turn."""
    table = _in_lanes(p, scale_table(p.one, p.pack.loops, data))
    layout = permuted(p.pack.lead, (p.groups, table.shape[-1], 4), (0, 2, 1))
    return layout.pack(table)


EXAMPLES = (
    Example(
        why="eight rows of a matrix at a time",
        target="mve",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.blocks: i8[1, 1, 4, 16], %w.bias: i32[4]) ...
              for tile in 0..(n + 7) // 8 {
                let positions = min(8, n - 8*tile)
                micro raot_im2col_s8(...
                micro raot_multiply_rows_s8(...) [4, 16, positions]
            ...""",
    ),
    Example(why="sums of three products are too short", target="mve", before=SHORT_SUMS),
)
