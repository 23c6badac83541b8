# SPDX-License-Identifier: Apache-2.0
"""Attention in blocks of queries and keys, by single threads.

Scores of a block of keys are a product in registers; in shared memory they become powers below the
greatest score so far. Sums of values that were made with a smaller maximum are multiplied by the
power of the difference, and one division at the end gives the results. No row of scores is stored.

Source: Dao et al., "FlashAttention", arXiv:2205.14135.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product as pairs

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
    below,
    clamped,
    extent,
    finish_sums,
    split,
)
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

OWN = 4
"""Rows, and keys or columns that follow each other, of one thread."""
UNROLLED = 8
"""Steps of a sum that follow each other in the code."""
COLUMNS = 24
"""Columns of one thread at most."""
STEPS = 32
"""Of heads at a time, where there is no room for all of them."""
PAD = 4
"""Floats between rows of shared memory, which spread them over banks."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries of a block of threads, and keys of which it has scores at a time. So many `steps` of
    heads are in shared memory at a time, and so many `lines` of values."""

    queries: int
    keys: int
    steps: int = 0
    lines: int = 0

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

    def for_heads(self, depth: int, values: int, room: int) -> Blocks | None:
        """These blocks for some heads: all steps at a time where there is room, else so many that
        few of the last ones do not exist; None where a thread has too many columns, or there is no
        room."""
        if OWN * self.columns(values) > COLUMNS * self.keys:
            return None
        parts = (n for n in range(STEPS, STEPS // 2, -1) if depth % n == 0)
        for steps, share in pairs((depth, next(parts, STEPS)), (1, 2, 4, 8, 16)):
            one = replace(self, steps=steps, lines=self.keys // share)
            if one.bytes(values) <= room:
                return one
        return None

    def tile(self, values: int) -> int:
        """Floats of keys, and of values in their place."""
        return max(self.steps * (self.keys + PAD), self.lines * (self.columns(values) + PAD))

    def bytes(self, values: int) -> int:
        """Of shared memory."""
        rows = self.queries + PAD
        floats = (self.steps + self.keys) * rows + self.tile(values)
        return (floats + self.queries * (2 * self.parts + 3)) * DType.F32.bytes


BLOCKS = (Blocks(64, 32), Blocks(64, 64), Blocks(32, 128))
"""The first that has room and registers is taken."""


def tiles(w: Writer, pair: Pair, context: Context, sizes: Sequence[Blocks] = BLOCKS) -> bool:
    """Writes the launch of an attention; not where no block fits in shared memory."""
    fitting = (size.for_heads(*pair.sizes, context.target.shared) for size in sizes)
    size = next((size for size in fitting if size is not None), None)
    if size is None:
        return False
    _Launch(w, size, pair).emit()
    return True


@dataclass(frozen=True, slots=True)
class _Memory:
    """Shared memory of a block. `tile`: keys, later values. `peak`, `total`, `factor`: of each row,
    its greatest score, the sum of its powers, and what the sums so far are multiplied by; `most`,
    `part`: of each thread of a row."""

    queries: Buffer
    tile: Buffer
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
        rows, width = size.queries + PAD, self.pair.sizes[1]

        def shared(name: str, *shape: int) -> Buffer:
            return w.reserve(name, DType.F32, "shared", *shape)

        return _Memory(
            shared("queries", size.steps, rows), shared("tile", size.tile(width)),
            shared("scores", size.keys, rows),
            *(shared(name, size.queries) for name in ("peak", "total", "factor")),
            *(shared(name, size.parts, size.queries) for name in ("most", "part")),
        )  # fmt: skip

    @property
    def _width(self) -> int:
        """Of a tile of values."""
        return self.size.columns(self.pair.sizes[1])

    def _thread(self, memory: _Memory, thread: Dim, row: Dim, batch: At) -> None:
        w, size, length = self.w, self.size, self.pair.found.length
        across = size.keys // OWN
        down = w.named("own_row", thread // across * OWN)
        side = w.named("own_key", thread % across * OWN)
        own = OWN * (self._width // size.keys)
        sums = w.reserve("sums", DType.F32, "register", OWN, own)
        with w.range("i", OWN) as i, w.range("j", own) as j:
            w.add(Store(sums, (i, j), ZERO_F32))
        with w.when(below(thread, Dim.of(size.queries))):
            w.add(Store(memory.peak, (thread,), LOWEST), Store(memory.total, (thread,), ZERO_F32))
        whole = size.steps == self.pair.sizes[0]
        if whole:
            self._copy_queries(memory, thread, row, ZERO, batch)
        early = size.lines == size.keys
        with w.range("key_block", simplify(ceildiv(length, size.keys), w.bounds)) as number:
            key = w.named("key", number * size.keys)
            products = w.reserve("products", DType.F32, "register", OWN, OWN)
            with w.range("i", OWN) as i, w.range("j", OWN) as j:
                w.add(Store(products, (i, j), ZERO_F32))

            def multiply(part: Dim) -> None:
                step = part * size.steps
                w.add(Barrier("thread"))
                if not whole:
                    self._copy_queries(memory, thread, row, step, batch)
                self._copy_keys(memory, thread, key, step, batch)
                w.add(Barrier("thread"))
                self._multiply(memory, (down, side), products)

            def add(part: Dim) -> None:
                first = part * size.lines
                if not early:
                    w.add(Barrier("thread"))
                    self._copy_values(memory, thread, key + first, batch)
                    w.add(Barrier("thread"))
                self._add(memory, (down, side), first, sums)

            w.each("part", 0, -(-self.pair.sizes[0] // size.steps), multiply)
            self._score(memory, (down, side), (row, key), batch, products)
            w.add(Barrier("thread"))
            if early:
                self._copy_values(memory, thread, key, batch)
            self._powers(memory, thread)
            self._scale(memory, down, sums)
            w.each("part", 0, size.keys // size.lines, add)
        w.add(Barrier("thread"))
        self._finish(memory, (down, side), row, batch, sums)

    # Copies to shared memory

    def _copy_queries(self, memory: _Memory, thread: Dim, row: Dim, step: Dim, batch: At) -> None:
        load, rows = self.pair.scores.found.left, self.size.queries
        self._copy(load, rows, thread, (row, step), batch, lambda *at: memory.queries[at])

    def _copy_keys(self, memory: _Memory, thread: Dim, key: Dim, step: Dim, batch: At) -> None:
        load, keys = self.pair.scores.found.right, self.size.keys
        self._copy(load, keys, thread, (key, step), batch, lambda *at: self._key(memory, *at))

    def _key(self, memory: _Memory, step: Dim, key: Dim) -> Load:
        return memory.tile[(step * (self.size.keys + PAD) + key,)]

    def _value(self, memory: _Memory, line: Dim, column: Dim) -> Load:
        return memory.tile[(line * (self._width + PAD) + column,)]

    def _copy(
        self, load: Load, lines: int, thread: Dim, first: tuple[Dim, Dim], batch: At,
        place: Callable[[Dim, Dim], Load],
    ) -> None:  # fmt: skip
        """Steps of queries or keys; rows beyond the last one are the last one. `first`: row and
        step. `place`: of a step and a row."""
        w, product, steps = self.w, self.pair.scores, self.size.steps
        loops = product.rows if load == product.found.left else product.columns
        depth = extent(product.steps)
        rows = product.contiguous_steps(load)
        with self._elements(steps * lines, thread) as element:
            inner = steps if rows else lines
            outer = w.named("outer", element // inner)
            within = w.named("within", element % inner)
            line, step = (outer, within) if rows else (within, outer)
            to = place(step, line)
            position = clamped(first[0] + line, extent(loops), lines, w)
            beyond = [below(first[1] + step, depth)] if depth.constant % steps else []
            if beyond:
                w.add(Store(to.buffer, to.index, ZERO_F32))
            with w.when(*beyond):
                at = {**batch, **split(w, loops, position)}
                at |= split(w, product.steps, first[1] + step)
                w.add(Store(to.buffer, to.index, wide(product.value(w, load, at))))

    def _copy_values(self, memory: _Memory, thread: Dim, key: Dim, batch: At) -> None:
        """The values from a key on; zeros behind the last key and column."""
        w, product, size, width = self.w, self.pair.values, self.size, self._width
        columns = extent(product.columns)
        with self._elements(width * size.lines, thread) as element:
            line = w.named("line", element // width)
            column = w.named("column", element % width)
            conditions = [] if columns == width else [below(column, columns)]
            if simplify(self.pair.found.length % size.keys, w.bounds) != 0:
                conditions.append(below(key + line, self.pair.found.length))
            to = self._value(memory, line, column)
            if conditions:
                w.add(Store(to.buffer, to.index, ZERO_F32))
            with w.when(*conditions):
                at = {**batch, **split(w, product.columns, column)}
                at |= split(w, product.steps, key + line)
                value = wide(product.value(w, product.found.right, at))
                w.add(Store(to.buffer, to.index, value))

    @contextmanager
    def _elements(self, count: int, thread: Dim) -> Iterator[Dim]:
        """The elements of a tile that a thread copies."""
        w, threads = self.w, self.size.threads
        with w.range("e", -(-count // threads)) as e:
            element = w.named("element", thread + e * threads)
            with w.when(*[below(element, Dim.of(count))] if count % threads else ()):
                yield element

    # Products

    @contextmanager
    def _steps(self, name: str, count: int) -> Iterator[Dim]:
        """The steps of a sum, some of them without a loop in the code of a device."""
        each = max(n for n in range(1, UNROLLED + 1) if count % n == 0)
        with self.w.range(name, count // each) as outer, self.w.range(name, each) as inner:
            yield outer * each + inner

    def _multiply(self, memory: _Memory, own: tuple[Dim, Dim], products: Buffer) -> None:
        """Adds the products of the steps in shared memory."""
        w = self.w
        left, right = (w.reserve(n, DType.F32, "register", OWN) for n in ("left", "right"))
        with self._steps("d", self.size.steps) as d:
            w.micro("raot_load4_f32", **{"from": memory.queries[(d, own[0])]}, to=left)
            w.micro("raot_load4_f32", **{"from": self._key(memory, d, own[1])}, to=right)
            with w.range("i", OWN) as i, w.range("j", OWN) as j:
                total = apply("fma", left[(i,)], right[(j,)], products[(i, j)])
                w.add(Store(products, (i, j), total))

    def _score(
        self, memory: _Memory, own: tuple[Dim, Dim], first: tuple[Dim, Dim], batch: At,
        products: Buffer,
    ) -> None:  # fmt: skip
        """The scores of a block of keys; -inf behind the last key."""
        w, product, length = self.w, self.pair.scores, self.pair.found.length
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

    def _scale(self, memory: _Memory, row: Dim, sums: Buffer) -> None:
        """Multiplies sums that were made below another maximum."""
        w = self.w
        with w.range("i", OWN) as i:
            factor = Local(w.fresh("scale"), DType.F32)
            w.add(Declare(factor, memory.factor[(row + i,)]))
            with w.range("j", sums.shape[1]) as j:
                w.add(Store(sums, (i, j), Binary("*", sums[(i, j)], factor)))

    def _add(self, memory: _Memory, own: tuple[Dim, Dim], first: Dim, sums: Buffer) -> None:
        """Adds the values in shared memory, weighted by the powers of their scores, from the key
        `first` of the block on."""
        w, keys, count = self.w, self.size.keys, sums.shape[1]
        left = w.reserve("weights", DType.F32, "register", OWN)
        right = w.reserve("parts", DType.F32, "register", count)
        with self._steps("k", self.size.lines) as k:
            w.micro("raot_load4_f32", **{"from": memory.scores[(first + k, own[0])]}, to=left)
            for at in range(0, count.constant, OWN):
                source = self._value(memory, k, own[1] + at // OWN * keys)
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
        rows = Lines(self.pair.values.rows, row, size.queries, OWN, lambda n: own[0] + n)
        columns = Lines(
            self.pair.values.columns, ZERO, self._width, sums.shape[1].constant,
            lambda n: own[1] + n // OWN * size.keys + n % OWN,
        )  # fmt: skip
        finish_sums(w, self.pair.values, batch, (rows, columns), lambda i, j: sums[(i, j)])
