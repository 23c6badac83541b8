# SPDX-License-Identifier: Apache-2.0
"""Keys that queries see by their positions alone, as in a causal attention or one over a window.

Where a score is chosen by a comparison of positions, the first or last key that a query sees is an
expression of its row. The keys that all queries of a block see need no comparison where there are
only last ones, and those that none of them sees are left out where shut keys are -inf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import inf

from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.loops import Binary, Cast, Expr, For, Index, Lit, Local, Select, parts
from relax_aot.scheduling.devices.operands import At, Product, extent, split
from relax_aot.scheduling.writer import Writer

NEAR, AHEAD = "_near_{}", "_ahead_{}"
"""Variables, with the number of an end."""


@dataclass(frozen=True, slots=True)
class End:
    """The last key that a query sees, or the first one, by the variables of its row."""

    key: Dim
    last: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """`value`: the score of a key that is seen. `ends`: no key beyond any of these is seen by the
    query of a row. `shut`: whether the scores of all others are -inf. `chosen`: the whole score,
    by comparisons of NEAR, a key less the first one of its lane, with AHEAD, how far ahead of that
    one each end is."""

    value: Expr
    ends: tuple[End, ...]
    shut: bool
    chosen: Expr

    @property
    def window(self) -> bool:
        """Whether there are first keys."""
        return not all(end.last for end in self.ends)


def seen_of(value: Expr, product: Product) -> Seen | None:
    """None where no choice is one of positions, or another key than those beyond ends is shut."""
    key, row = product.columns[-1], product.rows[-1:]
    seen = _seen(value, key.variable, 0)
    outer = {loop.variable for loop in product.rows[:-1]}
    apart = [end for end in seen.ends if end.key.symbols & outer]
    steady = all(slope(end.key, loop) is not None for end in seen.ends for loop in row)
    known = key.start == ZERO and not apart and steady
    return seen if seen.ends and known else None


def _seen(value: Expr, key: str, count: int) -> Seen:
    """`count`: of ends so far."""
    if not isinstance(value, Select):
        return Seen(value, (), shut=True, chosen=value)
    for seen, other, holds in (
        (value.then, value.otherwise, True),
        (value.otherwise, value.then, False),
    ):
        ends = _ends_of(value.condition, key, holds=holds)
        sums = [part for part in parts(seen) if isinstance(part, Local)]
        if ends is not None and sums:
            inner = _seen(seen, key, count + len(ends))
            near = [_inside(end, number) for number, end in enumerate(ends, count)]
            chosen = Select(reduce(partial(Binary, "&&"), near), inner.chosen, other)
            shut = inner.shut and other == Lit(-inf, other.dtype)
            return Seen(inner.value, (*ends, *inner.ends), shut, chosen)
    return Seen(value, (), shut=True, chosen=value)


def _inside(end: End, number: int) -> Expr:
    near, ahead = (Index(Dim.of(name.format(number))) for name in (NEAR, AHEAD))
    return Binary("<=", near, ahead) if end.last else Binary("<=", ahead, near)


def _ends_of(condition: Expr, key: str, *, holds: bool) -> tuple[End, ...] | None:
    """The first or last keys for which a condition holds, or does not hold."""
    match condition:
        case Binary("&&", a, b) if holds:
            both = [_ends_of(one, key, holds=True) for one in (a, b)]
            return None if None in both else tuple(d for one in both for d in one or ())
        case Binary("<" | "<=" | ">" | ">=" as op, a, b):
            left, right = _position(a), _position(b)
        case _:
            return None
    if left is None or right is None:
        return None
    if op in (">", ">="):
        left, right = right, left
    ahead = right - left - int(op in ("<", ">"))  # not negative where the condition holds
    ahead, own = ahead if holds else -1 - ahead, Dim.of(key)
    every = [End(ahead + own, last=True), End(own - ahead, last=False)]
    return next(((end,) for end in every if key not in end.key.symbols), None)


def _position(expr: Expr) -> Dim | None:
    match expr:
        case Index(dim):
            return dim
        case Cast(inner, kind) if kind.is_int:
            return _position(inner)
        case Lit(int(value)):
            return Dim.of(value)
    return None


def slope(end: Dim, row: For) -> int | None:
    """How an end moves with a row; None where it does not by steps of one size."""
    step = end.substitute({row.variable: Dim.of(row.variable) + 1}) - end
    return step.constant if step.is_constant else None


def ahead_of(
    w: Writer, ends: Sequence[End], rows: Sequence[For], above: Dim, key: Dim,
    places: Callable[[], At],
) -> Iterator[tuple[Dim, Dim]]:  # fmt: skip
    """How far each end of the first row of a lane is ahead of its first `key`, and those of a row
    so far below ahead of that: many comparisons of a lane are the same then. Where rows are several
    loops, those of each row. An end that is as far from another one in all rows is told by that.
    `places`: the loop variables of the first row, or of each."""
    told = list[tuple[Dim, Dim, Dim]]()
    for end in ends:
        known = [(end.key - other, ahead, more) for other, ahead, more in told]
        known = [one for one in known if one[0].is_constant]
        if known:
            apart, ahead, more = known[0]
            yield ahead, more + apart
            continue
        more = ZERO if len(rows) > 1 else above * sum(slope(end.key, loop) or 0 for loop in rows)
        ahead = end.key.substitute(places()) - key
        ahead = w.let("ahead", ahead, ahead, ahead)
        told.append((end.key, ahead, more))
        yield ahead, more


@dataclass(frozen=True, slots=True)
class Range:
    """Keys from `least` on and below `all` are seen by all queries of a block, none before `start`
    or from `end` on by any."""

    all: Dim
    end: Dim
    start: Dim = ZERO
    least: Dim = ZERO


def range_of(
    w: Writer, seen: Seen, product: Product, block: tuple[Dim, int], batch: At, length: Dim
) -> Range:
    """The keys of a block of queries: its first row, and how many it has."""
    first, count = block
    rows = product.rows
    low = high = ZERO
    if rows:
        final = w.let("final_row", dim_min(first + count, extent(rows)) - 1, ZERO, extent(rows) - 1)
        low, high = _ends(w, rows, first, final)

    def every(*, last: bool, most: bool) -> Iterator[Dim]:
        """The greatest or least of each end."""
        for one in seen.ends:
            up = not rows or (slope(one.key, rows[-1]) or 0) >= 0
            at = {rows[-1].variable: high if up is most else low} if rows else {}
            if one.last is last:
                yield one.key.substitute({**batch, **at}) + int(last)

    start, end, least = ZERO, length, ZERO
    if seen.shut:
        end = dim_min(*every(last=True, most=True), length)
        end = w.let("end", dim_max(end, 0), ZERO, length)
    if seen.window and seen.shut:
        start = dim_max(*every(last=False, most=False), 0)
        start = w.let("start", dim_min(start, length), ZERO, length)
    if seen.window:
        least = dim_max(*every(last=False, most=True), 0)
        least = w.let("least", dim_min(least, length), ZERO, length)
    all_ = dim_min(*every(last=True, most=False), end)
    all_ = w.let("all", dim_max(all_, 0), ZERO, length)
    return Range(all_, end, start, least)


def seen_by_all(
    w: Writer, seen: Seen, keys: Range, parts: tuple[Dim, Dim], size: int
) -> Iterator[tuple[Dim, Dim]]:
    """The first of the blocks of so many keys that all queries see, and the one behind them, if
    there may be any. `parts`: the blocks that some of them see, without the last one."""
    first, last = parts
    lengths = [
        one.key - other.key + 1
        for one in seen.ends for other in seen.ends if one.last and not other.last
    ]  # fmt: skip
    if any(length.is_constant and length.constant < size for length in lengths):
        return
    start = first
    if keys.least != ZERO:
        start = dim_max(dim_min(ceildiv(keys.least, size), last), first)
        start = w.let("whole_from", start, ZERO, last)
    stop = dim_max(dim_min(keys.all // size, last), start)
    yield start, w.let("whole_parts", stop, ZERO, last)


def _ends(w: Writer, rows: Sequence[For], first: Dim, final: Dim) -> tuple[Dim, Dim]:
    """The least and the greatest value of the last loop over rows."""
    inner = rows[-1]
    low, high = (split(w, rows, at)[inner.variable] for at in (first, final))
    if len(rows) > 1:  # all values where a block has rows of two iterations
        iterations = dim_max(final // inner.extent - first // inner.extent, 0)  # has a low bound
        apart = w.named("apart", dim_min(iterations, 1))
        low = w.let("low", low - apart * (low - inner.start), inner.start, inner.stop - 1)
        high = w.let("high", high + apart * (inner.stop - 1 - high), inner.start, inner.stop - 1)
    return low, high
