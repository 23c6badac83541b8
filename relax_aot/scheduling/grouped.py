# SPDX-License-Identifier: Apache-2.0
"""Finds products with quantized constant weights in groups: sums of two levels,
`total = total + scale[g, c] * (sum over the group g of x * w)` (strategies/groups.py)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, dim_min
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Lit,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import follow, loops_as_one, stride
from relax_aot.scheduling.nest import Nest, nest_of
from relax_aot.scheduling.packing import round_up

LEAST_GROUP = 32
"""Groups of dot products are multiples of it."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """`total = 0; for groups { sum = 0; for steps { sum += x * w }; total += sum * scale }; after`.
    `x` has `rows` and moves by one element with a step, `w` and `scale` have a `column` each.
    `own`: the scale of a group of `x`, which multiplies `scale`. A single group has no loop."""

    nest: Nest
    groups: For | None
    steps: For
    total: Local
    x: Load
    w: Load
    scale: Load
    own: Load | None
    after: tuple[Stmt, ...]
    column: For
    group: int

    @property
    def depth(self) -> int:
        return self.w.buffer.shape[0].constant

    @property
    def columns(self) -> int:
        return self.column.stop.constant

    @property
    def bits(self) -> int:
        return self.w.dtype.bits

    @property
    def start(self) -> dict[str, Dim]:
        """The variables of the sum at its first step."""
        return {lp.variable: ZERO for lp in (self.groups, self.steps) if lp is not None}


def grouped_of(stmt: For, bounds: Bounds, constants: frozenset[str]) -> Grouped | None:
    """The product in groups that a loop nest computes, where weights and scales are known."""
    nest = nest_of(stmt, bounds)
    if nest is None or len(nest.leaf) < 3:
        return None
    nest = _joined(nest)
    first, groups, body, after = _levels(nest.leaf)
    match first, *body:
        case (
            Declare(Local(dtype=DType.F32) as total, Lit(0.0)),
            Declare(Local() as sum_, Lit(start)),
            For() as steps,
            Assign() as added,
        ) if (
            added.local == total
            and start == 0
            and all(isinstance(one, Declare | Store) for one in after)
        ):
            pass
        case _:
            return None
    factors, scales = _products(steps, sum_), _scales(added.value, sum_, total)
    if factors is None or scales is None:
        return None
    (x, w), (scale, own) = factors, scales
    loops = [lp for lp in nest.loops if stride(w, lp.variable) not in (None, ZERO)]
    known = {w.buffer.name, scale.buffer.name} <= constants and len(loops) == 1
    if not known or len(nest.free) < len(nest.loops):
        return None
    depth = w.buffer.shape[0].constant
    group = _group(w, steps) if groups is not None else round_up(depth, LEAST_GROUP)
    found = Grouped(nest, groups, steps, total, x, w, scale, own, after, loops[0], group)
    return found if _is_regular(found) else None


Levels = tuple[Stmt, For | None, tuple[Stmt, ...], tuple[Stmt, ...]]


def _levels(leaf: tuple[Stmt, ...]) -> Levels:
    """The first statement of a leaf, the loop over groups, what is done for each, and the rest.
    A single group has no loop."""
    first, second, *others = leaf
    if isinstance(second, For):
        return first, second, second.body, tuple(others)
    return first, None, (second, *others[:2]), tuple(others[2:])


def _joined(nest: Nest) -> Nest:
    """Two loops are one loop where all that is summed moves as if they were, wherever results go:
    heads and their columns are the columns of a product."""
    sums = [stmt for stmt in walk(nest.leaf) if isinstance(stmt, Assign)]
    loads = [part for stmt in sums for part in expressions(stmt) if isinstance(part, Load)]
    nodes = [part for stmt in walk(nest.leaf) for part in (stmt, *expressions(stmt))]
    if any(isinstance(part, Index) for part in nodes):
        return nest
    for outer, inner in combinations(nest.loops, 2):
        free = {outer.variable, inner.variable} <= nest.free and outer.start == inner.start == 0
        if free and all(follow(load, outer, inner) for load in loads):
            return _joined(loops_as_one(nest, outer, inner)[0])
    return nest


def _products(steps: For, total: Local) -> tuple[Load, Load] | None:
    """The factors of the sum of a group: floats, or exact integers."""
    match steps.body:
        case (Assign(local, Apply("fma", (Load() as x, Cast(Load() as w), Local() as old))),):
            fits = local == total == old and x.dtype is DType.F32
        case (
            Assign(
                local,
                Binary("+", Local() as old, Binary("*", Cast(Load() as x), Cast(Load() as w))),
            ),
        ):
            fits = local == total == old and (x.dtype, total.dtype) == (DType.I8, DType.I32)
        case _:
            return None
    return (x, w) if fits and w.dtype in (DType.I8, DType.I4) else None


def _scales(value: Expr, sum_: Local, total: Local) -> tuple[Load, Load | None] | None:
    """The scale of the weights, and that of the left operand where it has one for each group."""
    match value:
        case Apply("fma", (group, scale, Local() as old)) if old == total:
            plain = group.value if isinstance(group, Cast) and sum_.dtype is DType.I32 else group
        case _:
            return None
    weight, own = _factors(scale)
    if isinstance(weight, Cast) and weight.dtype is DType.F32:
        weight = weight.value
    if plain != sum_ or not isinstance(weight, Load) or not weight.dtype.is_float:
        return None
    return weight, own


def _factors(scale: Expr) -> tuple[Expr, Load | None]:
    match scale:
        case Binary("*", weight, Load() as own):
            return weight, own
        case _:
            return scale, None


def _group(w: Load, steps: For) -> int:
    """Steps of a group: how far a group moves the weights."""
    start = (w.index[0] - Dim.of(steps.variable)).substitute({steps.variable: ZERO})
    names = sorted(start.symbols)
    step = start.substitute({names[0]: ONE}) if len(names) == 1 else ZERO
    return step.constant if step.is_constant else 0


def _is_regular(found: Grouped) -> bool:
    """Whether operands are indexed as the micro-kernel reads them: all of the weights by group and
    step, scales by group, and the left operand by rows."""
    step, column = (Dim.of(lp.variable) for lp in (found.steps, found.column))
    group = Dim.of(found.groups.variable) if found.groups is not None else ZERO
    place = group * found.group + step
    index = (*found.w.buffer.shape, *found.scale.buffer.shape)
    if not all(dim.is_constant and dim.constant > 0 for dim in index) or found.group < 1:
        return False
    depth = Dim.of(found.depth)
    steps = found.steps.start == 0 and found.steps.stop in _ends(found, group, depth)
    return (
        found.w.index == (place, column)
        and found.scale.index == (group, column)
        and steps
        and (_is_single(found) if found.groups is None else _are_whole(found, found.groups))
        and found.column.start == 0
        and found.column.stop == found.w.buffer.shape[1]
        and stride(found.x, found.column.variable) == 0
        and stride(found.x, found.steps.variable) == 1
        and all(stride(found.x, lp.variable) is not None for lp in found.nest.loops)
    )


def _is_single(found: Grouped) -> bool:
    """Whether there is one scale for a column. Other strategies multiply whole rows of bytes."""
    return found.scale.buffer.shape[0] == 1 and found.x.dtype is DType.F32


def _are_whole(found: Grouped, groups: For) -> bool:
    """Whether a loop over groups reads all of the operands."""
    return (
        groups.start == 0
        and groups.stop == ceildiv(Dim.of(found.depth), found.group)
        and stride(found.x, groups.variable) == found.group
        and (found.own is None or _is_regular_own(found, groups, found.own))
    )


def _is_regular_own(found: Grouped, groups: For, own: Load) -> bool:
    """Whether the scales of a row are contiguous."""
    return (
        stride(own, groups.variable) == 1
        and stride(own, found.column.variable) == 0
        and all(stride(own, lp.variable) is not None for lp in found.nest.loops)
    )


def _ends(found: Grouped, group: Dim, depth: Dim) -> tuple[Dim, ...]:
    clipped = dim_min(Dim.of(found.group), depth - group * found.group)
    return (clipped, Dim.of(found.group)) if found.depth % found.group == 0 else (clipped,)
