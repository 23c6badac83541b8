# SPDX-License-Identifier: Apache-2.0
"""Windows whose places on the last axis of an image share the pixels in shared memory.

Next to each other, windows of one line of an image overlap: place l of the window of pixel j is
place 0 of that of pixel j + l. So the lines of a product are numbered over the padded width of the
image, and a part of a sum is some channels of the pixels for place 0, and of the weights of all
places on that axis. The matrix units read the pixels of place l so many lines further on. What is
computed for padding is no result, and neither are the last lines of a tile, which the next one has
again.

A window of 3 x 3 is copied three times instead of nine. That is worth the lines without results
where filters are few, as there are few products for each copy, and where channels are in planes, as
those of a pixel are gathered one by one then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Bounds, Dim, dim_min, row_major, simplify
from relax_aot.ir.loops import Buffer, For, Lit, Load, Select
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by, moved, step_of, stride
from relax_aot.scheduling.devices.copies import Pair, Side
from relax_aot.scheduling.devices.operands import At, Product, all_of, extent, inside, split
from relax_aot.scheduling.devices.vectors import BYTES, VECTOR, vectors
from relax_aot.scheduling.devices.window_bits import NO_BIT, bits_of, have_bits, words_of
from relax_aot.scheduling.devices.window_tables import Known, bounded
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.writer import Writer

CHUNKS = (32, 16)
"""Channels of a part: the steps of one or two instructions."""
LEAST_WIDTH = 6
"""Of an image, pixels: of narrower ones, most lines are padding."""
MOST_SHARED = 48 << 10
"""Bytes of a block, without an option for more."""

MOST_HELD = 68
"""Registers of a thread for sums and for channels of planes that are on their way."""


@dataclass(frozen=True, slots=True)
class Slide:
    """`product`: with lines over the padded width, of which `pixels` are results. `window`: the
    factor with windows, the right one if it is `right`; `tap`: their axis whose places are `apart`
    lines from each other; `places`: their other axes; `chunk`: the channels of a part."""

    product: Product
    window: Load
    right: bool
    pixels: For
    tap: For
    apart: int
    places: tuple[For, ...]
    channels: For
    chunk: int = CHUNKS[-1]

    @property
    def beyond(self) -> int:
        """Lines behind those of a tile that windows reach."""
        return (self.tap.extent.constant - 1) * self.apart

    @property
    def steps(self) -> int:
        """Of a part."""
        return self.tap.extent.constant * self.chunk

    def first(self, channel: Dim) -> dict[str, Dim]:
        """The first place of a window."""
        at = dict.fromkeys((loop.variable for loop in (*self.places, self.tap)), ZERO)
        return {**at, self.channels.variable: channel}

    def part(self, w: Writer, position: Dim) -> tuple[Dim, Dim]:
        """The place on the other axes, and the first channel, of the part from a step on."""
        number = simplify(position // self.steps, w.bounds)
        chunks = self.channels.extent // self.chunk
        place = w.short("place", number // chunks)
        return place, w.short("channel", (number - place * chunks) * self.chunk)

    @property
    def in_planes(self) -> bool:
        """Whether the channels of a pixel are a plane apart."""
        return stride(self.window, self.channels.variable) != 1

    def ahead(self, w: Writer, load: Load, place: Dim, channel: Dim) -> Dim:
        """How far the elements of a part are ahead of those of the first one."""
        at = {**split(w, self.places, place), self.channels.variable: channel}
        return w.named("ahead", sum((n * step_of(load, name) for name, n in at.items()), ZERO))

    def for_tile(self, pixels: int, filters: int, threads: int) -> Slide | None:
        """With as many channels as there is room for in shared memory, twice, and in registers,
        where threads hold them."""
        kind = self.window.dtype
        pad = BYTES // kind.bytes
        for chunk in CHUNKS:
            own = replace(self, chunk=chunk)
            window = (pixels + self.beyond) * (chunk + pad)
            elements = 2 * (window + filters * (own.steps + pad))
            fits = elements * kind.bytes <= MOST_SHARED and 4 * self.beyond <= pixels
            if self.in_planes:
                fits &= (pixels * filters + pixels * chunk // 2) // threads <= MOST_HELD
            if fits and self.channels.extent.constant % chunk == 0:
                return own
        return None


def slide_of(product: Product, bounds: Bounds) -> Slide | None:
    """How the windows of a product share pixels. Weights are vectors of half precision, and so are
    the channels of a pixel, unless these are in planes."""
    found, steps = product.found, product.steps
    known = all(loop.start == 0 and loop.extent.is_constant for loop in steps)
    loads = (found.left, found.right)
    if len(steps) < 2 or not known or found.computed or steps[-1].extent.constant % CHUNKS[-1] != 0:
        return None
    strides = [[stride(load, loop.variable) for loop in steps] for load in loads]
    if any(None in own for own in strides):
        return None
    both = (product.rows, product.columns)
    for side, (lines, others) in enumerate((both, both[::-1])):
        window, pairs = loads[side], [(loads[1 - side], strides[1 - side], others)]
        if strides[side][-1] == 1:
            pairs.append((window, strides[side], lines))
        whole = all(
            own[-1] == 1 and vectors(product, load, loops, bounds)[0] == VECTOR
            for load, own, loops in pairs
        )
        alone = product.padded in (None, window) and bool(lines)
        alone = alone and indexed_by(found.start).isdisjoint(loop.variable for loop in lines)
        if (
            not (alone and whole)
            or lines[-1].start != 0
            or greatest(lines[-1].extent, bounds) < LEAST_WIDTH
        ):
            continue
        for tap in steps[:-1]:
            apart = _lines_apart(product, window, lines[-1], tap, bounds)
            places = tuple(loop for loop in steps[:-1] if loop != tap)
            if apart is None or not have_bits(places, bounds):
                continue
            wide = lines[-1].extent + (tap.extent - 1) * apart
            padded = (*lines[:-1], replace(lines[-1], stop=wide))
            own = replace(product, columns=padded) if side else replace(product, rows=padded)
            return Slide(own, window, side == 1, lines[-1], tap, apart, places, steps[-1])
    return None


def _lines_apart(
    product: Product, window: Load, pixels: For, tap: For, bounds: Bounds
) -> int | None:
    """How many pixels a window moves for the same as one place on an axis; None where it does not,
    or where clipping tells them apart."""
    names = {pixels.variable, tap.variable}
    moves = [dim for dim in window.index if dim.symbols & names]
    if len(moves) != 1 or tap.extent == 1:
        return None
    by_place, by_pixel = (
        moves[0].substitute({loop.variable: Dim.of(loop.variable) + 1}) - moves[0]
        for loop in (tap, pixels)
    )
    if not (by_place.is_constant and by_pixel.is_constant) or by_pixel.constant <= 0:
        return None
    apart, rest = divmod(by_place.constant, by_pixel.constant)
    if rest != 0 or apart <= 0:
        return None
    before = {pixels.variable: Dim.of(pixels.variable) - apart}
    for name, ends in product.ends(window).items():
        if name != tap.variable:
            if any(end.symbols & names for end in ends):
                return None
            continue
        for end, whole in zip(ends, (tap.start, tap.stop), strict=True):
            if end != whole and simplify(end.substitute(before) - end, bounds) != 1:
                return None
    return apart


@dataclass(frozen=True, slots=True)
class SlidPixels(Side):
    """The factor with windows: channels of the pixels for place 0."""

    slide: Slide = field(kw_only=True)

    def place(self, half: Dim, line: Dim, step: Dim) -> tuple[Dim, ...]:
        """`step`: of a part, from the first channel of a place on."""
        chunk = self.slide.chunk
        return half, line + step // chunk * self.slide.apart, step % chunk

    def opened(self, w: Writer, warp: Dim, threads: int, batch: At, first: Dim) -> Side:
        slide = self.slide
        if not slide.product.ends(self.load):
            return self
        words = words_of(w, slide.places, -(-self.count // threads), packed=True)
        with w.range("lane", LANES, axis="lane") as lane:
            words.start(w, lane)
        with w.range("lane", LANES, axis="lane") as lane:
            thread = w.named("thread", warp * LANES + lane)
            with self.chunks(w, thread, threads) as (e, (line, _), _):
                at = _line(w, self, batch, first + line)
                ends = slide.product.window(w, self.load, at)
                bits = bits_of(w, slide.places, ends)
                if slide.tap.variable in ends:
                    own = {slide.tap.variable: ends[slide.tap.variable]}
                    within = all_of(inside({slide.tap.variable: ZERO}, own))
                    bits = Select(within, bits, NO_BIT)
                words.put(w, (lane, e), bits)
        return replace(self, open=words)

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        place, channel = self.slide.part(w, first[1])
        ahead = self.slide.ahead(w, self.load, place, channel)
        with self.chunks(w, thread, threads) as (e, (line, near), far):
            count = Dim.of(VECTOR)
            if self.open is not None:
                count = self.counted(w, self.open.has((lane, e), self.open.bit(place, e)))
            at = {**_line(w, self, batch, first[0] + line), **self.slide.first(near)}
            _copy(w, self, half, (line, near), far, at, count, ahead)


@dataclass(frozen=True, slots=True)
class SlidPlanes(SlidPixels):
    """The factor with windows, of an image in planes: a thread gathers eight channels of a pixel in
    the registers `held`, and stores them when some of the part before is multiplied. Neighbors of a
    warp are pixels."""

    held: Buffer | None = None
    """Those of the lanes of a warp, which `opened` reserves."""

    @property
    def lines_are_neighbors(self) -> bool:
        return True

    def opened(self, w: Writer, warp: Dim, threads: int, batch: At, first: Dim) -> Side:
        words = SlidPixels.opened(self, w, warp, threads, batch, first).open
        chunks = -(-self.count // threads)
        held = w.reserve("held", self.kind, "lane", LANES, chunks, VECTOR)
        return replace(self, open=words, held=held)

    def _held(self, lane: Dim, chunk: Dim) -> Load:
        assert self.held is not None, "not opened"
        return self.held[lane, chunk, ZERO]

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        place, channel = self.slide.part(w, first[1])
        ahead = self.slide.ahead(w, self.load, place, channel)
        with self.chunks(w, thread, threads) as (e, (line, near), _):
            count = Dim.of(1)
            if self.open is not None:
                inside = self.open.has((lane, e), self.open.bit(place, e))
                some = Select(inside, Lit(1, DType.I64), Lit(0, DType.I64))
                count = bounded(w, "count", some, count)
            at = {**_line(w, self, batch, first[0] + line), **self.slide.first(near)}
            w.micro(
                f"raot_load_planes_{self.kind.value}", to=self._held(lane, e), count=count,
                ahead=ahead, apart=step_of(self.load, self.slide.channels.variable),
                **{"from": moved(self.load, at)},
            )  # fmt: skip

    def store(self, w: Writer, thread: Dim, threads: int, half: Dim, lane: Dim) -> None:
        """Stores what was gathered in one half of shared memory."""
        with self.chunks(w, thread, threads) as (e, place, _):
            to = self.shared[self.place(half, *place)]
            held = self._held(lane, e)
            w.micro(f"raot_store{VECTOR}_{self.kind.value}", to=to, **{"from": held})


@dataclass(frozen=True, slots=True)
class SlidWeights(Side):
    """The other factor: channels of all places on the axis."""

    slide: Slide = field(kw_only=True)

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        slide = self.slide
        ahead = slide.ahead(w, self.load, *slide.part(w, first[1]))
        with self.chunks(w, thread, threads) as (_, (line, step), far):
            shift = simplify(far[1], w.bounds)
            near = shift // slide.chunk * step_of(self.load, slide.tap.variable)
            if simplify(shift % slide.chunk, w.bounds) != 0 or not self.is_near(near, w.bounds):
                shift, near = ZERO, ZERO
            own = simplify(step - shift, w.bounds)
            at = {**_line(w, self, batch, first[0] + line), **slide.first(own % slide.chunk)}
            at[slide.tap.variable] = own // slide.chunk
            _copy(w, self, half, (line, step), far, at, Dim.of(VECTOR), ahead, near)


def _line(w: Writer, side: Side, batch: At, line: Dim) -> dict[str, Dim]:
    """The loop variables of a line, or of the last one where it is beyond that."""
    last = w.named("last", dim_min(line, extent(side.loops) - 1))
    return {**batch, **split(w, side.loops, last)}


def _copy(
    w: Writer, side: Side, half: Dim, place: Pair, far: Pair, at: At, count: Dim, ahead: Dim,
    near: Dim = ZERO,
) -> None:  # fmt: skip
    """Copies the vector in the place of the first part `at` some iterations, and so far `ahead` and
    `near`, a number."""
    own = (one - behind for one, behind in zip(place, far, strict=True))
    w.micro(
        f"raot_copy_async_{side.kind.value}", to=side.shared[(ZERO, *own)], count=count,
        ahead=ahead, part=0, apart=0, near=near, far=row_major((half, *far), side.shared.shape),
        **{"from": moved(side.load, at)},
    )  # fmt: skip


def slid_sides(
    w: Writer, slide: Slide, kind: DType, lines: tuple[int, int]
) -> tuple[SlidPixels | SlidWeights, SlidPixels | SlidWeights]:
    """Both factors in shared memory, of which a tile has so many lines."""
    product = slide.product
    pad = BYTES // kind.bytes

    def side(right: bool) -> SlidPixels | SlidWeights:
        load = product.found.right if right else product.found.left
        loops = product.columns if right else product.rows
        pixels, own, name = right == slide.right, lines[right], "right" if right else "left"
        steps = slide.chunk if pixels else slide.steps
        shape = (2, own + slide.beyond * pixels, steps + pad)
        shared = w.reserve(f"{name}_tile", kind, "shared", *shape)
        if pixels and slide.in_planes:
            return SlidPlanes(name, product, load, loops, own, steps, True, 0, shared, slide=slide)
        made = SlidPixels if pixels else SlidWeights
        return made(name, product, load, loops, own, steps, True, VECTOR, shared, slide=slide)

    return side(right=False), side(right=True)
