# SPDX-License-Identifier: Apache-2.0
"""Contractions of 8-bit weights for Arm's DSP extension, three positions and two channels at a
time. Cores without it multiply the elements of pairs (pair_sums.h).

Windows of up to twelve positions are gathered as pairs of 16-bit integers (`gather_pairs.h`).
Windows of three adjacent columns overlap there. Weights stay bytes, and each block of them is read
once for all positions. A contraction with one position takes four channels at a time. Where a few
weights without their zero point are no signed bytes, the lines of pairs that they multiply are
there once more, and take the rest of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dims import ONE, ZERO, Dim, interval
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.dsp_pairs import POSITIONS, WIDE
from relax_aot.scheduling.contraction import Weighted, follow, moved, step_of, stride, symbols_of
from relax_aot.scheduling.epilogue import Requantization, by_channel
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Arrays, Packed, padded, round_up
from relax_aot.scheduling.strategies._results import Results, Table
from relax_aot.scheduling.strategies._roles import Roles, roles_of
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, LINE_OF_ONE_CHANNEL, SHORT_SUMS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import WHOLE, Span, Tile, Weights, position_tiles, window
from relax_aot.scheduling.windows import Axis
from relax_aot.scheduling.writer import Writer

Steps = NDArray[np.int64]
CHANNELS = 32
"""Channels whose sums are kept at once."""
PANEL = 4096
"""Bytes of pairs at most for which more positions are computed at once."""
ROW_CHANNELS = 128
"""The same for a single position."""
REPEATED = 16
"""Lines of pairs at most that are there more than once, at most every third one."""


def pairs(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Three positions and two channels at a time."""
    if context.target.compact or context.lean:
        return None
    found = found.collapsed or found
    if found.channel is None or not found.has_depth(context.constants):
        return None
    fits = found.w.dtype is DType.I8 and found.w.buffer.name in context.balanced
    fits = fits and found.w_zero == 0
    if not fits and not context.calls:
        return None
    roles = roles_of(found)
    if roles is None:
        return None
    roles = _of_one_channel(found, roles)
    repeated = () if fits else _repeated(found, roles, context.calls)
    if repeated is None:
        return None
    one, rest = by_channel(found, context.constants) or (None, found)
    if rest.store is None or stride(rest.store, found.own) is None:
        one, rest = None, found
    return _Pairs(found, w, roles, repeated, one, rest, context).emit


