# SPDX-License-Identifier: Apache-2.0
"""Float contractions as tiles of `raot_multiply_f32`.

One output loop gives the rows of a tile, which move the left operand alone; others give the
columns, which move the right one. Columns of the right operand are read in place, or packed while
compiling where it is a constant (`tiles`), or gathered (`im2col`). A right operand that is an
expression, such as decoded weights, is computed into a panel of columns, which all tiles of rows
read. The tile is kept in a buffer of the kernel's own, from which each result is stored as the leaf
says.

`im2col` is for convolutions whose columns are pixels of an image. The windows of some lines of
pixels are gathered first, step by step of the sum, into a panel in the order in which the
micro-kernel reads it; zeros stand where a window reaches beyond its image, so that borders take no
loops of their own. A product with such a zero changes no sum, because this is done only for weights
that are known to be finite; a sum of -0 may become +0. Images that are dense in that order are
read in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min, interval
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, For, If, Lit, Load, Multiply, Reserve, Select, Store, binary
from relax_aot.ir.simplify import simplify
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction, indexed_by, moved, step_of, stride
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Panels, panels_of, round_up
from relax_aot.scheduling.strategies._texts import (
    CONVOLUTION,
    DECODED_MATMUL,
    DEPTHWISE,
    MATMUL,
    NARROW_MATMUL,
)
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import interior, reaching, whole
from relax_aot.scheduling.writer import Ends, Writer

LANES = 4
"""Columns that begin at once."""
LEAST_COLUMNS = 8
"""Narrower results are not worth a tile."""
LEAST_FILTERS = 4
"""Rows for which it is worth to gather columns, or to compute them."""
FARTHEST = 4
"""Elements from pixel to pixel; those that lie farther apart are no image."""
ABSENT = For("", ZERO, ONE, ())
"""The loop over rows or lines of a nest without one."""

Full = Mapping[str, Ends]
"""Bounds of reductions that hold in a region."""
Operand = Callable[[Sequence[Dim]], tuple[Load, Sequence[Dim]]]
"""A copy of the right operand: its element where reductions begin, and how far each moves it."""


def tiles(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Matches by how much of a tile the results fill; clipped columns count less."""
    left, right, most = found.left, found.right, context.target.rows
    if found.computed and not _computed_on_right(found):
        return None
    sizes = {loop: greatest(loop.extent, w.bounds) for loop in (ABSENT, *found.nest.loops)}
    full = _whole(found) if right.buffer.name in context.constants else []
    loops = [lp for lp in found.columns if interior(lp, found.nest) is not None]
    nest = found.nest.loops
    panels = {lp: panels_of(right, nest, lp, full, COLUMNS) if full else None for lp in loops}
    columns = [loop for loop in loops if panels[loop] or stride(right, loop.variable) == 1]
    across = max(columns, key=lambda loop: sizes[loop], default=ABSENT)
    if sizes[across] < LEAST_COLUMNS:
        return None
    down = [loop for loop in found.swapped.columns if _can_be_rows(loop, across, found)]
    # Of loops that fill a tile the innermost one: its elements lie closest.
    rows = max(reversed(down), key=lambda loop: min(sizes[loop], most), default=ABSENT)
    filled = min(sizes[across], COLUMNS) / COLUMNS * min(sizes[rows], most)
    if across.variable in found.clipped_by:
        filled *= 0.5
    # Of equal ways one whose left operand is contiguous is taken.
    contiguous = stride(left, found.reductions[-1].variable) == 1
    size = COLUMNS
    if found.computed:
        steps = prod((greatest(lp.extent, w.bounds) for lp in found.reductions), start=1)
        size = context.target.panel_columns(steps) if sizes[rows] >= LEAST_FILTERS else 0
        if not size:
            return None
    match = _Tiling(found, w, most, rows, across, columns=size, panels=panels[across])
    return filled + 0.01 * contiguous, match.emit


def _computed_on_right(found: Contraction) -> bool:
    """Whether the right operand alone is computed, with loops whose bounds are the same for all
    results."""
    clipped = found.clipped_by & {loop.variable for loop in found.nest.loops}
    return [load for load, _ in found.computed] == [found.right] and not clipped


