# SPDX-License-Identifier: Apache-2.0
"""The choice of register blocks: which iterations of a nest are jammed, by a cost model.

The cost of a block is its operations, its distinct loads, and the pointers of its innermost
loop. The cheapest block per iteration of the leaf that fits the registers is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, product
from math import inf, prod

from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Apply, Assign, Binary, Cast, For, Let, Load, Stmt, Unary, expressions
from relax_aot.scheduling.contraction import stride
from relax_aot.scheduling.nest import Nest, bounds_known, greatest, nest_of, ranges
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.windows import interior, whole

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
TYPICAL = 1009
"""The value assumed for a dynamic size."""
WORTH = 0.9
"""A block is chosen if it costs less than this part of a single iteration."""
BYTES = 4
"""Of code for an instruction."""
UNROLLED = 16
"""Steps of one loop at most that are written out."""
EPILOGUE = 6
"""Instructions for each result, before and after it is summed up."""

Counts = tuple[tuple[str, int], ...]
"""A number for each of some loops."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Iterations of each output loop that are jammed, and steps of each inner loop that are
    unrolled (0: all)."""

    tiles: Counts
    steps: Counts


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the choice depends on. Equal ones share a choice: layers of a network repeat.
    `nest`: with its inner loops, empty, as its leaf; `streams`: of each load, how far it moves
    with each variable, in bytes."""

    nest: Nest
    streams: tuple[Counts, ...]
    operations: int
    sums: int
    extents: tuple[tuple[str, int | None], ...]


def choose(nest: Nest, bounds: Bounds, target: Target, share: float) -> Blocking | None:
    """The cheapest blocking; None where none is worth it. `bounds`: of the names around the nest;
    `share`: the part of the model's work that this nest does; the less, the more code counts."""
    shape = _shape(nest, bounds)
    return None if shape is None else _chosen(shape, target, share)


@lru_cache(maxsize=256)
def _chosen(shape: _Shape, target: Target, share: float) -> Blocking | None:
    model = _Model(shape, target, share)
    unrollings = tuple(_steps(shape))
    choices = [Blocking(*pair) for pair in product(_tiles(shape), unrollings)]
    best = min(choices, key=model.cost, default=None)
    single = model.cost(Blocking((), ()))
    return best if best is not None and model.cost(best) <= WORTH * single else None


def _shape(nest: Nest, bounds: Bounds) -> _Shape | None:
    """The shape of the innermost block; None where the leaf has several."""
    body: tuple[Stmt, ...] = nest.leaf
    while loops := [stmt for stmt in body if isinstance(stmt, For)]:
        if len(loops) > 1:
            return None
        body = loops[0].body
    sums = sum(isinstance(stmt, Assign) for stmt in body)
    inner = tuple(For(loop.variable, loop.start, loop.stop, ()) for loop in nest.reductions)
    nest = Nest(nest.loops, inner, nest.free)
    variables = [loop.variable for loop in (*nest.loops, *inner)]
    exprs = [expr for stmt in body for expr in expressions(stmt)]
    loads = dict.fromkeys(expr for expr in exprs if isinstance(expr, Load))
    streams = (tuple((name, _stride(load, name)) for name in variables) for load in loads)
    operations = sum(isinstance(expr, Binary | Apply | Unary | Cast) for expr in exprs)
    inside = ranges(nest.loops, bounds)
    outer = ((loop.variable, _usual(loop, inside)) for loop in nest.loops)
    full = ((loop.variable, _extent(whole(loop, nest))) for loop in inner)
    return _Shape(nest, tuple(streams), operations, sums, (*outer, *full))


def _stride(load: Load, name: str) -> int:
    """The distance in bytes from step to step, with typical values of dynamic sizes."""
    step = stride(load, name)
    elements = TYPICAL if step is None else step.evaluate(dict.fromkeys(step.symbols, TYPICAL))
    return elements * load.dtype.bytes