def _repeated(
    found: Weighted, roles: Roles, calls: Sequence[Arrays]
) -> tuple[Sequence[int], ...] | None:
    """Lines of pairs that are there once more, twice more, ...; None if they are too many."""
    layout = _Layout(found, Weights(found, roles.order), roles)
    rests = [layout.steps(data) for data in calls]
    repeated: list[Sequence[int]] = []
    lines: Sequence[int] = range(layout.lines)
    while True:
        for rest in rests:
            _take(rest, lines)
        lines = sorted({int(line) for rest in rests for line in np.nonzero(rest)[-3]})
        if not lines:
            return tuple(repeated)
        repeated.append(lines)
        if sum(map(len, repeated)) > min(REPEATED, layout.lines // 3):
            return None


def _take(rest: Steps, lines: Sequence[int]) -> Steps:
    """What is closest to the rest of some lines, where the first of two channels and 256 times the
    second one have 16 bits. It is subtracted."""
    found = np.clip(rest[..., lines, :, :], -128, 127)
    first, second = found[..., 0::2, :, :, :], found[..., 1::2, :, :, :]
    np.maximum(second, np.where(first < 0, -127, -128), out=second)
    rest[..., lines, :, :] -= found
    return found


class _Layout:
    """`taps`: of a line of pairs; `lines`: of a window."""

    def __init__(self, found: Weighted, pack: Weights, roles: Roles) -> None:
        self.found, self.pack = found, pack
        self.taps = 1 if roles.column is None else found.counts[roles.column]
        self.lines = -(-found.depth // self.taps // 2)

    def steps(self, data: Arrays) -> Steps:
        """Weights of an even number of channels, by channel, line, tap, and half of a pair."""
        values, lead = self.pack.values(data), len(self.pack.lead)
        outer, channels = values.shape[:lead], self.found.channels
        values = values.reshape(*outer, channels, -1, self.taps)
        room = (*outer, round_up(channels, 4), self.lines * 2, self.taps)
        values = padded(values, room).reshape(*room[:-2], self.lines, 2, self.taps)
        return np.array(np.swapaxes(values, -1, -2), np.int64)


def _of_one_channel(found: Weighted, roles: Roles) -> Roles:
    """Windows of one channel that nothing cuts off have pairs of columns, as those of channels."""
    column = roles.column
    if column is None or roles.order != [column] or symbols_of(found.reductions[column]):
        return roles
    step = step_of(found.x, found.positions[-1].variable)
    return Roles(Axis(-1, None, None, 1, 1, 1, 0, ONE, step), None, None, column)


class _Pairs:
    """`one`: the epilogue, None where sums do not become bytes; `joint`: rows of positions follow
    each other; `row`: one position; `three`: windows of three adjacent columns that overlap;
    `lines`: of pairs, with the repeated ones; `part`: channels at once."""

    def __init__(
        self, found: Weighted, w: Writer, roles: Roles, repeated: tuple[Sequence[int], ...],
        one: Requantization | None, rest: Weighted, context: Context,
    ) -> None:  # fmt: skip
        self.found, self.w, self.roles, self.one, self.rest = found, w, roles, one, rest
        self.context, self.repeated = context, repeated
        self.pack = Weights(found, roles.order, *(one.loads if one else ()))
        self.last = found.positions[-1].variable if found.positions else ""
        places = [found.x, rest.store] if one and rest.store else [found.x]
        self.joint = roles.column is None and found.joined(*places)
        axis = roles.across
        self.row = interval(found.tiled(self.joint), w.bounds.open)[1] == 1
        self.layout = _Layout(found, self.pack, roles)
        self.taps = self.layout.taps
        self.lines = self.layout.lines + sum(map(len, repeated))
        overlap = (axis.taps, axis.stride, axis.dilation) == (3, 1, 1)
        overlap = overlap and roles.column is not None and not self.row
        self.most = self._most(overlap)
        self.block = self._block(overlap)
        self.row = self.row and self.block == 1  # rows of one position are columns of a block
        self.three = overlap and self.block == 1
        self.group = 4 if self.row else 2
        part = ROW_CHANNELS if self.row else CHANNELS * POSITIONS // self.most
        self.part = min(part, found.channels)
        self.direct = self._direct()

    def _direct(self) -> Store | None:
        """Where the sums of a row are stored as they are."""
        found, store = self.found, self.found.store
        fits = self.row and self.one is None and found.channels % self.group == 0
        if not fits or store is None or store.value != found.sum:
            return None
        near = stride(store, found.own) == 1
        return store if near and store.buffer.dtype is DType.I32 else None

    def _most(self, overlap: bool) -> int:
        """Positions at once: more where they are many, and their pairs take little memory."""
        pairs = self.lines * (WIDE + 2 if overlap else self.taps * WIDE)
        count = greatest(self.found.tiled(self.joint), self.w.bounds)
        if count <= POSITIONS // 2:  # several rows make a block
            count = greatest(self.found.position_count, self.w.bounds)
        return WIDE if pairs * 4 <= PANEL and count > POSITIONS else POSITIONS

    def _block(self, overlap: bool) -> int:
        """Rows of positions in one block: several short ones where results follow each other."""
        loops = self.found.positions
        if self.roles.column is None or len(loops) != 2 or not loops[1].stop.is_constant:
            return 1
        count = self.most // max(loops[1].stop.constant, 1)
        stores = [stmt for stmt in self.rest.after if isinstance(stmt, Store)]
        joined = len(stores) == len(self.rest.after) == 1 and follow(stores[0], loops[0], loops[1])
        return count if joined and count > 1 + overlap else 1

    @property
    def steps(self) -> int:
        """Pairs of weights of a channel."""
        return round_up(self.lines * self.taps, 2) if self.row else self.lines * self.taps

    def emit(self) -> None:
        found, w, pack = self.found, self.w, self.pack
        rows = round_up(found.channels, self.group)
        steps = (self.steps // 2, 2, 2, 2) if self.row else (self.steps, 2)
        shape = (*pack.lead, rows // self.group, *steps)
        self.weights = pack.buffer(w, "pairs", DType.I16, shape)
        w.constant(Packed(self.weights, self._packed))
        self.bias = pack.packed_starts(w, 0, self.group)
        table = Table(w, pack, self.one, self.context.calls) if self.one is not None else None
        self.results = Results(
            found, w, self.one, self.rest, table, self.part, 1 if self.row else self.most,
            self.joint, self.block > 1,
        )  # fmt: skip
        self.wide = 1 if self.row else self.most + 2 * self.three
        count = self.steps if self.row else self.lines * (1 if self.three else self.taps)
        self.pairs = w.buffer("pairs", DType.I16, count, self.wide, 2)
        if self.direct is None:
            size = round_up(self.part, self.group)
            self.sums = w.buffer("sums", DType.I32, size, 1 if self.row else self.most)
        if self.row and self.steps > self.lines * self.taps:
            for half in range(2):
                end = (Dim.of(self.steps - 1), ZERO, Dim.of(half))
                w.add(Store(self.pairs, end, Lit(0, DType.I16)))
        if self.block == 1:
            size = 1 if self.row else self.most
            with position_tiles(w, found, size, self.joint) as tile:
                at = tile.at(w)
                self._gather(at, tile.count, ZERO)
                self._repeat(tile.count)
                self._finish(tile, at)
            return
        outer, inner = found.positions
        tiles = w.tiles(("tile", "lines"), outer.stop, self.block)
        with w.nest(found.shared), tiles as (first, lines):
            with w.range("line", lines) as line:
                at = {outer.variable: first + line, inner.variable: ZERO}
                self._gather(at, inner.stop, line * inner.stop)
            tile = Tile(found, first * inner.stop, lines * inner.stop, {})
            self._repeat(tile.count)
            self._finish(tile, {outer.variable: first, inner.variable: ZERO})

    def _packed(self, data: Arrays) -> Array:
        """Weights of two channels in 16 bits: the first one, and 256 times the second one."""
        rest, lead = self.layout.steps(data), len(self.pack.lead)
        outer, channels = rest.shape[:lead], round_up(self.found.channels, self.group)
        rest = rest[..., :channels, :, :, :]
        every = (range(self.layout.lines), *self.repeated)
        parts = [_take(rest, lines) for lines in every]
        joined = np.concatenate(parts, -3).reshape(*outer, channels, -1, 2)
        steps = padded(joined, (*outer, channels, self.steps, 2))
        near = 2 if self.row else 1  # steps of two channels that follow each other
        groups = steps.reshape(*outer, -1, self.group // 2, 2, self.steps // near, near, 2)
        first, second = np.moveaxis(groups.astype(np.int64), -4, 0)
        both = np.swapaxes(first + 256 * second, -4, -3)
        return np.asarray(both.reshape([dim.constant for dim in self.weights.shape]))

    def _gather(self, at: Mapping[str, Dim], count: Dim, place: Dim) -> None:
        w, found, roles = self.w, self.found, self.roles
        inner = [level for level in (roles.line, roles.channel) if level is not None]
        spans, first = window(w, found, inner, at)
        known: dict[int | None, Span] = dict(zip(inner, spans, strict=True))
        line, channel = (known.get(level, WHOLE) for level in (roles.line, roles.channel))
        axis, lead, width, columns = roles.across, ZERO, count, count
        if roles.column is not None:
            lead, width = at[axis.variable] * axis.stride - axis.before, axis.size
            index = (ZERO if n == axis.dimension else dim for n, dim in enumerate(first.index))
            first = Load(first.buffer, tuple(index))
            columns = count + 2 * self.three
        w.micro(
            f"raot_gather_pairs_{found.suffix}", pairs=self.pairs[(ZERO, place, ZERO)], image=first,
            zero=found.x_zero, channels=channel.count,
            channel_step=ONE if roles.channel is None else channel.step, lines=line.count,
            first1=line.first, last1=line.last, line_step=line.step,
            taps=1 if self.three else self.taps, dilation=axis.dilation, columns=columns,
            first=lead, stride=axis.stride, width=width, column_step=axis.step, wide=self.wide,
        )  # fmt: skip

    def _repeat(self, count: Dim) -> None:
        """Copy the lines that are there more than once."""
        rows = 1 if self.three else self.taps
        for to, line in enumerate((n for lines in self.repeated for n in lines), self.layout.lines):
            with (
                self.w.range("tap", rows) as tap,
                self.w.range("column", count + 2 * self.three) as column,
                self.w.range("half", 2) as half,
            ):
                pair = Load(self.pairs, (tap + line * rows, column, half))
                self.w.add(Store(self.pairs, (tap + to * rows, column, half), pair))

    @contextmanager
    def _sums(self, count: Dim, at: Mapping[str, Dim]) -> Iterator[tuple[Dim, Dim]]:
        """The sums of some channels at a time; yields the first channel, and how many."""
        w, group = self.w, self.group
        with w.tiles(("part", "channels"), self.found.channels, self.part) as (first, channels):
            rows = w.short("rows", (channels + (group - 1)) // group * group)
            weights = self.pack.first(self.weights, w.short("group", first // group))
            bias = self.pack.first(self.bias, first)
            sums = moved(self.direct, {**at, self.found.own: first}) if self.direct else self.sums
            operands: dict[str, Load | Buffer | Dim | int] = {
                "sums": sums, "weights": weights, "pairs": self.pairs, "bias": bias,
                "channels": rows,
            }  # fmt: skip
            if self.row:
                w.micro("raot_multiply_pair_row", **operands, count=self.steps)
            else:
                wide = "_wide" if self.most == WIDE else ""
                name = f"raot_multiply_pairs_{3 if self.three else 1}{wide}"
                lines = self.lines if self.three else self.steps
                w.micro(name, **operands, positions=count, lines=lines)
            yield first, channels

    def _finish(self, tile: Tile, at: dict[str, Dim]) -> None:
        with self._sums(tile.count, at) as (first, channels):
            if self.direct is None:
                self.results.store(tile, at, self.sums[(ZERO, ZERO)], first, channels)


EXAMPLES = (
    Example(
        why="rows of a matrix, twelve at a time",
        target="dsp",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.pairs: i16[1, 2, 2], %w.bias: i32[2]) ...
            ...
                micro raot_gather_pairs_s8(...
                micro raot_multiply_pairs_1(...
            ...""",
    ),
    Example(
        why="windows of one channel, whose columns are pairs",
        target="dsp",
        before=LINE_OF_ONE_CHANNEL,
        after="""
            kernel @conv(%x: i8[n, 36], %w.pairs: i16[1, 4, 2], %w.bias: i32[2]) ...
            ...
                micro raot_multiply_pairs_1(...) [2, 8, 4]
            ...""",
    ),
    Example(why="sums of three products are too short", target="dsp", before=SHORT_SUMS),
)
