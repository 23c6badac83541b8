# SPDX-License-Identifier: Apache-2.0
"""Attention of half-precision values by matrix units: each warp computes sixteen rows of queries.

Queries stay in registers. Keys and values of a block are in one half of shared memory, while the
next ones are copied to the other half. The scores of a block are sums of a product in registers;
powers of two below the greatest score so far take their place, and are the left factor of the
second product as they lie. Sums of values that were made with a smaller maximum are multiplied by
the power of the difference, and one division at the end gives the results.

Source: Dao, "FlashAttention-2", arXiv:2307.08691.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import e, log2, prod

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, simplify
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Binary,
    Buffer,
    Declare,
    Lit,
    Load,
    Local,
    Select,
    Store,
    apply,
    binary,
    expressions,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.attention_operands import LOWEST, ZERO_F32, Pair, finish_score
from relax_aot.scheduling.devices.copies import VECTOR, Side, side_of
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
from relax_aot.scheduling.devices.units import COLUMNS, ROWS, STEPS
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

ADDRESSES = 34
"""Registers of a thread that hold no elements of matrices."""
LOG2_E = Lit(log2(e), DType.F32)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Warps of a block, and keys that it has in shared memory at a time."""

    warps: int
    keys: int

    @property
    def queries(self) -> int:
        return self.warps * ROWS

    @property
    def threads(self) -> int:
        return self.warps * LANES

    def bytes(self, depth: int, width: int) -> int:
        """Of shared memory at most."""
        tiles = [lines * self.keys + VECTOR * max(lines, self.keys) for lines in (depth, width)]
        return 2 * sum(tiles) * DType.F16.bytes

    def registers(self, depth: int, width: int) -> int:
        """Of a thread: queries, sums, scores, weights and others."""
        return depth // 4 + width // 2 + self.keys // 2 + self.keys // 4 + ADDRESSES

    @property
    def room(self) -> int:
        """Registers of a thread, where so many threads are resident as the printer asks for."""
        return 65536 // (self.threads * (512 // self.threads))


BLOCKS = (Blocks(4, 64), Blocks(6, 64), Blocks(4, 32), Blocks(6, 32), Blocks(4, 16), Blocks(6, 16))
"""The first that fits in shared memory and registers is taken."""


