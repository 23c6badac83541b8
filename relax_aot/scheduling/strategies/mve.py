# SPDX-License-Identifier: Apache-2.0
"""Integer contractions for Helium: VMLADAVA adds sixteen products.

Two output positions and four channels are done at once. Windows in one piece, of whole vectors or
of at most three, are read in place, others from a strip of image columns with a border, where
adjacent windows share their overlapping columns. Dilated windows are gathered one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_min, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, Load, Store
from relax_aot.ir.parameters import Parameter
from relax_aot.ir.types import DType
from relax_aot.microkernels.mve import BLOCK, SHORT, channel_order
from relax_aot.scheduling.contraction import BYTES, Weighted, indexed_by, moved, step_of, stride
from relax_aot.scheduling.epilogue import (
    Requantization,
    by_channel,
    direct_store,
    inlined,
    quantized_add,
    scale_table,
)
from relax_aot.scheduling.packing import Arrays, Packed, padded, permuted, round_up
from relax_aot.scheduling.scaled import Scaled, in_memory, scaled, step_along
from relax_aot.scheduling.strategies._roles import Roles, roles_of
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, LONG_SUMS, SHORT_SUMS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import (
    Tile,
    Weights,
    copy_lines,
    position_tiles,
)
from relax_aot.scheduling.writer import Writer

SUMS = 2048
"""Bytes of sums and columns that are kept at once, if two positions do not take more."""
POSITIONS = 16
LEAST_GROUPS = 4
MOST_APART = 9362
"""Elements from one result to the next at most: seven times that are 16 bits."""


# Windows that are gathered


def roles_on_axis(found: Weighted) -> Roles | None:
    roles = roles_of(found)
    return roles if roles is not None and roles.on_axis else None


# Two positions and four channels


def pairs(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Two positions and four channels at a time."""
    moved_by = _moved(found, context.calls)
    if found.channel is None or moved_by is None or not found.has_depth(context.constants):
        return None
    order, roles = _in_place_order(found), None
    if order is None or _slack(found) != 0:
        roles = roles_on_axis(found)
        if order is None and not found.positions:  # one row of unsigned bytes
            roles = roles_of(found)
        if roles is not None:
            levels = (roles.column, roles.line, roles.channel)
            order = [at for at in levels if at is not None]
        elif order is None:
            return None
    one, rest = by_channel(found, context.constants) or (None, found)
    if rest.store is None or stride(rest.store, found.own) is None:
        one, rest = None, found
    kept = 0 if context.lean else SUMS
    floats = _floats(found) if one is None else None
    if found.taken is not None and floats is None:  # other sums start with packed numbers
        return None
    return _Pairs(found, w, order, roles, one, rest, floats, kept, moved_by).emit


def _moved(found: Weighted, calls: Sequence[Arrays]) -> int | None:
    """What is subtracted from all weights without their zero point, to make them signed bytes."""
    if found.fits_bytes:
        return 0
    if found.w.dtype not in BYTES or isinstance(found.w_zero, Parameter):
        return None
    pack = Weights(found, range(len(found.reductions)))
    values = [pack.matrix(data) for data in calls]
    if values and all(v.min() >= -128 and v.max() <= 127 for v in values):
        return 0
    return found.w.dtype.limits[0] + 128 - found.w_zero


def _slack(found: Weighted) -> int:
    """Bytes that are read behind the last window, for weights of 0."""
    return -found.depth % BLOCK if found.depth > SHORT else 0


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


@dataclass(frozen=True, slots=True)
class _Floats:
    """Sums that become floats, and the store of those."""

    scaled: Scaled
    store: Store


def _floats(found: Weighted) -> _Floats | None:
    """The floats of sums, whose operands are lines along the channels and steady along the last
    loop over positions."""
    store = inlined(found.after)
    scale = scaled(store.value) if store is not None else None
    if store is None or scale is None or scale.total != found.sum or scale.start is not None:
        return None
    moving = scale.moved_by | indexed_by(scale.factor)
    last = {loop.variable for loop in found.positions[-1:]}
    if moving & last or found.own in indexed_by(scale.factor) or found.own in last:
        return None
    if any(stride(store, name) is None for name in (found.own, *last)):
        return None
    operands = [one for one in (scale.scale, scale.bias) if isinstance(one, Load)]
    lines = all(stride(one, found.own) in (ZERO, ONE) for one in operands)
    return _Floats(scale, store) if lines else None


