"""Convolutions of each channel by itself, 3 x 3, for Arm's DSP extension.

Some rows of a channel at a time are copied into a small plane with a frame around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, interval, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Stmt
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.dsp import ORDER, SLACK
from relax_aot.scheduling.integer_match import Contraction, stride
from relax_aot.scheduling.integer_parts import (
    Arrays,
    Derived,
    Written,
    extent,
    finish,
    shared_by,
    starts_known,
    starts_of,
    weights_of,
)
from relax_aot.scheduling.integer_requantize import split, steps_of, stored_at, straight
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient

SUMS = 160
"""Sums that are kept at once, where a row is not longer."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis along which windows lie: window i begins at `stride * i - before`."""

    loop: For
    level: int
    stride: int
    before: int
    size: Dim


def axis_of(what: Contraction, loop: For, position: int) -> Axis | None:
    """None where windows along the loop are not three wide or are cut off elsewhere than at
    the ends of an axis of the image."""
    level, index = what.levels[position], what.x.load.index
    own = [at for at, dim in enumerate(index) if loop.variable in dim.symbols]
    if len(own) != 1 or what.counts[position] != 3:
        return None
    (place,) = own
    step, tap = coefficient(index[place], loop.variable), coefficient(index[place], level.variable)
    rest = index[place].substitute({loop.variable: Dim.of(0), level.variable: Dim.of(0)})
    if step is None or step < 1 or tap != 1 or not rest.is_constant or rest.constant > 0:
        return None
    before, size = -rest.constant, what.x.load.buffer.shape[place]
    first = dim_max(before - Dim.of(loop.variable) * step, 0)
    last = dim_min(size + before - Dim.of(loop.variable) * step, 3)
    whole = level.start == 0 and level.stop == 3
    if not whole and (level.start, level.stop) != (first, last):
        return None
    return Axis(loop, position, step, before, size)


def axes_of(what: Contraction) -> tuple[Axis, Axis] | None:
    """Rows and columns; None where the contraction is no such convolution."""
    if what.channel is not None or len(what.levels) != 2 or len(what.places) < 2:
        return None
    rows, columns = (
        axis_of(what, loop, position)
        for loop, position in zip(what.places[-2:], (0, 1), strict=True)
    )
    if rows is None or columns is None or rows.stride != columns.stride:
        return None
    return rows, columns


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    weights_fit = what.w.load.dtype in (DType.I8, DType.U8)
    return weights_fit and starts_known(what, constants) and axes_of(what) is not None


def write(what: Contraction, names: Names, bounds: Bounds) -> Written:
    axes = axes_of(what)
    assert axes is not None
    return _Depthwise(what, names, axes[0], axes[1]).write(bounds)


