# SPDX-License-Identifier: Apache-2.0
"""The choice of register blocks: which iterations of a nest are jammed, by a cost model.

The cost of a block is its operations, its distinct loads, and the pointers of its innermost
loop. The cheapest block per iteration of the leaf that fits the registers is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    Let,
    Load,
    Stmt,
    Unary,
    expressions,
)
from relax_aot.scheduling.nest import Nest, bounds_known, nest_of, ranges
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.unroll_and_jam import UNROLLED
from relax_aot.scheduling.windows import Interior, interior, whole

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
TYPICAL = 1009
"""The extent assumed for a dynamic size."""
WORTH = 0.9
"""A block is chosen if it costs less than this part of a single iteration."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Iterations of each output loop that are jammed, and steps of each inner loop that are
    unrolled (0: all)."""

    tiles: tuple[tuple[str, int], ...]
    steps: tuple[tuple[str, int], ...]


Counts = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Stream:
    """A load of the innermost block: how far it moves with each variable, in bytes."""

    strides: dict[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the choice depends on. Equal ones share a choice: layers of a network repeat."""

    key: tuple[object, ...]
    nest: Nest = field(compare=False)
    streams: tuple[_Stream, ...] = field(compare=False)
    operations: int = field(compare=False)
    sums: int = field(compare=False)
    extents: dict[str, int | None] = field(compare=False)
    inner: tuple[For, ...] = field(compare=False)
    interiors: dict[str, Interior | None] = field(compare=False)
    """Of the outer loops, solved once for all candidates."""
    blocks: dict[tuple[Counts, Counts], float] = field(default_factory=dict, compare=False)
    """The costs of candidates so far: many share a block."""


def choose(nest: Nest, bounds: Bounds, target: Target, share: float = 1.0) -> Blocking | None:
    """The cheapest blocking; None where none is worth it. `bounds`: of the names around the nest;
    `share`: the part of the model's work that this nest does; the less, the more code counts."""
    shape = _shape(nest, bounds)
    return None if shape is None else _chosen(shape, target, share)


@lru_cache(maxsize=256)
def _chosen(shape: _Shape, target: Target, share: float) -> Blocking | None:
    nest = shape.nest
    best: tuple[float, Blocking] | None = None
    unrollings = [_unrolling(shape, dict(steps)) for steps in _steps(nest, shape)]
    for tiles in _tiles(nest, shape):
        lanes = dict(tiles)
        if not _fits_windows(shape, lanes):
            continue
        for unrolling in unrollings:
            cost = _cost(shape, lanes, unrolling, target, share)
            if cost is not None and (best is None or cost < best[0]):
                best = (cost, Blocking(tiles, tuple(unrolling.steps.items())))
    single = _cost(shape, {}, _unrolling(shape, {}), target, share)
    if best is None or single is None or best[0] > WORTH * single:
        return None
    return best[1]


def _shape(nest: Nest, bounds: Bounds) -> _Shape | None:
    """The shape of the innermost block; None where the leaf has several."""
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
    exprs = [expr for stmt in body for expr in expressions(stmt)]
    loads = dict.fromkeys(expr for expr in exprs if isinstance(expr, Load))
    operations = sum(isinstance(expr, Binary | Apply | Unary | Cast) for expr in exprs)
    streams = tuple(
        _Stream({name: _stride(load, name) for name in variables}, load.dtype.bytes)
        for load in loads
    )
    inside = ranges(nest.loops, bounds)
    extents = {loop.variable: _usual(loop, inside) for loop in nest.loops}
    extents |= {loop.variable: _full_extent(nest, loop) for loop in inner}
    interiors = {loop.variable: interior(loop, nest) for loop in nest.loops}
    key = (
        *((loop.variable, loop.start, loop.stop) for loop in (*nest.loops, *nest.reductions)),
        nest.free,
        *((tuple(stream.strides.items()), stream.bytes) for stream in streams),
        (operations, len(sums), tuple(loop.variable for loop in inner)),
        *extents.items(),
    )
    return _Shape(key, nest, streams, operations, len(sums), extents, tuple(inner), interiors)


def _stride(load: Load, name: str) -> int:
    """The distance in bytes from step to step, with typical extents for dynamic sizes."""
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
    """A loop of at most a few iterations usually has the most: rows of a row block."""
    most = interval(loop.stop - loop.start, bounds)[1]
    return _extent(loop) if most > max(SIZES) else max(most, 0)


def _full_extent(nest: Nest, loop: For) -> int | None:
    """Of an inner loop where no window is cut off."""
    full = whole(loop, nest)
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
    """A loop of a dynamic size that is the same for every result."""
    extent = loop.stop - loop.start
    variables = {outer.variable for outer in (*nest.loops, *nest.reductions)}
    return not extent.is_constant and not extent.symbols & variables


@dataclass(frozen=True, slots=True)
class _Unrolling:
    """Unrolled steps of inner loops, as counts, and how far each load moves."""

    steps: dict[str, int]
    taken: int
    moves: tuple[Moves, ...]


