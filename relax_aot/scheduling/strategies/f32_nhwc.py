# SPDX-License-Identifier: Apache-2.0
"""Float convolutions whose results have their channels last: vectors hold channels.

Some lines of the image and a border of zeros are copied to a strip, pixel by pixel, in which each
window is a fixed number of contiguous rows. In `windows` the rows of a tile are positions and its
columns are filters, whose weights are packed; the micro-kernel reads the windows from the strip,
so nothing is gathered for each tap. Taps above and below the image are left out. `depthwise`
computes adjacent positions together. An image with its channels last is read in place: at its
borders, taps outside are left out.

As with im2col, the weights are known to be finite, and a sum of -0 may become +0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min, prove_le, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Apply, Buffer, Expr, For, Lit, Load, Store, binary
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction, indexed_by, moved, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Panels, panels_of
from relax_aot.scheduling.strategies._ends import end_of
from relax_aot.scheduling.strategies._panels import (
    ABSENT,
    Span,
    even,
    panels_of_columns,
    spans,
)
from relax_aot.scheduling.strategies._sums import emit_tile, stores_rows
from relax_aot.scheduling.strategies._texts import (
    CONVOLUTION,
    CONVOLUTION_NHWC,
    DEPTHWISE_NHWC,
)
from relax_aot.scheduling.strategies.f32_padded_rows import MOST_TAPS
from relax_aot.scheduling.strategies.f32_tiles import tiles
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import LINE, Axis, axis_of, interior, whole
from relax_aot.scheduling.writer import Ends, Writer

CHANNELS = 64
"""Channels of a depthwise convolution that are computed together, at most."""
NARROW = 6
"""Positions of a line that are written out, with few taps: borders count more than copies of
lines, and all positions share weights and the elements of windows."""
MOST_SUMS = 1024
"""Sums of a depthwise convolution that are computed together, at most."""
VECTOR = 16
"""Filters that fill vectors."""
BLOCK = 8
"""Channels whose pixels a micro-kernel copies."""
STRIP_BYTES = 1 << 14
"""A strip is larger only where a line of windows is."""
GATHERED_BYTES = 1 << 16
"""The same where an image has its channels elsewhere, and of a depthwise convolution: lines that
windows share are gathered for each strip."""
MANY_BYTES = 1 << 19
"""Weights that a cache next to the core does not hold are read again for each strip, which has as
many lines as a panel has room for."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A convolution of an image, the left operand: the axes that its windows move along, the loop
    over channels of the result, and the reductions with nothing clipped. `dense`: each result sums
    over channels of the image."""

    lines: Axis
    pixels: Axis
    channels: For
    full: tuple[For, ...]
    dense: bool

    @property
    def axes(self) -> tuple[Axis, Axis]:
        return self.lines, self.pixels


def windows_of(found: Contraction) -> Windows | None:
    """The roles of the loops of a convolution with known weights, whatever its layout."""
    image, weights, loops = found.left, found.right, found.nest.loops
    if found.computed or len(found.free) < len(loops) or any(lp.start != 0 for lp in loops):
        return None
    full = [whole(loop, found.nest) for loop in found.reductions]
    known = [loop for loop in full if loop is not None and loop.start == 0]
    if len(known) < len(full) or not all(loop.stop.is_constant for loop in known):
        return None
    steps = {lp: (stride(image, lp.variable), stride(weights, lp.variable)) for lp in loops}
    if any(None in pair for pair in steps.values()):
        return None
    filters = [lp for lp, (near, far) in steps.items() if near == 0 and far != 0]
    positions = [lp for lp, (near, far) in steps.items() if near != 0 and far == 0]
    shared = [lp for lp, (near, far) in steps.items() if near != 0 and far != 0]
    counts = [loop.stop.constant for loop in known]
    axes = [axis_of(image, loop, found.reductions, counts) for loop in positions]
    moving = [axis for axis in axes if axis is not None and axis.reduction is not None]
    taps = {axis.tap for axis in moving}
    deep = [loop for loop in known if loop.variable not in taps]
    own = {axis.variable for axis in moving}
    if len(taps) < len(moving) or not _clipping(found) <= own:
        return None
    if any(axis.clips is None or axis.before < 0 for axis in moving) or len(moving) > 2:
        return None
    channels = filters if filters else shared if not deep else []
    if len(channels) != 1 or not channels[0].stop.is_constant:
        return None
    lines, pixels = (LINE, LINE, *moving)[-2:]
    return Windows(lines, pixels, channels[0], tuple(known), bool(filters))


def filters_of(found: Contraction) -> For | None:
    """The loop over filters of windows of an image that are not clipped."""
    loops = found.columns
    near = [stride(found.left, loop.variable) for loop in found.swapped.columns]
    is_image = any(step is not None and step.is_constant for step in near)
    known = len(loops) == 1 and loops[0].stop.is_constant and loops[0].start == 0
    return loops[0] if known and is_image and not _clipping(found) else None


def _clipping(found: Contraction) -> set[str]:
    """The output loops that windows are clipped along."""
    return {loop.variable for loop in found.nest.loops} & found.clipped_by


def windows(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Convolutions over channels. Where no window is clipped, an image is read in place."""
    image, weights = found.left, found.right
    if weights.buffer.name not in context.constants or image.buffer.name in context.constants:
        return None
    filters = filters_of(found)
    if filters is not None:
        rows = any(len(stmt.index) > 2 for stmt in found.after if isinstance(stmt, Store))
        return tiles(found, w, context) if rows and _has_channels(found, filters) else None
    roles = windows_of(found) if _clipping(found) else None
    if roles is None or not roles.dense:
        return None
    if not (_has_channels(found, roles.channels) or _by_taps(found, roles)):
        return None
    panels = panels_of(weights, found.nest.loops, roles.channels, roles.full, COLUMNS)
    strip = _Strip.of(found, w, context, roles)
    if panels is None or strip is None or weights.buffer.name not in context.finite:
        return None
    target = context.target
    return 0, _Direct(found, w, target.rows, roles, panels, strip, target.stores > 0).emit


