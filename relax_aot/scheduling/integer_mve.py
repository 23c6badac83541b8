"""Integer contractions for Helium: rows of bytes, 16 products in one instruction.

Up to eight places that lie side by side in a row of the output are worked on at once. Places
of several rows count as one where nothing tells rows apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_min, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Buffer, For, Load, Micro, Stmt
from relax_aot.ir.parameters import surely
from relax_aot.ir.types import DType
from relax_aot.microkernels import by_position
from relax_aot.microkernels.mve import ROWS
from relax_aot.scheduling.integer_match import Contraction, stride
from relax_aot.scheduling.integer_parts import (
    Arrays,
    Derived,
    Written,
    by_lines,
    clipped_along,
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
from relax_aot.scheduling.integer_requantize import code_sum, split, steps_of, stored_at, straight
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient

LEAST_DEPTH = 4
BLOCK = 16
FLIP = 128


@dataclass(frozen=True, slots=True)
class Roles:
    """Levels by what windows do along them: `column` moves along the axis of the last loop over
    places and may be cut off there, `line` may be cut off elsewhere, `channel` is never."""

    column: int | None
    line: int | None
    channel: int | None

    def order(self) -> list[int]:
        return [level for level in (self.line, self.column, self.channel) if level is not None]


def roles_of(what: Contraction) -> Roles | None:
    if not what.places or len(what.levels) > 3:
        return None
    across = what.places[-1].variable
    axes = [at for at, dim in enumerate(what.x.load.index) if across in dim.symbols]
    if len(axes) != 1:
        return None
    dim = what.x.load.index[axes[0]]
    column: int | None = None
    cut: list[int] = []
    others: list[int] = []
    for position, level in enumerate(what.levels):
        symbols = level.start.symbols | level.stop.symbols
        if level.variable in dim.symbols:
            if column is not None or not clipped_along(what, position, what.places[-1], axes[0]):
                return None
            column = position
        elif across in symbols:
            return None
        elif symbols:
            cut.append(position)
        else:
            others.append(position)
    if len(cut) > 1 or len(cut) + len(others) > 2:
        return None
    # Channels innermost: where they lie side by side, they are copied in one go.
    line = cut[0] if cut else (others.pop(0) if len(others) > 1 else None)
    return Roles(column, line, others[0] if others else None)


def suits(what: Contraction, constants: frozenset[str]) -> bool:
    low, high = what.w.load.dtype.limits
    fits = surely(lambda: low - what.w.zero >= -128 and high - what.w.zero <= 127)
    depth = int(np.prod(what.counts))
    return (
        what.channel is not None
        and fits
        and depth >= LEAST_DEPTH
        and starts_known(what, constants)
        and roles_of(what) is not None
    )


def write(what: Contraction, names: Names, bounds: Bounds) -> Written:
    roles = roles_of(what)
    assert roles is not None
    return _Rows(what, names, roles).write(bounds)


@dataclass
class _Rows:
    what: Contraction
    names: Names
    roles: Roles

    def write(self, bounds: Bounds) -> Written:
        what = self.what
        assert what.channel is not None
        depth = int(np.prod(what.counts))
        self.depth = -(-depth // BLOCK) * BLOCK
        self.channels = -(-extent(what.channel) // 4) * 4
        self.outer = shared_by(what, (what.w.load, what.start))
        lead = tuple(Dim.of(extent(loop)) for loop in self.outer)
        blocks = (self.channels // 4, self.depth // BLOCK, 4, BLOCK)
        name = what.w.load.buffer.name
        shape = (*lead, *(Dim.of(size) for size in blocks))
        self.weights = Buffer(self.names.fresh(f"{name}.blocks"), DType.I8, shape)
        self.bias = Buffer(
            self.names.fresh(f"{name}.start"), DType.I32, (*lead, Dim.of(self.channels))
        )
        rows, columns = Dim.of(ROWS), Dim.of(self.channels)
        self.rows = Buffer(self.names.fresh("rows"), DType.I8, (rows, Dim.of(self.depth)))
        self.sums = Buffer(self.names.fresh("sums"), DType.I32, (columns, rows))
        self.staged = Buffer(self.names.fresh("staged"), DType.I8, (columns, rows))
        self.uses_staged = False
        for loop in what.shared:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._lines(bounds)
        for loop in reversed(what.shared):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        scratch = [self.rows, self.sums, *([self.staged] if self.uses_staged else [])]
        derived = [Derived(self.weights, self._weights), Derived(self.bias, self._bias)]
        return Written(body, scratch, derived)

    def _joined(self) -> bool:
        """Places of several rows follow each other as those of one row do."""
        what = self.what
        windowed = any(level.start.symbols | level.stop.symbols for level in what.levels)
        return not windowed and self.roles.column is None and follow(what, what.x.load)

    def _lines(self, bounds: Bounds) -> list[Stmt]:
        """Tiles of places side by side; outer places one by one, where rows differ."""
        what = self.what
        if self._joined():
            return self._tiles(place_count(what), {}, bounds)
        return by_lines(what, self._tiles, bounds)

    def _tiles(self, count: Dim, fixed: Mapping[str, Dim], bounds: Bounds) -> list[Stmt]:
        tile = self.names.fresh("tile")
        tiles = ceildiv(count, ROWS)
        inner = over(bounds, tile, Dim.of(0), tiles)
        first = Dim.of(tile) * ROWS
        body: list[Stmt] = []
        if simplify(tiles, bounds) == 1:
            inner, first = bounds, Dim.of(0)
        places = simplify(dim_min(count - first, ROWS), inner)
        places, inner = named("places", places, self.names, inner, body)
        body += self._tile(first, places, fixed, inner)
        if simplify(tiles, bounds) == 1:
            return body
        return [For(tile, Dim.of(0), tiles, tuple(body))]

    def _at(
        self, place: Dim, fixed: Mapping[str, Dim], bounds: Bounds, result: list[Stmt]
    ) -> tuple[dict[str, Dim], Bounds]:
        if fixed or len(self.what.places) == 1:
            return {**fixed, self.what.places[-1].variable: place}, bounds
        return place_at(self.what, place, self.names, bounds, result)

    def _tile(
        self, first: Dim, places: Dim, fixed: Mapping[str, Dim], bounds: Bounds
    ) -> list[Stmt]:
        what = self.what
        assert what.channel is not None
        result: list[Stmt] = []
        at, bounds = self._at(first, fixed, bounds, result)
        bounds = self._gather(at, places, bounds, result)
        zero = Dim.of(0)
        outer = tuple(Dim.of(loop.variable) for loop in self.outer)
        sums = Load(self.sums, (zero, zero))
        operands = (
            sums,
            Load(self.weights, (*outer, zero, zero, zero, zero)),
            Load(self.rows, (zero, zero)),
            Load(self.bias, (*outer, zero)),
        )
        sizes = (Dim.of(self.channels), Dim.of(self.depth), places)
        result.append(by_position("raot_multiply_rows_s8", operands, sizes))
        value = self.sums
        rest = what
        parts = split(what)
        if parts is not None and self._scale_fits(parts[0].scale):
            found, rest = parts
            scale = moved(found.scale, {what.channel.variable: zero})
            step = stride(found.scale, what.channel.variable)
            assert step is not None
            extents = (what.channel.stop, places)
            store = straight(rest)
            steps = self._out_steps(rest)
            here = {**at, what.channel.variable: zero}
            if store is not None and steps is not None:
                out = stored_at(store, here)
                moves = (steps, Dim.of(ROWS), step)
                return [*result, found.micro(out, sums, scale, extents, moves)]
            out = Load(self.staged, (zero, zero))
            moves = (Dim.of(ROWS), Dim.of(ROWS), step)
            result.append(found.micro(out, sums, scale, extents, moves))
            self.uses_staged = True
            value = self.staged
            summed = self._summed(rest, here, extents)
            if summed is not None:
                return [*result, summed]
        channel, p = self.names.fresh(what.channel.variable), self.names.fresh("p")
        inside = over(bounds, channel, zero, what.channel.stop)
        inside = over(inside, p, zero, places)
        body: list[Stmt] = []
        here, inside = self._at(first + Dim.of(p), fixed, inside, body)
        here = {**here, what.channel.variable: Dim.of(channel)}
        body += finish(rest, here, Load(value, (Dim.of(channel), Dim.of(p))), self.names)
        loop = For(p, zero, places, tuple(body))
        return [*result, For(channel, zero, what.channel.stop, (loop,))]

    def _scale_fits(self, scale: Load) -> bool:
        """One scale for all places of a channel."""
        return all(stride(scale, loop.variable) == 0 for loop in self.what.places)

    def _out_steps(self, rest: Contraction) -> Dim | None:
        """How far the results of channels are apart, where those of places lie side by side."""
        store = straight(rest)
        if store is None or rest.channel is None:
            return None
        load = Load(store.buffer, store.index)
        steps = steps_of(store, [rest.channel.variable, rest.places[-1].variable])
        if steps is None or steps[1] != 1 or (self._joined() and not follow(rest, load)):
            return None
        return steps[0]

    def _summed(
        self, rest: Contraction, here: Mapping[str, Dim], extents: tuple[Dim, Dim]
    ) -> Micro | None:
        """What is staged and the codes that are added to it, to the result."""
        found = code_sum(rest)
        if found is None or rest.channel is None:
            return None
        names = [rest.channel.variable, rest.places[-1].variable]
        loads = (Load(found.store.buffer, found.store.index), found.other)
        moves = [[stride(load, name) for name in names] for load in loads]
        beside = all(move[0] is not None and move[1] == 1 for move in moves)
        if not beside or (self._joined() and not all(follow(rest, load) for load in loads)):
            return None
        out_step, other_step = moves[0][0], moves[1][0]
        assert out_step is not None and other_step is not None
        zero = Dim.of(0)
        operands = (moved(loads[0], here), Load(self.staged, (zero, zero)), moved(loads[1], here))
        numbers = (found.by, found.by_other, found.more, found.shift)
        steps = (out_step, Dim.of(ROWS), other_step)
        sizes = (*extents, *steps, *(Dim.of(number) for number in numbers))
        return by_position("raot_sum_codes_s8", operands, sizes)

    def _gather(
        self, at: dict[str, Dim], places: Dim, bounds: Bounds, result: list[Stmt]
    ) -> Bounds:
        what, roles = self.what, self.roles
        unsigned = what.x.load.dtype is DType.U8
        steady = [level for level in roles.order() if level != roles.column]
        levels, image, bounds = window(what, steady, at, self.names, bounds, result)
        found = dict(zip(steady, levels, strict=True))
        one, zero = Dim.of(1), Dim.of(0)
        channel = found.get(roles.channel) if roles.channel is not None else None
        line = found.get(roles.line) if roles.line is not None else None
        count0, count2 = channel.count if channel else 1, 1
        across = what.places[-1].variable
        step2 = stride(what.x.load, across)
        assert step2 is not None
        lead, apart, tap, width = zero, one, zero, Dim.of(ROWS)
        if roles.column is not None:
            variable = what.levels[roles.column].variable
            dims = what.x.load.index
            (axis,) = (n for n, dim in enumerate(dims) if variable in dim.symbols)
            steps = [coefficient(dims[axis], name) for name in (across, variable)]
            assert steps[0] is not None and steps[1] is not None
            apart, tap = Dim.of(steps[0]), Dim.of(steps[1])
            lead = dims[axis].substitute({across: at[across], variable: zero})
            width = what.x.load.buffer.shape[axis]
            count2 = what.counts[roles.column]
            step2 = prod(image.buffer.shape[axis + 1 :], start=one)
            index = tuple(zero if n == axis else dim for n, dim in enumerate(image.index))
            image = Load(image.buffer, index)
        cut = what.x.zero - (FLIP if unsigned else 0)
        values = (
            Dim.of(cut), Dim.of(FLIP if unsigned else 0), Dim.of(self.depth), places,
            Dim.of(count0), channel.step if channel else zero, one,
            Dim.of(line.count if line else 1), line.first if line else zero,
            line.last if line else one, line.step if line else zero, Dim.of(count0 * count2),
            Dim.of(count2), step2, Dim.of(count0), lead, apart, tap, width,
        )  # fmt: skip
        rows = Load(self.rows, (zero, zero))
        result.append(by_position(f"raot_rows_{'u8' if unsigned else 's8'}", (rows, image), values))
        return bounds

    def _weights(self, data: Arrays) -> Array:
        what = self.what
        source = data[what.w.load.buffer.name]
        found = weights_of(what, self.outer, self.roles.order(), source)
        lead = found.shape[: len(self.outer)]
        flat = found.reshape(*lead, found.shape[len(lead)], -1)
        missing = (self.channels - flat.shape[-2], self.depth - flat.shape[-1])
        flat = np.pad(flat, [(0, 0)] * len(lead) + [(0, missing[0]), (0, missing[1])])
        cut = flat.reshape(*lead, self.channels // 4, 4, self.depth // BLOCK, BLOCK)
        return np.ascontiguousarray(np.swapaxes(cut, -3, -2).astype(np.int8))

    def _bias(self, data: Arrays) -> Array:
        unsigned = self.what.x.load.dtype is DType.U8
        found = starts_of(self.what, self.outer, data, FLIP if unsigned else 0)
        missing = self.channels - found.shape[-1]
        return np.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)])


def moved(load: Load, at: Mapping[str, Dim]) -> Load:
    return Load(load.buffer, tuple(dim.substitute(at) for dim in load.index))


def follow(what: Contraction, load: Load) -> bool:
    """The last place of a row and the first of the next are as far apart as two of one row."""
    steps = [stride(load, loop.variable) for loop in what.places]
    return all(
        a is not None and b is not None and a == b * loop.stop
        for a, b, loop in zip(steps, steps[1:], what.places[1:], strict=False)
    )
