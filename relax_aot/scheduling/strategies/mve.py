"""Integer contractions for Helium: VMLADAVA adds sixteen products.

Where sums become bytes, two output positions and four channels are done at once: windows in one
piece are read in place, others from a strip of image columns with a border, so that adjacent
windows reuse their overlapping columns. Other sums come from up to eight gathered rows of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from relax_aot.ir.dims import Dim, dim_min, interval
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
from relax_aot.scheduling.packing import Arrays, Packed, blocked, padded, permuted, round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, SHORT_SUMS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import (
    WHOLE,
    Span,
    Tile,
    Weights,
    copy_lines,
    fits_bytes,
    flip_of,
    has_depth,
    joined,
    position_tiles,
    rows_follow,
    shared_by,
    window,
)
from relax_aot.scheduling.windows import Axis, axis_of
from relax_aot.scheduling.writer import ONE, ZERO, Writer

SUMS = 1024
"""Bytes of sums and columns that are kept at once, if two positions do not take more."""
POSITIONS = 16
LEAST_GROUPS = 4
MOST_APART = 9362
"""How far channels of the result are apart at most: seven times that are 16 bits."""


# Windows that are gathered


@dataclass(frozen=True, slots=True)
class Roles:
    """The reduction loops by what windows do along them: `across` is the axis of the last loop
    over positions, where `column` moves and may be clipped; `line` may be clipped elsewhere;
    `channel` is never clipped."""

    across: Axis
    column: int | None
    line: int | None
    channel: int | None

    @property
    def inner(self) -> list[int]:
        return [level for level in (self.line, self.channel) if level is not None]


def roles_of(found: Weighted) -> Roles | None:
    if not found.positions or len(found.reductions) > 3:
        return None
    last = found.positions[-1]
    axis = axis_of(found.x, last, found.reductions, found.counts)
    if axis is None:
        return None
    column = None
    if axis.reduction is not None:
        column = found.reductions.index(axis.reduction)
        if clipped(axis.reduction) and axis.clips != (True, True):
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
    return Roles(axis, column, line, others[0] if others else None)


@dataclass(frozen=True, slots=True)
class _Image:
    """A window: its lines and channels, the element that its columns count from, the first
    column (`lead`), columns from position to position and from tap to tap, and the axis."""

    line: Span
    channel: Span
    first: Load
    lead: Dim
    pitch: int
    dilation: int
    width: Dim
    step: Dim


def _image_at(w: Writer, found: Weighted, roles: Roles, at: Mapping[str, Dim], rows: int) -> _Image:
    """The window at one position; `rows`: the width where it has no columns."""
    axis = roles.across
    spans, first = window(w, found, roles.inner, at)
    known = dict(zip(roles.inner, spans, strict=True))
    levels = (roles.line, roles.channel)
    line, channel = (WHOLE if level is None else known[level] for level in levels)
    if roles.column is None:
        step = step_of(found.x, axis.variable)
        return _Image(line, channel, first, ZERO, 1, 0, Dim.of(rows), step)
    index = (ZERO if n == axis.dimension else dim for n, dim in enumerate(first.index))
    lead = at[axis.variable] * axis.stride - axis.before
    first = Load(first.buffer, tuple(index))
    return _Image(line, channel, first, lead, axis.stride, axis.dilation, axis.size, axis.step)


# Rows of bytes


def rows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Up to eight positions, a gathered row of bytes each."""
    if found.channel is None or not fits_bytes(found):
        return None
    roles = roles_of(found)
    if roles is None or not has_depth(found, context.constants):
        return None
    return _Rows(found, w, roles).emit


