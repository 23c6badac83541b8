"""Convolutions as tiles whose columns are pixels: some lines of them, or a piece of one line.

What the windows of those pixels hold is gathered first, step by step of the sum, into a panel
that lies as the micro-kernel reads it; zeros stand where a window reaches beyond its image, so
that borders take no loops of their own. A product with such a zero changes no sum, because
this is done for weights alone that are known to be finite; a sum of -0 may become +0. Images
that lie so already are read where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from relax_aot.ir.builder import less, less_equal
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.loops import (
    Buffer,
    Expr,
    For,
    Lit,
    Load,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    binary,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.sums import (
    Sum,
    greatest,
    indexed_by,
    linear,
    merged,
    moved,
    moved_expr,
    stored,
)
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.windows import reaching, whole

COLUMNS = 32
"""As RAOT_TILE_COLUMNS."""
LEAST_ROWS = 4
"""Filters for which it is worth to gather pixels."""
LEAST_COLUMNS = 8
FARTHEST = 4
"""Elements from pixel to pixel; those that lie farther apart are no image."""
ZERO = Lit(0.0, DType.F32)


@dataclass(frozen=True, slots=True)
class Image:
    """A sum whose right operand lies along `down` and `across`, lines and pixels of a line.

    `columns` pixels at most are done at once, of `lines` lines or of one; `levels` are those of
    the sum, nothing cut off; `gathered`: by way of a panel."""

    sum: Sum
    rows: For
    down: For | None
    across: For
    levels: tuple[For, ...]
    columns: int
    lines: int
    gathered: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Loops, and memory of the call that they need."""

    body: list[Stmt]
    scratch: list[Buffer]


def image_of(
    sum_: Sum,
    bounds: Bounds,
    constants: frozenset[str],
    finite: frozenset[str],
    target: Target,
) -> Image | None:
    """None where the sum is none over pixels, or where plain tiles do as well. Constants are no
    images: they are rearranged beforehand."""
    ways = [
        _image(way, bounds, finite, target)
        for way in (sum_, sum_.turned)
        if way.right.buffer.name not in constants
    ]
    return min((way for way in ways if way), key=lambda way: way.gathered, default=None)


def _image(sum_: Sum, bounds: Bounds, finite: frozenset[str], target: Target) -> Image | None:
    left, right = sum_.left, sum_.right
    pixels = [
        loop
        for loop in sum_.free
        if linear(left, loop.variable) == 0 and linear(right, loop.variable) not in (None, 0)
    ]
    filters = [
        loop
        for loop in sum_.free
        if linear(right, loop.variable) == 0
        and linear(left, loop.variable) not in (None, 0)
        and loop.variable not in sum_.windows
        and greatest(loop, bounds) >= LEAST_ROWS
    ]
    levels = [whole(level, sum_.nest.loops, sum_.levels) for level in sum_.levels]
    known = tuple(level for level in levels if level is not None)
    if not pixels or not filters or len(known) < len(levels):
        return None
    steady = all(
        linear(load, level.variable) is not None for load in (left, right) for level in known
    )
    down, across = (None if len(pixels) < 2 else pixels[-2]), pixels[-1]
    outer = {loop.variable for loop in sum_.nest.loops} - {across.variable}
    outer -= {down.variable} if down is not None else set()
    near = linear(right, across.variable)
    if near is None or not near.is_constant or not 0 < near.constant <= FARTHEST:
        return None
    if not steady or outer & sum_.windows or not _worth(down, across, bounds):
        return None
    rows = max(filters, key=lambda loop: greatest(loop, bounds))
    cut = bool(sum_.windows)
    gathered = cut or near != 1
    columns = COLUMNS
    if gathered:
        columns = _panel(known, target)
        if columns == 0 or (cut and left.buffer.name not in finite):
            return None
    lines = _lines(down, across, columns)
    if not gathered and lines == 1:
        return None
    if lines > 1 and down is not None and not gathered:
        far = linear(right, down.variable)
        gathered = far != across.stop - across.start
        if gathered:
            columns = _panel(known, target)
            lines = _lines(down, across, columns)
            if columns == 0 or lines == 1:
                return None
    return Image(sum_, rows, down, across, known, columns, lines, gathered)


def _worth(down: For | None, across: For, bounds: Bounds) -> bool:
    turns = greatest(across, bounds) * (greatest(down, bounds) if down is not None else 1)
    return turns >= LEAST_COLUMNS


def _panel(levels: Sequence[For], target: Target) -> int:
    """Columns of a panel that is small enough; 0 where there is none."""
    sizes = [level.stop - level.start for level in levels]
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


def image_tiles(image: Image, names: Names, rows: int, bounds: Bounds) -> Written:
    """The loops of the whole nest; tiles of `rows` rows."""
    writer = _Writer(image, names, rows, [])
    body = writer.nest(bounds)
    return Written(body, writer.scratch)


