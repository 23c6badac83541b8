"""Integer contractions whose vectors are places of the output, side by side in memory.

Windows are read from a strip: lines of the image with a frame around them, in which every tap
of every place lies a fixed distance away. Where windows are single elements that lie as places
do, the image itself is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_min, interval, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Micro, Stmt, Store, expressions
from relax_aot.ir.micro_rescale import EIGHT
from relax_aot.ir.micro_tiles import COLUMNS, up
from relax_aot.ir.types import DType
from relax_aot.scheduling.integer_match import Contraction, depends, stride
from relax_aot.scheduling.integer_parts import (
    FOURS,
    Arrays,
    Derived,
    Form,
    Written,
    clipped_along,
    extent,
    finish,
    less_of_bytes,
    shared_by,
    starts_known,
    starts_of,
    weights_of,
)
from relax_aot.scheduling.integer_requantize import (
    Requantized,
    split_any,
    steps_of,
    stored_at,
    straight,
)
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient

LEAST_DEPTH = 4
MOST_SUMS = 8192
"""Sums that are kept at once."""
MOST_PLACES = 256
NARROW = 12
"""Lines shorter than this are finished as one."""
ZERO, ONE = Dim.of(0), Dim.of(1)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the image and a loop along it: place i and tap k lie at
    `stride * i + dilation * k - before` of `size`, elements `step` apart."""

    loop: For
    level: int | None
    taps: int
    stride: int
    dilation: int
    before: int
    size: Dim
    step: Dim

    @property
    def phases(self) -> int:
        """How many of `stride` windows reach."""
        return min(self.stride, (self.taps - 1) * self.dilation + 1)

    def frame(self, places: Dim) -> Dim:
        """Elements of one phase that so many places cover."""
        return places + (self.taps - 1) * self.dilation // self.stride


def axis_of(what: Contraction, loop: For) -> Axis | None:
    """None where the loop moves windows along several axes, or they are cut off elsewhere than
    at the ends of one."""
    load = what.x.load
    own = [at for at, dim in enumerate(load.index) if loop.variable in dim.symbols]
    if len(own) != 1:
        return None
    dim = load.index[own[0]]
    levels = [n for n, level in enumerate(what.levels) if level.variable in dim.symbols]
    step = coefficient(dim, loop.variable)
    if len(levels) > 1 or step is None or step < 1:
        return None
    taps, dilation, rest = 1, 1, dim.substitute({loop.variable: ZERO})
    if levels:
        level = what.levels[levels[0]]
        found = coefficient(dim, level.variable)
        if found is None or found < 1 or not clipped_along(what, levels[0], loop, own[0]):
            return None
        taps, dilation = what.counts[levels[0]], found
        rest = rest.substitute({level.variable: ZERO})
    if not rest.is_constant:
        return None
    shape = load.buffer.shape
    apart = prod(shape[own[0] + 1 :], start=ONE)
    at = levels[0] if levels else None
    return Axis(loop, at, taps, step, dilation, -rest.constant, shape[own[0]], apart)


@dataclass(frozen=True, slots=True)
class Grid:
    """Loops over places as lines (one at least) of places, and the level that is neither."""

    outer: tuple[For, ...]
    down: Axis | None
    across: Axis
    deep: int | None
    direct: bool
    """Whether the image is read where it is: places lie side by side, lines one after another."""


def grid_of(what: Contraction) -> Grid | None:
    if not what.places:
        return None
    across = axis_of(what, what.places[-1])
    down = axis_of(what, what.places[-2]) if len(what.places) > 1 else None
    if across is None:
        return None
    if down is not None and down.step * down.stride == 0:
        down = None
    taken = {axis.level for axis in (across, down) if axis is not None}
    deep = [n for n in range(len(what.levels)) if n not in taken]
    cut = [n for n in deep if what.levels[n].start.symbols | what.levels[n].stop.symbols]
    if len(deep) > 1 or cut:
        return None
    outer = what.places[: -1 if down is None else -2]
    direct = across.level is None and across.stride == 1 and across.step == 1
    if direct and down is not None:
        direct = down.level is None and down.step * down.stride == across.loop.stop
    return Grid(tuple(outer), down, across, deep[0] if deep else None, direct)


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    depth = int(np.prod(what.counts))
    return depth >= LEAST_DEPTH and starts_known(what, constants) and grid_of(what) is not None


