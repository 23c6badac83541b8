# SPDX-License-Identifier: Apache-2.0
"""Attention in blocks of queries and keys, by single threads.

Scores of a block of keys are a product in registers; in shared memory they become powers below the
greatest score so far. Sums of values that were made with a smaller maximum are multiplied by the
power of the difference, and one division at the end gives the results. No row of scores is stored.

Source: Dao et al., "FlashAttention", arXiv:2205.14135.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from relax_aot.ir.dims import ZERO, Dim, ceildiv, simplify
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Binary,
    Buffer,
    Declare,
    Load,
    Local,
    Select,
    Store,
    apply,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.attention_operands import (
    LOWEST,
    ZERO_F32,
    Pair,
    divisor_of,
    queries_of_blocks,
)
from relax_aot.scheduling.devices.attention_scores import wide
from relax_aot.scheduling.devices.operands import (
    At,
    Lines,
    Product,
    below,
    clamped,
    extent,
    finish_sums,
    split,
)
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

OWN = 4
"""Rows, and keys or columns that follow each other, of one thread."""
UNROLLED = 8
"""Steps of a sum that follow each other in the code."""
PAD = 4
"""Floats between rows of shared memory, which spread them over banks."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries of a block of threads, and keys that it has in shared memory at a time."""

    queries: int
    keys: int

    @property
    def threads(self) -> int:
        return self.queries // OWN * (self.keys // OWN)

    @property
    def parts(self) -> int:
        """Threads that share the keys of a row."""
        return self.threads // self.queries

    def columns(self, values: int) -> int:
        """The width of a tile of values: as many columns for each thread."""
        return -(-values // self.keys) * self.keys

    def bytes(self, depth: int, values: int) -> int:
        """Of shared memory."""
        tiles = depth * (self.queries + self.keys + 2 * PAD) + self.keys * (self.queries + PAD)
        tiles += self.keys * (self.columns(values) + PAD)
        return (tiles + self.queries * (2 * self.parts + 3)) * DType.F32.bytes


BLOCKS = (Blocks(64, 32), Blocks(32, 32), Blocks(64, 16))
"""The first that fits in shared memory is taken."""


def tiles(w: Writer, pair: Pair, target: Target, sizes: Sequence[Blocks] = BLOCKS) -> bool:
    """Writes the launch of an attention; not where no block fits in shared memory."""
    for size in sizes:
        if size.bytes(*pair.sizes) <= target.shared:
            _Launch(w, size, pair).emit()
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Memory:
    """Shared memory of a block. `peak`, `total`, `factor`: of each row, its greatest score, the sum
    of its powers, and what the sums so far are multiplied by; `most`, `part`: of each thread of a
    row."""

    queries: Buffer
    keys: Buffer
    values: Buffer
    scores: Buffer
    peak: Buffer
    total: Buffer
    factor: Buffer
    most: Buffer
    part: Buffer


@dataclass(frozen=True, slots=True)
class _Launch:
    """The code of one block of threads."""

    w: Writer
    size: Blocks
    pair: Pair

    def emit(self) -> None:
        w, size = self.w, self.size
        with queries_of_blocks(w, self.pair, size.queries) as (row, at):
            memory = self._memory()
            with w.range("thread", size.threads, axis="thread") as thread:
                self._thread(memory, thread, row, at)

    def _memory(self) -> _Memory:
        w, size = self.w, self.size
        depth, width = extent(self.pair.scores.steps), extent(self.pair.values.columns).constant
        rows, keys = size.queries + PAD, size.keys

        def shared(name: str, *shape: Dim | int) -> Buffer:
            return w.reserve(name, DType.F32, "shared", *shape)

        return _Memory(
            shared("queries", depth, rows), shared("keys", depth, keys + PAD),
            shared("values", keys, size.columns(width) + PAD), shared("scores", keys, rows),
            *(shared(name, size.queries) for name in ("peak", "total", "factor")),
            *(shared(name, size.parts, size.queries) for name in ("most", "part")),
        )  # fmt: skip

    def _thread(self, memory: _Memory, thread: Dim, row: Dim, batch: At) -> None:
        w, size, length = self.w, self.size, self.pair.found.length
        across = size.keys // OWN
        down = w.named("own_row", thread // across * OWN)
        side = w.named("own_key", thread % across * OWN)
        width = memory.values.shape[1].constant - PAD
        own = OWN * (width // size.keys)
        sums = w.reserve("sums", DType.F32, "register", OWN, own)
        with w.range("i", OWN) as i, w.range("j", own) as j:
            w.add(Store(sums, (i, j), ZERO_F32))
        with w.when(below(thread, Dim.of(size.queries))):
            w.add(Store(memory.peak, (thread,), LOWEST), Store(memory.total, (thread,), ZERO_F32))
        scores = self.pair.scores
        self._copy(scores, scores.found.left, memory.queries, thread, row, batch)
        w.add(Barrier("thread"))
        with w.range("key_block", simplify(ceildiv(length, size.keys), w.bounds)) as number:
            key = w.named("key", number * size.keys)
            self._copy(scores, scores.found.right, memory.keys, thread, key, batch)
            self._copy_values(memory.values, thread, key, batch)
            w.add(Barrier("thread"))
            self._multiply(memory, (down, side), (row, key), batch)
            w.add(Barrier("thread"))
            self._powers(memory, thread)
            self._add(memory, (down, side), sums)
            w.add(Barrier("thread"))
        self._finish(memory, (down, side), row, batch, sums)

    # Copies to shared memory

    def _copy(
        self, product: Product, load: Load, to: Buffer, thread: Dim, first: Dim, batch: At
    ) -> None:
        """Rows of queries or keys, steps first; rows beyond the last one are the last one."""
        w, threads = self.w, self.size.threads
        loops = product.rows if load == product.found.left else product.columns
        depth, lines = to.shape[0], to.shape[1] - PAD
        rows = product.contiguous_steps(load)
        with self._elements(depth * lines, thread, threads) as element:
            inner = depth if rows else lines
            outer = w.named("outer", element // inner)
            within = w.named("within", element % inner)
            line, step = (outer, within) if rows else (within, outer)
            position = clamped(first + line, extent(loops), lines.constant, w)
            at = {**batch, **split(w, loops, position), **split(w, product.steps, step)}
            w.add(Store(to, (step, line), wide(product.value(w, load, at))))

    def _copy_values(self, to: Buffer, thread: Dim, key: Dim, batch: At) -> None:
        """The values of a block of keys; zeros behind the last key and column."""
        w, product, size = self.w, self.pair.values, self.size
        width, columns = to.shape[1] - PAD, extent(product.columns)
        with self._elements(width * size.keys, thread, size.threads) as element:
            line = w.named("line", element // width)
            column = w.named("column", element % width)
            conditions = [] if columns == width else [below(column, columns)]
            if simplify(self.pair.found.length % size.keys, w.bounds) != 0:
                conditions.append(below(key + line, self.pair.found.length))
            if conditions:
                w.add(Store(to, (line, column), ZERO_F32))
            with w.when(*conditions):
                at = {**batch, **split(w, product.columns, column)}
                at |= split(w, product.steps, key + line)
                w.add(Store(to, (line, column), wide(product.value(w, product.found.right, at))))

    @contextmanager
    def _elements(self, count: Dim, thread: Dim, threads: int) -> Iterator[Dim]:
        """The elements of a tile that a thread copies."""
        w, whole = self.w, count.constant % threads == 0
        with w.range("e", ceildiv(count, threads)) as e:
            element = w.named("element", thread + e * threads)
            with w.when(*() if whole else (below(element, count),)):
                yield element

    # Products

    @contextmanager
    def _steps(self, name: str, count: int) -> Iterator[Dim]:
        """The steps of a sum, some of them without a loop in the code of a device."""
        each = max(n for n in range(1, UNROLLED + 1) if count % n == 0)
        with self.w.range(name, count // each) as outer, self.w.range(name, each) as inner:
            yield outer * each + inner

    def _multiply(
        self, memory: _Memory, own: tuple[Dim, Dim], first: tuple[Dim, Dim], batch: At
    ) -> None:
        """The scores of a block of keys; -inf behind the last key."""
        w, product, length = self.w, self.pair.scores, self.pair.found.length
        products = w.reserve("products", DType.F32, "register", OWN, OWN)
        left, right = (w.reserve(n, DType.F32, "register", OWN) for n in ("left", "right"))
        with w.range("i", OWN) as i, w.range("j", OWN) as j:
            w.add(Store(products, (i, j), ZERO_F32))
        with self._steps("d", memory.queries.shape[0].constant) as d:
            w.micro("raot_load4_f32", **{"from": memory.queries[(d, own[0])]}, to=left)
            w.micro("raot_load4_f32", **{"from": memory.keys[(d, own[1])]}, to=right)
            with w.range("i", OWN) as i, w.range("j", OWN) as j:
                total = apply("fma", left[(i,)], right[(j,)], products[(i, j)])
                w.add(Store(products, (i, j), total))
        with w.range("i", OWN) as i:
            position = clamped(first[0] + own[0] + i, extent(product.rows), self.size.queries, w)
            at = {**batch, **split(w, product.rows, position)}
            with w.range("j", OWN) as j:
                place, key = (own[1] + j, own[0] + i), first[1] + own[1] + j
                partial = simplify(length % self.size.keys, w.bounds) != 0
                if partial:
                    w.add(Store(memory.scores, place, LOWEST))
                with w.when(*[below(key, length)] if partial else ()):
                    at |= split(w, product.columns, key)
                    score = self.pair.score.of(products[(i, j)], at)
                    w.add(Store(memory.scores, place, score))

    def _powers(self, memory: _Memory, thread: Dim) -> None:
        """The powers of the scores of a block below the new maximum, and their sum."""
        w, size = self.w, self.size
        each, rows = size.keys // size.parts, Dim.of(size.queries)
        row, number = w.named("row_of", thread % rows), w.named("part_of", thread // rows)
        names = ("highest", "last", "most", "shift", "added")
        highest, last, most, shift, added = (Local(w.fresh(n), DType.F32) for n in names)
        w.add(Declare(highest, LOWEST))
        with w.range("e", each) as e:
            score = memory.scores[(number * each + e, row)]
            w.add(Assign(highest, apply("max", highest, score)))
        w.add(Store(memory.most, (number, row), highest), Barrier("thread"))
        w.add(Declare(last, memory.peak[(row,)]), Declare(most, last))
        with w.range("e", size.parts) as e:
            w.add(Assign(most, apply("max", most, memory.most[(e, row)])))
        w.add(Declare(shift, Select(Binary("==", most, LOWEST), ZERO_F32, most)))
        w.add(Declare(added, ZERO_F32))
        with w.range("e", each) as e:
            place = (number * each + e, row)
            power = Local(w.fresh("power"), DType.F32)
            value = apply("exp", Binary("-", memory.scores[place], shift))
            w.add(Declare(power, value), Store(memory.scores, place, power))
            w.add(Assign(added, Binary("+", added, power)))
        w.add(Store(memory.part, (number, row), added))
        first = below(thread, rows)
        with w.when(first):
            w.add(Store(memory.factor, (row,), apply("exp", Binary("-", last, shift))))
        w.add(Barrier("thread"))
        with w.when(first):
            total = Binary("*", memory.total[(row,)], memory.factor[(row,)])
            for part in range(size.parts):
                total = Binary("+", total, memory.part[(Dim.of(part), row)])
            w.add(Store(memory.total, (row,), total), Store(memory.peak, (row,), most))

    def _add(self, memory: _Memory, own: tuple[Dim, Dim], sums: Buffer) -> None:
        """Adds the values of a block of keys, weighted by the powers of their scores."""
        w, keys, count = self.w, self.size.keys, sums.shape[1]
        with w.range("i", OWN) as i:
            factor = Local(w.fresh("scale"), DType.F32)
            w.add(Declare(factor, memory.factor[(own[0] + i,)]))
            with w.range("j", count) as j:
                w.add(Store(sums, (i, j), Binary("*", sums[(i, j)], factor)))
        left = w.reserve("weights", DType.F32, "register", OWN)
        right = w.reserve("parts", DType.F32, "register", count)
        with self._steps("k", keys) as k:
            w.micro("raot_load4_f32", **{"from": memory.scores[(k, own[0])]}, to=left)
            for at in range(0, count.constant, OWN):
                source = memory.values[(k, own[1] + at // OWN * keys)]
                w.micro("raot_load4_f32", **{"from": source}, to=right[(Dim.of(at),)])
            with w.range("i", OWN) as i, w.range("j", count) as j:
                total = apply("fma", left[(i,)], right[(j,)], sums[(i, j)])
                w.add(Store(sums, (i, j), total))

    def _finish(
        self, memory: _Memory, own: tuple[Dim, Dim], row: Dim, batch: At, sums: Buffer
    ) -> None:
        """Divides by the sums of the powers, and stores what follows."""
        w, size, found = self.w, self.size, self.pair.found
        with w.range("i", OWN) as i:
            whole = divisor_of(w, found, memory.total[(own[0] + i,)])
            with w.range("j", sums.shape[1]) as j:
                w.add(Store(sums, (i, j), Binary("/", sums[(i, j)], whole)))
        width = memory.values.shape[1].constant - PAD
        rows = Lines(self.pair.values.rows, row, size.queries, OWN, lambda n: own[0] + n)
        columns = Lines(
            self.pair.values.columns, ZERO, width, sums.shape[1].constant,
            lambda n: own[1] + n // OWN * size.keys + n % OWN,
        )  # fmt: skip
        finish_sums(w, self.pair.values, batch, (rows, columns), lambda i, j: sums[(i, j)])
