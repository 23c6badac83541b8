# SPDX-License-Identifier: Apache-2.0
"""Proves that an output may take the memory of an input: nothing is read after it is overwritten.

Source: dependence tests by loop level (Allen and Kennedy, Optimizing Compilers for Modern
Architectures, chapter 2). A store precedes a load in an earlier iteration of a common loop, or in
the same iteration of all of them; their addresses must then differ for all sizes. Micro-kernels
access what their meanings access.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product, takewhile
from math import prod

from relax_aot.fusion.checking.ranges import Ranges
from relax_aot.ir.builder import At
from relax_aot.ir.dim_expr import Atom, combined
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, Max, Min, Mod, interval
from relax_aot.ir.loops import (
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Micro,
    Multiply,
    Stmt,
    Store,
    expressions,
)
from relax_aot.ir.rewrite import map_kernel_dims
from relax_aot.ir.types import DType, Shape

_Place = tuple[Dim, tuple[For, ...]]
"""An address in row-major order, with the loops over it that are not around the access."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a statement is. `dims`: values of names; `operands`: buffer, address and extent of
    each operand of a micro-kernel; `path`: the position in the text; `call`: the call of a
    micro-kernel that it is part of, and the number of loops around that."""

    dims: Mapping[str, Dim]
    operands: Mapping[str, tuple[str, Dim, Dim]]
    loops: tuple[For, ...] = ()
    """Each has a variable of its own."""
    path: tuple[int, ...] = ()
    call: tuple[int, int] = (0, 0)
    sides: tuple[tuple[int, ...], ...] = ()
    """The branches around it."""


@dataclass(frozen=True, slots=True)
class Access:
    """Each of `places` holds all elements that are accessed."""

    places: tuple[_Place, ...]
    scope: _Scope


def unproven_pairs(kernel: Kernel, bounds: Bounds) -> tuple[tuple[str, str], ...]:
    """Those of `kernel.in_place` that are not proven, as it stands or with the iterations of short
    loops one by one: those over both borders of an image, around a loop over its inside."""
    pairs = kernel.in_place
    for form, ranges in dict.fromkeys((_named(kernel, bounds), (kernel, bounds))):
        for unrolled in (0, 2):
            if pairs:
                shared = frozenset(name for pair in kernel.in_place for name in pair)
                accesses = Accesses(form, shared, unrolled)
                pairs = tuple(p for p in pairs if not Pair(accesses, ranges, *p).proven)
    return pairs


def _named(kernel: Kernel, bounds: Bounds) -> tuple[Kernel, Bounds]:
    """The kernel with a name for each minimum and maximum of sizes: most proofs hold for any value
    of them, and cases multiply where several axes have one."""
    names: dict[Atom, str] = {}

    def named(atom: Atom) -> Dim:
        size = Dim.of(atom)
        if not isinstance(atom, Min | Max) or not size.symbols <= set(bounds):
            return size
        return Dim.of(names.setdefault(atom, f"size/{len(names)}"))

    made = map_kernel_dims(kernel, lambda size: Dim.of(combined(size, named)))
    for atom, name in names.items():
        bounds = bounds.with_range(name, *interval(Dim.of(atom), bounds.open))
    return made, bounds


class Accesses:
    """The loads and stores of a kernel, by buffer."""

    def __init__(self, kernel: Kernel, shared: frozenset[str], unrolled: int = 0) -> None:
        """Of the buffers `shared`. Of loops with at most `unrolled` iterations, each iteration is
        followed by itself."""
        self._unrolled = unrolled
        self.shapes = {buffer.name: buffer.shape for buffer in kernel.buffers}
        self._shared = shared
        self.loads: dict[str, list[Access]] = defaultdict(list)
        self.stores: dict[str, list[Access]] = defaultdict(list)
        self._indices: dict[str, list[_Place] | None] = {b.name: None for b in kernel.inputs}
        self._later: dict[str, list[tuple[Micro, _Scope]]] = defaultdict(list)
        """Calls that write a buffer, and of the shared ones none."""
        self.data: dict[str, tuple[str, Dim, Dim]] = {}
        """Indices from data: the buffer, the least and the greatest value."""
        self.loops: dict[int, For] = {}
        """By the identity of a loop: the loop of its own variable."""
        self._count = 0
        self._block(kernel.body, _Scope({}, {}))

    def _block(self, body: tuple[Stmt, ...], scope: _Scope) -> None:
        around = scope.path
        for position, stmt in enumerate(body):
            scope = replace(scope, path=(*around, position))
            if not isinstance(stmt, Multiply | Micro):
                for expr in expressions(stmt):
                    if isinstance(expr, Load):
                        self._add(self.loads, expr.buffer, expr.index, scope)
            match stmt:
                case For():
                    self._loop(stmt, scope)
                case If():
                    for number, side in enumerate((stmt.then, stmt.otherwise), 1):
                        path = (*scope.path, number)
                        inner = replace(scope, path=path, sides=(*scope.sides, path))
                        self._block(side, inner)
                case Let():
                    scope = _with(scope, stmt.name, stmt.value.substitute(scope.dims))
                case Bind():
                    name = self._fresh(stmt.name)
                    low, high = (dim.substitute(scope.dims) for dim in (stmt.low, stmt.high))
                    self.data[name] = (_loaded(stmt.value, scope), low, high)
                    scope = _with(scope, stmt.name, Dim.of(name))
                case Store():
                    self._add(self.stores, stmt.buffer, stmt.index, scope)
                    self._store_index(stmt, scope)
                case Multiply():
                    self._multiply(stmt, scope)
                case Micro() if self._shared.isdisjoint(load.buffer.name for load in stmt.operands):
                    for load in stmt.written:
                        self._later[load.buffer.name].append((stmt, scope))
                case Micro():
                    self._micro(stmt, scope)
                case _:
                    pass

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}.{self._count}"

    def _loop(self, loop: For, scope: _Scope) -> None:
        start, stop = loop.start.substitute(scope.dims), loop.stop.substitute(scope.dims)
        count = stop - start
        if count.is_constant and count.constant <= self._unrolled and not scope.operands:
            for number in range(count.constant):
                inner = replace(scope, path=(*scope.path, number))
                self._block(loop.body, _with(inner, loop.variable, start + number))
            return
        own = self._fresh(loop.variable)
        self.loops[id(loop)] = For(own, start, stop, (), loop.axis)
        inner = replace(scope, loops=(*scope.loops, self.loops[id(loop)]))
        self._block(loop.body, _with(inner, loop.variable, Dim.of(own)))

    def _add(self, to: dict[str, list[Access]], buffer: Buffer, index: At, scope: _Scope) -> None:
        name, base, extent = scope.operands.get(buffer.name, (buffer.name, ZERO, ZERO))
        if name not in self._shared:
            return
        places: list[_Place] = [(base + _address(buffer.shape, index, scope.dims), ())]
        if extent != ZERO and to is self.loads:  # a condition may keep it inside the operand
            at = self._fresh("at")
            places.append((base + Dim.of(at), (For(at, ZERO, extent, ()),)))
        to[name].append(Access(tuple(places), scope))

    def _store_index(self, stmt: Store, scope: _Scope) -> None:
        name = scope.operands.get(stmt.buffer.name, (stmt.buffer.name,))[0]
        known = self._indices.setdefault(name, [])
        value = _uncast(stmt.value)
        if known is not None and isinstance(value, Index):
            known.append((value.dim.substitute(scope.dims), scope.loops))
        else:
            self._indices[name] = None

    def _multiply(self, stmt: Multiply, scope: _Scope) -> None:
        """As loops; where its sums are stored is not followed."""
        self.stores[stmt.sums.name].append(Access((), scope))
        counts = (stmt.rows, stmt.columns, *(count for count, _, _ in stmt.levels))
        names = [f"level{n}" for n in range(len(counts))]
        row, column, *steps = map(Dim.of, names)
        left, right = stmt.left_row * row, column
        for step, (_, by_left, by_right) in zip(steps, stmt.levels, strict=True):
            left, right = left + step * by_left, right + step * by_right
        flat = [Buffer(name, DType.F32, (ZERO,)) for name in ("left", "right")]
        loads = (Load(buffer, (at,)) for buffer, at in zip(flat, (left, right), strict=True))
        body: tuple[Stmt, ...] = tuple(Declare(Local("", DType.F32), load) for load in loads)
        for name, count in reversed([*zip(names, counts, strict=True)]):
            body = (For(name, ZERO, count, body),)
        operands = {
            b.name: (load.buffer.name, _address(load.buffer.shape, load.index, scope.dims), ZERO)
            for b, load in zip(flat, (stmt.left, stmt.right), strict=True)
        }
        self._block(body, replace(scope, operands=operands))

    def _micro(self, stmt: Micro, scope: _Scope) -> None:
        sizes = {
            name: size.substitute(scope.dims)
            for name, size in zip(stmt.kernel.sizes, stmt.sizes, strict=True)
        }
        operands = {}
        for operand, load in zip(stmt.kernel.operands, stmt.operands, strict=True):
            name, base, extent = load.buffer.name, ZERO, ZERO
            if name in self._shared:
                base = _address(load.buffer.shape, load.index, scope.dims)
                extent = prod(operand.shape, start=ONE).substitute(sizes)
            operands[operand.name] = name, base, extent
        self._count += 1
        call = (self._count, len(scope.loops))
        scope = replace(scope, dims=sizes, operands=operands, call=call)
        self._block(stmt.kernel.meaning.body, scope)

    def stored_indices(self, name: str) -> list[_Place] | None:
        """The elements of a buffer in which only sizes are stored; None for others."""
        while self._later[name]:
            self._micro(*self._later[name].pop())
        return self._indices.get(name)


def _with(scope: _Scope, name: str, value: Dim) -> _Scope:
    return replace(scope, dims={**scope.dims, name: value})


def _address(shape: Shape, index: At, dims: Mapping[str, Dim]) -> Dim:
    """In row-major order, without remainders."""
    total = ZERO
    for size, at in zip(shape, index, strict=True):
        total = total * size + at

    def without_remainder(atom: Atom) -> Dim:
        if not isinstance(atom, Mod):
            return Dim.of(atom)
        return atom.numerator - atom.numerator // atom.denominator * atom.denominator

    return Dim.of(combined(total.substitute(dims), without_remainder))


def _uncast(expr: Expr) -> Expr:
    return _uncast(expr.value) if isinstance(expr, Cast) else expr


def _loaded(expr: Expr, scope: _Scope) -> str:
    """The buffer whose element this is."""
    expr = _uncast(expr)
    if not isinstance(expr, Load):
        return ""
    return scope.operands.get(expr.buffer.name, (expr.buffer.name,))[0]


class Pair:
    """An input and an output that may share memory."""

    def __init__(self, accesses: Accesses, bounds: Bounds, source: str, target: str) -> None:
        self.source, self.target = source, target
        self._accesses = accesses
        self._ranges = Ranges(bounds)
        sizes = accesses.shapes[target]
        steps = (prod(sizes[axis + 1 :], start=ONE) for axis in range(len(sizes)))
        self._steps = [step for step in dict.fromkeys(steps) if step != ONE]

    @property
    def proven(self) -> bool:
        loads, stores = self._accesses.loads[self.source], self._accesses.stores[self.target]
        return all(self._apart(store, load) for load in loads for store in stores)

    def _apart(self, store: Access, load: Access) -> bool:
        """No store of an element precedes the load of it."""
        one, other = store.scope, load.scope
        pairs = takewhile(
            lambda pair: pair[0] == pair[1], zip(one.loops, other.loops, strict=False)
        )
        common = len(list(pairs))
        call = one.call == other.call != (0, 0)
        for level in range(common):
            if not self.differ(store, load, level, common):
                return False
            # Parallel iterations, and those of a micro-kernel, run in any order.
            unordered = (call and level >= one.call[1]) or one.loops[level].axis
            if unordered and not self.differ(load, store, level, common):
                return False
        together = call and not (len(one.loops) == len(other.loops) == common)
        if not together and one.path >= other.path:
            return True
        return self.differ(store, load, common, common)

    def differ(self, first: Access, later: Access, level: int, common: int) -> bool:
        """The addresses differ where the iteration of the common loop `level` is a later one
        (or, after the last common loop, where all are the same)."""
        one: dict[str, Dim] = {}
        for loop in first.scope.loops[: level + (level < common)]:
            self._enter(loop, one)
        other = dict(one)
        if level < common:
            loop = first.scope.loops[level]
            if self._ranges.known_le((loop.extent).substitute(one), ONE):
                return True
            at = Dim.of(loop.variable)
            other[loop.variable] += self._enter(For("more", ZERO, loop.stop - at - 1, ()), one) + 1
        for access, values in ((first, one), (later, other)):
            for loop in access.scope.loops[level + (level < common) :]:
                self._enter(loop, values)
        return any(
            all(
                self._different(a, b)
                for a in self._addresses(place, one)
                for b in self._addresses(found, other)
            )
            for place, found in product(first.places, later.places)
        )

    def _enter(self, loop: For, values: dict[str, Dim]) -> Dim:
        """Gives the variable of a loop a range, and a name for this access."""
        start, stop = loop.start.substitute(values), loop.stop.substitute(values)
        name = self._ranges.variable(loop.variable, start, stop)
        if not (start.symbols | stop.symbols).isdisjoint(
            self._ranges.from_data | self._accesses.data.keys()
        ):
            self._ranges.from_data.add(name)
        values[loop.variable] = Dim.of(name)
        return values[loop.variable]

    def _addresses(self, place: _Place, values: Mapping[str, Dim]) -> list[Dim]:
        """One of them is the address."""
        values = dict(values)
        for loop in place[1]:
            self._enter(loop, values)
        found = [place[0].substitute(values)]
        for name in sorted(place[0].symbols & self._accesses.data.keys()):
            indices = self._indices(name, values)
            found = [dim.substitute({name: index}) for dim in found for index in indices]
        return [self._ranges.simplified(dim) for dim in found]

    def _indices(self, name: str, values: dict[str, Dim]) -> list[Dim]:
        """What an index from data may be: one of those that are stored, or any of its range."""
        buffer, low, high = self._accesses.data[name]
        stored = self._accesses.stored_indices(buffer)
        if not stored:
            return [self._enter(For(name, low, high + 1, ()), values)]
        found = []
        for index, loops in stored:
            own: dict[str, Dim] = {}
            for loop in loops:
                self._enter(loop, own)
            found.append(index.substitute(own))
        return found

    def _different(self, one: Dim, other: Dim) -> bool:
        """As addresses, or on an axis."""
        if not (one.symbols | other.symbols).isdisjoint(self._accesses.data):
            return False
        known_lt, found = self._ranges.known_lt, list[tuple[Dim, Dim]]()
        for pair in self._coordinates(one, other):
            if known_lt(*pair):
                return True
            found.append(pair)
        return any(known_lt(b, a) for a, b in found)

    def _coordinates(self, one: Dim, other: Dim) -> Iterator[tuple[Dim, Dim]]:
        """Addresses, their quotients and remainders by the elements of inner axes, and the index
        that two of these are the quotient and the remainder of: a column of several heads."""
        yield from self._axes(one, other)
        first, later = (self._ranges.digits_of(dim) for dim in (one, other))
        if first is not None and later is not None:
            axes = list(self._axes(first.dim, later.dim))
            yield from axes
            if {(first.upper, later.upper), (first.lower, later.lower)} <= set(axes):
                yield first.value, later.value

    def _axes(self, one: Dim, other: Dim) -> Iterator[tuple[Dim, Dim]]:
        yield one, other
        for step in self._steps:
            parts = [self._ranges.divided(dim, step) for dim in (one, other)]
            if all(self._ranges.known_lt(rest, step) for _, rest in parts) and all(
                self._ranges.known_le(ZERO, rest) for _, rest in parts
            ):
                (upper, one), (upper_other, other) = parts
                yield upper, upper_other
                yield one, other
