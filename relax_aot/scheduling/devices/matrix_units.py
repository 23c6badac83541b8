# SPDX-License-Identifier: Apache-2.0
"""Products of half-precision values, and of bytes, by the matrix units of a device (tensor cores).
Where it is asked for, those of floats too, whose factors are rounded to TF32.

A block of warps computes a tile of results; the factors are in shared memory in two halves, one of
which is copied while the other is multiplied (copies.py). Sums of half-precision values are floats,
those of bytes integers, from which zero points are subtracted at the end (zero_points.py).

Source: NVIDIA, CUTLASS, efficient GEMM in CUDA (media/docs/efficient_gemm.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.loops import Barrier, Buffer, Cast, For, Kernel, Load
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import contraction_of
from relax_aot.scheduling.devices.copies import Side, side_of
from relax_aot.scheduling.devices.decoded import Decoded, decoded_side, is_decoded
from relax_aot.scheduling.devices.decoded_parts import DecodedParts
from relax_aot.scheduling.devices.few_rows import few_row_launch, few_rows
from relax_aot.scheduling.devices.gathered_windows import GatheredWindows, gathered_windows
from relax_aot.scheduling.devices.line_sums import with_summed_lines
from relax_aot.scheduling.devices.matrix_tiles import DOT_TILES, TILES, Tile, Tiles
from relax_aot.scheduling.devices.nibbles import with_packed_weights
from relax_aot.scheduling.devices.one_sum import with_one_sum
from relax_aot.scheduling.devices.operands import (
    EVEN,
    At,
    Lines,
    Product,
    Sums,
    as_floats,
    below,
    extent,
    finish_sums,
    product_of,
    split,
    start_sums,
)
from relax_aot.scheduling.devices.patches import patch_launches
from relax_aot.scheduling.devices.realigned import LEAST, aligned_rows, copy_rows
from relax_aot.scheduling.devices.slid_windows import Slide, SlidPlanes, slid_sides, slide_of
from relax_aot.scheduling.devices.sum_parts import (
    MOST_COPIES,
    MOST_STEADY,
    Part,
    first_half,
    paired_parts,
    parts_of,
    round_of,
    steady_parts,
    steady_sides,
)
from relax_aot.scheduling.devices.units import COLUMNS, ROWS, STEPS, Unit
from relax_aot.scheduling.devices.vectors import VECTOR, vectors
from relax_aot.scheduling.devices.zero_points import ZeroPoints, with_known_sums, zero_points
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

MOST_KNOWN = 6
"""As MOST_COPIES, of parts whose number is known, with a table of places or without windows."""
MOST_SHORT = 10
"""As MOST_STEADY, of parts that are not steady."""


def matrix_product(
    kernel: Kernel, loop: For, w: Writer, context: Context, tiles: Tiles = TILES
) -> tuple[For, ...] | None:
    """The launches that compute a loop of a kernel, if it is a product of half-precision values or
    of bytes."""
    found = contraction_of(with_one_sum(loop, w, context), w.bounds)
    if found is None or not _has_unit(found.sum.dtype, context):
        return None
    product = product_of(as_floats(found), context)
    if product is None or not product.columns:
        return None
    product = with_packed_weights(w, product, context)
    few = few_rows(product, context, w.bounds)
    if few != 1 and not product.rows:
        return None
    unit = _unit(product, found.sum.dtype)
    if unit is None:
        return None
    if context.reduced:
        tiles = replace(tiles, slid=())
    with w.block() as launches:
        if few != 1:
            known = with_known_sums(w, product, context) if unit.total is DType.I32 else product
            variants, slid = _variants(known, w.bounds), bool(_slid(known, tiles, w.bounds))
            patches = tiles.patches and few == 0
            if patches and patch_launches(w, known, context, tiles.enough, slid=slid):
                variants = []
            for variant, sizes in variants:
                own_rows = None if slid else aligned_rows(w, variant)
                aligned, copied = own_rows or (variant, ())
                copy_rows(w, copied, context.target.threads, sizes * (1 - few))
                if unit.total is DType.I32:
                    most, chosen = tiles.large.lines, sizes * (1 - few)
                    aligned = with_summed_lines(w, aligned, context, most, chosen)
                for tile, chosen, slide in _launches(aligned, tiles, w.bounds):
                    if chosen != 0:
                        own = slide.product if slide else aligned
                        fewer = tile.reduced(context.reduced_at(launches))
                        _Launch(w, own, fewer, unit, slide).emit(chosen * sizes * (1 - few))
        few_row_launch(w, product, few)
    return tuple(stmt for stmt in launches if isinstance(stmt, For))


def _variants(product: Product, bounds: Bounds) -> list[tuple[Product, Dim]]:
    """The product, for sizes for which the dimension is 1. Where elements are neighbors, but only
    rows of some lengths are aligned, the lengths that are multiples of EVEN are apart."""
    width = _width(product, bounds)
    if width >= VECTOR or not product.found.left.dtype.is_half:
        return [(product, ONE)]
    loads = (product.found.left, product.found.right)
    symbols = {name for load in loads for size in load.buffer.shape for name in size.symbols}
    even = replace(product, even=frozenset(symbols & set(bounds)))
    widest = _width(even, bounds)
    for name in sorted(even.even):
        fewer = replace(product, even=even.even - {name})
        even = fewer if _width(fewer, bounds) >= widest else even
    if widest < LEAST or widest <= width:
        return [(product, ONE)]
    beyond = sum((Dim.of(name) % EVEN for name in sorted(even.even)), ZERO)
    return [(even, dim_max(1 - beyond, 0)), (product, dim_min(beyond, 1))]


def _width(product: Product, bounds: Bounds) -> int:
    """Elements of both factors that are copied at once; 0 where each of one is copied."""
    widths, sides = _widths(product, bounds), product.sides
    decoded = [is_decoded(product, load, loops, bounds) for load, loops in sides]
    whole = all(own >= VECTOR or bytes_ for own, bytes_ in zip(widths, decoded, strict=True))
    return VECTOR if whole and any(decoded) else min(widths)


def _widths(product: Product, bounds: Bounds) -> list[int]:
    return [vectors(product, load, loops, bounds)[0] for load, loops in product.sides]


def _copies(product: Product, tile: Tile, bounds: Bounds) -> int:
    """Vectors of both factors that a thread copies, by their lengths."""
    pairs = zip((tile.rows, tile.columns), _widths(product, bounds), strict=True)
    return sum(-(-lines * tile.steps // (width * tile.threads)) for lines, width in pairs)


def byte_product(kernel: Kernel, loop: For, w: Writer, context: Context) -> tuple[For, ...] | None:
    """Those of products of bytes alone, for devices without matrix units: lanes exchange words of
    four bytes, and have instructions for these. The words take registers."""
    found = contraction_of(loop, w.bounds)
    if found is None or found.sum.dtype is not DType.I32:
        return None
    return matrix_product(kernel, loop, w, context, DOT_TILES)


def _has_unit(kind: DType, context: Context) -> bool:
    """Whether there are instructions for sums of a type."""
    return kind.is_half or kind is DType.I32 or (kind is DType.F32 and context.target.tf32)


def _launches(
    product: Product, tiles: Tiles, bounds: Bounds
) -> list[tuple[Tile, Dim, Slide | None]]:
    """The tiles of each launch, 1 for the sizes for which it computes the results, and how windows
    share pixels, if they do."""
    slid = _slid(product, tiles, bounds)
    if not slid:
        return [(*pair, None) for pair in _tiles(product, tiles, bounds)]
    (large, own), (small, _) = slid[0], slid[-1]
    if large == small:
        return [(large, ONE, own)]
    chosen = _large_and_small(own.product, large, small, tiles.enough, bounds)
    return [(*pair, slide) for pair, (_, slide) in zip(chosen, slid, strict=True)]


def _slid(product: Product, tiles: Tiles, bounds: Bounds) -> list[tuple[Tile, Slide]]:
    """A large and a small tile where windows share pixels; none where there are more filters, as
    other tiles have many products for each copy then, except of planes, whose pixels are gathered.
    """
    slide = slide_of(product, bounds) if product.found.left.dtype.is_half else None
    if slide is None or not tiles.slid:
        return []
    filters = greatest(extent(product.rows if slide.right else product.columns), bounds)
    pairs = (*tiles.slid, *([tiles.planes] if slide.in_planes else []))
    for pair in pairs:
        slides = (slide.for_tile(*tile.lines, tile.threads) for tile in pair)
        made = [
            (replace(tile.swapped if own.right else tile, steps=own.steps), own)
            for tile, own in zip(pair, slides, strict=True) if own is not None
        ]  # fmt: skip
        if (filters <= pair[0].columns or pair == tiles.planes) and len(made) == len(pair):
            return made
    return []


def _tiles(product: Product, tiles: Tiles, bounds: Bounds) -> list[tuple[Tile, Dim]]:
    """The tiles of each launch, and 1 for the sizes for which it computes the results."""
    width = _width(product, bounds)
    kind = product.found.left.dtype
    if width == 0:
        if not kind.is_half:
            return [(tiles.single, ONE)]
        if greatest(extent(product.rows), bounds) <= tiles.medium.rows:
            return [(tiles.medium, ONE)]
        plain = product.padded is None and not any(
            product.found.computed_at(load) for load, _ in product.sides
        )
        return [(tiles.large if plain else tiles.wide, ONE)]
    if is_decoded(product, product.found.right, product.columns, bounds):
        half = tiles.tall.rows // 2 + 1
        return _large_and_small(product, tiles.tall, tiles.low, tiles.enough, bounds, half)
    short = kind.is_half and width < VECTOR
    columns = greatest(extent(product.columns), bounds)
    slim = next((tile for tile in tiles.slim if columns <= tile.columns), None)
    if kind.is_half and not short and slim:
        return [(slim, ONE)]
    free = product.found.zeros == (0, 0) and kind is not DType.F32
    large = tiles.large if free else tiles.narrow
    small = tiles.short if kind.bytes == 1 and not free else tiles.small
    small = tiles.rounding if kind is DType.F32 else small
    most = MOST_STEADY if product.padded is None else MOST_SHORT
    if short and _copies(product, small, bounds) > most:
        small = tiles.medium
    return _large_and_small(product, large, small, tiles.enough, bounds)


def _large_and_small(
    product: Product, large: Tile, small: Tile, enough: int, bounds: Bounds, rows: int = 1
) -> list[tuple[Tile, Dim]]:
    """`rows`: from how many on tiles are large."""
    some = product.blocks(large.rows, large.columns) // enough
    if rows > 1:
        some = dim_min(some, extent(product.rows) // rows)
    many = simplify(dim_min(some, 1), bounds)
    return [(large, many), (small, 1 - many)]


def _unit(product: Product, kind: DType) -> Unit | None:
    """The instruction for sums of a type; None where the factors are no values of its operands."""
    found = product.found
    if kind is DType.I32:
        for load, zero in zip((found.left, found.right), product.fills, strict=True):
            low, high = load.dtype.limits
            if load == product.padded and not low <= zero <= high:
                return None
        return Unit(found.left.dtype, found.right.dtype, kind)
    if not all(_stored(product, load, kind) for load in (found.left, found.right)):
        return None
    return Unit(kind, kind, DType.F32)


def _stored(product: Product, load: Load, kind: DType) -> bool:
    """Whether a factor is a value of the type as memory would give it back."""
    computed = product.found.computed_at(load)
    value = load if computed is None else computed.value
    return value.dtype is kind and isinstance(value, Load | Cast)


@dataclass(frozen=True, slots=True)
class _Launch:
    """The code of one block of warps."""

    w: Writer
    product: Product
    tile: Tile
    unit: Unit
    slide: Slide | None = None

    @property
    def steps(self) -> int:
        """That are in shared memory at a time."""
        return self.tile.steps * self.unit.steps // STEPS

    def emit(self, chosen: Dim) -> None:
        """`chosen`: 1 where this launch computes the results, 0 where another one does."""
        w, product, tile = self.w, self.product, self.tile
        grid = simplify(product.blocks(*self._results_of_tile) * chosen, w.bounds)
        with w.range("block", grid, axis="block") as block:
            place = self._place(block)
            sides = self._sides()
            with w.range("warp", tile.threads // LANES, axis="warp") as warp:
                self._warp(sides, block, place, warp)

    @property
    def _results_of_tile(self) -> tuple[int, int]:
        """The rows and columns of a tile that are results."""
        tile, slide = self.tile, self.slide
        if slide is None:
            return tile.rows, tile.columns
        right = slide.beyond * slide.right
        return tile.rows - slide.beyond + right, tile.columns - right

    def _sides(self) -> tuple[Side, Side]:
        w, tile, found = self.w, self.tile, self.product.found
        kinds, lines = (self.unit.left, self.unit.right), (tile.rows, tile.columns)
        if self.slide is not None:
            return slid_sides(w, self.slide, kinds[0], lines)
        left = self._side(found.left, kinds[0], lines[0], "left")
        right = self._side(found.right, kinds[1], lines[1], "right", left)
        left = replace(left, few_lines=right.steps > left.steps)
        sides = [side.tabulated(w, tile.threads) for side in (left, right)]
        dynamic = any(size.symbols for size in found.left.buffer.shape[1:])
        if dynamic and tile.copies > MOST_COPIES and any(side.places for side in sides):
            sides = [replace(side, near=False) for side in sides]
        if not self._is_steady(sides):
            return sides[0], sides[1]
        return steady_sides(sides, _copies(self.product, tile, w.bounds), tile.rounds)

    def _is_steady(self, sides: Sequence[Side]) -> bool:
        """Whether both factors are copied at once, each line from one address for all parts."""
        product = self.product
        plain = all(type(side) is Side and side.vector > 0 for side in sides)
        if not product.found.left.dtype.is_half:
            plain = plain and not extent(product.steps).is_constant
        return plain and product.padded is None

    def _side(
        self, load: Load, kind: DType, lines: int, name: str, other: Side | None = None
    ) -> Side:
        """`other`: the side before."""
        w, product, size = self.w, self.product, (lines, self.steps)
        decoded = None
        if _width(product, w.bounds) == VECTOR:
            whole = (lines, self.steps * (2 if self._has_pairs(other) else 1))
            decoded = decoded_side(w, product, load, kind, whole, name, self.tile.threads)
        return decoded or gathered_windows(w, side_of(w, product, load, kind, size, name))

    def _has_pairs(self, other: Side | None) -> bool:
        """Whether the sum is a known number of pairs of parts, and the other factor is copied at
        once: what is decoded is in pairs then."""
        total = extent(self.product.steps)
        whole = total.is_constant and total.constant % (2 * self.steps) == 0 < total.constant
        return whole and type(other) is Side and other.vector > 0 and self.product.padded is None

    def _place(self, block: Dim) -> tuple[tuple[Dim, Dim], At]:
        """The first row and column of the tile of a block, and its matrices of the batch."""
        w, product = self.w, self.product
        row, column, batch = product.place(w, block, *self._results_of_tile)
        return (row, column), split(w, product.batch, batch)

    def _own(self, sides: tuple[Side, Side], warp: Dim) -> tuple[Dim, Dim]:
        """The first row and column of a warp in its tile."""
        w, tile = self.w, self.tile
        row, column = warp // tile.warps[1] * tile.own[0], warp % tile.warps[1] * tile.own[1]
        left, right = (f"own_{side.name}" for side in sides)
        return w.named(left, row), w.named(right, column)

    def _warp(
        self, sides: tuple[Side, Side], block: Dim, place: tuple[tuple[Dim, Dim], At], warp: Dim
    ) -> None:
        """`place`: that of the block. The last part, which may have fewer steps, is copied and
        multiplied first: all parts in the loop are whole then. Pairs of parts all are. Behind the
        loop, places are computed again, so that no register holds them meanwhile."""
        w, tile, product, unit = self.w, self.tile, self.product, self.unit
        start, batch = place
        own = [count // size for count, size in zip(tile.own, (ROWS, COLUMNS), strict=True)]
        first = self._own(sides, warp)
        sums = w.reserve("sums", unit.total, "lane", LANES, *own, 4)
        factors = (
            w.reserve("left", unit.left, "lane", LANES, own[0], unit.width),
            w.reserve("right", unit.right, "lane", LANES, own[1] // 2, unit.width),
        )
        zeros = zero_points(w, product.found.zeros, (own[0], own[1] // 2))
        with w.range("lane", LANES, axis="lane") as lane:
            start_sums(w, product, batch, *self._results(sides, start, first, sums, lane))
            zeros.start(lane)
        (left, right), (row, column) = sides, start
        left = left.opened(w, warp, tile.threads, batch, row)
        right = right.opened(w, warp, tile.threads, batch, column)
        sides = (left, right)
        if any(isinstance(side, GatheredWindows) for side in sides):
            w.add(Barrier("warp"))
        total = extent(product.steps)
        parts = w.short("parts", ceildiv(total, self.steps))
        decoded = DecodedParts(w, sides, warp, tile.threads, start, batch, parts, self.steps)
        in_pairs = int(decoded.in_pairs)
        last = ZERO if in_pairs else simplify((parts - 1) * self.steps, w.bounds)
        some = simplify(dim_min(parts, 1), w.bounds) == 1
        with w.when(*() if some else (below(ZERO, parts),)):
            half = first_half(w, parts, self._round(sides)) if self._is_steady(sides) else ZERO
            self._copy(sides, start, warp, batch, half, last)
            decoded.begin(last)
            self._store(sides, warp, ZERO)
        decoded.fetch_second()
        for part in self._parts(sides, parts):
            half, another = part.half, part.another
            later = (part.number + in_pairs) * self.steps
            places = ((half, ZERO), (part.place, half * self.steps) if in_pairs else (half, ZERO))
            if part.behind:
                start, batch = self._place(block)
                first = self._own(sides, warp)
                decoded = replace(decoded, start=start, batch=batch)
            w.micro("raot_wait_copies")
            w.add(Barrier("warp"))
            decoded.put_next(part)
            if another is not False:
                with w.when(*() if another is True else (another,)):
                    self._copy(sides, start, warp, batch, 1 - half, later, whole=True)
                decoded.fetch_next(part)
            done = int(any(isinstance(side, SlidPlanes) for side in sides))
            if done:  # before the next steps, which need the registers
                self._multiply(sides, first, places, ZERO, factors, sums, zeros)
                if another is not False:
                    with w.when(*() if another is True else (another,)):
                        self._store(sides, warp, 1 - half)
            with w.range("k", self.steps // unit.steps - done) as k:
                step = (k + done) * unit.steps
                self._multiply(sides, first, places, step, factors, sums, zeros)
        zeros.subtract(sums, parts * self.steps if product.padded else total)
        start, batch = self._place(block)
        first = self._own(sides, warp)
        with w.range("lane", LANES, axis="lane") as lane:
            finish_sums(w, product, batch, *self._results(sides, start, first, sums, lane))

    def _round(self, sides: Sequence[Side]) -> int:
        """The parts of a round of steady sides."""
        return self.tile.rounds.parts if self.tile.rounds else round_of(sides)

    def _parts(self, sides: Sequence[Side], parts: Dim) -> Iterator[Part]:
        """In the form for which there are registers."""
        if self._is_steady(sides):
            return steady_parts(self.w, parts, self._round(sides))
        if sides[1].steps > self.steps:
            return paired_parts(self.w, parts.constant)
        plain, copies = self.product.padded is None, self.tile.copies
        behind = int(not plain and copies <= MOST_COPIES)
        known = parts.is_constant and (plain or any(side.places for side in sides))
        if known and MOST_COPIES < copies <= MOST_KNOWN:  # most would have a condition in the loop
            behind = 2 - parts.constant % 2
        behind = 2 if any(isinstance(side, Decoded) for side in sides) else behind
        return parts_of(self.w, parts, behind)

    def _results(
        self, sides: tuple[Side, Side], start: tuple[Dim, Dim], first: Sequence[Dim],
        sums: Buffer, lane: Dim,
    ) -> tuple[tuple[Lines, Lines], Sums]:  # fmt: skip
        """The results of a lane, in the order of its registers: two rows and two columns of each
        matrix (PTX ISA, m16n8k16)."""
        (left, right), (row, column) = sides, first

        def row_at(n: Dim) -> Dim:
            return row + n // 2 * ROWS + n % 2 * (ROWS // 2) + lane // 4

        def column_at(n: Dim) -> Dim:
            return column + n // 2 * COLUMNS + n % 2 + lane % 4 * 2

        down, across = (2 * int(size) for size in sums.shape[1:3])
        size, slide = self._results_of_tile, self.slide
        own = [slide.pixels if slide and slide.right == right else None for right in (False, True)]
        rows = Lines(left.loops, start[0], size[0], down, row_at, own[0])
        columns = Lines(right.loops, start[1], size[1], across, column_at, own[1])
        return (rows, columns), lambda i, j: sums[(lane, i // 2, j // 2, i % 2 * 2 + j % 2)]

    def _copy(
        self, sides: Sequence[Side], start: tuple[Dim, Dim], warp: Dim, batch: At, half: Dim,
        part: Dim, *, whole: bool = False,
    ) -> None:  # fmt: skip
        """Copies steps of both factors from `part` on to one half of shared memory. `whole`: all of
        them are steps."""
        w = self.w
        with w.range("lane", LANES, axis="lane") as lane:
            thread = w.named("thread", warp * LANES + lane)
            known = [side.known(w, thread, part) if whole else None for side in sides]
            for side, first, one in zip(sides, start, known, strict=True):
                side.copy(
                    w, thread, self.tile.threads, batch, half, (first, part), lane=lane, known=one,
                    whole=whole,
                )  # fmt: skip

    def _store(self, sides: Sequence[Side], warp: Dim, half: Dim) -> None:
        """Stores what was copied to registers."""
        w = self.w
        for side in sides:
            if isinstance(side, SlidPlanes):
                with w.range("lane", LANES, axis="lane") as lane:
                    thread = w.named("thread", warp * LANES + lane)
                    side.store(w, thread, self.tile.threads, half, lane)

    def _multiply(
        self, sides: Sequence[Side], first: Sequence[Dim], places: Sequence[tuple[Dim, Dim]],
        step: Dim, factors: Sequence[Buffer], sums: Buffer, zeros: ZeroPoints,
    ) -> None:  # fmt: skip
        """Adds the products of the steps from `step` on. `places`: of the part, the half of shared
        memory and the first step in it of each factor. If parts are steady, the factor with more
        matrices is loaded a matrix at a time, so that registers hold few of them."""
        w, unit = self.w, self.unit
        widths = [int(prod(buffer.shape[1:])) for buffer in (*factors, sums)]

        def load(number: int, n: Dim) -> None:
            side, own, factor = sides[number], first[number], factors[number]
            (half, begin), to = places[number], factor[(ZERO, n, ZERO)]
            at = side.place(half, n * ROWS, begin + step)
            side.read(w, side.name, own, at, to, widths[number])
            zeros.add(side.name, n, factor, widths[number])

        def add(i: Dim, j: Dim) -> None:
            w.micro(
                unit.product, sums=sums[(ZERO, i, j, ZERO)], left=factors[0][(ZERO, i, ZERO)],
                right=factors[1][(ZERO, j // 2, j % 2 * (unit.width // 2))],
                left_row=widths[0], right_row=widths[1], sums_row=widths[2],
            )  # fmt: skip

        each, steady = [int(factor.shape[1]) for factor in factors], self._is_steady(sides)
        inner = int(not steady or each[1] > each[0])
        with w.range("n", each[1 - inner]) as n:
            load(1 - inner, n)
        with w.range("n", each[inner]) as n:
            load(inner, n)
            if steady and inner:
                with w.range("i", each[0]) as i, w.range("j", 2) as j:
                    add(i, 2 * n + j)
            elif steady:
                with w.range("j", 2 * each[1]) as j:
                    add(n, j)
        if not steady:
            with w.range("i", each[0]) as i, w.range("j", 2 * each[1]) as j:
                add(i, j)
