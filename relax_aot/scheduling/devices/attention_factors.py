# SPDX-License-Identifier: Apache-2.0
"""Numbers that multiply queries or keys before their product, as factors of scores; and floats that
are half-precision values, cast, as these values themselves.

ONNX's Attention and its relatives compute with floats, and multiply queries before. Products of
half-precision values are exact in floats, so the sums are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relax_aot.ir.loops import Binary, Cast, Expr, Lit, Load, Local, parts
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Contraction, indexed_by
from relax_aot.scheduling.devices.attention_operands import Pair
from relax_aot.scheduling.devices.attention_scores import wide
from relax_aot.scheduling.devices.operands import Product


def of_operands(pair: Pair) -> Pair:
    """The pair itself where a factor is anything else."""
    scores, values = pair.scores.found, pair.values.found
    found = [_operand(scores, load) for load in (scores.left, scores.right)]
    right = _operand(values, values.right)
    loads = [one[0] for one in (*found, right) if one is not None]
    if right is None or right[1] or len(loads) < 3 or len({load.dtype for load in loads}) > 1:
        return pair
    score: Expr = scores.sum
    for one in found:
        for factor in one[1] if one is not None else ():
            score = Binary("*", score, wide(factor))

    def scaled(expr: Expr) -> Expr:
        return score if isinstance(expr, Local) and expr == scores.sum else expr

    return replace(
        pair,
        scores=_of(pair.scores, loads[0], loads[1]),
        score=replace(pair.score, value=map_expr(pair.score.value, scaled)),
        values=_of(pair.values, values.left, loads[2]),
    )


def _of(product: Product, left: Load, right: Load) -> Product:
    found = product.found
    kept = tuple(one for one in found.computed if one.load not in (found.left, found.right))
    return replace(product, found=replace(found, left=left, right=right, computed=kept))


def _operand(found: Contraction, load: Load) -> tuple[Load, Sequence[Expr]] | None:
    """The value in memory that a factor is, and the numbers that multiply it."""
    computed = found.computed_at(load)
    if computed is None:
        return load, ()
    return None if computed.fetched else _multiplied(computed.value)


def _multiplied(value: Expr) -> tuple[Load, Sequence[Expr]] | None:
    match value:
        case Load() if value.dtype.is_half or value.dtype is DType.F32:
            return value, ()
        case Cast(inner, DType.F32) if inner.dtype.is_half:
            return _multiplied(inner)
        case Cast(inner, kind) if kind.is_half and inner.dtype is DType.F32:
            found = _multiplied(inner)
            return found if found is not None and found[0].dtype is kind else None
        case Binary("*", left, right):
            for one, other in ((left, right), (right, left)):
                found = None if _moves(other) else _multiplied(one)
                if found is not None:
                    return found[0], (*found[1], other)
    return None


def _moves(expr: Expr) -> bool:
    """Whether it is more than a number for all scores."""
    return bool(indexed_by(expr)) or not all(
        isinstance(part, Load | Lit | Cast | Binary) for part in parts(expr)
    )
