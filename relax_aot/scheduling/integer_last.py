"""Integer contractions for Helium whose sums become bytes.

Two places and four channels are worked on at once. Where what a window covers lies in one piece, it
is read where it is; else some columns of the image are copied into a strip, one after the other,
with a frame around them, so that windows next to each other share what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_min, interval, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Micro, Stmt, Store
from relax_aot.ir.parameters import surely
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.mve import BLOCK, channel_order, stream_bytes
from relax_aot.scheduling.integer_match import Contraction, stride
from relax_aot.scheduling.integer_mve import FLIP, LEAST_DEPTH, Roles, follow, moved, roles_of
from relax_aot.scheduling.integer_parts import (
    Arrays,
    Derived,
    Written,
    by_lines,
    extent,
    finish,
    place_at,
    place_count,
    shared_by,
    starts_known,
    starts_of,
    weights_of,
    window,
)
from relax_aot.scheduling.integer_requantize import code_sum, stored_at, straight
from relax_aot.scheduling.integer_rescale import Rescaled, loads_of, rescaled, table
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient

SUMS = 1024
"""Bytes of sums and columns that are kept at once, if two places do not take more."""

PLACES = 16
LEAST_GROUPS = 4
MOST_APART = 9362
"""How far channels of the result are apart at most: seven times that are 16 bits."""


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    low, high = what.w.load.dtype.limits
    fits = surely(lambda: low - what.w.zero >= -128 and high - what.w.zero <= 127)
    if what.channel is None or not fits or int(np.prod(what.counts)) < LEAST_DEPTH:
        return False
    if not starts_known(what, constants) or _way(what) is None:
        return False
    parts = rescaled(what, constants)
    if parts is None:
        return False
    (store,) = parts[1].after
    assert isinstance(store, Store)
    step = stride(Load(store.buffer, store.index), what.channel.variable)
    return step is not None and step.is_constant and 0 < step.constant <= MOST_APART


def write(what: Contraction, names: Names, bounds: Bounds, constants: frozenset[str]) -> Written:
    parts, way = rescaled(what, constants), _way(what)
    assert parts is not None and way is not None
    return _Last(what, names, way, *parts).write(bounds)


@dataclass(frozen=True, slots=True)
class Way:
    """`order` of levels in a window; `roles` of them where a strip is needed."""

    order: tuple[int, ...]
    roles: Roles | None


def _way(what: Contraction) -> Way | None:
    whole = not any(level.start.symbols | level.stop.symbols for level in what.levels)
    if whole and what.x.load.dtype is DType.I8:
        steps = [stride(what.x.load, level.variable) for level in what.levels]
        known = [step.constant if step is not None and step.is_constant else 0 for step in steps]
        order = sorted(range(len(known)), key=lambda level: -known[level])
        expected = 1
        for level in reversed(order):
            if known[level] != expected and what.counts[level] > 1:
                break
            expected *= what.counts[level]
        else:
            return Way(tuple(order), None)
    roles = roles_of(what)
    if roles is None:
        return None
    if roles.column is not None:
        variable = what.levels[roles.column].variable
        dim = next(dim for dim in what.x.load.index if variable in dim.symbols)
        if coefficient(dim, variable) != 1:
            return None
    levels = (roles.column, roles.line, roles.channel)
    return Way(tuple(level for level in levels if level is not None), roles)


@dataclass
class _Last:
    what: Contraction
    names: Names
    way: Way
    found: Rescaled
    rest: Contraction

    def write(self, bounds: Bounds) -> Written:
        what = self.what
        assert what.channel is not None
        self.depth = int(np.prod(what.counts))
        self.channels = extent(what.channel)
        self.order = channel_order(self.channels)
        self.groups = len(self.order) // 4
        tables = [load for part in self.found.parts for load in loads_of(part)]
        self.outer = shared_by(what, (what.w.load, what.start, *tables))
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        name = what.w.load.buffer.name
        words = Dim.of(stream_bytes(self.depth) // 4)
        shape = (*lead, Dim.of(self.groups), words)
        self.weights = Buffer(self.names.fresh(f"{name}.groups"), DType.I32, shape)
        kind = DType.F32 if self.found.form == "f32" else DType.I32
        width = self.groups * 4 * len(self.found.parts)
        self.scales = Buffer(self.names.fresh(f"{name}.scales"), kind, (*lead, Dim.of(width)))
        self.tile = self._tile_size(bounds)
        self.part = self._part()
        size = (self.tile + 1) // 2 * self.part * 8
        self.sums = Buffer(self.names.fresh("sums"), DType.I32, (Dim.of(size),))
        self.strip = self._strip()
        (store,) = self.rest.after
        assert isinstance(store, Store)
        apart = stride(Load(store.buffer, store.index), what.channel.variable)
        assert apart is not None
        self.apart = apart
        staged = (Dim.of(self.tile), Dim.of(self.channels))
        if apart != 1:
            staged = staged[::-1]
        self.staged = Buffer(self.names.fresh("staged"), self.found.dtype, staged)
        self.uses_staged = False
        for loop in what.shared:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._lines(bounds)
        for loop in reversed(what.shared):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        scratch = [self.sums]
        scratch += [self.strip] if self.strip is not None else []
        scratch += [self.staged] if self.uses_staged else []
        derived = [Derived(self.weights, self._weights), Derived(self.scales, self._scales)]
        return Written(body, scratch, derived)

    def _copied(self) -> int:
        """Bytes of the strip for each place, where places share none."""
        roles = self.way.roles
        return self.depth if roles is not None and roles.column is None else 0

    def _part(self) -> int:
        """How many groups of channels at once have sums that are not too large: an even number,
        or all."""
        pair = (self.tile + 1) // 2 * 32
        most = max((SUMS - self._copied() * self.tile) // pair // 2 * 2, LEAST_GROUPS)
        if self.groups <= most:
            return self.groups
        parts = -(-self.groups // most)
        return -(-self.groups // parts // 2) * 2

    def _tile_size(self, bounds: Bounds) -> int:
        most = SUMS // (self.groups * 16 + self._copied()) // 2 * 2
        joined = self._joined()
        places = self.what.places[-1:] if not joined else self.what.places
        count = prod((loop.stop for loop in places), start=Dim.of(1))
        return max(1, min(max(most, 2), PLACES, interval(count, bounds)[1]))

    def _strip(self) -> Buffer | None:
        """Room for the columns of as many places as a tile has."""
        roles = self.way.roles
        if roles is None:
            return None
        counts = [1 if at is None else self.what.counts[at] for at in (roles.line, roles.channel)]
        columns = self.tile
        if roles.column is not None:
            columns = (self.tile - 1) * self._apart() + self.what.counts[roles.column]
        return Buffer(self.names.fresh("strip"), DType.I8, (Dim.of(columns * prod(counts)),))

    def _apart(self) -> int:
        """How many columns further on the window of the next place begins."""
        roles, across = self.way.roles, self.what.places[-1].variable
        assert roles is not None
        if roles.column is None:
            return 1
        dim = next(dim for dim in self.what.x.load.index if across in dim.symbols)
        step = coefficient(dim, across)
        assert step is not None
        return step

    def _joined(self) -> bool:
        """Places of several rows follow each other as those of one row do."""
        what = self.what
        windowed = any(level.start.symbols | level.stop.symbols for level in what.levels)
        column = self.way.roles is not None and self.way.roles.column is not None
        (store,) = self.rest.after
        assert isinstance(store, Store)
        loads = [what.x.load, Load(store.buffer, store.index)]
        return not windowed and not column and all(follow(what, load) for load in loads)

    def _lines(self, bounds: Bounds) -> list[Stmt]:
        """Tiles of places side by side; outer places one by one, where rows differ."""
        what = self.what
        if self._joined():
            return self._tiles(place_count(what), {}, bounds)
        return by_lines(what, self._tiles, bounds)

    def _tiles(self, count: Dim, fixed: Mapping[str, Dim], bounds: Bounds) -> list[Stmt]:
        tile = self.names.fresh("tile")
        tiles = ceildiv(count, self.tile)
        inner = over(bounds, tile, Dim.of(0), tiles)
        first = Dim.of(tile) * self.tile
        single = simplify(tiles, bounds) == 1
        if single:
            inner, first = bounds, Dim.of(0)
        body: list[Stmt] = []
        places = simplify(dim_min(count - first, self.tile), inner)
        places, inner = named("places", places, self.names, inner, body)
        body += self._tile(first, places, fixed, inner)
        return body if single else [For(tile, Dim.of(0), tiles, tuple(body))]

    def _at(
        self, place: Dim, fixed: Mapping[str, Dim], bounds: Bounds, result: list[Stmt]
    ) -> tuple[dict[str, Dim], Bounds]:
        if not self.what.places:
            return {}, bounds
        if fixed or len(self.what.places) == 1:
            return {**fixed, self.what.places[-1].variable: place}, bounds
        return place_at(self.what, place, self.names, bounds, result)

    def _tile(
        self, first: Dim, places: Dim, fixed: Mapping[str, Dim], bounds: Bounds
    ) -> list[Stmt]:
        result: list[Stmt] = []
        at, bounds = self._at(first, fixed, bounds, result)
        rows, step, bounds = self._rows(at, places, bounds, result)
        one = Dim.of(1)
        store = straight(self.rest)
        if store is not None:
            moves = (self._step(store), self.apart)
            return [
                *result,
                *self._parts(
                    rows, step, lambda c: self._stored(store, at, c), places, moves, bounds
                ),
            ]
        self.uses_staged = True
        channels = Dim.of(self.channels)
        moves = (channels, one) if self.apart == 1 else (one, Dim.of(self.tile))
        result += self._parts(rows, step, self._staged_at, places, moves, bounds)
        return [*result, *self._rest(at, first, places, fixed, bounds)]

    def _parts(
        self,
        rows: Load,
        step: Dim,
        out: Callable[[Dim], Load],
        places: Dim,
        moves: tuple[Dim, Dim],
        bounds: Bounds,
    ) -> list[Stmt]:
        """Sums of a tile and their bytes, some groups of channels at a time. `out`: where the
        byte of a channel goes."""
        zero, groups, channels = Dim.of(0), Dim.of(self.groups), Dim.of(self.channels)
        body: list[Stmt] = []
        part, first = "", zero
        if self.part < self.groups:
            part = self.names.fresh("part")
            bounds = over(bounds, part, zero, ceildiv(groups, self.part))
            first = Dim.of(part) * self.part
            groups = simplify(dim_min(groups - first, self.part), bounds)
            groups, bounds = named("groups", groups, self.names, bounds, body)
            channels = simplify(dim_min(channels - first * 4, self.part * 4), bounds)
            channels, bounds = named("channels", channels, self.names, bounds, body)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        sums, weights = Load(self.sums, (zero,)), Load(self.weights, (*outer, first, zero))
        scales = Load(self.scales, (*outer, first * (4 * len(self.found.parts))))
        sizes = (groups, Dim.of(self.depth), places, step)
        body.append(by_position("raot_multiply_last_s8", (sums, weights, rows), sizes))
        body.append(self._requantize(out(first * 4), sums, scales, channels, places, moves))
        if not part:
            return body
        return [For(part, zero, ceildiv(Dim.of(self.groups), self.part), tuple(body))]

    def _stored(self, store: Store, at: Mapping[str, Dim], channel: Dim) -> Load:
        assert self.what.channel is not None
        return stored_at(store, {**at, self.what.channel.variable: channel})

    def _staged_at(self, channel: Dim) -> Load:
        zero = Dim.of(0)
        return Load(self.staged, (zero, channel) if self.apart == 1 else (channel, zero))

    def _rest(
        self,
        at: Mapping[str, Dim],
        first: Dim,
        places: Dim,
        fixed: Mapping[str, Dim],
        bounds: Bounds,
    ) -> list[Stmt]:
        """What becomes of the bytes that are staged."""
        what, rest = self.what, self.rest
        assert what.channel is not None
        zero, channels = Dim.of(0), Dim.of(self.channels)
        summed = self._summed({**at, what.channel.variable: zero}, places)
        if summed is not None:
            return [summed]
        p, channel = self.names.fresh("p"), self.names.fresh(what.channel.variable)
        inside = over(bounds, p, zero, places)
        body: list[Stmt] = []
        place, inside = self._at(first + Dim.of(p), fixed, inside, body)
        there = {**place, what.channel.variable: Dim.of(channel)}
        index = (Dim.of(p), Dim.of(channel))
        value = Load(self.staged, index if self.apart == 1 else index[::-1])
        loop = For(channel, zero, channels, tuple(finish(rest, there, value, self.names)))
        return [For(p, zero, places, (*body, loop))]

    def _step(self, store: Store) -> Dim:
        """How far the results of places are apart."""
        if not self.what.places:
            return Dim.of(self.channels)
        step = stride(Load(store.buffer, store.index), self.what.places[-1].variable)
        assert step is not None
        return step

    def _requantize(
        self,
        out: Load,
        sums: Load,
        scales: Load,
        channels: Dim,
        places: Dim,
        moves: tuple[Dim, Dim],
    ) -> Micro:
        found = self.found
        numbers = (Dim.of(number) for number in (found.zero, found.low, found.high))
        name = f"raot_last_{found.form}{found.suffix}"
        return by_position(name, (out, sums, scales), (channels, places, *moves, *numbers))

    def _summed(self, here: Mapping[str, Dim], places: Dim) -> Micro | None:
        """What is staged and the codes that are added to it, to the result."""
        found = code_sum(self.rest)
        if found is None or not self.what.places or self.what.channel is None:
            return None
        names = [self.what.channel.variable, self.what.places[-1].variable]
        loads = (Load(found.store.buffer, found.store.index), found.other)
        moves = [[stride(load, name) for name in names] for load in loads]
        side = 0 if self.apart == 1 else 1
        if any(move[side] != 1 or move[1 - side] is None for move in moves):
            return None
        if self._joined() and not all(follow(self.what, load) for load in loads):
            return None
        out_step, other_step = moves[0][1 - side], moves[1][1 - side]
        assert out_step is not None and other_step is not None
        zero, channels = Dim.of(0), Dim.of(self.channels)
        operands = (moved(loads[0], here), Load(self.staged, (zero, zero)), moved(loads[1], here))
        numbers = (found.by, found.by_other, found.more, found.shift)
        rows: tuple[Dim, ...] = (places, channels, out_step, channels, other_step)
        if side:
            rows = (channels, places, out_step, Dim.of(self.tile), other_step)
        elif out_step == channels == other_step:
            rows = (Dim.of(1), places * channels, zero, zero, zero)
        sizes = (*rows, *(Dim.of(number) for number in numbers))
        return by_position("raot_sum_codes_s8", operands, sizes)

    def _rows(
        self, at: dict[str, Dim], places: Dim, bounds: Bounds, result: list[Stmt]
    ) -> tuple[Load, Dim, Bounds]:
        """The window of the first place, and how far the next one is."""
        what, roles, zero = self.what, self.way.roles, Dim.of(0)
        if roles is None:
            origin = {**at, **{level.variable: zero for level in what.levels}}
            step = stride(what.x.load, what.places[-1].variable) if what.places else zero
            assert step is not None
            return moved(what.x.load, origin), step, bounds
        steady = [level for level in (roles.line, roles.channel) if level is not None]
        levels, image, bounds = window(what, steady, at, self.names, bounds, result)
        found = dict(zip(steady, levels, strict=True))
        channel = found.get(roles.channel) if roles.channel is not None else None
        line = found.get(roles.line) if roles.line is not None else None
        count0, count1 = channel.count if channel else 1, line.count if line else 1
        across = what.places[-1].variable
        apart, lead, columns, width = self._apart(), zero, places, places
        column_step = stride(what.x.load, across)
        assert column_step is not None
        if roles.column is not None:
            variable = what.levels[roles.column].variable
            dims = what.x.load.index
            (axis,) = (n for n, dim in enumerate(dims) if variable in dim.symbols)
            lead = dims[axis].substitute({across: at[across], variable: zero})
            columns = (places - 1) * apart + what.counts[roles.column]
            width = what.x.load.buffer.shape[axis]
            column_step = prod(image.buffer.shape[axis + 1 :], start=Dim.of(1))
            index = tuple(zero if n == axis else dim for n, dim in enumerate(image.index))
            image = Load(image.buffer, index)
        flip = FLIP if what.x.load.dtype is DType.U8 else 0
        sizes = (
            Dim.of(what.x.zero - flip), Dim.of(flip),
            Dim.of(count0), channel.step if channel else Dim.of(1),
            Dim.of(count1), line.first if line else zero, line.last if line else Dim.of(1),
            line.step if line else zero, columns, lead, width, column_step,
        )  # fmt: skip
        assert self.strip is not None
        strip = Load(self.strip, (zero,))
        kind = "u8" if flip else "s8"
        result.append(by_position(f"raot_beside_{kind}", (strip, image), sizes))
        return strip, Dim.of(apart * count0 * count1), bounds

    def _weights(self, data: Arrays) -> Array:
        what = self.what
        found = weights_of(what, self.outer, self.way.order, data[what.w.load.buffer.name])
        lead = found.shape[: len(self.outer)]
        flat = found.reshape(*lead, self.channels, self.depth)
        whole = -(-self.depth // BLOCK)
        flat = np.pad(flat, [(0, 0)] * (len(lead) + 1) + [(0, whole * BLOCK - self.depth)])
        flip = FLIP if what.x.load.dtype is DType.U8 else 0
        starts = starts_of(what, self.outer, data, flip)
        lanes = np.array([max(channel, 0) for channel in self.order])
        absent = np.array([channel < 0 for channel in self.order])
        packed, begin = flat[..., lanes, :].astype(np.int8), starts[..., lanes].astype(np.int32)
        packed[..., absent, :] = 0
        begin[..., absent] = 0
        cut = packed.reshape(*lead, self.groups, 4, whole, BLOCK)
        bytes_ = np.ascontiguousarray(np.swapaxes(cut, -3, -2)).reshape(*lead, self.groups, -1)
        fours = begin.reshape(*lead, self.groups, 4)
        return np.concatenate([fours, fours, bytes_.view(np.int32)], axis=-1)

    def _scales(self, data: Arrays) -> Array:
        assert self.what.channel is not None
        return table(self.found, (*self.outer, self.what.channel), self.order, data)
