# SPDX-License-Identifier: Apache-2.0
"""Sums of groups as one sum: products with packed weights, whose groups have a scale each.

`total = 0; for groups { sum = 0; for steps { sum += x * w }; total += sum * scale }` becomes
`for steps { total += x * (w * scale) }`, which is a product of matrices whose right factor is
decoded. Weights of half-precision products are rounded to that type, as dequantized ones are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import ZERO, Dim, Min
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Stmt,
    apply,
)
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.devices.interchange import perfect_nest
from relax_aot.scheduling.nest import without_lets
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Writer


def with_one_sum(loop: For, w: Writer, context: Context) -> For:
    """The loop with one sum in place of sums of groups; itself where it has no such sums."""
    if context.target.partial_sums < 2:
        return loop
    (plain,) = without_lets((loop,))
    assert isinstance(plain, For)
    *outer, inner = perfect_nest(plain)
    body = _body(inner.body, w)
    if body is None:
        return loop
    inner = replace(inner, body=body)
    for one in reversed(outer):
        inner = replace(one, body=(inner,))
    return inner


@dataclass(frozen=True, slots=True)
class _Groups:
    """`size` steps of each of the `groups`, and the factors of a step, of which the second one is
    multiplied by `scale`."""

    groups: For
    steps: For
    size: Dim
    depth: Dim
    left: Expr
    right: Expr
    scale: Expr


def _body(leaf: tuple[Stmt, ...], w: Writer) -> tuple[Stmt, ...] | None:
    match leaf:
        case (Declare(Local(dtype=DType.F32) as total, Lit(0.0)), For() as groups, *after):
            found = _groups(groups, total)
        case _:
            return None
    if found is None:
        return None
    step = w.fresh(found.steps.variable)
    group = Dim.of(step) // found.size
    at = {
        groups.variable: group,
        found.steps.variable: Dim.of(step) - group * found.size,
    }
    left, right, scale = (substitute_in(e, at) for e in (found.left, found.right, found.scale))
    weight = Binary("*", right, scale)
    match left:
        case Cast(Load() as load, DType.F32) if load.dtype.is_half:
            half = Local(w.fresh(total.name), load.dtype)
            product = Binary("*", load, Cast(weight, load.dtype))
            start = Declare(half, Lit(0.0, load.dtype))
            added = Assign(half, Binary("+", half, product))
            after = [Declare(total, Cast(half, DType.F32)), *after]
        case _:
            start = Declare(total, Lit(0.0, DType.F32))
            added = Assign(total, apply("fma", left, weight, total))
    return (start, For(step, ZERO, found.depth, (added,)), *after)


def _groups(groups: For, total: Local) -> _Groups | None:
    if groups.start != 0 or len(groups.body) < 3:
        return None
    *declared, steps, added = groups.body
    if not isinstance(steps, For) or not isinstance(added, Assign):
        return None
    values = {one.local: one.value for one in declared if isinstance(one, Declare)}
    sums = [local for local, value in values.items() if value == Lit(0.0, DType.F32)]
    if len(values) < len(declared) or len(sums) != 1 or added.local != total:
        return None
    scaled, product = _added(added.value, total), steps.body[0]
    if len(steps.body) != 1 or not isinstance(product, Assign) or product.local != sums[0]:
        return None
    factors, size = _added(product.value, sums[0]), _size(groups, steps)
    if factors is None or scaled is None or sums[0] not in scaled or size is None:
        return None
    scale = scaled[1] if scaled[0] == sums[0] else scaled[0]
    scale, *both = (_written(one, values) for one in (scale, *factors))
    of_group = indexed_by(scale) - {groups.variable}
    right = next((one for one in reversed(both) if of_group <= indexed_by(one)), None)
    if right is None or not of_group:
        return None
    left = both[0] if right is both[1] else both[1]
    return _Groups(groups, steps, *size, left, right, scale)


def _written(expr: Expr, values: Mapping[Local, Expr]) -> Expr:
    """An expression with the values of scalars in their place."""

    def rule(part: Expr) -> Expr:
        return values.get(part, part) if isinstance(part, Local) else part

    (made,) = map_exprs((Declare(Local("_", expr.dtype), expr),), rule)
    assert isinstance(made, Declare)
    return made.value


def _added(value: Expr, total: Local) -> tuple[Expr, Expr] | None:
    """The factors of a product that is added to a sum."""
    match value:
        case Apply("fma", (left, right, last)) if last == total:
            return left, right
        case Binary("+", first, Binary("*", left, right)) if first == total:
            return left, right
        case _:
            return None


def _size(groups: For, steps: For) -> tuple[Dim, Dim] | None:
    """The steps of a group, and those of all groups; the last group may have fewer."""
    if steps.start != 0 or not groups.stop.is_constant:
        return None
    if steps.stop.is_constant:
        return steps.stop, steps.stop * groups.stop
    (atom, *others), group = steps.stop.atoms, Dim.of(groups.variable)
    if others or not isinstance(atom, Min) or steps.stop != Dim.of(atom):
        return None
    for size in atom.args:
        rest = [one + group * size for one in atom.args if one != size]
        if size.is_constant and len(rest) == 1 and rest[0].is_constant:
            return size, rest[0]
    return None
