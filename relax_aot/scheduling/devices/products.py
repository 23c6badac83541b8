# SPDX-License-Identifier: Apache-2.0
"""Products of floats on a device: tiles in shared memory, blocks of results in registers.

A block of threads computes a tile of results. Some steps of the sum at a time, it copies both
factors to shared memory, steps first, and the next ones meanwhile: without waiting where chips can,
else through registers. Each thread reads four neighbors of a column or row at once, and its results
are groups of four by four, spread over the tile, so that the threads of a warp read different
banks. The sum of a result takes the steps in their order, with the bits of the plain loops. The
first part is the one that may have fewer steps, so that copies in the loop have no conditions. The
loop of a sum of two parts has no copies: both halves of shared memory are copied before.

Source: Volkov and Demmel, Benchmarking GPUs to tune dense linear algebra, SC 2008; CUTLASS's SIMT
kernels, for the two buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, dim_max, dim_min, row_major, simplify
from relax_aot.ir.loops import (
    Barrier,
    Binary,
    Buffer,
    Cast,
    Expr,
    For,
    Kernel,
    Lit,
    Load,
    Local,
    Select,
    Store,
    apply,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import collapsed, contraction_of, moved, stride
from relax_aot.scheduling.devices.few_rows import few_row_launch, few_rows
from relax_aot.scheduling.devices.neighbors import with_shared_quotients
from relax_aot.scheduling.devices.one_sum import with_one_sum
from relax_aot.scheduling.devices.operands import (
    At,
    Lines,
    Product,
    all_of,
    as_floats,
    below,
    clamped,
    extent,
    finish_sums,
    inside,
    product_of,
    split,
    start_sums,
)
from relax_aot.scheduling.devices.window_bits import NO_BIT, closed_of
from relax_aot.scheduling.devices.window_tables import (
    Path,
    WindowTable,
    bounded,
    clipped,
    fill_steps,
    have_tables,
    table_of_steps,
)
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

VECTOR = 4
"""Floats of one access of shared memory."""
LANES = (4, 8)
"""How the threads of a warp share the rows and columns of a tile."""
PAD = 4
"""Floats between rows of a tile in shared memory, which spread steps over banks."""
FEWEST = 4
"""Steps of a part at least."""
MANY = 8
"""Parts of a sum beyond which one more is a ninth of the work at most."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of `rows` by `columns` results, of which each thread has `own`, rows and columns;
    `steps` of the sum are in shared memory at a time."""

    rows: int
    columns: int
    steps: int
    own: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Threads along rows and columns."""
        return self.rows // self.own[0], self.columns // self.own[1]

    @property
    def threads(self) -> int:
        return self.grid[0] * self.grid[1]

    def reduced(self, times: int) -> Tile:
        """With half of the results of a thread each time, as long as these are groups."""
        tile = self
        for _ in range(times):
            (down, across), more = tile.own, tile.own[0] > tile.own[1]
            if max(tile.own) > VECTOR:
                if more:
                    tile = replace(tile, rows=tile.rows // 2, own=(down // 2, across))
                else:
                    tile = replace(tile, columns=tile.columns // 2, own=(down, across // 2))
        return tile

    def for_steps(self, total: Dim) -> Tile:
        """With less steps at a time where a sum has few, so that it has two parts. Compilers load
        all steps of one part ahead, for which there are no registers."""
        steps = self.steps
        while total.is_constant and total.constant <= steps and steps > FEWEST:
            steps //= 2
        return replace(self, steps=steps)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles for products of any size: `large` ones where they are at least `enough`, so that all
    processors of a device have work, else `small` ones. `low` or `slim` ones are the large ones of
    few rows or columns whose steps are in tables, which leave registers for them; `thin` ones are
    for at most 16 rows, or columns, whose steps follow each other."""

    large: Tile = Tile(128, 128, 8, (8, 8))
    small: Tile = Tile(32, 64, 16, (4, 8))
    low: Tile = Tile(64, 128, 4, (8, 8))
    slim: Tile = Tile(128, 64, 4, (8, 8))
    thin: tuple[Tile, Tile] = (Tile(16, 128, 16, (4, 8)), Tile(128, 16, 16, (8, 4)))
    enough: int = 16


TILES = Tiles()


def product(
    kernel: Kernel, loop: For, w: Writer, context: Context, tiles: Tiles = TILES
) -> tuple[For, ...] | None:
    """The launches that compute a loop of a kernel, if it is a product of float matrices."""
    found = contraction_of(with_one_sum(loop, w, context), w.bounds)
    floats = as_floats(found) if found is not None else None
    if floats is None or floats.sum.dtype is not DType.F32:
        return None
    matrices = product_of(collapsed(floats), context)
    if matrices is None or not matrices.columns:
        return None
    few = few_rows(matrices, context, w.bounds)
    if few != 1 and not matrices.rows:
        return None
    waits = "cp_async" not in context.target.needs
    large, many = _large(matrices, tiles, w.bounds, waits=waits)
    with w.block() as launches:
        for tile, chosen in ((large, many), (tiles.small, 1 - many)):
            if few != 1 and chosen != 0:
                fewer = tile.reduced(context.reduced_at(launches))
                own = fewer.for_steps(extent(matrices.steps))
                _Launch(w, matrices, own, waits).emit(chosen * (1 - few))
        few_row_launch(w, matrices, few)
    return tuple(stmt for stmt in launches if isinstance(stmt, For))


def _large(product: Product, tiles: Tiles, bounds: Bounds, *, waits: bool) -> tuple[Tile, Dim]:
    """The large tile, and 1 for sizes with enough of them; 0 where half of each would be empty."""
    rows, columns = (greatest(extent(lp), bounds) for lp in (product.rows, product.columns))
    large, tabled = tiles.large, have_tables(product, waits=waits)
    if tabled and 2 * rows <= large.rows:
        large = tiles.low
    elif tabled and 2 * columns <= large.columns:
        large = tiles.slim
    low, narrow = tiles.thin
    plain = product.padded is None
    if plain and rows <= low.rows:
        large = low
    elif plain and columns <= narrow.columns:
        large = narrow
    elif 2 * rows <= large.rows or 2 * columns <= large.columns:
        return large, ZERO
    blocks = product.blocks(large.rows, large.columns)
    return large, simplify(dim_min(blocks // tiles.enough, 1), bounds)


@dataclass(frozen=True, slots=True)
class _Copy:
    """How a thread copies one factor: `each` steps from `first` on, of one line of the tile (a row
    or a column), whose loop variables have the values `at`; through the registers `next`, or
    without waiting. `table`: where its steps are, if tables tell that, and `closed` the bits of its
    places that are outside."""

    load: Load
    shared: Buffer
    next: Buffer | None
    line: Dim
    first: Dim
    each: int
    at: dict[str, Dim]
    ends: dict[str, tuple[Dim, Dim]]
    table: WindowTable | None = None
    closed: Local | None = None


@dataclass(frozen=True, slots=True)
class _Launch:
    """The code of one block of threads."""

    w: Writer
    product: Product
    tile: Tile
    waits: bool

    @property
    def zeros(self) -> int | None:
        """Steps before the first one, where tables tell the steps."""
        if not have_tables(self.product, waits=self.waits):
            return None
        return -extent(self.product.steps).constant % (2 * self.tile.steps)

    def emit(self, chosen: Dim) -> None:
        """`chosen`: 1 where this launch computes the results, 0 where another one does."""
        w, product, tile = self.w, self.product, self.tile
        blocks = product.blocks(tile.rows, tile.columns)
        grid = simplify(blocks * chosen, w.bounds)
        with w.range("block", grid, axis="block") as block:
            down, across, batch = product.place(w, block, tile.rows, tile.columns)
            at = split(w, product.batch, batch)
            shapes = [(2, tile.steps, lines + PAD) for lines in (tile.rows, tile.columns)]
            left, right = (
                w.reserve(name, DType.F32, "shared", *shape)
                for name, shape in zip(("left_tile", "right_tile"), shapes, strict=True)
            )
            loads = (product.found.left, product.found.right)
            tables = [self._table(load) for load in loads]
            with w.range("thread", tile.threads, axis="thread") as thread:
                for table in filter(None, tables):
                    fill_steps(w, product, table, thread, tile.threads)
                if any(tables):
                    w.add(Barrier("thread"))
                sides = (
                    (left, tile.rows, product.rows, down),
                    (right, tile.columns, product.columns, across),
                )
                copies = [
                    self._copy(load, shared, (lines, behind), loops, first, thread, at, table)
                    for load, table, (shared, lines, loops, first) in zip(
                        loads, tables, sides, strict=True
                    )
                    for behind in range(0, lines, tile.threads)
                ]
                self._thread(copies, (left, right), (down, across), thread, at)

    def _table(self, load: Load) -> WindowTable | None:
        """Where the steps of a factor are, unless they follow each other."""
        product, zeros = self.product, self.zeros
        if zeros is None or (load != product.padded and len(Path(load, product.steps).axes) == 1):
            return None
        return table_of_steps(self.w, product, load, before=zeros)

    def _copy(
        self, load: Load, shared: Buffer, size: tuple[int, int], loops: Sequence[For], first: Dim,
        thread: Dim, batch: dict[str, Dim], table: WindowTable | None,
    ) -> _Copy:  # fmt: skip
        """Consecutive threads copy what is contiguous in memory. `size`: the lines of the tile, and
        the first one that is copied, where there are more of them than threads."""
        w, (lines, behind) = self.w, size
        some = min(lines, self.tile.threads)
        groups = self.tile.threads // some
        each = self.tile.steps // groups
        line, group = thread % some, thread // some if groups > 1 else ZERO
        if self.product.contiguous_steps(load):
            line, group = thread // groups, thread % groups
        line = w.named("line", line) + behind
        position = clamped(first + line, extent(loops), lines, w)
        at = {**batch, **split(w, loops, position)}
        ends = self.product.window(w, load, at)
        computed = load.dtype is not DType.F32 or self.product.found.computed_at(load) is not None
        registers = None
        if self.waits or computed:
            registers = w.reserve("next", DType.F32, "register", each)
        step = w.named("step", group * each)
        padded = table is not None and load == self.product.padded
        closed = closed_of(w, clipped(self.product), ends) if padded else None
        return _Copy(load, shared, registers, line, step, each, at, ends, table, closed)

    def _thread(
        self, copies: Sequence[_Copy], factors: tuple[Buffer, Buffer], first: tuple[Dim, Dim],
        thread: Dim, batch: dict[str, Dim],
    ) -> None:  # fmt: skip
        w, tile = self.w, self.tile
        place = self._results(thread)
        sums = w.reserve("sums", DType.F32, "register", *tile.own)
        rows = self._lines(self.product.rows, first[0], tile.rows, tile.own[0], place[0])
        columns = self._lines(self.product.columns, first[1], tile.columns, tile.own[1], place[1])
        results = (w, self.product, batch, (rows, columns), lambda i, j: sums[(i, j)])
        start_sums(*results)
        total = extent(self.product.steps)
        if self.zeros is not None:
            total += self.zeros
        parts = w.short("parts", self._parts(total))
        lead, ends = self._lead(total, parts)
        if self.zeros:
            ends = (total, None if self.zeros <= tile.steps else total)
        self._fetch_all(copies, ZERO, ZERO, ends[0])
        self._put(copies, ZERO)
        if parts == 2:
            self._fetch_all(copies, ONE, lead, ends[1])
            self._put(copies, ONE)
            with w.range("half", 2) as half:
                self._wait(copies)
                self._multiply(factors, half, place, sums)
        else:
            self._wait(copies)
            with self._each_part(parts) as (part, half):
                with w.when(below(part + 1, parts)):
                    self._fetch_all(copies, 1 - half, lead + part * tile.steps, ends[1])
                self._multiply(factors, half, place, sums)
                self._put(copies, 1 - half)
                self._wait(copies)
        finish_sums(*results)

    @contextmanager
    def _each_part(self, parts: Dim) -> Iterator[tuple[Dim, Dim]]:
        """Parts and the halves that they are in. A pair of parts is one iteration, so that halves
        have numbers as addresses, but not where one part is alone in a large tile, as registers do
        not suffice for a branch."""
        w, odd = self.w, parts.is_constant and parts.constant % 2
        if odd and (self.tile.own[0] > VECTOR or parts == 1):
            with w.range("part", parts) as part:
                yield part, part % 2
            return
        even = simplify(parts % 2, w.bounds) == 0
        with w.range("pair", ceildiv(parts, 2)) as pair, w.range("half", 2) as half:
            part = w.let("part", pair * 2 + half, ZERO, parts)
            with w.when(*() if even else (below(part, parts),)):
                yield part, half

    def _parts(self, total: Dim) -> Dim:
        """How often a tile is filled. Rather a last part of zeros than one that lacks its pair: a
        branch inside of the loop takes more registers than there are."""
        parts = ceildiv(total, self.tile.steps)
        if parts.is_constant and parts.constant > MANY:
            return Dim.of(-(-parts.constant // 2) * 2)
        return parts

    def _results(self, thread: Dim) -> tuple[Dim, Dim]:
        """The first row and column of a thread in the tile."""
        w, (down, across) = self.w, LANES
        if self.tile.grid[1] < across:
            down, across = across, down
        wide = self.tile.grid[1] // across
        warp, lane = w.named("warp", thread // 32), w.named("lane", thread % 32)
        row = w.named("own_row", (warp // wide * down + lane // across) * VECTOR)
        column = (warp % wide * across + lane % across) * VECTOR
        return row, w.named("own_column", column)

    def _lines(
        self, loops: tuple[For, ...], first: Dim, size: int, own: int, place: Dim
    ) -> Lines:  # fmt: skip
        return Lines(loops, first, size, own, lambda n: place + _spread(n, size, own))

    def _lead(self, total: Dim, parts: Dim) -> tuple[Dim, tuple[Dim | None, Dim | None]]:
        """The steps of the first part; and where the steps of the first part, and those of others
        end, None where all of a part are steps."""
        w, steps = self.w, self.tile.steps
        lead = simplify(total - dim_max(parts - 1, 0) * steps, w.bounds)
        if lead == steps:
            return lead, (None, None)
        if lead.is_constant and lead.constant <= 0:  # one part more
            return Dim.of(steps), (total, total)
        lead = lead if lead.is_constant else w.let("lead", lead, ZERO, Dim.of(steps))
        return lead, (lead, None)

    def _fetch_all(self, copies: Sequence[_Copy], half: Dim, part: Dim, stop: Dim | None) -> None:
        """Copies steps of the next part to registers, or to one half of shared memory; zeros from
        `stop` on. Lines of one factor share what a table tells."""
        known = dict[tuple[str, Dim], WindowTable]()
        for copy in copies:
            if self.zeros is None:
                self._fetch(copy, half, part, stop)
                continue
            if copy.table is not None:
                key, first = (copy.table.entries.name, copy.first), part + copy.first
                if key not in known:
                    known[key] = copy.table.copied(self.w, first, copy.each)
                self._fetch_known(copy, half, part, known[key], whole=stop is None)
            else:
                self._fetch_plain(copy, half, part, self.zeros, whole=stop is None)

    def _fetch(self, copy: _Copy, half: Dim, part: Dim, stop: Dim | None) -> None:
        """Steps that follow each other in one window have one condition. Where elements are not
        equally far apart, as in a reflected border, each has an address of its own."""
        w, product, inner = self.w, self.product, self.product.steps[-1]
        step = stride(copy.load, inner.variable)
        alone = step is None or inner.variable in copy.ends or not inner.extent.is_constant
        count = 1 if alone else gcd(inner.extent.constant, copy.each)
        together = gcd(stop.constant, copy.each) if stop is not None and stop.is_constant else 1
        first = part + copy.first
        with self._groups(copy.each, count) as group:
            at = {**copy.at, **split(w, product.steps, first + group)}
            window = inside(at, copy.ends)
            with self._groups(count) as near:
                e = group + near
                beyond = [below(first + e // together * together, stop)] if stop is not None else []
                conditions = [*beyond, *window]
                if copy.next is None:
                    ahead = near * (ZERO if step is None else step)
                    far = (ahead, ZERO) if step is None or step.is_constant else (ZERO, ahead)
                    self._load(copy, half, e, moved(copy.load, at), conditions, far[1], far[0])
                else:
                    start = at[inner.variable]
                    with w.block() as fetched:
                        own = {**at, inner.variable: start + near}
                        self._fetch_one(copy, copy.next, e, own, conditions)
                    if self._begin_at_multiples(count):
                        fetched = [*with_shared_quotients(fetched, start, near, count)]
                    w.add(*fetched)

    def _begin_at_multiples(self, count: int) -> bool:
        """Whether threads copy so many steps from multiples of their number on."""
        total, inner = extent(self.product.steps), self.product.steps[-1]
        sizes = (total, inner.start, Dim.of(self.tile.steps))
        return count > 1 and all(one.is_constant and one.constant % count == 0 for one in sizes)

    @contextmanager
    def _groups(self, count: int, each: int = 1) -> Iterator[Dim]:
        """The first of each so many of `count` elements; no loop around one of them."""
        if count == each:
            yield ZERO
            return
        with self.w.range("e", count // each) as group:
            yield group * each

    def _fetch_plain(self, copy: _Copy, half: Dim, part: Dim, zeros: int, *, whole: bool) -> None:
        """The steps of a part behind so many zeros, which follow each other. `whole`: there are no
        zeros in it."""
        w, path = self.w, Path(copy.load, self.product.steps)
        one = moved(copy.load, {**copy.at, **path.first(copy.first - zeros)})
        step, ahead = path.axes[0][2], path.ahead(w, part)
        with w.range("e", copy.each) as e:
            some = [] if whole else [below(Dim.of(zeros - 1), part + copy.first + e)]
            self._load(copy, half, e, one, some, ahead, e * step)

    def _fetch_known(
        self, copy: _Copy, half: Dim, part: Dim, known: WindowTable, *, whole: bool
    ) -> None:
        """The same where a table tells the steps, zero where they are outside."""
        w, path, zeros = self.w, Path(copy.load, self.product.steps), self.zeros or 0
        one = moved(copy.load, {**copy.at, **path.first()})
        with w.range("e", copy.each) as e:
            some = [] if whole else [below(Dim.of(zeros - 1), part + copy.first + e)]
            if copy.closed is not None:
                some = [Binary("==", Binary("&", copy.closed, known.bits(e)), NO_BIT)]
            self._load(copy, half, e, one, some, known.ahead(w, e))

    def _load(
        self, copy: _Copy, half: Dim, e: Dim, load: Load, conditions: Sequence[Expr], ahead: Dim,
        near: Dim = ZERO,
    ) -> None:  # fmt: skip
        """One element, so far `ahead` of another one, where all conditions hold, else zero."""
        w, count = self.w, Dim.of(1)
        if conditions:
            some = Select(all_of(conditions), Lit(1, DType.I64), Lit(0, DType.I64))
            count = bounded(w, "count", some, count)
        if copy.next is not None:
            to = copy.next[(e,)]
            w.micro("raot_load_one_f32", to=to, count=count, ahead=ahead + near, **{"from": load})
            return
        shared = copy.shared
        w.micro(
            "raot_copy_async1_f32", to=shared[half, copy.first, copy.line], count=count,
            ahead=ahead, part=0, apart=0, near=near, far=row_major((ZERO, e, ZERO), shared.shape),
            **{"from": load},
        )  # fmt: skip

    def _fetch_one(
        self, copy: _Copy, to: Buffer, e: Dim, at: At, conditions: Sequence[Expr]
    ) -> None:
        """One element to registers, where all conditions hold, else zero."""
        w = self.w
        with w.block() as fetched:
            value = self.product.value(w, copy.load, at)
            value = Cast(value, DType.F32) if value.dtype.is_half else value
        if not conditions:
            w.add(*fetched, Store(to, (e,), value))
        elif not fetched:
            chosen: Expr = value
            for condition in reversed(conditions):
                chosen = Select(condition, chosen, Lit(0.0, DType.F32))
            w.add(Store(to, (e,), chosen))
        else:
            w.add(Store(to, (e,), Lit(0.0, DType.F32)))
            with w.when(*conditions):
                w.add(*fetched, Store(to, (e,), value))

    def _put(self, copies: Sequence[_Copy], half: Dim) -> None:
        """Copies what is in registers to shared memory."""
        w = self.w
        for copy in copies:
            if copy.next is not None:
                with w.range("e", copy.each) as e:
                    index = (half, copy.first + e, copy.line)
                    w.add(Store(copy.shared, index, copy.next[(e,)]))

    def _wait(self, copies: Sequence[_Copy]) -> None:
        """Waits for what all threads copy. In the loop of two parts, that also keeps compilers from
        taking it apart, for which there are no registers."""
        if any(copy.next is None for copy in copies):
            self.w.micro("raot_wait_copies")
        self.w.add(Barrier("thread"))

    def _multiply(
        self, tiles: tuple[Buffer, Buffer], half: Dim, place: tuple[Dim, Dim], sums: Buffer
    ) -> None:
        """Adds the products of the steps in shared memory."""
        w, own = self.w, self.tile.own
        factors = [
            w.reserve(name, DType.F32, "register", size)
            for name, size in zip(("left", "right"), own, strict=True)
        ]
        lines_of = (self.tile.rows, self.tile.columns)
        sides = [*zip(tiles, factors, lines_of, own, place, strict=True)]
        with w.range("k", self.tile.steps) as k:
            for shared, factor, lines, size, first in sides:
                for at in range(0, size, VECTOR):
                    source = shared[(half, k, first + _spread(Dim.of(at), lines, size))]
                    w.micro("raot_load4_f32", **{"from": source}, to=factor[(Dim.of(at),)])
            with w.range("i", own[0]) as i, w.range("j", own[1]) as j:
                left, right = factors
                total = apply("fma", left[(i,)], right[(j,)], sums[(i, j)])
                w.add(Store(sums, (i, j), total))


def _spread(index: Dim, size: int, own: int) -> Dim:
    """How far one of the `own` rows or columns of a thread is behind the first one, in a tile of
    `size`."""
    return index // VECTOR * (size // own * VECTOR) + index % VECTOR
