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

from relax_aot.ir.dims import Dim, interval, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, For, Load, Store, expressions
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import COLUMNS
from relax_aot.scheduling.contraction import BYTES, Weighted, moved, step_of, stride
from relax_aot.scheduling.dot_memory import Grid, Positions, allocate, grid_of, strip_shape
from relax_aot.scheduling.epilogue import Requantization, direct_store, requantized
from relax_aot.scheduling.packing import round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, SHORT_SUMS
from relax_aot.scheduling.strategies.dot_channels import DOT4_I8, Form
from relax_aot.scheduling.targets import Context, Emit, Strategy
from relax_aot.scheduling.weighted import (
    Weights,
    copy_lines,
    flip_of,
    has_depth,
    in_place,
    rescale,
    shared_by,
)
from relax_aot.scheduling.writer import ONE, ZERO, Writer

NARROW = 12
"""Lines shorter than this are finished as one."""


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
        grid = grid_of(found)
        if grid is None or not form.takes(found) or not has_depth(found, context.constants):
            return None
        return lambda: _emit(w, found, grid, form)

    return match


def _emit(w: Writer, found: Weighted, grid: Grid, form: Form) -> None:
    own = (grid.deep, *(axis.reduction for axis in grid.axes))
    order = [found.reductions.index(loop) for loop in own if loop is not None]
    pack = Weights(found, shared_by(found, (found.w, found.start)), order)
    if found.channel is not None:
        weights = pack.packed_matrix(w, "rows", form.dtype, (1, form.group))
        bias = pack.packed_starts(w, flip_of(found) if form == DOT4_I8 else 0)
    else:
        weights = pack.packed_matrix(w, "taps", DType.I16, (1, 2))
        bias = pack.packed_starts(w, 0)
    p = Positions(found, w, grid, form, pack, weights, bias, _requantized(found, grid))
    loops = [*found.shared, *grid.outer]
    with w.block() as body, w.nest(loops):
        allocate(p)
        _blocks(p)
    _offsets(p)
    w.add(*body)
    w.in_place = _in_place(p, loops)


def _requantized(found: Weighted, grid: Grid) -> tuple[Requantization, Weighted] | None:
    """The epilogue, where it is the same at all positions."""
    result = requantized(found)
    if result is None:
        return None
    names = {axis.variable for axis in grid.axes}
    own = found.channel.variable if found.channel is not None else ""
    for load in result[0].loads:
        step = stride(load, own) if own else ZERO
        if step not in (ZERO, ONE) or any(stride(load, name) != 0 for name in names):
            return None
    return result


def _in_place(p: Positions, loops: list[For]) -> tuple[tuple[str, str], ...]:
    """For windows that are the position itself, or a strip of whole images."""
    down, bounds = p.grid.down, p.w.bounds.open
    if p.grid.direct:
        own = [axis.loop for axis in p.grid.axes]
        return in_place(p.found, [*loops, *(loop for loop in own if loop is not None)])
    whole = down is not None and interval(down.positions, bounds)[1] <= p.lines
    return in_place(p.found, loops) if whole else ()


def _offsets(p: Positions) -> None:
    """The distance of each tap of a window from its first element."""
    grid, down, across = p.grid, p.grid.down, p.grid.across
    shape = strip_shape(p, p.lines)
    rows, columns = (1, 1, 1), (1, 1, 1)
    steps = [step_of(p.found.x, grid.deep.variable) if grid.deep else ZERO, *[ZERO] * 3]
    if not grid.direct:
        columns = (across.taps, across.dilation, across.stride)
        steps = [prod(shape[at + 1 :], start=ONE) for at in range(4)]
        if down is not None:
            rows = (down.taps, down.dilation, down.stride)
    p.w.micro(
        "raot_tap_offsets", offsets=p.offsets, channels=shape[0], rows=rows[0],
        columns=columns[0], row_dilation=rows[1], column_dilation=columns[1],
        row_stride=rows[2], column_stride=columns[2], channel_step=steps[0],
        row_phase_step=steps[1], column_phase_step=steps[2], line_step=steps[3],
    )  # fmt: skip