class _Pairs:
    """`roles` where windows are read from a strip of columns; windows of no whole vectors that have
    none are copied. `one`: the epilogue, None where sums do not become bytes; `floats`: that of
    sums that become floats; `kept`: bytes of sums
    and columns at once; `lanes`: the channel of each lane of four, -1 for none; `size`: positions
    of a tile; `part`: groups of four channels at once; `joint`: rows of positions follow each
    other; `moved_by`: what is subtracted from all weights: sums of windows, times that, are added
    to their products."""

    def __init__(
        self,
        found: Weighted,
        w: Writer,
        order: list[int],
        roles: Roles | None,
        one: Requantization | None,
        rest: Weighted,
        floats: _Floats | None,
        kept: int,
        moved_by: int,
    ) -> None:
        self.kept, self.floats, self.moved_by = kept, floats, moved_by
        self.found, self.w, self.roles, self.one, self.rest = found, w, roles, one, rest
        self.pack = Weights(found, order, *(one.loads if one else ()))
        natural = [*range(found.channels), *[-1] * (-found.channels % 4)]
        self.lanes = natural if one is None else channel_order(found.channels)
        self.groups = len(self.lanes) // 4
        self.last = found.positions[-1].variable if found.positions else ""
        column = roles is not None and roles.column is not None
        places: list[Load | Store] = [found.x]
        places += [rest.store] if one and rest.store else []
        if floats is not None:
            places.append(floats.store)
        self.joint = not column and found.joined(*places) and not self._differs()
        self.phases = roles.phases if roles is not None else 1
        positions = found.positions if self.joint else found.positions[-1:]
        count = interval(prod((loop.stop for loop in positions), start=ONE), w.bounds)[1]
        self.slack = _slack(found)
        copied = found.depth if not column and (roles is not None or self.slack) else 0
        most = max(kept // (len(self.lanes) * 4 + copied) // 2 * 2, 2)
        self.size = max(1, min(most, POSITIONS, -(-count // self.phases)))
        self.part = self._part(copied * self.size)

    def _differs(self) -> bool:
        """Whether rows of positions have operands of their own."""
        if self.floats is None:
            return False
        moving = self.floats.scaled.moved_by | indexed_by(self.floats.scaled.factor)
        return any(loop.variable in moving for loop in self.found.positions)

    def _part(self, copied: int) -> int:
        """As many groups as have sums that are not too large: an even number, or all."""
        pair = (self.size + 1) // 2 * 32
        most = max((self.kept - copied) // pair // 2 * 2, LEAST_GROUPS)
        if self.groups <= most:
            return self.groups
        return round_up(-(-self.groups // -(-self.groups // most)), 2)

    def emit(self) -> None:
        found, w, pack, roles, one = self.found, self.w, self.pack, self.roles, self.one
        words = 8 + round_up(found.depth, BLOCK)
        self.weights = pack.buffer(w, "groups", DType.I32, (*pack.lead, self.groups, words))
        w.constant(Packed(self.weights, partial(_stream, self)))
        if one is not None:
            width = self.groups * 4 * len(one.numbers)
            self.scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, width))
            w.constant(Packed(self.scales, partial(_scales, self, one)))
        self.starts = None if found.taken is None else pack.packed_starts(w, found.flip)
        self.sums = w.buffer("sums", DType.I32, (self.size + 1) // 2 * self.part * 8)
        if roles is not None:
            self.piece = prod(found.counts[at] for at in roles.inner)
            columns = (self.size - 1) * roles.advance + roles.across.taps
            self.strip = w.buffer("columns", DType.I8, columns * self.piece + self.slack)
        elif self.slack:
            self.strip = w.buffer("windows", DType.I8, self.size * found.depth + self.slack)
        with position_tiles(w, found, self.size, self.joint, self.phases) as tile:
            at = tile.at(w)
            windows = self._windows(tile, at)
            if self.floats is not None:
                self._scale(tile, at, windows, self.floats)
            elif one is None:
                self._finish(tile, windows)
            else:
                self._bytes(tile, at, windows, one)

    def _windows(self, tile: Tile, at: Mapping[str, Dim]) -> tuple[Load, Dim]:
        """The window of the first position, and the distance of the next one."""
        w, found, roles = self.w, self.found, self.roles
        if roles is None:
            origin = {**at, **{loop.variable: ZERO for loop in found.reductions}}
            first, step = moved(found.x, origin), step_of(found.x, self.last)
            if self.slack == 0:
                return first, step
            depth = Dim.of(found.depth)
            copy_lines(w, self.strip[(ZERO,)], first, (tile.count, depth), (depth, step))
            return self.strip[(ZERO,)], depth
        columns = (tile.count - 1) * roles.advance + roles.across.taps
        roles.gather(w, found, at, self.strip, columns)
        return self.strip[(ZERO,)], Dim.of(roles.advance * self.piece)

    @contextmanager
    def _sums(self, tile: Tile, windows: tuple[Load, Dim]) -> Iterator[tuple[Dim, Dim, Dim]]:
        """The sums of a tile, some groups of channels at a time; yields the first group, how many
        groups, and how many channels."""
        w, part, channels = self.w, self.part, Dim.of(self.found.channels)
        with w.tiles(("part", "groups"), self.groups, part) as (first, groups):
            if part < self.groups:
                channels = w.short("channels", dim_min(channels - first * 4, part * 4))
            w.micro(
                "raot_multiply_nhwc_s8", sums=self.sums, rows=windows[0], groups=groups,
                weights=self.pack.first(self.weights, first), depth=self.found.depth,
                positions=tile.count, row_step=windows[1],
            )  # fmt: skip
            if self.moved_by:
                w.micro(
                    "raot_add_windows_nhwc_s8", sums=self.sums, rows=windows[0],
                    by=self.moved_by, groups=groups, depth=self.found.depth,
                    positions=tile.count, row_step=windows[1],
                )  # fmt: skip
            yield first, groups, channels

    def _finish(self, tile: Tile, windows: tuple[Load, Dim]) -> None:
        """The statements that follow each sum."""
        w, found = self.w, self.found
        with self._sums(tile, windows) as (first, groups, channels), w.range("p", tile.count) as p:
            at, row = tile.at(w, p), p // 2 * groups * 8 + p % 2 * 4
            with w.range(found.own, channels) as c:
                value = Load(self.sums, (row + c // 4 * 4 + c,))
                w.finish(found.after, found.sum, value, {**at, found.own: first * 4 + c})

    def _scale(
        self, tile: Tile, at: dict[str, Dim], windows: tuple[Load, Dim], floats: _Floats
    ) -> None:
        """The floats of the sums."""
        w, own, scaled = self.w, self.found.own, floats.scaled
        by = scaled.operand(w)
        operands = [(scaled.scale, "scale"), (scaled.bias, "bias")]
        scale, bias = (in_memory(w, operand, name) for operand, name in operands)
        out_step = step_of(floats.store, self.last) * self.phases if self.last else ZERO
        with self._sums(tile, windows) as (first, _, channels):
            here, start = {**at, own: first * 4}, {}
            if self.starts is not None:
                start = {"start": self.pack.first(self.starts, first * 4)}
            w.micro(
                f"raot_scale_nhwc{'_from' if start else ''}_f32", out=moved(floats.store, here),
                sums=self.sums, **start, scale=moved(scale, here), bias=moved(bias, here), by=by,
                channels=channels, positions=tile.count, out_step=out_step,
                channel_step=step_of(floats.store, own),
                scale_step=step_along(scaled.scale, own), bias_step=step_along(scaled.bias, own),
            )  # fmt: skip

    def _bytes(
        self, tile: Tile, at: dict[str, Dim], windows: tuple[Load, Dim], one: Requantization
    ) -> None:
        w, found, rest = self.w, self.found, self.rest
        assert rest.store is not None
        store, channels, apart = direct_store(rest), found.channels, step_of(rest.store, found.own)

        def multiply(out: Callable[[Dim], Load], moves: tuple[Dim, Dim]) -> None:
            """`out`: where the byte of a channel goes; `moves`: from position to position, from
            channel to channel."""
            with self._sums(tile, windows) as (first, _, count):
                scales = self.pack.first(self.scales, first * (4 * len(one.numbers)))
                w.micro(
                    f"raot_requantize_nhwc_{one.form}{one.suffix}", out=out(first * 4),
                    sums=self.sums, scales=scales, channels=count, positions=tile.count,
                    out_step=moves[0], channel_step=moves[1], zero=one.zero, low=one.low,
                    high=one.high,
                )  # fmt: skip

        if store is not None and apart.is_constant and 0 < apart.constant <= MOST_APART:
            near = step_of(store, self.last) * self.phases if self.last else Dim.of(channels)
            moves = (near, apart)
            multiply(lambda c: moved(store, {**at, found.own: c}), moves)
            return
        at, by_position = {**at, found.own: ZERO}, apart == 1
        shape = (self.size, channels) if by_position else (channels, self.size)
        staged = w.buffer("staged", one.dtype, *shape)

        def staged_at(channel: Dim, position: Dim = ZERO) -> Load:
            return staged[(position, channel) if by_position else (channel, position)]

        moves = (Dim.of(channels), ONE) if by_position else (ONE, Dim.of(self.size))
        multiply(staged_at, moves)
        contiguous = store is not None and self.phases == 1 and stride(store, self.last) == 1
        if store is not None and contiguous:
            extents, steps = (Dim.of(channels), tile.count), (apart, moves[1])
            copy_lines(w, moved(store, at), staged_at(ZERO), extents, steps)
        elif not _add_quantized(self, staged, at, tile.count, by_position=by_position):
            tile.finish(w, rest, staged_at, rows=not by_position)


def _add_quantized(
    p: _Pairs, staged: Buffer, at: Mapping[str, Dim], count: Dim, *, by_position: bool
) -> bool:
    """Adds another quantized value to the staged ones, as the result."""
    found, added = p.found, quantized_add(p.rest)
    if added is None or not p.last or (p.phases > 1 and not by_position):
        return False
    places, channels = (added.store, added.other), Dim.of(found.channels)
    names = (p.last, found.own) if by_position else (found.own, p.last)
    (out, near), (other, near_too) = ([stride(place, name) for name in names] for place in places)
    if near != 1 or near_too != 1 or out is None or other is None:
        return False
    if p.joint and not found.joined(*places):
        return False
    out, other = out * p.phases, other * p.phases
    sizes: tuple[Dim, ...] = (count, channels, out, channels, other)
    if not by_position:
        sizes = (channels, count, out, Dim.of(p.size), other)
    elif out == channels == other:
        sizes = (ONE, count * channels, ZERO, ZERO, ZERO)
    p.w.micro(
        added.kernel, out=moved(added.store, at), a=staged, b=moved(added.other, at),
        **added.numbers,
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
    """Of each four channels: their starts, twice (0 where they are known while the model runs), and
    blocks of their weights."""
    shape, steps = (*p.pack.lead, p.groups), -(-p.found.depth // BLOCK)
    matrix = _in_lanes(p, p.pack.matrix(data) - p.moved_by).astype(np.int8)
    layout = permuted(p.pack.lead, (p.groups, steps, 4, BLOCK), (0, 2, 1, 3))
    blocks = layout.pack(padded(matrix, (*matrix.shape[:-1], steps * BLOCK)))
    starts = _in_lanes(p, p.pack.starts(data, p.found.flip) * (p.found.taken is None))
    parts = [starts.astype(np.int32), starts.astype(np.int32), blocks.view(np.int32)]
    return np.concatenate([part.reshape(*shape, -1) for part in parts], axis=-1)


def _scales(p: _Pairs, one: Requantization, data: Arrays) -> Array:
    """Multipliers and shifts as micro-kernels read them: four of each in turn."""
    table = _in_lanes(p, scale_table(one, p.pack.loops, data))
    layout = permuted(p.pack.lead, (p.groups, table.shape[-1], 4), (0, 2, 1))
    return layout.pack(table)


EXAMPLES = (
    Example(
        why="two rows of a matrix and four channels at a time",
        target="mve",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.groups: i32[1, 24]) ...
              for tile in 0..(n + 8) // 9 {
                let positions = min(9, n - 9*tile)
                micro raot_multiply_nhwc_s8(..., %x[9*tile, 0]) [1, 4, positions, 4]
            ...""",
    ),
    Example(
        why="rows of more than three vectors, the last one not whole",
        target="mve",
        before=LONG_SUMS,
        after="""
            kernel @dot(%x: i8[n, 50], %w.groups: i32[1, 72]) ...
              for tile in 0..(n + 8) // 9 {
                let positions = min(9, n - 9*tile)
                micro raot_im2col_nhwc_s8(%columns[0], ...
                micro raot_multiply_nhwc_s8(..., %columns[0]) [1, 50, positions, 50]
            ...""",
    ),
    Example(why="sums of three products are too short", target="mve", before=SHORT_SUMS),
)
