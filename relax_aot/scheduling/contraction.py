# SPDX-License-Identifier: Apache-2.0
"""Contractions: sums of products of floats or integers in loops.

Recognized is what is added up, not the op that it came from. A float contraction adds
`fma(left, right, sum)`, or `left * right` of half-precision values; an integer one adds
`(x - a) * (w - b)` of 8-bit values, where the factors may be cast and shifted by literals on either
side.

A factor of a float contraction may be any expression of loads, such as a decoded weight or a row at
an index from data. It is *computed*: the contraction reads it as an array that does not exist, and
the schedule computes a panel of this array for each tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import prod

from relax_aot.fusion.nest import substitute_in
from relax_aot.fusion.products import without_fetches
from relax_aot.ir.dims import Bounds, Dim, Min, row_major
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
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
    index_dims,
    parts,
    walk,
)
from relax_aot.ir.names import defined_name
from relax_aot.ir.parameters import surely, whole
from relax_aot.ir.rewrite import map_exprs, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.nest import (
    Nest,
    bounds_known,
    coefficient_dim,
    nest_of,
    nested,
    ranges,
    without_lets,
)

BYTES = (DType.I8, DType.U8)
LEAST_DEPTH = 4
"""Shorter sums are not worth gathering."""


def suffix_of(dtype: DType) -> str:
    """Of micro-kernels for bytes of a type."""
    return "u8" if dtype is DType.U8 else "s8"


@dataclass(frozen=True, slots=True)
class Computed:
    """A factor that is an expression: a load of an array that does not exist, its value, and the
    statements before it, which read indices from data. The index of the load are the loops that
    change the value, the innermost output loop last."""

    load: Load
    value: Expr
    fetched: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Contraction:
    """`sum = start; for reductions { sum += left * right }; after`. Of what an integer
    contraction loads, `zeros` are subtracted first."""

    nest: Nest
    reductions: tuple[For, ...]
    sum: Local
    start: Expr
    left: Load
    right: Load
    after: tuple[Stmt, ...]
    zeros: tuple[int, int] = (0, 0)
    computed: tuple[Computed, ...] = ()

    def computed_at(self, load: Load) -> Computed | None:
        """The expression of one of the factors; None where it is in memory."""
        return next((one for one in self.computed if one.load == load), None)

    def fetches(self, load: Load) -> bool:
        """Whether a factor reads indices from data."""
        computed = self.computed_at(load)
        return computed is not None and bool(computed.fetched)

    @property
    def swapped(self) -> Contraction:
        zeros = (self.zeros[1], self.zeros[0])
        return replace(self, left=self.right, right=self.left, zeros=zeros)

    @property
    def clipped_by(self) -> frozenset[str]:
        """The variables that the bounds of reductions depend on: those of padded windows."""
        return symbols_of(*self.reductions)

    @property
    def free_variables(self) -> frozenset[str]:
        return frozenset(loop.variable for loop in self.free)

    @property
    def free(self) -> tuple[For, ...]:
        """Loops whose iterations may run in any order and that no other loop depends on."""
        free = self.nest.free - symbols_of(*self.nest.loops)
        return tuple(loop for loop in self.nest.loops if loop.variable in free)

    @property
    def columns(self) -> list[For]:
        """Free loops that move the right operand alone; the rows are those of `swapped`."""
        moves = {
            lp: (stride(self.left, lp.variable), stride(self.right, lp.variable))
            for lp in self.free
        }
        return [lp for lp, (left, right) in moves.items() if left == 0 and right not in (None, 0)]

    def is_regular(self, bounds: Bounds) -> bool:
        """Whether the bounds of all loops are expressions over sizes and outer variables, and
        each reduction moves the factors by steps of one length."""
        steps = [stride(f, lp.variable) for f in (self.left, self.right) for lp in self.reductions]
        loops = (*self.nest.loops, *self.reductions)
        known = (bounds_known(lp, ranges(loops[:at], bounds)) for at, lp in enumerate(loops))
        return None not in steps and all(known)


def symbols_of(*loops: For) -> frozenset[str]:
    """What the bounds of loops depend on. Reductions that depend on something are clipped."""
    return frozenset[str]().union(*(lp.start.symbols | lp.stop.symbols for lp in loops))


def contraction_of(
    stmt: Stmt, bounds: Bounds, integers: Sequence[DType] = BYTES
) -> Contraction | None:
    """The contraction that a loop nest computes, where that is all that it does. `integers`: the
    types of the factors of integer sums."""
    plain, fetched = without_fetches(without_lets((stmt,)))
    nest = nest_of(plain[0], bounds) if plain else None
    if nest is None or len(nest.leaf) < 3:
        return None
    first, chain, *after = nest.leaf
    if not isinstance(first, Declare) or not isinstance(chain, For):
        return None
    if fetched and (first.local.dtype is DType.I32 or _uses(nest, fetched)):
        return None
    if not all(isinstance(stmt, Declare | Store) for stmt in after):
        return None
    reductions, body = nested(chain)
    if len(body) != 1 or not isinstance(body[0], Assign) or body[0].local != first.local:
        return None
    factors = _factors(body[0].value, first.local, integers)
    if factors is None:
        return None
    (left, a), (right, b) = factors
    loads: list[Load] = []
    computed: list[Computed] = []
    for at, factor in enumerate((left, right)):
        needed = _needed(factor, fetched)
        load = _operand(factor, needed, at, nest, reductions)
        if load is None:
            return None
        loads.append(load)
        computed += [Computed(load, factor, needed)] if load is not factor else []
    start, (one, other) = first.value, loads
    return Contraction(
        nest, tuple(reductions), first.local, start, one, other, tuple(after), (a, b),
        tuple(computed),
    )  # fmt: skip


def _uses(nest: Nest, fetched: Sequence[Stmt]) -> bool:
    """Whether indices from data are used elsewhere than in the innermost statement."""
    names = {defined_name(stmt) for stmt in fetched}
    others = [stmt for stmt in walk(nest.leaf) if not isinstance(stmt, Assign)]
    locals_ = {e.name for stmt in others for e in expressions(stmt) if isinstance(e, Local)}
    used = {name for stmt in others for dim in index_dims(stmt) for name in dim.symbols}
    return bool(names & (used | locals_ | symbols_of(*nest.loops)))


def _needed(factor: Expr, fetched: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements that read the indices from data of a factor."""
    names = set(indexed_by(factor))
    needed: list[Stmt] = []
    for stmt in reversed(fetched):
        if defined_name(stmt) in names:
            needed.insert(0, stmt)
            names |= {e.name for e in expressions(stmt) if isinstance(e, Local)}
            names |= {name for dim in index_dims(stmt) for name in dim.symbols}
    return tuple(needed)


