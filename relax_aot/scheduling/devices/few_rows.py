# SPDX-License-Identifier: Apache-2.0
"""Products of a few rows, such as those of a decode step: each weight is read once.

Tiles would mostly hold rows that do not exist. A block of threads computes some columns instead:
adjacent threads load adjacent vectors of 16 bytes of the weights, along columns or along steps,
wherever they are neighbors, and keep the sums of all rows. Other threads of the block take other
steps; their sums are added in the order of the threads. Weights that are decoded are loaded as
vectors of what they are decoded from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from relax_aot import microkernels
from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_min, row_major, simplify
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Reserve,
    Store,
    apply,
    parts,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.microkernels.warp import VECTORS
from relax_aot.scheduling.contraction import moved, stride
from relax_aot.scheduling.devices.decoded import Decoding, decoded_along_steps, is_one
from relax_aot.scheduling.devices.nibbles import EIGHT, word_at
from relax_aot.scheduling.devices.operands import At, Product, below, extent, split
from relax_aot.scheduling.devices.proofs import adds_integers
from relax_aot.scheduling.nest import greatest, ranges
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

FEW = 4
"""So many rows are worth a tile."""
THREADS, LANES = 256, 32
ALONG = 8
"""Threads along adjacent vectors, whose bytes are a line of the cache."""
ENOUGH = 64
"""Blocks; with fewer, they take half of the columns."""
BYTES = 16
WIDTHS = (4, 8, 16, 32)
"""Elements of a thread: the first for which each load is of 16 bytes, or several."""
UNROLLED, SUMS = 4, 64
"""Iterations whose loads are under way together, each with sums of its own; sums of a thread."""
CELLS = 48 << 10
"""Bytes of shared memory for the sums of all threads."""


def few_rows(product: Product, context: Context, bounds: Bounds) -> Dim:
    """1 where the rows are so few that tiles are not worth it, else 0."""
    found = product.found
    if context.target.partial_sums < 2 or product.padded is not None:
        return ZERO
    if found.sum.dtype is not DType.I32 and adds_integers(found.nest.leaf[1:2]):
        return ZERO
    if len(product.columns) != 1 or len(product.steps) != 1:
        return ZERO
    if any(found.fetches(load) for load in (found.left, found.right)):
        return ZERO
    rows = extent(product.rows)
    return simplify(dim_min(rows, 1) - dim_min(rows // FEW, 1), bounds)


def few_row_launch(w: Writer, product: Product, few: Dim) -> None:
    """Writes the launch of a product; it has no blocks where `few` is 0."""
    if few == 0:
        return
    (steps,), (columns,), right = product.steps, product.columns, product.found.right
    widths = [_width(product, right, loop, w.bounds) for loop in (steps, columns)]
    along_steps = any(stride(one, steps.variable) == 1 for one in _loads(product, right))
    if max(widths) > 1:
        along_steps = widths[0] > 1
    decoded = decoded_along_steps(product, right, product.columns, w.bounds)
    if decoded is not None:
        along_steps, widths[0] = True, decoded[1]
    form, loop = (_BySteps, steps) if along_steps else (_ByColumns, columns)
    width = widths[0] if along_steps else widths[1]
    along = ALONG if width > 1 else LANES
    if greatest(columns.extent, w.bounds) < ENOUGH * along * width and width > 1:
        along //= 2
    launch = form(w, product, loop, width, along, THREADS // along)
    if decoded is not None:
        launch = replace(launch, decoding=decoded[0])
    while launch.cells * launch.rows * DType.F32.bytes > CELLS:
        launch = replace(launch, others=launch.others // 2)
    launch.emit(few)


def _loads(product: Product, load: Load) -> list[Load]:
    """What a factor is read from."""
    computed = product.found.computed_at(load)
    value: Expr = load if computed is None else computed.value
    return [one for one in parts(value) if isinstance(one, Load)]


def _moves(load: Load, loop: For) -> bool:
    return any(loop.variable in dim.symbols for dim in load.index)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The iterations of a loop in chunks of `width`."""

    product: Product
    loop: For
    width: int
    bounds: Bounds

    def address(self, load: Load, chunk: Dim) -> Dim:
        """The first element of a chunk."""
        address = row_major(load.index, load.buffer.shape)
        return address.substitute({self.loop.variable: self.loop.start + chunk * self.width})

    def offset(self, load: Load, q: Dim) -> Dim:
        """How far element `q` of a chunk is behind its first one."""
        chunk, at = Dim.of("_chunk"), Dim.of("_q")
        first = self.address(load, chunk)
        address = row_major(load.index, load.buffer.shape)
        place = self.loop.start + chunk * self.width + at
        moved = address.substitute({self.loop.variable: place})
        return simplify(moved - first, self.known).substitute({"_q": q})

    @property
    def known(self) -> Bounds:
        product = self.product
        known = ranges((*product.found.nest.loops, *product.steps), self.bounds)
        known = known.with_value("_chunk", ZERO, self.loop.extent)
        return known.with_value("_q", ZERO, Dim.of(self.width - 1))

    def count(self, load: Load) -> int:
        """Elements from the first to the last of a chunk."""
        return max(int(self.offset(load, Dim.of(n))) for n in range(self.width)) + 1

    def is_vector(self, load: Load) -> bool:
        """Whether the elements of a chunk are whole vectors in memory."""
        if load.dtype not in VECTORS or not self.offset(load, Dim.of("_q")).symbols <= {"_q"}:
            return False
        each = BYTES // load.dtype.bytes
        start = self.address(load, Dim.of("_chunk"))
        return self.count(load) % each == 0 and simplify(start % each, self.known) == 0