@dataclass
class _Rows:
    found: Weighted
    w: Writer
    roles: Roles

    def emit(self) -> None:
        found, w, roles = self.found, self.w, self.roles
        order = [at for at in (roles.line, roles.column, roles.channel) if at is not None]
        assert found.channel is not None
        pack = Weights(found, shared_by(found, (found.w, found.start)), order)
        self.depth, channels = round_up(found.depth, BLOCK), round_up(found.channels, 4)
        weights = pack.packed_matrix(w, "blocks", DType.I8, (4, BLOCK))
        bias = pack.packed_starts(w, flip_of(found), 4)
        self.rows = w.buffer("rows", DType.I8, ROWS, self.depth)
        sums = w.buffer("sums", DType.I32, channels, ROWS)
        own, joint = found.channel.variable, roles.column is None and joined(found, found.x)
        with position_tiles(w, found, ROWS, joint) as tile:
            self._gather(tile.at(w), tile.count)
            w.micro(
                "raot_multiply_rows_s8", sums=sums, weights=pack.first(weights), rows=self.rows,
                bias=pack.first(bias), channels=channels, depth=self.depth, positions=tile.count,
            )  # fmt: skip
            with w.range(own, found.channel.stop) as channel, w.range("p", tile.count) as p:
                at = {**tile.at(w, p), own: channel}
                w.finish(found.after, found.sum, Load(sums, (channel, p)), at)

    def _gather(self, at: Mapping[str, Dim], count: Dim) -> None:
        found, taps, flip = self.found, self.roles.across.taps, flip_of(self.found)
        image = _image_at(self.w, found, self.roles, at, ROWS)
        line, depth = image.line, image.channel.count
        self.w.micro(
            f"raot_im2col_{found.suffix}", rows=self.rows, image=image.first,
            zero=found.x_zero - flip, flip=flip, depth=self.depth, positions=count, count0=depth,
            step0=image.channel.step, to0=1, count1=line.count, first1=line.first,
            last1=line.last, step1=line.step, to1=depth * taps, count2=taps, step2=image.step,
            to2=depth, lead=image.lead, apart=image.pitch, tap=image.dilation, width=image.width,
        )  # fmt: skip


# Two positions and four channels