def _operand(
    factor: Expr, fetched: Sequence[Stmt], at: int, nest: Nest, reductions: Sequence[For]
) -> Load | None:
    """The factor as a load. A computed one is a load of an array over the loops that change it;
    where the bounds of these loops depend on others, one that is only widened is a load of an array
    like that in memory, and others are None."""
    if isinstance(factor, Load) and not fetched:
        return factor
    dims = (dim for stmt in fetched for dim in index_dims(stmt))
    used = indexed_by(factor).union(*(dim.symbols for dim in dims))
    outer = [loop for loop in nest.loops if loop.variable in used]
    loops = [*outer[:-1], *(loop for loop in reductions if loop.variable in used), *outer[-1:]]
    variables = {loop.variable for loop in (*nest.loops, *reductions)}
    if not outer or symbols_of(*loops) & variables:
        match factor:
            case Cast(Load() as load, DType.F32) if load.dtype.is_half and not fetched:
                wide = Buffer(f"_computed{at}", DType.F32, load.buffer.shape)
                return Load(wide, load.index)
        return None
    index = tuple(Dim.of(loop.variable) - loop.start for loop in loops)
    shape = tuple(loop.extent for loop in loops)
    return Load(Buffer(f"_computed{at}", factor.dtype, shape), index)


def _factors(
    value: Expr, total: Local, integers: Sequence[DType]
) -> tuple[tuple[Expr, int], tuple[Expr, int]] | None:
    match value:
        case Apply("fma", (a, b, Local() as old)):
            steady = all(_is_steady(factor) for factor in (a, b))
            known = steady and old == total and total.dtype is DType.F32
            return ((a, 0), (b, 0)) if known else None
        case Binary("+", left, right) if total in (left, right):
            product = right if left == total else left
            if not isinstance(product, Binary) or product.op != "*":
                return None
            if total.dtype.is_half:
                steady = _is_steady(product.left) and _is_steady(product.right)
                return ((product.left, 0), (product.right, 0)) if steady else None
            if total.dtype is not DType.I32:
                return None
            first, second = (_factor(f, integers) for f in (product.left, product.right))
            return None if first is None or second is None else (first, second)
        case _:
            return None


