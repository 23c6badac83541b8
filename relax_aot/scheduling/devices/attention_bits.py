# SPDX-License-Identifier: Apache-2.0
"""Masks in memory that choose scores, as bits in the order in which lanes have scores.

A lane of an attention by matrix units has every fourth pair of the keys of a block. Read as they
lie, a mask takes a load and a comparison for each score, at addresses that have no alignment. A
launch before the attention computes each condition once, for all heads that share it, and stores
those of a lane together: the attention loads one word for the keys that a lane has of a row, whose
bits become predicates several at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    parts,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.attention_scores import Score
from relax_aot.scheduling.devices.operands import At, Product, below, clamped, extent, split
from relax_aot.scheduling.devices.units import COLUMNS, ROWS
from relax_aot.scheduling.devices.window_bits import NO_BIT, bit_at, is_set
from relax_aot.scheduling.writer import Writer

QUAD = 4
"""Lanes that have the keys of one row."""
THREADS = 256
NUMBER, HALF = "_number", "_half"
"""The variables of a score: its number in its row and lane, and which half of a matrix of rows has
that row."""
WIDTH = 16
"""Bits of a row in a word."""
Place = tuple[Dim, Dim, Dim]
"""A block of keys, a pair of rows and a lane of a quad."""


@dataclass(frozen=True, slots=True)
class Bits:
    """A condition, its words by the values of `batch`, blocks of keys, pairs of rows (`by_row`,
    else one for all) and lanes, and the local that holds a word where scores are computed. The rows
    of a pair are those that a lane has of a matrix."""

    condition: Expr
    batch: tuple[For, ...]
    by_row: bool
    words: Buffer
    word: Local

    @property
    def number(self) -> Dim:
        """Of the bit of a score."""
        return Dim.of(NUMBER) + Dim.of(HALF) * WIDTH

    def load(self, at: At, part: Dim, row: Dim, lane: Dim) -> Expr:
        """The word of a lane for a block of keys and the matrix that begins with a row."""
        return Load(self.words, self.place(at, part, row // 2 + lane // QUAD, lane % QUAD))

    def place(self, at: At, part: Dim, pair: Dim, own: Dim) -> tuple[Dim, ...]:
        batch = (at[loop.variable] - loop.start for loop in self.batch)
        return (*batch, part, pair if self.by_row else ZERO, own)


def key_of(lane: Dim, j: Dim, n: Dim) -> Dim:
    """The key of a score in its block: number `n` of those that a lane has of matrix `j`."""
    return j * COLUMNS + lane % QUAD * 2 + n


def conditions_of(score: Score, product: Product) -> tuple[Expr, ...]:
    """What choices by a mask in memory depend on, each once."""
    (key,) = product.columns
    exprs = [score.value, *([score.start] if score.start is not None else [])]
    every = (part for expr in exprs for part in parts(expr) if isinstance(part, Select))
    found = dict.fromkeys(select.condition for select in every)
    return tuple(one for one in found if key.variable in indexed_by(one) and _is_mask(one))


def _is_mask(condition: Expr) -> bool:
    every = [*parts(condition)]
    return any(isinstance(part, Load) for part in every) and not any(
        isinstance(part, Local) for part in every
    )


def words_of(
    w: Writer, product: Product, conditions: Sequence[Expr], size: tuple[int, int]
) -> Iterator[Bits]:
    """Writes a launch for each condition. `size`: of the blocks, queries and keys. The last block
    has as many keys as the others, if there are as many."""
    queries, keys = size
    count = simplify(ceildiv(extent(product.columns), keys), w.bounds)
    for condition in conditions:
        used = indexed_by(condition)
        batch = tuple(loop for loop in product.batch if loop.variable in used)
        by_row = any(loop.variable in used for loop in product.rows)
        blocks = simplify(ceildiv(extent(product.rows), queries), w.bounds) if by_row else Dim.of(1)
        pairs = blocks * (queries // 2 if by_row else 1)
        shape = [*(loop.extent for loop in batch), count, pairs, Dim.of(QUAD)]
        words = w.buffer("bits", DType.I32, *shape)
        bits = Bits(condition, batch, by_row, words, Local(w.fresh("open"), DType.I32))
        with _threads(w, bits, count, blocks, queries) as (at, place):
            _pack(w, product, bits, at, place, size)
        yield bits


@contextmanager
def _threads(
    w: Writer, bits: Bits, count: Dim, blocks: Dim, queries: int
) -> Iterator[tuple[dict[str, Dim], Place]]:
    """The threads of a launch: the matrices of the batch and the place of a word. Where rows have
    words of their own, a block of threads has those of one block of queries and keys."""
    names = part, down = w.fresh("part"), w.fresh("down")
    outer = (
        *bits.batch,
        *(For(n, ZERO, e, ()) for n, e in zip(names, (count, blocks), strict=True)),
    )
    total = simplify(extent(outer), w.bounds)
    if bits.by_row:
        with (
            w.range("block", total, axis="block") as block,
            w.range("thread", queries * 2, axis="thread") as thread,
        ):  # fmt: skip
            at = split(w, outer, block)
            pair = at[down] * (queries // 2) + thread // QUAD
            yield at, (at[part], pair, thread % QUAD)
        return
    with (
        w.range("block", simplify(ceildiv(total * QUAD, THREADS), w.bounds), axis="block") as block,
        w.range("thread", THREADS, axis="thread") as thread,
    ):  # fmt: skip
        own = w.named("own", block * (THREADS // QUAD) + thread // QUAD)
        with w.when(below(own, total)):
            at = split(w, outer, own)
            yield at, (at[part], ZERO, thread % QUAD)


def _pack(
    w: Writer, product: Product, bits: Bits, at: At, place: Place, size: tuple[int, int]
) -> None:
    """The word of a place."""
    (queries, keys), (part, pair, lane) = size, place
    word, length = Local(w.fresh("word"), DType.I32), extent(product.columns)
    w.add(Declare(word, NO_BIT))
    first = w.short("first", dim_min(part * keys, dim_max(length - keys, 0)))
    with w.range("half", 2) as half:
        moved = dict(at)
        if bits.by_row:
            row = pair // COLUMNS * ROWS + pair % COLUMNS + half * COLUMNS
            last = clamped(row, extent(product.rows), queries, w)
            moved |= split(w, product.rows, last)

        def fill(*, whole: bool) -> list[Stmt]:
            """`whole`: no key of the block is beyond the last one."""
            with w.block() as body, w.range("number", keys // QUAD) as number:
                key = first + key_of(lane, number // 2, number % 2)
                if not whole:
                    key = w.named("last", dim_min(key, length - 1))
                places = {**moved, **split(w, product.columns, key)}
                bit = bit_at(half * WIDTH + number)
                chosen = Select(substitute_in(bits.condition, places), bit, NO_BIT)
                w.add(Assign(word, Binary("|", word, chosen)))
            return body

        enough = below(Dim.of(keys - 1), length)
        w.add(If(enough, tuple(fill(whole=True)), tuple(fill(whole=False))))
    w.add(Store(bits.words, bits.place(at, part, pair, lane), word))


def with_bits(expr: Expr, bits: Sequence[Bits]) -> Expr:
    """An expression with bits of words in the place of conditions."""
    every = {one.condition: one for one in bits}

    def rule(part: Expr) -> Expr:
        if not isinstance(part, Select) or part.condition not in every:
            return part
        one = every[part.condition]
        return Select(is_set(one.word, one.number), part.then, part.otherwise)

    return map_expr(expr, rule)


def opened(expr: Expr, conditions: Sequence[Expr]) -> Expr:
    """What an expression is where these conditions hold."""

    def rule(part: Expr) -> Expr:
        chosen = isinstance(part, Select) and part.condition in conditions
        return part.then if isinstance(part, Select) and chosen else part

    return map_expr(expr, rule)
