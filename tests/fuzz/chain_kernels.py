# SPDX-License-Identifier: Apache-2.0
"""Random kernels of the text form: every store pattern that a merger could mistake for another.

A kernel fills its outputs by one of several patterns (`PATTERNS`): element by element in any
order, many-to-one, conditionally, by accumulation, through indices from data, by a running
reduction, over scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Binary, Buffer, Expr, Index, Kernel, Lit, Local, apply, binary
from relax_aot.ir.types import DType
from tests.fuzz.chain_draft import COLUMNS, Draft, Grid

# Patterns: each fills one output; all of its elements are written.


def mapped(d: Draft, y: Buffer) -> None:
    with d.nest(*y.shape) as at:
        d.store(y, d.one_to_one(at, y.shape), d.expr(y.dtype))


def both_sides(d: Draft, y: Buffer) -> None:
    with d.nest(*y.shape) as at:
        where = d.one_to_one(at, y.shape)
        if d.chance(0.5):
            with d.when(d.truth(2)):
                d.store(y, where, d.expr(y.dtype))
            with d.otherwise():
                d.store(y, where, d.expr(y.dtype))
            return
        first, limit = d.expr(y.dtype)
        local = d.k.local("value", y.dtype, first)
        with d.when(d.truth(2)):
            second, other = d.expr(y.dtype)
            d.k.assign(local, second)
        d.store(y, where, (local, max(limit, other)))


def in_parts(d: Draft, y: Buffer) -> None:
    """Even and odd elements, two halves, or blocks of two, of the first axis."""
    if not y.shape:
        mapped(d, y)
        return
    size, *rest = y.shape
    match d.random.randrange(4):
        case 0:
            parts = [((size + 1) // 2, 2, Dim.of(0)), (size // 2, 2, Dim.of(1))]
        case 1:
            half = (size + 1) // 2
            parts = [(half, 1, Dim.of(0)), (size - half, 1, half)]
        case 2:
            with d.nest((size + 1) // 2, *rest) as at, d.nest(Dim.of(2)) as (j,):
                where = at[0] * 2 + j
                with d.when(binary("<", where, size)):
                    d.store(y, (where, *at[1:]), d.expr(y.dtype, 1))
            return
        case _:
            flattened(d, y)
            return
    d.random.shuffle(parts)
    for count, step, start in parts:
        with d.nest(count, *rest) as at:
            d.store(y, (at[0] * step + start, *at[1:]), d.expr(y.dtype, 1))


def flattened(d: Draft, y: Buffer) -> None:
    """One loop over two axes."""
    if y.rank < 2 or d.least(y.shape[1]) < 1:
        mapped(d, y)
        return
    rows, columns, *rest = y.shape
    with d.nest(rows * columns, *rest) as at:
        where = (at[0] // columns, at[0] % columns, *at[1:])
        d.store(y, where, d.expr(y.dtype, 1))


def overwritten(d: Draft, y: Buffer) -> None:
    """All of it, and some or all of it again."""
    d.random.choice((mapped, mapped, constant, both_sides))(d, y)
    for _ in range(d.random.choice((1, 1, 1, 2))):
        d.random.choice((partial, partial, partial, mapped))(d, y)


def follower(d: Draft, y: Buffer) -> None:
    """One nest that reads the first operand once, element by element, and stores anywhere."""
    x = d.readable[0]
    total = y.shape == x.shape and d.chance(0.5)
    if not total:
        constant(d, y)
    with d.nest(*x.shape) as at:
        where: tuple[Dim, ...] | None
        where = d.one_to_one(at, y.shape) if total else d.place(y)
        if where is None:
            return
        element = d.converted(x[at], d.limits.get(x.name, 0.0), y.dtype)
        value, limit = d.around(element, y.dtype)
        put = d.accumulate if not total and d.chance(0.5) else d.store
        if total or d.chance(0.5):
            put(y, where, (value, limit))
        else:
            condition = d.truth(1)
            if d.chance(0.6) and x.dtype is not DType.BOOL:
                zero = Lit(0.0 if x.dtype.is_float else 0, x.dtype)
                condition = binary("<", zero, x[at])
            with d.when(condition):
                put(y, where, (value, limit))


def constant(d: Draft, y: Buffer) -> None:
    with d.nest(*y.shape) as at:
        d.store(y, at, d.literal(y.dtype))


def partial(d: Draft, y: Buffer) -> None:
    """Stores anywhere, of anything: many-to-one, conditional, accumulating."""
    extents: tuple[Dim, ...] = ()
    if d.readable and d.chance(0.7):
        extents = d.random.choice(d.readable).shape
    elif d.chance(0.5):
        sizes: list[int | str] = [*d.grid, 2, 3]
        extents = (Dim.of(d.random.choice(sizes)),)
    else:
        extents = y.shape
    if d.iterations(extents) > COLUMNS:
        extents = extents[:1]
    if d.chance(0.06):
        extents = ()
    with d.nest(*extents):
        at = d.place(y)
        if at is None:
            return
        put = d.accumulate if d.chance(0.5) else d.store
        if d.chance(0.4):
            with d.when(d.truth(2)):
                put(y, at, d.expr(y.dtype))
            if d.chance(0.15):
                with d.otherwise():
                    other = d.place(y)
                    if other is not None:
                        put(y, other, d.expr(y.dtype, 1))
        else:
            put(y, at, d.expr(y.dtype))


def reduced(d: Draft, y: Buffer) -> None:
    """Over loops of its own for each element, in a local or in the output itself."""
    extra = d.random.choice(d.readable).shape if d.readable else ()
    extra = tuple(e for e in extra if e not in y.shape)[:2] or extra[:1]
    if d.iterations((*y.shape, *extra)) > 4 * COLUMNS:
        extra = ()
    start, limit = d.literal(y.dtype)
    with d.nest(*y.shape) as at:
        where = d.one_to_one(at, y.shape)
        if d.chance(0.35):
            d.store(y, where, (start, limit))
            with d.nest(*extra):
                d.accumulate(y, where, d.expr(y.dtype, 1))
            return
        local = d.k.local("total", y.dtype, start)
        with d.nest(*extra):
            value, n = d.expr(y.dtype, 1)
            if d.chance(0.2):
                with d.when(d.truth(1)):
                    limit = _folded(d, local, value, limit, n)
            else:
                limit = _folded(d, local, value, limit, n)
        d.locals.append((local, limit))
        d.store(y, where, (local, limit) if d.chance(0.6) else d.expr(y.dtype, 1))


def _folded(d: Draft, local: Local, value: Expr, limit: float, n: float) -> float:
    if local.dtype is DType.BOOL:
        d.k.assign(local, Binary(d.random.choice(("&&", "||")), local, value))
        return 1.0
    if d.chance(0.65):
        d.k.assign(local, local + value)
        return limit + COLUMNS * n
    d.k.assign(local, apply(d.random.choice(("max", "min")), local, value))
    return max(limit, n)


def running(d: Draft, y: Buffer) -> None:
    """Each element depends on the one before: in the output, or in a local."""
    if not y.shape:
        mapped(d, y)
        return
    size, *rest = y.shape
    with d.nest(*rest) as others:
        if d.chance(0.5):
            start, limit = d.literal(y.dtype)
            local = d.k.local("last", y.dtype, start)
            with d.nest(size) as (i,):
                value, n = d.expr(y.dtype, 1)
                limit = _folded(d, local, value, limit, n)
                d.store(y, (i, *others), (local, limit))
            return
        with d.nest(size) as (i,):
            d.store(y, (i, *others), d.expr(y.dtype, 1))
            if i.is_constant:
                return
            with d.when(binary("<", 0, i)):
                earlier, now = y[(i - 1, *others)], y[(i, *others)]
                if y.dtype is DType.BOOL:
                    d.store(y, (i, *others), (Binary("||", earlier, now), 1.0))
                else:
                    d.store(y, (i, *others), (earlier + now, COLUMNS * d.limits[y.name]))


def looked_up(d: Draft, y: Buffer) -> None:
    """Elements at places that data give, read or stored."""
    numbers = [b for b in d.readable if b.dtype is DType.I64]
    if not numbers:
        overwritten(d, y)
        return
    where = d.random.choice(numbers)
    if d.chance(0.5) and y.shape and d.least(y.shape[0]) > 0:
        constant(d, y)
        with d.nest(*where.shape) as at:
            row = _bound(d, where[at], y.shape[0])
            others = [d.axis_index(size) for size in y.shape[1:]]
            if None in others:
                return
            place = (row, *(o for o in others if o is not None))
            put = d.accumulate if d.chance(0.6) else d.store
            put(y, place, d.expr(y.dtype, 1))
        return
    sources = [b for b in d.readable if b.shape and d.least(b.shape[0]) > 0]
    if not sources:
        mapped(d, y)
        return
    source = d.random.choice(sources)
    with d.nest(*y.shape) as at:
        found = d.place(where)
        if found is None:
            d.store(y, at, d.literal(y.dtype))
            return
        row = _bound(d, where[found], source.shape[0])
        others = [d.axis_index(size) for size in source.shape[1:]]
        if None in others:
            d.store(y, at, d.literal(y.dtype))
            return
        value: Expr = source[(row, *(o for o in others if o is not None))]
        limit = d.limits.get(source.name, 0.0)
        if source.dtype is not y.dtype:
            value, limit = d.leaf(y.dtype)
        d.store(y, d.one_to_one(at, y.shape), (value, limit))


def _bound(d: Draft, value: Expr, extent: Dim) -> Dim:
    """An index from data; rarely one that may be outside, which ends the run."""
    wrapped = value if d.chance(0.04) else Binary("%", value, Index(extent))
    row = d.k.index("row", wrapped, 0, extent - 1)
    d.loops.append((str(row), extent))
    return row


def product(d: Draft, y: Buffer) -> None:
    """Sums of products of two operands."""
    matrices = [b for b in d.readable if b.dtype is y.dtype and b.rank > 0]
    if not matrices or y.dtype is DType.BOOL:
        reduced(d, y)
        return
    left, right = d.random.choice(matrices), d.random.choice(matrices)
    inner = d.random.choice(left.shape)
    with d.nest(*y.shape) as at:
        total = d.k.local("total", y.dtype, d.literal(y.dtype)[0])
        with d.nest(inner):
            (a, m), (b, n) = d.load(left), d.load(right)
            d.k.assign(total, total + a * b)
        limit = COLUMNS * m * n + 3
        value: Expr = total
        if d.chance(0.4):
            value = apply("max", total, Lit(0.0 if y.dtype.is_float else 0, y.dtype))
        d.store(y, d.one_to_one(at, y.shape), (value, limit))


def over_scratch(d: Draft, y: Buffer) -> None:
    """Through memory of the call's own."""
    shape = d.random.choice(d.readable).shape if d.readable else y.shape
    dtype = d.random.choice(d.readable).dtype if d.readable else y.dtype
    held = d.k.scratch("held", dtype, shape)
    d.random.choice((mapped, in_parts, overwritten, reduced))(d, held)
    d.readable.append(held)
    d.random.choice((mapped, partial_after, reduced, both_sides))(d, y)


