# SPDX-License-Identifier: Apache-2.0
"""Float contractions as tiles of `raot_multiply_f32`.

One output loop gives the rows of a tile, one the columns. Along the columns the right operand
is contiguous and the left one stays; the rows move the left one alone. The tile is kept in a
buffer of the kernel's own, from which each result is stored as the leaf says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, For, If, Load, Multiply, Reserve, Stmt, Store, binary
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import (
    Contraction,
    greatest,
    indexed_by,
    moved,
    step_of,
    stride,
)
from relax_aot.scheduling.packing import Panels, panels_of
from relax_aot.scheduling.strategies._texts import MATMUL, NARROW_MATMUL
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import interior, whole
from relax_aot.scheduling.writer import ONE, ZERO, Writer

COLUMNS = 32
"""As RAOT_TILE_COLUMNS."""
LEAST_COLUMNS = 8
"""Narrower results are not worth a tile."""

Full = Mapping[str, tuple[Dim, Dim]]
"""Bounds of reductions that hold in a region."""


def tiles(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    left, right, reductions = found.left, found.right, found.reductions
    if any(stride(load, lp.variable) is None for load in (left, right) for lp in reductions):
        return None
    constant = right.buffer.name in context.constants
    columns = [
        loop
        for loop in found.free
        if stride(left, loop.variable) == 0
        and interior(loop, found.nest) is not None
        and (stride(right, loop.variable) == 1 or (constant and _panels(found, loop, "")))
    ]
    if not columns:
        return None
    across = max(columns, key=lambda loop: greatest(loop, w.bounds))
    if greatest(across, w.bounds) < LEAST_COLUMNS:
        return None
    down = [
        loop
        for loop in found.free
        if loop != across
        and _can_be_rows(loop, across, found)
        and stride(right, loop.variable) == 0
        and stride(left, loop.variable) is not None
    ]
    # Of loops that fill a tile the innermost one: its elements lie closest.
    most = context.target.rows
    rows = max(reversed(down), key=lambda loop: min(greatest(loop, w.bounds), most), default=None)
    match = _Tiles(found, w, rows, across, most, constant)
    return match.filled(w.bounds), match.emit


def _can_be_rows(loop: For, columns: For, found: Contraction) -> bool:
    """Windows may be clipped along the rows or along the columns, not along both."""
    if loop.variable not in found.clipped_by:
        return True
    separate = columns.variable not in found.clipped_by
    return separate and interior(loop, found.nest) is not None


def _panels(found: Contraction, columns: For, name: str) -> Panels | None:
    """The right operand, a constant, in panels."""
    if stride(found.right, columns.variable) in (None, 0):
        return None
    loops = found.nest.loops
    full = [whole(loop, found.nest) for loop in found.reductions]
    known = [loop for loop in full if loop is not None]
    if len(known) < len(full):
        return None
    return panels_of(found.right, name, loops, columns, known, COLUMNS)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tile begins, and how large it is."""

    column: Dim
    width: Dim
    row: Dim = ZERO
    height: Dim = ONE


@dataclass(frozen=True, slots=True)
class Element:
    """One result of a tile: its row and column there, the values of the nest's variables, and
    the loops over all of them with their extents."""

    row: Dim
    column: Dim
    at: dict[str, Dim]
    loops: tuple[tuple[str, Dim], ...]

    def over(self, *body: Stmt) -> Stmt:
        for name, extent in reversed(self.loops):
            body = (For(name, ZERO, extent, body),)
        return body[0]

    def finish(self, w: Writer, found: Contraction, sums: Buffer) -> None:
        """The statements that follow a sum, for all results."""
        with w.block() as body:
            w.finish(found.after, found.sum, Load(sums, (self.row, self.column)), self.at)
        w.add(self.over(*body))


