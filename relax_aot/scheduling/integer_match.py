"""Integer contractions as loops write them: sums of (x - a) * (w - b) with known weights.

Recognized is what is added up, not where it came from: factors may be cast and shifted by
numbers on either side, and whatever becomes of the sum is left as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
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
    Store,
)
from relax_aot.ir.parameters import whole
from relax_aot.ir.types import DType
from relax_aot.scheduling.jam import over
from relax_aot.scheduling.nest import Nest, coefficient, coefficient_dim, nest_of

BYTES = (DType.I8, DType.U8)


@dataclass(frozen=True, slots=True)
class Factor:
    """`load - zero`."""

    load: Load
    zero: int


@dataclass(frozen=True, slots=True)
class Contraction:
    """`sum = start + sum over levels of x * w`, then `after`. `channel` is the loop that moves
    w alone, `places` those that move x alone, `shared` those that move both or neither;
    `counts`: steps of each level where no window is cut off."""

    nest: Nest
    shared: tuple[For, ...]
    places: tuple[For, ...]
    channel: For | None
    levels: tuple[For, ...]
    counts: tuple[int, ...]
    sum: Local
    start: Expr
    x: Factor
    w: Factor
    after: tuple[Stmt, ...]


def contraction(stmt: Stmt, constants: frozenset[str], bounds: Bounds) -> Contraction | None:
    """What a statement computes; None where it is no such contraction. `constants`: buffers
    whose data are known while compiling."""
    nest = nest_of(stmt, bounds)
    if nest is None or not {loop.variable for loop in nest.loops} <= nest.free:
        return None
    leaf = nest.leaf
    if len(leaf) < 3 or not isinstance(leaf[0], Declare) or not isinstance(leaf[1], For):
        return None
    first, chain, after = leaf[0], leaf[1], leaf[2:]
    if first.local.dtype is not DType.I32:
        return None
    if not all(isinstance(stmt, Declare | Store) for stmt in after):
        return None
    levels: list[For] = []
    body: tuple[Stmt, ...] = (chain,)
    while len(body) == 1 and isinstance(body[0], For):
        levels.append(body[0])
        body = body[0].body
    factors = _factors(body, first.local)
    if factors is None:
        return None
    known = [factor.load.buffer.name in constants for factor in factors]
    if sum(known) != 1:
        return None
    x, w = factors if known[1] else factors[::-1]
    return _sorted(nest, tuple(levels), first, x, w, after, bounds)


def _sorted(
    nest: Nest,
    levels: tuple[For, ...],
    first: Declare,
    x: Factor,
    w: Factor,
    after: tuple[Stmt, ...],
    bounds: Bounds,
) -> Contraction | None:
    inside = bounds
    for loop in nest.loops:
        if loop.start != 0 or loop.stop.symbols & {lp.variable for lp in nest.loops}:
            return None
        inside = over(inside, loop.variable, loop.start, loop.stop)
    counts = [count for level in levels if (count := _count(w.load, level)) is not None]
    if len(counts) < len(levels) or min(counts) < 1:
        return None
    for load in (x.load, w.load):
        if any(stride(load, loop.variable) is None for loop in (*nest.loops, *levels)):
            return None
    moves_x = {lp.variable for lp in nest.loops if stride(x.load, lp.variable) != 0}
    moves_w = {lp.variable for lp in nest.loops if stride(w.load, lp.variable) != 0}
    windowed = frozenset[str]().union(*(d.symbols for lv in levels for d in (lv.start, lv.stop)))
    places = [lp for lp in nest.loops if lp.variable in moves_x - moves_w]
    channels = [lp for lp in nest.loops if lp.variable in moves_w - moves_x]
    if len(channels) > 1 or windowed & moves_w:
        return None
    taken = {loop.variable for loop in (*places, *channels)}
    return Contraction(
        nest,
        tuple(loop for loop in nest.loops if loop.variable not in taken),
        tuple(places),
        channels[0] if channels else None,
        levels,
        tuple(counts),
        first.local,
        first.value,
        x,
        w,
        after,
    )


def _count(weights: Load, level: For) -> int | None:
    """Steps of a level where nothing is cut off: it runs along an axis of the weights."""
    sizes = zip(weights.index, weights.buffer.shape, strict=True)
    along = [size for dim, size in sizes if dim == Dim.of(level.variable)]
    return along[0].constant if along and along[0].is_constant else None


def _factors(body: tuple[Stmt, ...], total: Local) -> tuple[Factor, Factor] | None:
    """a and b of `sum = sum + a * b`."""
    if len(body) != 1 or not isinstance(body[0], Assign) or body[0].local != total:
        return None
    value = body[0].value
    if not isinstance(value, Binary) or value.op != "+":
        return None
    product = value.right if value.left == total else value.left
    if total not in (value.left, value.right) or not isinstance(product, Binary):
        return None
    if product.op != "*":
        return None
    left, right = _factor(product.left), _factor(product.right)
    return None if left is None or right is None else (left, right)


def _factor(expr: Expr) -> Factor | None:
    if isinstance(expr, Binary) and expr.op in "+-":
        inner, number = _factor(expr.left), number_of(expr.right)
        if inner is None or number is None:
            return None
        return Factor(inner.load, inner.zero + (number if expr.op == "-" else -number))
    load = expr.value if isinstance(expr, Cast) and expr.mode == "wrap" else None
    if not isinstance(load, Load) or load.dtype not in BYTES or expr.dtype is not DType.I32:
        return None
    return Factor(load, 0)


def number_of(expr: Expr) -> int | None:
    """The value of an integer that is written in the code, cast or not."""
    if isinstance(expr, Cast) and expr.dtype is DType.I32 and expr.mode != "bits":
        return number_of(expr.value)
    if isinstance(expr, Lit) and expr.dtype.is_int:
        low, high = DType.I32.limits
        return whole(expr.value) if low <= expr.value <= high else None
    return None


def stride(load: Load, name: str) -> Dim | None:
    """How many elements further on a load is when a variable is one greater."""
    step = Dim.of(0)
    for position, dim in enumerate(load.index):
        part = coefficient_dim(dim, name)
        if part is None:
            return None
        step = step + part * prod(load.buffer.shape[position + 1 :], start=Dim.of(1))
    return step


def gathered(load: Load, data: Array, loops: Sequence[str], extents: Sequence[int]) -> Array:
    """The elements that a load reads, one axis per loop."""
    values: Mapping[str, Array] = {
        name: np.arange(extent).reshape([-1 if at == place else 1 for at in range(len(loops))])
        for place, (name, extent) in enumerate(zip(loops, extents, strict=True))
    }
    index = []
    for dim in load.index:
        place = np.asarray(dim.substitute(dict.fromkeys(loops, 0)).constant)
        for name, value in values.items():
            factor = coefficient(dim, name)
            assert factor is not None
            place = place + factor * value
        index.append(np.broadcast_to(place, extents))
    return np.asarray(data[tuple(index)])


def depends(expr: Expr | Load, names: set[str]) -> bool:
    """Whether the index of a load moves with one of the names."""
    return isinstance(expr, Load) and any(dim.symbols & names for dim in expr.index)
