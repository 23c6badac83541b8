# SPDX-License-Identifier: Apache-2.0
"""Float convolutions as tiles whose columns are pixels: im2col, some lines at a time.

The windows of those pixels are gathered first, step by step of the sum, into a panel in the
order in which the micro-kernel reads it; zeros stand where a window reaches beyond its image,
so that borders take no loops of their own. A product with such a zero changes no sum, because
this is done only for weights that are known to be finite; a sum of -0 may become +0. Images
that are dense in that order are read in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.example import Example
from relax_aot.ir.loops import (
    Buffer,
    Expr,
    For,
    Lit,
    Load,
    Multiply,
    Reserve,
    Select,
    Store,
    binary,
)
from relax_aot.ir.simplify import simplify
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import (
    Contraction,
    greatest,
    indexed_by,
    moved,
    step_of,
    stride,
)
from relax_aot.scheduling.strategies._texts import CONVOLUTION, DEPTHWISE
from relax_aot.scheduling.strategies.f32_tiles import COLUMNS, LEAST_COLUMNS, Element
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.windows import reaching, whole
from relax_aot.scheduling.writer import ONE, ZERO, Writer

LEAST_ROWS = 4
"""Filters for which it is worth to gather pixels."""
FARTHEST = 4
"""Elements from pixel to pixel; those that lie farther apart are no image."""
NOTHING = Lit(0.0, DType.F32)


def im2col(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Constants are no images: they are rearranged while compiling."""
    left, right, bounds = found.left, found.right, w.bounds
    pixels = [
        loop
        for loop in found.free
        if stride(left, loop.variable) == 0 and stride(right, loop.variable) not in (None, 0)
    ]
    filters = [
        loop
        for loop in found.free
        if stride(right, loop.variable) == 0
        and stride(left, loop.variable) not in (None, 0)
        and loop.variable not in found.clipped_by
        and greatest(loop, bounds) >= LEAST_ROWS
    ]
    full = [whole(loop, found.nest) for loop in found.reductions]
    known = [loop for loop in full if loop is not None]
    constant = right.buffer.name in context.constants
    if constant or not pixels or not filters or len(known) < len(full):
        return None
    if any(stride(load, lp.variable) is None for load in (left, right) for lp in known):
        return None
    down, across = (None if len(pixels) < 2 else pixels[-2]), pixels[-1]
    taken = {loop.variable for loop in (down, across) if loop is not None}
    near = stride(right, across.variable)
    if near is None or not near.is_constant or not 0 < near.constant <= FARTHEST:
        return None
    if {loop.variable for loop in found.nest.loops} - taken & found.clipped_by:
        return None
    count = greatest(across, bounds) * (greatest(down, bounds) if down is not None else 1)
    if count < LEAST_COLUMNS:
        return None
    room = _panel_columns(known, context.target)
    size = _size(found, down, across, room, left.buffer.name in context.finite)
    if size is None:
        return None
    rows = max(filters, key=lambda loop: greatest(loop, bounds))
    match = _Pixels(found, w, context.target.rows, rows, down, across, known, *size)
    return -match.gathered, match.emit


def _size(
    found: Contraction, down: For | None, across: For, room: int, finite: bool
) -> tuple[int, int, bool] | None:
    """Columns and lines of a block, and whether it is gathered; None where it is none, or
    where plain tiles do as well."""
    gathered = bool(found.clipped_by) or stride(found.right, across.variable) != 1
    if gathered:
        if room == 0 or (found.clipped_by and not finite):
            return None
        return room, _lines(down, across, room), True
    lines = _lines(down, across, COLUMNS)
    if lines == 1 or down is None:
        return None
    if stride(found.right, down.variable) == across.stop - across.start:
        return COLUMNS, lines, False
    lines = _lines(down, across, room) if room else 1
    return None if lines == 1 else (room, lines, True)


