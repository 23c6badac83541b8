# SPDX-License-Identifier: Apache-2.0
"""What an attention makes of a sum of products of queries and keys: its score.

Most models multiply all sums by one number, and add a mask or choose by one. The number is applied
in the exponent of the softmax, where it costs nothing; a mask that is only added is what the sums
begin with. Scores are floats, also where a model rounds them to half precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import inf, isfinite

import numpy as np

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Cast,
    Declare,
    Expr,
    Lit,
    Load,
    Local,
    Select,
    Store,
    apply,
    parts,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.attention import HALF_HIGH
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.operands import At, Product
from relax_aot.scheduling.writer import Writer

GREATEST = float(np.finfo(np.float32).max)
CERTAIN = 2.0**25
"""Keys whose scores are that far below others have no weight, whatever these are."""
LEAST = 2.0**-100
"""A factor is at least that, so that numbers that stand for shut keys stay the lowest scores."""
ZERO, ONE = Lit(0.0, DType.F32), Lit(1.0, DType.F32)


@dataclass(frozen=True, slots=True)
class Score:
    """`value`, an expression of the local `sum`, which begins with `start` (None: 0). Signs of sums
    are changed where `negative` holds, and values are to be multiplied by `factor`, which is
    positive (None: 1). `before`: scalars of a whole matrix of scores."""

    sum: Local
    value: Expr
    start: Expr | None = None
    factor: Expr | None = None
    negative: Expr | None = None
    before: tuple[Declare, ...] = ()

    @property
    def is_sum(self) -> bool:
        return self.value == self.sum

    def of(self, sum_: Expr, at: At) -> Expr:
        """The value of one sum."""
        return with_locals(substitute_in(self.value, dict(at)), {self.sum: sum_})

    def declared(self, w: Writer, at: At) -> Score:
        """The score of one matrix, whose scalars are computed here."""
        values = dict[Local, Expr]()
        w.place(self.before, values, at)
        factor, negative = (
            None if expr is None else with_locals(expr, values)
            for expr in (self.factor, self.negative)
        )
        return replace(
            self, value=with_locals(self.value, values), factor=factor, negative=negative, before=()
        )


def score_of(product: Product) -> Score:
    """The score that follows each sum of a product of queries and keys."""
    found, values = product.found, dict[Local, Expr]()
    start = found.start
    if not (isinstance(start, Lit) and start.value == 0):
        values[found.sum] = Binary("+", found.sum, start)
    for stmt in found.after:
        if isinstance(stmt, Declare):
            values[stmt.local] = wide(with_locals(stmt.value, values))
    (store,) = (stmt for stmt in found.after if isinstance(stmt, Store))
    return Score(found.sum, wide(with_locals(store.value, values)))


def reduced(score: Score, product: Product) -> Score:
    """With a factor of all scores apart, and a mask as the start of sums."""
    moving = {loop.variable for loop in (*product.rows, *product.columns)}
    score = replace(score, value=_chosen(score.value))
    total, value = score.sum, score.value
    summed, others = list[Expr](), list[Expr]()
    for leaf in _leaves(value, total):
        (summed if total in parts(leaf) else others).append(leaf)
    factors = {_factor(leaf, total) for leaf in summed}
    factor = factors.pop() if len(factors) == 1 else None
    if factor not in (None, ONE) and not any(moving & indexed_by(e) for e in (factor, *others)):
        return _factored(score, factor)
    added = _added(value, total)
    if added:
        return Score(total, total, reduce(partial(Binary, "+"), added))
    before = list[Declare]()

    def multiplied(expr: Expr) -> Expr:
        """A division by one number of all scores is none of each."""
        match expr:
            case Binary("/", a, b) if total in parts(a) and not moving & indexed_by(b):
                inverse = _quotient(ONE, b)
                if not isinstance(inverse, Lit):
                    before.append(Declare(Local(f"inverse_{len(before)}", DType.F32), inverse))
                    inverse = before[-1].local
                return product_of_factors(a, inverse)
        return expr

    value = map_expr(map_expr(value, multiplied), _fused)
    return replace(score, value=value, before=tuple(before))


def is_far(score: Score) -> bool:
    """Whether finite scores may be beyond half precision, as masks of other types are."""
    exprs = [expr for expr in (score.value, score.start) if expr is not None]
    return any(
        part.dtype in (DType.F32, DType.BF16)
        if isinstance(part, Load)
        else isinstance(part, Lit) and isfinite(part.value) and abs(part.value) > HALF_HIGH
        for expr in exprs
        for part in parts(expr)
    )


def wide(expr: Expr) -> Expr:
    """A value of half precision, or one that is computed from such, as a float, without roundings
    on the way."""
    half = expr.dtype.is_half
    if not (half or expr.dtype is DType.F32):
        return expr
    match expr:
        case Cast(value) if value.dtype is DType.F32 or (value.dtype.is_half and not half):
            return wide(value)
        case Lit(value):
            return Lit(value, DType.F32)
        case Binary(op, left, right):
            return Binary(op, wide(left), wide(right))
        case Apply(function, args):
            return Apply(function, tuple(map(wide, args)))
        case Select(condition, then, otherwise):
            return Select(condition, wide(then), wide(otherwise))
        case _:
            return Cast(expr, DType.F32) if half else expr


def with_locals(expr: Expr, values: Mapping[Local, Expr]) -> Expr:
    """Scalars with other values."""
    return map_expr(expr, lambda e: values.get(e, e) if isinstance(e, Local) else e)


def _fused(expr: Expr) -> Expr:
    match expr:
        case Binary("+", Binary("*", a, b), c) | Binary("+", c, Binary("*", a, b)):
            return apply("fma", a, b, c) if expr.dtype is DType.F32 else expr
    return expr


# Factors


def _leaves(expr: Expr, total: Local) -> Iterator[Expr]:
    """What a score is, by conditions."""
    if isinstance(expr, Select) and total not in parts(expr.condition):
        yield from _leaves(expr.then, total)
        yield from _leaves(expr.otherwise, total)
    else:
        yield expr


def _factor(expr: Expr, total: Local) -> Expr | None:
    """What the sum is multiplied by, where that is all."""
    if expr == total:
        return ONE
    match expr:
        case Binary("*", left, right) if total in parts(right):
            left, right = right, left
        case Binary("*", left, right):
            pass
        case Binary("/", left, right):
            right = _quotient(ONE, right)
        case _:
            return None
    inner = _factor(left, total) if total not in parts(right) else None
    return inner and (right if inner == ONE else product_of_factors(inner, right))


def product_of_factors(a: Expr, b: Expr) -> Expr:
    """As one literal where both are."""
    match a, b:
        case Lit(x), Lit(y):
            return Lit(x * y, DType.F32)
    return Binary("*", a, b)


def _quotient(a: Expr, b: Expr) -> Expr:
    match a, b:
        case Lit(x), Lit(y) if y:
            return Lit(x / y, DType.F32)
    return Binary("/", a, b)


def _factored(score: Score, factor: Expr) -> Score:
    """Other values are divided by the factor; finite ones stay finite."""
    total, before, negative = score.sum, list[Declare](), None

    def local(name: str, value: Expr) -> Expr:
        if isinstance(value, Lit):
            return value
        before.append(Declare(Local(f"{name}_{len(before)}", DType.F32), value))
        return before[-1].local

    if not (isinstance(factor, Lit) and LEAST <= factor.value < inf):
        given = local("given", factor)
        negative = Binary("<", given, ZERO)
        factor = local("factor", apply("max", apply("abs", given), Lit(LEAST, DType.F32)))

    def divided(expr: Expr) -> Expr:
        match expr:
            case Select(condition, then, otherwise) if total not in parts(condition):
                return Select(condition, divided(then), divided(otherwise))
            case Lit(value) if abs(value) in (0.0, inf):
                return expr
        if total in parts(expr):
            return total
        other = local("other", expr)
        least, most = (Lit(end, DType.F32) for end in (-CERTAIN, CERTAIN))
        limited = apply("max", apply("min", other, most), least)
        finite = Binary("<=", apply("abs", other), Lit(GREATEST, DType.F32))
        return local("fill", Select(finite, _quotient(limited, factor), other))

    return Score(total, divided(score.value), None, factor, negative, tuple(before))


# Masks


def _chosen(expr: Expr) -> Expr:
    """A mask that is added, of 0 and -inf, as a choice: no score is computed for keys that it
    shuts. Memory may hold other numbers, so masks from memory stay."""
    match expr:
        case Binary("+", left, right):
            for score, mask in ((left, right), (right, left)):
                if isinstance(mask, Select):
                    ends = (mask.then, mask.otherwise)
                    if set(ends) == {ZERO, Lit(-inf, DType.F32)}:
                        seen = [_chosen(score) if end == ZERO else end for end in ends]
                        return Select(mask.condition, seen[0], seen[1])
    return expr


def _added(expr: Expr, total: Local) -> list[Expr] | None:
    """What is added to the sum, where that is all."""
    if expr == total:
        return []
    match expr:
        case Binary("+", left, right):
            if total in parts(right):
                left, right = right, left
            inner = _added(left, total) if total not in parts(right) else None
            return None if inner is None else [*inner, right]
    return None