# Loops


def _blocks(p: Positions) -> None:
    down, w = p.grid.down, p.w
    if down is None:
        _pieces(p, ZERO, ONE)
        return
    with w.tiles(("block", "high"), down.positions, p.lines) as (line, high):
        _pieces(p, line, high)


def _pieces(p: Positions, line: Dim, high: Dim) -> None:
    """All of some lines, or pieces of one."""
    across, w = p.grid.across.positions, p.w
    if not p.grid.direct:
        _fill_strip(p, line)
    if p.lines > 1 or p.widest <= p.wide:
        _block(p, _Block(line, high, ZERO, across, p.pitch))
        return
    with w.tiles(("piece", "wide"), across, p.wide) as (first, wide):
        _block(p, _Block(line, ONE, first, wide, p.pitch))


def _fill_strip(p: Positions, line: Dim) -> None:
    """Copies the lines of the windows of some lines of positions, with their border."""
    found, grid, down, across = p.found, p.grid, p.grid.down, p.grid.across
    names = ("channels", "row_phases", "column_phases", "lines", "positions")
    top = ZERO if down is None else line * down.stride - down.before
    p.w.micro(
        f"raot_padded_rows_{found.suffix}", strip=p.strip, image=_image(p), zero=found.x_zero,
        row_stride=1 if down is None else down.stride, column_stride=across.stride,
        top=simplify(top, p.w.bounds), left=-across.before,
        image_rows=ONE if down is None else down.size, image_columns=across.size,
        channel_step=step_of(found.x, grid.deep.variable) if grid.deep else ZERO,
        row_step=ZERO if down is None else down.step, column_step=across.step,
        **dict(zip(names, strip_shape(p, p.lines), strict=True)),
    )  # fmt: skip


def _image(p: Positions) -> Load:
    """The first element of the image that the positions lie in."""
    own = {axis.dimension for axis in p.grid.axes}
    load = moved(p.found.x, {loop.variable: ZERO for loop in p.found.reductions})
    index = (ZERO if at in own else dim for at, dim in enumerate(load.index))
    return Load(load.buffer, tuple(index))


def _source(p: Positions, block: _Block, first: Dim) -> tuple[Load, Dim]:
    """The first tap of position `first` of a block, and how much may be read there."""
    grid, found = p.grid, p.found
    if not grid.direct:
        at = block.first + first
        return Load(p.strip, (at,)), p.strip.shape[0] - at
    origin = {loop.variable: ZERO for loop in found.reductions}
    origin[grid.across.variable] = block.first + first
    rest = grid.across.positions - block.first - first
    if grid.down is not None:
        origin[grid.down.variable] = block.line
        rest = rest + (grid.down.positions - block.line - 1) * p.pitch
    if grid.deep is not None:
        count = found.counts[found.reductions.index(grid.deep)]
        rest = rest + step_of(found.x, grid.deep.variable) * (count - 1)
    return moved(found.x, origin), rest


def _block(p: Positions, block: _Block) -> None:
    if p.result is not None:
        _bytes(p, block, *p.result)
        return
    _sums_of(p, block)
    single = block.high == 1 and p.lines == 1
    longest = interval(block.pitch, p.w.bounds)[1]
    store = _uniform(p)
    if single or store is None or longest >= NARROW:
        _finish(p, block, p.found, p.sums)
    else:
        _finish_lines(p, block, store)


# Sums


def _sums_of(p: Positions, block: _Block) -> None:
    if p.tiled:
        with _panels(p, block) as (first, columns):
            _multiply(p, ZERO, Dim.of(p.found.channels), first, columns)
        return
    source, extent = _source(p, block, ZERO)
    p.w.micro(
        f"raot_depthwise_positions_{p.found.suffix}", sums=p.sums, strip=source,
        offsets=p.offsets, weights=p.pack.first(p.weights),
        bias=p.pack.first(p.bias), taps=p.found.depth,
        positions=simplify(block.positions, p.w.bounds), extent=extent,
    )  # fmt: skip


