# SPDX-License-Identifier: Apache-2.0
"""Two kernels share their outer loops, and what passes between them shrinks to one row.

    for i { for j { s[i, j] = ... } }           for i {
    for i { ... s[i, :] ... }              ->       for j { row[j] = ... }
                                                    ... row[:] ...
                                                }

Attention is three kernels (scores, softmax, mix of values) that become one in this way:
instead of n x n scores there is one row of n. Each number is computed as before, in the
same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.fusion import legality
from relax_aot.fusion.accesses import Access, accesses, loads
from relax_aot.fusion.indexing import Reindexed, reindex, split_loops
from relax_aot.fusion.mergers._merger import Context, Pair, Refused
from relax_aot.fusion.piece import (
    Fresh,
    Piece,
    buffer_of,
    kept_apart,
)
from relax_aot.fusion.refine import refined
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Var
from relax_aot.ir.loops import Buffer, Expr, For, Load, Stmt
from relax_aot.ir.names import renamed
from relax_aot.ir.rewrite import map_accesses, map_exprs
from relax_aot.ir.types import TensorType

EXAMPLES = (
    Example(
        why="one row of scores at a time",
        before="""
            symbol n in 1..9
            func @main(%q: f32[n, 4], %k: f32[n, 4]) {
              %s: f32[n, n] = call_kernel(%q, %k) {kernel=@dot}
              %y: f32[n] = call_kernel(%s) {kernel=@most}
              return %y
            }
            kernel @dot(%q: f32[n, 4], %k: f32[n, 4]) -> (%s: f32[n, n]) {
              for i in 0..n {
                for j in 0..n {
                  local sum: f32 = 0.0:f32
                  for d in 0..4 {
                    sum = (sum + (%q[i, d] * %k[j, d]))
                  }
                  %s[i, j] = sum
                }
              }
            }
            kernel @most(%s: f32[n, n]) -> (%y: f32[n]) {
              for i in 0..n {
                local peak: f32 = -inf:f32
                for j in 0..n {
                  peak = max(peak, %s[i, j])
                }
                %y[i] = peak
              }
            }""",
        after="""
            symbol n in 1..9
            func @main(%q: f32[n, 4], %k: f32[n, 4]) {
              %y: f32[n], %s: f32[n] = call_kernel(%q, %k) {kernel=@dot_most_y}
              return %y
            }
            kernel @dot_most_y(%q: f32[n, 4], %k: f32[n, 4]) -> (%y: f32[n]) scratch (%s: f32[n]) {
              for i in 0..n {
                for j in 0..n {
                  local sum: f32 = 0.0:f32
                  for d in 0..4 {
                    sum = (sum + (%q[i, d] * %k[j, d]))
                  }
                  %s[j] = sum
                }
                local peak_2: f32 = -inf:f32
                for j_2 in 0..n {
                  peak_2 = max(peak_2, %s[j_2])
                }
                %y[i] = peak_2
              }
            }""",
    ),
    Example(
        why="a mean and what is left of it pass between two kernels",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 4], %m: f32[n, 1]) {
              %d: f32[n, 4], %s: f32[n, 4] = call_kernel(%x, %m) {kernel=@center}
              %v: f32[n] = call_kernel(%s) {kernel=@sum_v}
              %y: f32[n, 4] = call_kernel(%d, %v) {kernel=@divide_y}
              return %y
            }
            kernel @center(%x: f32[n, 4], %m: f32[n, 1]) -> (%d: f32[n, 4], %s: f32[n, 4]) {
              for i in 0..n {
                for j in 0..4 {
                  %d[i, j] = (%x[i, j] - %m[i, 0])
                  %s[i, j] = ((%x[i, j] - %m[i, 0]) * (%x[i, j] - %m[i, 0]))
                }
              }
            }
            kernel @sum_v(%s: f32[n, 4]) -> (%v: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + %s[i, j])
                }
                %v[i] = total
              }
            }
            kernel @divide_y(%d: f32[n, 4], %v: f32[n]) -> (%y: f32[n, 4]) {
              for i in 0..n {
                for j in 0..4 {
                  %y[i, j] = (%d[i, j] / %v[i])
                }
              }
            }""",
        after="""
            ...
            kernel @center_sum_divide_y(%x: f32[n, 4], %m: f32[n, 1]) -> (%y: f32[n, 4]) scratch (%s: f32[4], %d: f32[4], %v: f32[]) in_place (%x = %y) {
              for i in 0..n {
                for j in 0..4 {
                  %d[j] = (%x[i, j] - %m[i, 0])
                  %s[j] = ((%x[i, j] - %m[i, 0]) * (%x[i, j] - %m[i, 0]))
                }
                local total_2: f32 = 0.0:f32
                for j_2 in 0..4 {
                  total_2 = (total_2 + %s[j_2])
                }
                %v[] = total_2
                for j_3 in 0..4 {
                  %y[i, j_3] = (%d[j_3] / %v[])
                }
              }
            }""",  # noqa: E501
    ),
    Example(
        why="each head reads its own rows of a state, which exists until the end anyway",
        before="""
            symbol m in 1..9
            state %past = %k
            func @main(%q: f32[2, 4], %past: f32[2, m, 4]) {
              %k: f32[2, m, 4] = call_kernel(%past) {kernel=@running_k}
              %s: f32[2, m] = call_kernel(%q, %k) {kernel=@dot_s}
              %y: f32[2] = call_kernel(%s) {kernel=@most_y}
              return %y, %k
            }
            kernel @running_k(%past: f32[2, m, 4]) -> (%k: f32[2, m, 4]) {
              for d in 0..4 {
                local total: f32 = 0.0:f32
                for j in 0..m {
                  total = (total + %past[0, j, d])
                  %k[0, j, d] = total
                  %k[1, j, d] = total
                }
              }
            }
            kernel @dot_s(%q: f32[2, 4], %k: f32[2, m, 4]) -> (%s: f32[2, m]) {
              for h in 0..2 {
                for j in 0..m {
                  local sum: f32 = 0.0:f32
                  for d in 0..4 {
                    sum = (sum + (%q[h, d] * %k[h, j, d]))
                  }
                  %s[h, j] = sum
                }
              }
            }
            kernel @most_y(%s: f32[2, m]) -> (%y: f32[2]) {
              for h in 0..2 {
                local peak: f32 = -inf:f32
                for j in 0..m {
                  peak = max(peak, %s[h, j])
                }
                %y[h] = peak
              }
            }""",
        after="""
            ...
            kernel @dot_most_y(%q: f32[2, 4], %k: f32[2, m, 4]) -> (%y: f32[2]) scratch (%s: f32[m]) {
              for h in 0..2 {
            ...""",  # noqa: E501
        refused="the intermediate value is not larger than the producer's operands",
    ),
    Example(
        why="each row is inserted element by element into what the row holds already",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 8]) {
              %s: f32[n, 4] = call_kernel(%x) {kernel=@sorted_s}
              %y: f32[n] = call_kernel(%s) {kernel=@most_y}
              return %y
            }
            kernel @sorted_s(%x: f32[n, 8]) -> (%s: f32[n, 4]) {
              for i in 0..n {
                for j in 0..8 {
                  local value: f32 = %x[i, j]
                  for k in 0..min(4, j) {
                    local held: f32 = %s[i, k]
                    %s[i, k] = max(value, held)
                    value = min(value, held)
                  }
                  if (index(j) < index(4)) {
                    clamped last in 0..3 = index(j)
                    %s[i, last] = value
                  }
                }
              }
            }
            kernel @most_y(%s: f32[n, 4]) -> (%y: f32[n]) {
              for i in 0..n {
                local peak: f32 = -inf:f32
                for j in 0..4 {
                  peak = max(peak, %s[i, j])
                }
                %y[i] = peak
              }
            }""",
        refused="the producer reads what earlier iterations left of its result",
    ),
    Example(
        why="the producer reads more than it stores",
        before="""
            symbol n in 1..9
            func @main(%u: f32[n, 8]) {
              %x: f32[n, 8] = call_kernel(%u) {kernel=@running_x}
              %s: f32[n, 4] = call_kernel(%x) {kernel=@halves_s}
              %y: f32[n] = call_kernel(%s) {kernel=@most_y}
              return %y
            }
            kernel @running_x(%u: f32[n, 8]) -> (%x: f32[n, 8]) in_place (%u = %x) {
              for j in 0..8 {
                local total: f32 = 0.0:f32
                for i in 0..n {
                  total = (total + %u[i, j])
                  %x[i, j] = total
                }
              }
            }
            kernel @halves_s(%x: f32[n, 8]) -> (%s: f32[n, 4]) {
              for i in 0..n {
                for j in 0..4 {
                  %s[i, j] = (%x[i, j] + %x[i, j + 4])
                }
              }
            }
            kernel @most_y(%s: f32[n, 4]) -> (%y: f32[n]) {
              for i in 0..n {
                local peak: f32 = -inf:f32
                for j in 0..4 {
                  peak = max(peak, %s[i, j])
                }
                %y[i] = peak
              }
            }""",
        refused="their outer loops do not match; the intermediate value is not larger than the "
        "producer's operands",
    ),
)


def merge(pair: Pair, context: Context) -> Piece | Refused:
    """One piece in place of two; the value between them becomes scratch of one row."""
    return _not_worth_it(pair, context) or _merged(pair)


def join(pair: Pair) -> Piece | Refused:
    """One piece in place of two, also where they share no loop: the value between them is scratch,
    and the second follows the first."""
    return _merged(pair, least=0)


def _not_worth_it(pair: Pair, context: Context) -> Refused | None:
    made = {link.made for link in pair.links}
    if len(made) != len(pair.links) or not made <= set(pair.producer.writes):
        return Refused("the consumer reads it in two shapes")
    if pair.producer.fallible or pair.consumer.fallible:
        return Refused("one of them can fail")
    # What only one of them reads is alive for longer; inputs and states always are.
    seen = {link.seen for link in pair.links}
    alone = set(pair.producer.reads) ^ (set(pair.consumer.reads) - seen)
    known = context.constants | {v.name for v in alone if _row_of_input(v, pair, context)}
    around = sum((v.type.bytes for v in alone if v.name not in known), start=ZERO)
    passed = sum((v.type.bytes for v in made if v.name not in pair.kept), start=ZERO)
    # A row that stays anyway may be passed on for as many bytes as it takes.
    if prove_le(passed + ONE if pair.producer.scratch else passed, around, context.lows):
        return Refused("the intermediate value is not larger than the producer's operands")
    weights = any(
        v.name in context.constants and v.type.rank > 1
        for piece in (pair.producer, pair.consumer)
        for v in piece.reads
    )
    if weights and not context.rows_over_weights:
        return Refused("weights would be loaded again for each row")
    return None


def _row_of_input(value: Var, pair: Pair, context: Context) -> bool:
    """An input of the model, or the new value of a state, of which each iteration of the outermost
    loop reads a part of its own. A matrix that all iterations read is better read for many rows at
    a time."""
    if value.name not in context.inputs | context.states:
        return False
    for piece in (pair.producer, pair.consumer):
        outer = piece.body[0] if len(piece.body) == 1 else None
        for access in accesses(piece.body, value.name):
            symbols = frozenset[str]().union(*(dim.symbols for dim in access.at))
            if not isinstance(outer, For) or outer.variable not in symbols:
                return False
    return True


def _merged(pair: Pair, least: int = 1) -> Piece | Refused:
    producer, consumer = pair.producer, pair.consumer
    if legality.opaque(producer.body) or legality.opaque(consumer.body):
        return Refused("one of them calls a micro-kernel")
    producer, consumer = kept_apart(producer, consumer)
    fresh = Fresh(producer.names | consumer.names)
    ours = producer.body
    made = [link.made for link in pair.links]
    if len(made) == 1 and not pair.kept:
        ours, made[0] = refined(ours, made[0])
    theirs: tuple[Stmt, ...] | None = fresh.renamed(consumer.body)
    for value, link in zip(made, pair.links, strict=True):
        theirs = None if theirs is None else _as_made(theirs, value, link.seen, fresh)
    if theirs is None:
        return Refused("the consumer reads it in a shape that does not match its loops")
    first = _outer(ours, made)
    second = _outer(theirs, made)
    # As many loops as go along the same axes, in any order, can be shared.
    ours_along, theirs_along = ([axes for _, axes in outer] for outer in (first, second))
    counts = range(min(len(first), len(second)), 0, -1)
    shared = next((n for n in counts if {*ours_along[:n]} == {*theirs_along[:n]}), 0)
    if shared < least:
        return Refused("their outer loops do not match")
    axes = ours_along[:shared]
    variables = [loop.variable for loop, _ in second[:shared]]
    if axes != theirs_along[:shared] and not legality.separate_rows(theirs, variables):
        return Refused("the consumer's rows may not be reordered")
    names = {
        second[theirs_along.index(axis)][0].variable: first[n][0].variable
        for n, axis in enumerate(axes)
    }
    inner = _below(ours, shared)
    gone = (value.name for value in made if shared and value.name not in pair.kept)
    if any(legality.carried(inner, name) for name in gone):
        return Refused("the producer reads what earlier iterations left of its result")
    rest = inner + renamed(_below(theirs, shared), names)
    rows: list[Var] = []
    for number, value in enumerate(made):
        if value.name in pair.kept:
            continue
        along = {axis[number] for axis in axes}
        left = [axis for axis in range(value.type.rank) if axis not in along]
        shape = tuple(value.type.shape[axis] for axis in left)
        rows.append(Var(value.name, TensorType(value.type.dtype, shape)))
        rest = _narrowed(rest, rows[-1], left)
    for loop, _ in reversed(first[:shared]):
        rest = (For(loop.variable, loop.start, loop.stop, rest),)
    seen = {link.seen.name for link in pair.links}
    narrowed = {row.name for row in rows}
    reads = (*producer.reads, *(v for v in consumer.reads if v.name not in seen))
    return Piece(
        producer.ops + consumer.ops,
        tuple(dict.fromkeys(reads)),
        (*(v for v in producer.writes if v.name not in narrowed), *consumer.writes),
        (*producer.scratch, *rows, *consumer.scratch),
        rest,
        producer.origins + consumer.origins,
    )


def _as_made(body: tuple[Stmt, ...], made: Var, seen: Var, fresh: Fresh) -> tuple[Stmt, ...] | None:
    """The reader's loops over `made` itself."""
    shapes = (seen.type.shape, made.type.shape)
    if shapes[0] != shapes[1]:
        for site in loads(body, seen.name):
            found = reindex(site.at, *shapes, site.table, fresh)
            if found is None:
                return None
            if found.splits:
                return _as_made(split_loops(body, found.splits), made, seen, fresh)
    buffer = Buffer(made.name, made.type.dtype, made.type.shape)
    places: dict[At, Reindexed | None] = {}
    for site in loads(body, seen.name):
        place = reindex(site.at, *shapes, site.table, fresh)
        if places.setdefault(site.index, place) != place:
            return _as_made(fresh.unique(body), made, seen, fresh)

    def rule(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.buffer.name != seen.name:
            return expr
        place = places[expr.index]
        assert place is not None
        return Load(buffer, place.index)

    return map_exprs(body, rule)


_Outer = list[tuple[For, tuple[int, ...]]]
"""Outermost loops and the axis of each shared value that they run along."""


def _outer(body: tuple[Stmt, ...], made: Sequence[Var]) -> _Outer:
    """The outermost loops, one in another, that each stand for one axis of every value of `made`
    wherever it is written or read."""
    touched = [list(accesses(body, value.name)) for value in made]
    result: _Outer = []
    while len(body) == 1 and isinstance(body[0], For):
        loop = body[0]
        axes = [_axis(loop, value, at) for value, at in zip(made, touched, strict=True)]
        if any(axis is None for axis in axes):
            break
        result.append((loop, tuple(axis for axis in axes if axis is not None)))
        body = loop.body
    return result


def _axis(loop: For, made: Var, touched: Sequence[Access]) -> int | None:
    if loop.start != ZERO or not touched:
        return None
    for axis, size in enumerate(made.type.shape):
        everywhere = all(s.index[axis].symbol == loop.variable for s in touched)
        if everywhere and loop.stop == size:
            return axis
    return None


def _below(body: tuple[Stmt, ...], depth: int) -> tuple[Stmt, ...]:
    for _ in range(depth):
        (loop,) = body
        assert isinstance(loop, For)
        body = loop.body
    return body


def _narrowed(body: tuple[Stmt, ...], row: Var, kept: list[int]) -> tuple[Stmt, ...]:
    """Index the row by the axes that it still has."""

    def rule(buffer: Buffer, at: At) -> tuple[Buffer, At]:
        if buffer.name != row.name:
            return buffer, at
        return buffer_of(row), tuple(at[axis] for axis in kept)

    return map_accesses(body, rule)
