# SPDX-License-Identifier: Apache-2.0
"""A producer that computes each element by itself is computed where it is read.

for at { t[at] = f(at) }
for i { total += t[i, k] * w[k] }     ->     for i { total += f(i, k) * w[k] }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.fusion import legality
from relax_aot.fusion.accesses import Access, loads
from relax_aot.fusion.decoding import DECODING, decodes
from relax_aot.fusion.indexing import Reindexed, reindex, split_loops
from relax_aot.fusion.mergers._merger import Context, Pair, Refused
from relax_aot.fusion.nest import Definition, cost, substitute_in
from relax_aot.fusion.piece import Fresh, Piece, kept_apart
from relax_aot.fusion.products import is_factor
from relax_aot.fusion.refine import refined
from relax_aot.ir.builder import At
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Var
from relax_aot.ir.loops import (
    LOGICAL,
    PARTS,
    Binary,
    Bind,
    Expr,
    For,
    If,
    Load,
    Select,
    Stmt,
    held,
    index_dims,
    parts,
)
from relax_aot.ir.names import defined_name, renamed
from relax_aot.ir.rewrite import map_exprs, map_index_dims

EXAMPLES = (
    Example(
        why="a transpose becomes an index",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 4]) {
              %t: f32[4, n] = call_kernel(%x) {kernel=@transpose}
              %y: f32[4] = call_kernel(%t) {kernel=@sum}
              return %y
            }
            kernel @transpose(%x: f32[n, 4]) -> (%t: f32[4, n]) {
              for i in 0..4 {
                for j in 0..n {
                  %t[i, j] = %x[j, i]
                }
              }
            }
            kernel @sum(%t: f32[4, n]) -> (%y: f32[4]) {
              for i in 0..4 {
                local total: f32 = 0.0:f32
                for j in 0..n {
                  total = (total + %t[i, j])
                }
                %y[i] = total
              }
            }""",
        after="""
            symbol n in 1..9
            func @main(%x: f32[n, 4]) {
              %y: f32[4] = call_kernel(%x) {kernel=@transpose_sum_y}
              return %y
            }
            kernel @transpose_sum_y(%x: f32[n, 4]) -> (%y: f32[4]) {
              for i in 0..4 {
                local total: f32 = 0.0:f32
                for j in 0..n {
                  total = (total + %x[j, i])
                }
                %y[i] = total
              }
            }""",
    ),
    Example(
        why="a quantized weight is decoded in its product",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 4], %w: i8[4]) {
              %t: f32[4] = call_kernel(%w) {kernel=@decode_t}
              %y: f32[n] = call_kernel(%x, %t) {kernel=@dot_y}
              return %y
            }
            kernel @decode_t(%w: i8[4]) -> (%t: f32[4]) {
              for i in 0..4 {
                %t[i] = (cast(%w[i], f32, wrap) * 0.5:f32)
              }
            }
            kernel @dot_y(%x: f32[n, 4], %t: f32[4]) -> (%y: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + (%x[i, j] * %t[j]))
                }
                %y[i] = total
              }
            }""",
        after="""
            symbol n in 1..9
            func @main(%x: f32[n, 4], %w: i8[4]) {
              %y: f32[n] = call_kernel(%x, %w) {kernel=@decode_dot_y}
              return %y
            }
            kernel @decode_dot_y(%x: f32[n, 4], %w: i8[4]) -> (%y: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + (%x[i, j] * (cast(%w[j], f32, wrap) * 0.5:f32)))
                }
                %y[i] = total
              }
            }""",
    ),
    Example(
        why="weights of 4 bits are decoded in their product",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 32], %w: u8[16], %s: f32[2]) {
              %t: f32[32] = call_kernel(%w, %s) {kernel=@decode_t}
              %y: f32[n] = call_kernel(%x, %t) {kernel=@dot_y}
              return %y
            }
            kernel @decode_t(%w: u8[16], %s: f32[2]) -> (%t: f32[32]) {
              for i in 0..32 {
                %t[i] = (cast(((%w[i // 2] >> cast(index(4*(i % 2)), u8, wrap)) & 15:u8), f32, wrap)
                  * %s[i // 16])
              }
            }
            kernel @dot_y(%x: f32[n, 32], %t: f32[32]) -> (%y: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..32 {
                  total = (total + (%x[i, j] * %t[j]))
                }
                %y[i] = total
              }
            }""",
        after="""
            ...
            kernel @decode_dot_y(%x: f32[n, 32], %w: u8[16], %s: f32[2]) -> (%y: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..32 {
                  total = (total + (%x[i, j] * (cast(...) * %s[j // 16])))
                }
                %y[i] = total
              }
            }""",
    ),
    Example(
        why="weights are decoded in their product across the order that they are stored in",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 8], %w: i8[3, 8], %s: f32[3, 4]) {
              %t: f32[8, 3] = call_kernel(%w, %s) {kernel=@decode_t}
              %y: f32[n, 3] = call_kernel(%x, %t) {kernel=@dot_y}
              return %y
            }
            kernel @decode_t(%w: i8[3, 8], %s: f32[3, 4]) -> (%t: f32[8, 3]) {
              for i in 0..3 {
                for j in 0..8 {
                  %t[j, i] = (cast(%w[i, j], f32, wrap) * %s[i, j // 2])
                }
              }
            }
            kernel @dot_y(%x: f32[n, 8], %t: f32[8, 3]) -> (%y: f32[n, 3]) {
              for i in 0..n {
                for k in 0..3 {
                  local total: f32 = 0.0:f32
                  for j in 0..8 {
                    total = (total + (%x[i, j] * %t[j, k]))
                  }
                  %y[i, k] = total
                }
              }
            }""",
        after="""
            ...
            kernel @decode_dot_y(%x: f32[n, 8], %w: i8[3, 8], %s: f32[3, 4]) -> (%y: f32[n, 3]) {
              for i in 0..n {
                for k in 0..3 {
                  local total: f32 = 0.0:f32
                  for j in 0..8 {
                    total = (total + (%x[i, j] * (cast(%w[k, j], f32, wrap) * %s[k, j // 2])))
                  }
                  %y[i, k] = total
                }
              }
            }""",
    ),
    Example(
        why="rows are fetched where they are added",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 4], %from: i64[7], %to: i64[7], %s: f32[n, 4]) {
              %t: f32[7, 4] = call_kernel(%x, %from) {kernel=@gather_t}
              %y: f32[n, 4] = call_kernel(%s, %to, %t) {kernel=@scatter_y}
              return %y
            }
            kernel @gather_t(%x: f32[n, 4], %from: i64[7]) -> (%t: f32[7, 4]) {
              for i in 0..7 {
                checked k in 0..n - 1 = %from[i]
                for j in 0..4 {
                  %t[i, j] = %x[k, j]
                }
              }
            }
            kernel @scatter_y(%s: f32[n, 4], %to: i64[7], %t: f32[7, 4]) -> (%y: f32[n, 4]) {
              for i in 0..n {
                for j in 0..4 {
                  %y[i, j] = %s[i, j]
                }
              }
              for i in 0..7 {
                checked k in 0..n - 1 = %to[i]
                for j in 0..4 {
                  %y[k, j] = (%y[k, j] + %t[i, j])
                }
              }
            }""",
        after="""
            ...
              for i in 0..7 {
                checked k in 0..n - 1 = %to[i]
                checked k_2 in 0..n - 1 = %from[i]
                for j in 0..4 {
                  %y[k, j] = (%y[k, j] + %x[k_2, j])
                }
              }
            }""",
    ),
    Example(
        why="two loops read a row that is fetched once",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n, 4], %from: i64[7]) {
              %t: f32[7, 4] = call_kernel(%x, %from) {kernel=@gather_t}
              %y: f32[7, 4] = call_kernel(%t) {kernel=@shift_y}
              return %y
            }
            kernel @gather_t(%x: f32[n, 4], %from: i64[7]) -> (%t: f32[7, 4]) {
              for i in 0..7 {
                checked k in 0..n - 1 = %from[i]
                for j in 0..4 {
                  %t[i, j] = %x[k, j]
                }
              }
            }
            kernel @shift_y(%t: f32[7, 4]) -> (%y: f32[7, 4]) {
              for i in 0..7 {
                local most: f32 = -inf:f32
                for j in 0..4 {
                  most = max(most, %t[i, j])
                }
                for j in 0..4 {
                  %y[i, j] = (%t[i, j] - most)
                }
              }
            }""",
        after="""
            ...
              for i in 0..7 {
                local most: f32 = -inf:f32
                checked k_2 in 0..n - 1 = %from[i]
                for j in 0..4 {
                  most = max(most, %x[k_2, j])
                }
                for j in 0..4 {
                  %y[i, j] = (%x[k_2, j] - most)
                }
              }
            }""",
    ),
    Example(
        why="rows that two kernels read are fetched once",
        before="""
            symbol n in 1..9
            func @main(%x: f32[9, 4], %at: i64[n]) {
              %t: f32[n, 4] = call_kernel(%x, %at) {kernel=@gather_t}
              %s: f32[n] = call_kernel(%t) {kernel=@sum_s}
              %y: f32[n, 4] = call_kernel(%t) {kernel=@double_y}
              return %s, %y
            }
            kernel @gather_t(%x: f32[9, 4], %at: i64[n]) -> (%t: f32[n, 4]) {
              for i in 0..n {
                checked k in 0..8 = %at[i]
                for j in 0..4 {
                  %t[i, j] = %x[k, j]
                }
              }
            }
            kernel @sum_s(%t: f32[n, 4]) -> (%s: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                for j in 0..4 {
                  total = (total + %t[i, j])
                }
                %s[i] = total
              }
            }
            kernel @double_y(%t: f32[n, 4]) -> (%y: f32[n, 4]) in_place (%t = %y) {
              for i in 0..n {
                for j in 0..4 {
                  %y[i, j] = (%t[i, j] + %t[i, j])
                }
              }
            }""",
        refused="several kernels read the rows that it fetches",
    ),
    Example(
        why="a costly value would be computed n times",
        before="""
            symbol n in 1..9
            func @main(%x: f32[n]) {
              %t: f32[n] = call_kernel(%x) {kernel=@exp_t}
              %y: f32[3, n] = call_kernel(%t) {kernel=@repeat_y}
              return %y
            }
            kernel @exp_t(%x: f32[n]) -> (%t: f32[n]) in_place (%x = %t) {
              for i in 0..n {
                %t[i] = exp(%x[i])
              }
            }
            kernel @repeat_y(%t: f32[n]) -> (%y: f32[3, n]) {
              for i in 0..3 {
                for j in 0..n {
                  %y[i, j] = %t[j]
                }
              }
            }""",
        refused="it would be recomputed for each read",
    ),
    Example(
        why="windows read an element several times",
        before="""
            symbol n in 3..8
            func @main(%x: f32[n]) {
              %t: f32[n] = call_kernel(%x) {kernel=@exp_t}
              %y: f32[n - 2] = call_kernel(%t) {kernel=@sum_y}
              return %y
            }
            kernel @exp_t(%x: f32[n]) -> (%t: f32[n]) in_place (%x = %t) {
              for i in 0..n {
                %t[i] = exp(%x[i])
              }
            }
            kernel @sum_y(%t: f32[n]) -> (%y: f32[n - 2]) {
              for i in 0..n - 2 {
                local sum: f32 = 0.0:f32
                for j in 0..3 {
                  sum = (sum + %t[i + j])
                }
                %y[i] = sum
              }
            }""",
        refused="it would be recomputed for each read",
    ),
)


def merge(pair: Pair, context: Context) -> Piece | Refused:
    """The consumer, with what it reads computed in place."""
    producer, consumer = pair.producer, pair.consumer
    ((made, seen),) = ((link.made, link.seen) for link in pair.links)
    if legality.opaque(consumer.body):
        return Refused("the consumer calls a micro-kernel")
    producer, consumer = kept_apart(producer, consumer)
    theirs, made = refined(producer.body, made)
    definition = Definition.of(theirs, made.name)
    if definition is None or len(producer.writes) != 1:
        return Refused("the producer does not compute each element independently")
    fresh = Fresh(consumer.names | producer.names)
    body = consumer.body
    found = _positions(body, made, seen, fresh)
    while found is not None and any(f.splits for _, f in found):
        body = split_loops(body, next(f.splits for _, f in found if f.splits))
        found = _positions(body, made, seen, fresh)
    # Loads with the same text are loads of the same position. Loops side by side may have one
    # variable and different ranges.
    positions = {site.index: position.index for site, position in found or ()}
    if any(positions[site.index] != position.index for site, position in found or ()):
        body = fresh.unique(body)
        found = _positions(body, made, seen, fresh)
    if found is None:
        return Refused("the consumer reads it in a shape that does not match its loops")
    indices = {site.index: position.index for site, position in found}
    instances = {index: _instance(definition, at, fresh) for index, at in indices.items()}
    sites = [site for site, _ in found]
    outside = frozenset[str]().union(*(one.symbols for one in instances.values()))
    factor = is_factor(body, sites, outside)
    if definition.fetched and pair.kept and not factor:
        return Refused("several kernels read the rows that it fetches")
    cheap = cost(definition.value) <= DECODING and factor
    reason = _too_dear(definition, producer, sites, context.bounds)
    if reason is not None and not (definition.fetched and cheap):
        return Refused(reason)
    if definition.fetched:
        placed = _fetched(body, seen.name, instances)
        if placed is None:
            return Refused("an index from data would be read where a condition may not hold")
        body = placed

    def rule(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.buffer.name != seen.name:
            return expr
        return instances[expr.index].value

    reads = (*(v for v in consumer.reads if v.name != seen.name), *producer.reads)
    return replace(
        consumer,
        ops=producer.ops + consumer.ops,
        reads=tuple(dict.fromkeys(reads)),
        body=map_exprs(body, rule),
        origins=producer.origins + consumer.origins,
    )


@dataclass(frozen=True, slots=True)
class _Instance:
    """The producer's value at one position, and the indices from data that it needs."""

    value: Expr
    fetched: tuple[Stmt, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """What must be known where the indices are read."""
        made = {stmt.name for stmt in self.fetched if isinstance(stmt, Bind)}
        dims = (dim for stmt in self.fetched for dim in index_dims(stmt))
        return frozenset[str]().union(*(dim.symbols for dim in dims)) - made


def _instance(definition: Definition, at: At, fresh: Fresh) -> _Instance:
    places = {name: at[axis] for name, axis in definition.variables.items()}
    value = substitute_in(definition.value, places)
    if not definition.fetched:
        return _Instance(value, ())
    names = {name: fresh(name) for stmt in definition.fetched if (name := defined_name(stmt))}
    fetched = map_index_dims(definition.fetched, lambda dim: dim.substitute(places))
    fetched = renamed(fetched, names)
    moved = {name: Dim.of(other) for name, other in names.items()}
    return _Instance(substitute_in(value, moved), fetched)


def _fetched(
    body: tuple[Stmt, ...], name: str, instances: Mapping[At, _Instance]
) -> tuple[Stmt, ...] | None:
    """With the indices of each load from `name` read before it, in the outermost loop where that
    is possible; None where a condition decides whether the load is evaluated."""
    placed, waiting = _placed(body, name, instances)
    return None if placed is None or waiting else placed


def _placed(
    body: tuple[Stmt, ...], name: str, instances: Mapping[At, _Instance], around: str = ""
) -> tuple[tuple[Stmt, ...] | None, list[At]]:
    """The block, and loads whose indices can be read before the loop over `around`."""
    made: list[Stmt] = []
    defined = {around} if around else set()
    here: set[At] = set()
    outwards: list[At] = []
    for stmt in body:
        needed = [load.index for expr in held(stmt, PARTS) for load in _loads(expr, name)]
        if any(_conditional(expr, name) for expr in held(stmt, PARTS)):
            return None, []
        match stmt:
            case For():
                inner, more = _placed(stmt.body, name, instances, stmt.variable)
                if inner is None:
                    return None, []
                stmt = replace(stmt, body=inner)
                needed += more
            case If():
                for block in (stmt.then, stmt.otherwise):
                    inner, more = _placed(block, name, instances)
                    if inner is None or inner != block or more:
                        return None, []
            case _:
                pass
        for index in dict.fromkeys(needed):
            if around and not instances[index].symbols & defined:
                outwards.append(index)
            elif index not in here:
                here.add(index)
                made += instances[index].fetched
        made.append(stmt)
        defined.add(defined_name(stmt))
    return tuple(made), list(dict.fromkeys(outwards))


def _loads(expr: Expr, name: str) -> list[Load]:
    return [p for p in parts(expr) if isinstance(p, Load) and p.buffer.name == name]


def _conditional(expr: Expr, name: str) -> bool:
    """Whether a load from the buffer is evaluated under a condition only."""
    return any(
        bool(_loads(side, name))
        for part in parts(expr)
        for side in (
            (part.then, part.otherwise)
            if isinstance(part, Select)
            else (part.right,)
            if isinstance(part, Binary) and part.op in LOGICAL
            else ()
        )
    )


def _positions(
    body: tuple[Stmt, ...], made: Var, seen: Var, fresh: Fresh
) -> list[tuple[Access, Reindexed]] | None:
    result = []
    for site in loads(body, seen.name):
        index = site.index if made.type.shape == seen.type.shape else site.at
        found = reindex(index, seen.type.shape, made.type.shape, site.table, fresh)
        if found is None:
            return None
        result.append((site, found))
    return result


def _too_dear(
    definition: Definition, producer: Piece, found: list[Access], bounds: Bounds
) -> str | None:
    """Why computing it at each read would cost more than it saves; None where it does not."""
    price = cost(definition.value)
    once = all(site.once for site in found)
    if definition.fetched and not once:
        return "its indices from data would be read again for each use"
    if definition.is_movement or (once and price <= 3):
        return None
    if once and len(found) == 1 and not legality.windows_overlap(found[0], bounds):
        return None
    if decodes(definition, producer, bounds):
        return None
    if price <= DECODING and not producer.reads:
        return None
    return "it would be recomputed for each read"
