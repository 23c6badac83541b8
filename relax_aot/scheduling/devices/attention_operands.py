# SPDX-License-Identifier: Apache-2.0
"""An attention as two products of matrices: queries by keys, and weights by values.

Scores and weights are arrays that do not exist. They are floats, also where a model rounds them to
half precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, simplify
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    binary,
    expressions,
    walk,
)
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.attention import Attention
from relax_aot.scheduling.contraction import contraction_of
from relax_aot.scheduling.devices.attention_scores import Score, score_of
from relax_aot.scheduling.devices.operands import At, Product, as_floats, extent, product_of, split
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer

ZERO_F32, LOWEST = Lit(0.0, DType.F32), Lit(-inf, DType.F32)
"""The first sum, and the score of a key that is none."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two products of an attention, whose scores and weights are arrays that do not exist.
    `sizes`: the steps of the first and the columns of the second."""

    found: Attention
    scores: Product
    score: Score
    values: Product
    sizes: tuple[int, int]


def pair_of(
    loops: Sequence[For], found: Attention, bounds: Bounds, context: Context
) -> Pair | None:
    """The products of an attention; None where they are none of matrices."""
    scores = _scores(loops, found, bounds, context)
    values = _values(loops, found, bounds, context)
    if scores is None or values is None:
        return None
    same = (scores.rows, set(scores.batch)) == (values.rows, set(values.batch))
    depth, width = extent(scores.steps), extent(values.columns)
    if not same or not (depth.is_constant and width.is_constant):
        return None
    return Pair(found, scores, score_of(scores), values, (depth.constant, width.constant))


def _scores(
    loops: Sequence[For], found: Attention, bounds: Bounds, context: Context
) -> Product | None:
    """The product of queries and keys, whose results are elements of an array that does not
    exist."""
    if len(found.scores) != 1:
        return None
    (keys,) = found.scores
    stores = [stmt for stmt in walk((keys,)) if isinstance(stmt, Store)]
    if len(stores) != 1 or stores[0].buffer != found.score.buffer:
        return None
    every = (*loops, keys)
    array = Buffer("_scores", found.score.dtype, tuple(loop.extent for loop in every))
    at = tuple(Dim.of(loop.variable) - loop.start for loop in every)

    def stored(stmt: Stmt) -> Stmt:
        return Store(array, at, stmt.value) if isinstance(stmt, Store) else stmt

    product = _product(every, map_statements(keys.body, stored), bounds, context)
    if product is None or product.columns != (replace(keys, body=()),):
        return None
    read = [e for stmt in product.found.after for e in expressions(stmt) if isinstance(e, Load)]
    return None if any(load.buffer.name in found.rows for load in read) else product


def _values(
    loops: Sequence[For], found: Attention, bounds: Bounds, context: Context
) -> Product | None:
    """The product of weights and values. The weights are an array that does not exist."""
    mix = found.mix
    every = (*loops, mix.keys)
    array = Buffer("_weights", found.weight.dtype, tuple(loop.extent for loop in every))
    at = tuple(Dim.of(loop.variable) - loop.start for loop in every)

    def loaded(expr: Expr) -> Expr:
        own = isinstance(expr, Load) and expr.buffer == found.weight.buffer
        return Load(array, at) if own else expr

    (added,) = mix.keys.body
    assert isinstance(added, Assign) and isinstance(added.value, Binary)
    product = added.value.right if added.value.left == mix.sum else added.value.left
    if not isinstance(product, Binary) or loaded(product.left) == loaded(product.right):
        return None
    left, right = loaded(product.left), loaded(product.right)
    body = (replace(added, value=Binary("+", mix.sum, Binary("*", left, right))),)
    leaf = (Declare(mix.sum, Lit(0.0, mix.sum.dtype)), replace(mix.keys, body=body), *mix.after)
    made = _product((*loops, *mix.loops), leaf, bounds, context)
    if made is None or made.found.left.buffer != array or len(made.steps) != 1:
        return None
    return made


def _product(
    loops: Sequence[For], leaf: tuple[Stmt, ...], bounds: Bounds, context: Context
) -> Product | None:
    """A nest of loops as a product of floats."""

    def fused(stmt: Stmt) -> Stmt:
        match stmt:
            case Assign(total, Binary("+", a, b)) if total in (a, b) and total.dtype is DType.F32:
                product = b if a == total else a
                if isinstance(product, Binary) and product.op == "*":
                    return replace(stmt, value=Apply("fma", (product.left, product.right, total)))
        return stmt

    body = map_statements(leaf, fused)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    found = contraction_of(body[0], bounds)
    floats = as_floats(found) if found is not None else None
    product = product_of(floats, context) if floats is not None else None
    return product if product is not None and product.padded is None else None


# Code of all forms


@contextmanager
def queries_of_blocks(w: Writer, pair: Pair, queries: int) -> Iterator[tuple[Dim, At]]:
    """A launch of blocks that compute so many queries each: the first row of a block, and the
    matrices of the batch."""
    scores = pair.scores
    down = simplify(ceildiv(extent(scores.rows), queries), w.bounds)
    grid = simplify(extent(scores.batch) * down, w.bounds)
    with w.range("block", grid, axis="block") as block:
        batch = w.short("batch", block // down)
        part = w.let("down", block - batch * down, ZERO, down)
        row = w.let("row", part * queries, ZERO, down * queries)
        yield row, split(w, scores.batch, batch)


def divisor_of(w: Writer, found: Attention, whole: Expr) -> Local:
    """What sums of values are divided by, for the sum of the powers; declares it."""
    divisor = Local(w.fresh("whole"), DType.F32)
    w.add(Declare(divisor, whole))
    empty = binary("==", found.length, 0)
    if found.one_total:
        empty = Binary("==", divisor, ZERO_F32)
    w.add(Assign(divisor, Select(empty, Lit(1.0, DType.F32), divisor)))
    return divisor


def type_of_factor(product: Product, load: Load) -> DType:
    """That of its elements, which may be computed."""
    computed = product.found.computed_at(load)
    return load.dtype if computed is None else computed.value.dtype


def signed(value: Expr, score: Score, kind: DType) -> Expr:
    """A query, with another sign where the factor of scores is negative."""
    if score.negative is None:
        return value
    sign = Select(score.negative, Lit(-1.0, kind), Lit(1.0, kind))
    return Binary("*", value, sign)