def write(what: Contraction, names: Names, bounds: Bounds, form: Form) -> Written:
    """Of several channels, tiles; of one, sums of shifted strips."""
    grid = grid_of(what)
    assert grid is not None
    writer = _Places if what.channel is not None else _OfOneChannel
    return writer(what, names, grid, form).write(bounds)


@dataclass(frozen=True, slots=True)
class _Block:
    """Places that are done at once: `high` lines from `line` on, `wide` places from `first`;
    lines lie `pitch` apart among the sums."""

    line: Dim
    high: Dim
    first: Dim
    wide: Dim
    pitch: Dim

    @property
    def places(self) -> Dim:
        return (self.high - 1) * self.pitch + self.wide


@dataclass
class _Places:
    what: Contraction
    names: Names
    grid: Grid
    form: Form

    @property
    def depth(self) -> int:
        return int(np.prod(self.what.counts))

    @property
    def channels(self) -> int:
        return 1 if self.what.channel is None else extent(self.what.channel)

    def write(self, bounds: Bounds) -> Written:
        what, grid = self.what, self.grid
        loops = [*what.shared, *grid.outer]
        for loop in loops:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        self.outer = shared_by(what, (what.w.load, what.start))
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        self.weights, self.bias = self._constants(lead)
        self.scratch: list[Buffer] = []
        self._sizes(bounds)
        body = self._blocks(bounds)
        for loop in reversed(loops):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        derived = [Derived(self.weights, self._weights), Derived(self.bias, self._bias)]
        return Written([*self._where(), *body], self.scratch, derived)

    # Memory

    def _buffer(self, name: str, dtype: DType, *shape: Dim | int) -> Buffer:
        sizes = tuple(Dim.of(size) if isinstance(size, int) else size for size in shape)
        buffer = Buffer(self.names.fresh(name), dtype, sizes)
        self.scratch.append(buffer)
        return buffer

    def _constants(self, lead: tuple[Dim, ...]) -> tuple[Buffer, Buffer]:
        name, rows = self.what.w.load.buffer.name, Dim.of(self.channels)
        shape = (*lead, rows, Dim.of(up(self.depth, self.form.group)))
        weights = Buffer(self.names.fresh(f"{name}.rows"), self.form.dtype, shape)
        return weights, Buffer(self.names.fresh(f"{name}.start"), DType.I32, (*lead, rows))

    def _sizes(self, bounds: Bounds) -> None:
        """How many lines and places are done at once, and the memory that they take."""
        grid = self.grid
        most = max(min(MOST_SUMS // self.channels // COLUMNS * COLUMNS, MOST_PLACES), COLUMNS)
        across = grid.across.loop.stop
        self.pitch = across if grid.direct else grid.across.frame(across)
        longest = max(interval(self.pitch, bounds)[1], 1)
        tallest = 1
        if grid.down is not None:
            tallest = max(interval(grid.down.loop.stop, bounds)[1], 1)
        self.lines = max(1, min(tallest, most // longest))
        self.wide = most
        widest = max(interval(across, bounds)[1], 1)
        several = self.lines * longest + EIGHT
        self.room = up(several if self.lines > 1 else min(most, widest), COLUMNS)
        self.sums = self._buffer("sums", DType.I32, self.channels, self.room)
        self.offsets = self._buffer("offsets", DType.I32, self.depth)
        self._operand()
        if not grid.direct:
            size = prod(self._strip_shape(), start=ONE) + COLUMNS
            self.strip = self._buffer("strip", self.what.x.load.dtype, size)

    def _operand(self) -> None:
        group = self.form.group
        shape = (up(self.depth, group) // group, COLUMNS, group)
        self.panel = self._buffer("panel", self.form.dtype, *shape)

    def _strip_shape(self) -> tuple[Dim, ...]:
        """Channels, phases of rows and of columns, lines, places."""
        grid = self.grid
        deep = 1 if grid.deep is None else self.what.counts[grid.deep]
        rows, lines = 1, ONE
        if grid.down is not None:
            rows, lines = grid.down.phases, grid.down.frame(Dim.of(self.lines))
        return (Dim.of(deep), Dim.of(rows), Dim.of(grid.across.phases), lines, self.pitch)

    def _where(self) -> list[Stmt]:
        """Where the taps of a window lie."""
        grid, what = self.grid, self.what
        deep = ONE if grid.deep is None else Dim.of(what.counts[grid.deep])
        at = Load(self.offsets, (ZERO,))
        if grid.direct:
            apart = ZERO if grid.deep is None else stride(what.x.load, self._variable(grid.deep))
            assert apart is not None
            sizes = (deep, ONE, ONE, ONE, ONE, ONE, ONE, apart, ZERO, ZERO, ZERO)
            return [Micro("raot_offsets", (at,), sizes)]
        shape = self._strip_shape()
        steps = [prod(shape[n + 1 :], start=ONE) for n in range(4)]
        rows = (1, 1, 1)
        if grid.down is not None:
            rows = (grid.down.taps, grid.down.dilation, grid.down.stride)
        columns = (grid.across.taps, grid.across.dilation, grid.across.stride)
        pairs = (Dim.of(n) for pair in zip(rows, columns, strict=True) for n in pair)
        return [Micro("raot_offsets", (at,), (deep, *pairs, *steps))]

    def _variable(self, level: int) -> str:
        return self.what.levels[level].variable

    # Loops

    def _blocks(self, bounds: Bounds) -> list[Stmt]:
        down = self.grid.down
        if down is None:
            return self._pieces(ZERO, ONE, bounds)
        body: list[Stmt] = []
        count = simplify(ceildiv(down.loop.stop, self.lines), bounds)
        if count == 1:
            return self._pieces(ZERO, down.loop.stop, bounds)
        block = self.names.fresh("block")
        inner = over(bounds, block, ZERO, count)
        line = Dim.of(block) * self.lines
        high = simplify(dim_min(down.loop.stop - line, self.lines), inner)
        high, inner = named("high", high, self.names, inner, body)
        body += self._pieces(line, high, inner)
        return [For(block, ZERO, count, tuple(body))]

    def _pieces(self, line: Dim, high: Dim, bounds: Bounds) -> list[Stmt]:
        """All of some lines, or pieces of one."""
        across = self.grid.across.loop.stop
        result = self._frame(line, bounds)
        if self.lines > 1 or interval(across, bounds)[1] <= self.wide:
            return result + self._block(_Block(line, high, ZERO, across, self.pitch), bounds)
        piece = self.names.fresh("piece")
        count = ceildiv(across, self.wide)
        inner = over(bounds, piece, ZERO, count)
        body: list[Stmt] = []
        first = Dim.of(piece) * self.wide
        wide = simplify(dim_min(across - first, self.wide), inner)
        wide, inner = named("wide", wide, self.names, inner, body)
        body += self._block(_Block(line, ONE, first, wide, self.pitch), inner)
        return [*result, For(piece, ZERO, count, tuple(body))]

    def _frame(self, line: Dim, bounds: Bounds) -> list[Stmt]:
        """The strip of the windows of some lines."""
        grid, what = self.grid, self.what
        if grid.direct:
            return []
        down, across = grid.down, grid.across
        top, row_stride, rows, row_step = ZERO, 1, ONE, ZERO
        if down is not None:
            top, row_stride = line * down.stride - down.before, down.stride
            rows, row_step = down.size, down.step
        deep = ZERO if grid.deep is None else stride(what.x.load, self._variable(grid.deep))
        assert deep is not None
        sizes = (
            Dim.of(what.x.zero), *self._strip_shape(), Dim.of(row_stride),
            Dim.of(across.stride), simplify(top, bounds), Dim.of(-across.before), rows,
            across.size, deep, row_step, across.step,
        )  # fmt: skip
        kind = "u8" if what.x.load.dtype is DType.U8 else "s8"
        strip = Load(self.strip, (ZERO,))
        return [Micro(f"raot_strip_{kind}", (strip, self._image()), sizes)]

    def _image(self) -> Load:
        """The first element of the image that the places lie in."""
        load, grid = self.what.x.load, self.grid
        at: dict[str, Dim] = {level.variable: ZERO for level in self.what.levels}
        at |= {axis.loop.variable: ZERO for axis in (grid.down, grid.across) if axis is not None}
        dims = [dim.substitute(at) for dim in load.index]
        for axis in (grid.down, grid.across):
            if axis is not None:
                dims = [
                    ZERO if axis.loop.variable in old.symbols else dim
                    for old, dim in zip(load.index, dims, strict=True)
                ]
        return Load(load.buffer, tuple(dims))

    def _source(self, block: _Block, first: Dim) -> tuple[Load, Dim]:
        """What holds the first tap of place `first` of a block, and how much may be read there."""
        grid = self.grid
        if not grid.direct:
            place = block.first + first
            return Load(self.strip, (place,)), self.strip.shape[0] - place
        load = self.what.x.load
        at = {level.variable: ZERO for level in self.what.levels}
        at[grid.across.loop.variable] = block.first + first
        rest = grid.across.loop.stop - block.first - first
        if grid.down is not None:
            at[grid.down.loop.variable] = block.line
            rest = rest + (grid.down.loop.stop - block.line - 1) * self.pitch
        if grid.deep is not None:
            apart = stride(load, self._variable(grid.deep))
            assert apart is not None
            rest = rest + apart * (self.what.counts[grid.deep] - 1)
        return Load(load.buffer, tuple(dim.substitute(at) for dim in load.index)), rest

    def _block(self, block: _Block, bounds: Bounds) -> list[Stmt]:
        result = self._sums_of(block, bounds)
        parts = self._parts()
        if parts is not None:
            return result + self._bytes(block, *parts, bounds)
        single = block.high == 1 and self.lines == 1
        longest = interval(block.pitch, bounds)[1]
        store = self._flat()
        if single or store is None or longest >= NARROW:
            return result + self._finish(block, self.what, self.sums)
        return result + self._finish_flat(block, store, bounds)

    def _sums_of(self, block: _Block, bounds: Bounds) -> list[Stmt]:
        tile = self.names.fresh("tile")
        count = simplify(ceildiv(block.places, COLUMNS), bounds)
        inner = over(bounds, tile, ZERO, count)
        first = Dim.of(tile) * COLUMNS
        body: list[Stmt] = []
        columns = simplify(dim_min(block.places - first, COLUMNS), inner)
        columns, inner = named("columns", columns, self.names, inner, body)
        source, rest = self._source(block, first)
        kind = "u8" if self.what.x.load.dtype is DType.U8 else "s8"
        panel = Load(self.panel, (ZERO, ZERO, ZERO))
        numbers = (Dim.of(self.depth), columns, rest)
        taps = Load(self.offsets, (ZERO,))
        body.append(Micro(f"raot_panel_{self.form.suffix}_{kind}", (panel, source, taps), numbers))
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        operands = (
            Load(self.sums, (ZERO, first)),
            Load(self.weights, (*outer, ZERO, ZERO)),
            panel,
            Load(self.bias, (*outer, ZERO)),
        )
        depth, room = Dim.of(up(self.depth, self.form.group)), Dim.of(self.room)
        sizes = (Dim.of(self.channels), columns, depth, room, ONE, ZERO)
        body.append(Micro(f"raot_tile_{self.form.suffix}", operands, sizes))
        return [For(tile, ZERO, count, tuple(body))]

    # What becomes of the sums

    def _parts(self) -> tuple[Requantized, Contraction] | None:
        """What makes bytes of the sums, where it is the same at all places."""
        parts = split_any(self.what)
        if parts is None:
            return None
        names = {axis.loop.variable for axis in (self.grid.down, self.grid.across) if axis}
        if self.what.channel is not None:
            names.add(self.what.channel.variable)
        scales = (parts[0].scale, parts[0].shift)
        return parts if all(self._by_channel(scale, names) for scale in scales) else None

    def _by_channel(self, scale: Load | int, names: set[str]) -> bool:
        if isinstance(scale, int):
            return True
        far = {name: stride(scale, name) for name in names}
        own = self.what.channel.variable if self.what.channel is not None else ""
        step = far.pop(own, ZERO)
        return step in (ZERO, ONE) and all(step == 0 for step in far.values())

    def _bytes(
        self, block: _Block, found: Requantized, rest: Contraction, bounds: Bounds
    ) -> list[Stmt]:
        """Straight to where they belong, or beside the sums for what is done with them."""
        grid, channel = self.grid, self.what.channel
        begin = {grid.across.loop.variable: block.first}
        if grid.down is not None:
            begin[grid.down.loop.variable] = block.line
        first = begin | ({channel.variable: ZERO} if channel is not None else {})
        own = ZERO
        if channel is not None:
            step = stride(found.scale, channel.variable)
            assert step is not None
            own = step
        sums = Load(self.sums, (ZERO, ZERO))
        channels, room = Dim.of(self.channels), Dim.of(self.room)
        store = straight(rest)
        axes = (channel, grid.down.loop if grid.down else None, grid.across.loop)
        steps = None
        if store is not None:
            known = steps_of(store, [loop.variable for loop in axes if loop is not None])
            if known is not None and known[-1] == 1:
                turns = iter(known)
                steps = [next(turns) if loop is not None else ZERO for loop in axes]
        if store is None or steps is None:
            staged = self._buffer("staged", found.staged.dtype, self.channels, self.room)
            to, places = Load(staged, (ZERO, ZERO)), simplify(block.places, bounds)
            extents = (channels, places)
            done = found.rescaled(to, sums, extents, (room, room), first, (own, ZERO))
            return [done, *self._finish(block, rest, staged)]
        if self.lines == 1:
            to, extents = stored_at(store, first), (channels, block.wide)
            return [found.rescaled(to, sums, extents, (steps[0], room), first, (own, ZERO))]
        name, stop, at = self._channel()
        at |= begin
        extents, between = (block.high, block.wide), (steps[1], block.pitch)
        if steps[1] == block.wide == block.pitch:
            extents, between = (ONE, simplify(block.places, bounds)), (ZERO, ZERO)
        sums = Load(self.sums, (Dim.of(name) if name else ZERO, ZERO))
        to = stored_at(store, at)
        done = found.rescaled(to, sums, extents, between, at, (ZERO, ZERO))
        return self._over_channels([done], name, stop)

    def _channel(self) -> tuple[str, Dim, dict[str, Dim]]:
        """A fresh loop over channels: its variable, its end, and what the nest's is there."""
        assert self.what.channel is not None
        channel = self.names.fresh(self.what.channel.variable)
        return channel, self.what.channel.stop, {self.what.channel.variable: Dim.of(channel)}

    def _over_channels(self, body: Sequence[Stmt], channel: str, stop: Dim) -> list[Stmt]:
        return [For(channel, ZERO, stop, tuple(body))]

    def _finish(self, block: _Block, what: Contraction, found: Buffer) -> list[Stmt]:
        """What is done with each of the numbers in a buffer."""
        grid = self.grid
        channel, stop, at = self._channel()
        x, y = self.names.fresh("x"), self.names.fresh("y")
        at[grid.across.loop.variable] = block.first + Dim.of(x)
        place = Dim.of(x)
        if grid.down is not None:
            line = Dim.of(y) if self.lines > 1 else ZERO
            at[grid.down.loop.variable] = block.line + line
            place = place + line * block.pitch
        value = Load(found, (Dim.of(channel) if channel else ZERO, place))
        body: list[Stmt] = finish(what, at, value, self.names)
        body = [For(x, ZERO, block.wide, tuple(body))]
        if grid.down is not None and self.lines > 1:
            body = [For(y, ZERO, block.high, tuple(body))]
        return self._over_channels(body, channel, stop)

    def _flat(self) -> Store | None:
        """The store of what is the same at all places but for where it is stored: a byte."""
        names = {axis.loop.variable for axis in (self.grid.down, self.grid.across) if axis}
        stores = [stmt for stmt in self.what.after if isinstance(stmt, Store)]
        if len(stores) != 1 or self.what.after[-1] != stores[0] or stores[0].buffer.dtype.bytes > 1:
            return None
        if stores[0].buffer.dtype not in (DType.I8, DType.U8):
            return None
        read = (expr for stmt in self.what.after for expr in expressions(stmt))
        if any(depends(expr, names) for expr in read):
            return None
        across = self.grid.across.loop.variable
        load = Load(stores[0].buffer, stores[0].index)
        return stores[0] if stride(load, across) == 1 else None

    def _finish_flat(self, block: _Block, store: Store, bounds: Bounds) -> list[Stmt]:
        """All places of some lines as one row, what lies between lines with them."""
        grid = self.grid
        assert grid.down is not None
        dtype = store.buffer.dtype
        staged = self._buffer("staged", dtype, self.room)
        channel, stop, at = self._channel()
        p = self.names.fresh("p")
        value = Load(self.sums, (Dim.of(channel) if channel else ZERO, Dim.of(p)))
        flat = [
            Store(staged, (Dim.of(p),), stmt.value) if stmt is store else stmt
            for stmt in self.what.after
        ]
        here = replace(self.what, after=tuple(flat))
        body: list[Stmt] = finish(here, at, value, self.names)
        places = simplify(block.places, bounds)
        body = [For(p, ZERO, places, tuple(body))]
        target = Load(store.buffer, store.index)
        step = stride(target, grid.down.loop.variable)
        assert step is not None
        at |= {grid.down.loop.variable: block.line, grid.across.loop.variable: ZERO}
        to = Load(store.buffer, tuple(dim.substitute(at) for dim in store.index))
        kind = "u8" if dtype is DType.U8 else "s8"
        sizes = (block.high, block.wide, step, block.pitch)
        if step == block.wide == block.pitch:
            sizes = (ONE, block.high * block.wide, ZERO, ZERO)
        body.append(Micro(f"raot_lines_{kind}", (to, Load(staged, (ZERO,))), sizes))
        return self._over_channels(body, channel, stop)

    # Constants

    def _order(self) -> list[int]:
        grid = self.grid
        levels = (grid.deep, grid.down.level if grid.down else None, grid.across.level)
        return [level for level in levels if level is not None]

    def _weights(self, data: Arrays) -> Array:
        source = data[self.what.w.load.buffer.name]
        found = weights_of(self.what, self.outer, self._order(), source)
        lead = found.shape[: len(self.outer)]
        flat = found.reshape(*lead, self.channels, self.depth)
        missing = up(self.depth, self.form.group) - self.depth
        flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, missing)])
        return np.asarray(flat.astype(self.form.dtype.numpy))

    def _bias(self, data: Arrays) -> Array:
        several = self.form == FOURS and self.what.channel is not None
        moved = less_of_bytes(self.what) if several else 0
        return starts_of(self.what, self.outer, data, moved)


@dataclass
class _OfOneChannel(_Places):
    """Convolutions of each channel by itself."""

    def _constants(self, lead: tuple[Dim, ...]) -> tuple[Buffer, Buffer]:
        name = self.what.w.load.buffer.name
        shape = (*lead, Dim.of(up(self.depth, 2)))
        weights = Buffer(self.names.fresh(f"{name}.taps"), DType.I16, shape)
        return weights, Buffer(self.names.fresh(f"{name}.start"), DType.I32, lead)

    def _operand(self) -> None:
        pass

    def _sums_of(self, block: _Block, bounds: Bounds) -> list[Stmt]:
        source, rest = self._source(block, ZERO)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        kind = "u8" if self.what.x.load.dtype is DType.U8 else "s8"
        operands = (
            Load(self.sums, (ZERO, ZERO)),
            source,
            Load(self.offsets, (ZERO,)),
            Load(self.weights, (*outer, ZERO)),
            Load(self.bias, outer),
        )
        places = simplify(block.places, bounds)
        sizes = (Dim.of(self.depth), places, rest)
        return [Micro(f"raot_depthwise_places_{kind}", operands, sizes)]

    def _channel(self) -> tuple[str, Dim, dict[str, Dim]]:
        return "", ONE, {}

    def _over_channels(self, body: Sequence[Stmt], channel: str, stop: Dim) -> list[Stmt]:
        return list(body)

    def _weights(self, data: Arrays) -> Array:
        source = data[self.what.w.load.buffer.name]
        found = weights_of(self.what, self.outer, self._order(), source)
        flat = found.reshape(*found.shape[: len(self.outer)], self.depth)
        missing = up(self.depth, 2) - self.depth
        return np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, missing)]).astype(np.int16)
