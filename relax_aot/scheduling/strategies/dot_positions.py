# SPDX-License-Identifier: Apache-2.0
"""Integer contractions whose vectors are output positions, contiguous in memory.

Windows are read from a strip: lines of the image with a border, in which every tap of every
position is a fixed distance away. Where windows are single elements as dense as positions, the
image itself is read. Convolutions with channels are tiles of weights by a panel of sixteen
positions; depthwise ones are sums of shifted strips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from math import prod

from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv, dim_min, interval, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, For, Load
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import COLUMNS, EIGHT
from relax_aot.scheduling.contraction import Weighted, moved, step_of, stride, suffix_of, symbols_of
from relax_aot.scheduling.epilogue import Requantization, direct_store, requantized
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, SHORT_SUMS
from relax_aot.scheduling.strategies.dot_channels import Form
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights, copy_lines, in_place
from relax_aot.scheduling.windows import LINE, Axis, axis_of, image_of
from relax_aot.scheduling.writer import Writer

MOST_BYTES = 5120
"""Of 8-bit values that wait for their lines."""
MOST_SUMS = 2048
"""Sums that are kept at once, where they become no bytes."""
MOST_POSITIONS = 256
MOST_PANEL = 16384
"""Bytes of panels that are multiplied at once."""
MOST_CHANNELS = 16
"""Of which sums are kept until they are bytes."""


def positions(form: Form, found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Tiles or shifted strips along positions."""
    p = _Positions(found, w, form, 1 if context.lean else form.panels)
    fits = form.takes(found) and found.has_depth(context.constants) and p.matches()
    return p.emit if fits else None


def _axis(found: Weighted, loop: For) -> Axis | None:
    axis = axis_of(found.x, loop, found.reductions, found.counts)
    known = axis is not None and axis.clips in ((False, False), (True, True)) and axis.step != 0
    return axis if known else None


@dataclass(frozen=True, slots=True)
class _Block:
    """Positions that are done at once: `high` lines from `line` on, `wide` positions from
    `first`, `count` with those between lines."""

    line: Dim
    high: Dim
    first: Dim
    wide: Dim
    count: Dim