@dataclass
class _Tiles:
    found: Contraction
    w: Writer
    rows: For | None
    columns: For
    tile_rows: int
    constant: bool
    panels: Panels | None = None

    def filled(self, bounds: Bounds) -> float:
        """How much of a tile the results fill; clipped columns count less, and of equal ways
        one whose left operand is contiguous is taken."""
        found = self.found
        columns = min(greatest(self.columns, bounds), COLUMNS) / COLUMNS
        rows = 1 if self.rows is None else min(greatest(self.rows, bounds), self.tile_rows)
        contiguous = stride(found.left, found.reductions[-1].variable) == 1
        cut = self.columns.variable in found.clipped_by
        return columns * rows * (0.5 if cut else 1.0) + (0.01 if contiguous else 0.0)

    def emit(self) -> None:
        found, w = self.found, self.w
        if self.constant:
            name = w.names.fresh(f"{found.right.buffer.name}.packed")
            self.panels = _panels(found, self.columns, name)
        if self.panels is not None:
            w.constant(self.panels.packed)
        with w.nest([lp for lp in found.nest.loops if lp not in (self.rows, self.columns)]):
            self._regions()

    def _regions(self) -> None:
        """Tiles where no window is clipped, plain loops elsewhere."""
        columns, w = self.columns, self.w
        inside = interior(columns, self.found.nest)
        assert inside is not None
        if not inside.full:
            self._column_panels(columns.start, columns.stop, {})
            return
        low = w.short(f"{columns.variable}_low", inside.start)
        high = w.short(f"{columns.variable}_high", inside.stop)
        self._plain(columns.start, low)
        self._column_panels(low, high, dict(inside.full))
        self._plain(high, columns.stop)

    def _plain(self, start: Dim, stop: Dim) -> None:
        body = self.found.nest.leaf
        if self.rows is not None:
            body = (replace(self.rows, body=body),)
        if start != stop:
            self.w.add(For(self.columns.variable, start, stop, body))

    def _column_panels(self, start: Dim, stop: Dim, full: Full) -> None:
        names = (f"{self.columns.variable}_panel", "width")
        with self.w.tiles(names, stop - start, COLUMNS) as (first, width):
            place = _Place(start + first, width)
            if self.rows is None:
                self._tile(place, full)
            else:
                self._rows(self.rows, place, full)

    def _rows(self, rows: For, place: _Place, full: Full) -> None:
        """Tiles of rows; where a window is clipped, one row at a time."""
        w, inside = self.w, interior(rows, self.found.nest)
        if inside is None or not inside.full:
            self._full_rows(rows, (rows.start, rows.stop), place, full)
            return
        low = w.short(f"{rows.variable}_low", inside.start)
        high = w.short(f"{rows.variable}_high", inside.stop)
        known = {**full, **dict(inside.full)}
        self._full_rows(rows, (low, high), place, known)
        for start, stop in ((rows.start, low), (high, rows.stop)):
            if start != stop:
                with w.range(rows.variable, stop, start) as row:
                    self._tile(replace(place, row=row), full)

    def _full_rows(self, rows: For, ends: tuple[Dim, Dim], place: _Place, full: Full) -> None:
        names = (f"{rows.variable}_tile", "height")
        with self.w.tiles(names, ends[1] - ends[0], self.tile_rows) as (first, height):
            self._tile(replace(place, row=ends[0] + first, height=height), full)

    def _tile(self, place: _Place, full: Full) -> None:
        found, w = self.found, self.w
        shape = (Dim.of(self.tile_rows if self.rows is not None else 1), Dim.of(COLUMNS))
        sums = Buffer(w.names.fresh("sums"), DType.F32, shape)
        w.add(Reserve(sums))
        self._start(sums, place)
        origin = {self.columns.variable: place.column}
        if self.rows is not None:
            origin[self.rows.variable] = place.row
        levels, starts = self._reductions(full, origin)
        origin |= starts
        left, right = moved(found.left, origin), moved(found.right, origin)
        if self.panels is not None:
            starts_at = [origin[loop.variable] for loop in found.reductions]
            right = self.panels.at(place.column, place.width, starts_at)
            steps = self.panels.steps(place.width)
            levels = [(n, a, packed) for (n, a, _), packed in zip(levels, steps, strict=True)]
        left_row = ZERO if self.rows is None else step_of(found.left, self.rows.variable)
        w.add(Multiply(sums, place.height, place.width, tuple(levels), left, left_row, right))
        self._element(place).finish(w, found, sums)

    def _reductions(
        self, full: Full, at: Mapping[str, Dim]
    ) -> tuple[list[tuple[Dim, Dim, Dim]], dict[str, Dim]]:
        """Count and steps of each reduction, and where it begins."""
        found, w = self.found, self.w
        levels, starts = [], {}
        for loop in found.reductions:
            start, stop = full.get(loop.variable, (loop.start, loop.stop))
            start = w.short(f"{loop.variable}_first", start.substitute(at))
            stop = w.short(f"{loop.variable}_last", stop.substitute(at))
            left, right = (step_of(load, loop.variable) for load in (found.left, found.right))
            levels.append((stop - start, left, right))
            starts[loop.variable] = start
        return levels, starts

    def _start(self, sums: Buffer, place: _Place) -> None:
        """Few rows are begun for few; an analysis that cannot tell one height from another sees
        that what is read has begun."""
        one = self._element(place)
        store = Store(sums, (one.row, one.column), substitute_in(self.found.start, one.at))
        across = (one.loops[-1][0], self._filled(place.width, COLUMNS, self.columns))
        if self.rows is None:
            self.w.add(replace(one, loops=(across,)).over(store))
            return
        down, name = self._filled(place.height, self.tile_rows, self.rows), one.loops[0][0]
        if not down.is_constant or place.height.is_constant:
            self.w.add(replace(one, loops=((name, down), across)).over(store))
            return
        first, line = 0, replace(one, loops=(across,)).over(store)
        for last in _parts(self.tile_rows):
            part: Stmt = For(name, Dim.of(first), Dim.of(last), (line,))
            self.w.add(If(binary("<", first, place.height), (part,)) if first else part)
            first = last

    def _filled(self, extent: Dim, most: int, loop: For) -> Dim:
        """A sum starts in all of a tile where its start is known for all of it."""
        placed = loop.variable in indexed_by(self.found.start)
        return extent if extent.is_constant or placed else Dim.of(most)

    def _element(self, place: _Place) -> Element:
        c = Dim.of(self.w.names.fresh("c"))
        at = {self.columns.variable: place.column + c}
        if self.rows is None:
            return Element(ZERO, c, at, ((str(c), place.width),))
        r = Dim.of(self.w.names.fresh("r"))
        at[self.rows.variable] = place.row + r
        return Element(r, c, at, ((str(r), place.height), (str(c), place.width)))


def _parts(rows: int) -> tuple[int, ...]:
    """Where the parts of a tile end that sums start in one after another."""
    return (1, rows // 4, rows // 2, rows) if rows >= 12 else (1, rows)


EXAMPLES = (
    Example(
        why="tiles of four rows, the last one of one",
        target="dsp",
        before=MATMUL,
        after="""
            kernel @dot(%x: f32[9, 4], %w.packed: f32[48]) -> (%y: f32[9, 12]) {
              for i_tile in 0..3 {
                let height = min(-4*i_tile + 9, 4)
                reserve %sums: f32[4, 32]
            ...
                multiply %sums[height, 12] = %x[4*i_tile, 0], 4, %w.packed[0], [4, 1, 12]
            ...""",
    ),
    Example(why="both sides are too narrow for a tile", target="dsp", before=NARROW_MATMUL),
)
