# SPDX-License-Identifier: Apache-2.0
"""A consumer that works element by element moves to where its operand is stored.

    for at { total = ...; t[at] = total }      for at { total = ...; y[at] = f(total) }
    for at { y[at] = f(t[at]) }           ->

Whatever computes `t`, and in whatever order: each element of `y` is computed just after
its element of `t`. This is fusing an epilogue, for every kind of producer that stores each
element exactly once, and for a reader whose iterations may run in any order (`legality`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relax_aot.fusion import legality
from relax_aot.fusion.accesses import loads, stores
from relax_aot.fusion.indexing import reindex, split_loops
from relax_aot.fusion.mergers._merger import Context, Link, Pair, Refused
from relax_aot.fusion.nest import Definition, Nest, as_stored
from relax_aot.fusion.piece import Fresh, Piece, kept_apart
from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.example import Example
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Declare,
    Expr,
    For,
    If,
    Let,
    Lit,
    Load,
    Local,
    Stmt,
    Store,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims

EXAMPLES = (
    Example(
        why="an activation behind a sum",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 4]) {
              %t: f32[n] = call_kernel(%x) {kernel=@sum}
              %y: f32[n] = call_kernel(%t) {kernel=@root}
              return %y
            }
            kernel @sum(%x: f32[n, 4]) -> (%t: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + %x[i, j])
                }
                %t[i] = total
              }
            }
            kernel @root(%t: f32[n]) -> (%y: f32[n]) {
              for k in 0..n {
                %y[k] = sqrt(%t[k])
              }
            }""",
        after="""
            symbol n in 1..9
            func @main(%x: f32[n, 4]) {
              %y: f32[n] = call_kernel(%x) {kernel=@sum_root_y}
              return %y
            }
            kernel @sum_root_y(%x: f32[n, 4]) -> (%y: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + %x[i, j])
                }
                %y[i] = sqrt(total)
              }
            }""",
    ),
    Example(
        why="the value is also a result, and the consumer reads a view of it",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n]) {
              %t: f32[n] = call_kernel(%x) {kernel=@square_t}
              %v: f32[n, 1] = view(%t)
              %y: f32[1, n] = call_kernel(%v) {kernel=@negate_y}
              return %t, %y
            }
            kernel @square_t(%x: f32[n]) -> (%t: f32[n]) in_place (%x = %t) {
              for i in 0..n {
                %t[i] = (%x[i] * %x[i])
              }
            }
            kernel @negate_y(%v: f32[n, 1]) -> (%y: f32[1, n]) {
              for i in 0..n {
                %y[0, i] = -%v[i, 0]
              }
            }""",
        after="""
            symbol n in 1..9
            func @main(%x: f32[n]) {
              %t: f32[n], %y: f32[1, n] = call_kernel(%x) {kernel=@square_negate_y}
              return %t, %y
            }
            kernel @square_negate_y(%x: f32[n]) -> (%t: f32[n], %y: f32[1, n]) in_place (%x = %t) {
              for i in 0..n {
                local value: f32 = (%x[i] * %x[i])
                %t[i] = value
                %y[0, i] = (-value)
              }
            }""",
    ),
    Example(
        why="a consumer that stores an element several times",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 3]) {
              %t: f32[n, 3] = call_kernel(%x) {kernel=@exp_t}
              %y: f32[n + 2] = call_kernel(%t) {kernel=@diagonal_y}
              return %y
            }
            kernel @exp_t(%x: f32[n, 3]) -> (%t: f32[n, 3]) in_place (%x = %t) {
              for i in 0..n {
                for j in 0..3 {
                  %t[i, j] = exp(%x[i, j])
                }
              }
            }
            kernel @diagonal_y(%t: f32[n, 3]) -> (%y: f32[n + 2]) {
              for i in 0..n {
                for j in 0..3 {
                  %y[i + j] = %t[i, j]
                }
              }
            }""",
        refused="the consumer may store an element more than once",
    ),
)


def merge(pair: Pair, context: Context) -> Piece | Refused:
    """One piece in place of two. Results of the producer that others read are still stored."""
    return _not_worth_it(pair, context) or _merged(pair, context)


