# SPDX-License-Identifier: Apache-2.0
"""Least and greatest value of integers in memory, as sizes.

`ArgMax` over `n` stores values in `0..n - 1`, whatever the data: an index that is read from them
needs no check. Intervals of `ir/value_ranges.py` are numbers; here their ends are sizes, so that
they hold for every `n`. What is not known is the range of the element type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from relax_aot.ir.bounds import GREATEST
from relax_aot.ir.dims import Bounds, Dim, prove_le
from relax_aot.ir.loops import (
    COMPARISONS,
    LOGICAL,
    Apply,
    Assign,
    Binary,
    Bind,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Micro,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.ir.value_ranges import type_range

Range = tuple[Dim, Dim]
_ROUNDS = 4
"""After so many rounds, a scalar that still grows has the range of its type."""


def typical(dtype: DType) -> Range | None:
    """The range of an element type; None for types that are no integers."""
    found = type_range(dtype)
    return None if found is None else (Dim.of(found[0]), Dim.of(found[1]))


@dataclass(frozen=True)
class Scope:
    """What is known at one point of a kernel."""

    bounds: Bounds
    buffers: Mapping[str, Range]
    scalars: Mapping[str, Range | None] = field(default_factory=dict)
    """None: no value reaches it as far as is known."""
    assigned: frozenset[str] = frozenset()
    """Scalars with more than one value."""
    loops: tuple[For, ...] = ()
    lets: Mapping[str, Dim] = field(default_factory=dict)
    binds: Mapping[str, Range] = field(default_factory=dict)

    def inside(self, loop: For) -> Scope:
        start, stop = (d.substitute(self.lets) for d in (loop.start, loop.stop))
        return replace(self, loops=(*self.loops, For(loop.variable, start, stop, ())))

    def narrowed(self, condition: Expr, holds: bool) -> Scope:
        """Where a comparison of a scalar with a number holds, or does not."""
        match condition:
            case Binary("<", Local() as local, Lit() as edge):
                known = self.scalars.get(local.name)
                if known is None or local.name in self.assigned:
                    return self
                low, high = known
                if holds:
                    high = _lesser(high, Dim.of(int(edge.value) - 1), self.bounds)
                else:
                    low = -_lesser(-low, Dim.of(-int(edge.value)), self.bounds)
                return replace(self, scalars={**self.scalars, local.name: (low, high)})
        return self

    def ends(self, dim: Dim) -> Range | None:
        """Least and greatest value of an index expression, without the names of the kernel."""
        low = high = plain = dim.substitute(self.lets)
        for name, (least, most) in self.binds.items():
            if plain == Dim.of(name):
                low, high = least, most
        for loop in reversed(self.loops):
            found = [_end(one, loop, up, self.bounds) for one, up in ((low, False), (high, True))]
            if found[0] is None or found[1] is None:
                return None
            low, high = found[0], found[1]
        return (low, high) if (low.symbols | high.symbols) <= set(self.bounds) else None


def _end(dim: Dim, loop: For, upwards: bool, bounds: Bounds) -> Dim | None:
    """The least or greatest value of an expression over a loop, where it is affine."""
    if loop.variable not in dim.symbols:
        return dim
    name = Dim.of(loop.variable)
    step = dim.substitute({loop.variable: name + 1}) - dim
    if loop.variable in step.symbols or not step.is_constant:
        return None
    rising = step.constant >= 0
    return dim.substitute({loop.variable: loop.stop - 1 if rising == upwards else loop.start})


def _lesser(a: Dim, b: Dim, bounds: Bounds) -> Dim:
    """Of two upper ends that both hold, the lower one; where that is not known, the one that is
    no number of a type."""
    if prove_le(a, b, bounds):
        return a
    if prove_le(b, a, bounds) or (a.is_constant and abs(a.constant) > GREATEST):
        return b
    return a if not a.is_constant else b


def _union(a: Range | None, b: Range | None, bounds: Bounds) -> Range | None:
    """A range around both; None where no end of it is known."""
    if a is None or b is None:
        return a or b
    low = a[0] if prove_le(a[0], b[0], bounds) else b[0]
    high = a[1] if prove_le(b[1], a[1], bounds) else b[1]
    return (low, high) if contains((low, high), a, bounds) else None


def contains(outer: Range, inner: Range, bounds: Bounds) -> bool:
    return prove_le(outer[0], inner[0], bounds) and prove_le(inner[1], outer[1], bounds)


def value_range(expr: Expr, scope: Scope) -> Range | None:
    """None for what is no integer, or has no value yet."""
    whole = typical(expr.dtype)
    if whole is None:
        return None
    found = _exact(expr, scope)
    if isinstance(expr, Local) and scope.scalars.get(expr.name, whole) is None:
        return None
    return found if found is not None and contains(whole, found, scope.bounds) else whole


def _exact(expr: Expr, scope: Scope) -> Range | None:
    """The range without regard to wrapping; None where only the type is known."""
    match expr:
        case Lit():
            return Dim.of(int(expr.value)), Dim.of(int(expr.value))
        case Local():
            return scope.scalars.get(expr.name)
        case Index():
            return scope.ends(expr.dim)
        case Load():
            return scope.buffers.get(expr.buffer.name)
        case Cast(mode="wrap" | "saturate"):
            return value_range(expr.value, scope) if expr.dtype is not DType.BOOL else None
        case Select():
            return _select(expr, scope)
        case Apply(("max" | "min") as function, (left, right)):
            return _extremum(function, value_range(left, scope), value_range(right, scope), scope)
        case Binary():
            return _binary(expr, scope)
        case Unary("-", value):
            found = value_range(value, scope)
            return None if found is None else (-found[1], -found[0])
        case _:
            return None


def _select(expr: Select, scope: Scope) -> Range | None:
    sides = []
    for holds, side in ((True, expr.then), (False, expr.otherwise)):
        inner = scope.narrowed(expr.condition, holds)
        possible = all(
            known is None or not prove_le(known[1] + 1, known[0], scope.bounds)
            for known in inner.scalars.values()
        )
        if possible:
            sides.append(value_range(side, inner))
    if not sides or any(side is None for side in sides):
        return None
    return sides[0] if len(sides) == 1 else _union(sides[0], sides[1], scope.bounds)


def _extremum(function: str, a: Range | None, b: Range | None, scope: Scope) -> Range | None:
    if a is None or b is None:
        return None
    if function == "max":
        found = _extremum("min", (-a[1], -a[0]), (-b[1], -b[0]), scope)
        return None if found is None else (-found[1], -found[0])
    low = a[0] if prove_le(a[0], b[0], scope.bounds) else b[0]
    lowest = prove_le(low, a[0], scope.bounds) and prove_le(low, b[0], scope.bounds)
    return (low, _lesser(a[1], b[1], scope.bounds)) if lowest else None


def _binary(expr: Binary, scope: Scope) -> Range | None:
    if expr.op in COMPARISONS + LOGICAL:
        return Dim.of(0), Dim.of(1)
    a, b = value_range(expr.left, scope), value_range(expr.right, scope)
    if a is None or b is None:
        return None
    if expr.op == "+":
        return a[0] + b[0], a[1] + b[1]
    if expr.op == "-":
        return a[0] - b[1], a[1] - b[0]
    if expr.op == "%" and prove_le(1, b[0], scope.bounds):
        return Dim.of(0), b[1] - 1
    return None


@dataclass
class _Kernel:
    """One walk through a kernel; `stored` grows until nothing changes."""

    bounds: Bounds
    stored: dict[str, Range | None]
    assigned: dict[str, Range | None]
    binds: list[tuple[Bind, Range | None, Scope]] = field(default_factory=list)

    def body(self, body: Iterable[Stmt], scope: Scope) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self.body(stmt.body, scope.inside(stmt))
                case If():
                    self.body(stmt.then, scope.narrowed(stmt.condition, True))
                    self.body(stmt.otherwise, scope.narrowed(stmt.condition, False))
                case Let():
                    value = stmt.value.substitute(scope.lets)
                    scope = replace(scope, lets={**scope.lets, stmt.name: value})
                case Bind():
                    self.binds.append((stmt, value_range(stmt.value, scope), scope))
                    low, high = (scope.ends(d) for d in (stmt.low, stmt.high))
                    if low is not None and high is not None:
                        known = {**scope.binds, stmt.name: (low[0], high[1])}
                        scope = replace(scope, binds=known)
                case Declare(local, value) | Assign(local, value):
                    found = value_range(value, scope)
                    if local.name in self.assigned:
                        self._join(self.assigned, local.name, found, local.dtype)
                        found = self.assigned[local.name]
                    scope = replace(scope, scalars={**scope.scalars, local.name: found})
                case Store():
                    found = value_range(stmt.value, self._now(scope))
                    self._join(self.stored, stmt.buffer.name, found, stmt.buffer.dtype)
                case Micro():
                    for load in stmt.written:
                        self.stored[load.buffer.name] = typical(load.buffer.dtype)
                case Multiply():
                    self.stored[stmt.sums.name] = typical(stmt.sums.dtype)
                case _:
                    pass

    def _now(self, scope: Scope) -> Scope:
        """With what has been assigned so far in any iteration."""
        return replace(scope, scalars={**scope.scalars, **self.assigned})

    def _join(
        self, table: dict[str, Range | None], name: str, found: Range | None, dtype: DType
    ) -> None:
        if found is None:
            return
        joined = _union(table.get(name), found, self.bounds)
        table[name] = typical(dtype) if joined is None else joined


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of one kernel: ranges of its outputs, and of the values of its `bind`s."""

    outputs: Mapping[str, Range]
    proven: frozenset[int]
    """The ids of `Bind`s whose value is within their limits, whatever the data."""