def _extent(loop: For | None) -> int | None:
    size = loop.extent if loop is not None else None
    return max(size.constant, 0) if size is not None and size.is_constant else None


def _usual(loop: For, bounds: Bounds) -> int | None:
    """A loop of at most a few iterations usually has the most: rows of a row block."""
    usual = greatest(loop.extent, bounds)
    return _extent(loop) if usual > max(SIZES) else usual


# Candidates


def _tiles(shape: _Shape) -> Iterator[Counts]:
    """Tiles of one loop or two. Those over positions whose windows are clipped differently need
    an interior."""
    solved = {lp.variable: interior(lp, shape.nest) is not None for lp in shape.nest.loops}
    sizes = {
        name: [n for n in SIZES if (extent is None or n <= extent) and (n == 1 or solved[name])]
        for name, extent in shape.extents
        if name in shape.nest.free
    }
    for loops in (*combinations(sizes, 1), *combinations(sizes, 2)):
        for tile in product(*(sizes[name] for name in loops)):
            if len(tile) == 1 or min(tile) > 1:
                yield tuple(zip(loops, tile, strict=True))


def _steps(shape: _Shape) -> Iterator[Counts]:
    """No loop unrolled; the innermost one, two, three; a few steps of the innermost."""
    yield ()
    extents, unrolled = dict(shape.extents), list[tuple[str, int]]()
    for loop in reversed(shape.nest.reductions):
        extent = extents[loop.variable]
        if extent is None or extent > UNROLLED:
            break
        unrolled.append((loop.variable, 0))
        yield tuple(unrolled)
    if shape.nest.reductions and not unrolled:
        loop, extent = shape.nest.reductions[-1], extents[shape.nest.reductions[-1].variable]
        for steps in (2, 4):
            if (extent is not None and extent % steps == 0) or _is_long(loop, shape):
                yield ((loop.variable, steps),)


def _is_long(loop: For, shape: _Shape) -> bool:
    """A loop of a dynamic size that is the same for every result."""
    extent = loop.extent
    variables = {outer.variable for outer in (*shape.nest.loops, *shape.nest.reductions)}
    return not extent.is_constant and not extent.symbols & variables


# The cost of a candidate


@dataclass(frozen=True, slots=True)
class _Part:
    """Blocks of a size cover a share of a loop; `rolled`: windows are cut off there."""

    size: int
    share: float
    rolled: bool = False


