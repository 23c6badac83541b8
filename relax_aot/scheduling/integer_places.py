"""Integer contractions whose vectors are places of the output, side by side in memory.

Windows are read from a strip: lines of the image with a frame around them, in which every tap
of every place lies a fixed distance away. Where windows are single elements that lie as places
do, the image itself is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_min, interval, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Stmt, Store, expressions
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.dot2 import COLUMNS, EIGHT, up
from relax_aot.scheduling.integer_grid import Grid
from relax_aot.scheduling.integer_match import Contraction, depends, stride
from relax_aot.scheduling.integer_parts import (
    FOURS,
    Arrays,
    Derived,
    Form,
    Written,
    extent,
    finish,
    less_of_bytes,
    shared_by,
    shares,
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

Tiled = Callable[[Dim, Dim, Bounds], list[Stmt]]
MOST_BYTES = 5120
"""Of codes that wait for their lines."""
MOST_SUMS = 2048
"""Sums that are kept at once, where they become no bytes."""
MOST_PLACES = 256
MOST_CHANNELS = 16
"""Of which sums are kept until they are bytes."""
NARROW = 12
"""Lines shorter than this are finished as one."""
ZERO, ONE = Dim.of(0), Dim.of(1)


@dataclass(frozen=True, slots=True)
class Block:
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
class Places:
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
        self.parts = self._parts()
        self.scratch: list[Buffer] = []
        self._sizes(bounds)
        body = self._blocks(bounds)
        for loop in reversed(loops):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        derived = [Derived(self.weights, self._weights), Derived(self.bias, self._bias)]
        return Written([*self._where(), *body], self.scratch, derived, self._in_place(bounds))

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
        across = grid.across.loop.stop
        self.pitch = across if grid.direct else grid.across.frame(across)
        longest = max(interval(self.pitch, bounds)[1], 1)
        widest = max(interval(across, bounds)[1], 1)
        tallest = 1
        if grid.down is not None:
            tallest = max(interval(grid.down.loop.stop, bounds)[1], 1)
        self.wide = self._most()
        self.lines = self._lines(tallest, longest, widest)
        self.room = Dim.of(up(min(self.wide, self._widest(bounds)), COLUMNS))
        if self.lines > 1:
            spare = EIGHT if self.parts is None or self.what.channel is None else 0
            several = (self.lines - 1) * self.pitch + across + spare
            self.room = simplify(ceildiv(several, COLUMNS) * COLUMNS, bounds)
        self._results()
        self.offsets = self._buffer("offsets", DType.I32, self.depth)
        self._operand()
        if not grid.direct:
            size = prod(self._strip_shape(self.lines), start=ONE) + COLUMNS
            self.strip = self._buffer("strip", self.what.x.load.dtype, size)

    def _widest(self, bounds: Bounds) -> int:
        """The most places of a line, wherever its size may be raised to."""
        return max(interval(self.grid.across.loop.stop, bounds.open)[1], 1)

    def _most(self) -> int:
        """Places that are done at once."""
        if self.parts is not None and self.grid.direct and straight(self.parts[1]) is not None:
            return MOST_PLACES
        kept = MOST_SUMS if self.parts is None else MOST_BYTES
        return max(min(kept // self.channels // COLUMNS * COLUMNS, MOST_PLACES), COLUMNS)

    def _lines(self, tallest: int, longest: int, widest: int) -> int:
        """As few lines at once as need hardly more tiles than the best number does."""
        most = max(1, min(tallest, self.wide // longest))
        if self.grid.direct:
            return most
        work = [self._work(lines, tallest, longest, widest) for lines in range(1, most + 1)]
        return next(at for at, one in enumerate(work, 1) if 20 * one <= 21 * min(work))

    def _work(self, lines: int, tallest: int, longest: int, widest: int) -> int:
        """What an image takes, about in instructions."""
        tiles = -(-((lines - 1) * longest + widest) // COLUMNS)
        tiles = tiles * self.depth * (5 * self.channels + 8) // 2
        *planes, high, _ = self._strip_shape(lines)
        strip = prod(planes, start=high).constant * (20 + longest // 4)
        return -(-tallest // lines) * (tiles + strip)

    def _results(self) -> None:
        """Of sums that become bytes some at a time, else of all places at once."""
        if self.parts is None:
            self.sums = self._buffer("sums", DType.I32, self.channels, self.room)
            return
        self.high = min(self.channels, MOST_CHANNELS)
        self.sums = self._buffer("sums", DType.I32, self.high, COLUMNS)

    def _operand(self) -> None:
        group = self.form.group
        shape = (up(self.depth, group) // group, COLUMNS, group)
        self.panel = self._buffer("panel", self.form.dtype, *shape)

    def _strip_shape(self, high: int) -> tuple[Dim, ...]:
        """Channels, phases of rows and of columns, lines, places; of `high` lines of windows."""
        grid = self.grid
        deep = 1 if grid.deep is None else self.what.counts[grid.deep]
        rows, lines = 1, ONE
        if grid.down is not None:
            rows, lines = grid.down.phases, grid.down.frame(Dim.of(high))
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
            return [by_position("raot_offsets", (at,), sizes)]
        shape = self._strip_shape(self.lines)
        steps = [prod(shape[n + 1 :], start=ONE) for n in range(4)]
        rows = (1, 1, 1)
        if grid.down is not None:
            rows = (grid.down.taps, grid.down.dilation, grid.down.stride)
        columns = (grid.across.taps, grid.across.dilation, grid.across.stride)
        pairs = (Dim.of(n) for pair in zip(rows, columns, strict=True) for n in pair)
        return [by_position("raot_offsets", (at,), (deep, *pairs, *steps))]

    def _variable(self, level: int) -> str:
        return self.what.levels[level].variable

    def _in_place(self, bounds: Bounds) -> tuple[tuple[str, str], ...]:
        """Windows that are the place itself, or a strip of whole images."""
        loops = [*self.what.shared, *self.grid.outer]
        if self.grid.direct:
            loops += [axis.loop for axis in (self.grid.down, self.grid.across) if axis]
            return shares(self.what, loops)
        down = self.grid.down
        whole = down is not None and interval(down.loop.stop, bounds.open)[1] <= self.lines
        return shares(self.what, loops) if whole else ()

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
        if self.lines > 1 or self._widest(bounds) <= self.wide:
            return result + self._block(Block(line, high, ZERO, across, self.pitch), bounds)
        piece = self.names.fresh("piece")
        count = ceildiv(across, self.wide)
        inner = over(bounds, piece, ZERO, count)
        body: list[Stmt] = []
        first = Dim.of(piece) * self.wide
        wide = simplify(dim_min(across - first, self.wide), inner)
        wide, inner = named("wide", wide, self.names, inner, body)
        body += self._block(Block(line, ONE, first, wide, self.pitch), inner)
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
            Dim.of(what.x.zero), *self._strip_shape(self.lines), Dim.of(row_stride),
            Dim.of(across.stride), simplify(top, bounds), Dim.of(-across.before), rows,
            across.size, deep, row_step, across.step,
        )  # fmt: skip
        kind = "u8" if what.x.load.dtype is DType.U8 else "s8"
        strip = Load(self.strip, (ZERO,))
        return [by_position(f"raot_strip_{kind}", (strip, self._image()), sizes)]

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

    def _source(self, block: Block, first: Dim) -> tuple[Load, Dim]:
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

    def _block(self, block: Block, bounds: Bounds) -> list[Stmt]:
        if self.parts is not None:
            return self._bytes(block, *self.parts, bounds)
        result = self._sums_of(block, bounds)
        single = block.high == 1 and self.lines == 1
        longest = interval(block.pitch, bounds)[1]
        store = self._flat()
        if single or store is None or longest >= NARROW:
            return result + self._finish(block, self.what, self.sums)
        return result + self._finish_flat(block, store, bounds)

    def _sums_of(self, block: Block, bounds: Bounds) -> list[Stmt]:
        def multiplied(first: Dim, columns: Dim, bounds: Bounds) -> list[Stmt]:
            return [self._multiplied(ZERO, Dim.of(self.channels), first, columns)]

        return self._tiles(block, multiplied, bounds)

    def _tiles(self, block: Block, rest: Tiled, bounds: Bounds) -> list[Stmt]:
        """Panels of the places of a block, and what is done with each."""
        tile = self.names.fresh("tile")
        count = simplify(ceildiv(block.places, COLUMNS), bounds)
        inner = over(bounds, tile, ZERO, count)
        first = Dim.of(tile) * COLUMNS
        body: list[Stmt] = []
        columns = simplify(dim_min(block.places - first, COLUMNS), inner)
        columns, inner = named("columns", columns, self.names, inner, body)
        source, extent = self._source(block, first)
        kind = "u8" if self.what.x.load.dtype is DType.U8 else "s8"
        panel = Load(self.panel, (ZERO, ZERO, ZERO))
        numbers = (Dim.of(self.depth), columns, extent)
        taps = Load(self.offsets, (ZERO,))
        body.append(
            by_position(f"raot_panel_{self.form.suffix}_{kind}", (panel, source, taps), numbers)
        )
        body += rest(first, columns, inner)
        return [For(tile, ZERO, count, tuple(body))]

    def _multiplied(self, channel: Dim, channels: Dim, first: Dim, columns: Dim) -> Stmt:
        """Sums of some channels at the places of the panel, from place `first` on."""
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        operands = (
            Load(self.sums, (ZERO, first)),
            Load(self.weights, (*outer, channel, ZERO)),
            Load(self.panel, (ZERO, ZERO, ZERO)),
            Load(self.bias, (*outer, channel)),
        )
        depth = Dim.of(up(self.depth, self.form.group))
        sizes = (channels, columns, depth, self.sums.shape[1], ONE, ZERO)
        return by_position(f"raot_tile_{self.form.suffix}", operands, sizes)

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
        self, block: Block, found: Requantized, rest: Contraction, bounds: Bounds
    ) -> list[Stmt]:
        """Straight to where they belong, or to where they wait for what is done with them."""
        store, steps = straight(rest), self._steps(rest)
        if store is None or steps is None:
            staged = self._buffer("staged", found.staged.dtype, self.channels, self.room)
            waiting = self._waiting(block, found, staged, bounds)
            return [*waiting, *self._finish(block, rest, staged)]
        if self.lines > 1 and not steps[1] == block.wide == block.pitch:
            return self._lined(block, found, store, steps, bounds)

        def to(channel: Dim, place: Dim) -> Load:
            at = self._begin(block, channel)
            line = place // block.pitch if self.lines > 1 else ZERO
            at[self.grid.across.loop.variable] += place - line * block.pitch
            if self.grid.down is not None:
                at[self.grid.down.loop.variable] += line
            return stored_at(store, at)

        return self._rescaled(block, found, to, steps[0], bounds)

    def _begin(self, block: Block, channel: Dim) -> dict[str, Dim]:
        """Where the loops of the nest stand at the first place of a block."""
        grid, own = self.grid, self.what.channel
        at = {grid.across.loop.variable: block.first}
        if grid.down is not None:
            at[grid.down.loop.variable] = block.line
        return at if own is None else {**at, own.variable: channel}

    def _steps(self, rest: Contraction) -> list[Dim] | None:
        """How far apart channels, lines and places of the result lie: places side by side."""
        store, down = straight(rest), self.grid.down
        if store is None:
            return None
        axes = (self.what.channel, down.loop if down else None, self.grid.across.loop)
        known = steps_of(store, [loop.variable for loop in axes if loop is not None])
        if known is None or known[-1] != 1:
            return None
        turns = iter(known)
        return [next(turns) if loop is not None else ZERO for loop in axes]

    def _waiting(
        self, block: Block, found: Requantized, staged: Buffer, bounds: Bounds
    ) -> list[Stmt]:
        def to(channel: Dim, place: Dim) -> Load:
            return Load(staged, (channel, place))

        return self._rescaled(block, found, to, Dim.of(self.room), bounds)

    def _rescaled(
        self,
        block: Block,
        found: Requantized,
        to: Callable[[Dim, Dim], Load],
        apart: Dim,
        bounds: Bounds,
    ) -> list[Stmt]:
        """The bytes of a block. `to`: where that of a channel at a place goes, those of the next
        channel `apart`."""
        assert self.what.channel is not None
        own = stride(found.scale, self.what.channel.variable)
        assert own is not None
        by_channel = (own, ZERO)

        def done(first: Dim, columns: Dim, bounds: Bounds) -> list[Stmt]:
            body: list[Stmt] = []
            group = self.names.fresh("group")
            count = -(-self.channels // self.high)
            inner = over(bounds, group, ZERO, Dim.of(count))
            channel = Dim.of(group) * self.high if count > 1 else ZERO
            channels = simplify(dim_min(self.channels - channel, self.high), inner)
            channels, inner = named("channels", channels, self.names, inner, body)
            body.append(self._multiplied(channel, channels, ZERO, columns))
            sums, at = Load(self.sums, (ZERO, ZERO)), self._begin(block, channel)
            extents, steps = (channels, columns), (apart, Dim.of(COLUMNS))
            target = to(channel, first)
            body.append(found.rescaled(target, sums, extents, steps, at, by_channel))
            return body if count == 1 else [For(group, ZERO, Dim.of(count), tuple(body))]

        return self._tiles(block, done, bounds)

    def _lined(
        self,
        block: Block,
        found: Requantized,
        store: Store,
        steps: Sequence[Dim],
        bounds: Bounds,
    ) -> list[Stmt]:
        """Lines whose ends lie apart in the result."""
        staged = self._buffer("staged", found.staged.dtype, self.channels, self.room)
        name, stop, _ = self._channel()
        to = stored_at(store, self._begin(block, Dim.of(name)))
        kind = "u8" if staged.dtype is DType.U8 else "s8"
        sizes = (block.high, block.wide, steps[1], block.pitch)
        copied = by_position(f"raot_lines_{kind}", (to, Load(staged, (Dim.of(name), ZERO))), sizes)
        waiting = self._waiting(block, found, staged, bounds)
        return [*waiting, For(name, ZERO, stop, (copied,))]

    def _channel(self) -> tuple[str, Dim, dict[str, Dim]]:
        """A fresh loop over channels: its variable, its end, and what the nest's is there."""
        assert self.what.channel is not None
        channel = self.names.fresh(self.what.channel.variable)
        return channel, self.what.channel.stop, {self.what.channel.variable: Dim.of(channel)}

    def _over_channels(self, body: Sequence[Stmt], channel: str, stop: Dim) -> list[Stmt]:
        return [For(channel, ZERO, stop, tuple(body))]

    def _finish(self, block: Block, what: Contraction, found: Buffer) -> list[Stmt]:
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

    def _finish_flat(self, block: Block, store: Store, bounds: Bounds) -> list[Stmt]:
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
        body.append(by_position(f"raot_lines_{kind}", (to, Load(staged, (ZERO,))), sizes))
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