def matrices(w: Writer, pair: Pair, target: Target, sizes: Sequence[Blocks] = BLOCKS) -> bool:
    """Writes the launch of an attention of half-precision values, where the device has matrix
    units for them and a block fits."""
    kind = pair.scores.found.left.dtype
    factors = [(pair.scores, pair.scores.found.left), (pair.scores, pair.scores.found.right)]
    factors.append((pair.values, pair.values.found.right))
    types = {_type(*factor) for factor in factors}
    if types != {kind} or kind not in target.matrices:
        return False
    depth, width = (-(-size // STEPS) * STEPS for size in pair.sizes)
    for size in sizes:
        fits = size.registers(depth, width) <= size.room
        if fits and size.bytes(depth, width) <= target.shared:
            _Launch(w, size, pair, kind, depth, width).emit()
            return True
    return False


def _type(product: Product, load: Load) -> DType:
    computed = product.found.computed_at(load)
    return load.dtype if computed is None else computed.value.dtype


@dataclass(frozen=True, slots=True)
class _Registers:
    """Of the lanes of a warp. `sums`: of values, and in the columns behind them, of the powers
    alone, which multiply `ones`. `last`: the maximum of the blocks before, whose sums are
    multiplied by `factor`."""

    queries: Buffer
    scores: Buffer
    weights: Buffer
    sums: Buffer
    peak: Buffer
    last: Buffer
    factor: Buffer
    ones: Buffer


@dataclass(frozen=True, slots=True)
class _Launch:
    """The code of one block of warps. `depth` and `width`: of the matrices, zeros at their ends."""

    w: Writer
    size: Blocks
    pair: Pair
    kind: DType
    depth: int
    width: int

    def emit(self) -> None:
        w, size, scores, values = self.w, self.size, self.pair.scores, self.pair.values
        down = simplify(ceildiv(extent(scores.rows), size.queries), w.bounds)
        grid = simplify(extent(scores.batch) * down, w.bounds)
        with w.range("block", grid, axis="block") as block:
            batch = w.short("batch", block // down)
            row = w.let("row", (block - batch * down) * size.queries, ZERO, down * size.queries)
            at = split(w, scores.batch, batch)
            factors = ((scores, scores.found.right), (values, values.found.right))
            sides = (
                side_of(w, *factors[0], self.kind, (size.keys, self.depth), "key", zeros=True),
                side_of(w, *factors[1], self.kind, (self.width, size.keys), "value"),
            )
            with w.range("warp", size.warps, axis="warp") as warp:
                self._warp(sides, warp, row, at)

    def _warp(self, sides: tuple[Side, Side], warp: Dim, row: Dim, batch: At) -> None:
        w, size, length = self.w, self.size, self.pair.found.length
        memory = self._registers()
        own = w.named("own_row", row + warp * ROWS)
        self._start(memory, own, batch)
        parts = w.short("parts", ceildiv(length, size.keys))
        with w.when(below(ZERO, parts)):
            self._copy(sides, warp, batch, ZERO, ZERO)
        whole = w.short("whole_parts", dim_max(length // size.keys - 1, 0))
        with w.range("pair", ceildiv(whole, 2)) as pair, w.range("half", 2) as half:
            part = w.let("part", pair * 2 + half, ZERO, whole)
            with w.when(below(part, whole)):
                self._wait()
                next_key = (part + 1) * size.keys
                self._copy(sides, warp, batch, 1 - half, next_key, whole=True)
                self._block(memory, sides, half, (own, part * size.keys), batch)
        with w.range("part", parts, whole) as part:
            half = w.named("half", part % 2)
            self._wait()
            with w.when(below(part + 1, parts)):
                self._copy(sides, warp, batch, 1 - half, (part + 1) * size.keys)
            self._block(memory, sides, half, (own, part * size.keys), batch, last=True)
        self._finish(memory, row, warp, batch)

    def _wait(self) -> None:
        """What was copied is there, and what was there is not needed any more."""
        self.w.micro("raot_wait_copies")
        self.w.add(Barrier("warp"))

    def _block(
        self, memory: _Registers, sides: tuple[Side, Side], half: Dim, first: tuple[Dim, Dim],
        batch: At, *, last: bool = False,
    ) -> None:  # fmt: skip
        """Adds the keys of one half of shared memory. `first`: the first row of the warp and key.
        `last`: some keys may be beyond the last one."""
        self._multiply(memory, sides[0], half)
        self._finish_scores(memory, first, batch)
        if last and simplify(self.pair.found.length % self.size.keys, self.w.bounds) != 0:
            self._shut(memory, first[1])
        self._powers(memory)
        self._add(memory, sides[1], half)

    def _registers(self) -> _Registers:
        w, kind, keys = self.w, self.kind, self.size.keys

        def lanes(name: str, dtype: DType, *shape: int) -> Buffer:
            return w.reserve(name, dtype, "lane", LANES, *shape)

        peak, last, factor = (lanes(name, DType.F32, 2) for name in ("peak", "last", "factor"))
        queries = lanes("queries", kind, self.depth // STEPS, VECTOR)
        scores = lanes("scores", DType.F32, keys // COLUMNS, 4)
        weights = lanes("weights", kind, keys // STEPS, VECTOR)
        sums = lanes("sums", DType.F32, self.width // COLUMNS + 1, 4)
        return _Registers(
            queries, scores, weights, sums, peak, last, factor, lanes("ones", kind, 4)
        )

    @contextmanager
    def _lane(self) -> Iterator[Dim]:
        with self.w.range("lane", LANES, axis="lane") as lane:
            yield lane

    def _row(self, own: Dim, lane: Dim, i: Dim) -> dict[str, Dim]:
        """The loop variables of one of the two rows of a lane; beyond the last row, its own."""
        w, product = self.w, self.pair.scores
        position = clamped(own + lane // 4 + i * 8, extent(product.rows), self.size.queries, w)
        return split(w, product.rows, position)

    def _start(self, memory: _Registers, own: Dim, batch: At) -> None:
        """Loads queries; no keys so far."""
        w, product, depth = self.w, self.pair.scores, self.pair.sizes[0]
        with self._lane() as lane, w.range("n", 4) as n:
            w.add(Store(memory.ones, (lane, n), Lit(1.0, self.kind)))
        with self._lane() as lane, w.range("i", 2) as i:
            w.add(Store(memory.peak, (lane, i), LOWEST))
            at = {**batch, **self._row(own, lane, i)}
            with w.range("k", self.depth // STEPS) as k, w.range("n", 4) as n:
                step = k * STEPS + lane % 4 * 2 + n % 2 + n // 2 * 8
                place = (lane, k, n % 2 + i * 2 + n // 2 * 4)
                partial = depth != self.depth
                if partial:
                    w.add(Store(memory.queries, place, Lit(0.0, self.kind)))
                with w.when(*[below(step, Dim.of(depth))] if partial else ()):
                    moved = {**at, **split(w, product.steps, step)}
                    value = product.value(w, product.found.left, moved)
                    w.add(Store(memory.queries, place, value))
            with w.range("j", memory.sums.shape[1]) as j, w.range("n", 2) as n:
                w.add(Store(memory.sums, (lane, j, i * 2 + n), ZERO_F32))

    def _copy(
        self, sides: Sequence[Side], warp: Dim, batch: At, half: Dim, key: Dim,
        *, whole: bool = False,
    ) -> None:  # fmt: skip
        """Copies the keys and values from `key` on."""
        with self._lane() as lane:
            thread = self.w.named("thread", warp * LANES + lane)
            for side, first in zip(sides, ((key, ZERO), (ZERO, key)), strict=True):
                side.copy(self.w, thread, self.size.threads, batch, half, first, whole=whole)

    def _multiply(self, memory: _Registers, keys: Side, half: Dim) -> None:
        """The products of queries and a block of keys."""
        w, each = self.w, memory.scores.shape[1]
        with self._lane() as lane, w.range("j", each) as j, w.range("n", 4) as n:
            w.add(Store(memory.scores, (lane, j, n), ZERO_F32))
        with w.range("j", each // 2) as j, w.range("k", self.depth // STEPS) as k:
            source = keys.shared[keys.place(half, j * STEPS, k * STEPS)]
            self._product(memory.scores, memory.queries, keys, source, j, k)

    def _product(
        self, sums: Buffer, left: Buffer, side: Side, source: Load, j: Dim, k: Dim
    ) -> None:
        """Adds products of sixteen steps for sixteen columns, from pair `j` of matrices on."""
        w, kind = self.w, self.kind.value
        right = w.reserve("right", self.kind, "lane", LANES, VECTOR)
        w.micro(
            f"raot_load_right{side.order}_{kind}", to=right, **{"from": source}, pitch=side.pitch,
            lane_row=VECTOR,
        )  # fmt: skip
        with w.range("n", 2) as n:
            self._matrix(sums[(ZERO, j * 2 + n, ZERO)], left[(ZERO, k, ZERO)], right[(ZERO, n * 4)])

    def _matrix(self, sums: Load, left: Load, right: Load) -> None:
        rows = [prod(map(int, load.buffer.shape[1:])) for load in (sums, left, right)]
        self.w.micro(
            f"raot_mma_m16n8k16_{self.kind.value}", sums=sums, left=left, right=right,
            sums_row=rows[0], left_row=rows[1], right_row=rows[2],
        )  # fmt: skip

    def _finish_scores(self, memory: _Registers, first: tuple[Dim, Dim], batch: At) -> None:
        """What follows the products of queries and keys; beyond the last key, that of the last
        one."""
        w, product, length = self.w, self.pair.scores, self.pair.found.length
        keys, (own, key) = self.size.keys, first
        after = product.found.after
        loads = any(isinstance(expr, Load) for stmt in after for expr in expressions(stmt))
        with self._lane() as lane, w.range("i", 2) as i:
            at = {**batch, **(self._row(own, lane, i) if loads else {})}
            with w.range("j", keys // COLUMNS) as j, w.range("n", 2) as n:
                column = w.named("column", key + j * COLUMNS + lane % 4 * 2 + n)
                if loads:
                    at |= split(w, product.columns, clamped(column, length, keys, w))
                place = memory.scores[(lane, j, i * 2 + n)]
                finish_score(w, product, place, place, at)

    def _shut(self, memory: _Registers, key: Dim) -> None:
        """-inf as scores behind the last key."""
        w, length = self.w, self.pair.found.length
        with (
            self._lane() as lane,
            w.range("j", memory.scores.shape[1]) as j, w.range("n", 4) as n,
        ):  # fmt: skip
            column = key + j * COLUMNS + lane % 4 * 2 + n % 2
            place = memory.scores[(lane, j, n)]
            value = Select(below(column, length), place, LOWEST)
            w.add(Store(place.buffer, place.index, value))

    def _powers(self, memory: _Registers) -> None:
        """The powers of the scores of a block below the new maximum, and their sums."""
        w, each = self.w, memory.scores.shape[1]
        with self._lane() as lane, w.range("i", 2) as i:
            w.add(Store(memory.last, (lane, i), memory.peak[(lane, i)]))
        w.micro(
            "raot_row_peaks_f32", peaks=memory.peak, scores=memory.scores, count=each,
            lane_row=each * 4,
        )  # fmt: skip
        with self._lane() as lane:
            with w.range("i", 2) as i:
                peak, shift = memory.peak[(lane, i)], Local(w.fresh("shift"), DType.F32)
                safe = Select(Binary("==", peak, LOWEST), ZERO_F32, peak)
                w.add(Declare(shift, Binary("*", safe, Lit(-LOG2_E.value, DType.F32))))
                below_peak = apply("fma", memory.last[(lane, i)], LOG2_E, shift)
                w.add(Store(memory.factor, (lane, i), below_peak))
                with w.range("j", each) as j, w.range("n", 2) as n:
                    place = memory.scores[(lane, j, i * 2 + n)]
                    w.add(Store(place.buffer, place.index, apply("fma", place, LOG2_E, shift)))
            w.micro("raot_powers_of_2_f32", x=memory.factor[(lane, ZERO)], count=2)
            with w.range("j", each) as j:
                w.micro("raot_powers_of_2_f32", x=memory.scores[(lane, j, ZERO)], count=4)
            with w.range("j", each) as j:
                half = memory.weights[(lane, j // 2, j % 2 * 4)]
                name = f"raot_round4_{self.kind.value}"
                w.micro(name, to=half, **{"from": memory.scores[(lane, j, ZERO)]})
            with w.range("j", memory.sums.shape[1]) as j, w.range("n", 4) as n:
                place = memory.sums[(lane, j, n)]
                scaled = Binary("*", place, memory.factor[(lane, n // 2)])
                w.add(Store(place.buffer, place.index, scaled))

    def _add(self, memory: _Registers, values: Side, half: Dim) -> None:
        """Adds the values of a block of keys, weighted by the powers of their scores."""
        w = self.w
        total = Dim.of(self.width // COLUMNS)
        with w.range("k", self.size.keys // STEPS) as k:
            with w.range("j", self.width // STEPS) as j:
                source = values.shared[values.place(half, j * STEPS, k * STEPS)]
                self._product(memory.sums, memory.weights, values, source, j, k)
            weights, ones = memory.weights[(ZERO, k, ZERO)], memory.ones[(ZERO, ZERO)]
            self._matrix(memory.sums[(ZERO, total, ZERO)], weights, ones)

    def _finish(self, memory: _Registers, row: Dim, warp: Dim, batch: At) -> None:
        """Divides by the sums of the powers, and stores what follows."""
        w, found, product = self.w, self.pair.found, self.pair.values
        with self._lane() as lane:
            with w.range("i", 2) as i:
                whole = Local(w.fresh("whole"), DType.F32)
                w.add(Declare(whole, memory.sums[(lane, Dim.of(self.width // COLUMNS), i * 2)]))
                empty = binary("==", found.length, 0)
                if found.one_total:
                    empty = Binary("==", whole, ZERO_F32)
                w.add(Assign(whole, Select(empty, Lit(1.0, DType.F32), whole)))
                with w.range("j", self.width // COLUMNS) as j, w.range("n", 2) as n:
                    place = memory.sums[(lane, j, i * 2 + n)]
                    w.add(Store(place.buffer, place.index, Binary("/", place, whole)))
            rows = Lines(
                product.rows, row, self.size.queries, 2, lambda n: warp * ROWS + n * 8 + lane // 4
            )
            columns = Lines(
                product.columns, ZERO, self.width, self.width // 4,
                lambda n: n // 2 * COLUMNS + n % 2 + lane % 4 * 2,
            )  # fmt: skip
            finish_sums(
                w, product, batch, (rows, columns),
                lambda i, j: memory.sums[(lane, j // 2, i * 2 + j % 2)],
            )  # fmt: skip
