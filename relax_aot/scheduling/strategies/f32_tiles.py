# SPDX-License-Identifier: Apache-2.0
"""Float contractions as tiles of `raot_multiply_f32`.

One output loop gives the rows of a tile, which move the left operand alone; others give the
columns, which move the right one. Columns of the right operand are read in place, or packed while
compiling where it is a constant (`tiles`), or gathered (`im2col`). An operand that is an
expression, such as decoded weights or rows at indices from data, is computed into a panel: the
right one for some columns, which all tiles of rows read, the left one for the rows of a tile. The
tile is kept in a buffer of the kernel's own, from which each result is stored as the leaf says.

`im2col` is for convolutions whose columns are pixels of an image. The windows of some lines of
pixels are gathered first, step by step of the sum, into a panel in the order in which the
micro-kernel reads it; zeros stand where a window reaches beyond its image, so that borders take no
loops of their own. A product with such a zero changes no sum, because this is done only for weights
that are known to be finite; a sum of -0 may become +0. Images that are dense in that order are
read in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, Cast, Expr, For, Lit, Load, Select, Store, binary
from relax_aot.ir.simplify import simplify
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction, moved, stride, unclipped
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Panels, panels_of
from relax_aot.scheduling.strategies import _texts as texts
from relax_aot.scheduling.strategies._ends import end_of
from relax_aot.scheduling.strategies._panels import (
    ABSENT,
    Copied,
    Operand,
    Span,
    as_stored,
    compute_columns,
    compute_rows,
    even,
    panels_of_columns,
    spans,
)
from relax_aot.scheduling.strategies._sums import (
    LEVELS,
    Full,
    emit_tile,
    is_contiguous,
    no_integers,
    stores_rows,
)
from relax_aot.scheduling.strategies._widths import LEAST_COLUMNS, row_columns, widened_columns
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import interior, reaching, whole
from relax_aot.scheduling.writer import Ends, Writer

LEAST_FILTERS = 4
"""Rows for which it is worth to gather columns, or to compute them."""
UNROLL = 4
"""Columns that begin, or are stored, in an iteration where code counts less than cycles."""
LONG = 32
"""Products of a sum for which a tile of one row of an image is worth it without vectors."""
FARTHEST = 4
"""Elements from pixel to pixel; those that lie farther apart are no image."""


def tiles(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Matches by how much of a tile the results fill; clipped columns count less. An operand of
    half precision is packed, or read in place, as it is stored, if the target converts it in
    tiles."""
    if no_integers(found, w, context):
        return None
    stored = as_stored(found) if context.target.halves else found
    match = _tiles(stored, w, context) if stored is not found else None
    return match or _tiles(found, w, context)