@dataclass(frozen=True, slots=True)
class _Block:
    """Pixels that are done at once: `high` lines from `line` on, `wide` pixels from `first`."""

    line: Dim
    high: Dim
    first: Dim
    wide: Dim

    @property
    def columns(self) -> Dim:
        return self.high * self.wide


@dataclass
class _Writer:
    image: Image
    names: Names
    tile_rows: int
    scratch: list[Buffer]

    def nest(self, bounds: Bounds) -> list[Stmt]:
        image = self.image
        mine = {loop.variable for loop in (image.rows, image.down, image.across) if loop}
        outer = [loop for loop in image.sum.nest.loops if loop.variable not in mine]
        for loop in outer:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._blocks_down(bounds)
        for loop in reversed(outer):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        return body

    def _blocks_down(self, bounds: Bounds) -> list[Stmt]:
        down = self.image.down
        if down is None:
            return self._blocks_across(Dim.of(0), Dim.of(1), bounds)
        counter = self.names.fresh(f"{down.variable}_lines")
        count = ceildiv(down.stop - down.start, self.image.lines)
        inner = over(bounds, counter, Dim.of(0), count)
        body: list[Stmt] = []
        line = down.start + Dim.of(counter) * self.image.lines
        high = simplify(dim_min(down.stop - line, self.image.lines), inner)
        high, inner = named("high", high, self.names, inner, body)
        body += self._blocks_across(line, high, inner)
        return [For(counter, Dim.of(0), count, tuple(body))]

    def _blocks_across(self, line: Dim, high: Dim, bounds: Bounds) -> list[Stmt]:
        across = self.image.across
        extent = across.stop - across.start
        if extent.is_constant and extent.constant <= self.image.columns:
            return self._block(_Block(line, high, across.start, extent), bounds)
        counter = self.names.fresh(f"{across.variable}_piece")
        count = ceildiv(extent, self.image.columns)
        inner = over(bounds, counter, Dim.of(0), count)
        body: list[Stmt] = []
        first = across.start + Dim.of(counter) * self.image.columns
        wide = simplify(dim_min(across.stop - first, self.image.columns), inner)
        wide, inner = named("wide", wide, self.names, inner, body)
        body += self._block(_Block(line, high, first, wide), inner)
        return [For(counter, Dim.of(0), count, tuple(body))]

    def _block(self, block: _Block, bounds: Bounds) -> list[Stmt]:
        """Gathers the pixels, then multiplies them by all filters."""
        sum_ = self.image.sum
        at = self._pixel(block.line, block.first)
        at |= {level.variable: level.start for level in self.image.levels}
        body: list[Stmt] = []
        right = moved(sum_.right, at)
        steps = [linear(sum_.right, level.variable) for level in self.image.levels]
        if self.image.gathered:
            panel = self._panel()
            body += self._gather(panel, block, bounds)
            right = Load(panel, (Dim.of(0),) * panel.rank)
            steps = [
                prod(panel.shape[position + 1 :], start=Dim.of(1))
                for position in range(panel.rank - 1)
            ]
        levels: list[tuple[Dim, Dim, Dim]] = []
        for level, step in zip(self.image.levels, steps, strict=True):
            far = linear(sum_.left, level.variable)
            assert far is not None and step is not None
            levels.append((level.stop - level.start, far, step))
        return body + self._rows(block, merged(levels), right, bounds)

    def _pixel(self, line: Dim, pixel: Dim) -> dict[str, Dim]:
        down = self.image.down
        at = {self.image.across.variable: pixel}
        return at if down is None else {**at, down.variable: line}

    # What the windows hold

    def _panel(self) -> Buffer:
        sizes = (level.stop - level.start for level in self.image.levels)
        name = self.names.fresh("panel")
        panel = Buffer(name, DType.F32, (*sizes, Dim.of(self.image.columns)))
        self.scratch.append(panel)
        return panel

    def _gather(self, panel: Buffer, block: _Block, bounds: Bounds) -> list[Stmt]:
        taps = []
        at: dict[str, Dim] = {}
        for level in self.image.levels:
            tap = self.names.fresh(level.variable)
            extent = level.stop - level.start
            bounds = over(bounds, tap, Dim.of(0), extent)
            taps.append((tap, extent))
            at[level.variable] = level.start + Dim.of(tap)
        body: list[Stmt] = []
        first, last, bounds = self._inside(
            self.image.across, at, (block.first, block.wide), bounds, body
        )
        if self.image.down is None:
            top, bottom = Dim.of(0), block.high
        else:
            top, bottom, bounds = self._inside(
                self.image.down, at, (block.line, block.high), bounds, body
            )
        where = tuple(Dim.of(tap) for tap, _ in taps)
        for start, stop, inside in (
            (Dim.of(0), top, False),
            (top, bottom, True),
            (bottom, block.high, False),
        ):
            if start == stop:
                continue
            g, x = (Dim.of(self.names.fresh(name)) for name in ("g", "x"))
            value: Expr = ZERO
            if inside:
                place = self._pixel(block.line + g, block.first + x)
                value = moved(self.image.sum.right, {**place, **at})
                reached = binary("&&", less_equal(first, x), less(x, last))
                value = Select(reached, value, ZERO)
            store = Store(panel, (*where, g * block.wide + x), value)
            line = For(str(x), Dim.of(0), block.wide, (store,))
            body.append(For(str(g), start, stop, (line,)))
        for tap, extent in reversed(taps):
            body = [For(tap, Dim.of(0), extent, tuple(body))]
        return body

    def _inside(
        self,
        pixel: For,
        at: dict[str, Dim],
        block: tuple[Dim, Dim],
        bounds: Bounds,
        body: list[Stmt],
    ) -> tuple[Dim, Dim, Bounds]:
        """Of a block's turns of an output loop, those whose windows hold the taps `at`."""
        start, extent = block
        low, high = Dim.of(0), extent
        for level in self.image.sum.levels:
            if pixel.variable not in level.start.symbols | level.stop.symbols:
                continue
            ends = reaching(pixel, level, at[level.variable])
            assert ends is not None
            low, high = dim_max(low, ends[0] - start), dim_min(high, ends[1] - start)
        low = simplify(dim_min(low, extent), bounds)
        low, bounds = named("first", low, self.names, bounds, body)
        high = simplify(dim_max(high, low), bounds)
        high, bounds = named("last", high, self.names, bounds, body)
        return low, high, bounds

    # The tiles

    def _rows(
        self,
        block: _Block,
        levels: tuple[tuple[Dim, Dim, Dim], ...],
        right: Load,
        bounds: Bounds,
    ) -> list[Stmt]:
        rows, sum_ = self.image.rows, self.image.sum
        counter = self.names.fresh(f"{rows.variable}_tile")
        count = ceildiv(rows.stop - rows.start, self.tile_rows)
        inner = over(bounds, counter, Dim.of(0), count)
        row = rows.start + Dim.of(counter) * self.tile_rows
        height = simplify(dim_min(rows.stop - row, self.tile_rows), inner)
        body: list[Stmt] = []
        height, inner = named("height", height, self.names, inner, body)
        shape = (Dim.of(self.tile_rows), Dim.of(COLUMNS))
        sums = Buffer(self.names.fresh("sums"), DType.F32, shape)
        body.append(Reserve(sums))
        at = self._over(block, row, height)
        start = moved_expr(sum_.start, at.at)
        body.append(self._fill(at, sums, start))
        far = linear(sum_.left, rows.variable)
        assert far is not None
        origin = {rows.variable: row}
        origin |= {level.variable: level.start for level in self.image.levels}
        left = moved(sum_.left, origin)
        body.append(Multiply(sums, height, block.columns, levels, left, far, right))
        at = self._over(block, row, height)
        body.append(at.loops(stored(sum_, Load(sums, (at.row, at.column)), at.at)))
        return [For(counter, Dim.of(0), count, tuple(body))]

    def _fill(self, at: _Places, sums: Buffer, start: Expr) -> Stmt:
        """What sums start with, in whole rows where it is the same along them."""
        image = self.image
        pixel = {loop.variable for loop in (image.across, image.down) if loop is not None}
        rests_on = indexed_by(self.image.sum.start)
        if rests_on & pixel or all(size.is_constant for _, size in at.sizes):
            return at.loops((Store(sums, (at.row, at.column), start),))
        column = self.names.fresh("c")
        name, height = at.sizes[0]
        if not height.is_constant and image.rows.variable not in rests_on:
            height = Dim.of(self.tile_rows)
        sizes = ((name, height), (column, Dim.of(COLUMNS)))
        where = (at.row, Dim.of(column))
        return replace(at, sizes=sizes).loops((Store(sums, where, start),))

    def _over(self, block: _Block, row: Dim, height: Dim) -> _Places:
        """Every result of a tile: a row of filters, a line, a pixel."""
        r, g, x = (self.names.fresh(name) for name in ("r", "g", "x"))
        at = self._pixel(block.line + Dim.of(g), block.first + Dim.of(x))
        at[self.image.rows.variable] = row + Dim.of(r)
        column = Dim.of(g) * block.wide + Dim.of(x)
        sizes = ((r, height), (g, block.high), (x, block.wide))
        return _Places(Dim.of(r), column, at, tuple((n, size) for n, size in sizes))


@dataclass(frozen=True, slots=True)
class _Places:
    """Loops over a tile: where a result is in it, and what the nest's variables are there."""

    row: Dim
    column: Dim
    at: dict[str, Dim]
    sizes: tuple[tuple[str, Dim], ...]

    def loops(self, body: tuple[Stmt, ...]) -> Stmt:
        *outer, inner = self.sizes
        loop = For(inner[0], Dim.of(0), inner[1], body)
        for name, size in reversed(outer):
            loop = For(name, Dim.of(0), size, (loop,))
        return loop