def _can_be_rows(loop: For, columns: For, found: Contraction) -> bool:
    """Windows may be clipped along the rows or along the columns, not along both."""
    if loop.variable not in found.clipped_by:
        return True
    separate = columns.variable not in found.clipped_by
    return separate and interior(loop, found.nest) is not None


def _whole(found: Contraction) -> list[For]:
    """The reductions with nothing clipped; empty where they are not known."""
    full = [whole(loop, found.nest) for loop in found.reductions]
    known = [loop for loop in full if loop is not None]
    return known if len(known) == len(full) else []


def im2col(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Constants are no images: they are rearranged while compiling."""
    left, right, pixels, full = found.left, found.right, found.columns, _whole(found)
    sizes = {loop: greatest(loop.extent, w.bounds) for loop in (ABSENT, *found.nest.loops)}
    unclipped = [lp for lp in found.swapped.columns if lp.variable not in found.clipped_by]
    filters = [loop for loop in unclipped if sizes[loop] >= LEAST_FILTERS]
    if right.buffer.name in context.constants or not pixels or not filters or not full:
        return None
    down, across = (ABSENT, *pixels)[-2:]
    near = stride(right, across.variable)
    if near is None or not near.is_constant or not 0 < near.constant <= FARTHEST:
        return None
    others = {loop.variable for loop in found.nest.loops} - {down.variable, across.variable}
    if others & found.clipped_by or sizes[across] * sizes[down] < LEAST_COLUMNS:
        return None
    steps = prod((loop.extent for loop in full), start=ONE)
    known = steps.is_constant and steps.constant > 0
    room = context.target.panel_columns(steps.constant) if known else 0
    size = _size(found, down, across, room, left.buffer.name in context.finite)
    if size is None:
        return None
    rows = max(filters, key=lambda loop: sizes[loop])
    columns, lines, gathered = size
    match = _Tiling(
        found, w, context.target.rows, rows, across, down, columns, lines,
        whole=full if gathered else (), names=("x", "tile", "width"),
    )  # fmt: skip
    return -gathered, match.emit


def _size(
    found: Contraction, down: For, across: For, room: int, finite: bool
) -> tuple[int, int, bool] | None:
    """Columns and lines of a block, and whether it is gathered; None where it is none, or
    where plain tiles do as well."""
    if found.clipped_by or stride(found.right, across.variable) != 1:
        known = room > 0 and (finite or not found.clipped_by)
        return (room, _lines(down, across, room), True) if known else None
    dense = stride(found.right, down.variable) == across.extent
    columns = COLUMNS if dense else room
    lines = _lines(down, across, columns)
    return None if lines == 1 else (columns, lines, not dense)


def _lines(down: For, across: For, columns: int) -> int:
    """How many whole lines fit, one at least."""
    extent, most = across.extent, down.extent
    if not extent.is_constant or not 0 < extent.constant <= columns:
        return 1
    lines = columns // extent.constant
    return min(lines, max(most.constant, 1)) if most.is_constant else lines


@dataclass(frozen=True, slots=True)
class _Span:
    """`count` iterations of a loop from `first` on. `name`: of the loop over them in a tile."""

    variable: str
    first: Dim
    count: Dim
    name: str

    def at(self, offset: Dim) -> dict[str, Dim]:
        return {self.variable: self.first + offset}


Spans = tuple[_Span, _Span, _Span]
"""Rows, lines of columns, and columns of a line."""


@contextmanager
def _spans(
    w: Writer, loop: For, names: tuple[str, str, str], size: int, ends: Ends | None = None
) -> Iterator[_Span]:
    """A loop, or the part of it between `ends`, in spans of at most `size` iterations."""
    start, stop = ends or (loop.start, loop.stop)
    name, counter, length = names
    with w.tiles((f"{loop.variable}_{counter}", length), stop - start, size) as (first, count):
        yield _Span(loop.variable, start + first, count, name)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """`rows` of filters, `columns` of iterations of `across`, of `lines` of `down` or of one.
    The right operand is packed in `panels`, or gathered, by the reductions `whole` that have
    nothing clipped."""

    found: Contraction
    w: Writer
    tile_rows: int
    rows: For
    across: For
    down: For = ABSENT
    columns: int = COLUMNS
    lines: int = 1
    panels: Panels | None = None
    whole: Sequence[For] = ()
    names: tuple[str, str, str] = ("c", "panel", "width")

    def emit(self) -> None:
        """Tiles where no window is clipped along the columns, plain loops elsewhere."""
        found, w, own = self.found, self.w, (self.rows, self.down, self.across)
        panels = self.panels and self.panels.named(w.fresh(self.panels.packed.buffer.name))
        if panels is not None:
            w.constant(panels.packed)
        with w.nest([loop for loop in found.nest.loops if loop not in own]):
            for ends, full in self._regions(self.across, {}):
                if full is None:
                    rows = [loop for loop in found.nest.loops if loop == self.rows]
                    with w.loop(self.across.variable, *ends), w.nest(rows):
                        w.add(*found.nest.leaf)
                    continue
                with (
                    _spans(w, self.down, ("grid_row", "tile", "lines"), self.lines) as lines,
                    _spans(w, self.across, self.names, self.columns, ends) as pixels,
                ):
                    self._rows((lines, pixels), full, self._operand(lines, pixels, panels))

    def _rows(self, columns: tuple[_Span, _Span], full: Full, operand: Operand | None) -> None:
        """Tiles of rows; where a window is clipped, one row at a time."""
        w, rows, most = self.w, self.rows, 1 if self.rows == ABSENT else self.tile_rows
        for ends, inside in sorted(self._regions(rows, full), key=lambda part: part[1] is None):
            if inside is None:
                with w.range(rows.variable, ends[1], ends[0]) as at:
                    row = _Span(rows.variable, at, ONE, "r")
                    _emit_tile(self.found, w, (row, *columns), most, full, operand)
                continue
            with _spans(w, rows, ("r", "tile", "height"), self.tile_rows, ends) as tile:
                _emit_tile(self.found, w, (tile, *columns), most, inside, operand)

    def _regions(self, loop: For, full: Full) -> list[tuple[Ends, Full | None]]:
        """The part of an output loop where no window is clipped, with the bounds of reductions
        that hold there, and the parts before and after it."""
        if self.whole:
            full = {inner.variable: (inner.start, inner.stop) for inner in self.whole}
            return [((loop.start, loop.stop), full)]
        inside = interior(loop, self.found.nest)
        assert inside is not None, loop
        if not inside.full:
            return [((loop.start, loop.stop), full)]
        low = self.w.short(f"{loop.variable}_low", inside.start)
        high = self.w.short(f"{loop.variable}_high", inside.stop)
        parts: list[tuple[Ends, Full | None]] = [
            ((loop.start, low), None),
            ((low, high), {**full, **dict(inside.full)}),
            ((high, loop.stop), None),
        ]
        return [(ends, known) for ends, known in parts if known or ends[0] != ends[1]]

    def _operand(self, lines: _Span, pixels: _Span, panels: Panels | None) -> Operand | None:
        if panels is not None:
            return partial(panels.at, pixels.first, pixels.count)
        if not self.whole and not self.found.computed:
            return None
        panel = self._gather(lines, pixels) if self.whole else self._compute(pixels)
        steps = [prod(panel.shape[n + 1 :], start=ONE) for n in range(panel.rank - 1)]
        return lambda _: (panel[(ZERO,) * panel.rank], steps)

    def _gather(self, lines: _Span, pixels: _Span) -> Buffer:
        """One row of the panel at a time. Which of its pixels lie inside the image is found
        outside of the loops over taps that do not change it, such as those over channels."""
        w, right, inner = self.w, self.found.right, self.whole
        sizes = [loop.extent for loop in inner]
        panel = w.buffer("panel", DType.F32, *sizes, self.columns)
        names = [w.fresh(loop.variable) for loop in inner]
        taps = [For(name, ZERO, size, ()) for name, size in zip(names, sizes, strict=True)]
        at = {lp.variable: lp.start + Dim.of(name) for lp, name in zip(inner, names, strict=True)}
        vertical, horizontal = self._deciding(self.down), self._deciding(self.across)
        with w.nest([taps[n] for n in vertical]), w.range("grid_row", lines.count) as g:
            inside = self._holds(at, lines.at(g))
            with w.nest([taps[n] for n in horizontal if n not in vertical]):
                first, last = self._inside(self.across, at, pixels)
                last = w.named("last", dim_max(first, last * inside))
                others = [n for n in range(len(taps)) if n not in (*vertical, *horizontal)]
                with w.nest([taps[n] for n in others]), w.range("x", pixels.count) as x:
                    value = moved(right, {**lines.at(g), **pixels.at(x), **at})
                    reached = binary("&&", binary("<=", first, x), binary("<", x, last))
                    index = (*map(Dim.of, names), g * pixels.count + x)
                    w.add(Store(panel, index, Select(reached, value, Lit(0.0, DType.F32))))
        return panel

    def _compute(self, pixels: _Span) -> Buffer:
        """The panel of an operand that is an expression."""
        w, inner, ((_, value),) = self.w, self.found.reductions, self.found.computed
        panel = w.buffer("panel", DType.F32, *(loop.extent for loop in inner), self.columns)
        taps = [For(w.fresh(loop.variable), ZERO, loop.extent, ()) for loop in inner]
        names = [Dim.of(tap.variable) for tap in taps]
        at = {lp.variable: lp.start + name for lp, name in zip(inner, names, strict=True)}
        with w.nest(taps), w.range("column", pixels.count) as column:
            computed = substitute_in(value, {**pixels.at(column), **at})
            w.add(Store(panel, (*names, column), computed))
        return panel

    def _deciding(self, pixel: For) -> list[int]:
        """Which of the loops over taps decide whether iterations of `pixel` are inside."""
        return [n for n, tap in enumerate(self.found.reductions) if _clips(tap, pixel)]

    def _holds(self, at: Mapping[str, Dim], line: Mapping[str, Dim]) -> Dim:
        """1 where the windows of a line hold the taps `at`, else 0."""
        held = ONE
        for loop in self.found.reductions:
            if _clips(loop, self.down):
                tap = at[loop.variable]
                held = dim_min(held, tap - loop.start.substitute(line) + 1)
                held = dim_min(held, loop.stop.substitute(line) - tap)
        held = simplify(dim_max(held, 0), self.w.bounds)
        return held if held.is_constant else self.w.let("inside", held, ZERO, ONE)

    def _inside(self, pixel: For, at: Mapping[str, Dim], span: _Span) -> Ends:
        """Of the iterations of an output loop, those whose windows hold the taps `at`."""
        low, high = ZERO, span.count
        for loop in self.found.reductions:
            if _clips(loop, pixel):
                ends = reaching(pixel, loop, at[loop.variable])
                assert ends is not None
                low, high = dim_max(low, ends[0] - span.first), dim_min(high, ends[1] - span.first)
        low = self.w.short("first", dim_min(low, span.count))
        return low, self.w.short("last", dim_max(high, low))


def _clips(tap: For, pixel: For) -> bool:
    return pixel.variable in tap.start.symbols | tap.stop.symbols


def _emit_tile(
    found: Contraction, w: Writer, spans: Spans, most: int, full: Full, operand: Operand | None
) -> None:
    """Results that are summed at once: rows, `most` at most, of the left operand and columns of
    the right one."""
    rows, *columns = spans
    sums = Buffer(w.fresh("sums"), DType.F32, (Dim.of(most), Dim.of(COLUMNS)), REGISTER)
    w.add(Reserve(sums))
    _begin(found, w, spans, sums)
    origin = {span.variable: span.first for span in spans}
    counts, starts = [], {}
    for loop in found.reductions:
        start, stop = full.get(loop.variable, (loop.start, loop.stop))
        start = w.short(f"{loop.variable}_first", start.substitute(origin))
        stop = w.short(f"{loop.variable}_last", stop.substitute(origin))
        counts.append(stop - start)
        starts[loop.variable] = start
    steps = [(step_of(found.left, name), step_of(found.right, name)) for name in starts]
    left, right = (moved(load, origin | starts) for load in (found.left, found.right))
    if operand is not None:
        right, copied = operand(list(starts.values()))
        steps = [(far, step) for (far, _), step in zip(steps, copied, strict=True)]
    levels = _merged([(n, *far) for n, far in zip(counts, steps, strict=True)])
    width = prod((span.count for span in columns), start=ONE)
    row = step_of(found.left, rows.variable)
    w.add(Multiply(sums, rows.count, width, levels, left, row, right))
    index, at, loops = _results(w, spans)
    with w.nest(loops):
        w.finish(found.after, found.sum, Load(sums, index), at)


def _results(w: Writer, spans: Spans) -> tuple[tuple[Dim, Dim], dict[str, Dim], list[For]]:
    """Row and column of a result, the variables there, and the loops over all results."""
    place, at, loops = [ZERO, ZERO], {}, []
    for axis, span in zip((0, 1, 1), spans, strict=True):
        offset = ZERO
        if span.count != 1:
            name = w.fresh(span.name)
            loops.append(For(name, ZERO, span.count, ()))
            offset = Dim.of(name)
        place[axis] = place[axis] * span.count + offset
        at[span.variable] = span.first + offset
    return (place[0], place[1]), at, loops


def _begin(found: Contraction, w: Writer, spans: Spans, sums: Buffer) -> None:
    """Sums whose starts do not depend on their position are begun in parts of a fixed size:
    few rows for few, and columns together. An analysis that cannot tell one height from
    another sees that what is read has begun."""
    rows, lines, pixels = spans
    (row, column), at, loops = _results(w, spans)
    depends = indexed_by(found.start)
    across = loops[rows.count != 1 :]
    if not depends & {lines.variable, pixels.variable}:  # whole vectors, with constant bounds
        columns = lines.count * pixels.count
        exact = columns.is_constant and (rows.count.is_constant or not lines.variable)
        width = round_up(columns.constant, LANES) if exact else COLUMNS
        column = Dim.of(w.fresh("c"))
        across = [For(str(column), ZERO, Dim.of(width), ())]
    store = Store(sums, (row, column), substitute_in(found.start, at))
    ends = [ZERO, rows.count]
    if rows.variable not in depends and not rows.count.is_constant:
        least = max(interval(rows.count, w.bounds)[0], 1)
        parts = _parts(sums.shape[0].constant)
        ends = [ZERO, *(Dim.of(end) for end in parts if end >= least)]
    for first, last in pairwise(ends):
        down = [replace(loop, start=first, stop=last) for loop in loops[: rows.count != 1]]
        with w.block() as body, w.nest([*down, *across]):
            w.add(store)
        w.add(*body if first == 0 else [If(binary("<", first, rows.count), tuple(body))])


def _parts(rows: int) -> tuple[int, ...]:
    """Where the parts of a tile end that sums start in one after another."""
    return (1, rows // 4, rows // 2, rows) if rows >= 12 else (1, rows)


def _merged(levels: Sequence[tuple[Dim, Dim, Dim]]) -> tuple[tuple[Dim, Dim, Dim], ...]:
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
        why="tiles of four rows, the last one of one",
        target="dsp",
        before=MATMUL,
        after="""
            kernel @dot(%x: f32[9, 5], %w.packed: f32[60]) -> (%y: f32[9, 12]) {
              for i_tile in 0..3 {
                let height = min(-4*i_tile + 9, 4)
                reserve %sums: f32[4, 32]
            ...
                multiply %sums[height, 12] = %x[4*i_tile, 0], 5, %w.packed[0], [5, 1, 12]
            ...""",
    ),
    Example(why="both sides are too narrow for a tile", target="dsp", before=NARROW_MATMUL),
    Example(
        why="4-bit weights are decoded into a panel, which all tiles of rows read",
        target="dsp",
        before=DECODED_MATMUL,
        after="""
            kernel @dot(...) -> (%y: f32[n, 12]) scratch (%panel: f32[32, 32]) {
              for k_0 in 0..32 {
                for column in 0..12 {
                  %panel[k_0, column] = (...)
                }
              }
              for i_tile in 0..(n + 3) // 4 {
            ...
                multiply %sums[height, 12] = %x[4*i_tile, 0], 32, %panel[0, 0], [32, 1, 32]
            ...""",
    ),
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
