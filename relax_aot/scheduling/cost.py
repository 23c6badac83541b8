"""Which turns of a nest run side by side, by counting what a block costs.

The cost of a block is its operations, the loads that differ, and a share of what each turn of
its innermost loop takes. What fits the registers and costs least per turn of the leaf is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product
from math import prod

from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Cast,
    For,
    Load,
    Stmt,
    Unary,
    expressions,
)
from relax_aot.scheduling.nest import Nest, ranges
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.unroll_and_jam import UNROLLED, always_loaded
from relax_aot.scheduling.windows import Interior, interior, whole

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
TYPICAL = 1009
"""What a size is taken for that is unknown until run time."""
WORTH = 0.9
"""A block is taken where it costs less than this part of a single turn."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Turns of each output loop, and steps of each inner loop, that stand side by side
    (0 steps: all)."""

    tiles: tuple[tuple[str, int], ...]
    steps: tuple[tuple[str, int], ...]


Turns = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Stream:
    """A load of the innermost block: how far it moves with each variable, in bytes."""

    strides: dict[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """Two are the same where a choice for one is one for the other: layers of a network repeat."""

    key: tuple[object, ...]
    nest: Nest = field(compare=False)
    streams: tuple[_Stream, ...] = field(compare=False)
    operations: int = field(compare=False)
    sums: int = field(compare=False)
    extents: dict[str, int | None] = field(compare=False)
    inner: tuple[For, ...] = field(compare=False)
    interiors: dict[str, Interior | None] = field(compare=False)
    """Of the loops around, solved once for all candidates."""
    blocks: dict[tuple[Turns, Turns], float] = field(default_factory=dict, compare=False)
    """What candidates cost that were looked at: they differ at few places."""


def choose(nest: Nest, bounds: Bounds, target: Target, share: float = 1.0) -> Blocking | None:
    """The blocking that costs least; None where none is worth it. `bounds`: of the names around
    the nest; `share`: the part of the model's work that this nest does; code counts for more
    where it is little."""
    shape = _shape(nest, bounds)
    return None if shape is None else _chosen(shape, target, share)


@lru_cache(maxsize=256)
def _chosen(shape: _Shape, target: Target, share: float) -> Blocking | None:
    nest = shape.nest
    best: tuple[float, Blocking] | None = None
    ways = [_way(shape, dict(steps)) for steps in _steps(nest, shape)]
    for tiles in _tiles(nest, shape):
        lanes = dict(tiles)
        if not _fits_windows(shape, lanes):
            continue
        for way in ways:
            cost = _cost(shape, lanes, way, target, share)
            if cost is not None and (best is None or cost < best[0]):
                best = (cost, Blocking(tiles, tuple(way.steps.items())))
    alone = _cost(shape, {}, _way(shape, {}), target, share)
    if best is None or alone is None or best[0] > WORTH * alone:
        return None
    return best[1]


def _shape(nest: Nest, bounds: Bounds) -> _Shape | None:
    """What counts of the innermost block; None where the leaf has several."""
    inner: list[For] = []
    body: tuple[Stmt, ...] = nest.leaf
    while loops := [stmt for stmt in body if isinstance(stmt, For)]:
        if len(loops) > 1:
            return None
        inner.append(loops[0])
        body = loops[0].body
    sums = [stmt for stmt in body if isinstance(stmt, Assign)]
    if not sums:
        return None
    variables = [loop.variable for loop in (*nest.loops, *inner)]
    loads = dict.fromkeys(load for stmt in sums for load in always_loaded(stmt.value) if load.index)
    loads |= dict.fromkeys(
        load
        for stmt in body
        for expr in expressions(stmt)
        for load in (always_loaded(expr) if isinstance(expr, Load) else ())
    )
    operations = sum(
        isinstance(part, Binary | Apply | Unary | Cast)
        for stmt in body
        for expr in expressions(stmt)
        for part in (expr,)
    )
    streams = tuple(
        _Stream({name: _stride(load, name) for name in variables}, load.dtype.bytes)
        for load in loads
    )
    inside = ranges(nest.loops, bounds)
    extents = {loop.variable: _usual(loop, inside) for loop in nest.loops}
    extents |= {loop.variable: _full_extent(nest, loop) for loop in inner}
    interiors = {loop.variable: interior(loop, nest.reductions) for loop in nest.loops}
    key = (
        *((loop.variable, loop.start, loop.stop) for loop in (*nest.loops, *nest.reductions)),
        nest.free,
        *((tuple(stream.strides.items()), stream.bytes) for stream in streams),
        (operations, len(sums), tuple(loop.variable for loop in inner)),
        *extents.items(),
    )
    return _Shape(key, nest, streams, operations, len(sums), extents, tuple(inner), interiors)


def _stride(load: Load, name: str) -> int:
    """How many bytes further a load lies one step on, unknown sizes taken as typical ones."""
    typical = dict.fromkeys(load.buffer.type.symbols, TYPICAL)
    far = 0
    for position, dim in enumerate(load.index):
        step = dim.substitute({name: Dim.of(name) + 1}) - dim
        size = prod(s.evaluate(typical) for s in load.buffer.shape[position + 1 :])
        if step.is_constant:
            far += step.constant * size
        else:
            far += 7919 * size
    return far * load.dtype.bytes


def _extent(loop: For) -> int | None:
    size = loop.stop - loop.start
    return max(size.constant, 0) if size.is_constant else None


def _usual(loop: For, bounds: Bounds) -> int | None:
    """What a loop of a few turns has at most is what it has as a rule: rows of a strip."""
    most = interval(loop.stop - loop.start, bounds)[1]
    return _extent(loop) if most > max(SIZES) else max(most, 0)


def _full_extent(nest: Nest, loop: For) -> int | None:
    """Of an inner loop where no window is cut off."""
    full = whole(loop, nest.loops, nest.reductions)
    return _extent(full) if full is not None else None


def _tiles(nest: Nest, shape: _Shape) -> Iterator[tuple[tuple[str, int], ...]]:
    free = [loop.variable for loop in nest.loops if loop.variable in nest.free]
    for one in free:
        for size in _sizes(shape, one):
            yield ((one, size),)
    for one, other in combinations(free, 2):
        for sizes in product(_sizes(shape, one), _sizes(shape, other)):
            if min(sizes) > 1:
                yield tuple(zip((one, other), sizes, strict=True))


def _sizes(shape: _Shape, variable: str) -> list[int]:
    extent = shape.extents[variable]
    return [size for size in SIZES if extent is None or size <= extent]


def _steps(nest: Nest, shape: _Shape) -> Iterator[tuple[tuple[str, int], ...]]:
    """No loop unrolled; the innermost one, two, three; a few steps of the innermost."""
    yield ()
    unrolled: list[tuple[str, int]] = []
    for loop in reversed(shape.inner):
        extent = shape.extents[loop.variable]
        if extent is None or extent > UNROLLED:
            break
        unrolled.append((loop.variable, 0))
        yield tuple(unrolled)
    rest = shape.inner[: len(shape.inner) - len(unrolled)]
    if rest and not unrolled:
        extent = shape.extents[rest[-1].variable]
        for steps in (2, 4):
            whole_steps = extent is not None and extent % steps == 0
            if whole_steps or _is_long(rest[-1], nest):
                yield ((rest[-1].variable, steps),)


def _is_long(loop: For, nest: Nest) -> bool:
    """A loop of a size that is known at run time only, but the same for every result."""
    extent = loop.stop - loop.start
    variables = {outer.variable for outer in (*nest.loops, *nest.reductions)}
    return not extent.is_constant and not extent.symbols & variables


@dataclass(frozen=True, slots=True)
class _Way:
    """Steps of inner loops that stand side by side, as counts, and how far each load moves."""

    steps: dict[str, int]
    taken: int
    moves: tuple[Moves, ...]


def _way(shape: _Shape, steps: dict[str, int]) -> _Way:
    counts = {
        name: (shape.extents[name] or 1) if count == 0 else count for name, count in steps.items()
    }
    moves = tuple(_moves(stream, counts) for stream in shape.streams)
    return _Way(steps, prod(counts.values()), moves)


def _cost(
    shape: _Shape, tiles: dict[str, int], way: _Way, target: Target, share: float
) -> float | None:
    """Instructions for a turn of the innermost block, on average over the nest, dearer by
    what the code weighs; None where it does not fit."""
    if not _fits(shape, tiles, way, target):
        return None
    one_by_one = _way(shape, {}) if way.steps else way
    parts = [_parts(shape, name, size, way.steps) for name, size in tiles.items()]
    work = code = 0.0
    for segments in product(*parts):
        lanes = {name: part.size for name, part in zip(tiles, segments, strict=True)}
        rolled = any(part.rolled for part in segments)
        how = one_by_one if rolled else way
        block = _block(shape, lanes, how, target)
        results = prod(lanes.values())
        covered = prod(part.share for part in segments)
        work += covered * block / how.taken / results
        code += BYTES * (block + EPILOGUE * results)
    return work * (1 + code / (target.code * share))


def iterations(nest: Nest, bounds: Bounds) -> int:
    """How often the innermost blocks of a nest run at the greatest sizes, about."""
    inside = ranges((*nest.loops, *nest.reductions), bounds)
    outer = prod(_most(loop, inside) for loop in nest.loops)
    return outer * max(_inner_iterations(nest.leaf, inside), 1)


def _inner_iterations(body: tuple[Stmt, ...], bounds: Bounds) -> int:
    """Loops one after another add up, loops in one another multiply."""
    return sum(
        _most(stmt, bounds) * max(_inner_iterations(stmt.body, bounds), 1)
        for stmt in body
        if isinstance(stmt, For)
    )


def _most(loop: For, bounds: Bounds) -> int:
    return max(interval(loop.stop - loop.start, bounds)[1], 1)


BYTES = 4
"""Of code for an instruction."""
EPILOGUE = 6
"""Instructions for each result, before and after it is summed up."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Blocks of a size cover a share of a loop; `rolled`: windows are cut off there."""

    size: int
    share: float
    rolled: bool = False


