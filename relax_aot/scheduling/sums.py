"""Sums of products as tiles see them: what is summed, over which loops, how loads move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from relax_aot.ir.dims import Bounds, Dim, interval, row_major
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Declare,
    Expr,
    For,
    Index,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.rewrite import map_expr, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.nest import Nest, coefficient_dim

LEVELS = 3
"""Loops that the micro-kernel sums over."""


@dataclass(frozen=True, slots=True)
class Sum:
    """`local = start; for levels { local = fma(left, right, local) }; after`."""

    nest: Nest
    levels: tuple[For, ...]
    local: Local
    start: Expr
    left: Load
    right: Load
    after: tuple[Stmt, ...]

    @property
    def turned(self) -> Sum:
        """The same with the operands exchanged."""
        return replace(self, left=self.right, right=self.left)

    @property
    def windows(self) -> frozenset[str]:
        """What the bounds of levels depend on."""
        return frozenset[str]().union(*(d.symbols for lv in self.levels for d in ends(lv)))

    @property
    def free(self) -> tuple[For, ...]:
        """Loops whose turns may run in any order and that no other loop depends on."""
        others = frozenset[str]().union(*(d.symbols for lp in self.nest.loops for d in ends(lp)))
        return tuple(
            loop
            for loop in self.nest.loops
            if loop.variable in self.nest.free and loop.variable not in others
        )


def ends(loop: For) -> tuple[Dim, Dim]:
    return loop.start, loop.stop


def flat(sum_: Sum) -> Sum:
    """Two loops, one in the other, are one loop where all that is read and written lies as if
    they were: lines of an image one after another are a single line."""
    loops = sum_.nest.loops
    for outer, inner in pairwise(loops):
        if _one_line(sum_, outer, inner):
            break
    else:
        return sum_
    width = inner.stop
    line = Dim.of(inner.variable) // width
    at = {outer.variable: line, inner.variable: Dim.of(inner.variable) - line * width}

    def placed(load: Load) -> Load:
        return moved(load, at)

    joined = For(inner.variable, Dim.of(0), outer.stop * width, ())
    kept = (joined if loop == inner else loop for loop in loops if loop != outer)
    free = sum_.nest.free - {outer.variable}
    leaf = map_index_dims(sum_.nest.leaf, lambda dim: dim.substitute(at))
    return flat(
        Sum(
            Nest(tuple(kept), leaf, free),
            sum_.levels,
            sum_.local,
            moved_expr(sum_.start, at),
            placed(sum_.left),
            placed(sum_.right),
            map_index_dims(sum_.after, lambda dim: dim.substitute(at)),
        )
    )


def _one_line(sum_: Sum, outer: For, inner: For) -> bool:
    both = {outer.variable, inner.variable}
    if not both <= {loop.variable for loop in sum_.free} - sum_.windows:
        return False
    if outer.start != 0 or inner.start != 0 or inner.stop == 0:
        return False
    leaf = sum_.nest.leaf
    places = [
        row_major(part.index, part.buffer.shape)
        for stmt in walk(leaf)
        for part in (stmt, *expressions(stmt))
        if isinstance(part, Load | Store)
    ]
    if any(isinstance(part, Index) for stmt in walk(leaf) for part in expressions(stmt)):
        return False
    steps = [
        (coefficient_dim(at, outer.variable), coefficient_dim(at, inner.variable)) for at in places
    ]
    return all(
        far is not None and near is not None and far == near * inner.stop for far, near in steps
    )


def sum_of(nest: Nest) -> Sum | None:
    """What a nest sums up, where that is all that it does."""
    leaf = nest.leaf
    if len(leaf) < 3 or not isinstance(leaf[0], Declare) or not isinstance(leaf[1], For):
        return None
    first, chain, after = leaf[0], leaf[1], leaf[2:]
    if not all(isinstance(stmt, Declare | Store) for stmt in after):
        return None
    levels: list[For] = []
    body: tuple[Stmt, ...] = (chain,)
    while len(body) == 1 and isinstance(body[0], For):
        levels.append(body[0])
        body = body[0].body
    operands = _operands(body, first.local)
    if operands is None or len(levels) > LEVELS or first.local.dtype is not DType.F32:
        return None
    return Sum(nest, tuple(levels), first.local, first.value, *operands, after)


def _operands(body: tuple[Stmt, ...], sum_: Local) -> tuple[Load, Load] | None:
    """a and b of `sum = fma(a, b, sum)`."""
    if len(body) != 1 or not isinstance(body[0], Assign) or body[0].local != sum_:
        return None
    match body[0].value:
        case Apply("fma", (Load() as left, Load() as right, Local() as old)) if old == sum_:
            return left, right
        case _:
            return None


def linear(load: Load, name: str) -> Dim | None:
    """How many elements further on a load is when a variable is one greater."""
    return coefficient_dim(row_major(load.index, load.buffer.shape), name)


def greatest(loop: For, bounds: Bounds) -> int:
    """The most turns that a loop takes; 0 where that is not known."""
    extent = loop.stop - loop.start
    return interval(extent, bounds)[1] if extent.symbols <= set(bounds) else 0


def moved(load: Load, at: dict[str, Dim]) -> Load:
    return Load(load.buffer, tuple(dim.substitute(at) for dim in load.index))


def indexed_by(expr: Expr) -> frozenset[str]:
    """Names on which it rests where an expression reads."""
    dims = index_dims(Declare(Local("_", expr.dtype), expr))
    return frozenset(name for dim in dims for name in dim.symbols)


def moved_expr(expr: Expr, at: dict[str, Dim]) -> Expr:
    (placed,) = map_index_dims(
        (Declare(Local("_", expr.dtype), expr),), lambda dim: dim.substitute(at)
    )
    assert isinstance(placed, Declare)
    return placed.value


def stored(sum_: Sum, kept: Expr, at: dict[str, Dim]) -> tuple[Stmt, ...]:
    """What is done with a sum that is kept in `kept`, at one place."""

    def rule(expr: Expr) -> Expr:
        return kept if expr == sum_.local else expr

    after = map_index_dims(sum_.after, lambda dim: dim.substitute(at))
    return tuple(_with(stmt, rule) for stmt in after)


def _with(stmt: Stmt, rule: Callable[[Expr], Expr]) -> Stmt:
    assert isinstance(stmt, Declare | Store)
    return replace(stmt, value=map_expr(stmt.value, rule))


def merged(levels: Sequence[tuple[Dim, Dim, Dim]]) -> tuple[tuple[Dim, Dim, Dim], ...]:
    """Levels of (count, left, right) as few as they can be: one that takes a single step is
    none, and one that goes on where the next inner one ends is the same loop."""
    result: list[tuple[Dim, Dim, Dim]] = []
    for count, left, right in levels:
        if count == 1:
            continue
        if result:
            outer, far_left, far_right = result[-1]
            if far_left == count * left and far_right == count * right:
                result[-1] = (outer * count, left, right)
                continue
        result.append((count, left, right))
    return tuple(result) or tuple(levels[-1:])