def depthwise(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Each channel has windows and weights of its own."""
    image, weights = found.left, found.right
    if weights.buffer.name not in context.finite or image.buffer.name in context.constants:
        return None
    roles = windows_of(found)
    if roles is None or roles.dense or roles.pixels.loop is None:
        return None
    few = prod(axis.taps for axis in roles.axes) <= MOST_TAPS
    if few and not stores_channels(found, roles.channels):
        return None
    own = [axis.variable for axis in roles.axes if axis.variable]
    panels = panels_of(weights, found.nest.loops, roles.channels, roles.full, CHANNELS)
    if panels is None or panels.outer or indexed_by(found.start) & set(own):
        return None
    positions = roles.pixels.positions
    if few and positions.is_constant and positions.constant <= NARROW:
        strip = _Strip.of(found, w, context, roles)
        if strip is not None:
            return 0, _Narrow(found, w, roles, panels, strip).emit
    if stride(image, roles.channels.variable) != 1:
        return None
    return 0, _Depthwise(found, w, roles, panels).emit


def stores_channels(found: Contraction, channels: For) -> bool:
    """Whether adjacent results are channels of a position."""
    stores = [stmt for stmt in found.after if isinstance(stmt, Store)]
    return all(stride(store, channels.variable) == 1 for store in stores)


def _has_channels(found: Contraction, channels: For) -> bool:
    """Whether the image or the result has its channels last."""
    deep = [lp for lp in found.reductions if stride(found.left, lp.variable) == 1]
    positions = found.swapped.columns
    near = [stride(found.left, loop.variable) for loop in positions]
    return stores_channels(found, channels) or (bool(deep) and 1 not in near)


def _by_taps(found: Contraction, roles: Windows) -> bool:
    """Whether the channels of a tap are summed first, and filters fill vectors."""
    taps = {axis.tap for axis in roles.axes}
    alone = found.reductions[-1].variable not in taps
    return alone and roles.channels.stop.constant % VECTOR == 0


# The strip


@dataclass
class _Strip:
    """`lines` lines of windows, each pixel with what the reductions other than taps read, or with
    some channels: `buffer[line, pixel, channels...]`."""

    found: Contraction
    w: Writer
    roles: Windows
    lines: int
    inner: tuple[For, ...]

    @staticmethod
    def of(found: Contraction, w: Writer, context: Context, roles: Windows) -> _Strip | None:
        """None where a single line does not fit."""
        taps = {axis.tap for axis in roles.axes}
        inner = tuple(loop for loop in roles.full if loop.variable not in taps)
        if not roles.dense:
            most = dim_min(roles.channels.stop, CHANNELS)
            inner = (For(roles.channels.variable, ZERO, most, ()),)
        wide = greatest(covered(roles.pixels, roles.pixels.positions), w.bounds)
        one = wide * prod(loop.stop.constant for loop in inner) * DType.F32.bytes
        high = greatest(roles.lines.positions, w.bounds)
        near = not inner or stride(found.left, inner[-1].variable) == 1
        room = STRIP_BYTES if roles.dense and near else GATHERED_BYTES
        if roles.dense and greatest(found.right.buffer.type.bytes, w.bounds) >= MANY_BYTES:
            room = context.target.panel

        def fits(lines: int, most: int) -> bool:
            return covered(roles.lines, Dim.of(lines)).constant * one <= most

        if not fits(1, context.target.panel):
            return None
        lines = 1
        while not context.lean and lines < high and fits(lines + 1, room):
            lines += 1
        return _Strip(found, w, roles, lines, inner)

    @property
    def shape(self) -> tuple[Dim, ...]:
        lines, pixels = self.roles.axes
        high = dim_min(lines.positions, self.lines)
        extents = (covered(lines, high), covered(pixels, pixels.positions))
        return tuple(
            simplify(dim, self.w.bounds) for dim in (*extents, *(lp.stop for lp in self.inner))
        )

    def reserve(self) -> None:
        self.buffer = self.w.buffer("strip", DType.F32, *self.shape)

    def gather(self, line: Dim, high: Dim, first: Dim = ZERO, count: Dim | None = None) -> None:
        """The lines of windows of `high` lines of the result from `line` on. Of a depthwise
        convolution: `count` channels from `first` on."""
        w, (lines, pixels) = self.w, self.roles.axes
        wide = self.buffer.shape[1]
        left = dim_min(pixels.before, wide)
        beyond = simplify(dim_min(pixels.before + pixels.size, wide), w.bounds)
        rows = covered(lines, high)
        top = line * lines.stride - lines.before
        low = simplify(dim_min(dim_max(-top, 0), rows), w.bounds)
        last = simplify(dim_max(dim_min(lines.size - top, rows), low), w.bounds)
        for part, (start, stop) in enumerate(pairwise((ZERO, low, last, rows))):
            if start == stop:
                continue
            with w.range("row", stop, start) as row:
                edges = (ZERO, left, beyond, wide) if part == 1 else (ZERO, wide)
                for at, (begin, end) in enumerate(pairwise(edges)):
                    if begin != end:
                        inside = part == 1 and at == 1
                        self._line(row, top, begin, end, first, count, inside=inside)

    def _line(
        self, row: Dim, top: Dim, begin: Dim, end: Dim, first: Dim, count: Dim | None, *,
        inside: bool,
    ) -> None:  # fmt: skip
        """Pixels of one line: where channels are not contiguous, one channel after another."""
        w, image, (lines, pixels) = self.w, self.found.left, self.roles.axes
        pixel = For(w.fresh("pixel"), begin, end, ())
        inner = [
            For(w.fresh(lp.variable), ZERO, lp.stop if count is None else count, ())
            for lp in self.inner
        ]
        near = stride(image, self.inner[-1].variable) == 1 if self.inner else True
        if inside and not near and count is None and self._transposes(row, top, begin, end):
            return
        with w.nest([pixel, *inner] if near or not inside else [*inner, pixel]):
            names = [Dim.of(loop.variable) for loop in inner]
            value: Expr = Lit(0.0, DType.F32)
            if inside:
                pairs = zip(self.inner, names, strict=True)
                index = list(moved(image, {lp.variable: first + n for lp, n in pairs}).index)
                if lines.dimension >= 0:
                    index[lines.dimension] = top + row
                index[pixels.dimension] = Dim.of(pixel.variable) - pixels.before
                value = Load(image.buffer, tuple(index))
            w.add(Store(self.buffer, (row, Dim.of(pixel.variable), *names), value))

    def _transposes(self, row: Dim, top: Dim, begin: Dim, end: Dim) -> bool:
        """Whether a micro-kernel copies the pixels of a line, contiguous in each channel."""
        w, image, (lines, pixels) = self.w, self.found.left, self.roles.axes
        if len(self.inner) != 1 or image.dtype is not DType.F32 or pixels.step != 1:
            return False
        (deep,) = self.inner
        step = stride(image, deep.variable)
        if step is None or not prove_le(end - begin, step, w.bounds):
            return False
        if deep.stop.constant < BLOCK:
            return False
        index = list(moved(image, {deep.variable: ZERO}).index)
        if lines.dimension >= 0:
            index[lines.dimension] = top + row
        index[pixels.dimension] = begin - pixels.before
        w.micro(
            "raot_transpose_f32", to=Load(self.buffer, (row, begin, ZERO)),
            x=Load(image.buffer, tuple(index)), rows=deep.stop, columns=end - begin,
            row_step=step, to_step=deep.stop,
        )  # fmt: skip
        return True

    def left(self, line: Dim, pixel: Dim) -> _Left:
        """The windows of positions from one on, as the left operand of a tile."""
        lines, pixels = self.roles.axes
        steps = {lp.variable: prod(self.buffer.shape[3 + at :], start=ONE)
                 for at, lp in enumerate(self.inner)}  # fmt: skip
        one = prod(self.buffer.shape[2:], start=ONE)
        steps[pixels.tap] = one * pixels.dilation
        steps[lines.tap] = one * self.buffer.shape[1] * lines.dilation
        place = (line * lines.stride, pixel * pixels.stride)
        names = [loop.variable for loop in self.found.reductions]
        return _Left(self, place, tuple(names), tuple(steps[n] for n in names), one * pixels.stride)


def covered(axis: Axis, positions: Dim) -> Dim:
    """Elements of an image that the windows of so many positions cover."""
    return (positions - 1) * axis.stride + ((axis.taps - 1) * axis.dilation + 1)


@dataclass(frozen=True, slots=True)
class _Left:
    """Windows in a strip, whose first tap is at `place`: `row` elements from one to the next."""

    strip: _Strip
    place: tuple[Dim, Dim]
    names: tuple[str, ...]
    steps: tuple[Dim, ...]
    row: Dim

    def rows_at(self, origin: Sequence[Dim]) -> tuple[Load, Sequence[Dim]]:
        """The element where reductions begin at `origin`, and how far each of them moves."""
        lines, pixels = self.strip.roles.axes
        at = dict(zip(self.names, origin, strict=True))
        line = self.place[0] + at.get(lines.tap, ZERO) * lines.dilation
        pixel = self.place[1] + at.get(pixels.tap, ZERO) * pixels.dilation
        inner = (at[loop.variable] for loop in self.strip.inner)
        return Load(self.strip.buffer, (line, pixel, *inner)), self.steps


# Convolutions over channels


@dataclass
class _Direct:
    found: Contraction
    w: Writer
    rows: int
    roles: Windows
    panels: Panels
    strip: _Strip
    stored: bool

    def emit(self) -> None:
        w, (lines, pixels), filters = self.w, self.roles.axes, self.roles.channels
        panels = self.panels.named(w.fresh(self.panels.packed.buffer.name))
        w.constant(panels.packed)
        self.strip.reserve()
        full = {lp.variable: (lp.start, lp.stop) for lp in self.roles.full
                if lp.variable != lines.tap}  # fmt: skip
        across = pixels.loop or ABSENT
        own = (lines.loop, pixels.loop, filters)
        outer = [loop for loop in self.found.nest.loops if loop not in own]
        names, apart = ("band", "height"), self.stored and end_of(self.found) is None
        rows = even(across.extent, self.rows) if self.stored else self.rows
        with w.nest(outer), w.tiles(names, lines.positions, self.strip.lines) as (line, high):
            self.strip.gather(line, high)
            named = ("c", "panel", "width")
            for columns in panels_of_columns(w, filters, named, COLUMNS, apart=apart):
                for at in self._lines(line, high):
                    with spans(w, across, ("x", "tile", "count"), rows) as tile:
                        place = (tile, Span("", ZERO, ONE, ""), columns)
                        left = self.strip.left(at - line, tile.first)

                        def operand(
                            origin: Sequence[Dim], columns: Span = columns
                        ) -> tuple[Load, Sequence[Dim]]:
                            return panels.at(columns.first, columns.count, origin)

                        emit_tile(
                            self.found, w, place, rows, full, operand, left,
                            rows_inner=stores_rows(self.found, across, filters),
                            stored=self.stored,
                        )  # fmt: skip

    def _lines(self, line: Dim, high: Dim) -> Iterator[Dim]:
        """A loop over lines of the result, if it has any, under the name that it had."""
        if self.roles.lines.loop is None:
            yield ZERO
            return
        with self.w.loop(self.roles.lines.variable, line, line + high) as at:
            yield at


# Depthwise convolutions


@dataclass
class _Depthwise:
    """Of an image that is read in place."""

    found: Contraction
    w: Writer
    roles: Windows
    panels: Panels

    def emit(self) -> None:
        w, lines, channels = self.w, self.roles.lines, self.roles.channels
        self.panels = self.panels.named(w.fresh(self.panels.packed.buffer.name))
        w.constant(self.panels.packed)
        own = (lines.loop, self.roles.pixels.loop, channels)
        outer = [loop for loop in self.found.nest.loops if loop not in own]
        with w.nest(outer), spans(w, channels, ("c", "panel", "width"), CHANNELS) as some:
            self._some(some)

    def _some(self, some: Span) -> None:
        """All positions of some channels."""
        self.most = greatest(some.count, self.w.bounds)
        self.start = self.w.reserve("start", DType.F32, REGISTER, self.most)
        with self.w.range("c", some.count) as c:
            self.w.add(Store(self.start, (c,), substitute_in(self.found.start, some.at(c))))
        with self.w.range("y", self.roles.lines.positions) as line:
            self._line(line, some)

    def _line(self, line: Dim, some: Span) -> None:
        """Positions of a line of the image: where a window is clipped, one at a time."""
        w, (lines, pixels) = self.w, self.roles.axes
        assert pixels.loop is not None
        inside = interior(pixels.loop, self.found.nest)
        assert inside is not None
        low = w.short(f"{pixels.variable}_low", inside.start)
        high = w.short(f"{pixels.variable}_high", inside.stop)
        taps = {lines.tap: self._inside(lines, line), pixels.tap: (ZERO, Dim.of(pixels.taps))}
        for x, count, sums in self._tiles():
            first = w.short("first", dim_min(dim_max(low - x, 0), count))
            last = w.short("last", dim_max(dim_min(high - x, count), first))
            for start, stop in ((ZERO, first), (last, count)):
                if start != stop:
                    with w.range("p", stop, start) as p:
                        clipped = {**taps, pixels.tap: self._inside(pixels, x + p)}
                        here = self._image(line, x + p, some, clipped)
                        self._sums(Load(sums, (p * some.count,)), ONE, some, here, clipped)
            if first != last:
                some_whole = not prove_le(first + 1, last, w.bounds)
                with w.when(*[binary("<", first, last)] * some_whole):
                    here = self._image(line, x + first, some, taps)
                    place = Load(sums, (first * some.count,))
                    self._sums(place, last - first, some, here, taps)
            self._finish(line, x, count, some, sums)

    def _tiles(self) -> Iterator[tuple[Dim, Dim, Buffer]]:
        """Adjacent positions: the first one, how many, and room for their sums."""
        w, positions = self.w, self.roles.pixels.positions
        most = max(MOST_SUMS // self.most, 1)
        with w.tiles(("x_tile", "count"), positions, most) as (x, count):
            room = min(greatest(positions, w.bounds), most) * self.most
            yield x, count, w.reserve("sums", DType.F32, REGISTER, room)

    def _inside(self, axis: Axis, position: Dim) -> Ends:
        """The taps of a window that are inside the image."""
        if axis.reduction is None:
            return ZERO, ONE
        at, name = {axis.variable: position}, axis.tap
        first = self.w.short(f"{name}_first", axis.reduction.start.substitute(at))
        return first, self.w.short(f"{name}_last", axis.reduction.stop.substitute(at))

    def _image(self, line: Dim, x: Dim, some: Span, taps: Mapping[str, Ends]) -> Load:
        """The first element of a window, of the first channel of some."""
        first = {name: ends[0] for name, ends in taps.items()}
        return moved(self.found.left, {**self._at(line, x), some.variable: some.first, **first})

    def _at(self, line: Dim, x: Dim) -> dict[str, Dim]:
        lines, pixels = self.roles.axes
        return {lines.variable: line, pixels.variable: x}

    def _sums(
        self, sums: Load, count: Dim, some: Span, here: Load, taps: Mapping[str, Ends]
    ) -> None:
        """The sums of adjacent positions, whose windows begin at `here`."""
        (lines, pixels), full = self.roles.axes, self.roles.full
        begins = [taps[loop.variable][0] for loop in full]
        weights, steps = self.panels.at(some.first, some.count, begins)
        far = dict(zip((loop.variable for loop in full), steps, strict=True))
        row, pixel = lines.step, pixels.step
        (top, bottom), (left, right) = (taps[axis.tap] for axis in (lines, pixels))
        self.w.micro(
            "raot_depthwise_f32", sums=sums, x=here, weights=weights, start=self.start,
            positions=count, channels=some.count, step=pixel * pixels.stride,
            rows=bottom - top, row_step=row * lines.dilation, taps=right - left,
            tap_step=pixel * pixels.dilation, weight_row=far.get(lines.tap, ZERO),
        )  # fmt: skip

    def _finish(self, line: Dim, x: Dim, count: Dim, some: Span, sums: Buffer) -> None:
        """What follows the sums of adjacent positions."""
        w, found = self.w, self.found
        loops = [For(w.fresh("p"), ZERO, count, ()), For(w.fresh("c"), ZERO, some.count, ())]
        p, c = (Dim.of(loop.variable) for loop in loops)
        with w.nest(loops if stores_channels(found, self.roles.channels) else loops[::-1]):
            at = {**self._at(line, x + p), **some.at(c)}
            w.finish(found.after, found.sum, Load(sums, (p * some.count + c,)), at)


@dataclass
class _Narrow(_Depthwise):
    """All positions of a line in a loop over channels, which compilers vectorize."""

    strip: _Strip

    def _some(self, some: Span) -> None:
        self.strip.reserve()
        positions = self.roles.lines.positions
        with self.w.tiles(("band", "height"), positions, self.strip.lines) as (line, high):
            self.strip.gather(line, high, some.first, some.count)
            with self.w.range("y", high) as y:
                self._line_of_strip(line, y, some)

    def _line_of_strip(self, line: Dim, y: Dim, some: Span) -> None:
        w, found = self.w, self.found
        with w.range("c", some.count) as c:
            for x in range(self.roles.pixels.positions.constant):
                at = {**self._at(line + y, Dim.of(x)), **some.at(c)}
                total: Expr = substitute_in(found.start, at)
                for i, j in product(*(range(axis.taps) for axis in self.roles.axes)):
                    total = self._tap(i, j, y, x, c, some, total)
                w.finish(found.after, found.sum, total, at)

    def _tap(self, i: int, j: int, y: Dim, x: int, c: Dim, some: Span, total: Expr) -> Expr:
        lines, pixels = self.roles.axes
        taps = {lines.tap: Dim.of(i), pixels.tap: Dim.of(j)}
        weight, _ = self.panels.at(
            some.first, some.count, [taps[loop.variable] for loop in self.roles.full]
        )
        weight = replace(weight, index=(*weight.index[:-1], weight.index[-1] + c))
        place = (
            y * lines.stride + i * lines.dilation,
            Dim.of(x * pixels.stride + j * pixels.dilation),
            c,
        )
        return Apply("fma", (Load(self.strip.buffer, place), weight, total))


EXAMPLES = (
    Example(
        why="windows are contiguous in a strip with a border",
        target="host",
        before=CONVOLUTION_NHWC,
        after="""
            kernel @conv(...) scratch (%strip: f32[1, 8, 5]) {
            ...
              micro raot_multiply_store_f32(%y[0, 0], %strip[0, 0, 0], ...) [6, 8, 1, 1, 15, 5, ...]
            ...""",
    ),
    Example(
        why="positions of a narrow image share the weights of a channel",
        target="host",
        before=DEPTHWISE_NHWC,
        after="""
            kernel @conv(...) scratch (%strip: f32[1, 8, 8]) {
            ...
                  %y[0, c_3] = max(fma(%strip[y_0, 2, c_3], %w.packed[c_3 + 16], ...
            ...""",
    ),
    Example(
        why="adjacent positions, and single ones at the borders",
        target="host",
        before=DEPTHWISE_NHWC.replace("[6, 8]", "[9, 8]")
        .replace("0..6", "0..9")
        .replace("7", "10"),
        after="""
            kernel @conv(%x: f32[9, 8], %w.packed: f32[24]) -> (%y: f32[9, 8]) {
            ...
                micro raot_depthwise_f32(%sums[8], %x[0, 0], ...) [7, 8, 8, 1, 0, 3, 8, 0]
                for p_1 in 0..9 {
                  for c_1 in 0..8 {
                    %y[p_1, c_1] = max(%sums[c_1 + 8*p_1], 0.0:f32)
            ...""",
    ),
    Example(why="channels that are not last", target="host", before=CONVOLUTION),
)