def partial_after(d: Draft, y: Buffer) -> None:
    constant(d, y)
    partial(d, y)


def by_cases(d: Draft, y: Buffer) -> None:
    """The whole output one way or another."""
    condition = d.truth(1)
    with d.when(condition):
        mapped(d, y)
    with d.otherwise():
        d.random.choice((mapped, overwritten))(d, y)


Pattern = Callable[[Draft, Buffer], None]
Weighted = tuple[tuple[Pattern, int], ...]
PATTERNS: Weighted = (
    (mapped, 16), (both_sides, 6), (in_parts, 5), (overwritten, 8), (partial_after, 12),
    (reduced, 8), (running, 3), (looked_up, 5), (product, 4), (over_scratch, 4), (by_cases, 2),
    (constant, 1),
)  # fmt: skip
WRITERS: Weighted = (
    (overwritten, 8), (partial_after, 4), (in_parts, 6), (mapped, 8), (reduced, 3), (both_sides, 3),
    (looked_up, 2), (by_cases, 1), (running, 1), (over_scratch, 1),
)  # fmt: skip
"""What stands before a reader that follows it."""
READERS: Weighted = ((follower, 1),)


def together(d: Draft, outputs: Sequence[Buffer]) -> None:
    """Several outputs of one shape from one nest."""
    with d.nest(*outputs[0].shape) as at:
        for y in outputs:
            d.store(y, d.one_to_one(at, y.shape), d.expr(y.dtype))


