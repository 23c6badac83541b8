"""Convolutions of each channel by itself for Helium, windows of at most three by four.

Some lines of a channel at a time are laid out in fours (`depthwise_quads.h`), so that one load is
a window of two places. Lines may be columns of the image: those windows follow along the longer
axis. Whether channels lie side by side is all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, interval, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Stmt, Store
from relax_aot.ir.parameters import surely
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.mve import WINDOW
from relax_aot.scheduling.integer_last import MOST_APART
from relax_aot.scheduling.integer_match import Contraction, stride
from relax_aot.scheduling.integer_mve import FLIP
from relax_aot.scheduling.integer_parts import (
    Arrays,
    Derived,
    Written,
    extent,
    shared_by,
    starts_known,
    starts_of,
    weights_of,
)
from relax_aot.scheduling.integer_requantize import steps_of, stored_at, straight
from relax_aot.scheduling.integer_rescale import Rescaled, loads_of, rescaled, values
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient

SUMS = 160
"""Sums that are kept at once, where two lines are not longer."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis along which windows of `count` lie: window i begins at `stride * i - before`."""

    loop: For
    level: int
    count: int
    stride: int
    before: int
    size: Dim


@dataclass(frozen=True, slots=True)
class Way:
    """The axis whose lines come in fours, the one along which windows follow, and how far apart
    results are along each."""

    lines: Axis
    along: Axis
    steps: tuple[Dim, Dim]

    @property
    def outs(self) -> int:
        """Lines of the output that a block gives."""
        return 3 - self.lines.stride


def suits(what: Contraction, constants: frozenset[str], bounds: Bounds) -> bool:
    low, high = what.w.load.dtype.limits
    fits = surely(lambda: low - what.w.zero >= -128 and high - what.w.zero <= 127)
    return fits and starts_known(what, constants) and _way(what, constants, bounds) is not None


def write(what: Contraction, names: Names, bounds: Bounds, constants: frozenset[str]) -> Written:
    way, parts = _way(what, constants, bounds), rescaled(what, constants)
    assert way is not None and parts is not None
    store = straight(parts[1])
    assert store is not None
    return _Quads(what, names, way, parts[0], store).write(bounds)


def _way(what: Contraction, constants: frozenset[str], bounds: Bounds) -> Way | None:
    if what.channel is not None or len(what.levels) != 2 or len(what.places) < 2:
        return None
    parts = rescaled(what, constants)
    store = straight(parts[1]) if parts is not None else None
    axes = [_axis(what, loop) for loop in what.places[-2:]]
    if store is None or axes[0] is None or axes[1] is None or axes[0].level == axes[1].level:
        return None
    found = []
    for lines, along in ((axes[0], axes[1]), (axes[1], axes[0])):
        steps = steps_of(store, [lines.loop.variable, along.loop.variable])
        if steps is None or not _fits(what, lines, along, steps[1]):
            continue
        found.append(Way(lines, along, (steps[0], steps[1])))
    longest = max((interval(way.along.loop.stop, bounds)[1] for way in found), default=0)
    return next((w for w in found if interval(w.along.loop.stop, bounds)[1] == longest), None)


def _fits(what: Contraction, lines: Axis, along: Axis, step: Dim) -> bool:
    if lines.stride > 2 or lines.count > 2 + lines.stride or along.stride > 2 or along.count > 4:
        return False
    source = stride(what.x.load, what.levels[along.level].variable)
    moves = [0 if s is None or not s.is_constant else s.constant for s in (source, step)]
    return all(0 < move <= MOST_APART for move in moves)


def _axis(what: Contraction, loop: For) -> Axis | None:
    """None where windows along the loop are cut off elsewhere than at the ends of an axis."""
    index = what.x.load.index
    own = [at for at, dim in enumerate(index) if loop.variable in dim.symbols]
    if len(own) != 1:
        return None
    (place,) = own
    levels = [n for n, lv in enumerate(what.levels) if lv.variable in index[place].symbols]
    if len(levels) != 1:
        return None
    (position,) = levels
    level, count = what.levels[position], what.counts[position]
    step, tap = coefficient(index[place], loop.variable), coefficient(index[place], level.variable)
    rest = index[place].substitute({loop.variable: Dim.of(0), level.variable: Dim.of(0)})
    if step is None or step < 1 or tap != 1 or not rest.is_constant or rest.constant > 0:
        return None
    before, size = -rest.constant, what.x.load.buffer.shape[place]
    first = dim_max(before - Dim.of(loop.variable) * step, 0)
    last = dim_min(size + before - Dim.of(loop.variable) * step, count)
    starts, stops = (
        (level.start == 0, level.start == first),
        (level.stop == count, level.stop == last),
    )
    if not any(starts) or not any(stops):
        return None
    return Axis(loop, position, count, step, before, size)