def _unrolling(shape: _Shape, steps: dict[str, int]) -> _Unrolling:
    counts = {
        name: (shape.extents[name] or 1) if count == 0 else count for name, count in steps.items()
    }
    moves = tuple(_moves(stream, counts) for stream in shape.streams)
    return _Unrolling(steps, prod(counts.values()), moves)


def _cost(
    shape: _Shape, tiles: dict[str, int], unrolling: _Unrolling, target: Target, share: float
) -> float | None:
    """Instructions per iteration of the innermost block, on average over the nest, weighted by
    the size of the code; None where it does not fit."""
    if not _fits(shape, tiles, unrolling, target):
        return None
    one_by_one = _unrolling(shape, {}) if unrolling.steps else unrolling
    parts = [_parts(shape, name, size, unrolling.steps) for name, size in tiles.items()]
    work = code = 0.0
    for segments in product(*parts):
        lanes = {name: part.size for name, part in zip(tiles, segments, strict=True)}
        rolled = any(part.rolled for part in segments)
        how = one_by_one if rolled else unrolling
        block = _block(shape, lanes, how, target)
        results = prod(lanes.values())
        covered = prod(part.share for part in segments)
        work += covered * block / how.taken / results
        code += BYTES * (block + EPILOGUE * results)
    return work * (1 + code / (target.code * share))


def work_of(body: Iterable[Stmt], bounds: Bounds) -> int:
    """Iterations of the innermost loops of all nests at the greatest sizes, about."""
    total = 0
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        if nest := nest_of(stmt, bounds):
            inside = ranges((*nest.loops, *nest.reductions), bounds)
            outer = prod(most(loop, inside) for loop in nest.loops)
            total += outer * max(_iterations(nest.leaf, inside), 1)
        elif isinstance(stmt, For) and bounds_known(stmt, bounds):
            total += most(stmt, bounds) * work_of(stmt.body, ranges((stmt,), bounds))
    return total


def _iterations(body: tuple[Stmt, ...], bounds: Bounds) -> int:
    """Loops one after another add up, loops in one another multiply."""
    loops = (stmt for stmt in body if isinstance(stmt, For))
    return sum(most(loop, bounds) * max(_iterations(loop.body, bounds), 1) for loop in loops)


def most(loop: For, bounds: Bounds) -> int:
    """Iterations at the greatest sizes, at least one."""
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
    """As register_blocks.py covers a loop: full tiles, the remainder, borders."""
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


def _fits(shape: _Shape, lanes: dict[str, int], unrolling: _Unrolling, target: Target) -> bool:
    """Whether sums and operands fit the registers, and the block is not too long."""
    results, taken = prod(lanes.values()), unrolling.taken
    if results * taken == 1:
        return True
    if results * taken * shape.operations > target.block:
        return False
    kept, passing = 0, [0]
    for stream, further in zip(shape.streams, unrolling.moves, strict=True):
        moves = _moves(stream, lanes)
        once = len(_offsets(moves))
        all_ = len(_offsets(moves + further)) if further else once
        if all_ < once * taken:
            kept += all_
        else:
            passing.append(once)
    # One stream may pass through a single register, while the others stay.
    kept += sum(passing) - max(passing)
    return results * shape.sums + kept + 1 <= target.registers


def _block(shape: _Shape, lanes: dict[str, int], unrolling: _Unrolling, target: Target) -> float:
    """Instructions of one iteration of the innermost loop."""
    key = (
        frozenset(part for part in lanes.items() if part[1] > 1),
        frozenset(unrolling.steps.items()),
    )
    found = shape.blocks.get(key)
    if found is None:
        found = shape.blocks[key] = _counted(shape, lanes, unrolling, target)
    return found


def _counted(shape: _Shape, lanes: dict[str, int], unrolling: _Unrolling, target: Target) -> float:
    loads = pointers = 0
    for stream, further in zip(shape.streams, unrolling.moves, strict=True):
        moves = _moves(stream, lanes) + further
        loads += len(_offsets(moves))
        pointers += _pointers(moves, target.reach)
    spilled = max(pointers - target.pointers, 0)
    taken = prod(lanes.values()) * unrolling.taken
    return taken * shape.operations + loads + pointers + 2 * spilled + 2


def _fits_windows(shape: _Shape, tiles: dict[str, int]) -> bool:
    """A tile over positions whose windows are clipped differently needs an interior."""
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
def _offsets(moves: Moves) -> tuple[int, ...]:
    """The offsets of the elements of a block, sorted."""
    offsets = {0}
    for stride, count in moves:
        offsets = {offset + stride * i for offset in offsets for i in range(count)}
    return tuple(sorted(offsets))


@lru_cache(maxsize=1 << 13)
def _pointers(moves: Moves, reach: int) -> int:
    count, base = 0, None
    for offset in _offsets(moves):
        if base is None or offset - base > reach:
            count, base = count + 1, offset
    return count