class _Model:
    """The costs of the candidates for one shape. What many of them share is computed once."""

    def __init__(self, shape: _Shape, target: Target, share: float) -> None:
        self.shape, self.target, self.share = shape, target, share
        self.extents = dict(shape.extents)
        self.interiors = {loop.variable: interior(loop, shape.nest) for loop in shape.nest.loops}
        self.unrolled, self.block = cache(self._unrolled), cache(self._block)

    def cost(self, blocking: Blocking) -> float:
        """Instructions per iteration of the innermost block, on average over the nest, weighted
        by the size of the code; infinite where it does not fit."""
        if not self._fits(blocking):
            return inf
        parts = [self._parts(name, size, dict(blocking.steps)) for name, size in blocking.tiles]
        work = code = 0.0
        for segments in product(*parts):
            pairs = zip(blocking.tiles, segments, strict=True)
            lanes = frozenset((name, part.size) for (name, _), part in pairs if part.size > 1)
            steps = () if any(part.rolled for part in segments) else blocking.steps
            block, results = self.block(lanes, steps), prod(part.size for part in segments)
            covered = prod(part.share for part in segments)
            work += covered * block / self.unrolled(steps)[0] / results
            code += BYTES * (block + EPILOGUE * results)
        return work * (1 + code / (self.target.code * self.share))

    def _parts(self, name: str, size: int, steps: dict[str, int]) -> list[_Part]:
        """As register_blocks.py covers a loop: full tiles, the remainder, borders."""
        inside, extent = self.interiors[name], self.extents[name]
        parts, total = list[_Part](), extent
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
        left_over = extent % size
        covers = ((size, extent - left_over), (left_over, left_over))
        return [*parts, *(_Part(lanes, part / total) for lanes, part in covers if part)]

    def _fits(self, blocking: Blocking) -> bool:
        """Whether sums and operands fit the registers, and the block is not too long."""
        shape, (taken, moves) = self.shape, self.unrolled(blocking.steps)
        results = prod(size for _, size in blocking.tiles)
        if results * taken == 1:
            return True
        if results * taken * shape.operations > self.target.block:
            return False
        kept, passing = 0, [0]
        for stream, further in zip(shape.streams, moves, strict=True):
            tile = _moves(stream, blocking.tiles)
            once, all_ = len(_offsets(tile)), len(_offsets(tile + further))
            if all_ < once * taken:
                kept += all_
            else:
                passing.append(once)
        # One stream may pass through a single register, while the others stay.
        kept += sum(passing) - max(passing)
        return results * shape.sums + kept + 1 <= self.target.registers

    def _block(self, lanes: frozenset[tuple[str, int]], steps: Counts) -> float:
        """Instructions of one iteration of the innermost loop."""
        taken, moves = self.unrolled(steps)
        all_ = [
            _moves(stream, lanes) + further
            for stream, further in zip(self.shape.streams, moves, strict=True)
        ]
        loads = sum(len(_offsets(one)) for one in all_)
        pointers = sum(_pointers(one, self.target.reach) for one in all_)
        spilled = max(pointers - self.target.pointers, 0)
        operations = prod(size for _, size in lanes) * taken * self.shape.operations
        return operations + loads + pointers + 2 * spilled + 2

    def _unrolled(self, steps: Counts) -> tuple[int, list[Moves]]:
        """How many steps an iteration takes, and how each load moves in them."""
        counts = [(name, count or self.extents[name] or 1) for name, count in steps]
        taken = prod(count for _, count in counts)
        return taken, [_moves(stream, counts) for stream in self.shape.streams]


Moves = tuple[tuple[int, int], ...]
"""How far, and how often."""


def _moves(stream: Counts, counts: Iterable[tuple[str, int]]) -> Moves:
    strides = dict(stream)
    return tuple((strides[name], n) for name, n in counts if n != 1 and strides[name])


@lru_cache(maxsize=1 << 13)
def _offsets(moves: Moves) -> tuple[int, ...]:
    """The offsets of the elements of a block, sorted."""
    offsets = {0}
    for far, count in moves:
        offsets = {offset + far * i for offset in offsets for i in range(count)}
    return tuple(sorted(offsets))


@lru_cache(maxsize=1 << 13)
def _pointers(moves: Moves, reach: int) -> int:
    count, base = 0, None
    for offset in _offsets(moves):
        if base is None or offset - base > reach:
            count, base = count + 1, offset
    return count


# The work of a model


def work_of(body: Iterable[Stmt], bounds: Bounds) -> int:
    """Iterations of the innermost loops of all nests at the greatest sizes, about."""
    total = 0
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        if nest := nest_of(stmt, bounds):
            inside = ranges((*nest.loops, *nest.reductions), bounds)
            outer = prod(greatest(loop.extent, inside) for loop in nest.loops)
            total += outer * max(_iterations(nest.leaf, inside), 1)
        elif isinstance(stmt, For) and bounds_known(stmt, bounds):
            inner = work_of(stmt.body, ranges((stmt,), bounds))
            total += greatest(stmt.extent, bounds) * inner
    return total


def _iterations(body: tuple[Stmt, ...], bounds: Bounds) -> int:
    """Loops one after another add up, loops in one another multiply."""
    loops = (stmt for stmt in body if isinstance(stmt, For))
    return sum(
        greatest(loop.extent, bounds) * max(_iterations(loop.body, bounds), 1) for loop in loops
    )