@dataclass
class _Depthwise:
    what: Contraction
    names: Names
    rows: Axis
    columns: Axis

    def write(self, bounds: Bounds) -> Written:
        what = self.what
        outer = [*what.shared, *what.places[:-2]]
        for loop in outer:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        self.outer = shared_by(what, (what.w.load, what.start))
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        name = what.w.load.buffer.name
        self.weights = Buffer(self.names.fresh(f"{name}.windows"), DType.I16, (*lead, Dim.of(10)))
        self.bias = Buffer(self.names.fresh(f"{name}.start"), DType.I32, lead)
        across = self.columns.loop.stop
        longest = max(interval(across, bounds)[1], 1)
        highest = max(interval(self.rows.loop.stop, bounds)[1], 1)
        self.height = max(1, min(highest, SUMS // longest))
        self.width = (across - 1) * self.columns.stride + 3
        tall = (self.height - 1) * self.rows.stride + 3
        plane = self.names.fresh("plane")
        dtype = what.x.load.dtype
        self.plane = Buffer(plane, dtype, (ceildiv(self.width * tall, 4) * 4 + SLACK - 3,))
        self.sums = Buffer(self.names.fresh("sums"), DType.I32, (across * self.height + 8,))
        body = self._bands(bounds)
        for loop in reversed(outer):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        derived = [Derived(self.weights, self._weights), Derived(self.bias, self._bias)]
        return Written(body, [self.plane, self.sums], derived)

    def _bands(self, bounds: Bounds) -> list[Stmt]:
        stop = self.rows.loop.stop
        band = self.names.fresh("band")
        count = ceildiv(stop, self.height)
        inner = over(bounds, band, Dim.of(0), count)
        first = Dim.of(band) * self.height
        body: list[Stmt] = []
        if count == 1:
            inner, first = bounds, Dim.of(0)
        height = simplify(dim_min(stop - first, self.height), inner)
        height, inner = named("height", height, self.names, inner, body)
        body += self._band(first, height, inner)
        return body if count == 1 else [For(band, Dim.of(0), count, tuple(body))]

    def _band(self, first: Dim, height: Dim, bounds: Bounds) -> list[Stmt]:
        what, rows, columns = self.what, self.rows, self.columns
        kind = "u8" if what.x.load.dtype is DType.U8 else "s8"
        zero = Dim.of(0)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        steps = [stride(what.x.load, what.levels[axis.level].variable) for axis in (rows, columns)]
        assert steps[0] is not None and steps[1] is not None
        sizes = (
            Dim.of(what.x.zero),
            (height - 1) * rows.stride + 3,
            self.width,
            first * rows.stride - rows.before,
            Dim.of(-columns.before),
            rows.size,
            columns.size,
            steps[0],
            steps[1],
        )
        plane = Load(self.plane, (zero,))
        result: list[Stmt] = [by_position(f"raot_plane_{kind}", (plane, self._image()), sizes)]
        sums = Load(self.sums, (zero,))
        operands = (sums, plane, Load(self.weights, (*outer, zero)), Load(self.bias, outer))
        across = columns.loop.stop
        moves = (height, across, self.width, Dim.of(rows.stride), across)
        result.append(by_position(f"raot_depthwise_{kind}", operands, moves))
        byte = self._bytes(first, height, sums)
        if byte is not None:
            return [*result, byte]
        r, c = (self.names.fresh(axis.loop.variable) for axis in (rows, columns))
        at: Mapping[str, Dim] = {
            rows.loop.variable: first + Dim.of(r),
            columns.loop.variable: Dim.of(c),
        }
        value = Load(self.sums, (Dim.of(r) * across + Dim.of(c),))
        body = finish(what, at, value, self.names)
        inner = For(c, zero, across, tuple(body))
        return [*result, For(r, zero, height, (inner,))]

    def _bytes(self, first: Dim, height: Dim, sums: Load) -> Stmt | None:
        """All sums of a band to bytes at once, where that is what becomes of them."""
        parts = split(self.what)
        if parts is None:
            return None
        found, rest = parts
        store = straight(rest)
        places = [axis.loop.variable for axis in (self.rows, self.columns)]
        steps = steps_of(store, places) if store is not None else None
        steady = all(stride(found.scale, name) == 0 for name in places)
        if store is None or steps is None or steps[1] != 1 or not steady:
            return None
        across = self.columns.loop.stop
        out = stored_at(store, {places[0]: first, places[1]: Dim.of(0)})
        joined = steps[0] == across
        extents = (Dim.of(1), height * across) if joined else (height, across)
        return found.micro(out, sums, found.scale, extents, (steps[0], across, Dim.of(0)))

    def _image(self) -> Load:
        """The first element of the channel's image."""
        load = self.what.x.load
        axes = (self.rows, self.columns)
        gone = {axis.loop.variable: Dim.of(0) for axis in axes}
        gone |= {self.what.levels[axis.level].variable: Dim.of(axis.before) for axis in axes}
        return Load(load.buffer, tuple(dim.substitute(gone) for dim in load.index))

    def _weights(self, data: Arrays) -> Array:
        found = weights_of(self.what, self.outer, (0, 1), data[self.what.w.load.buffer.name])
        packed = np.zeros((*found.shape[:-2], 10), np.int16)
        packed[..., list(ORDER)] = found.reshape(*found.shape[:-2], 9)
        return packed

    def _bias(self, data: Arrays) -> Array:
        return starts_of(self.what, self.outer, data)