def _width(product: Product, load: Load, loop: For, bounds: Bounds) -> int:
    """Elements of a factor along a loop that a thread loads as vectors; 1 where it does not."""
    loads = [one for one in _loads(product, load) if _moves(one, loop)]
    for width in WIDTHS:
        chunks = _Chunks(product, loop, width, bounds)
        whole = simplify(loop.extent % width, bounds) == 0
        if whole and loads and all(map(chunks.is_vector, loads)):
            return width
    return 1


@dataclass(frozen=True, slots=True)
class _Launch(ABC):
    """The code of a block of threads. `along`: threads along neighbors of the weights, each with a
    chunk of `width` elements; `others`: those along the other axis. `decoding`: of weights that are
    decoded as pairs."""

    w: Writer
    product: Product
    loop: For
    width: int
    along: int
    others: int
    decoding: Decoding | None = None

    @property
    @abstractmethod
    def cells(self) -> int:
        """The sums of all threads for one row."""

    @abstractmethod
    def emit(self, few: Dim) -> None:
        """Writes the launch."""

    @property
    def chunks(self) -> _Chunks:
        return _Chunks(self.product, self.loop, self.width, self.w.bounds)

    @property
    def threads(self) -> int:
        return self.along * self.others

    @property
    def rows(self) -> int:
        """At most."""
        return min(FEW - 1, greatest(extent(self.product.rows), self.w.bounds))

    @property
    def kind(self) -> DType:
        return self.product.found.sum.dtype

    @property
    def zero(self) -> Lit:
        return Lit(0, self.kind) if self.kind is DType.I32 else Lit(0.0, self.kind)

    def sums(self, *shape: int) -> Buffer:
        """Sums of a thread, which begin with zero."""
        w, unrolled = self.w, max(1, min(UNROLLED, SUMS // prod(shape)))
        sums = w.reserve("sums", self.kind, "register", unrolled, *shape)
        with w.nest([For(w.fresh("n"), ZERO, size, ()) for size in sums.shape]) as at:
            w.add(Store(sums, tuple(at.values()), self.zero))
        return sums

    @contextmanager
    def iterations(
        self, sums: Buffer, first: Dim, step: int, stop: Dim
    ) -> Iterator[tuple[Dim, Dim]]:
        """Each `step`-th from `first` on, and the number of its sums."""
        w, each = self.w, int(sums.shape[0])
        with w.range("i", ceildiv(stop, each * step)) as i, w.range("u", each) as u:
            at = w.let("at", first + (i * each + u) * step, ZERO, stop - 1)
            partial = simplify(stop % (each * step), w.bounds) != 0
            with w.when(*[below(at, stop)] if partial else ()):
                yield at, u

    def whole(self, sums: Buffer, *at: Dim) -> Expr:
        """The sums of all iterations of a thread."""
        total: Expr = sums[(ZERO, *at)]
        for number in range(1, int(sums.shape[0])):
            total = Binary("+", total, sums[(Dim.of(number), *at)])
        return total

    def added(self, total: Expr, left: Expr, right: Expr) -> Expr:
        if self.kind is DType.I32:
            return Binary("+", total, Binary("*", left, right))
        return apply("fma", left, right, total)

    def row(self, row: Dim) -> dict[str, Dim]:
        """The loop variables of a row; beyond the last one, its own."""
        rows = extent(self.product.rows)
        position = self.w.short("last", dim_min(row, rows - 1)) if self.rows > 1 else ZERO
        return split(self.w, self.product.rows, position)

    def factor(self, load: Load, at: At, chunk: Dim | None) -> Callable[[Dim], Expr]:
        """Element `q` of a chunk of a factor, of the type of the sums; all of its vectors are
        loaded here. Without a chunk, or where they are no vectors, elements are loaded."""
        found = self.product.found
        strips: dict[Load, Buffer] = {}
        for one in dict.fromkeys(_loads(self.product, load)):
            moving = self.width > 1 and _moves(one, self.loop)
            if chunk is not None and moving and self.chunks.is_vector(one):
                strips[one] = self.strip(one, at, chunk)

        def element(q: Dim) -> Expr:
            place = dict(at)
            if chunk is not None:
                place[self.loop.variable] = self.loop.start + chunk * self.width + q

            def rule(expr: Expr) -> Expr:
                if not isinstance(expr, Load):
                    return expr
                if expr in strips:
                    return strips[expr][(self.chunks.offset(expr, q),)]
                return expr

            computed = found.computed_at(load)
            value: Expr = load if computed is None else computed.value
            (made,) = map_index_dims(
                map_exprs((Declare(Local("_", value.dtype), value),), rule),
                lambda dim: dim.substitute(place),
            )
            assert isinstance(made, Declare)
            return self.converted(made.value, load)

        return element

    def strip(self, load: Load, at: At, chunk: Dim) -> Buffer:
        """The elements of a chunk, as vectors in registers."""
        w, each = self.w, BYTES // load.dtype.bytes
        count = self.chunks.count(load)
        strip = Buffer(w.fresh("strip"), load.dtype, (Dim.of(count),), REGISTER)
        w.add(Reserve(strip))
        start = self.chunks.address(load, chunk).substitute(at)
        for first in range(0, count, each):
            source = Load(load.buffer, (*(ZERO,) * (load.buffer.rank - 1), start + first))
            name = f"raot_load{each}_{load.dtype.value}"
            target = strip[(Dim.of(first),)]
            w.add(microkernels.call(name, **{"from": source, "to": target}))
        return strip

    def decoded(self, form: Decoding, at: At, chunk: Dim) -> Callable[[Dim], Expr]:
        """Element `q` of a chunk of weights that are decoded as pairs."""
        w, byte = self.w, form.byte
        kind, each = byte.load.dtype.value, 2 if byte.packed else 1
        strip = w.reserve("strip", byte.dtype, "register", self.width // each)
        values = w.reserve("decoded", DType.F16, "register", self.width)
        others = [(w.reserve("by", DType.F16, "register", 1), part) for part in form.others]

        def place(first: int) -> At:
            return {**at, self.loop.variable: self.loop.start + chunk * self.width + first}

        source = moved(byte.load, place(0))
        source = word_at(source) if byte.packed else source
        to = strip[(ZERO,)]
        if self.width == EIGHT:
            w.micro(f"raot_load8_{kind}", to=to, ahead=ZERO, near=ZERO, **{"from": source})
        else:
            w.micro(f"raot_load{BYTES}_{byte.dtype.value}", to=to, **{"from": source})
        for first in range(0, self.width, EIGHT):
            x, own = values[(Dim.of(first),)], strip[(Dim.of(first // each),)]
            w.micro(f"raot_widen8_{kind}", zero=form.number, to=x, **{"from": own})
            for buffer, part in others:
                value = part.one(place(first))
                value = value if part is form.scale else Cast(Cast(value, DType.F32), DType.F16)
                if first == 0 or not is_one(part.value, self.loop, self.width):
                    w.add(Store(buffer, (ZERO,), value))
                way = "multiply" if part is form.scale else "subtract"
                w.micro(f"raot_{way}8_f16", x=x, by=buffer[(ZERO,)], step=0)
        return lambda q: Cast(values[(q,)], DType.F32)

    def converted(self, value: Expr, load: Load) -> Expr:
        found = self.product.found
        if self.kind is DType.I32:
            zero = found.zeros[load == found.right]
            return Binary("-", Cast(value, DType.I32), Lit(zero, DType.I32))
        return Cast(value, DType.F32) if value.dtype.is_half else value

    def place(self, blocks: Dim, block: Dim) -> tuple[Dim, dict[str, Dim]]:
        """The block of one matrix, and the loop variables of its batch."""
        w, batch = self.w, self.product.batch
        if not batch:
            return block, {}
        number = w.short("batch", block // blocks)
        first = w.let("in_batch", block - number * blocks, ZERO, blocks - 1)
        return first, split(w, batch, number)

    def results(self, cells: Buffer, first: Dim, thread: Dim, batch: At) -> None:
        """Adds the `cells` of each result, and stores what follows. `first`: the first column."""
        w, found, count = self.w, self.product.found, int(cells.shape[1])
        (columns,) = self.product.columns
        w.add(Barrier("thread"))
        with w.range("e", -(-self.rows * count // self.threads)) as e:
            number = w.named("result", thread + e * self.threads)
            line, place = w.named("line", number // count), w.named("place", number % count)
            rows = dim_min(extent(self.product.rows), self.rows)
            with w.when(below(line, rows), below(first + place, columns.extent)):
                at = {**batch, **split(w, self.product.rows, line)}
                at |= split(w, self.product.columns, first + place)
                total = Local(w.fresh("total"), self.kind)
                w.add(*map_index_dims(
                    (Declare(total, found.start),), lambda dim: dim.substitute(at)
                ))  # fmt: skip
                with w.range("n", cells.shape[2] - 1) as n:
                    cell = cells[(line, place, n)]
                    w.add(Assign(total, Binary("+", total, cell)))
                w.finish(found.after, found.sum, total, at)


@dataclass(frozen=True, slots=True)
class _ByColumns(_Launch):
    """Weights whose columns are neighbors: threads of a line take one step."""

    @property
    def cells(self) -> int:
        return self.along * self.width * (self.others + 1)

    def emit(self, few: Dim) -> None:
        w, loop, tile, width = self.w, self.loop, self.along * self.width, self.width
        blocks = simplify(ceildiv(loop.extent, tile), w.bounds)
        grid = simplify(extent(self.product.batch) * blocks * few, w.bounds)
        with w.range("block", grid, axis="block") as block:
            number, batch = self.place(blocks, block)
            cells = w.reserve("cells", self.kind, "shared", self.rows, tile, self.others + 1)
            with w.range("thread", self.threads, axis="thread") as thread:
                lane = w.named("lane", thread % self.along)
                slice_ = w.named("slice", thread // self.along)
                sums = self.sums(self.rows, width)
                chunk = w.named("chunk", number * self.along + lane)
                with w.when(below(chunk * width, loop.extent)):
                    self._add(sums, chunk, slice_, batch)
                with w.range("r", self.rows) as r, w.range("q", width) as q:
                    w.add(Store(cells, (r, lane * width + q, slice_), self.whole(sums, r, q)))
                self.results(cells, number * tile, thread, batch)

    def _add(self, sums: Buffer, chunk: Dim, slice_: Dim, batch: At) -> None:
        w, (steps,) = self.w, self.product.steps
        found, width = self.product.found, self.width
        with self.iterations(sums, slice_, self.others, steps.extent) as (step, u):
            at = {**batch, **split(w, (steps,), step)}
            element = self.factor(found.right, at, chunk)
            right = w.reserve("right", self.kind, "register", width)
            with w.range("q", width) as q:
                w.add(Store(right, (q,), element(q)))
            with w.range("r", self.rows) as r:
                left = Local(w.fresh("left"), self.kind)
                moved = {**at, **self.row(r)}
                w.add(Declare(left, self.factor(found.left, moved, None)(ZERO)))
                with w.range("q", width) as q:
                    total = sums[(u, r, q)]
                    w.add(Store(sums, total.index, self.added(total, left, right[(q,)])))


@dataclass(frozen=True, slots=True)
class _BySteps(_Launch):
    """Weights whose steps are neighbors: threads of a line take one column."""

    @property
    def cells(self) -> int:
        return self.others * (self.along + 1)

    def emit(self, few: Dim) -> None:
        w, (columns,) = self.w, self.product.columns
        blocks = simplify(ceildiv(columns.extent, self.others), w.bounds)
        grid = simplify(extent(self.product.batch) * blocks * few, w.bounds)
        with w.range("block", grid, axis="block") as block:
            number, batch = self.place(blocks, block)
            shape = (self.rows, self.others, self.along + 1)
            cells = w.reserve("cells", self.kind, "shared", *shape)
            with w.range("thread", self.threads, axis="thread") as thread:
                lane = w.named("lane", thread % self.along)
                line = w.named("own", thread // self.along)
                sums = self.sums(self.rows)
                column = number * self.others + line
                with w.when(below(column, columns.extent)):
                    at = {**batch, **split(w, (columns,), column)}
                    self._add(sums, lane, at)
                with w.range("r", self.rows) as r:
                    w.add(Store(cells, (r, line, lane), self.whole(sums, r)))
                self.results(cells, number * self.others, thread, batch)

    def _add(self, sums: Buffer, lane: Dim, at: At) -> None:
        w, found, width = self.w, self.product.found, self.width
        chunks = simplify(self.loop.extent // width, w.bounds)
        with self.iterations(sums, lane, self.along, chunks) as (chunk, u):
            if self.decoding is None:
                right = self.factor(found.right, at, chunk)
            else:
                right = self.decoded(self.decoding, at, chunk)
            with w.range("r", self.rows) as r:
                left = self.factor(found.left, {**at, **self.row(r)}, chunk)
                with w.range("q", width) as q:
                    total = sums[(u, r)]
                    w.add(Store(sums, total.index, self.added(total, left(q), right(q))))
