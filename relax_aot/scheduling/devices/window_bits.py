# SPDX-License-Identifier: Apache-2.0
"""Which places of a window are inside of an image, as the bits of a word for each pixel.

A word is computed once, before the loop over the steps of a sum. There, one instruction tests a
bit, where comparisons take two for each axis, and divisions that tell the place on each axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Bounds, Dim, simplify
from relax_aot.ir.loops import (
    Assign,
    Binary,
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
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.operands import At, all_of, extent, inside
from relax_aot.scheduling.writer import Writer

MOST = 31
"""Bits of a word, without that of its sign."""
MOST_PIXELS = 3
"""Of a word, so that an entry of a table is of 16 bytes."""
NO_BIT, ONE_BIT = Lit(0, DType.I32), Lit(1, DType.I32)
NOWHERE = Lit(1 << MOST - 1, DType.I32)
"""The bit of what is at no place, in words that have bits for each axis."""


def have_bits(places: Sequence[For], bounds: Bounds) -> bool:
    """Whether a word has a bit for each place of a window. `places`: its loops."""
    count = simplify(extent(places), bounds)
    return count.is_constant and count.constant <= MOST


def bits_of(w: Writer, places: Sequence[For], ends: Mapping[str, tuple[Dim, Dim]]) -> Expr:
    """The word of a pixel. `ends`: the range of each loop that is clipped. An iteration of a loop
    has the bits of the loops in it."""
    word: Expr = ONE_BIT
    count = Dim.of(1)
    for loop in reversed(places):
        every = Local(w.fresh("bits"), DType.I32)
        w.add(Declare(every, NO_BIT))
        with w.range(loop.variable, loop.extent) as number:
            own: Expr = Binary("<<", word, Cast(Index(number * count), DType.I32))
            if loop.variable in ends:
                end = {loop.variable: ends[loop.variable]}
                conditions = inside({loop.variable: loop.start + number}, end)
                own = Select(all_of(conditions), own, NO_BIT)
            w.add(Assign(every, Binary("|", every, own)))
        word, count = every, count * loop.extent
    return word


def places_of(places: Sequence[For], at: At) -> Expr:
    """A bit for the place of a step on each axis, those of an axis behind the ones before."""
    bits: Expr = NO_BIT
    first = 0
    for loop in places:
        own = bit_at(at[loop.variable] - loop.start + first)
        bits, first = Binary("|", bits, own), first + loop.extent.constant
    return bits


def closed_of(w: Writer, places: Sequence[For], ends: Mapping[str, tuple[Dim, Dim]]) -> Local:
    """The bits of the places on each axis that are outside for a line, and that of what is at none.
    `ends`: of its window."""
    word, first = Local(w.fresh("closed"), DType.I32), 0
    w.add(Declare(word, NOWHERE))
    for loop in places:
        with w.range(loop.variable, loop.extent) as number:
            at = {loop.variable: loop.start + number}
            within = inside(at, {loop.variable: ends[loop.variable]})
            own = Select(all_of(within), NO_BIT, bit_at(number + first))
            w.add(Assign(word, Binary("|", word, own)))
        first += loop.extent.constant
    return word


@dataclass(frozen=True, slots=True)
class Words:
    """The words of each lane. `size`: the bits of a pixel; a word has those of so many `pixels`."""

    words: Buffer
    size: int
    pixels: int

    def start(self, w: Writer, lane: Dim) -> None:
        if self.pixels > 1:
            with w.range("e", self.words.shape[1]) as e:
                w.add(Store(self.words, (lane, e), NO_BIT))

    def put(self, w: Writer, own: tuple[Dim, Dim], bits: Expr) -> None:
        """`own`: the lane, and the number of its pixel."""
        word = self._word(own)
        if self.pixels > 1:
            bits = Binary("|", word, self._shifted(bits, own[1]))
        w.add(Store(word.buffer, word.index, bits))

    def bit(self, number: Dim, pixel: Dim) -> Expr:
        """That of a place, in the word of a pixel."""
        return self._shifted(bit_at(number), pixel)

    def has(self, own: tuple[Dim, Dim], bit: Expr) -> Expr:
        return Binary("!=", Binary("&", self._word(own), bit), NO_BIT)

    def column(self, pixel: Dim) -> Dim:
        """Where the bit for a pixel is in an entry of a table: behind a number."""
        return pixel % self.pixels + 1

    def _word(self, own: tuple[Dim, Dim]) -> Load:
        return self.words[own[0], own[1] // self.pixels]

    def _shifted(self, bits: Expr, pixel: Dim) -> Expr:
        first = pixel % self.pixels * self.size
        return bits if first == 0 else Binary("<<", bits, Cast(Index(first), DType.I32))


def words_of(w: Writer, places: Sequence[For], pixels: int, *, packed: bool) -> Words:
    """Memory for the bits of so many pixels of each lane. `packed`: of several in a word, where an
    entry of a table has a bit for each of them."""
    size = simplify(extent(places), w.bounds).constant
    each = min(MOST // size, MOST_PIXELS) if packed else 1
    words = w.reserve("open", DType.I32, "lane", LANES, -(-pixels // each))
    return Words(words, size, each)


def quotient(position: Dim, size: Dim) -> Dim:
    """`position // size`, in which the terms with the greatest common factor are divided by it
    first: compilers do not know that the others are less than it."""
    if not size.is_constant:
        return position // size
    count, terms = size.constant, position.terms
    factor = max((gcd(count, number) for number, atoms in terms if atoms), default=1)
    whole = sum((Dim(((n // factor, atoms),)) for n, atoms in terms if n % factor == 0), ZERO)
    return (whole + (position - whole * factor) // factor) // (count // factor)


def is_set(word: Expr, number: Dim) -> Expr:
    return Binary("!=", Binary("&", word, bit_at(number)), NO_BIT)


def bit_at(number: Dim) -> Expr:
    return Binary("<<", ONE_BIT, Cast(Index(number), DType.I32))
