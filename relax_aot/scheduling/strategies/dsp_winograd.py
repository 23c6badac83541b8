# SPDX-License-Identifier: Apache-2.0
"""3 x 3 convolutions of bytes by the minimal filtering algorithm F(2 x 2, 3 x 3) for Arm's DSP
extension (raot/winograd.h): 16 products for four results of a channel, not 36.

The bytes of some channels are transformed to 16 bits in scratch memory. Then the image is gathered
as pairs of channels, a tile of two by two results from 4 x 4 elements; products of pairs are summed
for each of 16 elements, and the sums are transformed. Integers stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Load
from relax_aot.ir.types import DType
from relax_aot.microkernels.winograd import PANEL
from relax_aot.scheduling.contraction import Weighted, step_of, symbols_of
from relax_aot.scheduling.epilogue import Requantization, by_channel
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Arrays, Packed, padded, round_up
from relax_aot.scheduling.strategies._results import Results, Table
from relax_aot.scheduling.strategies._texts import IMAGE_OF_CHANNELS, INTEGER_MATMUL
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Tile, Weights
from relax_aot.scheduling.windows import Axis, axis_of, image_of
from relax_aot.scheduling.writer import Writer

WORTH = 0.97
"""More scratch is taken where cycles become less than this part of them."""
DEPTH = 900
"""Pairs of channels, for which four times a sum has 32 bits."""
GATHER, INPUT, FILTER, OUTPUT, CALL = 4.0, 50.0, 65.0, 73.0, 60.0
"""Cycles, about: of gathering an element, of transforming 4 x 4 elements of a channel, a window of
weights and the sums of a tile, and of a call."""
SUM, STEPS = 26.0, (7.0, 10.0, 13.0)
"""Of the sums of two channels at one to three tiles, and of a pair that they add."""
DIRECT = 1.18
"""Of a multiply-add of other strategies."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Scratch memory for `channels` output channels, `strip` tiles across of which four lines are
    gathered, and `tiles` whose products are summed; `depth` pairs."""

    depth: int
    channels: int
    strip: int
    tiles: int

    @property
    def wide(self) -> int:
        """Elements of a line of a strip."""
        return 2 * self.strip + 2

    @property
    def bytes(self) -> int:
        image = 16 * self.depth * self.wide + 64 * self.depth * self.tiles
        return 64 * self.depth * self.channels + image + (128 + 18 * self.channels) * self.tiles


def winograd(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Windows of 3 x 3 that move by one, over an even number of channels."""
    if context.target.compact or context.lean or found.channel is None or not found.fits_bytes:
        return None
    axes = _axes(found)
    if axes is None or not found.has_depth(context.constants):
        return None
    lines, columns, inner = axes
    high, wide = (greatest(axis.positions, w.bounds) for axis in (lines, columns))
    depth = found.counts[inner] // 2
    if found.counts[inner] % 2 or depth > DEPTH:
        return None
    image = _Image(found.channels, depth, high, wide)
    room = context.room + context.target.scratch
    costs = {sizes: image.cost(sizes) for sizes in image.candidates() if sizes.bytes <= room}
    most = min(costs.values(), default=image.direct) / WORTH
    if most > image.direct:
        return None
    best = min((sizes for sizes in costs if costs[sizes] <= most), key=lambda one: one.bytes)
    return _Winograd(found, w, context, (lines, columns), inner, best).emit


def _axes(found: Weighted) -> tuple[Axis, Axis, int] | None:
    """The axes of the image, and the reduction over channels."""
    if len(found.positions) < 2 or len(found.reductions) != 3:
        return None
    pair = [axis_of(found.x, loop, found.reductions, found.counts) for loop in found.positions[-2:]]
    known = [axis for axis in pair if axis is not None and axis.reduction is not None]
    if len(known) < 2 or known[0].tap == known[1].tap:
        return None
    for axis in known:
        moving = [at for at, dim in enumerate(found.x.index) if axis.tap in dim.symbols]
        near = (axis.taps, axis.stride, axis.dilation) == (3, 1, 1) and axis.before >= 0
        if not near or axis.clips is None or moving != [axis.dimension]:
            return None
    taps = {axis.tap for axis in known}
    (inner,) = (at for at, loop in enumerate(found.reductions) if loop.variable not in taps)
    return None if symbols_of(found.reductions[inner]) else (known[0], known[1], inner)