def _tiles(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    left, right = found.left, found.right
    if found.computed and found.clipped_by & {loop.variable for loop in found.nest.loops}:
        return None
    sizes = {loop: greatest(loop.extent, w.bounds) for loop in (ABSENT, *found.nest.loops)}
    full = _whole(found) if right.buffer.name in context.constants else []
    loops = [lp for lp in found.columns if interior(lp, found.nest) is not None]
    nest = found.nest.loops
    halves = {lp: widened_columns(found, lp, full, w, context) for lp in loops}
    widths = {lp: halves[lp] or row_columns(found, lp, w, context) for lp in loops}
    panels = {lp: panels_of(right, nest, lp, full, widths[lp]) if full else None for lp in loops}
    columns = [loop for loop in loops if panels[loop] or stride(right, loop.variable) == 1]
    across = max(columns, key=lambda loop: sizes[loop], default=ABSENT)
    if sizes[across] < LEAST_COLUMNS:
        return None
    down = [loop for loop in found.swapped.columns if _can_be_rows(loop, across, found)]
    # Of loops that fill a tile the innermost one: its elements lie closest.
    most = context.target.rows
    rows = max(reversed(down), key=lambda loop: min(sizes[loop], most), default=ABSENT)
    size = _computed_size(found, sizes[rows], w, context)
    if size is None:
        return None
    alone = rows == ABSENT and not panels[across] and not context.target.strip
    if alone and _is_short(found):
        return None
    filled = min(sizes[across], COLUMNS) / COLUMNS * min(sizes[rows], most)
    if across.variable in found.clipped_by:
        filled *= 0.5
    if found.fetches(right):  # as rows of a tile, they are copied once for all columns
        filled *= 0.1
    # Of equal ways one whose left operand is contiguous is taken.
    contiguous = stride(left, found.reductions[-1].variable) == 1 or found.fetches(left)
    widened = halves[across] if panels[across] else 0
    match = _Tiling(
        found, w, most if widened else size.rows, rows, across, widened=widened > 0,
        columns=widths[across] if panels[across] else size.columns, steps=size.steps,
        panels=panels[across],
        unroll=UNROLL if context.target.separate else 1,
        rows_inner=context.target.float_channels > 0 and stores_rows(found, rows, across),
        stored=context.target.stores > 0, integers=context.target.integers,
    )  # fmt: skip
    return filled + 0.01 * contiguous, match.emit


@dataclass(frozen=True, slots=True)
class _Size:
    """Rows and columns of a tile. `steps`: of panels that hold a part of the sum, else 0."""

    rows: int
    columns: int
    steps: int = 0


def _is_short(found: Contraction) -> bool:
    """Whether loops do as well as a tile of one row. They convert half precision one by one."""
    most = LONG // 4 if found.right.dtype.is_half else LONG
    counts = [unclipped(loop) or LONG + 1 for loop in found.reductions]
    return not found.computed and prod(counts) <= most


def _computed_size(found: Contraction, rows: int, w: Writer, context: Context) -> _Size | None:
    """Tiles whose panels of computed operands fit; None where plain loops do as well."""
    target, row_bytes = context.target, DType.F32.bytes
    row_bytes *= prod((greatest(lp.extent, w.bounds) for lp in found.reductions), start=1)
    left, right = (found.computed_at(load) for load in (found.left, found.right))
    widened = left is not None and isinstance(left.value, Cast) and not left.fetched
    if left is not None and rows < 2 and not (widened and found.right.dtype.is_half):
        return None
    if right is not None and rows < (2 if right.fetched else LEAST_FILTERS):
        return None
    size = _Size(target.rows, COLUMNS)
    if found.right.dtype.is_half and target.half_rows:
        size = replace(size, rows=target.half_rows)
    if right is not None:
        size = replace(size, columns=target.panel_columns(row_bytes // DType.F32.bytes))
    if size.columns and (left is None or size.rows * row_bytes <= target.panel):
        return size
    steps = target.panel // (COLUMNS * DType.F32.bytes)
    return _Size(target.rows, COLUMNS, steps) if steps and len(found.reductions) == 1 else None


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
    found = as_stored(as_stored(found)) if context.target.halves else found
    if found.computed or no_integers(found, w, context):
        return None
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
    if sizes[across] * sizes[down] < LEAST_COLUMNS:
        return None
    steps = prod((loop.extent for loop in full), start=ONE)
    known = steps.is_constant and steps.constant > 0
    room = context.target.panel_columns(steps.constant) if known else 0
    size = _size(found, down, across, room, left.buffer.name in context.finite)
    if size is None or (len(full) > LEVELS and not is_contiguous(left, full)):
        return None
    rows = max(filters, key=lambda loop: sizes[loop])
    columns, lines, gathered = size
    match = _Tiling(
        found, w, context.target.rows, rows, across, down, columns, lines,
        whole=full if gathered else (), names=("x", "tile", "width"),
        unroll=UNROLL if context.target.separate else 1, integers=context.target.integers,
    )  # fmt: skip
    return -gathered, match.emit


def _size(
    found: Contraction, down: For, across: For, room: int, finite: bool
) -> tuple[int, int, bool] | None:
    """Columns and lines of a block, and whether it is gathered; None where it is none, or
    where plain tiles do as well."""
    wide = found.right.dtype is DType.F32
    near = stride(found.right, across.variable) == 1 and len(found.reductions) <= LEVELS
    if not wide or found.clipped_by or not near:
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
class _Tiling:
    """`rows` of filters, `columns` of iterations of `across`, of `lines` of `down` or of one. The
    right operand is packed in `panels`, or gathered, by the reductions `whole` that have
    nothing clipped. Computed operands are computed for `steps` of the sum at a time (0: all).
    `widened`: panels are converted to floats before the loops over rows. `stored`: micro-kernels
    store results."""

    found: Contraction
    w: Writer
    tile_rows: int
    rows: For
    across: For
    down: For = ABSENT
    columns: int = COLUMNS
    lines: int = 1
    steps: int = 0
    panels: Panels | None = None
    whole: Sequence[For] = ()
    names: tuple[str, str, str] = ("c", "panel", "width")
    unroll: int = 1
    rows_inner: bool = False
    widened: bool = False
    stored: bool = False
    integers: bool = False

    def emit(self) -> None:
        """Tiles where no window is clipped along the columns, plain loops elsewhere."""
        found, w, own = self.found, self.w, (self.rows, self.down, self.across)
        panels = self.panels and self.panels.named(w.fresh(self.panels.packed.buffer.name))
        if panels is not None:
            w.constant(panels.packed)
            if self.widened:
                self._columns_first(panels)
                return
        with w.nest([loop for loop in found.nest.loops if loop not in own]):
            computed = [found.computed_at(load) for load in (found.left, found.right)]
            if computed[0] and not computed[1] and not self.steps:
                self._rows_first(panels)
                return
            for ends, full in self._regions(self.across, {}):
                if full is None:
                    rows = [loop for loop in found.nest.loops if loop == self.rows]
                    with w.loop(self.across.variable, *ends), w.nest(rows):
                        w.add(*found.nest.leaf)
                    continue
                with spans(w, self.down, ("grid_row", "tile", "lines"), self.lines) as lines:
                    for pixels in self._columns(ends):
                        self._rows((lines, pixels), full, self._operand(lines, pixels, panels))

    def _columns(self, ends: Ends | None = None) -> Iterator[Span]:
        apart = self.stored and end_of(self.found) is None
        return panels_of_columns(self.w, self.across, self.names, self.columns, ends, apart=apart)

    def _columns_first(self, panels: Panels) -> None:
        """Columns of half precision are converted once for all rows."""
        found, w, own = self.found, self.w, (self.rows, self.across)
        stored, depth = panels.packed.buffer, panels.depth
        most = simplify(dim_min(self.across.extent, self.columns), w.bounds)
        wide = w.buffer("panel", DType.F32, depth * most)
        with spans(w, self.across, self.names, self.columns) as columns:
            first = depth * columns.first
            w.micro(
                f"raot_widen_{stored.dtype.value}", out=wide, x=stored[(first,)],
                count=depth * columns.count,
            )  # fmt: skip

            def operand(origin: Sequence[Dim]) -> tuple[Load, Sequence[Dim]]:
                load, steps = panels.at(columns.first, columns.count, origin)
                return wide[(load.index[0] - first,)], steps

            with w.nest([loop for loop in found.nest.loops if loop not in own]):
                self._rows((Span("", ZERO, ONE, ""), columns), {}, operand)

    def _rows_first(self, panels: Panels | None) -> None:
        """Rows of a computed left operand are computed once for all columns."""
        w = self.w
        with spans(w, self.rows, ("r", "tile", "height"), self.tile_rows) as tile:
            left = self._left(tile)
            for pixels in self._columns():
                places = (tile, Span("", ZERO, ONE, ""), pixels)
                operand = self._operand(places[1], pixels, panels)
                emit_tile(
                    self.found, w, places, self.tile_rows, {}, operand, left,
                    unroll=self.unroll, rows_inner=self.rows_inner, stored=self.stored,
                    integers=self.integers,
                )  # fmt: skip

    def _rows(self, columns: tuple[Span, Span], full: Full, operand: Operand | None) -> None:
        """Tiles of rows; where a window is clipped, one row at a time."""
        emit = partial(emit_tile, unroll=self.unroll, stored=self.stored, integers=self.integers)
        w, rows = self.w, self.rows
        for ends, inside in sorted(self._regions(rows, full), key=lambda part: part[1] is None):
            if inside is None:
                with w.range(rows.variable, ends[1], ends[0]) as at:
                    row = Span(rows.variable, at, ONE, "r")
                    emit(self.found, w, (row, *columns), 1, full, operand)
                continue
            size = even(ends[1] - ends[0], self.tile_rows) if self.stored else self.tile_rows
            with spans(w, rows, ("r", "tile", "height"), size, ends) as tile:
                places, left = (tile, *columns), self._left(tile)
                most = 1 if rows == ABSENT else size
                emit(self.found, w, places, most, inside, operand, left, self.steps)

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

    def _left(self, tile: Span) -> Copied | None:
        """A copy of a computed left operand for the rows of a tile."""
        if self.steps or not self.found.computed_at(self.found.left):
            return None
        inner, most = self.found.reductions, self.tile_rows
        height = simplify(dim_min(self.rows.extent, most), self.w.bounds)
        panel = self.w.buffer("rows", DType.F32, height, *(loop.extent for loop in inner))
        return compute_rows(self.found, self.w, panel, tile, inner)

    def _operand(self, lines: Span, pixels: Span, panels: Panels | None) -> Operand | None:
        """A copy of the right operand for some columns."""
        if panels is not None:
            return partial(panels.at, pixels.first, pixels.count)
        if self.whole:
            return Copied(self._gather(lines, pixels)).at
        if self.steps or not self.found.computed_at(self.found.right):
            return None
        inner = self.found.reductions
        most = simplify(dim_min(self.across.extent, self.columns), self.w.bounds)
        panel = self.w.buffer("panel", DType.F32, *(loop.extent for loop in inner), most)
        return compute_columns(self.found, self.w, panel, pixels, inner).at

    def _gather(self, lines: Span, pixels: Span) -> Buffer:
        """One row of the panel at a time. Which of its pixels lie inside the image is found
        outside of the loops over taps that do not change it, such as those over channels."""
        w, right, inner = self.w, self.found.right, self.whole
        sizes = [loop.extent for loop in inner]
        panel = w.buffer("panel", DType.F32, *sizes, self.columns)
        names = [w.fresh(loop.variable) for loop in inner]
        taps = [For(name, ZERO, size, ()) for name, size in zip(names, sizes, strict=True)]
        at = {lp.variable: lp.start + Dim.of(name) for lp, name in zip(inner, names, strict=True)}
        vertical = _deciding(self.found.reductions, *self._slices(), self.down)
        horizontal = _deciding(self.found.reductions, self.across)
        with w.nest([taps[n] for n in vertical]), w.range("grid_row", lines.count) as g:
            inside = self._holds(at, lines.at(g))
            with w.nest([taps[n] for n in horizontal if n not in vertical]):
                first, last = self._inside(self.across, at, pixels)
                last = w.named("last", dim_max(first, last * inside))
                others = [n for n in range(len(taps)) if n not in (*vertical, *horizontal)]
                with w.nest([taps[n] for n in others]), w.range("x", pixels.count) as x:
                    value: Expr = moved(right, {**lines.at(g), **pixels.at(x), **at})
                    value = value if value.dtype is DType.F32 else Cast(value, DType.F32)
                    reached = binary("&&", binary("<=", first, x), binary("<", x, last))
                    index = (*map(Dim.of, names), g * pixels.count + x)
                    w.add(Store(panel, index, Select(reached, value, Lit(0.0, DType.F32))))
        return panel

    def _slices(self) -> list[For]:
        """The loops around those over lines and pixels, which may be axes of the image."""
        own = (self.rows, self.down, self.across)
        return [loop for loop in self.found.nest.loops if loop not in own]

    def _holds(self, at: Mapping[str, Dim], line: Mapping[str, Dim]) -> Dim:
        """1 where the windows of a line hold the taps `at`, else 0."""
        held = ONE
        for loop in self.found.reductions:
            if any(_clips(loop, way) for way in (*self._slices(), self.down)):
                tap = at[loop.variable]
                held = dim_min(held, tap - loop.start.substitute(line) + 1)
                held = dim_min(held, loop.stop.substitute(line) - tap)
        held = simplify(dim_max(held, 0), self.w.bounds)
        return held if held.is_constant else self.w.let("inside", held, ZERO, ONE)

    def _inside(self, pixel: For, at: Mapping[str, Dim], span: Span) -> Ends:
        """Of the iterations of an output loop, those whose windows hold the taps `at`."""
        low, high = ZERO, span.count
        for loop in self.found.reductions:
            if _clips(loop, pixel):
                ends = reaching(pixel, loop, at[loop.variable])
                assert ends is not None
                low, high = dim_max(low, ends[0] - span.first), dim_min(high, ends[1] - span.first)
        low = self.w.short("first", dim_min(low, span.count))
        return low, self.w.short("last", dim_max(high, low))


def _deciding(taps: Sequence[For], *ways: For) -> list[int]:
    """Which of the loops over taps decide whether iterations of output loops are inside."""
    return [n for n, tap in enumerate(taps) if any(_clips(tap, way) for way in ways)]


def _clips(tap: For, pixel: For) -> bool:
    return pixel.variable in tap.start.symbols | tap.stop.symbols


EXAMPLES = (
    Example(
        why="tiles of four rows, the last one of one",
        target="dsp",
        before=texts.MATMUL,
        after="""
            kernel @dot(%x: f32[9, 5], %w.packed: f32[60]) -> (%y: f32[9, 12]) {
              for i_tile in 0..3 {
                let height = min(-4*i_tile + 9, 4)
                reserve %sums: f32[4, 32]
            ...
                multiply %sums[height, 12] = %x[4*i_tile, 0], 5, %w.packed[0], [5, 1, 12]
            ...""",
    ),
    Example(
        why="one row has tiles of 64 columns where a micro-kernel stores the results",
        target="host",
        before=texts.ROW_MATMUL,
        after="""
            kernel @dot(%x: f32[1, 5], %w.packed: f32[640]) -> (%y: f32[1, 128]) {
              for j_panel in 0..2 {
                micro raot_multiply_store_f32(...) [1, 64, 1, 1, 5, ...]
              }
            }""",
    ),
    Example(why="both sides are too narrow for a tile", target="dsp", before=texts.NARROW_MATMUL),
    Example(
        why="4-bit weights are decoded into a panel, which all tiles of rows read",
        target="dsp",
        before=texts.DECODED_MATMUL,
        after="""
            kernel @dot(...) -> (%y: f32[n, 12]) scratch (%panel: f32[32, 12]) {
              for k_0 in 0..32 {
                for column in 0..12 {
                  %panel[k_0, column] = (...)
                }
              }
              for i_tile in 0..(n + 3) // 4 {
            ...
                multiply %sums[height, 12] = %x[4*i_tile, 0], 32, %panel[0, 0], [32, 1, 12]
            ...""",
    ),
    Example(
        why="constants of half precision are packed as they are",
        target="asimd",
        before=texts.HALF_MATMUL,
        after="""
            kernel @dot(%x: f32[n, 5], %w.packed: f16[60]) -> (%y: f32[n, 12]) {
            ...
                multiply %sums[height, 12] = %x[24*i_tile, 0], 5, %w.packed[0], [5, 1, 12]
            ...""",
    ),
    Example(
        why="constants of half precision are converted once for many rows",
        target="dsp",
        before=texts.HALF_MATMUL.replace("1..9", "32..99"),
        after="""
            kernel @dot(...) -> (%y: f32[n, 12]) scratch (%panel: f32[60]) {
              micro raot_widen_f16(%panel[0], %w.packed[0]) [60]
            ...
                multiply %sums[height, 12] = %x[4*i_tile, 0], 5, %panel[0], [5, 1, 12]
            ...""",
    ),
    Example(
        why="keys of half precision are read in place",
        target="asimd",
        before=texts.HALF_KEYS,
        after="""
            kernel @scores(%q: f32[5], %keys: f16[5, m]) -> (%y: f32[m]) {
            ...
                multiply %sums[1, width] = %q[0], 0, %keys[0, 32*j_panel], [5, 1, m]
            ...""",
    ),
    Example(
        why="without vectors, a row of 9 or more is worth a tile that converts keys",
        target="dsp",
        before=texts.HALF_KEYS.replace("5", "9"),
        after="""
            kernel @scores(%q: f32[9], %keys: f16[9, m]) -> (%y: f32[m]) {
            ...
                multiply %sums[1, width] = %q[0], 0, %keys[0, 32*j_panel], [9, 1, m]
            ...""",
    ),
    Example(why="one row reads keys of bytes once", target="host", before=texts.BYTE_KEYS),
    Example(
        why="rows at indices from data are copied for one tile",
        target="dsp",
        before=texts.GATHERED_ROWS,
        after="""
            kernel @dot(...) -> (%y: f32[n, 12]) scratch (%rows: f32[min(4, n), 16]) {
              for i_tile in 0..(n + 3) // 4 {
                let height = min(-4*i_tile + n, 4)
                for r in 0..height {
                  checked row_0 in 0..8 = %at[4*i_tile + r]
                  for k_0 in 0..16 {
                    %rows[r, k_0] = %table[row_0, k_0]
                  }
                }
            ...
                multiply %sums[height, 12] = %rows[0, 0], 16, %w.packed[0], [16, 1, 12]
            ...""",
    ),
    Example(
        why="columns at indices from data are copied for all tiles of rows",
        target="dsp",
        before=texts.GATHERED_COLUMNS,
        after="""
            kernel @dot(...) -> (%y: f32[5, n]) scratch (%panel: f32[16, min(32, n)]) {
              for j_panel in 0..(n + 31) // 32 {
                let width = min(-32*j_panel + n, 32)
                for column in 0..width {
                  checked row_0 in 0..8 = %at[column + 32*j_panel]
                  for k_0 in 0..16 {
                    %panel[k_0, column] = %table[row_0, k_0]
                  }
                }
            ...
                  multiply %sums[height, width] = ..., %panel[0, 0], [16, 1, min(32, n)]
            ...""",
    ),
    Example(
        why="the windows of 32 pixels in a panel, zeros at the borders",
        target="dsp",
        before=texts.CONVOLUTION,
        after="""
            kernel @conv(...) scratch (%panel: f32[2, 3, 32]) {
              for i_tile in 0..2 {
            ...
                        %panel[c_0, k_0, ...] = select(...
            ...
                multiply %sums[4, width] = %w[0, 0, 0], 6, %panel[0, 0, 0], [6, 1, 32]
            ...""",
    ),
    Example(
        why="filters of half precision are read as they are stored",
        target="dsp",
        before=texts.HALF_CONVOLUTION,
        after="""
            kernel @conv(%x: f32[2, 40], %w: f16[4, 2, 3]) -> ... scratch (%panel: f32[2, 3, 32]) {
            ...
                multiply %sums[4, width] = %w[0, 0, 0], 6, %panel[0, 0, 0], [6, 1, 32]
            ...""",
    ),
    Example(
        why="without floats, products of integers",
        target="scalar",
        before=texts.MATMUL,
        after="""
            kernel @dot(...) ...
            ...
                micro raot_multiply_integers_f32(%sums_0[0, 0], %x[8*i_tile, 0], %w.packed[0], ...
            ...""",
    ),
    Example(why="depthwise: no filters to share", target="dsp", before=texts.DEPTHWISE),
)