def _is_steady(factor: Expr) -> bool:
    """Whether a factor is an expression of loads."""
    found = [*parts(factor)]
    scalars = any(isinstance(part, Local) for part in found)
    return not scalars and any(isinstance(part, Load) for part in found)


def _factor(expr: Expr, integers: Sequence[DType]) -> tuple[Load, int] | None:
    match expr:
        case Binary("+" | "-", value, shift):
            inner, number = _factor(value, integers), number_of(shift)
            if inner is None or number is None:
                return None
            return inner[0], inner[1] + (number if expr.op == "-" else -number)
        case Cast(Load() as load, DType.I32, "wrap") if load.dtype in integers:
            return load, 0
        case _:
            return None


def number_of(expr: Expr) -> int | None:
    """The value of an integer that is written in the code, where nothing wraps."""
    match expr:
        case Lit(literal) if expr.dtype.is_int:
            return whole(literal)
        case Cast(inner) if expr.dtype.is_int and expr.mode != "bits":
            found = number_of(inner)
        case Binary("+" | "-" | "*" as op, left, right) if expr.dtype.is_int:
            a, b = number_of(left), number_of(right)
            if a is None or b is None:
                return None
            found = a + b if op == "+" else a - b if op == "-" else a * b
        case _:
            return None
    low, high = expr.dtype.limits
    return found if found is not None and low <= found <= high else None


# Loads


def stride(place: Load | Store, name: str) -> Dim | None:
    """How many elements further on an access is when a variable is one greater."""
    return coefficient_dim(row_major(place.index, place.buffer.shape), name)


def step_of(place: Load | Store, name: str) -> Dim:
    """`stride` where it is known to exist."""
    step = stride(place, name)
    assert step is not None, (place, name)
    return step


def moved(place: Load | Store, at: Mapping[str, Dim]) -> Load:
    """The element accessed where variables have these values."""
    return Load(place.buffer, tuple(dim.substitute(at) for dim in place.index))


def indexed_by(expr: Expr) -> frozenset[str]:
    """The names that the addresses read by an expression depend on."""
    dims = index_dims(Declare(Local("_", expr.dtype), expr))
    return frozenset(name for dim in dims for name in dim.symbols)


# Two loops as one


def collapsed(found: Contraction) -> Contraction:
    """Two loops, one in the other, are one loop where all accesses move as if they were: the
    lines of a dense image are a single line."""
    for outer, inner in pairwise(found.nest.loops):
        if _collapses(found, outer, inner, found.nest.leaf):
            return collapsed(_as_one(found, outer, inner))
    return found


def with_columns_as_one(found: Contraction) -> Contraction:
    """Two loops that move the right factor alone are one loop where the sum moves as if they
    were, wherever results go: heads and their channels are the channels of a product."""
    for outer, inner in combinations(found.columns, 2):
        sums: tuple[Stmt, ...] = (Declare(found.sum, found.start), *found.nest.reductions)
        if _collapses(found, outer, inner, sums):
            return with_columns_as_one(_as_one(found, outer, inner))
    return found


def _as_one(found: Contraction, outer: For, inner: For) -> Contraction:
    nest, at = loops_as_one(found.nest, outer, inner)
    return replace(
        found,
        nest=nest,
        start=substitute_in(found.start, at),
        left=moved(found.left, at),
        right=moved(found.right, at),
        after=map_index_dims(found.after, lambda dim: dim.substitute(at)),
    )


def loops_as_one(nest: Nest, outer: For, inner: For) -> tuple[Nest, dict[str, Dim]]:
    """The nest with one loop in place of two, and their variables in terms of it."""
    line = Dim.of(inner.variable) // inner.stop
    at = {outer.variable: line, inner.variable: Dim.of(inner.variable) - line * inner.stop}
    joined = For(inner.variable, Dim.of(0), outer.stop * inner.stop, ())
    loops = tuple(joined if lp == inner else lp for lp in nest.loops if lp != outer)
    leaf = map_index_dims(nest.leaf, lambda dim: dim.substitute(at))
    return Nest(loops, leaf, nest.free - {outer.variable}), at