def _not_worth_it(pair: Pair, context: Context) -> Refused | None:
    producer, consumer = pair.producer, pair.consumer
    if len({link.made.name for link in pair.links}) != len(pair.links):
        return Refused("the consumer reads it in two shapes")
    if producer.fallible and any(v.name in context.results for v in consumer.writes):
        return Refused("the producer can fail, and results of the model are stored last")
    if _has(consumer, Bind) and _has(producer, Assign):
        return Refused("the consumer's indices come from data, and the producer is a reduction")
    definition = Definition.of(consumer.body, consumer.writes[0].name)
    if pair.kept and definition is not None and definition.is_movement:
        return Refused("it has other consumers, and this one only copies it")
    if len(consumer.body) > 1 and not _makes_more_than_it_takes(pair, context):
        return Refused("the consumer has several loops, and the producer's operands are larger")
    return None


def _has(piece: Piece, kind: type[Bind | Assign]) -> bool:
    return any(isinstance(stmt, kind) for stmt in walk(piece.body))


def _makes_more_than_it_takes(pair: Pair, context: Context) -> bool:
    """Its operands, which must now live until the last part runs, cost no more."""
    made = sum((link.made.type.bytes for link in pair.links), start=Dim.of(0))
    operands = (v for v in pair.producer.reads if v.name not in context.constants)
    taken = sum((v.type.bytes for v in operands), start=Dim.of(0))
    return interval(taken - made, context.bounds)[1] <= 0


def _merged(pair: Pair, context: Context) -> Piece | Refused:
    producer, consumer, links, kept = pair.producer, pair.consumer, pair.links, pair.kept
    bounds = context.bounds
    if legality.opaque(producer.body) or legality.opaque(consumer.body):
        return Refused("one of them calls a micro-kernel")
    names = {link.seen.name for link in links}
    _, read_in, _ = _around(consumer.body, names)
    if any(isinstance(stmt, For) for stmt in walk(Nest.of(read_in).inner)):
        return Refused("the consumer has inner loops for each element")
    producer, consumer = kept_apart(producer, consumer)
    fresh = Fresh(producer.names | consumer.names)
    before, reading, after = _around(fresh.renamed(consumer.body), names)
    nest = Nest.of(reading)
    axes: dict[str, dict[str, int]] = {}
    for link in links:
        at = {load.at for load in loads(reading, link.seen.name)}
        found = nest.axes(next(iter(at)), link.seen.type.shape) if at else None
        if found is None or len(at) != 1:
            return Refused("the consumer does not read each element exactly once")
        axes[link.seen.name] = found
    made = {link.made.name for link in links}
    reason = legality.independent(nest.inner, nest.loops, bounds)
    if reason is not None:
        return Refused(reason)
    if made & producer.loaded:
        return Refused("the producer reads its own result")
    found_stores = [stores(producer.body, name) for name in sorted(made)]
    if any(len(s) != len(found_stores[0]) for s in found_stores):
        return Refused("the producer stores its results in different blocks")
    if len(found_stores[0]) > 4:
        return Refused("the producer stores it too often")
    for value in {link.made for link in links}:
        if not legality.stored_once(producer.body, value.name, value.type.shape, bounds):
            return Refused("the producer is not proven to store each element exactly once")
    prepared = _cut_loops(producer.body, links, fresh)
    if isinstance(prepared, Refused):
        return prepared
    merger = _Merger(nest, links, axes, kept, fresh)
    body = merger.block(prepared, {}, ())
    if merger.trouble is not None:
        return Refused(merger.trouble)
    reads = (*producer.reads, *(v for v in consumer.reads if v.name not in names))
    return Piece(
        producer.ops + consumer.ops,
        tuple(dict.fromkeys(reads)),
        (*(v for v in producer.writes if v.name not in made or v.name in kept), *consumer.writes),
        producer.scratch + consumer.scratch,
        before + body + after,
        producer.origins + consumer.origins,
    )


_Block = tuple[Stmt, ...]


def _around(body: _Block, names: set[str]) -> tuple[_Block, _Block, _Block]:
    """What comes before the part that reads the links, that part, and what comes after: a
    concatenation, say, has one nest of loops for each operand."""
    reading = [n for n, stmt in enumerate(body) if any(loads((stmt,), name) for name in names)]
    if not reading or not all(isinstance(stmt, For) for stmt in body):
        return (), body, ()
    first, last = reading[0], reading[-1] + 1
    return body[:first], body[first:last], body[last:]