class _Positions:
    """Loops over positions as lines of positions `across`, and `planes` of the image `plane_step`
    apart along a third reduction. `direct`: the image is read in place. `wide` positions are done
    at once, of `lines` lines or of one, `pitch` apart; `room` for all of them, and for sums of
    `high` channels that become bytes."""

    across: Axis
    down: Axis

    def __init__(self, found: Weighted, w: Writer, form: Form, panels: int) -> None:
        self.found, self.w, self.form, self.panels = found, w, form, panels
        self.tiled = found.channel is not None

    def matches(self) -> bool:
        found = self.found
        axes = [_axis(found, loop) for loop in found.positions[-2:]]
        if not axes or axes[-1] is None:
            return False
        self.across = across = axes[-1]
        self.down = down = (axes[0] if len(axes) > 1 else None) or LINE
        self.line, self.position = down.variable, across.variable
        along = [axis.reduction for axis in (down, across) if axis.reduction is not None]
        deep = [loop for loop in found.reductions if loop not in along]
        if len(deep) > 1 or symbols_of(*deep):
            return False
        self.order = [found.reductions.index(loop) for loop in (*deep, *along)]
        self.planes = found.counts[self.order[0]] if deep else 1
        self.plane_step = step_of(found.x, deep[0].variable) if deep else ZERO
        self.direct = across.reduction is None and across.stride == 1 and across.step == 1
        if self.direct and down.loop is not None:
            self.direct = down.reduction is None and down.step * down.stride == across.positions
        return True

    def emit(self) -> None:
        found, w, own = self.found, self.w, (self.down.loop, self.across.loop)
        self._pack()
        self.result = _requantized(self)
        loops = [*found.shared, *(loop for loop in found.positions if loop not in own)]
        with w.block() as body, w.nest(loops):
            self._allocate()
            _blocks(self)
        _offsets(self)
        w.add(*body)
        w.in_place = _in_place(self, loops)

    # Memory

    def _pack(self) -> None:
        found, w = self.found, self.w
        self.pack = Weights(found, self.order)
        self.depth = round_up(found.depth, self.form.group)
        if self.tiled:
            sizes = {"rows": found.channels, "depth": self.depth}
            self.weights = self.pack.packed(w, "rows", self.form.right, "left", sizes)
        else:
            name = f"raot_depthwise_positions_{found.suffix}"
            self.weights = self.pack.packed(w, "taps", name, "weights", {"taps": found.depth})
        self.bias = self.pack.packed_starts(w, self.form.flip(found) if self.tiled else 0)

    def _allocate(self) -> None:
        """How many lines and positions are done at once, and the memory that they take."""
        found, w, across = self.found, self.w, self.across.positions
        self.pitch = across if self.direct else across + self.across.overlap
        self.wide = self._most()
        self.lines = self._line_count()
        longest = greatest(across, w.bounds.open)
        self.whole = self.lines > 1 or longest <= self.wide
        several = dim_min(across, self.wide)
        if self.lines > 1:
            spare = EIGHT if self.result is None or not self.tiled else 0
            several = (self.lines - 1) * self.pitch + across + spare
        tiles = simplify(ceildiv(several, COLUMNS), w.bounds)
        self.room, self.high = tiles * COLUMNS, min(found.channels, MOST_CHANNELS)
        group, bytes_ = self.form.panel_group, self.tiled and self.result is not None
        panel = (self.depth // group, COLUMNS, group)
        small = MOST_PANEL // (prod(panel) * self.form.panel.bytes)
        self.panels = max(min(self.panels, small, greatest(tiles, w.bounds.open)), 1)
        panels = simplify(dim_min(tiles, self.panels), w.bounds)
        shape = (self.high, panels * COLUMNS) if bytes_ else (found.channels, self.room)
        self.sums = w.buffer("sums", DType.I32, *shape)
        self.offsets = w.buffer("offsets", DType.I32, found.depth)
        if self.tiled:
            self.panel = w.buffer("panel", self.form.panel, panels, *panel)
        if not self.direct:
            size = prod(self.strip_shape(self.lines), start=ONE) + COLUMNS
            self.strip = w.buffer("padded_rows", found.x.dtype, size)

    def _most(self) -> int:
        """Positions that are done at once."""
        direct = self.result is not None and self.direct and direct_store(self.result[1])
        if not self.tiled or direct:
            return MOST_POSITIONS
        kept = MOST_SUMS if self.result is None else MOST_BYTES
        most = min(kept // self.found.channels // COLUMNS * COLUMNS, MOST_POSITIONS)
        return max(most, COLUMNS)

    def _line_count(self) -> int:
        """As few lines at once as need hardly more tiles than the best number does."""
        bounds = self.w.bounds
        longest, widest = (greatest(dim, bounds) for dim in (self.pitch, self.across.positions))
        tallest = greatest(self.down.positions, bounds)
        most = max(1, min(tallest, self.wide // longest))
        if self.direct:
            return most

        def work(lines: int) -> int:
            """The cost of an image, about in instructions."""
            tiles = -(-((lines - 1) * longest + widest) // COLUMNS)
            tiles = tiles * self.found.depth * (5 * self.found.channels + 8) // 2
            *planes, high, _ = self.strip_shape(lines)
            strip = prod(planes, start=high).constant * (20 + longest // 4)
            return -(-tallest // lines) * (tiles + strip)

        best = min(map(work, range(1, most + 1)))
        return next(lines for lines in range(1, most + 1) if 20 * work(lines) <= 21 * best)

    def strip_shape(self, high: int) -> tuple[Dim, ...]:
        """Planes, phases of rows and of columns, lines, positions; for `high` lines."""
        down = self.down
        lines = high + down.overlap
        return (*map(Dim.of, (self.planes, down.phases, self.across.phases, lines)), self.pitch)

    def channels(self) -> AbstractContextManager[Dim]:
        """A loop over channels, if any; yields the channel."""
        found = self.found
        return self.w.range(found.own, found.channels) if self.tiled else nullcontext(ZERO)

    def begin(self, block: _Block, channel: Dim = ZERO) -> dict[str, Dim]:
        """The values of the nest's variables at the first position of a block."""
        return {self.position: block.first, self.line: block.line, self.found.own: channel}


def _requantized(p: _Positions) -> tuple[Requantization, Weighted] | None:
    """The epilogue, where it is the same at all positions."""
    result, names = requantized(p.found), (p.line, p.position, p.found.own)
    for load in result[0].loads if result else ():
        steps = [stride(load, name) for name in names]
        if steps[:2] != [ZERO, ZERO] or steps[2] not in (ZERO, ONE):
            return None
    return result


def _in_place(p: _Positions, loops: list[For]) -> tuple[tuple[str, str], ...]:
    """For windows that are the position itself, or a strip of whole images."""
    down = p.down
    if p.direct:
        own = (down.loop, p.across.loop)
        return in_place(p.found, [*loops, *(loop for loop in own if loop is not None)])
    rows = interval(down.positions, p.w.bounds.open)[1]
    return in_place(p.found, loops) if down.loop and rows <= p.lines else ()


def _offsets(p: _Positions) -> None:
    """The distance of each tap of a window from its first element."""
    down, across = p.down, p.across
    shape = p.strip_shape(p.lines)
    steps = [p.plane_step, ZERO, ZERO, ZERO]
    if p.direct:
        down = across = LINE
    else:
        steps = [prod(shape[at + 1 :], start=ONE) for at in range(4)]
    p.w.micro(
        "raot_tap_offsets", offsets=p.offsets, channels=shape[0], rows=down.taps,
        columns=across.taps, row_dilation=down.dilation, column_dilation=across.dilation,
        row_stride=down.stride, column_stride=across.stride, channel_step=steps[0],
        row_phase_step=steps[1], column_phase_step=steps[2], line_step=steps[3],
    )  # fmt: skip


# Loops


def _blocks(p: _Positions) -> None:
    """Some lines at a time: all of them, or pieces of one."""
    w, across = p.w, p.across.positions
    with w.tiles(("band", "height"), p.down.positions, p.lines) as (line, high):
        if not p.direct:
            _fill_strip(p, line)
        if p.whole:
            count = (high - 1) * p.pitch + across
            _emit_block(p, _Block(line, high, ZERO, across, count))
            return
        with w.tiles(("segment", "width"), across, p.wide) as (first, wide):
            _emit_block(p, _Block(line, ONE, first, wide, wide))


def _fill_strip(p: _Positions, line: Dim) -> None:
    """Copies the lines of the windows of some lines of positions, with their border."""
    found, down, across = p.found, p.down, p.across
    names = ("channels", "row_phases", "column_phases", "lines", "positions")
    p.w.micro(
        f"raot_padded_rows_{found.suffix}", strip=p.strip, image=image_of(found, (down, across)),
        zero=found.x_zero, row_stride=down.stride, column_stride=across.stride,
        top=simplify(line * down.stride - down.before, p.w.bounds), left=-across.before,
        image_rows=down.size, image_columns=across.size, channel_step=p.plane_step,
        row_step=down.step, column_step=across.step,
        **dict(zip(names, p.strip_shape(p.lines), strict=True)),
    )  # fmt: skip


def _emit_block(p: _Positions, block: _Block) -> None:
    """Bytes go straight to the result, or are staged for the statements that follow and for lines
    that are not adjacent in the result. Without channels, they only go to the result."""
    one, rest = p.result or (None, p.found)
    store, at = direct_store(rest), p.begin(block)
    names = (p.found.own, p.line, p.position)
    channel, line, near = (stride(store, name) if store else None for name in names)
    direct = store is not None and channel is not None and line is not None and near == 1
    if one is None or not (p.tiled or direct):
        _sums_of(p, block)
        _finish(p, block, p.found, p.sums)
        return
    if not direct:
        _finish(p, block, rest, _staged(p, block, one))
        return
    assert store is not None and channel is not None and line is not None
    if not p.tiled:
        _sums_of(p, block)
        _lanes(p, one, moved(store, at), at, (block.high, block.wide), (line, p.pitch))
    elif p.lines == 1 or line == block.wide == p.pitch:

        def out(channel: Dim, at: Dim) -> Load:
            begin = p.begin(block, channel)
            lines = at // p.pitch if p.lines > 1 else ZERO
            begin[p.position] += at - lines * p.pitch
            begin[p.line] += lines
            return moved(store, begin)

        _rescale(p, block, one, out, channel)
    else:
        staged = _staged(p, block, one)
        with p.channels() as channel:
            source, to = staged[(channel, ZERO)], moved(store, p.begin(block, channel))
            copy_lines(p.w, to, source, (block.high, block.wide), (line, p.pitch))


# Sums


def _source(p: _Positions, block: _Block, first: Dim) -> tuple[Load, Dim]:
    """The first tap of position `first` of a block, and how much may be read there."""
    found, at = p.found, block.first + first
    if not p.direct:
        return Load(p.strip, (at,)), p.strip.shape[0] - at
    origin = {loop.variable: ZERO for loop in found.reductions}
    origin |= {p.down.variable: block.line, p.across.variable: at}
    rest = (p.down.positions - block.line - 1) * p.pitch + p.across.positions - at
    return moved(found.x, origin), rest + p.plane_step * (p.planes - 1)


def _sums_of(p: _Positions, block: _Block) -> None:
    if p.tiled:
        with _panels(p, block) as (first, columns):
            _multiply(p, ZERO, Dim.of(p.found.channels), first, columns)
        return
    source, extent = _source(p, block, ZERO)
    p.w.micro(
        f"raot_depthwise_positions_{p.found.suffix}", sums=p.sums, strip=source,
        offsets=p.offsets, weights=p.pack.first(p.weights),
        bias=p.pack.first(p.bias), taps=p.found.depth,
        positions=simplify(block.count, p.w.bounds), extent=extent,
    )  # fmt: skip


@contextmanager
def _panels(p: _Positions, block: _Block) -> Iterator[tuple[Dim, Dim]]:
    """Some panels of the positions of a block at a time, gathered."""
    w, count = p.w, p.panels * COLUMNS
    with w.tiles(("tile", "columns"), block.count, count) as (first, columns):
        with w.tiles(("panel", "width"), columns, COLUMNS) as (at, width):
            source, extent = _source(p, block, first + at)
            w.micro(
                f"raot_panel_{p.form.suffix}_{p.found.suffix}",
                panel=Load(p.panel, (at // COLUMNS, ZERO, ZERO, ZERO)), image=source,
                offsets=p.offsets, depth=p.found.depth, columns=width, extent=extent,
            )  # fmt: skip
        yield first, columns


def _multiply(p: _Positions, channel: Dim, channels: Dim, first: Dim, columns: Dim) -> None:
    """Sums of some channels at the positions of the panel, from position `first` on."""
    p.w.micro(
        p.form.right, sums=Load(p.sums, (ZERO, first)),
        left=p.pack.first(p.weights, channel), right=p.panel,
        bias=p.pack.first(p.bias, channel), rows=channels, columns=columns,
        depth=p.depth, sum_step=p.sums.shape[1],
        bias_row=ONE, bias_column=ZERO,
    )  # fmt: skip


# The 8-bit epilogue


def _staged(p: _Positions, block: _Block, one: Requantization) -> Buffer:
    staged = p.w.buffer("staged", one.dtype, p.found.channels, p.room)
    _rescale(p, block, one, lambda channel, at: Load(staged, (channel, at)), staged.shape[1])
    return staged


def _rescale(
    p: _Positions, block: _Block, one: Requantization, out: Callable[[Dim, Dim], Load], apart: Dim
) -> None:
    """The bytes of a block. `out`: where that of a channel at a position goes; those of the
    next channel lie `apart` from it."""
    groups = p.w.tiles(("group", "channels"), p.found.channels, p.high)
    with _panels(p, block) as (first, columns), groups as (channel, channels):
        _multiply(p, channel, channels, ZERO, columns)
        steps = (apart, p.sums.shape[1])
        _lanes(p, one, out(channel, first), p.begin(block, channel), (channels, columns), steps)


def _lanes(
    p: _Positions,
    one: Requantization,
    out: Load,
    at: Mapping[str, Dim],
    extents: tuple[Dim, Dim],
    steps: tuple[Dim, Dim],
) -> None:
    """Rows and columns of sums to bytes, by vectors along columns; `at`: the variables at the
    first element; `steps`: from row to row of the result and of the sums."""
    form, shift = "i32" if one.shift else "f32", {"shift": one.shift} if one.shift else {}
    if isinstance(one.shift, Load):
        form, shift = "shifts", {"shifts": moved(one.shift, at)}
    own = step_of(one.loads[0], p.found.own) if p.tiled else ZERO
    p.w.micro(
        f"raot_rescale_{form}_{suffix_of(one.dtype)}", out=out, sums=p.sums,
        scale=moved(one.loads[0], at), rows=extents[0], columns=extents[1], out_step=steps[0],
        sum_step=steps[1], scale_step=own, zero=one.zero, **shift,
    )  # fmt: skip


# Other epilogues


def _finish(p: _Positions, block: _Block, found: Weighted, values: Buffer) -> None:
    """The statements that follow, for each of the numbers in a buffer."""
    w = p.w
    with p.channels() as channel, ExitStack() as loops:
        x, y = w.fresh("x"), w.fresh("y")
        line = loops.enter_context(w.loop(y, 0, block.high)) if p.lines > 1 else ZERO
        place = loops.enter_context(w.loop(x, 0, block.wide))
        at = {p.position: block.first + place, p.line: block.line + line, found.own: channel}
        value = Load(values, (channel, place + line * p.pitch))
        w.finish(found.after, found.sum, value, at)


EXAMPLES = (
    Example(
        why="four panels of sixteen positions at once, read from padded rows",
        target="host",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.rows: i8[2, 4], %w.bias: i32[2]) ...
              micro raot_tap_offsets(...
              micro raot_padded_rows_s8(...
            ...
                for tile in 0..(width + 63) // 64 {
                  let columns = ...
                  for panel_0 in 0..(columns + 15) // 16 {
            ...
                    micro raot_panel_dot4_u8_s8(...
                  }
                  micro raot_dot4_su(...
            ...""",
    ),
    Example(why="sums of three products are too short", target="host", before=SHORT_SUMS),
)
