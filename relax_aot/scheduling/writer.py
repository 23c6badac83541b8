# SPDX-License-Identifier: Apache-2.0
"""Builds loop nests: fresh names, open loops and the value ranges inside them.

A schedule is written top down, in the order of the generated code: `loop`, `nest` and `tiles`
open loops, `named` computes an index expression once, `micro` calls a micro-kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from relax_aot import microkernels
from relax_aot.ir.dim_expr import Value
from relax_aot.ir.dims import (
    ZERO,
    Bounds,
    Dim,
    ceildiv,
    dim_max,
    dim_min,
    interval,
    prove_le,
    simplify,
)
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Let,
    Lit,
    Load,
    Local,
    Reserve,
    Stmt,
    expressions,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims
from relax_aot.ir.types import DType, Shape
from relax_aot.scheduling.packing import Packed

Ends = tuple[Dim, Dim]
"""The start and the stop of a loop, or of a part of it."""


@dataclass
class Writer:
    """One kernel under construction. `taken` are the names in it and `bounds` the ranges that hold
    at this point; `scratch` and `packed` are the buffers and constants that the code uses;
    `in_place` are pairs of an input and an output that may share memory."""

    taken: set[str]
    bounds: Bounds
    scratch: list[Buffer] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    in_place: tuple[tuple[str, str], ...] = ()
    _blocks: list[list[Stmt]] = field(default_factory=lambda: [[]])
    _sizes: frozenset[str] = field(init=False)
    """The sizes that the kernel begins with."""
    _idle: list[Buffer] = field(default_factory=list)
    """Scratch memory of loops that are complete."""

    def __post_init__(self) -> None:
        self._sizes = frozenset(self.bounds)

    # Blocks and loops

    def add(self, *statements: Stmt) -> None:
        self._blocks[-1] += statements

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Collects statements instead of adding them."""
        outer, body = self.bounds, list[Stmt]()
        self._blocks.append(body)
        try:
            yield body
        finally:
            self._blocks.pop()
            self.bounds = outer

    @contextmanager
    def loop(self, variable: str, start: Value, stop: Value, axis: str = "") -> Iterator[Dim]:
        """A loop whose variable has this very name, parallel on `axis` where one is given."""
        start, stop = Dim.of(start), Dim.of(stop)
        with self.block() as body:
            self.bounds = self.bounds.with_value(variable, start, stop - 1)
            yield Dim.of(variable)
        self.add(For(variable, start, stop, tuple(body), axis))

    @contextmanager
    def range(self, name: str, stop: Value, start: Value = 0, axis: str = "") -> Iterator[Dim]:
        """A loop with a fresh variable."""
        with self.loop(self.fresh(name), start, stop, axis) as at:
            yield at

    @contextmanager
    def when(self, *conditions: Expr) -> Iterator[None]:
        """Statements under all of the conditions, if there are any."""
        with self.block() as body:
            yield
        if conditions:
            self.add(If(reduce(partial(Binary, "&&"), conditions), tuple(body)))
        else:
            self.add(*body)

    def reserve(self, name: str, dtype: DType, scope: str, *shape: Value) -> Buffer:
        """Memory until the end of the enclosing block."""
        buffer = Buffer(self.fresh(name), dtype, tuple(map(Dim.of, shape)), scope)
        self.add(Reserve(buffer))
        return buffer

    def each(self, name: str, start: Value, stop: Value, body: Callable[[Dim], None]) -> None:
        """As `range`, without a loop where there is one iteration."""
        if Dim.of(stop) - start == 1:
            body(Dim.of(start))
            return
        with self.range(name, stop, start) as at:
            body(at)

    @contextmanager
    def nest(self, loops: Sequence[For]) -> Iterator[dict[str, Dim]]:
        """The loops as they are; yields the value of each variable."""
        with ExitStack() as stack:
            opened = (self.loop(loop.variable, loop.start, loop.stop) for loop in loops)
            yield {str(at): at for at in map(stack.enter_context, opened)}

    @contextmanager
    def tiles(
        self, names: tuple[str, str], extent: Value, size: Value, *, apart: bool = False
    ) -> Iterator[tuple[Dim, Dim]]:
        """Tiles of `size` over `0..extent`; yields the first index of a tile and its length.
        `names`: of the counter and of the length. No loop where there is one tile, unless tiles of
        dynamic length are to be `apart` from what is around them."""
        extent, (counter, length) = Dim.of(extent), names
        count = ceildiv(extent, size)
        if not apart or extent.is_constant:
            count = simplify(count, self.bounds)
        if count == 1:
            yield ZERO, self._length(length, dim_min(extent, size))
            return
        with self.range(counter, count) as tile:
            yield tile * size, self._length(length, dim_min(extent - tile * size, size))

    def _length(self, name: str, dim: Dim) -> Dim:
        """As `short`, of a tile, which is never empty."""
        dim = simplify(dim, self.bounds)
        some = dim_max(dim, 1)
        return dim if dim.is_polynomial else self.let(name, dim, some, some)

    # Names and buffers

    def fresh(self, name: str) -> str:
        """A name that nothing else in the kernel has."""
        candidate, count = name, 0
        while candidate in self.taken:
            candidate, count = f"{name}_{count}", count + 1
        self.taken.add(candidate)
        return candidate

    def named(self, name: str, dim: Dim) -> Dim:
        """`dim`, computed once where it takes a division, a minimum or a maximum."""
        if dim.is_polynomial:
            return dim
        return self.let(name, dim, dim, dim)

    def short(self, name: str, dim: Dim) -> Dim:
        """As `named`, simplified by the ranges of the loops around."""
        return self.named(name, simplify(dim, self.bounds))

    def let(self, name: str, value: Dim, low: Dim, high: Dim) -> Dim:
        fresh = self.fresh(name)
        self.add(Let(fresh, value))
        self.bounds = self.bounds.with_value(fresh, low, high)
        return Dim.of(fresh)

    def index(self, name: str, value: Dim, stop: Dim) -> Dim:
        """An index of `0..stop`, named even where it is simple."""
        return self.let(name, value, dim_max(value, 0), dim_max(dim_min(value, stop - 1), 0))

    def complete(self) -> None:
        """Nothing that follows reads the scratch memory of what is written so far."""
        self._idle = [*self.scratch]

    def buffer(self, name: str, dtype: DType, *shape: Value) -> Buffer:
        """Scratch memory of the kernel, of which `complete` loops leave theirs. Sizes that change
        within it count as the greatest."""
        known = tuple(self._size(Dim.of(size)) for size in shape)
        for idle in self._idle:
            alike = idle.dtype is dtype and idle.name.startswith(name)
            if alike and idle.shape[1:] == known[1:] and self._holds(idle, known):
                self._idle.remove(idle)
                return idle
        self.scratch.append(Buffer(self.fresh(name), dtype, known))
        return self.scratch[-1]

    def _holds(self, idle: Buffer, shape: Shape) -> bool:
        return all(prove_le(n, m, self.bounds) for n, m in zip(shape, idle.shape, strict=True))

    def _size(self, size: Dim) -> Dim:
        return size if size.symbols <= self._sizes else Dim.of(interval(size, self.bounds)[1])

    def constant(self, packed: Packed) -> Buffer:
        self.packed.append(packed)
        return packed.buffer

    # Statements

    def micro(self, name: str, **arguments: Load | Buffer | Value) -> None:
        """A call of a micro-kernel, its operands and sizes by name."""
        self.add(microkernels.call(name, **arguments))

    def finish(
        self, after: Sequence[Stmt], local: Local, value: Expr, at: Mapping[str, Dim]
    ) -> None:
        """The statements that follow a sum, with `value` in the place of the sum `local`; it is
        computed once."""
        reads = sum(e == local for stmt in after for e in expressions(stmt))
        if reads > 1 and not isinstance(value, Load | Local | Lit):
            held = Local(self.fresh(local.name), local.dtype)
            self.add(Declare(held, value))
            value = held
        self.place(after, {local: value}, at)

    def place(
        self, statements: Iterable[Stmt], values: dict[Local, Expr], at: Mapping[str, Dim]
    ) -> None:
        """Statements where scalars and variables have other values. Scalars that they declare get
        fresh names, which are added to `values`."""

        def rule(expr: Expr) -> Expr:
            return values.get(expr, expr) if isinstance(expr, Local) else expr

        for stmt in map_index_dims(tuple(statements), lambda dim: dim.substitute(at)):
            (placed,) = map_exprs((stmt,), rule)
            if isinstance(stmt, Declare):
                values[stmt.local] = Local(self.fresh(stmt.local.name), stmt.local.dtype)
            if isinstance(placed, Declare | Assign):
                local = values[placed.local]
                assert isinstance(local, Local)
                placed = replace(placed, local=local)
            self.add(placed)