@dataclass
class _Quads:
    what: Contraction
    names: Names
    way: Way
    found: Rescaled
    store: Store

    def write(self, bounds: Bounds) -> Written:
        what, way = self.what, self.way
        lines, along = way.lines, way.along
        outer = [*what.shared, *what.places[:-2]]
        for loop in outer:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        tables = [load for part in self.found.parts for load in loads_of(part)]
        self.outer = shared_by(what, (what.w.load, what.start, *tables))
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        name = what.w.load.buffer.name
        fresh = self.names.fresh
        shape = (*lead, Dim.of(way.outs * WINDOW))
        self.weights = Buffer(fresh(f"{name}.quads"), DType.I8, shape)
        self.start = Buffer(fresh(f"{name}.start"), DType.I32, lead)
        kind = DType.F32 if self.found.form == "f32" else DType.I32
        shape = (*lead, Dim.of(len(self.found.parts)))
        self.scales = Buffer(fresh(f"{name}.scales"), kind, shape)
        longest = max(interval(along.loop.stop, bounds)[1], 1)
        highest = max(interval(lines.loop.stop, bounds)[1], 1)
        blocks = max(1, min(-(-highest // way.outs), SUMS // (way.outs * longest)))
        self.height = blocks * way.outs
        self.length = (along.loop.stop - 1) * along.stride + along.count
        self.size = self.length * (4 * blocks) + WINDOW
        self.quads = Buffer(fresh("quads"), DType.I8, (self.size,))
        self.sums = Buffer(fresh("sums"), DType.I32, (along.loop.stop * self.height + 8,))
        body = self._bands(bounds)
        single = simplify(ceildiv(lines.loop.stop, self.height), bounds) == 1
        for loop in reversed(outer):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        body = [self._frame(), *body] if single else body
        derived = [
            Derived(self.weights, self._weights),
            Derived(self.start, self._start),
            Derived(self.scales, self._scales),
        ]
        return Written(body, [self.quads, self.sums], derived)

    def _cut(self) -> int:
        """How much less codes are in blocks than in the image."""
        return FLIP if self.what.x.load.dtype is DType.U8 else 0

    def _frame(self) -> Stmt:
        zero = Dim.of(self.what.x.zero - self._cut())
        return by_position("raot_frame_quads", (Load(self.quads, (Dim.of(0),)),), (zero, self.size))

    def _bands(self, bounds: Bounds) -> list[Stmt]:
        stop = self.way.lines.loop.stop
        band = self.names.fresh("band")
        count = simplify(ceildiv(stop, self.height), bounds)
        inner = over(bounds, band, Dim.of(0), count)
        first = Dim.of(band) * self.height
        if count == 1:
            inner, first = bounds, Dim.of(0)
        body: list[Stmt] = []
        height = simplify(dim_min(stop - first, self.height), inner)
        height, inner = named("height", height, self.names, inner, body)
        body += self._band(first, height, count == 1)
        return body if count == 1 else [For(band, Dim.of(0), count, tuple(body))]

    def _band(self, first: Dim, height: Dim, single: bool) -> list[Stmt]:
        what, way = self.what, self.way
        lines, along = way.lines, way.along
        zero = Dim.of(0)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        steps = [stride(what.x.load, what.levels[axis.level].variable) for axis in (lines, along)]
        assert steps[0] is not None and steps[1] is not None
        blocks = ceildiv(height, way.outs)
        sizes = (
            Dim.of(self._cut()), blocks, self.length, first * lines.stride - lines.before,
            Dim.of(-along.before), lines.size, along.size, steps[0], steps[1],
        )  # fmt: skip
        quads, sums = Load(self.quads, (zero,)), Load(self.sums, (zero,))
        kind = "u8" if self._cut() else "s8"
        count = along.loop.stop
        moves = (blocks, Dim.of(way.outs), count, Dim.of(along.stride), self.length)
        weights = Load(self.weights, (*outer, zero))
        at: Mapping[str, Dim] = {lines.loop.variable: first, along.loop.variable: zero}
        found = self.found
        numbers = (Dim.of(n) for n in (found.zero, found.low, found.high))
        operands = (
            stored_at(self.store, at), sums, Load(self.start, outer),
            Load(self.scales, (*outer, zero)),
        )  # fmt: skip
        result: list[Stmt] = [] if single else [self._frame()]
        return [
            *result,
            by_position(f"raot_quads_{kind}", (quads, self._image()), sizes),
            by_position("raot_multiply_quads_s8", (sums, quads, weights), moves),
            by_position(
                f"raot_channel_{found.form}{found.suffix}",
                operands,
                (height, count, *way.steps, *numbers),
            ),
        ]

    def _image(self) -> Load:
        """The first element of the channel's image."""
        load = self.what.x.load
        axes = (self.way.lines, self.way.along)
        gone = {axis.loop.variable: Dim.of(0) for axis in axes}
        gone |= {self.what.levels[axis.level].variable: Dim.of(axis.before) for axis in axes}
        return Load(load.buffer, tuple(dim.substitute(gone) for dim in load.index))

    def _weights(self, data: Arrays) -> Array:
        lines, along = self.way.lines, self.way.along
        order = (along.level, lines.level)
        found = weights_of(self.what, self.outer, order, data[self.what.w.load.buffer.name])
        packed = np.zeros((*found.shape[:-2], self.way.outs, 4, 4), np.int8)
        for out in range(self.way.outs):
            packed[..., out, : along.count, out : out + lines.count] = found
        return packed.reshape(*found.shape[:-2], -1)

    def _start(self, data: Arrays) -> Array:
        return starts_of(self.what, self.outer, data, self._cut())

    def _scales(self, data: Arrays) -> Array:
        found = self.found
        kind = np.float32 if found.form == "f32" else np.int32
        parts = [values(found.scale, self.outer, data).astype(kind)]
        if found.down is not None:
            parts.append((found.less - values(found.down, self.outer, data)).astype(kind))
        return np.stack(parts, axis=-1)