def _collapses(found: Contraction, outer: For, inner: For, body: tuple[Stmt, ...]) -> bool:
    """Whether all accesses in `body` move as if the loops were one."""
    both = {outer.variable, inner.variable}
    if not both <= {loop.variable for loop in found.free} - found.clipped_by:
        return False
    if outer.start != 0 or inner.start != 0 or inner.stop == 0:
        return False
    if any(both & indexed_by(one.load) for one in found.computed):
        return False
    nodes = [part for stmt in walk(found.nest.leaf) for part in (stmt, *expressions(stmt))]
    if any(isinstance(part, Index) and both & part.dim.symbols for part in nodes):
        return False
    moving = (part for stmt in walk(body) for part in (stmt, *expressions(stmt)))
    return all(follow(part, outer, inner) for part in moving if isinstance(part, Load | Store))


def follow(place: Load | Store, outer: For, inner: For) -> bool:
    """Whether one iteration of `outer` moves an access as far as all of `inner`."""
    far, near = stride(place, outer.variable), stride(place, inner.variable)
    return far is not None and near is not None and far == near * inner.stop


# Contractions with known weights


@dataclass(frozen=True, slots=True)
class Weighted:
    """An integer contraction of `x` with constant weights `w`, and the roles of its loops.
    `channel` moves w alone, `positions` move x alone (positions of the output), `shared` move
    both or neither. `counts`: iterations of each reduction where no window is clipped.
    `collapsed`: the same with two loops over positions as one, where there are such. `taken`: a
    number of each channel that is known while the model runs, which sums start less."""

    shared: tuple[For, ...]
    positions: tuple[For, ...]
    channel: For | None
    reductions: tuple[For, ...]
    counts: tuple[int, ...]
    sum: Local
    start: Expr
    x: Load
    x_zero: int
    w: Load
    w_zero: int
    after: tuple[Stmt, ...]
    collapsed: Weighted | None = None
    taken: Load | None = None

    @property
    def depth(self) -> int:
        return prod(self.counts)

    @property
    def channels(self) -> int:
        return 1 if self.channel is None else self.channel.stop.constant

    @property
    def own(self) -> str:
        """The variable of the channel; empty without channels."""
        return "" if self.channel is None else self.channel.variable

    @property
    def position_count(self) -> Dim:
        return prod((loop.stop for loop in self.positions), start=Dim.of(1))

    @property
    def farthest_first(self) -> list[int]:
        """The reductions, those whose elements are closest last."""
        steps = [stride(self.x, loop.variable) for loop in self.reductions]
        far = [s.constant if s is not None and s.is_constant else 1 << 30 for s in steps]
        return sorted(range(len(far)), key=lambda at: -far[at])

    @property
    def flip(self) -> int:
        """The offset that makes signed bytes of x: 128 if they are unsigned."""
        return 128 if self.x.dtype is DType.U8 else 0

    @property
    def fits_bytes(self) -> bool:
        """Whether weights without their zero point are signed bytes."""
        low, high = self.w.dtype.limits
        return surely(lambda: low - self.w_zero >= -128 and high - self.w_zero <= 127)

    @property
    def suffix(self) -> str:
        """Of micro-kernels that read x."""
        return suffix_of(self.x.dtype)

    @property
    def clipped(self) -> bool:
        """Whether some window is clipped at a border."""
        return bool(symbols_of(*self.reductions))

    def joined(self, *places: Load | Store) -> bool:
        """Whether positions of several rows follow each other as those of one row do."""
        pairs = [(place, *loops) for place in places for loops in pairwise(self.positions)]
        return not self.clipped and all(follow(*pair) for pair in pairs)

    def known_by_channel(self, expr: Expr, constants: frozenset[str]) -> bool:
        """Whether a value is known while compiling and differs by channel and group alone."""
        loops = self.shared if self.channel is None else (*self.shared, self.channel)
        names = {loop.variable for loop in loops}
        for part in parts(expr):
            match part:
                case Load():
                    used = frozenset[str]().union(*(dim.symbols for dim in part.index))
                    steady = used <= names and all(stride(part, n) is not None for n in used)
                    if not steady or part.buffer.name not in constants:
                        return False
                case Lit() | Cast(mode="wrap") | Binary("-" | "+"):
                    pass
                case _:
                    return False
        return True

    def has_depth(self, constants: frozenset[str]) -> bool:
        """Whether sums are long enough, and start with numbers that are known for each channel."""
        return self.depth >= LEAST_DEPTH and self.known_by_channel(self.start, constants)

    @property
    def store(self) -> Store | None:
        """The statement after the sum, where that is one store."""
        first = self.after[0] if len(self.after) == 1 else None
        return first if isinstance(first, Store) else None

    def tiled(self, joined: bool) -> Dim:
        """How many positions are tiled: all of them where they are `joined`, else those of the
        last loop."""
        return self.position_count if joined or not self.positions else self.positions[-1].stop