def random_kernel(
    random: Random,
    grid: Grid,
    name: str,
    buffers: tuple[Sequence[Buffer], Sequence[Buffer]],
    limits: Mapping[str, float],
    patterns: Weighted = PATTERNS,
) -> tuple[Kernel, dict[str, float], bool]:
    """The kernel, the greatest magnitudes of its outputs, and whether it is exact."""
    inputs, outputs = buffers
    k = KernelBuilder(name, inputs, outputs)
    shown = frozenset[str]().union(*(b.type.symbols for b in (*inputs, *outputs)))
    grid = {symbol: grid[symbol] for symbol in grid if symbol in shown}
    d = Draft(random, k, grid, dict(limits), list(inputs), tidy=random.random() < 0.6)
    if patterns is WRITERS:
        d.disorder = 0.6
    functions, weights = zip(*patterns, strict=True)
    alike = patterns is PATTERNS and len(outputs) > 1 and d.chance(0.4)
    if alike and len({y.shape for y in outputs}) == 1:
        together(d, outputs)
    else:
        for y in outputs:
            pattern: Pattern = random.choices(functions, weights)[0]
            if d.tidy and patterns is PATTERNS and d.chance(0.35):
                pattern = follower
            pattern(d, y)
            if d.chance(0.3):
                d.readable.append(y)
    return k.finish(), {y.name: d.limits.get(y.name, 0.0) for y in outputs}, d.exact
