# SPDX-License-Identifier: Apache-2.0
"""Attention of half-precision values by matrix units: each warp computes 16 or 32 rows of queries.

Queries stay in registers. The keys of a block are copied to shared memory while the values of the
block before are used, and values while keys are. The scores of a block are sums of a product in
registers; powers of two below the greatest score so far take their place, and are the left factor
of the second product as they lie. Sums of values that were made with a smaller maximum are
multiplied by the power of the difference, and one division at the end gives the results.

Source: Dao, "FlashAttention-2", arXiv:2307.08691.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import e, log2, prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.loops import (
    Barrier,
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Lit,
    Load,
    Local,
    Select,
    Store,
    apply,
    binary,
    parts,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.attention_bits import (
    HALF,
    NUMBER,
    Bits,
    conditions_of,
    key_of,
    with_bits,
    words_of,
)
from relax_aot.scheduling.devices.attention_blocks import (
    BLOCKS,
    COUNTS,
    GATHERED,
    REST,
    ROOM,
    Blocks,
    mask_of,
    with_fewer_registers,
)
from relax_aot.scheduling.devices.attention_counts import counts_of, rows_of
from relax_aot.scheduling.devices.attention_operands import (
    LOWEST,
    ZERO_F32,
    Pair,
    divisor_of,
    queries_of_blocks,
    signed,
    type_of_factor,
)
from relax_aot.scheduling.devices.attention_peaks import least_peak, rate_below
from relax_aot.scheduling.devices.attention_registers import Place, Registers, registers_of
from relax_aot.scheduling.devices.attention_scores import (
    ONE,
    Score,
    is_far,
    product_of_factors,
    reduced,
    with_locals,
)
from relax_aot.scheduling.devices.attention_seen import (
    AHEAD,
    NEAR,
    End,
    Range,
    Seen,
    ahead_of,
    range_of,
    seen_by_all,
    seen_of,
)
from relax_aot.scheduling.devices.copies import Side, side_of
from relax_aot.scheduling.devices.operands import (
    At,
    Lines,
    below,
    clamped,
    extent,
    finish_sums,
    split,
)
from relax_aot.scheduling.devices.units import COLUMNS, ROWS, STEPS
from relax_aot.scheduling.devices.vectors import VECTOR, vectors
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

LOG2_E = Lit(log2(e), DType.F32)
FEW_COPIES = 2
"""Vectors of a side that a thread copies from addresses of their own, as few as narrow heads have.
Those of more would take too many registers."""


def matrices(w: Writer, pair: Pair, context: Context, sizes: Sequence[Blocks] = BLOCKS) -> bool:
    """Writes the launch of an attention of half-precision values, where the device has matrix
    units for them and a block fits."""
    kind = pair.scores.found.left.dtype
    factors = [(pair.scores, pair.scores.found.left), (pair.scores, pair.scores.found.right)]
    factors.append((pair.values, pair.values.found.right))
    types = {type_of_factor(*factor) for factor in factors}
    if types != {kind} or kind not in context.target.matrices:
        return False
    depth, width = (-(-size // STEPS) * STEPS for size in pair.sizes)
    rows = greatest(extent(pair.scores.rows), w.bounds)
    score = reduced(pair.score, pair.scores)
    conditions = conditions_of(score, pair.scores)
    mask = mask_of(score, pair.scores, conditions)
    sides = (
        vectors(product, product.found.right, product.columns, w.bounds)[0]
        for product in (pair.scores, pair.values)
    )
    more = GATHERED * sum(vector == 0 for vector in sides)
    if pair.values.found.left.dtype is DType.F32:
        more += REST
    fewest, seen = min(size.queries for size in sizes), seen_of(score.value, pair.scores)

    def registers(size: Blocks) -> int:
        return size.registers(depth, width, mask) + more

    def fits(size: Blocks) -> bool:
        room = registers(size) <= ROOM and size.is_short(depth, width, mask, seen)
        room &= size.bytes(depth, width) <= size.room(context.target.shared)
        return room and (size.queries == fewest or fewest < rows)

    if not (fitting := [size for size in sizes if fits(size)]):
        return False
    size = with_fewer_registers(fitting, registers, context.reduced_at(()))
    bits = tuple(words_of(w, pair.scores, conditions, (size.queries, size.keys)))
    counted = registers(size) + COUNTS * size.matrices <= ROOM
    _Launch(w, size, pair, kind, depth, width, bits, is_far(score), counted).emit()
    return True


@dataclass(frozen=True, slots=True)
class _Launch:
    """The code of one block of warps. `depth` and `width`: of the matrices, zeros at their ends.
    `far`: masks may be beyond half precision. `counted`: there are registers to count keys."""

    w: Writer
    size: Blocks
    pair: Pair
    kind: DType
    depth: int
    width: int
    bits: tuple[Bits, ...]
    far: bool
    counted: bool

    def emit(self) -> None:
        w, size, scores, values = self.w, self.size, self.pair.scores, self.pair.values
        with queries_of_blocks(w, self.pair, size.queries) as (row, batch):
            some = FEW_COPIES * VECTOR * size.threads * (not size.shared)
            few = size.keys * max(self.depth, self.width) <= some
            side = partial(side_of, w, kind=self.kind, halves=1, apart=few)
            shapes = (size.keys, self.depth), (self.width, size.keys), (size.queries, self.depth)
            sides = [
                side(scores, scores.found.right, size=shapes[0], name="key", zeros=True),
                side(values, values.found.right, size=shapes[1], name="value"),
            ]
            if size.shared:
                left = scores.found.left
                sides.append(side(scores, left, size=shapes[2], name="query", zeros=True))
            with w.range("warp", size.warps, axis="warp") as warp:
                self._warp(sides, warp, row, batch)

    def _warp(self, sides: Sequence[Side], warp: Dim, row: Dim, batch: At) -> None:
        w, size, length = self.w, self.size, self.pair.found.length
        product = self.pair.scores
        floats = self.pair.values.found.left.dtype is DType.F32
        shape = (STEPS if size.shared else self.depth, self.width)
        memory = registers_of(w, self.kind, size, shape, floats=floats, moving=len(self.moving))
        score = reduced(self.pair.score, product).declared(w, batch)
        rate = Local(w.fresh("rate"), DType.F32)
        w.add(Declare(rate, product_of_factors(score.factor or ONE, LOG2_E)))
        seen = seen_of(score.value, product)
        counts = None
        if self.counted:
            counts = counts_of(w, seen, product, size.matrices * 2, size.keys)
        own_row = w.named("own_row", row + warp * size.rows)
        at = Place(own_row, ZERO, batch, score, rate, counts=counts)
        self._start(memory, at)
        keys = Range(ZERO, length)
        if seen is not None:
            keys = range_of(w, seen, product, (row, size.queries), batch, length)
        count = w.short("parts", ceildiv(keys.end, size.keys))
        last = w.short("last_part", dim_max(count - 1, 0))
        final = last * size.keys if self._even else dim_max(keys.end - size.keys, 0)
        final = w.named("final", final)
        first = key = ZERO
        if keys.start != ZERO:
            first = w.let("first_part", dim_min(keys.start // size.keys, last), ZERO, last)
            key = w.named("first_key", dim_min(first * size.keys, final))
        for queries in sides[2:]:
            self._copy(queries, warp, batch, row)
        with w.when(below(ZERO, count)):
            self._copy(sides[0], warp, batch, key)
        w.micro("raot_end_copies")

        def by_bits(score: Score) -> Score:
            value = with_bits(score.value, self.bits)
            start = None if score.start is None else with_bits(score.start, self.bits)
            return replace(score, value=value, start=start)

        def blocks(start: Dim, stop: Dim, value: Expr, ends: tuple[End, ...] = ()) -> None:
            with w.range("part", stop - start) as number:
                part = start + number
                own = replace(at, key=part * size.keys, whole=True, part=part, ends=ends)
                own = replace(own, score=by_bits(replace(score, value=value)))
                after = own.key + size.keys
                after = after if self._even else dim_min(after, keys.end - size.keys)
                self._block(memory, sides, warp, own, after)

        def choosing(start: Dim, stop: Dim, seen: Seen) -> None:
            if counts is None:
                blocks(start, stop, seen.chosen, seen.ends)
            else:
                blocks(start, stop, counts.chosen(seen))

        if seen is None:
            blocks(first, last, score.value)
        else:
            for start, stop in seen_by_all(w, seen, keys, (first, last), size.keys):
                if start != first:
                    choosing(first, start, seen)
                blocks(start, stop, seen.value)
                first = stop
            choosing(first, last, seen)
        with w.when(below(ZERO, count)):
            own = replace(at, key=final, part=last)
            if seen is None:  # the last block begins with the same key for all queries
                own = replace(own, score=by_bits(score))
            self._block(memory, sides, warp, own, last * size.keys)
        self._finish(memory, row, warp, batch)

    @property
    def _even(self) -> bool:
        """Whether the last block has as many keys as the others."""
        return simplify(self.pair.found.length % self.size.keys, self.w.bounds) == 0

    def _block(
        self, memory: Registers, sides: Sequence[Side], warp: Dim, at: Place, next_key: Dim
    ) -> None:
        """Adds a block of keys, which were copied, and copies its values and those from `next_key`
        on. In the last block, those before are in another block, too."""
        w = self.w
        self._start_scores(memory, at)
        w.micro("raot_wait_ended_copies")
        w.add(Barrier("warp"))
        self._copy(sides[1], warp, at.batch, at.key, whole=at.whole)
        w.micro("raot_end_copies")
        self._multiply(memory, sides, warp, at.score)
        if at.whole:
            w.add(Barrier("warp"))
            self._copy(sides[0], warp, at.batch, w.named("next_key", next_key), whole=True)
        w.micro("raot_end_copies")
        self._finish_scores(memory, at)
        if not at.whole and not self._even:
            self._shut(memory, at.key, next_key)
        self._powers(memory, at.rate)
        self._add_powers(memory)
        w.micro("raot_wait_older_copies")
        w.add(Barrier("warp"))
        self._add(memory, sides[1])

    @property
    def moving(self) -> tuple[For, ...]:
        """The loops over rows that scores depend on, where there are several."""
        product, score = self.pair.scores, reduced(self.pair.score, self.pair.scores)
        exprs = [expr for expr in (score.value, score.start) if expr is not None]
        return rows_of(product, exprs, counted=self.counted) if len(product.rows) > 1 else ()

    @contextmanager
    def _lane(self) -> Iterator[Dim]:
        with self.w.range("lane", LANES, axis="lane") as lane:
            yield lane

    @contextmanager
    def _rows(self, lane: Dim, own: Dim) -> Iterator[tuple[Dim, Dim, Dim, Dim]]:
        """The rows of a lane: which of its matrices, the half of that, the number of the row of the
        lane, and the row."""
        with self.w.range("i", self.size.matrices * 2) as i:
            yield i // 2, i % 2, i, own + lane // 4 + i * COLUMNS

    def _row(self, row: Dim) -> dict[str, Dim]:
        """The loop variables of a row; beyond the last one, its own."""
        w, product = self.w, self.pair.scores
        return split(w, product.rows, clamped(row, extent(product.rows), self.size.queries, w))

    def _places(self, memory: Registers, lane: Dim, i: Dim, row: Dim) -> dict[str, Dim]:
        """The loop variables of a row that scores depend on."""
        if memory.places is None:
            return self._row(row)
        w, at = self.w, dict[str, Dim]()
        for number, loop in enumerate(self.moving):
            name, value = w.fresh(loop.variable), memory.places[(lane, i, Dim.of(number))]
            last = dim_max(loop.stop - 1, loop.start)
            w.add(Bind(name, Cast(value, DType.I64), loop.start, last, "clamped"))
            w.bounds = w.bounds.with_value(name, loop.start, last)
            at[loop.variable] = Dim.of(name)
        return at

    def _start(self, memory: Registers, at: Place) -> None:
        """Loads queries; no keys so far."""
        w, product, depth = self.w, self.pair.scores, self.pair.sizes[0]
        one, floor = Lit(1.0, self.kind), Local(w.fresh("floor"), DType.F32)
        w.add(Declare(floor, least_peak(at.rate, far=self.far)))
        with self._lane() as lane, w.range("n", 4) as n:
            w.add(Store(memory.ones, (lane, n), one))
        if memory.minus is not None:
            with self._lane() as lane, w.range("n", 2) as n:
                same = binary("==", lane % 4 * 2 + n, lane // 4)
                sign = Select(same, Lit(-1.0, self.kind), Lit(0.0, self.kind))
                w.add(Store(memory.minus, (lane, n), sign))
        with self._lane() as lane, self._rows(lane, at.row) as (m, half, i, row):
            w.add(Store(memory.peak, (lane, i), floor), Store(memory.whole, (lane, i), ZERO_F32))
            place_of = {**at.batch, **self._row(row)}
            if at.counts is not None:
                at.counts.start(w, lane, i, place_of, self.pair.found.length)
            for number, loop in enumerate(self.moving):
                assert memory.places is not None
                own = Cast(Index(place_of[loop.variable]), DType.I32)
                w.add(Store(memory.places, (lane, i, Dim.of(number)), own))
            count = 0 if self.size.shared else self.depth // STEPS
            with w.range("k", count) as k, w.range("n", 4) as n:
                step = k * STEPS + lane % 4 * 2 + n % 2 + n // 2 * 8
                place = (lane, m, k, n % 2 + half * 2 + n // 2 * 4)
                if partial := depth != self.depth:
                    w.add(Store(memory.queries, place, Lit(0.0, self.kind)))
                with w.when(*[below(step, Dim.of(depth))] if partial else ()):
                    moved = {**place_of, **split(w, product.steps, step)}
                    value = product.value(w, product.found.left, moved)
                    w.add(Store(memory.queries, place, signed(value, at.score, self.kind)))
            with w.range("j", memory.sums.shape[2]) as j, w.range("n", 2) as n:
                w.add(Store(memory.sums, (lane, m, j, half * 2 + n), ZERO_F32))

    def _copy(self, side: Side, warp: Dim, batch: At, key: Dim, *, whole: bool = False) -> None:
        """Copies the keys or values from `key` on."""
        first = (key, ZERO) if side.zeros else (ZERO, key)
        with self._lane() as lane:
            thread = self.w.named("thread", warp * LANES + lane)
            side.copy(self.w, thread, self.size.threads, batch, ZERO, first, whole=whole)

    # Scores

    @contextmanager
    def _each_score(
        self, memory: Registers, at: Place, expr: Expr | None
    ) -> Iterator[tuple[Load, dict[str, Dim], Mapping[Local, Expr]]]:
        """The place of each score, the loop variables that an expression needs there, and its words
        of bits. A row or key beyond the last one is that one."""
        w, product, keys = self.w, self.pair.scores, self.size.keys
        used = indexed_by(expr) if expr is not None else frozenset[str]()
        locals_ = {part for part in parts(expr) if isinstance(part, Local)} if expr else ()
        bits = [one for one in self.bits if one.word in locals_]
        by_row, by_key = (
            bool(used & {loop.variable for loop in loops})
            for loops in (product.rows, product.columns)
        )
        with self._lane() as lane, self._rows(lane, at.row) as (m, half, i, row):
            moving = {**at.batch, **(self._places(memory, lane, i, row) if by_row else {})}
            steps = [*self._ahead(memory, at, lane, i, row)]
            words = dict[Local, Expr]()
            for one in bits:
                word = Local(w.fresh("open"), DType.I32)
                w.add(Declare(word, one.load(at.batch, at.part, at.row + m * ROWS, lane)))
                words[one.word] = word
            if at.counts is not None and at.counts.word in locals_:
                words[at.counts.word] = at.counts.bits(w, lane, i, at.part, self.pair.found.length)
            with w.range("j", keys // COLUMNS) as j, w.range("n", 2) as n:
                moving |= {NUMBER: j * 2 + n, HALF: half}
                for number, (ahead, back) in enumerate(steps):
                    moving[AHEAD.format(number)] = ahead
                    moving[NEAR.format(number)] = j * COLUMNS + n - back
                if by_key:
                    key = at.key + key_of(lane, j, n)
                    if not at.whole:
                        key = clamped(key, self.pair.found.length, keys, w)
                    moving |= split(w, product.columns, key)
                yield memory.scores[(lane, m, j, half * 2 + n)], moving, words

    def _ahead(
        self, memory: Registers, at: Place, lane: Dim, i: Dim, row: Dim
    ) -> Iterator[tuple[Dim, Dim]]:
        """Of the ends that a score compares with."""
        rows, above = self.pair.scores.rows, i * COLUMNS

        def places() -> At:
            if len(rows) > 1:
                return {**at.batch, **self._places(memory, lane, i, row)}
            return {**at.batch, **split(self.w, rows, row - above)}

        return ahead_of(self.w, at.ends, rows, above, at.key + lane % 4 * 2, places)

    def _start_scores(self, memory: Registers, at: Place) -> None:
        """What sums of products begin with."""
        start = at.score.start
        with self._each_score(memory, at, start) as (place, moving, words):
            value: Expr = ZERO_F32
            if start is not None:
                value = with_locals(substitute_in(start, moving), words)
            self.w.add(Store(place.buffer, place.index, value))

    def _multiply(self, memory: Registers, sides: Sequence[Side], warp: Dim, score: Score) -> None:
        """The products of queries and a block of keys."""
        w, (keys, _, *queries), each = self.w, sides, self.size.keys // STEPS
        for side in queries:
            with w.range("k", self.depth // STEPS) as k:
                with w.range("m", self.size.matrices) as m:
                    behind = side.place(ZERO, m * ROWS, k * STEPS)
                    to, own = memory.queries[(ZERO, m, ZERO, ZERO)], warp * self.size.rows
                    side.read(w, "left", own, behind, to, self.size.matrices * VECTOR)
                if score.negative is not None:
                    with self._lane() as lane, w.range("m", self.size.matrices * VECTOR) as m:
                        one = memory.queries[(lane, m // VECTOR, ZERO, m % VECTOR)]
                        w.add(Store(one.buffer, one.index, signed(one, score, self.kind)))
                with w.range("j", each) as j:
                    behind = keys.place(ZERO, j * STEPS, k * STEPS)
                    self._product(memory.scores, [memory.queries], keys, behind, j, ZERO)
        if not queries:
            with w.range("j", each) as j, w.range("k", self.depth // STEPS) as k:
                behind = keys.place(ZERO, j * STEPS, k * STEPS)
                self._product(memory.scores, [memory.queries], keys, behind, j, k)

    def _product(
        self, sums: Buffer, left: Sequence[Buffer], side: Side, behind: Sequence[Dim],
        j: Dim, k: Dim,
    ) -> None:  # fmt: skip
        """Adds products of sixteen steps for sixteen columns, from pair `j` of matrices on."""
        w = self.w
        right = w.reserve("right", self.kind, "lane", LANES, VECTOR)
        side.read(w, "right", ZERO, behind, right[(ZERO, ZERO)], VECTOR)
        with w.range("m", self.size.matrices) as m, w.range("n", 2) as n:
            total = sums[(ZERO, m, j * 2 + n, ZERO)]
            for one in left:
                self._matrix(total, one[(ZERO, m, k, ZERO)], right[(ZERO, n * 4)])

    def _matrix(self, sums: Load, left: Load, right: Load, steps: int = STEPS) -> None:
        rows = [prod(map(int, load.buffer.shape[1:])) for load in (sums, left, right)]
        self.w.micro(
            f"raot_mma_m16n8k{steps}_{self.kind.value}", sums=sums, left=left, right=right,
            sums_row=rows[0], left_row=rows[1], right_row=rows[2],
        )  # fmt: skip

    def _finish_scores(self, memory: Registers, at: Place) -> None:
        """What follows the products of queries and keys."""
        if not at.score.is_sum:
            with self._each_score(memory, at, at.score.value) as (place, moving, words):
                value = with_locals(at.score.of(place, moving), words)
                self.w.add(Store(place.buffer, place.index, value))

    def _shut(self, memory: Registers, key: Dim, first: Dim) -> None:
        """-inf as scores before the `first` key and behind the last one."""
        w, length, (_, count, each, _) = self.w, self.pair.found.length, memory.scores.shape
        with (
            self._lane() as lane, w.range("m", count) as m,
            w.range("j", each) as j, w.range("n", 4) as n,
        ):  # fmt: skip
            column = key + j * COLUMNS + lane % 4 * 2 + n % 2
            place = memory.scores[(lane, m, j, n)]
            inside = Binary("&&", binary("<=", first, column), below(column, length))
            w.add(Store(place.buffer, place.index, Select(inside, place, LOWEST)))

    def _powers(self, memory: Registers, rate: Expr) -> None:
        """The powers of the scores of a block below the new maximum, and their sums."""
        w, (_, count, each, _) = self.w, memory.scores.shape
        minus_one = Lit(-1.0, DType.F32)
        with self._lane() as lane, w.range("i", count * 2) as i:
            w.add(Store(memory.last, (lane, i), memory.peak[(lane, i)]))
        with w.range("m", count) as m:
            w.micro(
                "raot_row_peaks_f32", peaks=memory.peak[(ZERO, m * 2)],
                scores=memory.scores[(ZERO, m, ZERO, ZERO)], count=each,
                lane_row=count * each * 4, peaks_row=count * 2,
            )  # fmt: skip
        with self._lane() as lane:
            with self._rows(lane, ZERO) as (m, half, i, _):
                peak, shift = memory.peak[(lane, i)], Local(w.fresh("shift"), DType.F32)
                own = Local(w.fresh("own_rate"), DType.F32)
                w.add(Declare(own, rate_below(peak, rate, far=self.far)))
                w.add(Declare(shift, Binary("*", peak, Binary("*", own, minus_one))))
                below_peak = apply("fma", memory.last[(lane, i)], own, shift)
                w.add(Store(memory.factor, (lane, i), below_peak))
                with w.range("j", each) as j, w.range("n", 2) as n:
                    place = memory.scores[(lane, m, j, half * 2 + n)]
                    w.add(Store(place.buffer, place.index, apply("fma", place, own, shift)))
            first = memory.factor[(lane, ZERO)]
            w.micro("raot_powers_of_2_f32", x=first, count=count * 2)
            with w.range("m", count) as m, w.range("j", each) as j:
                place = memory.scores[(lane, m, j, ZERO)]
                w.micro("raot_powers_of_2_f32", x=place, count=4)
                half_of = memory.weights[(lane, m, j // 2, j % 2 * 4)]
                w.micro(f"raot_round4_{self.kind.value}", to=half_of, **{"from": place})
        if memory.rest is not None and memory.minus is not None:
            self._keep_rest(memory, memory.rest, memory.minus)

    def _keep_rest(self, memory: Registers, rest: Buffer, minus: Buffer) -> None:
        """What the weights of a block lose by rounding. Rounded ones are the left factor of a
        product whose sums are weights: lanes have their numbers of both in the same places."""
        w, (_, count, each, _) = self.w, memory.scores.shape
        with w.range("m", count) as m, w.range("j", each) as j:
            lost, half = memory.scores[(ZERO, m, j, ZERO)], (ZERO, m, j // 2, j % 2 * 4)
            self._matrix(lost, memory.weights[half], minus[(ZERO, ZERO)], COLUMNS)
        with self._lane() as lane, w.range("m", count) as m, w.range("j", each) as j:
            w.micro(
                f"raot_round4_{self.kind.value}", to=rest[(lane, m, j // 2, j % 2 * 4)],
                **{"from": memory.scores[(lane, m, j, ZERO)]},
            )  # fmt: skip

    def _add_powers(self, memory: Registers) -> None:
        """Adds the powers of the scores of a block, as products with ones."""
        w, count = self.w, self.size.matrices
        powers = w.reserve("powers", DType.F32, "lane", LANES, count, 4)
        with self._lane() as lane, w.range("m", count) as m, w.range("n", 4) as n:
            w.add(Store(powers, (lane, m, n), ZERO_F32))
        with w.range("k", self.size.keys // STEPS) as k, w.range("m", count) as m:
            for one in memory.parts:
                own, left = powers[(ZERO, m, ZERO)], one[(ZERO, m, k, ZERO)]
                self._matrix(own, left, memory.ones[(ZERO, ZERO)])
        with self._lane() as lane, self._rows(lane, ZERO) as (m, half, i, _):
            place, own = memory.whole[(lane, i)], powers[(lane, m, half * 2)]  # as all columns
            total = apply("fma", place, memory.factor[(lane, i)], own)
            w.add(Store(place.buffer, place.index, total))

    def _add(self, memory: Registers, values: Side) -> None:
        """Adds the values of a block of keys, weighted by the powers of their scores."""
        w = self.w
        with w.range("j", self.width // STEPS) as j:
            self._add_first(memory, values, j)
            with w.range("k", self.size.keys // STEPS, 1) as k:
                behind = values.place(ZERO, j * STEPS, k * STEPS)
                self._product(memory.sums, memory.parts, values, behind, j, k)

    def _add_first(self, memory: Registers, values: Side, j: Dim) -> None:
        """Adds the values of the first keys. Their products begin with 0; sums that were made below
        another maximum are multiplied by the factor where they are added."""
        w, (lanes, count, _, own) = self.w, memory.sums.shape
        first = w.reserve("first", DType.F32, "lane", lanes, count, STEPS // COLUMNS, own)

        @contextmanager
        def each() -> Iterator[tuple[Dim, ...]]:
            with (
                self._lane() as lane, w.range("m", count) as m,
                w.range("t", first.shape[2]) as t, w.range("n", own) as n,
            ):  # fmt: skip
                yield lane, m, t, n

        with each() as place:
            w.add(Store(first, place, ZERO_F32))
        behind = values.place(ZERO, j * STEPS, ZERO)
        self._product(first, memory.parts, values, behind, ZERO, ZERO)
        with each() as (lane, m, t, n):
            total = memory.sums[(lane, m, j * first.shape[2] + t, n)]
            factor = memory.factor[(lane, m * 2 + n // 2)]
            added = apply("fma", total, factor, first[(lane, m, t, n)])
            w.add(Store(memory.sums, total.index, added))

    def _finish(self, memory: Registers, row: Dim, warp: Dim, batch: At) -> None:
        """Divides by the sums of the powers, and stores what follows."""
        w, product, size, sums = self.w, self.pair.values, self.size, memory.sums
        with self._lane() as lane:
            with self._rows(lane, ZERO) as (m, half, i, _):
                divisor = divisor_of(w, self.pair.found, memory.whole[(lane, i)])
                with w.range("j", self.width // COLUMNS) as j, w.range("n", 2) as n:
                    place = sums[(lane, m, j, half * 2 + n)]
                    w.add(Store(sums, place.index, Binary("/", place, divisor)))
            rows = Lines(
                product.rows, row, size.queries, size.matrices * 2,
                lambda n: warp * size.rows + n * COLUMNS + lane // 4,
            )  # fmt: skip
            columns = Lines(
                product.columns, ZERO, self.width, self.width // 4,
                lambda n: n // 2 * COLUMNS + n % 2 + lane % 4 * 2,
            )  # fmt: skip
            finish_sums(
                w, product, batch, (rows, columns),
                lambda i, j: sums[(lane, i // 2, j // 2, i % 2 * 2 + j % 2)],
            )  # fmt: skip