def weighted(found: Contraction, constants: frozenset[str]) -> Weighted | None:
    """The roles of the loops of an integer contraction; None where one factor is not a known
    constant or loops do not separate. `constants`: inputs whose data are known."""
    loops = found.nest.loops
    known = [load.buffer.name in constants for load in (found.left, found.right)]
    if found.sum.dtype is not DType.I32 or sum(known) != 1:
        return None
    found = found if known[1] else found.swapped
    x, w = found.left, found.right
    if any(lp.start != 0 for lp in loops) or len(found.free) < len(loops):
        return None
    counts = [unclipped(loop) or 0 for loop in found.reductions]
    every = [(load, lp.variable) for load in (x, w) for lp in (*loops, *found.reductions)]
    if any(stride(*pair) is None for pair in every):
        return None
    moves_x = {lp.variable for lp in loops if stride(x, lp.variable) != 0}
    moves_w = {lp.variable for lp in loops if stride(w, lp.variable) != 0}
    positions = tuple(lp for lp in loops if lp.variable in moves_x - moves_w)
    channels = tuple(lp for lp in loops if lp.variable in moves_w - moves_x)
    if min(counts) < 1 or len(channels) > 1 or found.clipped_by & moves_w:
        return None
    if not indexed_by(w) <= {lp.variable for lp in (*loops, *found.reductions)}:
        return None
    shared = tuple(lp for lp in loops if lp not in positions and lp not in channels)
    roles = (shared, positions, channels[0] if channels else None, found.reductions, tuple(counts))
    (x_zero, w_zero), sums = found.zeros, (found.sum, found.start)
    return Weighted(*roles, *sums, x, x_zero, w, w_zero, found.after)


def with_taken(found: Weighted) -> Weighted | None:
    """The contraction whose sums start less what is subtracted from each of them, as integers
    that wrap; None where that is not one number of each channel."""
    terms = {
        expr
        for stmt in found.after
        for expr in expressions(stmt)
        if isinstance(expr, Binary) and expr.op == "-" and expr.left == found.sum
    }
    taken = next((term.right for term in terms if isinstance(term, Binary)), None)
    if len(terms) != 1 or not isinstance(taken, Load) or taken.dtype is not DType.I32:
        return None
    loops = (*found.shared, *found.positions, *([found.channel] if found.channel else ()))
    names = {loop.variable for loop in loops if stride(found.w, loop.variable) != 0}
    moved_by = {name for loop in loops if stride(taken, name := loop.variable) != 0}
    written = {stmt.buffer for stmt in found.after if isinstance(stmt, Store)}
    if not moved_by | indexed_by(taken) <= names or taken.buffer in written:
        return None
    after = map_exprs(found.after, lambda expr: found.sum if expr in terms else expr)
    reads = [expr for stmt in found.after for expr in expressions(stmt) if expr == found.sum]
    return replace(found, after=after, taken=taken) if len(reads) == 1 else None


def unclipped(loop: For) -> int | None:
    """How many iterations a loop from 0 has where nothing is clipped; None if unknown."""
    ends = [loop.stop]
    for atom in loop.stop.atoms:
        if isinstance(atom, Min) and loop.stop == Dim.of(atom):
            ends += atom.args
    return min((end.constant for end in ends if end.is_constant), default=None)
