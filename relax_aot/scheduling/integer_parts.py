"""Pieces that integer schedules of all targets are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, dim_max, dim_min, simplify
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
    Buffer,
    Declare,
    Expr,
    For,
    Let,
    Lit,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
)
from relax_aot.ir.rewrite import map_expr, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.integer_match import Contraction, gathered, stride
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import coefficient

Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Form:
    """Operands of a tile: `suffix` of its micro-kernels; `group` steps lie together."""

    suffix: str
    dtype: DType
    group: int


PAIRS = Form("s16", DType.I16, 2)
FOURS = Form("s8", DType.I8, 4)


@dataclass(frozen=True, slots=True)
class Derived:
    """A constant made from others while compiling."""

    buffer: Buffer
    make: Callable[[Arrays], Array]


@dataclass
class Written:
    """Loops in the place of a nest, and what they need beside its buffers."""

    body: list[Stmt] = field(default_factory=list)
    scratch: list[Buffer] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    in_place: tuple[tuple[str, str], ...] = ()
    """An input and an output that may be the same memory."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a window at one place: `first..last` of `count` lie inside the image."""

    count: int
    first: Dim
    last: Dim
    step: Dim


NO_LEVEL = Level(1, Dim.of(0), Dim.of(1), Dim.of(0))


def extent(loop: For) -> int:
    return loop.stop.constant


def place_count(what: Contraction) -> Dim:
    return prod((loop.stop for loop in what.places), start=Dim.of(1))


def by_lines(
    what: Contraction,
    tiles: Callable[[Dim, Mapping[str, Dim], Bounds], list[Stmt]],
    bounds: Bounds,
) -> list[Stmt]:
    """Tiles along the last loop over places; the others one by one, where lines differ."""
    *outer, across = what.places
    for loop in outer:
        bounds = over(bounds, loop.variable, loop.start, loop.stop)
    fixed = {loop.variable: Dim.of(loop.variable) for loop in outer}
    body = tiles(across.stop, fixed, bounds)
    for loop in reversed(outer):
        body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
    return body