def _cut_loops(
    body: tuple[Stmt, ...], links: tuple[Link, ...], fresh: Fresh
) -> tuple[Stmt, ...] | Refused:
    """Cut the producer's loops as the shapes that the consumer sees ask for."""
    for link in links:
        if link.made.type.shape == link.seen.type.shape:
            continue
        for store in stores(body, link.made.name):
            shapes = (link.made.type.shape, link.seen.type.shape)
            found = reindex(store.at, *shapes, store.table, fresh)
            if found is None:
                return Refused("the consumer reads it in a shape that does not match the loops")
            if found.splits:
                return _cut_loops(split_loops(body, found.splits), links, fresh)
    return body


class _Merger:
    """Puts the consumer's work behind the last store of each block that stores it all."""

    def __init__(
        self,
        nest: Nest,
        links: tuple[Link, ...],
        axes: Mapping[str, Mapping[str, int]],
        kept: frozenset[str],
        fresh: Fresh,
    ) -> None:
        self._nest = nest
        self._links = {link.made.name: link for link in links}
        self._axes = axes
        self._kept = kept
        self._fresh = fresh
        self.trouble: str | None = None

    def block(
        self, body: tuple[Stmt, ...], loops: Mapping[str, For], lets: tuple[Let, ...]
    ) -> tuple[Stmt, ...]:
        here = [s for s in body if isinstance(s, Store) and s.buffer.name in self._links]
        if here and {s.buffer.name for s in here} != set(self._links):
            self.trouble = "the producer stores its results in different blocks"
            return body
        result: list[Stmt] = []
        values: dict[str, Expr] = {}
        places: list[dict[str, Dim]] = []
        for stmt in body:
            match stmt:
                case For():
                    inner = self.block(stmt.body, {**loops, stmt.variable: stmt}, lets)
                    result.append(replace(stmt, body=inner))
                case If():
                    then = self.block(stmt.then, loops, lets)
                    other = self.block(stmt.otherwise, loops, lets)
                    result.append(If(stmt.condition, then, other))
                case Store() if stmt.buffer.name in self._links:
                    link = self._links[stmt.buffer.name]
                    last = len(values) + 1 == len(self._links)
                    value = self._held(stmt.value, link, result, last=last)
                    if link.made.name in self._kept:
                        result.append(replace(stmt, value=value))
                    values[link.seen.name] = value
                    places.append(self._place(stmt, link, loops, lets))
                    if last:
                        result += self._work(values, places)
                        values, places = {}, []
                case _:
                    if isinstance(stmt, Let):
                        lets = (*lets, stmt)
                    result.append(stmt)
        return tuple(result)

    def _held(self, value: Expr, link: Link, result: list[Stmt], *, last: bool) -> Expr:
        """The stored value as something that may be used again and again, and later."""
        value = as_stored(value)
        uses = len(loads(self._nest.inner, link.seen.name))
        # What is stored first must outlast whatever runs until the last store.
        if isinstance(value, Lit) or (last and isinstance(value, Local)):
            return value
        # The consumer is one statement, so nothing runs before it uses its operand.
        single = len(self._nest.inner) == 1 and isinstance(self._nest.inner[0], Store)
        if last and uses == 1 and link.made.name not in self._kept and single:
            return value
        local = Local(self._fresh("value"), link.made.type.dtype)
        result.append(Declare(local, value))
        return local

    def _place(
        self, stmt: Store, link: Link, loops: Mapping[str, For], lets: tuple[Let, ...]
    ) -> dict[str, Dim]:
        index = stmt.index
        if link.made.type.shape != link.seen.type.shape:
            for let in reversed(lets):
                index = tuple(dim.substitute({let.name: let.value}) for dim in index)
            shapes = (link.made.type.shape, link.seen.type.shape)
            found = reindex(index, *shapes, loops, self._fresh)
            if found is None or found.splits:
                self.trouble = "the consumer reads it in a shape that does not match the loops"
                return {}
            index = found.index
        return {name: index[axis] for name, axis in self._axes[link.seen.name].items()}

    def _work(self, values: Mapping[str, Expr], places: list[dict[str, Dim]]) -> tuple[Stmt, ...]:
        if any(place != places[0] for place in places):
            self.trouble = "the producer stores its results at different indices"
            return ()

        def rule(expr: Expr) -> Expr:
            return values.get(expr.buffer.name, expr) if isinstance(expr, Load) else expr

        inner = map_index_dims(self._nest.inner, lambda dim: dim.substitute(places[0]))
        return self._fresh.renamed(map_exprs(inner, rule))
