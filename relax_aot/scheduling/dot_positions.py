"""Integer contractions whose vectors are output positions, contiguous in memory.

Windows are read from a strip: lines of the image with a border, in which every tap of every
position is a fixed distance away. Where windows are single elements as dense as positions, the
image itself is read. Convolutions with channels are tiles of weights by a panel of sixteen
positions; depthwise ones are sums of shifted strips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from relax_aot.ir.dims import Dim, ceildiv, interval, simplify
from relax_aot.ir.loops import Buffer, For, Load, Store, expressions
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import COLUMNS, EIGHT
from relax_aot.scheduling.contraction import BYTES, Weighted, clipped, moved, step_of, stride
from relax_aot.scheduling.dot_channels import FOURS, Form
from relax_aot.scheduling.epilogue import Requantization, direct_store, requantized
from relax_aot.scheduling.packing import round_up
from relax_aot.scheduling.targets import Context, Emit, Strategy
from relax_aot.scheduling.weighted import (
    Weights,
    flip_of,
    has_depth,
    in_place,
    rescale,
    shared_by,
)
from relax_aot.scheduling.windows import Axis, axis_of
from relax_aot.scheduling.writer import ONE, ZERO, Writer

MOST_BYTES = 5120
"""Of 8-bit values that wait for their lines."""
MOST_SUMS = 2048
"""Sums that are kept at once, where they become no bytes."""
MOST_POSITIONS = 256
MOST_CHANNELS = 16
"""Of which sums are kept until they are bytes."""
NARROW = 12
"""Lines shorter than this are finished as one."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """Loops over positions as lines (one at least) of positions, and the reduction that is
    along neither. `direct`: the image is read in place."""

    outer: tuple[For, ...]
    down: Axis | None
    across: Axis
    deep: For | None
    direct: bool

    @property
    def axes(self) -> list[Axis]:
        return [axis for axis in (self.down, self.across) if axis is not None]


def _grid(found: Weighted) -> _Grid | None:
    axes = [_axis(found, loop) for loop in found.positions[-2:]]
    if not axes or axes[-1] is None:
        return None
    across, down = axes[-1], axes[0] if len(axes) > 1 else None
    along = [axis.reduction for axis in (down, across) if axis is not None]
    deep = [loop for loop in found.reductions if loop not in along]
    if len(deep) > 1 or any(clipped(loop) for loop in deep):
        return None
    outer = found.positions[: -1 if down is None else -2]
    direct = across.reduction is None and across.stride == 1 and across.step == 1
    if direct and down is not None:
        direct = down.reduction is None and down.step * down.stride == across.positions
    return _Grid(outer, down, across, deep[0] if deep else None, direct)


def _axis(found: Weighted, loop: For) -> Axis | None:
    axis = axis_of(found.x, loop, found.reductions, found.counts)
    known = axis is not None and axis.clips in ((False, False), (True, True)) and axis.step != 0
    return axis if known else None


@dataclass(frozen=True, slots=True)
class _Block:
    """Positions that are done at once: `high` lines from `line` on, `wide` positions from
    `first`; lines lie `pitch` apart among the sums."""

    line: Dim
    high: Dim
    first: Dim
    wide: Dim
    pitch: Dim

    @property
    def positions(self) -> Dim:
        return (self.high - 1) * self.pitch + self.wide


def positions_of(form: Form) -> Strategy:
    """Tiles or shifted strips along positions."""

    def match(found: Weighted, w: Writer, context: Context) -> Emit | None:
        grid = _grid(found)
        if grid is None or not form.takes(found) or not has_depth(found, context.constants):
            return None
        return _Positions(found, w, grid, form).emit

    return match


@dataclass
class _Positions:
    found: Weighted
    w: Writer
    grid: _Grid
    form: Form

    def emit(self) -> None:
        found, w, grid, form = self.found, self.w, self.grid, self.form
        self.tiled = found.channel is not None
        own = (grid.deep, *(axis.reduction for axis in grid.axes))
        order = [found.reductions.index(loop) for loop in own if loop is not None]
        pack = self.pack = Weights(found, shared_by(found, (found.w, found.start)), order)
        group = form.group if self.tiled else 2
        dtype, suffix = (form.dtype, "rows") if self.tiled else (DType.I16, "taps")
        self.weights = pack.packed_matrix(w, suffix, dtype, (1, group))
        offset = flip_of(found) if form == FOURS and self.tiled else 0
        self.bias = pack.packed_starts(w, offset)
        self.result = self._requantized()
        loops = [*found.shared, *grid.outer]
        with w.block() as body, w.nest(loops):
            self._allocate()
            self._blocks()
        self._offsets()
        w.add(*body)
        w.in_place = self._in_place(loops)

    def _requantized(self) -> tuple[Requantization, Weighted] | None:
        """The epilogue, where it is the same at all positions."""
        result = requantized(self.found)
        if result is None:
            return None
        names = {axis.variable for axis in self.grid.axes}
        own = self.found.channel.variable if self.found.channel is not None else ""
        for load in result[0].loads:
            step = stride(load, own) if own else ZERO
            if step not in (ZERO, ONE) or any(stride(load, name) != 0 for name in names):
                return None
        return result

    def _in_place(self, loops: list[For]) -> tuple[tuple[str, str], ...]:
        """For windows that are the position itself, or a strip of whole images."""
        down, bounds = self.grid.down, self.w.bounds.open
        if self.grid.direct:
            own = [axis.loop for axis in self.grid.axes]
            return in_place(self.found, [*loops, *(loop for loop in own if loop is not None)])
        whole = down is not None and interval(down.positions, bounds)[1] <= self.lines
        return in_place(self.found, loops) if whole else ()

    # Memory

    def _allocate(self) -> None:
        """How many lines and positions are done at once, and the memory that they take."""
        found, w, grid = self.found, self.w, self.grid
        across = grid.across.positions
        self.pitch = across if grid.direct else across + grid.across.overlap
        self.wide = self._most()
        self.widest = max(interval(across, w.bounds.open)[1], 1)
        self.lines = self._line_count()
        self.room = Dim.of(round_up(min(self.wide, self.widest), COLUMNS))
        if self.lines > 1:
            spare = EIGHT if self.result is None or not self.tiled else 0
            several = (self.lines - 1) * self.pitch + across + spare
            self.room = simplify(ceildiv(several, COLUMNS) * COLUMNS, w.bounds)
        self.high = min(found.channels, MOST_CHANNELS)
        if not self.tiled:
            shape = (ONE, self.room)
        elif self.result is None:
            shape = (Dim.of(found.channels), self.room)
        else:
            shape = (Dim.of(self.high), Dim.of(COLUMNS))
        self.sums = w.buffer("sums", DType.I32, *shape)
        self.offsets = w.buffer("offsets", DType.I32, found.depth)
        if self.tiled:
            group = self.form.group
            steps = round_up(found.depth, group) // group
            self.panel = w.buffer("panel", self.form.dtype, steps, COLUMNS, group)
        if not grid.direct:
            size = prod(self._strip_shape(self.lines), start=ONE) + COLUMNS
            self.strip = w.buffer("strip", found.x.dtype, size)

    def _most(self) -> int:
        """Positions that are done at once."""
        direct = self.result is not None and self.grid.direct and direct_store(self.result[1])
        if not self.tiled or direct:
            return MOST_POSITIONS
        kept = MOST_SUMS if self.result is None else MOST_BYTES
        most = min(kept // self.found.channels // COLUMNS * COLUMNS, MOST_POSITIONS)
        return max(most, COLUMNS)

    def _line_count(self) -> int:
        """As few lines at once as need hardly more tiles than the best number does."""
        grid, bounds = self.grid, self.w.bounds
        longest = max(interval(self.pitch, bounds)[1], 1)
        widest = max(interval(grid.across.positions, bounds)[1], 1)
        tallest = 1 if grid.down is None else max(interval(grid.down.positions, bounds)[1], 1)
        most = max(1, min(tallest, self.wide // longest))
        if grid.direct:
            return most
        work = [self._work(lines, tallest, longest, widest) for lines in range(1, most + 1)]
        return next(at for at, one in enumerate(work, 1) if 20 * one <= 21 * min(work))

    def _work(self, lines: int, tallest: int, longest: int, widest: int) -> int:
        """The cost of an image, about in instructions."""
        tiles = -(-((lines - 1) * longest + widest) // COLUMNS)
        tiles = tiles * self.found.depth * (5 * self.found.channels + 8) // 2
        *planes, high, _ = self._strip_shape(lines)
        strip = prod(planes, start=high).constant * (20 + longest // 4)
        return -(-tallest // lines) * (tiles + strip)

    def _strip_shape(self, high: int) -> tuple[Dim, ...]:
        """Channels, phases of rows and of columns, lines, positions; for `high` lines."""
        found, grid = self.found, self.grid
        deep = 1 if grid.deep is None else found.counts[found.reductions.index(grid.deep)]
        rows, lines = 1, 1
        if grid.down is not None:
            rows, lines = grid.down.phases, high + grid.down.overlap
        return (*map(Dim.of, (deep, rows, grid.across.phases, lines)), self.pitch)

    def _offsets(self) -> None:
        """The distance of each tap of a window from its first element."""
        grid, down, across = self.grid, self.grid.down, self.grid.across
        shape = self._strip_shape(self.lines)
        rows, columns = (1, 1, 1), (1, 1, 1)
        steps = [step_of(self.found.x, grid.deep.variable) if grid.deep else ZERO, *[ZERO] * 3]
        if not grid.direct:
            columns = (across.taps, across.dilation, across.stride)
            steps = [prod(shape[at + 1 :], start=ONE) for at in range(4)]
            if down is not None:
                rows = (down.taps, down.dilation, down.stride)
        self.w.micro(
            "raot_offsets", offsets=self.offsets, channels=shape[0], rows=rows[0],
            columns=columns[0], row_dilation=rows[1], column_dilation=columns[1],
            row_stride=rows[2], column_stride=columns[2], channel_step=steps[0],
            row_phase_step=steps[1], column_phase_step=steps[2], line_step=steps[3],
        )  # fmt: skip

    # Loops

    def _blocks(self) -> None:
        down, w = self.grid.down, self.w
        if down is None:
            self._pieces(ZERO, ONE)
            return
        with w.tiles(("block", "high"), down.positions, self.lines) as (line, high):
            self._pieces(line, high)

    def _pieces(self, line: Dim, high: Dim) -> None:
        """All of some lines, or pieces of one."""
        across, w = self.grid.across.positions, self.w
        if not self.grid.direct:
            self._fill_strip(line)
        if self.lines > 1 or self.widest <= self.wide:
            self._block(_Block(line, high, ZERO, across, self.pitch))
            return
        with w.tiles(("piece", "wide"), across, self.wide) as (first, wide):
            self._block(_Block(line, ONE, first, wide, self.pitch))

    def _fill_strip(self, line: Dim) -> None:
        """Copies the lines of the windows of some lines of positions, with their border."""
        found, grid, down, across = self.found, self.grid, self.grid.down, self.grid.across
        names = ("channels", "row_phases", "column_phases", "lines", "places")
        top = ZERO if down is None else line * down.stride - down.before
        self.w.micro(
            f"raot_strip_{found.suffix}", strip=self.strip, image=self._image(), zero=found.x_zero,
            row_stride=1 if down is None else down.stride, column_stride=across.stride,
            top=simplify(top, self.w.bounds), left=-across.before,
            image_rows=ONE if down is None else down.size, image_columns=across.size,
            channel_step=step_of(found.x, grid.deep.variable) if grid.deep else ZERO,
            row_step=ZERO if down is None else down.step, column_step=across.step,
            **dict(zip(names, self._strip_shape(self.lines), strict=True)),
        )  # fmt: skip

    def _image(self) -> Load:
        """The first element of the image that the positions lie in."""
        own = {axis.dimension for axis in self.grid.axes}
        load = moved(self.found.x, {loop.variable: ZERO for loop in self.found.reductions})
        index = (ZERO if at in own else dim for at, dim in enumerate(load.index))
        return Load(load.buffer, tuple(index))

    def _source(self, block: _Block, first: Dim) -> tuple[Load, Dim]:
        """The first tap of position `first` of a block, and how much may be read there."""
        grid, found = self.grid, self.found
        if not grid.direct:
            at = block.first + first
            return Load(self.strip, (at,)), self.strip.shape[0] - at
        origin = {loop.variable: ZERO for loop in found.reductions}
        origin[grid.across.variable] = block.first + first
        rest = grid.across.positions - block.first - first
        if grid.down is not None:
            origin[grid.down.variable] = block.line
            rest = rest + (grid.down.positions - block.line - 1) * self.pitch
        if grid.deep is not None:
            count = found.counts[found.reductions.index(grid.deep)]
            rest = rest + step_of(found.x, grid.deep.variable) * (count - 1)
        return moved(found.x, origin), rest

    def _block(self, block: _Block) -> None:
        if self.result is not None:
            self._bytes(block, *self.result)
            return
        self._sums_of(block)
        single = block.high == 1 and self.lines == 1
        longest = interval(block.pitch, self.w.bounds)[1]
        store = self._uniform()
        if single or store is None or longest >= NARROW:
            self._finish(block, self.found, self.sums)
        else:
            self._finish_lines(block, store)

    # Sums

    def _sums_of(self, block: _Block) -> None:
        if self.tiled:
            with self._panels(block) as (first, columns):
                self._multiply(ZERO, Dim.of(self.found.channels), first, columns)
            return
        source, extent = self._source(block, ZERO)
        self.w.micro(
            f"raot_depthwise_places_{self.found.suffix}", sums=self.sums, strip=source,
            offsets=self.offsets, weights=self.pack.first(self.weights),
            bias=self.pack.first(self.bias), taps=self.found.depth,
            places=simplify(block.positions, self.w.bounds), extent=extent,
        )  # fmt: skip

    @contextmanager
    def _panels(self, block: _Block) -> Iterator[tuple[Dim, Dim]]:
        """Panels of the positions of a block, gathered."""
        with self.w.tiles(("tile", "columns"), block.positions, COLUMNS) as (first, columns):
            source, extent = self._source(block, first)
            self.w.micro(
                f"raot_panel_{self.form.suffix}_{self.found.suffix}", panel=self.panel,
                image=source, offsets=self.offsets, depth=self.found.depth, columns=columns,
                extent=extent,
            )  # fmt: skip
            yield first, columns

    def _multiply(self, channel: Dim, channels: Dim, first: Dim, columns: Dim) -> None:
        """Sums of some channels at the positions of the panel, from position `first` on."""
        self.w.micro(
            f"raot_tile_{self.form.suffix}", sums=Load(self.sums, (ZERO, first)),
            left=self.pack.first(self.weights, channel), right=self.panel,
            bias=self.pack.first(self.bias, channel), rows=channels, columns=columns,
            depth=round_up(self.found.depth, self.form.group), sum_step=self.sums.shape[1],
            bias_row=ONE, bias_column=ZERO,
        )  # fmt: skip

    # The 8-bit epilogue

    def _bytes(self, block: _Block, one: Requantization, rest: Weighted) -> None:
        """Straight to the result, or staged for the statements that follow."""
        store, down = direct_store(rest), self.grid.down
        loops = (self.found.channel, down.loop if down else None, self.grid.across.loop)
        known = [stride(store, lp.variable) if store and lp else ZERO for lp in loops]
        apart, line_step = known[0], known[1]
        if store is None or known[2] != 1 or apart is None or line_step is None:
            staged = self._staged(block, one)
            self._finish(block, rest, staged)
            return
        if self.lines > 1 and not line_step == block.wide == block.pitch:
            self._bytes_by_line(block, one, store, line_step)
            return

        def out(channel: Dim, position: Dim) -> Load:
            at = self._begin(block, channel)
            line = position // block.pitch if self.lines > 1 else ZERO
            at[self.grid.across.variable] += position - line * block.pitch
            if down is not None:
                at[down.variable] += line
            return moved(store, at)

        self._rescale(block, one, out, apart)

    def _begin(self, block: _Block, channel: Dim) -> dict[str, Dim]:
        """The values of the nest's variables at the first position of a block."""
        at = {self.grid.across.variable: block.first}
        if self.grid.down is not None:
            at[self.grid.down.variable] = block.line
        if self.found.channel is not None:
            at[self.found.channel.variable] = channel
        return at

    def _staged(self, block: _Block, one: Requantization) -> Buffer:
        staged = self.w.buffer("staged", one.dtype, self.found.channels, self.room)
        self._rescale(block, one, lambda channel, at: Load(staged, (channel, at)), self.room)
        return staged

    def _rescale(
        self,
        block: _Block,
        one: Requantization,
        out: Callable[[Dim, Dim], Load],
        apart: Dim,
    ) -> None:
        """The bytes of a block. `out`: where that of a channel at a position goes; those of the
        next channel lie `apart` from it."""
        w, found = self.w, self.found
        if not self.tiled:
            self._sums_of(block)
            extents = (ONE, simplify(block.positions, w.bounds))
            at, none = self._begin(block, ZERO), (ZERO, ZERO)
            rescale(w, one, out(ZERO, ZERO), self.sums, extents, none, at, ZERO)
            return
        assert found.channel is not None
        own = step_of(one.scale_load, found.channel.variable)
        names = ("group", "channels")
        with (
            self._panels(block) as (first, columns),
            w.tiles(names, found.channels, self.high) as (channel, channels),
        ):
            self._multiply(channel, channels, ZERO, columns)
            at, steps = self._begin(block, channel), (apart, Dim.of(COLUMNS))
            to = out(channel, first)
            rescale(w, one, to, self.sums, (channels, columns), steps, at, own)

    def _bytes_by_line(
        self, block: _Block, one: Requantization, store: Store, line_step: Dim
    ) -> None:
        """Lines that are not adjacent in the result."""
        w, extents, steps = self.w, (block.high, block.wide), (line_step, block.pitch)
        if not self.tiled:
            self._sums_of(block)
            at = self._begin(block, ZERO)
            rescale(w, one, moved(store, at), self.sums, extents, steps, at, ZERO)
            return
        staged = self._staged(block, one)
        with self._channels() as (channel, _):
            to, source = moved(store, self._begin(block, channel)), Load(staged, (channel, ZERO))
            self._copy_lines(to, source, extents, steps)

    def _copy_lines(
        self, to: Load, source: Load, extents: tuple[Dim, Dim], steps: tuple[Dim, Dim]
    ) -> None:
        names = ("rows", "columns", "to_step", "from_step")
        arguments: dict[str, Load | Dim] = {"to": to, "from": source}
        arguments |= zip(names, (*extents, *steps), strict=True)
        self.w.micro(f"raot_lines_{'u8' if to.dtype is DType.U8 else 's8'}", **arguments)

    # Other epilogues

    @contextmanager
    def _channels(self) -> Iterator[tuple[Dim, dict[str, Dim]]]:
        """A loop over channels, if any; yields the channel and the variable's value."""
        own = self.found.channel
        if own is None:
            yield ZERO, {}
            return
        with self.w.range(own.variable, own.stop) as channel:
            yield channel, {own.variable: channel}

    def _finish(self, block: _Block, found: Weighted, values: Buffer) -> None:
        """The statements that follow, for each of the numbers in a buffer."""
        w, down, across = self.w, self.grid.down, self.grid.across
        several = down is not None and self.lines > 1
        with self._channels() as (channel, at), ExitStack() as loops:
            x, y = w.names.fresh("x"), w.names.fresh("y")
            line = loops.enter_context(w.loop(y, 0, block.high)) if several else ZERO
            place = loops.enter_context(w.loop(x, 0, block.wide))
            at[across.variable] = block.first + place
            if down is not None:
                at[down.variable] = block.line + line
            value = Load(values, (channel, place + line * block.pitch))
            w.finish(found.after, found.sum, value, at)

    def _uniform(self) -> Store | None:
        """The store of a byte that differs between positions by its sum alone."""
        names = {axis.variable for axis in self.grid.axes}
        stores = [stmt for stmt in self.found.after if isinstance(stmt, Store)]
        if len(stores) != 1 or self.found.after[-1] != stores[0]:
            return None
        read = (expr for stmt in self.found.after for expr in expressions(stmt))
        if any(isinstance(e, Load) and any(d.symbols & names for d in e.index) for e in read):
            return None
        fits = stores[0].buffer.dtype in BYTES and stride(stores[0], self.grid.across.variable) == 1
        return stores[0] if fits else None

    def _finish_lines(self, block: _Block, store: Store) -> None:
        """All positions of some lines as one row, those between lines included."""
        w, down, across = self.w, self.grid.down, self.grid.across
        assert down is not None
        staged = w.buffer("staged", store.buffer.dtype, self.room)
        with self._channels() as (channel, at):
            with w.range("p", simplify(block.positions, w.bounds)) as p:
                flat = [Store(staged, (p,), s.value) if s is store else s for s in self.found.after]
                w.finish(flat, self.found.sum, Load(self.sums, (channel, p)), at)
            step = step_of(store, down.variable)
            to = moved(store, {**at, down.variable: block.line, across.variable: ZERO})
            extents, steps = (block.high, block.wide), (step, block.pitch)
            if step == block.wide == block.pitch:
                extents, steps = (ONE, block.high * block.wide), (ZERO, ZERO)
            self._copy_lines(to, Load(staged, (ZERO,)), extents, steps)