@contextmanager
def _panels(p: Positions, block: _Block) -> Iterator[tuple[Dim, Dim]]:
    """Panels of the positions of a block, gathered."""
    with p.w.tiles(("tile", "columns"), block.positions, COLUMNS) as (first, columns):
        source, extent = _source(p, block, first)
        p.w.micro(
            f"raot_panel_{p.form.suffix}_{p.found.suffix}", panel=p.panel,
            image=source, offsets=p.offsets, depth=p.found.depth, columns=columns,
            extent=extent,
        )  # fmt: skip
        yield first, columns


def _multiply(p: Positions, channel: Dim, channels: Dim, first: Dim, columns: Dim) -> None:
    """Sums of some channels at the positions of the panel, from position `first` on."""
    p.w.micro(
        f"raot_{p.form.suffix}", sums=Load(p.sums, (ZERO, first)),
        left=p.pack.first(p.weights, channel), right=p.panel,
        bias=p.pack.first(p.bias, channel), rows=channels, columns=columns,
        depth=round_up(p.found.depth, p.form.group), sum_step=p.sums.shape[1],
        bias_row=ONE, bias_column=ZERO,
    )  # fmt: skip


# The 8-bit epilogue


def _bytes(p: Positions, block: _Block, one: Requantization, rest: Weighted) -> None:
    """Straight to the result, or staged for the statements that follow."""
    store, down = direct_store(rest), p.grid.down
    loops = (p.found.channel, down.loop if down else None, p.grid.across.loop)
    known = [stride(store, lp.variable) if store and lp else ZERO for lp in loops]
    apart, line_step = known[0], known[1]
    if store is None or known[2] != 1 or apart is None or line_step is None:
        staged = _staged(p, block, one)
        _finish(p, block, rest, staged)
        return
    if p.lines > 1 and not line_step == block.wide == block.pitch:
        _bytes_by_line(p, block, one, store, line_step)
        return

    def out(channel: Dim, position: Dim) -> Load:
        at = _begin(p, block, channel)
        line = position // block.pitch if p.lines > 1 else ZERO
        at[p.grid.across.variable] += position - line * block.pitch
        if down is not None:
            at[down.variable] += line
        return moved(store, at)

    _rescale(p, block, one, out, apart)


def _begin(p: Positions, block: _Block, channel: Dim) -> dict[str, Dim]:
    """The values of the nest's variables at the first position of a block."""
    at = {p.grid.across.variable: block.first}
    if p.grid.down is not None:
        at[p.grid.down.variable] = block.line
    if p.found.channel is not None:
        at[p.found.channel.variable] = channel
    return at


def _staged(p: Positions, block: _Block, one: Requantization) -> Buffer:
    staged = p.w.buffer("staged", one.dtype, p.found.channels, p.room)
    _rescale(p, block, one, lambda channel, at: Load(staged, (channel, at)), p.room)
    return staged


def _rescale(
    p: Positions,
    block: _Block,
    one: Requantization,
    out: Callable[[Dim, Dim], Load],
    apart: Dim,
) -> None:
    """The bytes of a block. `out`: where that of a channel at a position goes; those of the
    next channel lie `apart` from it."""
    w, found = p.w, p.found
    if not p.tiled:
        _sums_of(p, block)
        extents = (ONE, simplify(block.positions, w.bounds))
        at, none = _begin(p, block, ZERO), (ZERO, ZERO)
        rescale(w, one, out(ZERO, ZERO), p.sums, extents, none, at, ZERO)
        return
    assert found.channel is not None
    own = step_of(one.scale_load, found.channel.variable)
    names = ("group", "channels")
    with (
        _panels(p, block) as (first, columns),
        w.tiles(names, found.channels, p.high) as (channel, channels),
    ):
        _multiply(p, channel, channels, ZERO, columns)
        at, steps = _begin(p, block, channel), (apart, Dim.of(COLUMNS))
        to = out(channel, first)
        rescale(w, one, to, p.sums, (channels, columns), steps, at, own)