def _parts(shape: _Shape, name: str, size: int, steps: dict[str, int]) -> list[_Part]:
    """As blocking.py covers a loop: full tiles, what is left over, borders."""
    inside = shape.interiors[name]
    extent = shape.extents[name]
    parts: list[_Part] = []
    total = extent
    if inside is not None and inside.full:
        written_out = all(steps.get(window) == 0 for window, _ in inside.full)
        if not (written_out and extent is not None and extent <= size):
            middle = inside.stop - inside.start
            extent = middle.constant if middle.is_constant else None
            border = (total - extent) / total if total and extent is not None else 0.05
            parts.append(_Part(1, border, rolled=True))
    if extent is None or total is None:
        left = [_Part(1, 0.03)] if size > 1 else []
        return [*parts, _Part(size, 1.0), *left]
    tiles, left_over = divmod(extent, size)
    if tiles:
        parts.append(_Part(size, tiles * size / total))
    if left_over:
        parts.append(_Part(left_over, left_over / total))
    return parts


def _fits(shape: _Shape, lanes: dict[str, int], way: _Way, target: Target) -> bool:
    """The sums and what they are made of fit the registers, and the block is not too long."""
    results, taken = prod(lanes.values()), way.taken
    if results * taken == 1:
        return True
    if results * taken * shape.operations > target.block:
        return False
    kept, passing = 0, [0]
    for stream, further in zip(shape.streams, way.moves, strict=True):
        moves = _moves(stream, lanes)
        once = len(_places(moves))
        all_ = len(_places(moves + further)) if further else once
        if all_ < once * taken:
            kept += all_
        else:
            passing.append(once)
    # One stream may pass through a single register, while the others stay.
    kept += sum(passing) - max(passing)
    return results * shape.sums + kept + 1 <= target.registers