def place_at(
    what: Contraction, place: Dim, names: Names, bounds: Bounds, result: list[Stmt]
) -> tuple[dict[str, Dim], Bounds]:
    """Where each loop over places stands at the `place`-th one, the last loop fastest."""
    at: dict[str, Dim] = {}
    for loop in reversed(what.places[1:]):
        before = simplify(place // loop.stop, bounds)
        before, bounds = named(f"{loop.variable}_rest", before, names, bounds, result)
        at[loop.variable], bounds = _let(
            loop.variable, place - before * loop.stop, loop.stop, names, bounds, result
        )
        place = before
    for loop in what.places[:1]:
        at[loop.variable], bounds = _let(loop.variable, place, loop.stop, names, bounds, result)
    return at, bounds


def _let(
    name: str, value: Dim, stop: Dim, names: Names, bounds: Bounds, result: list[Stmt]
) -> tuple[Dim, Bounds]:
    fresh = names.fresh(name)
    result.append(Let(fresh, value))
    most = dim_max(dim_min(value, stop - 1), 0)
    return Dim.of(fresh), bounds.with_value(fresh, dim_max(value, 0), most)


def window(
    what: Contraction,
    order: Sequence[int],
    at: Mapping[str, Dim],
    names: Names,
    bounds: Bounds,
    result: list[Stmt],
) -> tuple[list[Level], Load, Bounds]:
    """The levels at one place, in an order, and the first element that lies inside."""
    found: list[Level] = []
    origin = dict(at)
    for position in order:
        loop = what.levels[position]
        first = simplify(loop.start.substitute(at), bounds)
        last = simplify(loop.stop.substitute(at), bounds)
        first, bounds = named(f"{loop.variable}_first", first, names, bounds, result)
        last, bounds = named(f"{loop.variable}_last", last, names, bounds, result)
        step = stride(what.x.load, loop.variable)
        assert step is not None
        found.append(Level(what.counts[position], first, last, step))
        origin[loop.variable] = first
    load = what.x.load
    return found, Load(load.buffer, tuple(d.substitute(origin) for d in load.index)), bounds


def clipped_along(what: Contraction, position: int, loop: For, axis: int) -> bool:
    """Windows of a level are cut off at the ends of one axis of the image and nowhere else."""
    level = what.levels[position]
    if not (level.start.symbols | level.stop.symbols):
        return True
    dim = what.x.load.index[axis]
    step, tap = coefficient(dim, loop.variable), coefficient(dim, level.variable)
    rest = dim.substitute({loop.variable: Dim.of(0), level.variable: Dim.of(0)})
    if step is None or step < 1 or tap != 1 or not rest.is_constant:
        return False
    begin = -Dim.of(loop.variable) * step - rest
    first = dim_max(begin, 0)
    last = dim_min(what.x.load.buffer.shape[axis] + begin, what.counts[position])
    return (level.start, level.stop) == (first, last)


def shared_by(what: Contraction, loads: Sequence[Expr]) -> tuple[For, ...]:
    """The shared loops that move one of the loads."""
    return tuple(
        loop
        for loop in what.shared
        if any(isinstance(load, Load) and stride(load, loop.variable) != 0 for load in loads)
    )


def weights_of(what: Contraction, outer: Sequence[For], order: Sequence[int], data: Array) -> Array:
    """w minus its zero point: axes of the outer loops, the channel, the levels in an order."""
    loops = [loop.variable for loop in outer]
    extents = [extent(loop) for loop in outer]
    if what.channel is not None:
        loops.append(what.channel.variable)
        extents.append(extent(what.channel))
    loops += [what.levels[position].variable for position in order]
    extents += [what.counts[position] for position in order]
    found = gathered(what.w.load, data, loops, extents)
    return np.asarray(found.astype(np.int64) - what.w.zero)


def starts_of(what: Contraction, outer: Sequence[For], data: Arrays, moved: int = 0) -> Array:
    """What sums start with, less what the zero point of x adds to each: axes of the outer
    loops and the channel. Wraps as sums do. `moved`: how much less x is than it was."""
    names = [loop.variable for loop in outer]
    extents = [extent(loop) for loop in outer]
    if what.channel is not None:
        names.append(what.channel.variable)
        extents.append(extent(what.channel))
    weights = weights_of(what, outer, range(len(what.levels)), data[what.w.load.buffer.name])
    folded = weights.reshape(*extents, -1).sum(-1) * (what.x.zero - moved)
    if isinstance(what.start, Lit):
        begin = np.full(extents, what.start.value, np.int64)
    else:
        assert isinstance(what.start, Load)
        begin = gathered(what.start, data[what.start.buffer.name], names, extents).astype(np.int64)
    return np.asarray((begin - folded).astype(np.uint64).astype(np.uint32).view(np.int32))


def of_bytes(what: Contraction) -> bool:
    """Both factors are codes; weights less their zero point are signed bytes."""
    weights = (what.w.load.dtype, what.w.zero)
    known = weights in ((DType.I8, 0), (DType.U8, 128))
    return known and what.x.load.dtype in (DType.I8, DType.U8)


def less_of_bytes(what: Contraction) -> int:
    """How much less x is where it is a signed byte."""
    return 128 if what.x.load.dtype is DType.U8 else 0


def starts_known(what: Contraction, constants: frozenset[str]) -> bool:
    """Sums start with numbers that are known while compiling and differ by channel alone."""
    if isinstance(what.start, Lit):
        return True
    if not isinstance(what.start, Load) or what.start.buffer.name not in constants:
        return False
    names = {loop.variable for loop in what.shared}
    names |= {what.channel.variable} if what.channel is not None else set()
    used = frozenset[str]().union(*(dim.symbols for dim in what.start.index))
    steady = all(stride(what.start, name) is not None for name in used)
    return used <= names and steady


def shares(what: Contraction, loops: Sequence[For]) -> tuple[tuple[str, str], ...]:
    """x and the result, where each turn of the loops has a slab of both to itself, within which
    all is read before something is written."""
    source = what.x.load
    read = [e for stmt in what.after for e in expressions(stmt) if isinstance(e, Load)]
    stores = [stmt for stmt in what.after if isinstance(stmt, Store)]
    if len(stores) != 1 or source.buffer.name in {load.buffer.name for load in read}:
        return ()
    target = stores[0].buffer
    if source.buffer.type != target.type:
        return ()
    pairs = list(zip(source.index, stores[0].index, strict=True))
    apart = all((Dim.of(loop.variable),) * 2 in pairs for loop in loops)
    return ((source.buffer.name, target.name),) if apart else ()


def finish(what: Contraction, at: Mapping[str, Dim], value: Expr, names: Names) -> list[Stmt]:
    """What becomes of a sum, at one place: `value` in the place of the sum."""
    locals_: dict[Local, Local] = {}

    def rule(expr: Expr) -> Expr:
        if not isinstance(expr, Local):
            return expr
        return value if expr == what.sum else locals_.get(expr, expr)

    result: list[Stmt] = []
    for stmt in map_index_dims(what.after, lambda dim: dim.substitute(at)):
        assert isinstance(stmt, Declare | Store)
        placed = map_expr(stmt.value, rule)
        if isinstance(stmt, Store):
            result.append(Store(stmt.buffer, stmt.index, placed))
        else:
            local = Local(names.fresh(stmt.local.name), stmt.local.dtype)
            locals_[stmt.local] = local
            result.append(Declare(local, placed))
    return result