def pairs(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Two positions and four channels at a time, where sums become bytes."""
    if found.channel is None or not fits_bytes(found):
        return None
    if not has_depth(found, context.constants):
        return None
    access, parts = _access(found), by_channel(found, context.constants)
    if access is None or parts is None or stride(parts[1].store, found.channel.variable) is None:
        return None
    return lambda: _emit_pairs(w, found, access, *parts)


@dataclass(frozen=True, slots=True)
class _Access:
    """`order` of the reductions in a window; `roles` of them where a strip is needed."""

    order: tuple[int, ...]
    roles: Roles | None


def _access(found: Weighted) -> _Access | None:
    if not found.clipped and not found.unsigned:
        steps = [stride(found.x, loop.variable) for loop in found.reductions]
        known = [step.constant if step is not None and step.is_constant else 0 for step in steps]
        order = sorted(range(len(known)), key=lambda at: -known[at])
        expected = 1
        for at in reversed(order):
            if known[at] != expected and found.counts[at] > 1:
                break
            expected *= found.counts[at]
        else:
            return _Access(tuple(order), None)
    roles = roles_of(found)
    if roles is None or (roles.column is not None and roles.across.dilation != 1):
        return None
    levels = (roles.column, roles.line, roles.channel)
    return _Access(tuple(at for at in levels if at is not None), roles)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """`lanes`: the channel of each lane of four, -1 for none; `size`: positions of a tile;
    `apart`: from channel to channel of the result; `joined`: rows follow each other."""

    w: Writer
    found: Weighted
    access: _Access
    one: Requantization
    rest: Weighted
    pack: Weights
    lanes: list[int]
    apart: Dim
    joined: bool
    size: int

    @property
    def groups(self) -> int:
        return len(self.lanes) // 4

    @property
    def last(self) -> str:
        """The variable of the last loop over positions."""
        return self.found.positions[-1].variable if self.found.positions else ""

    def part(self) -> int:
        """How many groups of channels at once have sums that are not too large: an even number,
        or all."""
        pair = (self.size + 1) // 2 * 32
        copied = _copied(self.found, self.access) * self.size
        most = max((SUMS - copied) // pair // 2 * 2, LEAST_GROUPS)
        if self.groups <= most:
            return self.groups
        return round_up(-(-self.groups // -(-self.groups // most)), 2)


def _copied(found: Weighted, access: _Access) -> int:
    """Bytes of the strip for each position, where positions share none."""
    return found.depth if access.roles and access.roles.column is None else 0


def _emit_pairs(
    w: Writer, found: Weighted, access: _Access, one: Requantization, rest: Weighted
) -> None:
    assert found.channel is not None
    pack = Weights(found, shared_by(found, (found.w, found.start, *one.loads)), access.order)
    lanes, roles = channel_order(found.channels), access.roles
    column = roles is not None and roles.column is not None
    joint = not column and joined(found, found.x, rest.store)
    positions = found.positions if joint else found.positions[-1:]
    count = prod((loop.stop for loop in positions), start=ONE)
    most = max(SUMS // (len(lanes) * 4 + _copied(found, access)) // 2 * 2, 2)
    size = max(1, min(most, POSITIONS, interval(count, w.bounds)[1]))
    apart = step_of(rest.store, found.channel.variable)
    p = _Pairs(w, found, access, one, rest, pack, lanes, apart, joint, size)
    words, width = 8 + round_up(found.depth, BLOCK), p.groups * 4 * one.parts
    stream = pack.buffer(w, "groups", DType.I32, (*pack.lead, p.groups, words))
    scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, width))
    w.constant(Packed(stream, lambda data: _stream(p, data)))
    w.constant(Packed(scales, lambda data: _scales(p, data)))
    sums = w.buffer("sums", DType.I32, (size + 1) // 2 * p.part() * 8)
    strip = None
    if roles is not None:
        columns = (size - 1) * roles.across.stride + roles.across.taps if column else size
        inner = prod(found.counts[at] for at in roles.inner)
        strip = w.buffer("strip", DType.I8, columns * inner)
    with position_tiles(w, found, size, joint) as tile:
        at = tile.at(w)
        rows, step = _window_rows(p, at, tile.count, strip)
        _emit_tile(p, tile, at, _Operands(stream, scales, sums, rows, step))


def _window_rows(
    p: _Pairs, at: Mapping[str, Dim], count: Dim, strip: Buffer | None
) -> tuple[Load, Dim]:
    """The window of the first position, and the distance of the next one."""
    w, found, roles = p.w, p.found, p.access.roles
    if roles is None or strip is None:
        origin = {**at, **{loop.variable: ZERO for loop in found.reductions}}
        return moved(found.x, origin), step_of(found.x, p.last) if p.last else ZERO
    image, flip = _image_at(w, found, roles, at, 0), flip_of(found)
    line, channel, column = image.line, image.channel, roles.column is not None
    columns = (count - 1) * image.pitch + roles.across.taps if column else count
    w.micro(
        f"raot_im2col_nhwc_{found.suffix}", strip=strip, image=image.first,
        zero=found.x_zero - flip,
        flip=flip, channels=channel.count, lines=line.count, first1=line.first, last1=line.last,
        channel_step=ONE if roles.channel is None else channel.step, line_step=line.step,
        columns=columns, first=image.lead, width=image.width if column else count,
        column_step=image.step,
    )  # fmt: skip
    return strip[(ZERO,)], Dim.of(image.pitch * channel.count * line.count)


@dataclass(frozen=True, slots=True)
class _Operands:
    weights: Buffer
    scales: Buffer
    sums: Buffer
    rows: Load
    step: Dim


def _emit_tile(p: _Pairs, tile: Tile, at: Mapping[str, Dim], operands: _Operands) -> None:
    w, found, rest = p.w, p.found, p.rest
    assert found.channel is not None
    own, store, channels = found.channel.variable, direct_store(rest), Dim.of(found.channels)
    at = {**at, own: ZERO}
    near = p.apart.is_constant and 0 < p.apart.constant <= MOST_APART
    if store is not None and near:
        moves = (step_of(store, p.last) if p.last else channels, p.apart)
        _multiply(p, tile, operands, lambda c: moved(store, {**at, own: c}), moves)
        return
    by_position = p.apart == 1
    shape = (p.size, found.channels) if by_position else (found.channels, p.size)
    staged = w.buffer("staged", p.one.dtype, *shape)

    def staged_at(channel: Dim, position: Dim = ZERO) -> Load:
        return staged[(position, channel) if by_position else (channel, position)]

    moves = (channels, ONE) if by_position else (ONE, Dim.of(p.size))
    _multiply(p, tile, operands, staged_at, moves)
    if store is not None and p.last and stride(store, p.last) == 1:
        copy_lines(
            w, moved(store, at), staged_at(ZERO), (channels, tile.count), (p.apart, moves[1])
        )
    elif not _add_quantized(p, staged, at, tile.count):
        with w.range("p", tile.count) as position:
            place = tile.at(w, position)
            with w.range(own, channels) as channel:
                value = staged_at(channel, position)
                w.finish(rest.after, rest.sum, value, {**place, own: channel})


def _multiply(
    p: _Pairs,
    tile: Tile,
    operands: _Operands,
    out: Callable[[Dim], Load],
    moves: tuple[Dim, Dim],
) -> None:
    """The sums of a tile and their bytes, some groups of channels at a time. `out`: where the
    byte of a channel goes; `moves`: from position to position and from channel to channel."""
    w, one, part, channels = p.w, p.one, p.part(), Dim.of(p.found.channels)
    with w.tiles(("part", "groups"), p.groups, part) as (first, groups):
        if part < p.groups:
            channels = w.short("channels", dim_min(channels - first * 4, part * 4))
        w.micro(
            "raot_multiply_nhwc_s8", sums=operands.sums, rows=operands.rows, groups=groups,
            weights=p.pack.first(operands.weights, first), depth=p.found.depth,
            positions=tile.count, row_step=operands.step,
        )  # fmt: skip
        w.micro(
            f"raot_requantize_nhwc_{one.form}{one.suffix}", out=out(first * 4), sums=operands.sums,
            scales=p.pack.first(operands.scales, first * (4 * one.parts)), channels=channels,
            positions=tile.count, out_step=moves[0], channel_step=moves[1], zero=one.zero,
            low=one.low, high=one.high,
        )  # fmt: skip


def _add_quantized(p: _Pairs, staged: Buffer, at: Mapping[str, Dim], count: Dim) -> bool:
    """Adds another quantized value to the staged ones, as the result."""
    found, added = p.found, quantized_add(p.rest)
    if added is None or not p.last or found.channel is None:
        return False
    positions = (added.store, added.other)
    steps = [
        [stride(place, name) for name in (found.channel.variable, p.last)] for place in positions
    ]
    inner, outer = (0, 1) if p.apart == 1 else (1, 0)
    if any(step[inner] != 1 for step in steps):
        return False
    if p.joined and not all(rows_follow(found, place) for place in positions):
        return False
    out, other = steps[0][outer], steps[1][outer]
    if out is None or other is None:
        return False
    channels = Dim.of(found.channels)
    sizes: tuple[Dim, ...] = (count, channels, out, channels, other)
    if p.apart != 1:
        sizes = (channels, count, out, Dim.of(p.size), other)
    elif out == channels == other:
        sizes = (ONE, count * channels, ZERO, ZERO, ZERO)
    names = ("rows", "columns", "out_step", "a_step", "b_step")
    p.w.micro(
        "raot_qadd_s8", out=moved(added.store, at), a=staged, b=moved(added.other, at),
        by_a=added.by, by_b=added.by_other, more=added.more, shift=added.shift,
        **dict(zip(names, sizes, strict=True)),
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
    lead, depth = p.pack.lead, -(-p.found.depth // BLOCK)
    matrix = _in_lanes(p, p.pack.matrix(data)).astype(np.int8)
    layout = blocked(lead, (p.groups, depth), (4, BLOCK))
    blocks = layout.pack(padded(matrix, (*lead, p.groups * 4, depth * BLOCK)))
    starts = _in_lanes(p, p.pack.starts(data, flip_of(p.found)))
    starts_of_lanes = starts.astype(np.int32).reshape(*lead, p.groups, 4)
    weights = blocks.view(np.int32).reshape(*lead, p.groups, -1)
    return np.concatenate([starts_of_lanes, starts_of_lanes, weights], axis=-1)


def _scales(p: _Pairs, data: Arrays) -> Array:
    """Multipliers and shifts as micro-kernels read them: four of each in turn."""
    table = _in_lanes(p, scale_table(p.one, p.pack.loops, data))
    return permuted(p.pack.lead, (p.groups, table.shape[-1], 4), (0, 2, 1)).pack(table)


EXAMPLES = (
    Example(
        why="eight rows of a matrix at a time",
        target="mve",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.blocks: i8[1, 1, 4, 16], %w.start: i32[4]) ...
              for tile in 0..(n + 7) // 8 {
                let positions = min(8, n - 8*tile)
                micro raot_im2col_s8(...
                micro raot_multiply_rows_s8(...) [4, 16, positions]
            ...""",
    ),
    Example(why="sums of three products are too short", target="mve", before=SHORT_SUMS),
)