def _bytes_by_line(
    p: Positions, block: _Block, one: Requantization, store: Store, line_step: Dim
) -> None:
    """Lines that are not adjacent in the result."""
    w, extents, steps = p.w, (block.high, block.wide), (line_step, block.pitch)
    if not p.tiled:
        _sums_of(p, block)
        at = _begin(p, block, ZERO)
        rescale(w, one, moved(store, at), p.sums, extents, steps, at, ZERO)
        return
    staged = _staged(p, block, one)
    with _channels(p) as (channel, _):
        to, source = moved(store, _begin(p, block, channel)), Load(staged, (channel, ZERO))
        copy_lines(p.w, to, source, extents, steps)


# Other epilogues


@contextmanager
def _channels(p: Positions) -> Iterator[tuple[Dim, dict[str, Dim]]]:
    """A loop over channels, if any; yields the channel and the variable's value."""
    own = p.found.channel
    if own is None:
        yield ZERO, {}
        return
    with p.w.range(own.variable, own.stop) as channel:
        yield channel, {own.variable: channel}


def _finish(p: Positions, block: _Block, found: Weighted, values: Buffer) -> None:
    """The statements that follow, for each of the numbers in a buffer."""
    w, down, across = p.w, p.grid.down, p.grid.across
    several = down is not None and p.lines > 1
    with _channels(p) as (channel, at), ExitStack() as loops:
        x, y = w.names.fresh("x"), w.names.fresh("y")
        line = loops.enter_context(w.loop(y, 0, block.high)) if several else ZERO
        place = loops.enter_context(w.loop(x, 0, block.wide))
        at[across.variable] = block.first + place
        if down is not None:
            at[down.variable] = block.line + line
        value = Load(values, (channel, place + line * block.pitch))
        w.finish(found.after, found.sum, value, at)


def _uniform(p: Positions) -> Store | None:
    """The store of a byte that differs between positions by its sum alone."""
    names = {axis.variable for axis in p.grid.axes}
    stores = [stmt for stmt in p.found.after if isinstance(stmt, Store)]
    if len(stores) != 1 or p.found.after[-1] != stores[0]:
        return None
    read = (expr for stmt in p.found.after for expr in expressions(stmt))
    if any(isinstance(e, Load) and any(d.symbols & names for d in e.index) for e in read):
        return None
    fits = stores[0].buffer.dtype in BYTES and stride(stores[0], p.grid.across.variable) == 1
    return stores[0] if fits else None


def _finish_lines(p: Positions, block: _Block, store: Store) -> None:
    """All positions of some lines as one row, those between lines included."""
    w, down, across = p.w, p.grid.down, p.grid.across
    assert down is not None
    staged = w.buffer("staged", store.buffer.dtype, p.room)
    with _channels(p) as (channel, at):
        with w.range("p", simplify(block.positions, w.bounds)) as at_p:
            flat = [Store(staged, (at_p,), s.value) if s is store else s for s in p.found.after]
            w.finish(flat, p.found.sum, Load(p.sums, (channel, at_p)), at)
        step = step_of(store, down.variable)
        to = moved(store, {**at, down.variable: block.line, across.variable: ZERO})
        extents, steps = (block.high, block.wide), (step, block.pitch)
        if step == block.wide == block.pitch:
            extents, steps = (ONE, block.high * block.wide), (ZERO, ZERO)
        copy_lines(p.w, to, Load(staged, (ZERO,)), extents, steps)


EXAMPLES = (
    Example(
        why="panels of sixteen positions, read from a strip",
        target="host",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.rows: i16[2, 4], %w.start: i32[2]) ...
              micro raot_tap_offsets(...
              micro raot_padded_rows_s8(...
            ...
                for tile in 0..(wide + 15) // 16 {
            ...
                  micro raot_panel_dot2_i16_s8(...
                  micro raot_dot2_i16(...
            ...""",
    ),
    Example(why="sums of three products are too short", target="host", before=SHORT_SUMS),
)