def _panel_columns(reductions: Sequence[For], target: Target) -> int:
    """Columns of a panel that is small enough; 0 if none is."""
    sizes = [loop.stop - loop.start for loop in reductions]
    if not all(size.is_constant and size.constant > 0 for size in sizes):
        return 0
    bytes_ = prod(size.constant for size in sizes) * DType.F32.bytes
    return min(COLUMNS, target.panel // bytes_ // target.lanes * target.lanes)


def _lines(down: For | None, across: For, columns: int) -> int:
    """How many whole lines fit."""
    extent = across.stop - across.start
    if down is None or not extent.is_constant or not 0 < extent.constant <= columns:
        return 1
    most = down.stop - down.start
    lines = columns // extent.constant
    return min(lines, max(most.constant, 1)) if most.is_constant else lines


@dataclass(frozen=True, slots=True)
class _Block:
    """Pixels that are done at once: `high` lines from `line` on, `wide` pixels from `first`."""

    line: Dim
    high: Dim
    first: Dim
    wide: Dim


@dataclass
class _Pixels:
    """A sum whose right operand lies along `down` and `across`, lines and pixels of a line.
    `columns` pixels at most are done at once, of `lines` lines or of one; `reductions` have
    nothing clipped; `gathered`: by way of a panel."""

    found: Contraction
    w: Writer
    tile_rows: int
    rows: For
    down: For | None
    across: For
    reductions: Sequence[For]
    columns: int
    lines: int
    gathered: bool

    def emit(self) -> None:
        w, own = self.w, (self.rows, self.down, self.across)
        with w.nest([loop for loop in self.found.nest.loops if loop not in own]):
            if self.down is None:
                self._pieces(ZERO, ONE)
                return
            extent = self.down.stop - self.down.start
            with w.tiles((f"{self.down.variable}_tile", "lines"), extent, self.lines) as (at, high):
                self._pieces(self.down.start + at, high)

    def _pieces(self, line: Dim, high: Dim) -> None:
        across = self.across
        names = (f"{across.variable}_tile", "width")
        with self.w.tiles(names, across.stop - across.start, self.columns) as (first, wide):
            self._block(_Block(line, high, across.start + first, wide))

    def _block(self, block: _Block) -> None:
        """Gathers the pixels, then multiplies them by all filters."""
        found, at = self.found, self._pixel(block.line, block.first)
        at |= {loop.variable: loop.start for loop in self.reductions}
        right = moved(found.right, at)
        steps = [step_of(found.right, loop.variable) for loop in self.reductions]
        if self.gathered:
            sizes = (loop.stop - loop.start for loop in self.reductions)
            panel = self.w.buffer("panel", DType.F32, *sizes, self.columns)
            self._gather(panel, block)
            right = panel[(ZERO,) * panel.rank]
            steps = [prod(panel.shape[n + 1 :], start=ONE) for n in range(panel.rank - 1)]
        levels = [
            (loop.stop - loop.start, step_of(found.left, loop.variable), step)
            for loop, step in zip(self.reductions, steps, strict=True)
        ]
        names = (f"{self.rows.variable}_tile", "height")
        extent = self.rows.stop - self.rows.start
        with self.w.tiles(names, extent, self.tile_rows) as (first, height):
            self._tile(block, merged(levels), right, self.rows.start + first, height)

    def _pixel(self, line: Dim, pixel: Dim) -> dict[str, Dim]:
        at = {self.across.variable: pixel}
        return at if self.down is None else {**at, self.down.variable: line}

    # The panel

    def _gather(self, panel: Buffer, block: _Block) -> None:
        """One row of the panel at a time. Which of its pixels lie inside the image is found
        outside of the loops over taps that do not change it, such as those over channels."""
        w = self.w
        taps = [
            For(w.names.fresh(loop.variable), ZERO, loop.stop - loop.start, ())
            for loop in self.reductions
        ]
        at = {
            loop.variable: loop.start + Dim.of(tap.variable)
            for loop, tap in zip(self.reductions, taps, strict=True)
        }
        vertical, horizontal = self._deciding(self.down), self._deciding(self.across)
        g, x = (Dim.of(w.names.fresh(name)) for name in ("grid_row", "x"))
        place = {**self._pixel(block.line + g, block.first + x), **at}
        with w.nest([taps[n] for n in vertical] + [For(str(g), ZERO, block.high, ())]):
            inside = ONE
            if self.down is not None:
                inside = self._holds(self.down, at, block.line + g)
            with w.nest([taps[n] for n in horizontal if n not in vertical]):
                first, last = self._inside(self.across, at, block.first, block.wide)
                last = w.named("last", dim_max(first, last * inside))
                others = [n for n in range(len(taps)) if n not in (*vertical, *horizontal)]
                with w.nest([taps[n] for n in others]):
                    value = moved(self.found.right, place)
                    reached = binary("&&", binary("<=", first, x), binary("<", x, last))
                    index = (*(Dim.of(tap.variable) for tap in taps), g * block.wide + x)
                    store = Store(panel, index, Select(reached, value, NOTHING))
                    w.add(For(str(x), ZERO, block.wide, (store,)))

    def _deciding(self, pixel: For | None) -> list[int]:
        """Which of the loops over taps decide whether iterations of `pixel` are inside."""
        name = None if pixel is None else pixel.variable
        return [
            position
            for position, loop in enumerate(self.found.reductions)
            if name in loop.start.symbols | loop.stop.symbols
        ]

    def _holds(self, pixel: For, at: Mapping[str, Dim], iteration: Dim) -> Dim:
        """1 where the windows of an output loop's iteration hold the taps `at`, else 0."""
        here, held = {pixel.variable: iteration}, ONE
        for loop in self.found.reductions:
            if pixel.variable in loop.start.symbols | loop.stop.symbols:
                tap = at[loop.variable]
                held = dim_min(held, tap - loop.start.substitute(here) + 1)
                held = dim_min(held, loop.stop.substitute(here) - tap)
        held = simplify(dim_max(held, 0), self.w.bounds)
        return held if held.is_constant else self.w.let("inside", held, ZERO, ONE)

    def _inside(
        self, pixel: For, at: Mapping[str, Dim], start: Dim, extent: Dim
    ) -> tuple[Dim, Dim]:
        """Of a block's iterations of an output loop, those whose windows hold the taps `at`."""
        low, high = ZERO, extent
        for loop in self.found.reductions:
            if pixel.variable in loop.start.symbols | loop.stop.symbols:
                ends = reaching(pixel, loop, at[loop.variable])
                assert ends is not None
                low, high = dim_max(low, ends[0] - start), dim_min(high, ends[1] - start)
        low = self.w.short("first", dim_min(low, extent))
        return low, self.w.short("last", dim_max(high, low))

    # The tiles

    def _tile(
        self,
        block: _Block,
        levels: tuple[tuple[Dim, Dim, Dim], ...],
        right: Load,
        row: Dim,
        height: Dim,
    ) -> None:
        found, w = self.found, self.w
        shape = (Dim.of(self.tile_rows), Dim.of(COLUMNS))
        sums = Buffer(w.names.fresh("sums"), DType.F32, shape)
        w.add(Reserve(sums))
        one = self._element(block, row, height)
        self._start(one, sums, substitute_in(found.start, one.at))
        origin = {loop.variable: loop.start for loop in self.reductions}
        left = moved(found.left, {**origin, self.rows.variable: row})
        far, wide = step_of(found.left, self.rows.variable), block.high * block.wide
        w.add(Multiply(sums, height, wide, levels, left, far, right))
        self._element(block, row, height).finish(w, found, sums)

    def _start(self, one: Element, sums: Buffer, start: Expr) -> None:
        """The starts of sums, in whole rows where they are the same along them."""
        pixel = {loop.variable for loop in (self.across, self.down) if loop is not None}
        depends = indexed_by(self.found.start)
        if not depends & pixel and not all(extent.is_constant for _, extent in one.loops):
            column = Dim.of(self.w.names.fresh("c"))
            name, height = one.loops[0]
            if not height.is_constant and self.rows.variable not in depends:
                height = Dim.of(self.tile_rows)
            loops = ((name, height), (str(column), Dim.of(COLUMNS)))
            one = replace(one, column=column, loops=loops)
        self.w.add(one.over(Store(sums, (one.row, one.column), start)))

    def _element(self, block: _Block, row: Dim, height: Dim) -> Element:
        r, g, x = (self.w.names.fresh(name) for name in ("r", "grid_row", "x"))
        at = self._pixel(block.line + Dim.of(g), block.first + Dim.of(x))
        at[self.rows.variable] = row + Dim.of(r)
        column = Dim.of(g) * block.wide + Dim.of(x)
        return Element(Dim.of(r), column, at, ((r, height), (g, block.high), (x, block.wide)))


def merged(levels: Sequence[tuple[Dim, Dim, Dim]]) -> tuple[tuple[Dim, Dim, Dim], ...]:
    """Reductions of (count, left, right), as few as they can be: one of a single step is
    dropped, and one that goes on where the next inner one ends is the same loop."""
    result: list[tuple[Dim, Dim, Dim]] = []
    for count, left, right in levels:
        if count == 1:
            continue
        if result and result[-1][1:] == (count * left, count * right):
            result[-1] = (result[-1][0] * count, left, right)
        else:
            result.append((count, left, right))
    return tuple(result) or tuple(levels[-1:])


EXAMPLES = (
    Example(
        why="the windows of 32 pixels in a panel, zeros at the borders",
        target="dsp",
        before=CONVOLUTION,
        after="""
            kernel @conv(...) scratch (%panel: f32[2, 3, 32]) {
              for i_tile in 0..2 {
            ...
                        %panel[c_0, k_0, ...] = select(...
            ...
                multiply %sums[4, width] = %w[0, 0, 0], 6, %panel[0, 0, 0], [6, 1, 32]
            ...""",
    ),
    Example(why="a depthwise convolution has no filters to share", target="dsp", before=DEPTHWISE),
)
