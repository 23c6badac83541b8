# SPDX-License-Identifier: Apache-2.0
"""A random kernel under construction: loops, indices, expressions and stores.

Index expressions are drawn freely and kept where they stay inside their buffer for all sizes,
which is checked by enumeration: the bounds are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.evaluate import evaluate_all
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Buffer,
    Cast,
    Expr,
    Index,
    Lit,
    Local,
    Select,
    Unary,
    apply,
    binary,
)
from relax_aot.ir.types import DType

TAME = 64.0
"""Floating-point operands of a greater magnitude are clamped, so that sums stay exact."""
CLAMP = 4
COLUMNS = 60
"""Iterations of one nest at most, at the highest sizes."""

Grid = Mapping[str, NDArray[np.int64]]
"""All assignments of the module's symbols, one array per symbol."""


@dataclass
class Draft:
    """One kernel under construction."""

    random: Random
    k: KernelBuilder
    grid: Grid
    limits: dict[str, float]
    """Greatest magnitudes of floating-point buffers."""
    readable: list[Buffer]
    loops: list[tuple[str, Dim]] = field(default_factory=list)
    """Index variables in scope and what each stays below."""
    lets: dict[str, Dim] = field(default_factory=dict)
    locals: list[tuple[Local, float]] = field(default_factory=list)
    exact: bool = True
    """Whether every operation is exact, so that contraction changes no bit."""
    disorder: float = 0.25
    """How often an axis is stored in another order than it is run through."""
    tidy: bool = False
    """Whether operands are mostly read element by element, as mergers want them."""

    # Sizes

    def values(self, dim: Dim) -> NDArray[np.int64]:
        with np.errstate(all="ignore"):
            return np.atleast_1d(evaluate_all(dim, self.grid))

    def least(self, dim: Dim) -> int:
        return int(self.values(dim).min())

    def most(self, dim: Dim) -> int:
        return int(self.values(dim).max())

    def inside(self, index: Dim, extent: Dim) -> bool:
        """Whether 0 <= index < extent for all sizes and all iterations around."""
        index = self.plain(index)
        around = [(name, stop) for name, stop in self.loops if name in index.symbols]
        rank = len(around)
        table = {n: v.reshape(-1, *[1] * rank) for n, v in self.grid.items()}
        mask: NDArray[np.bool_] = np.ones((1,) * (rank + 1), np.bool_)
        for name, stop in self.loops:
            if name not in index.symbols:
                mask = mask & (self.values(stop) > 0).reshape(-1, *[1] * rank)
        for axis, (name, stop) in enumerate(around):
            stops = self.values(stop)
            shape = [1] * (rank + 1)
            shape[axis + 1] = -1
            table[name] = np.arange(max(int(stops.max()), 1), dtype=np.int64).reshape(shape)
            mask = mask & (table[name] < stops.reshape(-1, *[1] * rank))
        with np.errstate(all="ignore"):
            found = evaluate_all(index, table)
            limit = evaluate_all(extent, table)
        return bool((~mask | ((found >= 0) & (found < limit))).all())

    def plain(self, dim: Dim) -> Dim:
        for name in reversed(self.lets):
            dim = dim.substitute({name: self.lets[name]})
        return dim

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # Loops

    @contextmanager
    def nest(self, *extents: Dim) -> Iterator[tuple[Dim, ...]]:
        """Loops over the extents, nested in a random order."""
        order = list(range(len(extents)))
        if self.chance(0.4):
            self.random.shuffle(order)
        loops, lets, locals_ = list(self.loops), dict(self.lets), list(self.locals)
        with self.k.loops(*(extents[axis] for axis in order)) as at:
            found = dict(zip(order, at, strict=True))
            for axis, dim in found.items():
                if not dim.is_constant:
                    self.loops.append((str(dim), extents[axis]))
            yield tuple(found[axis] for axis in range(len(extents)))
        self.loops, self.lets, self.locals = loops, lets, locals_

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        loops, lets, locals_ = list(self.loops), dict(self.lets), list(self.locals)
        with self.k.when(condition):
            yield
        self.loops, self.lets, self.locals = loops, lets, locals_

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        loops, lets, locals_ = list(self.loops), dict(self.lets), list(self.locals)
        with self.k.otherwise():
            yield
        self.loops, self.lets, self.locals = loops, lets, locals_

    # Indices

    def axis_index(self, extent: Dim) -> Dim | None:
        """An index of one axis; None where none of those drawn stays inside."""
        same = [Dim.of(name) for name, stop in self.loops if stop == extent]
        if same and self.chance(0.93 if self.tidy else 0.55):
            return self.named(self.random.choice(same))
        for _ in range(5):
            index = self.drawn_index(extent)
            if self.inside(index, extent):
                return self.named(index)
        if same:
            return same[0]
        return Dim.of(0) if self.inside(Dim.of(0), extent) else None

    def drawn_index(self, extent: Dim) -> Dim:
        if not self.loops or self.chance(0.1):
            number = self.random.randint(0, 2)
            return self.random.choice((Dim.of(0), Dim.of(number), extent - 1, extent // 2))
        name, stop = self.random.choice(self.loops)
        i = Dim.of(name)
        match self.random.randrange(12):
            case 0:
                return extent - 1 - i
            case 1:
                return stop - 1 - i
            case 2:
                return i // 2
            case 3:
                return 2 * i + self.random.randint(0, 1)
            case 4:
                return i % extent if self.least(extent) > 0 else i
            case 5:
                shift = self.random.randint(1, 2)
                return (i + shift) % extent if self.least(extent) > 0 else i
            case 6:
                return dim_min(i, extent - 1)
            case 7:
                return dim_max(i - 1, 0)
            case 8:
                return i % self.random.randint(2, 3)
            case 9:
                other, width = self.random.choice(self.loops)
                return i * width + Dim.of(other)
            case 10:
                return (3 * i + 1) % extent if self.least(extent) > 0 else i
            case _:
                return i

    def named(self, index: Dim) -> Dim:
        """The index, at times by a name of its own."""
        if not self.chance(0.12):
            return index
        name = self.k.let("at", index)
        if name != index:
            self.lets[str(name)] = index
        return name

    def place(self, buffer: Buffer) -> tuple[Dim, ...] | None:
        at = [self.axis_index(size) for size in buffer.shape]
        found = tuple(index for index in at if index is not None)
        return found if len(found) == len(at) else None

    # Expressions: each with the greatest magnitude that a floating-point value can have.

    def load(self, buffer: Buffer) -> tuple[Expr, float]:
        at = self.place(buffer)
        if at is None:
            return self.literal(buffer.dtype)
        return self.tamed(buffer[at], self.limits.get(buffer.name, 0.0))

    def literal(self, dtype: DType) -> tuple[Expr, float]:
        if dtype is DType.BOOL:
            return Lit(self.chance(0.5), dtype), 1.0
        low = 0 if not dtype.is_float and not dtype.is_signed else -3
        number = self.random.randint(low, 3)
        return Lit(float(number) if dtype.is_float else number, dtype), float(abs(number))

    def leaf(self, dtype: DType) -> tuple[Expr, float]:
        draw = self.random.random()
        if draw < 0.12:
            return self.literal(dtype)
        if draw < 0.18 and self.loops:
            index = Dim.of(self.random.choice(self.loops)[0])
            return self.cast(Index(index), dtype), float(COLUMNS)
        mine = [pair for pair in self.locals if pair[0].dtype is dtype]
        if mine and draw < 0.4:
            return self.random.choice(mine)
        same = [b for b in self.readable if b.dtype is dtype]
        if same and (draw < 0.9 or len(same) == len(self.readable)):
            return self.load(self.random.choice(same))
        if not self.readable:
            return self.literal(dtype)
        value, limit = self.load(self.random.choice(self.readable))
        return self.converted(value, limit, dtype)

    def converted(self, value: Expr, limit: float, dtype: DType) -> tuple[Expr, float]:
        """A value as another type, small where an integer becomes a floating-point number."""
        if value.dtype is dtype:
            return self.tamed(value, limit)
        if value.dtype.is_float or value.dtype is DType.BOOL:
            value, limit = self.tamed(value, limit)
            return self.cast(value, dtype), max(limit, 1.0)
        if dtype.is_float:
            value = binary("%", value, 7)
        return self.cast(value, dtype), 7.0

    def tamed(self, value: Expr, limit: float) -> tuple[Expr, float]:
        if value.dtype.is_float and limit > TAME:
            bounded = apply("min", value, float(CLAMP))
            return apply("max", bounded, float(-CLAMP)), float(CLAMP)
        return value, limit

    def around(self, element: tuple[Expr, float], dtype: DType) -> tuple[Expr, float]:
        """An expression of this element and at times of another operand."""
        value, limit = element
        if self.chance(0.5):
            return element
        if dtype is DType.BOOL:
            return Unary("!", value), 1.0
        other, n = self.leaf(dtype)
        if self.chance(0.3):
            return apply(self.random.choice(("max", "min")), value, other), max(limit, n)
        return binary(self.random.choice("+-"), value, other), limit + n

    def cast(self, value: Expr, dtype: DType) -> Expr:
        if value.dtype is dtype:
            return value
        if dtype is DType.BOOL:
            return binary("!=", value, Lit(0.0 if value.dtype.is_float else 0, value.dtype))
        saturating = self.chance(0.3) and dtype.is_int and value.dtype is not DType.BOOL
        return Cast(value, dtype, "saturate" if saturating else "wrap")

    def expr(self, dtype: DType, depth: int = 2) -> tuple[Expr, float]:
        if depth == 0 or self.chance(0.45 if self.tidy else 0.3):
            return self.leaf(dtype)
        if dtype is DType.BOOL:
            return self.truth(depth), 1.0
        if self.chance(0.12):
            (a, m), (b, n) = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
            return Select(self.truth(1), a, b), max(m, n)
        return self.floats(dtype, depth) if dtype.is_float else (self.integers(dtype, depth), 0.0)

    def floats(self, dtype: DType, depth: int) -> tuple[Expr, float]:
        a, m = self.expr(dtype, depth - 1)
        draw = self.random.random()
        if draw < 0.15:
            return (Unary("-", a), m) if self.chance(0.5) else (apply("abs", a), m)
        if draw < 0.2:
            self.exact = False
            return self.inexact(a)
        b, n = self.expr(dtype, depth - 1)
        if draw < 0.4:
            return apply(self.random.choice(("max", "min")), a, b), max(m, n)
        if draw < 0.6 and m * n <= TAME * TAME:
            return a * b, m * n
        if draw < 0.63:
            return Apply("fma", (a, b, self.literal(dtype)[0])), m * n + 3
        return binary(self.random.choice("+-"), a, b), m + n

    def inexact(self, a: Expr) -> tuple[Expr, float]:
        match self.random.randrange(4):
            case 0:
                return apply("tanh", a), 1.0
            case 1:
                return apply("sqrt", apply("abs", a)), TAME
            case 2:
                return apply("sigmoid", a), 1.0
            case _:
                return a / 3.0, TAME

    def integers(self, dtype: DType, depth: int) -> Expr:
        a, _ = self.expr(dtype, depth - 1)
        draw = self.random.random()
        if draw < 0.12:
            return Unary("-", a)
        b, _ = self.expr(dtype, depth - 1)
        if draw < 0.3:
            return apply(self.random.choice(("max", "min")), a, b)
        common = "+" * 4 + "-" * 3 + "**"
        op = self.random.choice((*common, "/", "%", "&", "|", "^", "<<", ">>"))
        return binary(op, a, b)

    def truth(self, depth: int) -> Expr:
        """A condition on values, or on where one is."""
        draw = self.random.random()
        if draw < 0.3 and self.loops:
            name, stop = self.random.choice(self.loops)
            choices = (stop // 2, stop - 1, Dim.of(1), Dim.of(2))
            condition: Expr = binary("<", Dim.of(name), self.random.choice(choices))
            if self.chance(0.3):
                condition = binary("==", Index(Dim.of(name) % 2), Index(Dim.of(0)))
            return Unary("!", condition) if self.chance(0.2) else condition
        if draw < 0.4 and depth > 1:
            return Binary(self.random.choice(("&&", "||")), self.truth(1), self.truth(1))
        kinds = [b.dtype for b in self.readable] or [DType.F32]
        kind = self.random.choice(kinds)
        a = self.leaf(kind)[0]
        if kind is DType.BOOL:
            return a
        b = self.leaf(kind)[0] if self.chance(0.4) else Lit(0.0 if kind.is_float else 0, kind)
        return binary(self.random.choice(("<", "<", "<=", "==", "!=")), a, b)

    # Stores

    def store(self, y: Buffer, at: tuple[Dim, ...], value: tuple[Expr, float]) -> None:
        self.k.store(y[at], value[0])
        self.limits[y.name] = max(self.limits.get(y.name, 0.0), value[1])

    def accumulate(self, y: Buffer, at: tuple[Dim, ...], value: tuple[Expr, float]) -> None:
        """y[at] = y[at] + value, or by another operation."""
        grown = self.limits.get(y.name, 0.0)
        if y.dtype is DType.BOOL:
            self.store(y, at, (Binary(self.random.choice(("&&", "||")), y[at], value[0]), 1.0))
        elif self.chance(0.65):
            self.store(y, at, (y[at] + value[0], grown + COLUMNS * value[1]))
        else:
            op = self.random.choice(("max", "min"))
            self.store(y, at, (apply(op, y[at], value[0]), max(grown, value[1])))

    def one_to_one(self, at: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Where an element is stored, so that each is stored once."""

        def moved(i: Dim, size: Dim) -> Dim:
            if i.is_constant or not self.chance(self.disorder):
                return i
            rotated = (i + 1) % size if self.least(size) > 0 else i
            return self.random.choice((size - 1 - i, size - 1 - i, rotated))

        return tuple(moved(i, size) for i, size in zip(at, shape, strict=True))

    def iterations(self, extents: Sequence[Dim]) -> int:
        total = np.ones(1, np.int64)
        for extent in extents:
            total = total * np.maximum(self.values(extent), 0)
        return int(total.max())
