# SPDX-License-Identifier: Apache-2.0
"""Contractions as products of matrices: which loops are rows, columns and steps.

Several loops are one axis of a matrix, the last loop fastest, so that the pixels of a convolution
are columns (an implicit product: no gathered matrix is stored). A batch of matrices are the loops
that move both factors or none. Where windows are clipped at a border, the factor that moves with
the window is zero beyond it; this is done only if the other factor is known to be finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.dims import (
    ONE,
    ZERO,
    Bounds,
    Dim,
    Max,
    Min,
    ceildiv,
    dim_max,
    dim_min,
    simplify,
)
from relax_aot.ir.loops import (
    PARTS,
    Binary,
    Bind,
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
    binary,
    expressions,
    mapped,
)
from relax_aot.ir.names import defined_name, renamed
from relax_aot.ir.rewrite import map_exprs, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Contraction, indexed_by, moved, stride, symbols_of
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.windows import whole as unclipped
from relax_aot.scheduling.writer import Writer

EVEN = 8
"""What sizes are multiples of where a launch computes these alone."""
At = Mapping[str, Dim]
"""The value of each loop variable."""
Sums = Callable[[Dim, Dim], Load]
"""The sum of the i-th row and j-th column of a thread."""


def extent(loops: Sequence[For]) -> Dim:
    """The number of iterations of all loops together."""
    return prod((loop.extent for loop in loops), start=ONE)


def split(w: Writer, loops: Sequence[For], position: Dim) -> dict[str, Dim]:
    """The value of each loop variable at a position on the axis that the loops are together."""
    at: dict[str, Dim] = {}
    for inner in reversed(range(1, len(loops))):
        loop, outer = loops[inner], "_".join(one.variable for one in loops[:inner])
        before = w.short(outer, position // loop.extent)
        at[loop.variable] = _inside(w, loop, position - before * loop.extent)
        position = before
    for loop in loops[:1]:
        at[loop.variable] = _inside(w, loop, position)
    return at


def _inside(w: Writer, loop: For, offset: Dim) -> Dim:
    low = simplify(loop.start, w.bounds)
    return w.let(loop.variable, low + offset, low, dim_max(loop.stop - 1, low))


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of a left factor with `rows` and a right one with `columns`, for each of
    `batch`. `steps`: the reductions with nothing clipped. `padded`: the factor that is zero where
    a window is clipped, if any is; bytes are their zero point there, of `fills`. `even`: sizes that
    are multiples of EVEN. `filled`: factors whose rows in memory are whole vectors."""

    found: Contraction
    batch: tuple[For, ...]
    rows: tuple[For, ...]
    columns: tuple[For, ...]
    steps: tuple[For, ...]
    padded: Load | None
    fills: tuple[int, int]
    even: frozenset[str] = frozenset()
    filled: tuple[Load, ...] = ()

    @property
    def sides(self) -> tuple[tuple[Load, tuple[For, ...]], ...]:
        """Both factors, each with the loops of its lines."""
        return (self.found.left, self.rows), (self.found.right, self.columns)

    def divides(self, number: int, size: Dim, bounds: Bounds) -> bool:
        """Whether a size is known to be a multiple of a number."""
        size = size.substitute({name: EVEN * Dim.of(name) for name in self.even})
        return simplify(size % number, bounds) == 0

    def blocks(self, rows: int, columns: int) -> Dim:
        """The number of tiles of so many rows and columns."""
        tiles = ceildiv(extent(self.rows), rows) * ceildiv(extent(self.columns), columns)
        return extent(self.batch) * tiles

    def place(self, w: Writer, block: Dim, rows: int, columns: int) -> tuple[Dim, Dim, Dim]:
        """The first row and column of the tile of a block, and its matrix of the batch."""
        across = simplify(ceildiv(extent(self.columns), columns), w.bounds)
        down = simplify(ceildiv(extent(self.rows), rows), w.bounds)
        line = w.short("line", block // across)
        batch = w.short("batch", line // down) if self.batch else ZERO
        row, column = line, w.let("across", block - line * across, ZERO, across - 1)
        if self.batch:
            row = w.let("down", line - batch * down, ZERO, down - 1)
        row = w.let("row", row * rows, ZERO, (down - 1) * rows)
        return row, w.let("column", column * columns, ZERO, (across - 1) * columns), batch

    def value(self, w: Writer, load: Load, at: At) -> Expr:
        """A factor at some iterations; adds the statements that read its indices from data."""
        computed = self.found.computed_at(load)
        if computed is None:
            return moved(load, at)
        names = {defined_name(stmt): w.fresh(defined_name(stmt)) for stmt in computed.fetched}
        fetched = map_index_dims(computed.fetched, lambda dim: dim.substitute(at))
        for stmt in renamed(fetched, names):
            w.add(stmt)
            if isinstance(stmt, Bind):
                w.bounds = w.bounds.with_value(stmt.name, stmt.low, stmt.high)
        dims = {old: Dim.of(new) for old, new in names.items()}
        return substitute_in(computed.value, {**at, **dims})

    def window(self, w: Writer, load: Load, at: At) -> dict[str, tuple[Dim, Dim]]:
        """The range of each step whose window is clipped for this factor at a position."""
        ends: dict[str, tuple[Dim, Dim]] = {}
        for name, (first, last) in self.ends(load).items():
            if (last - first).symbols.isdisjoint(at):
                ends[name] = first.substitute(at), last.substitute(at)
            else:
                first = w.short(f"{name}_first", first.substitute(at))
                ends[name] = first, w.short(f"{name}_last", last.substitute(at))
        return ends

    def ends(self, load: Load) -> dict[str, tuple[Dim, Dim]]:
        """These ranges as expressions of loop variables."""
        if load != self.padded:
            return {}
        return {
            own.variable: (_open(own.start, full.start, Max), _open(own.stop, full.stop, Min))
            for own, full in zip(self.found.reductions, self.steps, strict=True)
            if (own.start, own.stop) != (full.start, full.stop)
        }

    def contiguous_steps(self, load: Load) -> bool:
        """Whether elements of consecutive steps are neighbors in memory."""
        return stride(load, self.steps[-1].variable) == 1


def below(position: Dim, stop: Dim) -> Expr:
    return binary("<", Index(position), Index(stop))


def inside(at: At, ends: Mapping[str, tuple[Dim, Dim]]) -> list[Expr]:
    """The conditions for steps to be inside of a window. How far a step is behind the first one is
    compared, so that compilers make one comparison of two."""
    conditions: list[Expr] = []
    for name, (first, last) in ends.items():
        conditions += [binary("<=", Index(ZERO), Index(at[name] - first))]
        conditions += [below(at[name] - first, last - first)]
    return conditions


def all_of(conditions: Sequence[Expr]) -> Expr:
    return reduce(partial(Binary, "&&"), conditions)


def _open(end: Dim, whole: Dim, kind: type[Max] | type[Min]) -> Dim:
    """The end of a clipped window without the one that no step is beyond anyway."""
    atom = end.terms[0][1][0][0] if len(end.terms) == 1 and end.terms[0][1] else None
    if not isinstance(atom, kind) or end.terms[0] != (1, ((atom, 1),)) or whole not in atom.args:
        return end
    rest = [one for one in atom.args if one != whole]
    return (dim_max if kind is Max else dim_min)(*rest)


@dataclass(frozen=True, slots=True)
class Lines:
    """The `count` rows or columns of which a thread has results: the n-th is `first + place(n)`,
    in a tile of `size` that begins at `first`. `results`: the loop in the place of the last one
    whose iterations are results, where others and lines behind the tile are none."""

    loops: tuple[For, ...]
    first: Dim
    size: int
    count: int
    place: Callable[[Dim], Dim]
    results: For | None = None


def start_sums(
    w: Writer, product: Product, batch: At, lines: tuple[Lines, Lines], sums: Sums
) -> None:
    """Starts the sums of a thread: those beyond the last row or column with zero."""
    start = product.found.start
    zero = Lit(0, DType.I32) if product.found.sum.dtype is DType.I32 else Lit(0.0, DType.F32)
    known = start if isinstance(start, Lit) else zero
    with w.range("i", lines[0].count) as i, w.range("j", lines[1].count) as j:
        place = sums(i, j)
        w.add(Store(place.buffer, place.index, known))
    if not isinstance(start, Lit):
        with _each_result(w, batch, lines, indexed_by(start)) as (at, i, j):
            place = sums(i, j)
            w.place((Store(place.buffer, place.index, start),), {}, at)


def finish_sums(
    w: Writer, product: Product, batch: At, lines: tuple[Lines, Lines], sums: Sums
) -> None:
    """What follows each sum of a thread that is a result."""
    with _each_result(w, batch, lines) as (at, i, j):
        w.finish(product.found.after, product.found.sum, sums(i, j), at)


@contextmanager
def _each_result(
    w: Writer, batch: At, lines: tuple[Lines, Lines], used: frozenset[str] | None = None
) -> Iterator[tuple[dict[str, Dim], Dim, Dim]]:
    """`used`: the loop variables that matter, where others may be beyond the last row or column:
    the last one stands for what is beyond it, which is no condition that would be kept."""
    at, index = dict(batch), list[Dim]()
    with ExitStack() as stack:
        for one, names in zip(lines, ("i row", "j column"), strict=True):
            variable, name = names.split()
            index.append(stack.enter_context(w.range(variable, one.count)))
            if used is not None and not used & {loop.variable for loop in one.loops}:
                continue
            near = simplify(one.place(index[-1]), w.bounds)
            if one.results is not None:
                stack.enter_context(w.when(below(near, Dim.of(one.size))))
            place = one.first + near
            stop = extent(one.loops)
            partial = simplify(stop % one.size, w.bounds) != 0
            if partial and used is not None:
                place, partial = dim_min(place, stop - 1), False
            position = w.let(name, place, ZERO, one.first + one.size)
            stack.enter_context(w.when(*[below(position, stop)] if partial else ()))
            at |= split(w, one.loops, position)
            if one.results is not None:
                column = at[one.results.variable]
                stack.enter_context(w.when(below(column, one.results.stop)))
        yield at, index[0], index[1]


def clamped(position: Dim, stop: Dim, size: int, w: Writer) -> Dim:
    """A position of a tile of `size`, or the last one where it is beyond `stop`."""
    if simplify(stop % size, w.bounds) == 0:
        return position
    return w.named("last", dim_min(position, stop - 1))


def as_floats(found: Contraction) -> Contraction:
    """A contraction of half-precision values, whose sum is a `f32` as it is computed."""
    half = found.sum
    if not half.dtype.is_half:
        return found
    total = Local(half.name, DType.F32)

    def rule(expr: Expr) -> Expr:
        return total if expr == Cast(half, DType.F32) else expr

    after = tuple(
        replace(stmt, value=Cast(total, half.dtype))
        if isinstance(stmt, Store) and stmt.value == half
        else stmt
        for stmt in map_exprs(found.after, rule)
    )
    if any(expr == half for stmt in after for expr in expressions(stmt)):
        after = tuple(map(_unrounded, found.after))
    start = found.start
    start = Lit(start.value, DType.F32) if isinstance(start, Lit) else Cast(start, DType.F32)
    return replace(found, sum=total, start=start, after=after)


def _unrounded(stmt: Stmt) -> Stmt:
    """A statement that computes with floats where it did with half-precision values, which are
    rounded by casts and stores alone: the results are the same."""
    match stmt:
        case Declare(local, value) if local.dtype.is_half:
            return Declare(replace(local, dtype=DType.F32), _float(value))
        case Declare(local, value):
            return Declare(local, _float(value))
        case Store(buffer, index, value) if buffer.dtype.is_half:
            return Store(buffer, index, Cast(_float(value), buffer.dtype))
        case Store(buffer, index, value):
            return Store(buffer, index, _float(value))
        case _:
            return stmt


def _float(expr: Expr) -> Expr:
    """An expression of floats for one of half-precision values; others have such operands."""
    match expr:
        case Load() if expr.dtype.is_half:
            return Cast(expr, DType.F32)
        case Lit(value) if expr.dtype.is_half:
            return Lit(value, DType.F32)
        case Local() if expr.dtype.is_half:
            return replace(expr, dtype=DType.F32)
        case Cast(value, kind, "bits") if value.dtype.is_half:
            return Cast(Cast(_float(value), value.dtype), kind, "bits")
        case Cast(value, DType.F32) if value.dtype.is_half:
            return _float(value)
        case Cast(value, kind) if kind.is_half:
            own = _float(value)
            return own if value.dtype is kind else Cast(replace(expr, value=own), DType.F32)
        case _:
            return mapped(expr, PARTS, _float)


def product_of(found: Contraction, context: Context) -> Product | None:
    """The roles of the loops; None where loops depend on each other, or windows on both factors.
    Columns are the axis along which results are contiguous, if one is."""
    loops = found.nest.loops
    if len(found.free) < len(loops):
        return None
    uses = [indexed_by(load) for load in (found.left, found.right)]
    full = [unclipped(loop, found.nest) for loop in found.reductions]
    steps = tuple(loop for loop in full if loop is not None)
    variables = {loop.variable for loop in (*loops, *steps)}
    if len(steps) < len(full) or symbols_of(*steps) & variables:
        return None
    padded = None
    if clipping := found.clipped_by & {loop.variable for loop in loops}:
        owners = [clipping <= own for own in uses]
        whole = found.sum.dtype is DType.I32
        others = (found.right, found.left)
        finite = [whole or load.buffer.name in context.finite for load in others]
        pairs = zip((found.left, found.right), owners, finite, strict=True)
        padded = next((load for load, owns, safe in pairs if owns and safe), None)
        if padded is None:
            return None
    rows = tuple(lp for lp in loops if lp.variable in uses[0] - uses[1])
    columns = tuple(lp for lp in loops if lp.variable in uses[1] - uses[0])
    batch = tuple(lp for lp in loops if lp not in rows + columns)
    if rows and (not columns or rows[-1] == loops[-1]):
        found, rows, columns = found.swapped, columns, rows
    return Product(found, batch, rows, columns, steps, padded, found.zeros)
