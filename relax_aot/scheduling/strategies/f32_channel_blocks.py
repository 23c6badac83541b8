# SPDX-License-Identifier: Apache-2.0
"""Float depthwise convolutions of images with channels first: vectors hold some channels.

A part of the image, and a border of zeros, is transposed to a strip that holds some channels of a
pixel after another, in which no window is clipped. The sums of adjacent positions are computed as
those of images with channels last, then what follows each sum where it is the same at all
positions, and are transposed to the result.

As with im2col, the weights are known to be finite, and a sum of -0 may become +0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Contraction, indexed_by, moved, step_of, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Panels, panels_of
from relax_aot.scheduling.strategies._panels import Span, spans
from relax_aot.scheduling.strategies._texts import DEPTHWISE
from relax_aot.scheduling.strategies.f32_nhwc import Windows, covered, stores_channels, windows_of
from relax_aot.scheduling.strategies.f32_padded_rows import MOST_TAPS, uniform
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Ends, Writer

CHANNELS = 16
"""Channels of a block, at least where there are so many."""
POSITIONS = 64
"""Positions of a line whose windows are in the strip together, at most."""
STRIP_BYTES = 1 << 17
"""A strip is larger only where the windows of a line are."""


def channel_blocks(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Where positions of the image are contiguous, and channels are not."""
    image, weights = found.left, found.right
    if weights.buffer.name not in context.finite or image.buffer.name in context.constants:
        return None
    roles = windows_of(found)
    if roles is None or roles.dense or roles.pixels.loop is None or roles.pixels.step != 1:
        return None
    channels = roles.channels.stop.constant
    many = channels >= CHANNELS and roles.lines.loop is not None
    few = prod(axis.taps for axis in roles.axes) <= MOST_TAPS
    if few and not many and not stores_channels(found, roles.channels):
        return None
    block = _block(channels)
    own = {axis.variable for axis in roles.axes if axis.variable}
    panels = panels_of(weights, found.nest.loops, roles.channels, roles.full, block)
    if panels is None or panels.outer or indexed_by(found.start) & own:
        return None
    wide = min(greatest(roles.pixels.positions, w.bounds), POSITIONS)
    line = covered(roles.pixels, Dim.of(wide)).constant * block * DType.F32.bytes
    least = covered(roles.lines, ONE).constant
    if least * line > context.target.panel:
        return None
    lines = max((STRIP_BYTES // line - least) // roles.lines.stride + 1, 1)
    lines = 1 if context.lean else min(lines, greatest(roles.lines.positions, w.bounds))
    return 0, _Blocks(found, w, roles, panels, block, wide, lines).emit


def _block(channels: int) -> int:
    """How many channels a block has, so that the last one too fills a vector."""
    for blocks in range(max(channels // CHANNELS, 1), 1, -1):
        size = -(-channels // blocks)
        if channels - (blocks - 1) * size >= CHANNELS:
            return size
    return min(channels, 2 * CHANNELS)


@dataclass
class _Blocks:
    """`block` channels, `lines` lines and `wide` positions of each of them at a time."""

    found: Contraction
    w: Writer
    roles: Windows
    panels: Panels
    block: int
    wide: int
    lines: int

    def emit(self) -> None:
        w, (lines, pixels), channels = self.w, self.roles.axes, self.roles.channels
        self.panels = self.panels.named(w.fresh(self.panels.packed.buffer.name))
        w.constant(self.panels.packed)
        most = (covered(lines, Dim.of(self.lines)), covered(pixels, Dim.of(self.wide)))
        self.strip = w.buffer("strip", DType.F32, *most, self.block)
        own = (lines.loop, pixels.loop, channels)
        outer = [loop for loop in self.found.nest.loops if loop not in own]
        with w.nest(outer), spans(w, channels, ("c", "panel", "width"), self.block) as some:
            self.start = w.reserve("start", DType.F32, REGISTER, self.block)
            with w.range("c", some.count) as c:
                w.add(Store(self.start, (c,), substitute_in(self.found.start, some.at(c))))
            with (
                w.tiles(("band", "height"), lines.positions, self.lines) as (line, high),
                w.tiles(("x_tile", "count"), pixels.positions, self.wide) as (x, count),
            ):
                self._gather((line, high), (x, count), some)
                with w.range("y", high) as y:
                    self._sums(y, count, some)
                    self._finish(line + y, (x, count), some)

    def _gather(self, band: Ends, tile: Ends, some: Span) -> None:
        """The windows of some lines and some positions of each of them, of some channels."""
        w, image, (lines, pixels) = self.w, self.found.left, self.roles.axes
        top = band[0] * lines.stride - lines.before
        left = tile[0] * pixels.stride - pixels.before
        rows, wide = covered(lines, band[1]), covered(pixels, tile[1])
        low = w.short("low", dim_min(dim_max(-top, 0), rows))
        high = w.short("high", dim_max(dim_min(lines.size - top, rows), low))
        begin = w.short("begin", dim_min(dim_max(-left, 0), wide))
        end = w.short("end", dim_max(dim_min(pixels.size - left, wide), begin))
        for part, (first, last) in enumerate(pairwise((ZERO, low, high, rows))):
            if first == last:
                continue
            with w.range("row", last, first) as row:
                if part != 1:
                    self._clear(row, ZERO, wide)
                    continue
                self._clear(row, ZERO, begin)
                index = [*moved(image, {some.variable: some.first}).index]
                if lines.dimension >= 0:
                    index[lines.dimension] = top + row
                index[pixels.dimension] = left + begin
                step = step_of(image, some.variable)
                w.micro(
                    "raot_transpose_f32", to=Load(self.strip, (row, begin, ZERO)),
                    x=Load(image.buffer, tuple(index)), rows=some.count, columns=end - begin,
                    row_step=step, to_step=self.block,
                )  # fmt: skip
                self._clear(row, end, wide)

    def _clear(self, row: Dim, first: Dim, last: Dim) -> None:
        """A border of zeros."""
        if first != last:
            with self.w.range("pixel", last, first) as pixel, self.w.range("c", self.block) as c:
                self.w.add(Store(self.strip, (row, pixel, c), Lit(0.0, DType.F32)))

    def _sums(self, y: Dim, count: Dim, some: Span) -> None:
        """The sums of adjacent positions of line `y` of the strip."""
        w, (lines, pixels) = self.w, self.roles.axes
        weights, steps = self.panels.at(some.first, some.count, [ZERO] * len(self.roles.full))
        far = dict(zip((loop.variable for loop in self.roles.full), steps, strict=True))
        row = self.strip.shape[1] * self.block
        self.sums = w.reserve("sums", DType.F32, REGISTER, self.wide * self.block)
        w.micro(
            "raot_depthwise_f32", sums=self.sums[(ZERO,)], weights=weights, start=self.start,
            x=Load(self.strip, (y * lines.stride, ZERO, ZERO)),
            positions=count, channels=some.count, step=self.block * pixels.stride,
            rows=lines.taps, row_step=row * lines.dilation, taps=pixels.taps,
            tap_step=self.block * pixels.dilation, weight_row=far.get(lines.tap, ZERO),
        )  # fmt: skip

    def _finish(self, line: Dim, tile: Ends, some: Span) -> None:
        """What follows the sums of adjacent positions, in the order in which results lie."""
        w, found, (lines, pixels) = self.w, self.found, self.roles.axes
        x, count = tile

        def at(p: Dim, c: Dim) -> dict[str, Dim]:
            return {lines.variable: line, pixels.variable: x + p, **some.at(c)}

        if stores_channels(found, self.roles.channels):
            with w.range("p", count) as p, w.range("c", some.count) as c:
                sums = Load(self.sums, (p * some.count + c,))
                w.finish(found.after, found.sum, sums, at(p, c))
            return
        own = {axis.variable for axis in self.roles.axes} | {some.variable}
        same = uniform(found, own)
        transposed = partial(
            w.micro, "raot_transpose_f32", rows=count, columns=some.count, row_step=some.count
        )
        if same and same.buffer.dtype is DType.F32 and stride(same, pixels.variable) == 1:
            results = self.sums
            if same.value != found.sum:
                results = w.reserve("results", DType.F32, REGISTER, self.wide * self.block)
                with w.range("n", count * some.count) as n:
                    after = [Store(results, (n,), same.value)]
                    w.finish(after, found.sum, Load(self.sums, (n,)), {})
            step = step_of(same, some.variable)
            to = moved(Load(same.buffer, same.index), at(ZERO, ZERO))
            transposed(x=results[(ZERO,)], to=to, to_step=step)
            return
        rows = w.reserve("rows", DType.F32, REGISTER, self.block * self.wide)
        transposed(x=self.sums[(ZERO,)], to=rows[(ZERO,)], to_step=self.wide)
        with w.range("c", some.count) as c, w.range("p", count) as p:
            w.finish(found.after, found.sum, Load(rows, (c * self.wide + p,)), at(p, c))


EXAMPLES = (
    Example(
        why="a part of an image with a border, transposed",
        target="host",
        before=DEPTHWISE.replace("[2", "[16").replace("0..2", "0..16"),
        after="""
            kernel @conv(...) scratch (%strip: f32[8, 8, 16]) {
            ...
                micro raot_transpose_f32(%strip[row_0, 1, 0], ...
            ...
                micro raot_depthwise_f32(%sums[0], %strip[y_0, 0, 0], ...
                micro raot_transpose_f32(%y[0, y_0, 0], %sums[0]) ...
            ...""",
    ),
    Example(why="few channels fill no vector", target="host", before=DEPTHWISE),
)
