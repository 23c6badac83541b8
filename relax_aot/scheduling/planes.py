"""Convolutions of each channel by itself, on targets with vectors: sums of shifted planes.

Some lines of the image and a frame of zeros are copied to a strip, in which a tap lies a fixed
distance from each place; places of all those lines are then one long row, those between lines
too. As with images, the weights are known to be finite, and a sum of -0 may become +0. Where
windows are several places apart, those rows and columns of the image that one tap reads lie
side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from relax_aot.ir.builder import less, less_equal
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.loops import (
    Apply,
    Buffer,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Reserve,
    Select,
    Stmt,
    Store,
    binary,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient
from relax_aot.scheduling.sums import Sum, ends, indexed_by, linear, moved, stored
from relax_aot.scheduling.windows import whole

MOST_TAPS = 32
LEAST_PLACES = 16
MOST_APART = 2
ZERO, ONE = Dim.of(0), Dim.of(1)
NOTHING = Lit(0.0, DType.F32)


@dataclass(frozen=True, slots=True)
class Axis:
    """Tap `k` of place `i` is element `stride * i + apart * k - before` of `size`."""

    loop: For
    level: For
    places: int
    taps: int
    stride: int
    apart: int
    before: int
    size: int

    @property
    def phases(self) -> int:
        return min(self.stride, (self.taps - 1) * self.apart + 1)

    def frame(self, places: int) -> int:
        """Elements of one phase that so many places cover."""
        return places + (self.taps - 1) * self.apart // self.stride

    def at(self, tap: int) -> tuple[int, int]:
        """Phase and place of a tap of place 0."""
        far = tap * self.apart
        return far % self.stride, far // self.stride


@dataclass(frozen=True, slots=True)
class Planes:
    """A sum over windows along `down` and `across`; `lines` of the result at once."""

    sum: Sum
    down: Axis
    across: Axis
    lines: int


def planes_of(sum_: Sum, finite: frozenset[str], room: int) -> Planes | None:
    """None where it is no such sum, or a line takes more than `room` bytes."""
    ways = [_planes(way, room) for way in (sum_, sum_.turned) if way.left.buffer.name in finite]
    return next((way for way in ways if way), None)


def _planes(sum_: Sum, room: int) -> Planes | None:
    pixels = [
        loop
        for loop in sum_.free
        if linear(sum_.left, loop.variable) == 0
        and linear(sum_.right, loop.variable) not in (None, 0)
    ]
    pixels = pixels[-2:]
    others = [loop.variable for loop in sum_.nest.loops if loop not in pixels]
    alone = all(linear(sum_.right, name) not in (None, ZERO) for name in others)
    if len(pixels) < 2 or len(sum_.levels) != 2 or not alone or set(others) & sum_.windows:
        return None
    axes = [_axis(sum_, loop) for loop in pixels]
    if axes[0] is None or axes[1] is None or axes[0].level == axes[1].level:
        return None
    down, across = axes[0], axes[1]
    pixel = {down.loop.variable, across.loop.variable}
    if linear(sum_.right, across.level.variable) != across.apart:
        return None
    if indexed_by(sum_.start) & pixel or down.taps * across.taps > MOST_TAPS:
        return None
    if down.places * across.places < LEAST_PLACES:
        return None
    one = across.frame(across.places) * across.phases * down.phases * DType.F32.bytes
    lines = min(room // one - (down.frame(1) - 1), down.places)
    return Planes(sum_, down, across, lines) if lines > 0 else None


def _axis(sum_: Sum, loop: For) -> Axis | None:
    load = sum_.right
    own = [at for at, dim in enumerate(load.index) if loop.variable in dim.symbols]
    if len(own) != 1 or loop.start != 0:
        return None
    dim, size = load.index[own[0]], load.buffer.shape[own[0]]
    levels = [level for level in sum_.levels if level.variable in dim.symbols]
    if len(levels) != 1:
        return None
    full = whole(levels[0], sum_.nest.loops, sum_.levels)
    stride = coefficient(dim, loop.variable)
    apart = coefficient(dim, levels[0].variable)
    rest = dim.substitute({loop.variable: ZERO, levels[0].variable: ZERO})
    if full is None or stride is None or apart is None or not 0 < stride <= MOST_APART:
        return None
    known = (loop.stop, full.start, full.stop, size, rest)
    if apart < 1 or not all(each.is_constant for each in known) or full.start != 0:
        return None
    found = Axis(
        loop, levels[0], loop.stop.constant, full.stop.constant, stride, apart, -rest.constant,
        size.constant,
    )  # fmt: skip
    return found if _cut_at_ends(found) else None


def _cut_at_ends(axis: Axis) -> bool:
    """Whether the taps of each place are those inside the array: windows over a part of it are
    cut off where the part ends, and what lies beyond is no zero."""
    name, (start, stop) = axis.loop.variable, ends(axis.level)
    if not start.symbols | stop.symbols <= {name}:
        return False
    for place in range(axis.places):
        taps = range(start.evaluate({name: place}), stop.evaluate({name: place}))
        first = place * axis.stride - axis.before
        inside = [k for k in range(axis.taps) if 0 <= first + k * axis.apart < axis.size]
        if list(taps) != inside:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Written:
    """Loops, and memory of the call that they need."""

    body: list[Stmt]
    scratch: list[Buffer]


def plane_loops(planes: Planes, names: Names, bounds: Bounds) -> Written:
    """The loops of the whole nest."""
    down, across = planes.down, planes.across
    pitch = across.frame(across.places)
    size = down.phases * across.phases * down.frame(planes.lines) * pitch
    strip = Buffer(names.fresh("strip"), DType.F32, (Dim.of(size),))
    body = _Writer(planes, names, strip, pitch).nest(bounds)
    return Written(body, [strip])


@dataclass
class _Writer:
    planes: Planes
    names: Names
    strip: Buffer
    pitch: int

    def nest(self, bounds: Bounds) -> list[Stmt]:
        planes = self.planes
        mine = {planes.down.loop.variable, planes.across.loop.variable}
        outer = [loop for loop in planes.sum.nest.loops if loop.variable not in mine]
        for loop in outer:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._blocks(bounds)
        for loop in reversed(outer):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        return body

    def _blocks(self, bounds: Bounds) -> list[Stmt]:
        lines, places = self.planes.lines, self.planes.down.places
        count = -(-places // lines)
        if count == 1:
            return self._block(ZERO, Dim.of(places), bounds)
        block = self.names.fresh("block")
        inner = over(bounds, block, ZERO, Dim.of(count))
        body: list[Stmt] = []
        line = Dim.of(block) * lines
        high = simplify(dim_min(places - line, lines), inner)
        high, inner = named("high", high, self.names, inner, body)
        body += self._block(line, high, inner)
        return [For(block, ZERO, Dim.of(count), tuple(body))]

    def _block(self, line: Dim, high: Dim, bounds: Bounds) -> list[Stmt]:
        body = self._gather(line, high, bounds)
        across = self.planes.across.places
        room = Dim.of((self.planes.lines - 1) * self.pitch + across)
        row = Buffer(self.names.fresh("row"), DType.F32, (room,))
        body.append(Reserve(row))
        body += self._sums(row, (high - 1) * self.pitch + across)
        y, x = self.names.fresh("y"), self.names.fresh("x")
        at = self._pixel(line + Dim.of(y), Dim.of(x))
        kept = Load(row, (Dim.of(y) * self.pitch + Dim.of(x),))
        inner = For(x, ZERO, Dim.of(across), self._stored(kept, at))
        return [*body, For(y, ZERO, high, (inner,))]

    def _same(self) -> Store | None:
        """The only thing done with a sum, where that is the same at all places."""
        pixel = set(self._pixel(ZERO, ZERO))
        match self.planes.sum.after:
            case (Store() as store,) if not indexed_by(store.value) & pixel:
                return store
            case _:
                return None

    def _stored(self, kept: Load, at: dict[str, Dim]) -> tuple[Stmt, ...]:
        store = self._same()
        if store is None:
            return stored(self.planes.sum, kept, at)
        return (Store(store.buffer, tuple(dim.substitute(at) for dim in store.index), kept),)

    def _pixel(self, line: Dim, place: Dim) -> dict[str, Dim]:
        return {
            self.planes.down.loop.variable: line,
            self.planes.across.loop.variable: place,
        }

    def _gather(self, line: Dim, high: Dim, bounds: Bounds) -> list[Stmt]:
        """The strip of some lines of windows."""
        down, across = self.planes.down, self.planes.across
        lines = high + (down.frame(1) - 1)
        body: list[Stmt] = []
        for row_phase, phase in product(range(down.phases), range(across.phases)):
            top = line * down.stride + (row_phase - down.before)
            first = _within(ceildiv(-top, down.stride), ZERO, lines)
            last = _within(ceildiv(down.size - top, down.stride), first, lines)
            first, last = simplify(first, bounds), simplify(last, bounds)
            for start, stop, inside in (
                (ZERO, first, False), (first, last, True), (last, lines, False),
            ):  # fmt: skip
                if start == stop:
                    continue
                g = self.names.fresh("g")
                row = self._line(row_phase, phase, Dim.of(g), top, inside)
                body.append(For(g, start, stop, (row,)))
        return body

    def _line(self, row_phase: int, phase: int, g: Dim, top: Dim, inside: bool) -> Stmt:
        down, across = self.planes.down, self.planes.across
        left = phase - across.before
        first = min(max(-(left // across.stride), 0), self.pitch)
        last = min(max(-(-(across.size - left) // across.stride), first), self.pitch)
        x = Dim.of(self.names.fresh("x"))
        value: Expr = NOTHING
        if inside:
            load = self.planes.sum.right
            image = {down.loop.variable: ZERO, across.loop.variable: ZERO}
            image |= {down.level.variable: ZERO, across.level.variable: ZERO}
            index = [dim.substitute(image) for dim in load.index]
            for axis, place in ((down, top + g * down.stride), (across, left + x * across.stride)):
                own = next(
                    at for at, dim in enumerate(load.index) if axis.loop.variable in dim.symbols
                )
                index[own] = place
            reached = binary("&&", less_equal(Dim.of(first), x), less(x, Dim.of(last)))
            value = Select(reached, Load(load.buffer, tuple(index)), NOTHING)
        where = self._place(row_phase, phase, g, x)
        return For(str(x), ZERO, Dim.of(self.pitch), (Store(self.strip, (where,), value),))

    def _place(self, row_phase: int, phase: int, line: Dim, place: Dim) -> Dim:
        """Where something lies in the strip."""
        planes = self.planes
        part = Dim.of(row_phase * planes.across.phases + phase)
        return (part * planes.down.frame(planes.lines) + line) * self.pitch + place

    def _sums(self, row: Buffer, count: Dim) -> list[Stmt]:
        """All places of a row; the weights are read before."""
        sum_, down, across = self.planes.sum, self.planes.down, self.planes.across
        body: list[Stmt] = []
        p = self.names.fresh("p")
        begin = Local(self.names.fresh("begin"), DType.F32)
        body.append(Declare(begin, sum_.start))
        total: Expr = begin
        for i, j in product(range(down.taps), range(across.taps)):
            tap = {down.level.variable: Dim.of(i), across.level.variable: Dim.of(j)}
            weight = Local(self.names.fresh("weight"), DType.F32)
            body.append(Declare(weight, moved(sum_.left, tap)))
            (row_phase, up), (phase, right) = down.at(i), across.at(j)
            here = self._place(row_phase, phase, Dim.of(up), Dim.of(p) + right)
            total = Apply("fma", (weight, Load(self.strip, (here,)), total))
        store = self._same()
        value = total if store is None else _replaced(store.value, sum_.local, total)
        return [*body, For(p, ZERO, count, (Store(row, (Dim.of(p),), value),))]


def _replaced(value: Expr, local: Local, by: Expr) -> Expr:
    return map_expr(value, lambda expr: by if expr == local else expr)


def _within(value: Dim, low: Dim, high: Dim) -> Dim:
    return dim_min(dim_max(value, low), high)
