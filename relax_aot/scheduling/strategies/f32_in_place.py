# SPDX-License-Identifier: Apache-2.0
"""Float convolutions over images that have their channels last, read in place.

Of a line of the result, the positions whose windows are whole are tiles: rows are positions,
columns are filters. The others lie at the first and the last pixels of all lines, where rows of a
tile are lines. Taps outside of the image are left out, so nothing is copied and no sum changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min
from relax_aot.ir.example import Example
from relax_aot.ir.loops import For
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Panels, panels_of
from relax_aot.scheduling.strategies._ends import end_of
from relax_aot.scheduling.strategies._panels import Span, even, panels_of_columns, spans
from relax_aot.scheduling.strategies._sums import emit_tile
from relax_aot.scheduling.strategies._texts import CONVOLUTION_NHWC, IMAGE_NHWC
from relax_aot.scheduling.strategies.f32_nhwc import Windows, stores_channels, windows_of
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import Axis, interior
from relax_aot.scheduling.writer import Ends, Writer

SINGLE = 16
"""Of so many results, one at most may be computed alone: at the corners of an image, taps are left
out along both axes."""


def in_place(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Images whose corners count little."""
    image, weights = found.left, found.right
    if weights.buffer.name not in context.constants or image.buffer.name in context.constants:
        return None
    roles = windows_of(found) if context.target.stores else None
    if roles is None or not roles.dense or not stores_channels(found, roles.channels):
        return None
    near = stride(image, found.reductions[-1].variable)
    if near != 1 or not (_clips(roles.lines, found) and _clips(roles.pixels, found)):
        return None
    alone = count = 1
    for axis in roles.axes:
        positions = greatest(axis.positions, w.bounds)
        alone, count = alone * _clipped(axis, positions), count * positions
    panels = panels_of(weights, found.nest.loops, roles.channels, roles.full, COLUMNS)
    if alone * SINGLE > count or panels is None:
        return None
    return 0, _InPlace(found, w, context.target.rows, roles, panels).emit


def _clips(axis: Axis, found: Contraction) -> bool:
    """Whether windows move along the axis and it is known where they are whole."""
    loop = axis.loop
    return loop is not None and interior(loop, found.nest) is not None


def _clipped(axis: Axis, positions: int) -> int:
    """Positions whose windows are clipped, of as many as there may be; the size of the image fits
    them."""
    reach = (axis.taps - 1) * axis.dilation
    after = max(reach - axis.before, 0) if axis.clips and axis.clips[1] else 0
    before = axis.before if axis.clips and axis.clips[0] else 0
    return min(-(-before // axis.stride) + -(-after // axis.stride), positions)


@dataclass
class _InPlace:
    found: Contraction
    w: Writer
    rows: int
    roles: Windows
    panels: Panels

    def emit(self) -> None:
        w, (lines, pixels), filters = self.w, self.roles.axes, self.roles.channels
        assert lines.loop is not None
        assert pixels.loop is not None
        self.panels = self.panels.named(w.fresh(self.panels.packed.buffer.name))
        w.constant(self.panels.packed)
        own = (lines.loop, pixels.loop, filters)
        names, apart = ("c", "panel", "width"), end_of(self.found) is None
        with w.nest([loop for loop in self.found.nest.loops if loop not in own]):
            for columns in panels_of_columns(w, filters, names, COLUMNS, apart=apart):
                down, across = self._whole(lines.loop), self._whole(pixels.loop)
                with w.loop(lines.variable, ZERO, lines.positions):
                    self._tiles(pixels.loop, across, pixels, columns)
                for begin, end in ((ZERO, across[0]), (across[1], pixels.positions)):
                    if begin == end:
                        continue
                    with w.loop(pixels.variable, begin, end):
                        self._tiles(lines.loop, down, lines, columns)
                        for first, last in ((ZERO, down[0]), (down[1], lines.positions)):
                            if first != last:
                                with w.loop(lines.variable, first, last) as line:
                                    single = Span(lines.variable, line, ONE, "y")
                                    self._tile(single, 1, {}, columns)

    def _whole(self, loop: For) -> Ends:
        """The positions whose windows are not clipped along an axis."""
        inside = interior(loop, self.found.nest)
        assert inside is not None
        low = self.w.short(f"{loop.variable}_low", dim_min(dim_max(inside.start, 0), loop.stop))
        high = dim_max(dim_min(inside.stop, loop.stop), low)
        return low, self.w.short(f"{loop.variable}_high", high)

    def _tiles(self, loop: For, ends: Ends, axis: Axis, columns: Span) -> None:
        """The positions between `ends`, whose windows have all taps along their axis."""
        size = even(ends[1] - ends[0], self.rows)
        with spans(self.w, loop, (loop.variable, "tile", "count"), size, ends) as tile:
            self._tile(tile, self.rows, {axis.tap: (ZERO, Dim.of(axis.taps))}, columns)

    def _tile(self, tile: Span, most: int, known: Mapping[str, Ends], columns: Span) -> None:
        taps = {axis.tap for axis in self.roles.axes}
        full = {loop.variable: (loop.start, loop.stop) for loop in self.roles.full
                if loop.variable not in taps}  # fmt: skip
        emit_tile(
            self.found, self.w, (tile, Span("", ZERO, ONE, ""), columns), most, {**full, **known},
            partial(self.panels.at, columns.first, columns.count), stored=True,
        )  # fmt: skip


EXAMPLES = (
    Example(
        why="whole windows of a line, the first pixels of lines, and a corner",
        target="host",
        before=IMAGE_NHWC,
        after="""
            kernel @conv(...) -> (%y: f32[9, 11, 8]) {
              for i in 0..9 {
            ...
                micro raot_multiply_store_f32(%y[i, 1, 0], ...) [9, 8, 1, -k_first + k_last, ...]
              }
              for j in 0..1 {
                micro raot_multiply_store_f32(%y[1, j, 0], %x[0, j, 0], ...) [7, 8, 1, 3, 10, ...]
                for i in 0..1 {
                  micro raot_multiply_store_f32(%y[i, j, 0], ...) [1, 8, 1, 2, 10, ...]
            ...""",
    ),
    Example(why="a line alone has no lines of corners", target="host", before=CONVOLUTION_NHWC),
)
