# SPDX-License-Identifier: Apache-2.0
"""Finds attention in a kernel: for each row, scores of all keys, their softmax, and the sums of
values that the weights of the softmax multiply. The row of scores is scratch of the kernel.

Schedules compute such a row in blocks of keys (passes/online_softmax.py, devices/attention.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from relax_aot.fusion.accesses import accesses
from relax_aot.fusion.legality import opaque
from relax_aot.ir.dims import ZERO, Bounds, Dim
from relax_aot.ir.loops import (
    PLAIN,
    Apply,
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Kernel,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    expressions,
    parts,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.nest import bounds_known, ranges, without_lets

HALF_HIGH = 65504.0
"""The largest number of half precision."""


@dataclass(frozen=True, slots=True)
class Mix:
    """`for loops { sum = 0; for keys { sum += product }; after }`."""

    loops: tuple[For, ...]
    sum: Local
    keys: For
    after: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """The statements `first` to `end` of a row: `scores` store the row in the buffers `rows`, then
    come each `power` of a `score` and the sums `mix` of values with their quotients, in loops over
    `key`. `one_total`: a row of nothing but -inf gives zeros. `weight`: a quotient as the values
    are multiplied by it, which is rounded where scores are floats and values are not."""

    first: int
    end: int
    length: Dim
    rows: frozenset[str]
    scores: tuple[For, ...]
    score: Load
    power: Load
    weight: Load
    key: str
    mix: Mix
    one_total: bool

    @property
    def rounding(self) -> tuple[Stmt, ...]:
        """Stores powers as weights, where these have rows of their own."""
        if self.weight == self.power:
            return ()
        value = Cast(self.power, self.weight.dtype)
        store = Store(self.weight.buffer, self.weight.index, value)
        return (For(self.key, ZERO, self.length, (store,)),)


def attention_of(kernel: Kernel, bounds: Bounds) -> tuple[list[For], Attention] | None:
    """The loops over rows and the attention, if it is all that a kernel does."""
    loops, body, found = rows_of(kernel, bounds)
    return (loops, found) if found and (found.first, found.end) == (0, len(body)) else None


def rows_of(kernel: Kernel, bounds: Bounds) -> tuple[list[For], tuple[Stmt, ...], Attention | None]:
    """The loops over rows, the statements of a row, and the attention in them."""
    if kernel.parallel or not kernel.scratch or opaque(kernel.body):
        return [], kernel.body, None
    loops: list[For] = []
    body, inside = without_lets(kernel.body), bounds
    while len(body) == 1 and isinstance(body[0], For) and bounds_known(body[0], inside):
        loops.append(body[0])
        inside, body = ranges((body[0],), inside), body[0].body
    found = _attention(body, kernel)
    known = found is not None and found.length.symbols <= set(bounds)
    return loops, body, found if known else None


def _attention(body: Sequence[Stmt], kernel: Kernel) -> Attention | None:
    for at in range(1, len(body)):
        found = _softmax(body, at, kernel)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True)
class Powers:
    """Of a row of scores: each `score` and its `power` in a loop over `key`, the maximum `peak`,
    the sum `total`, the loop that makes them, and the statements behind it. `shut`: a row of
    nothing but -inf has the maximum 0, `one_total`: a sum of 0 becomes 1."""

    length: Dim
    key: str
    score: Load
    power: Load
    peak: Local
    total: Local
    loop: For
    rest: tuple[Stmt, ...]
    shut: bool
    one_total: bool


def powers_of(body: Sequence[Stmt], at: int) -> Powers | None:
    """The powers of a row whose loop over the maximum is statement `at`."""
    match body[at - 1], body[at]:
        case (
            Declare(Local() as peak, Lit(start)),
            For(key, begin, length, (Assign(changed, Apply("max", (old, Load() as score))),)),
        ) if peak == changed == old and (start, begin) == (-inf, ZERO):
            pass
        case _:
            return None
    if not (peak.dtype is DType.F32 or peak.dtype.is_half):
        return None
    rest = [*body[at + 1 :]]
    shut = bool(rest) and rest[0] == Assign(peak, replaced(peak, -inf, 0.0))
    del rest[:shut]
    match rest[:2]:
        case [
            Declare(Local() as total, Lit(0.0)),
            For(
                also,
                _,
                _,
                (
                    Store(buffer, index, value),
                    Assign(summed, Binary("+", before, Load() as term)),
                ),
            ) as powers,
        ] if summed == before == total and term == Load(buffer, index):
            del rest[:2]
        case _:
            return None
    power = _at(score, key, also)
    one_total = bool(rest) and rest[0] == Assign(total, replaced(total, 0.0, 1.0))
    del rest[:one_total]
    if value != applied("exp_below", power, peak):
        return None
    return Powers(length, also, power, term, peak, total, powers, tuple(rest), shut, one_total)


def _softmax(body: Sequence[Stmt], at: int, kernel: Kernel) -> Attention | None:
    """The attention whose loop over the maximum is statement `at`."""
    made = powers_of(body, at)
    if made is None:
        return None
    rest, length = [*made.rest], made.length
    del rest[: bool(rest) and rest[0] == Assign(made.total, _half(made.total))]
    if len(rest) < 2 or not isinstance(rest[0], For):
        return None
    quotients = _quotients(rest, made.power, made.total, made.key)
    if quotients is None or len(rest) <= quotients[1]:
        return None
    weight, used = quotients
    mix = _mix(rest[used])
    if mix is None or mix.sum.dtype is not weight.dtype:
        return None
    first = at - 1
    while first and _is_score(body[first - 1], length, kernel):
        first -= 1
    end = len(body) - len(rest) + used + 1
    scores = tuple(stmt for stmt in body[first : at - 1] if isinstance(stmt, For))
    own = {made.power.buffer.name, weight.buffer.name}
    rows = frozenset(a.name for a in accesses(scores) if a.stored) | own
    found = Attention(
        first, end, length, rows, scores, made.score, made.power, weight, made.key, mix,
        made.one_total,
    )  # fmt: skip
    keys = (body[at], made.loop, *rest[:used], mix.keys)
    same = all(isinstance(k, For) and (k.start, k.stop) == (ZERO, length) for k in keys)
    return found if same and scores and _is_legal(found, body, kernel) else None


def _quotients(rest: Sequence[Stmt], term: Load, total: Local, key: str) -> tuple[Load, int] | None:
    """The weight of a key, and how many loops store it: the quotient of its power, or that rounded
    to half precision, by the same loop or by another one."""
    made = rest[0]
    match made:
        case For(variable, _, _, (Store(buffer, index, value),)):
            own = _at(term, key, variable)
        case _:
            return None
    fraction = applied("fraction", own, total)
    if value == fraction and own == Load(buffer, index):
        match rest[1]:
            case For(other, _, _, (Store(buffer, index, Cast(rounded, kind)),)) if (
                kind.is_half and rounded == _at(term, key, other)
            ):
                return _at(Load(buffer, index), other, key), 2
        return term, 1
    rounds = isinstance(value, Cast) and value.dtype.is_half and value.value == fraction
    return (_at(Load(buffer, index), variable, key), 1) if rounds else None


def replaced(local: Local, value: float, by: float) -> Expr:
    """A scalar, or `by` where it is `value`."""
    what, other = (Lit(number, local.dtype) for number in (value, by))
    return Select(Binary("==", local, what), other, local)


def applied(function: str, left: Expr, right: Expr) -> Expr:
    """A function of PLAIN, which has its own form in single precision alone."""
    made = Apply(function, (left, right))
    return made if left.dtype is DType.F32 else PLAIN[function](*made.args)


def _half(total: Local) -> Expr:
    """A sum in half precision, where that can hold it (ops/softmax.py)."""
    wide = Cast(total, DType.F32)
    fits = Binary("<=", wide, Lit(HALF_HIGH, DType.F32))
    return Select(fits, Cast(wide, total.dtype), total)


def _at(load: Load, key: str, other: str) -> Load:
    """The same load for another key."""
    return Load(load.buffer, tuple(d.substitute({key: Dim.of(other)}) for d in load.index))


def _is_score(stmt: Stmt, length: Dim, kernel: Kernel) -> bool:
    """Whether it is a loop over keys that stores scratch alone, one element for each key."""
    if not isinstance(stmt, For) or (stmt.start, stmt.stop) != (ZERO, length):
        return False
    scratch = {buffer.name for buffer in kernel.scratch}
    stored = [access for access in accesses((stmt,)) if access.stored]
    return bool(stored) and all(access.name in scratch for access in stored)


def _mix(stmt: Stmt) -> Mix | None:
    loops: list[For] = []
    block: tuple[Stmt, ...] = (stmt,)
    while len(block) == 1 and isinstance(block[0], For):
        loops.append(replace(block[0], body=()))
        block = block[0].body
    if not loops or len(block) < 3 or any(loop.start != ZERO for loop in loops):
        return None
    match block:
        case (
            Declare(Local() as sum_, Lit(0.0)),
            For(_, _, _, (Assign(changed, Binary("+", old, Binary("*"))),)) as keys,
            *after,
        ) if changed == old == sum_:
            plain = all(isinstance(stmt, Declare | Store) for stmt in after)
            return Mix(tuple(loops), sum_, keys, tuple(after)) if plain else None
    return None


def _is_legal(found: Attention, body: Sequence[Stmt], kernel: Kernel) -> bool:
    """Whether the row buffers are used by the matched statements alone, each element for its key,
    and nothing that is read is written in between."""
    matched, others = body[found.first : found.end], [*body[: found.first], *body[found.end :]]
    if any(access.name in found.rows for access in accesses(tuple(others))):
        return False
    scratch = {buffer.name: buffer for buffer in kernel.scratch}
    if not all(name in scratch for name in found.rows):
        return False
    kinds = dict.fromkeys(found.rows, found.power.dtype)
    kinds[found.weight.buffer.name] = found.mix.sum.dtype
    if any(scratch[name].dtype is not kind for name, kind in kinds.items()):
        return False
    for access in accesses(tuple(matched)):
        if access.name not in found.rows:
            continue
        keys = [loop for loop in access.ranges if loop.stop == found.length]
        moving = [dim for dim in access.at if not dim.is_constant]
        if len(moving) != 1 or not any(moving[0] == Dim.of(k.variable) for k in keys):
            return False
    written = {a.name for a in accesses(found.mix.after) if a.stored}
    read = {a.name for a in accesses((*found.scores, found.mix.keys)) if not a.stored}
    extents = [loop.stop for loop in found.mix.loops]
    sizes = set(kernel.free_symbols)
    uses_row = any(
        isinstance(part, Load) and part.buffer.name == found.weight.buffer.name
        for stmt in found.mix.keys.body
        for expr in expressions(stmt)
        for part in parts(expr)
    )
    later = {local for stmt in walk(tuple(others)) for local in locals_of(stmt)}
    made = {stmt.local for stmt in matched if isinstance(stmt, Declare)}
    return (
        uses_row
        and written.isdisjoint(read | found.rows)
        and all(extent.symbols <= sizes for extent in extents)
        and later.isdisjoint(made)
    )


def locals_of(stmt: Stmt) -> Iterator[Local]:
    return (expr for expr in expressions(stmt) if isinstance(expr, Local))
