"""Integer contractions whose vectors are channels, side by side in memory in the output.

Windows of some places are gathered as rows of numbers, which a tile multiplies by the weights
of sixteen channels at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Micro, Stmt, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.dot2 import COLUMNS, up
from relax_aot.scheduling.integer_match import Contraction, stride
from relax_aot.scheduling.integer_parts import (
    NO_LEVEL,
    PAIRS,
    Arrays,
    Derived,
    Form,
    Level,
    Written,
    by_lines,
    extent,
    finish,
    less_of_bytes,
    place_at,
    place_count,
    shared_by,
    shares,
    starts_known,
    starts_of,
    weights_of,
    window,
)
from relax_aot.scheduling.jam import Names, named, over

LEVELS = 3
LEAST_DEPTH = 4
LEAST_CHANNELS = 4
ROWS = (24, 12)
"""Places that are done at once, fewer where they take much memory."""
MOST_BYTES = 6144
ZERO, ONE = Dim.of(0), Dim.of(1)


def lies_last(what: Contraction, loop: For) -> bool:
    """Whether results of a loop lie side by side."""
    stores = [stmt for stmt in what.after if isinstance(stmt, Store)]
    loads = [Load(store.buffer, store.index) for store in stores]
    return all(stride(load, loop.variable) == 1 for load in loads)


def order_of(what: Contraction) -> list[int] | None:
    """Levels, those whose elements lie closest last; None where they cannot be told apart."""
    far = [stride(what.x.load, level.variable) for level in what.levels]
    if None in far or len(far) > LEVELS:
        return None
    known = [step.constant if step is not None and step.is_constant else 1 << 30 for step in far]
    return sorted(range(len(far)), key=lambda level: -known[level])


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    depth = int(np.prod(what.counts))
    return (
        what.channel is not None
        and extent(what.channel) >= LEAST_CHANNELS
        and depth >= LEAST_DEPTH
        and starts_known(what, constants)
        and order_of(what) is not None
    )


def write(what: Contraction, names: Names, bounds: Bounds, form: Form) -> Written:
    return _Rows(what, names, form).write(bounds)


@dataclass
class _Rows:
    what: Contraction
    names: Names
    form: Form

    def write(self, bounds: Bounds) -> Written:
        what = self.what
        assert what.channel is not None
        order = order_of(what)
        assert order is not None
        self.order = order
        group = self.form.group
        self.depth = up(int(np.prod(what.counts)), group)
        self.channels = up(extent(what.channel), COLUMNS)
        self.outer = shared_by(what, (what.w.load, what.start))
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        blocks = (self.channels // COLUMNS, self.depth // group, COLUMNS, group)
        name = what.w.load.buffer.name
        shape = (*lead, *(Dim.of(size) for size in blocks))
        self.weights = Buffer(self.names.fresh(f"{name}.blocks"), self.form.dtype, shape)
        self.bias = Buffer(
            self.names.fresh(f"{name}.start"), DType.I32, (*lead, Dim.of(self.channels))
        )
        one = self.form.dtype.bytes * self.depth + 4 * self.channels
        self.high = next((high for high in ROWS if high * one <= MOST_BYTES), ROWS[-1])
        rows, columns = self._highest(bounds), Dim.of(self.channels)
        shape = (rows, Dim.of(self.depth))
        self.rows = Buffer(self.names.fresh("rows"), self.form.dtype, shape)
        self.sums = Buffer(self.names.fresh("sums"), DType.I32, (rows, columns))
        for loop in what.shared:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._lines(bounds)
        for loop in reversed(what.shared):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        derived = [Derived(self.weights, self._weights), Derived(self.bias, self._bias)]
        places = shares(what, [*what.shared, *what.places])
        return Written(body, [self.rows, self.sums], derived, places)

    def _highest(self, bounds: Bounds) -> Dim:
        """The rows of the highest tile: no more than there are places."""
        what = self.what
        count = ONE
        if what.places:
            count = place_count(what) if self._joined() else what.places[-1].stop
        return simplify(dim_max(dim_min(count, self.high), 1), bounds)

    def _joined(self) -> bool:
        """Places of several rows follow each other as those of one row do."""
        what = self.what
        if any(level.start.symbols | level.stop.symbols for level in what.levels):
            return False
        steps = [stride(what.x.load, loop.variable) for loop in what.places]
        return all(
            a is not None and b is not None and a == b * loop.stop
            for a, b, loop in zip(steps, steps[1:], what.places[1:], strict=False)
        )

    def _lines(self, bounds: Bounds) -> list[Stmt]:
        what = self.what
        if not what.places:
            return self._tile(ZERO, ONE, {}, bounds)
        if self._joined():
            return self._tiles(place_count(what), {}, bounds)
        return by_lines(what, self._tiles, bounds)

    def _tiles(self, count: Dim, fixed: Mapping[str, Dim], bounds: Bounds) -> list[Stmt]:
        tiles = simplify(ceildiv(count, self.high), bounds)
        if tiles == 1:
            return self._tile(ZERO, count, fixed, bounds)
        tile = self.names.fresh("tile")
        inner = over(bounds, tile, ZERO, tiles)
        first = Dim.of(tile) * self.high
        body: list[Stmt] = []
        places = simplify(dim_min(count - first, self.high), inner)
        places, inner = named("places", places, self.names, inner, body)
        body += self._tile(first, places, fixed, inner)
        return [For(tile, ZERO, tiles, tuple(body))]

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
        what = self.what
        assert what.channel is not None
        result = self._gather(first, places, fixed, bounds)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        operands = (
            Load(self.sums, (ZERO, ZERO)),
            Load(self.rows, (ZERO, ZERO)),
            Load(self.weights, (*outer, ZERO, ZERO, ZERO, ZERO)),
            Load(self.bias, (*outer, ZERO)),
        )
        count = Dim.of(extent(what.channel))
        sizes = (places, count, Dim.of(self.depth), Dim.of(self.channels), ZERO, ONE)
        result.append(by_position(f"raot_tile_{self.form.suffix}", operands, sizes))
        p, channel = self.names.fresh("p"), self.names.fresh(what.channel.variable)
        inside = over(bounds, p, ZERO, places)
        body: list[Stmt] = []
        at, _ = self._at(first + Dim.of(p), fixed, inside, body)
        at = {**at, what.channel.variable: Dim.of(channel)}
        value = Load(self.sums, (Dim.of(p), Dim.of(channel)))
        done = finish(what, at, value, self.names)
        body.append(For(channel, ZERO, what.channel.stop, tuple(done)))
        return [*result, For(p, ZERO, places, tuple(body))]

    def _gather(
        self, first: Dim, places: Dim, fixed: Mapping[str, Dim], bounds: Bounds
    ) -> list[Stmt]:
        """One row for each place; all of them at once, where no window is cut off."""
        what = self.what
        steady = not any(level.start.symbols | level.stop.symbols for level in what.levels)
        result: list[Stmt] = []
        if steady:
            at, bounds = self._at(first, fixed, bounds, result)
            step = stride(what.x.load, what.places[-1].variable) if what.places else ZERO
            assert step is not None
            result.append(self._row(at, ZERO, places, step, bounds, result))
            return result
        p = self.names.fresh("p")
        inner = over(bounds, p, ZERO, places)
        body: list[Stmt] = []
        at, inner = self._at(first + Dim.of(p), fixed, inner, body)
        body.append(self._row(at, Dim.of(p), ONE, ZERO, inner, body))
        return [For(p, ZERO, places, tuple(body))]

    def _row(
        self,
        at: Mapping[str, Dim],
        row: Dim,
        places: Dim,
        step: Dim,
        bounds: Bounds,
        result: list[Stmt],
    ) -> Micro:
        found, image, _ = window(self.what, self.order, at, self.names, bounds, result)
        levels = [NO_LEVEL] * (LEVELS - len(found)) + _merged(found)
        levels = [NO_LEVEL] * (LEVELS - len(levels)) + levels[-LEVELS:]
        kind = "u8" if self.what.x.load.dtype is DType.U8 else "s8"
        sizes = [Dim.of(self.what.x.zero), places, step, Dim.of(self.depth)]
        for level in levels:
            sizes += [Dim.of(level.count), level.first, level.last, level.step]
        to = Load(self.rows, (row, ZERO))
        return by_position(f"raot_rows_{self.form.suffix}_{kind}", (to, image), tuple(sizes))

    def _weights(self, data: Arrays) -> Array:
        assert self.what.channel is not None
        source = data[self.what.w.load.buffer.name]
        found = weights_of(self.what, self.outer, self.order, source)
        lead = found.shape[: len(self.outer)]
        flat = found.reshape(*lead, extent(self.what.channel), -1)
        missing = (self.channels - flat.shape[-2], self.depth - flat.shape[-1])
        flat = np.pad(flat, [(0, 0)] * len(lead) + [(0, missing[0]), (0, missing[1])])
        group = self.form.group
        cut = flat.reshape(*lead, self.channels // COLUMNS, COLUMNS, self.depth // group, group)
        return np.ascontiguousarray(np.swapaxes(cut, -3, -2).astype(self.form.dtype.numpy))

    def _bias(self, data: Arrays) -> Array:
        moved = self.what.x.zero if self.form == PAIRS else less_of_bytes(self.what)
        found = starts_of(self.what, self.outer, data, moved)
        missing = self.channels - found.shape[-1]
        return np.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)])


def _merged(levels: Sequence[Level]) -> list[Level]:
    """Levels that are never cut off and follow each other, as one."""
    result: list[Level] = []
    for level in levels:
        before = result[-1] if result else None
        if before and _whole(before) and _whole(level) and before.step == level.step * level.count:
            count = before.count * level.count
            result[-1] = Level(count, ZERO, Dim.of(count), level.step)
        else:
            result.append(level)
    return result


def _whole(level: Level) -> bool:
    return level.first == 0 and level.last == level.count


# Each channel by itself


def depthwise_suits(what: Contraction, constants: frozenset[str]) -> bool:
    if what.channel is not None or not what.shared or not 0 < len(what.levels) < LEVELS:
        return False
    last = what.shared[-1]
    return (
        stride(what.x.load, last.variable) == 1
        and extent_known(last)
        and extent(last) >= LEAST_CHANNELS
        and starts_known(what, constants)
        and last in shared_by(what, (what.w.load,))
        and lies_last(what, last)
    )


def extent_known(loop: For) -> bool:
    return loop.stop.is_constant


def depthwise(what: Contraction, names: Names, bounds: Bounds) -> Written:
    """One place at a time, all channels side by side."""
    *shared, last = what.shared
    loops = [*shared, *what.places]
    for loop in loops:
        bounds = over(bounds, loop.variable, loop.start, loop.stop)
    outer = shared_by(what, (what.w.load, what.start))
    assert outer[-1] == last
    lead = tuple(Dim.of(extent(loop)) for loop in outer[:-1])
    channels, taps = extent(last), int(np.prod(what.counts))
    name = what.w.load.buffer.name
    weights = Buffer(names.fresh(f"{name}.taps"), DType.I16, (*lead, Dim.of(taps), last.stop))
    bias = Buffer(names.fresh(f"{name}.start"), DType.I32, (*lead, last.stop))
    sums = Buffer(names.fresh("sums"), DType.I32, (last.stop,))
    body: list[Stmt] = []
    at = {loop.variable: Dim.of(loop.variable) for loop in what.places}
    order = range(len(what.levels))
    found, image, _ = window(what, order, {**at, last.variable: ZERO}, names, bounds, body)
    levels = [NO_LEVEL] * (2 - len(found)) + found
    rows, columns = levels
    index = tuple(Dim.of(loop.variable) for loop in outer[:-1])
    operands = (
        Load(sums, (ZERO,)), image, Load(weights, (*index, ZERO, ZERO)),
        Load(bias, (*index, ZERO)),
    )  # fmt: skip
    sizes = (
        Dim.of(channels), Dim.of(what.x.zero), rows.first, rows.last, rows.step,
        Dim.of(columns.count), columns.first, columns.last, columns.step,
    )  # fmt: skip
    kind = "u8" if what.x.load.dtype is DType.U8 else "s8"
    body.append(by_position(f"raot_depthwise_channels_{kind}", operands, sizes))
    channel = names.fresh(last.variable)
    done = finish(
        what, {**at, last.variable: Dim.of(channel)}, Load(sums, (Dim.of(channel),)), names
    )
    body.append(For(channel, ZERO, last.stop, tuple(done)))
    for loop in reversed(loops):
        body = [For(loop.variable, loop.start, loop.stop, tuple(body))]

    def packed(data: Arrays) -> Array:
        gathered = weights_of(what, outer, order, data[name])
        flat = gathered.reshape(*gathered.shape[: len(outer)], taps)
        return np.ascontiguousarray(np.swapaxes(flat, -1, -2).astype(np.int16))

    def starts(data: Arrays) -> Array:
        return starts_of(what, outer, data, what.x.zero)

    return Written(body, [sums], [Derived(weights, packed), Derived(bias, starts)])