def _block(shape: _Shape, lanes: dict[str, int], way: _Way, target: Target) -> float:
    """Instructions of one turn of the innermost loop."""
    key = frozenset(part for part in lanes.items() if part[1] > 1), frozenset(way.steps.items())
    found = shape.blocks.get(key)
    if found is None:
        found = shape.blocks[key] = _counted(shape, lanes, way, target)
    return found


def _counted(shape: _Shape, lanes: dict[str, int], way: _Way, target: Target) -> float:
    loads = pointers = 0
    for stream, further in zip(shape.streams, way.moves, strict=True):
        moves = _moves(stream, lanes) + further
        loads += len(_places(moves))
        pointers += _pointers(moves, target.reach)
    spilled = max(pointers - target.pointers, 0)
    taken = prod(lanes.values()) * way.taken
    return taken * shape.operations + loads + pointers + 2 * spilled + 2


def _fits_windows(shape: _Shape, tiles: dict[str, int]) -> bool:
    """A tile over places that cut a window differently needs an interior without cuts."""
    return all(
        tiles.get(name, 1) == 1 or inside is not None for name, inside in shape.interiors.items()
    )


Moves = tuple[tuple[int, int], ...]
"""How far, and how often."""


def _moves(stream: _Stream, counts: dict[str, int]) -> Moves:
    strides = stream.strides
    return tuple(
        (strides[name], count)
        for name, count in counts.items()
        if count != 1 and strides.get(name, 0)
    )


@lru_cache(maxsize=1 << 13)
def _places(moves: Moves) -> tuple[int, ...]:
    """Where the elements of a block lie, in order."""
    places = {0}
    for stride, count in moves:
        places = {place + stride * i for place in places for i in range(count)}
    return tuple(sorted(places))


@lru_cache(maxsize=1 << 13)
def _pointers(moves: Moves, reach: int) -> int:
    count, base = 0, None
    for place in _places(moves):
        if base is None or place - base > reach:
            count, base = count + 1, place
    return count