def of_kernel(kernel: Kernel, inputs: Mapping[str, Range], bounds: Bounds) -> Found:
    """`inputs`: ranges of the integers in the inputs, by buffer."""
    given = {b.name: r for b in kernel.inputs if (r := inputs.get(b.name) or typical(b.dtype))}
    statements = list(walk(kernel.body))
    assigned = {s.local.name: s.local.dtype for s in statements if isinstance(s, Assign)}
    own = [*kernel.buffers, *(s.buffer for s in statements if isinstance(s, Reserve))]
    types = {**assigned, **{buffer.name: buffer.dtype for buffer in own}}
    stored: dict[str, Range | None] = {}
    scalars: dict[str, Range | None] = dict.fromkeys(assigned)
    for number in count():
        before = dict(stored), dict(scalars)
        buffers = {**given, **{n: r for n, r in stored.items() if r is not None}}
        walked = _Kernel(bounds, stored, scalars)
        walked.body(kernel.body, Scope(bounds, buffers, dict(scalars), frozenset(assigned)))
        if before == (stored, scalars):
            break
        for table, old in zip((stored, scalars), before, strict=True):
            grown = [n for n, found in table.items() if found != old.get(n)]
            table |= {n: typical(types[n]) for n in grown if number >= _ROUNDS}
    proven = frozenset(id(s) for s, value, at in walked.binds if _fits(s, value, at))
    outputs = {b.name: r for b in kernel.outputs if (r := stored.get(b.name)) is not None}
    return Found(outputs, proven)


def _fits(bind: Bind, value: Range | None, scope: Scope) -> bool:
    low, high = scope.ends(bind.low), scope.ends(bind.high)
    if value is None or low is None or high is None or low[0] != low[1] or high[0] != high[1]:
        return False
    return contains((low[0], high[1]), value, scope.bounds)
