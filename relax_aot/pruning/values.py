# SPDX-License-Identifier: Apache-2.0
"""The ranges of what a kernel computes, from those of its operands.

A kernel runs once: each loop whose iterations tell known numbers apart is an axis of arrays, and
other loops stand for any of their iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import Bounds, prove_lt
from relax_aot.ir.loops import (
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
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    Unary,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.ir.value_ranges import Known as Ranges
from relax_aot.ops._op import Array
from relax_aot.pruning.knowledge import (
    SAFE,
    Known,
    anything,
    applied,
    chosen,
    combined,
    converted,
    either,
    exactly,
    inverted,
    stored,
)
from relax_aot.pruning.places import Frame, Stores, loaded, loops_of, place_of
from relax_aot.pruning.plain import Plain, assigned, fold_of, folded, loads_of, span


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """One statement that adds terms to a scalar: `frames[:outer]` are around its declaration, the
    other ones run through terms. Axes of `term` are those frames that are loops."""

    local: str
    frames: tuple[Frame, ...]
    outer: int
    term: Known
    dtype: DType

    @property
    def exact(self) -> bool:
        """Integers, of which each is added as often as `frames` say."""
        inner = self.frames[self.outer :]
        return self.dtype.is_int and all(frame.count is not None for frame in inner)

    @property
    def repeats(self) -> int:
        """How many terms an element of `term` stands for, at most."""
        inner = self.frames[self.outer :]
        return prod(f.count // f.size for f in inner if f.count is not None)


@dataclass(frozen=True, slots=True)
class Found:
    outputs: Mapping[str, Known]
    """By buffer; axes are those of the buffer, of size 1 where one number is known for all."""
    sums: tuple[Sum, ...]


def evaluate(plain: Plain, inputs: Mapping[str, Known], bounds: Bounds) -> Found:
    told = {name: known for name, known in inputs.items() if known.low.size}
    run = _Run(plain, told, bounds)
    run.block(plain.body, run.start)
    shapes = {buffer.name: buffer for buffer in plain.kernel.outputs}
    outputs = {name: kept.known() for name, kept in run.stores.items() if name in shapes}
    return Found(outputs, tuple(run.sums))


class _Run:
    def __init__(self, plain: Plain, inputs: Mapping[str, Known], bounds: Bounds) -> None:
        self.plain, self.inputs = plain, inputs
        self.frames: tuple[Frame, ...] = ()
        self.locals: dict[str, tuple[Known, int]] = {}
        """With the number of frames around the declaration."""
        self.types: dict[str, DType] = {}
        self.binds: dict[str, Known] = {}
        self.sums: list[Sum] = []
        self.stores: dict[str, Stores] = {}
        self.start = Ranges.at_start(plain.kernel, bounds)

    @property
    def depth(self) -> int:
        return len(loops_of(self.frames))

    def block(self, body: tuple[Stmt, ...], ranges: Ranges) -> None:
        for stmt in body:
            self.statement(stmt, ranges)
            ranges = ranges.after(stmt)

    def statement(self, stmt: Stmt, ranges: Ranges) -> None:
        match stmt:
            case Declare(local, value):
                self.locals[local.name] = self.value(value), len(self.frames)
                self.types[local.name] = local.dtype
            case Assign(local, value):
                self.assign(stmt)
            case Bind(name, value):
                self.binds[name] = self.value(value)
            case Store(buffer, index, value):
                if buffer.name not in self.stores:
                    self.stores[buffer.name] = Stores(buffer)
                kept = stored(self.value(value), buffer.dtype)
                places = [place_of(dim, self.frames, self.binds) for dim in index]
                self.stores[buffer.name].add(kept, places, self.depth)
            case If():
                self.branch(stmt, ranges)
            case For():
                self.loop(stmt, ranges)
            case _:
                pass

    def branch(self, stmt: If, ranges: Ranges) -> None:
        condition = self.value(stmt.condition)
        frames, before = self.frames, dict(self.locals)
        self.frames = (*frames, Frame())
        ends = []
        for block in (stmt.then, stmt.otherwise):
            self.locals = dict(before)
            self.block(block, ranges)
            ends.append(self.locals)
        self.frames = frames
        self.locals = {
            name: (self.behind(condition, ends[0][name][0], ends[1][name][0], at), at)
            for name, (_, at) in before.items()
        }

    def behind(self, condition: Known, then: Known, otherwise: Known, at: int) -> Known:
        """A scalar behind two branches. One from around a loop has no value for each iteration."""
        if then is otherwise:
            return then
        if loops_of(self.frames[at:]):
            return either(then, otherwise)
        return chosen(condition, then, otherwise)

    def loop(self, loop: For, ranges: Ranges) -> None:
        """Scalars that it changes in another way than by adding, or taking the greatest, are
        unknown in it and after it."""
        lost = assigned(loop.body) & self.locals.keys() if folded(loop) is None else set()
        self.lose(lost)
        frames, outside = self.frames, self.locals.keys() | set()
        frame = self.frame(loop)
        frame = replace(frame, runs=bool(frame.count) or _runs(loop, ranges))
        self.frames = (*frames, frame)
        self.block(loop.body, ranges.inside(loop))
        self.frames = frames
        self.lose(lost)
        self.locals = {name: kept for name, kept in self.locals.items() if name in outside}

    def lose(self, names: set[str]) -> None:
        for name in names:
            self.locals[name] = anything(self.types[name]), self.locals[name][1]

    def frame(self, loop: For) -> Frame:
        """An axis where iterations read known numbers of their own."""
        number, known = self.plain.numbers[id(loop)], span(loop)
        count = None if known is None else len(known)
        told = self.tells(loop, known is None)
        if not told:
            return Frame(number, loop.variable, 1, None, count)
        # The range of another loop depends on sizes or on where it is. It lies within the axis.
        positions = np.arange(told) if known is None else np.arange(known.start, known.stop)
        return Frame(number, loop.variable, positions.size, positions, count)

    def tells(self, loop: For, alone: bool) -> int:
        """The size of an axis of known numbers that the loop runs along, `alone` without others;
        0 if it has none."""
        for stmt in walk(loop.body):
            for load in loads_of(stmt):
                known = self.inputs.get(load.buffer.name)
                for axis, dim in enumerate(load.index if known is not None else ()):
                    assert known is not None
                    size = known.shape[axis]
                    along = dim.symbol == loop.variable if alone else loop.variable in dim.symbols
                    if size > 1 and along:
                        return size
        return 0

    # Scalars

    def assign(self, stmt: Assign) -> None:
        name = stmt.local.name
        kept, at = self.locals[name]
        inner = self.frames[at:]
        fold = fold_of(stmt)
        if not loops_of(inner):
            self.locals[name] = self.value(stmt.value), at
            return
        if fold is None:
            self.locals[name] = anything(stmt.local.dtype), at
            return
        term = self.value(fold[1]).deep(self.depth)
        kept = kept.deep(self.outer_depth(at))
        if fold[0] != "+":
            self.locals[name] = self.extreme(fold[0], kept, term, at, stmt.local.dtype), at
            return
        made = Sum(name, self.frames, at, term, stmt.local.dtype)
        self.sums.append(made)
        self.locals[name] = self.total(made, kept), at

    def outer_depth(self, at: int) -> int:
        return len(loops_of(self.frames[:at]))

    def total(self, made: Sum, kept: Known) -> Known:
        """The sum behind a loop. Terms of floats are rounded on the way, so that only zeros are
        known to leave a sum as it was."""
        outer = self.outer_depth(made.outer)
        axes = tuple(range(outer, self.depth))
        whole = anything(made.dtype)
        if made.dtype.is_int:
            whole = self.added(made, axes)
        zero = np.asarray(made.term.zero.all(axis=axes))
        whole = Known(np.where(zero, 0, whole.low), np.where(zero, 0, whole.high), made.term.data)
        return combined("+", kept, whole.each(lambda a: a.astype(kept.low.dtype)), made.dtype)

    def added(self, made: Sum, axes: tuple[int, ...]) -> Known:
        """What all terms of a sum of integers add. Terms under a condition, and those of a loop
        within an axis, may be left out."""
        inner = made.frames[made.outer :]
        if any(f.number >= 0 and f.count is None and f.positions is None for f in inner):
            return anything(made.dtype)
        low, high = made.term.low, made.term.high
        if not made.exact:
            zero = np.zeros((), low.dtype)
            low, high = np.minimum(low, zero), np.maximum(high, zero)
        sizes = [frame.size for frame in loops_of(made.frames)][len(axes) * -1 :] if axes else []
        terms = prod(sizes) * made.repeats
        if max(abs(int(low.min())), abs(int(high.max()))) * terms >= SAFE:
            return anything(made.dtype)

        def summed(array: Array) -> Array:
            outer = array.ndim - len(axes)
            every = np.broadcast_to(array, (*array.shape[:outer], *sizes))
            return np.asarray(every.sum(axis=axes) * made.repeats)

        least = summed(low)
        return Known(least, least if made.term.exact and made.exact else summed(high))

    def extreme(self, function: str, kept: Known, term: Known, at: int, dtype: DType) -> Known:
        """The greatest or least of all terms, and of the number before where there may be none."""
        outer = self.outer_depth(at)
        axes = tuple(range(outer, self.depth))
        best, other = (np.max, np.min) if function == "max" else (np.min, np.max)
        some = any(frame.count is None for frame in self.frames[at:])
        low, high = best(term.low, axis=axes), best(term.high, axis=axes)
        if some and function == "max":
            low = other(term.low, axis=axes)
        elif some:
            high = other(term.high, axis=axes)
        after = applied(
            function, [kept, Known(np.asarray(low), np.asarray(high), term.data)], dtype
        )
        sure = all(frame.number >= 0 and frame.runs for frame in self.frames[at:])
        return after if sure else either(kept, after)

    def value(self, expr: Expr) -> Known:
        match expr:
            case Lit():
                kind = expr.dtype.numpy if expr.dtype.is_float else None
                return exactly(np.asarray(expr.value, kind), expr.dtype)
            case Local():
                found = self.locals.get(expr.name)
                return anything(expr.dtype) if found is None else found[0]
            case Index():
                place = place_of(expr.dim, self.frames, self.binds)
                return anything(expr.dtype, data=False) if place is None else place
            case Load():
                known = self.inputs.get(expr.buffer.name)
                if known is None:
                    return anything(expr.dtype)
                return loaded(known, expr.index, self.frames, self.binds)
            case Unary("-", value):
                zero = exactly(np.zeros((), value.dtype.numpy), value.dtype)
                return combined("-", zero, self.value(value), expr.dtype)
            case Unary(_, value):
                return inverted(self.value(value))
            case Binary(op, left, right):
                return combined(op, self.value(left), self.value(right), expr.dtype)
            case Apply(function, args):
                return applied(function, [self.value(arg) for arg in args], expr.dtype)
            case Cast(value, dtype, mode):
                return converted(self.value(value), value.dtype, dtype, mode)
            case Select(condition, then, otherwise):
                return chosen(self.value(condition), self.value(then), self.value(otherwise))


def _runs(loop: For, ranges: Ranges) -> bool:
    names = loop.start.symbols | loop.stop.symbols
    known = all(name in ranges.bounds for name in names)
    return known and prove_lt(loop.start, loop.stop, ranges.bounds)
