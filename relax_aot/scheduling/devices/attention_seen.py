# SPDX-License-Identifier: Apache-2.0
"""Keys that queries see by their positions alone, as in a causal attention.

Where a score is chosen by a comparison of positions, the last key that a query sees is an
expression of its row. The keys that all queries of a block see need no comparison, and those that
none of them sees are left out where shut keys are -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import inf

from relax_aot.ir.dims import ZERO, Dim, dim_max, dim_min
from relax_aot.ir.loops import Binary, Cast, Expr, For, Index, Lit, Local, Select, parts
from relax_aot.scheduling.devices.operands import At, Product, extent, split
from relax_aot.scheduling.writer import Writer

NEAR, AHEAD = "_near_{}", "_ahead_{}"
"""Variables, with the number of the last key."""


@dataclass(frozen=True, slots=True)
class Seen:
    """`value`: the score of a key that is seen. `last`: no key beyond any of these is seen by the
    query of a row. `shut`: whether the scores of all others are -inf. `chosen`: the whole score,
    by comparisons of NEAR, a key less the first one of its lane, with AHEAD, how far ahead of that
    one each last key is."""

    value: Expr
    last: tuple[Dim, ...]
    shut: bool
    chosen: Expr


def seen_of(value: Expr, product: Product) -> Seen | None:
    """None where no choice is one of positions, or another key than the last ones is shut."""
    key, row = product.columns[-1], product.rows[-1:]
    seen = _seen(value, key.variable, 0)
    outer = {loop.variable for loop in product.rows[:-1]}
    apart = [last for last in seen.last if last.symbols & outer]
    steady = all(slope(last, loop) is not None for last in seen.last for loop in row)
    known = key.start == ZERO and not apart and steady
    return seen if seen.last and known else None


def _seen(value: Expr, key: str, count: int) -> Seen:
    """`count`: of last keys so far."""
    if not isinstance(value, Select):
        return Seen(value, (), shut=True, chosen=value)
    for seen, other, holds in (
        (value.then, value.otherwise, True),
        (value.otherwise, value.then, False),
    ):
        last = _last(value.condition, key, holds=holds)
        sums = [part for part in parts(seen) if isinstance(part, Local)]
        if last is not None and sums:
            inner = _seen(seen, key, count + len(last))
            numbers = range(count, count + len(last))
            both = [(NEAR.format(number), AHEAD.format(number)) for number in numbers]
            near = [Binary("<=", Index(Dim.of(a)), Index(Dim.of(b))) for a, b in both]
            chosen = Select(reduce(partial(Binary, "&&"), near), inner.chosen, other)
            shut = inner.shut and other == Lit(-inf, other.dtype)
            return Seen(inner.value, (*last, *inner.last), shut, chosen)
    return Seen(value, (), shut=True, chosen=value)


def _last(condition: Expr, key: str, *, holds: bool) -> tuple[Dim, ...] | None:
    """The last keys for which a condition holds, or does not hold."""
    match condition:
        case Binary("&&", a, b) if holds:
            both = [_last(one, key, holds=True) for one in (a, b)]
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
    last = (ahead if holds else -1 - ahead) + Dim.of(key)
    return None if key in last.symbols else (last,)


def _position(expr: Expr) -> Dim | None:
    match expr:
        case Index(dim):
            return dim
        case Cast(inner, kind) if kind.is_int:
            return _position(inner)
        case Lit(int(value)):
            return Dim.of(value)
    return None


def slope(last: Dim, row: For) -> int | None:
    """How the last key moves with a row; None where it does not by steps of one size."""
    step = last.substitute({row.variable: Dim.of(row.variable) + 1}) - last
    return step.constant if step.is_constant else None


@dataclass(frozen=True, slots=True)
class Range:
    """Keys below `all` are seen by all queries of a block, none from `end` on by any."""

    all: Dim
    end: Dim


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
    ends = {True: list[Dim](), False: list[Dim]()}
    for last in seen.last:
        for most in (True, False):
            up = not rows or (slope(last, rows[-1]) or 0) >= 0
            at = {rows[-1].variable: high if up is most else low} if rows else {}
            ends[most].append(last.substitute({**batch, **at}) + 1)
    end = length
    if seen.shut:
        end = w.let("end", dim_max(dim_min(*ends[True], length), 0), ZERO, length)
    return Range(w.let("all", dim_max(dim_min(*ends[False], end), 0), ZERO, length), end)


def _ends(w: Writer, rows: Sequence[For], first: Dim, final: Dim) -> tuple[Dim, Dim]:
    """The least and the greatest value of the last loop over rows."""
    inner = rows[-1]
    low, high = (split(w, rows, at)[inner.variable] for at in (first, final))
    if len(rows) > 1:  # all values where a block has rows of two iterations
        apart = w.named("apart", dim_min(final // inner.extent - first // inner.extent, 1))
        low = w.let("low", low - apart * (low - inner.start), inner.start, inner.stop - 1)
        high = w.let("high", high + apart * (inner.stop - 1 - high), inner.start, inner.stop - 1)
    return low, high