@dataclass(frozen=True, slots=True)
class _Image:
    """`high` lines of `wide` results of `channels` channels, each of `depth` pairs of channels."""

    channels: int
    depth: int
    high: int
    wide: int

    @property
    def direct(self) -> float:
        """Cycles of other strategies."""
        products = self.wide * 18 * self.depth * self.channels * DIRECT
        return self.high * (products + 6 * self.depth * (self.wide + 2) * GATHER)

    @property
    def across(self) -> int:
        return -(-self.wide // 2)

    def candidates(self) -> Iterator[_Sizes]:
        least = [-(-self.across // count) for count in range(1, 7)]
        for strip in {*least, *(min(round_up(n, PANEL), self.across) for n in least)}:
            for tiles in {strip, *range(1, min(2 * PANEL, strip) + 1)}:
                for parts in range(1, -(-self.channels // 2) + 1):
                    most = round_up(-(-self.channels // parts), 2)
                    yield _Sizes(self.depth, most, strip, tiles)

    def cost(self, sizes: _Sizes) -> float:
        """Cycles of an image."""
        parts, pairs = -(-self.channels // sizes.channels), -(-self.channels // 2)
        strips = -(-self.across // sizes.strip)
        lines = (self.high + 2) * 2 * self.depth * (self.wide + 2 * strips) * GATHER
        band = 0.0
        for strip in _parts(self.across, sizes.strip):
            for tiles in _parts(strip, sizes.tiles):
                sums = sum(16 * (SUM + sizes.depth * STEPS[n - 1]) for n in _parts(tiles, PANEL))
                band += pairs * (sums + 2 * tiles * OUTPUT + 2 * CALL)
                band += parts * (2 * self.depth * tiles * INPUT + 2 * CALL)
        bands, filters = -(-self.high // 2), 2 * self.channels * self.depth * FILTER
        return filters + parts * lines + bands * band


def _parts(total: int, size: int) -> list[int]:
    whole, rest = divmod(total, size)
    return [size] * whole + [rest] * (rest > 0)


class _Winograd:
    """`lines` and `columns`: the axes of the image; `inner`: the reduction over channels."""

    def __init__(
        self, found: Weighted, w: Writer, context: Context, axes: tuple[Axis, Axis], inner: int,
        sizes: _Sizes,
    ) -> None:  # fmt: skip
        self.found, self.w, self.context, self.sizes = found, w, context, sizes
        self.axes, self.inner = axes, inner
        self.one: Requantization | None
        self.one, self.rest = by_channel(found, context.constants) or (None, found)
        places = [found.reductions.index(axis.reduction) for axis in axes if axis.reduction]
        self.pack = Weights(found, [inner, *places], *(self.one.loads if self.one else ()))

    def emit(self) -> None:
        found, w, pack, sizes = self.found, self.w, self.pack, self.sizes
        depth, most, tiles = sizes.depth, sizes.channels, sizes.tiles
        shape = (*pack.lead, round_up(found.channels, 2), depth, 18)
        self.weights = pack.buffer(w, "windows", DType.I8, shape)
        w.constant(Packed(self.weights, self._packed))
        self.bias = pack.packed_starts(w, 0, 2)
        table = Table(w, pack, self.one, self.context.calls) if self.one is not None else None
        self.results = Results(found, w, self.one, self.rest, table, most, 2 * tiles)
        self.filters = w.buffer("filters", DType.I16, most // 2, 16, depth, 2, 2)
        self.pairs = w.buffer("pairs", DType.I16, 2, 2, depth, sizes.wide, 2)
        self.inputs = w.buffer("inputs", DType.I16, 32 * depth * tiles)
        self.products = w.buffer("products", DType.I32, tiles, 2, 16)
        self.sums = w.buffer("sums", DType.I32, 2, most, 2 * tiles)
        parts = w.tiles(("part", "channels"), found.channels, most)
        with w.nest(found.shared), parts as (first, channels):
            rows = w.short("rows", (channels + 1) // 2 * 2)
            w.micro(
                "raot_winograd_weights", to=self.filters, weights=pack.first(self.weights, first),
                channels=rows, depth=depth,
            )  # fmt: skip
            with w.nest(found.positions[:-2]) as outer:
                self._image(outer, first, channels, rows)

    def _image(self, outer: Mapping[str, Dim], first: Dim, channels: Dim, rows: Dim) -> None:
        w, (lines, columns), tiles = self.w, self.axes, self.sizes.tiles
        strips = w.tiles(("strip", "across"), ceildiv(columns.positions, 2), self.sizes.strip)
        with strips as (begin, across):
            self._gather(ZERO, ZERO, begin, across)
            with w.range("band", ceildiv(lines.positions, 2)) as band:
                upper = w.named("upper", band - band // 2 * 2)
                self._gather(1 - upper, band * 2 + 2, begin, across)
                height = w.short("height", dim_min(lines.positions - band * 2, 2))
                with w.tiles(("tile", "tiles"), across, tiles) as (start, count):
                    at = (ZERO, ZERO, start * 2, ZERO)
                    w.micro(
                        "raot_winograd_input", to=self.inputs, upper=self.pairs[(upper, *at)],
                        lower=self.pairs[(1 - upper, *at)], depth=self.sizes.depth, tiles=count,
                        wide=self.sizes.wide,
                    )  # fmt: skip
                    with w.range("pair", w.short("half", rows // 2)) as pair:
                        self._products(first, pair, count)
                    place = (begin + start) * 2
                    left = dim_min(columns.positions - place, count * 2)
                    positions = w.short("positions", left)
                    with w.range("line", height) as line:
                        fixed = {**outer, lines.variable: band * 2 + line}
                        tile = Tile(self.found, place, positions, fixed)
                        at_ = {**fixed, columns.variable: place}
                        sums = self.sums[(line, ZERO, ZERO)]
                        self.results.store(tile, at_, sums, first, channels)

    def _gather(self, slot: Dim, line: Dim, begin: Dim, across: Dim) -> None:
        """Two lines that windows reach, as pairs of channels."""
        found, w, (lines, columns) = self.found, self.w, self.axes
        top = line - lines.before
        first = w.short("first", dim_min(dim_max(-top, 0), 2))
        last = w.short("last", dim_max(dim_min(lines.size - top, 2), first))
        image = image_of(found, self.axes)
        at = {lines.dimension: top + first}
        index = tuple(at.get(place, dim) for place, dim in enumerate(image.index))
        w.micro(
            f"raot_gather_pairs_{found.suffix}", pairs=self.pairs[(slot, *(ZERO,) * 4)],
            image=Load(image.buffer, index), zero=found.x_zero, channels=found.counts[self.inner],
            channel_step=step_of(found.x, found.reductions[self.inner].variable), lines=2,
            first1=first, last1=last, line_step=lines.step, taps=1, dilation=1,
            columns=across * 2 + 2, first=begin * 2 - columns.before, stride=1, width=columns.size,
            column_step=columns.step, wide=self.sizes.wide,
        )  # fmt: skip

    def _products(self, first: Dim, pair: Dim, count: Dim) -> None:
        """The sums of two channels."""
        w, sizes = self.w, self.sizes
        filters = (pair, *(ZERO,) * 4)
        w.micro(
            "raot_winograd_multiply", sums=self.products, weights=self.filters[filters],
            inputs=self.inputs, depth=sizes.depth, tiles=count,
        )  # fmt: skip
        w.micro(
            "raot_winograd_output", to=self.sums[(ZERO, pair * 2, ZERO)], sums=self.products,
            bias=self.pack.first(self.bias, first + pair * 2), tiles=count,
            line_step=2 * sizes.tiles * sizes.channels, channel_step=2 * sizes.tiles,
        )  # fmt: skip

    def _packed(self, data: Arrays) -> Array:
        """Two taps of two channels in a word, the last taps of both behind them."""
        values, lead = self.pack.values(data), self.pack.lead
        windows = values.reshape(*lead, self.found.channels, self.sizes.depth, 2, 9)
        words = windows[..., :8].reshape(*windows.shape[:-1], 4, 2)
        words = np.moveaxis(words, -3, -2).reshape(*windows.shape[:-2], 16)
        whole = np.concatenate([words, windows[..., 8]], axis=-1)
        return padded(whole, [dim.constant for dim in self.weights.shape])


EXAMPLES = (
    Example(
        why="windows of 3 x 3 over sixteen channels",
        target="dsp",
        before=IMAGE_OF_CHANNELS,
        after="""
            kernel @conv(...
              micro raot_winograd_weights(...
              micro raot_gather_pairs_s8(...
              for band in 0..4 {
            ...
                micro raot_gather_pairs_s8(...
                for tile in 0..2 {
                  micro raot_winograd_input(...
                  for pair in 0..8 {
                    micro raot_winograd_multiply(...
                    micro raot_winograd_output(...
                  }
            ...""",
    ),
    Example(why="rows of a matrix have no windows", target="dsp", before=INTEGER_MATMUL),
)
