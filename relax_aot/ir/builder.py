# SPDX-License-Identifier: Apache-2.0
"""How ops write their loops.

    def lower(k: KernelBuilder, x: Buffer, y: Buffer) -> None:
        with k.loops(*y.shape) as at:
            k.store(y[at], apply("exp", x[at]))

Loop variables and names are made unique here, and never collide with shape symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from relax_aot.ir.dim_expr import Value
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Assign,
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
    Lit,
    Load,
    Local,
    Operand,
    Stmt,
    Store,
    apply,
    as_expr,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.types import DType

At = tuple[Dim, ...]


class KernelBuilder:
    """Collects the statements of one kernel."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        symbols: Iterable[str] = (),
        tile_rows: int = 0,
    ) -> None:
        """`symbols` are sizes that the kernel uses, in addition to those of its buffers.
        `tile_rows`: of products that the target computes at once, where scratch for so many is
        worth it."""
        self.tile_rows = tile_rows
        self._name = name
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._scratch: list[Buffer] = []
        self._blocks: list[list[Stmt]] = [[]]
        shapes = [b.type.symbols for b in (*inputs, *outputs)]
        self._taken = set(symbols).union(*shapes, (b.name for b in (*inputs, *outputs)))
        self._depth = 0

    def finish(self) -> Kernel:
        (body,) = self._blocks
        return Kernel(self._name, self._inputs, self._outputs, tuple(self._scratch), tuple(body))

    # Loops and conditions

    @contextmanager
    def loops(self, *sizes: Value) -> Iterator[At]:
        """Nested loops from 0 to each size; yields their variables, and 0 for a size of 1,
        which needs no loop."""
        at: list[Dim] = []
        looped: list[tuple[str, Dim]] = []
        for size in map(Dim.of, sizes):
            if size == Dim.of(1):
                at.append(Dim.of(0))
            else:
                looped.append((self._unique(f"i{self._depth + len(looped)}"), size))
                at.append(Dim.of(looped[-1][0]))
        self._depth += len(looped)
        self._blocks.append([])
        yield tuple(at)
        body = tuple(self._blocks.pop())
        self._depth -= len(looped)
        self._taken.difference_update(variable for variable, _ in looped)
        for variable, size in reversed(looped):
            body = (For(variable, Dim.of(0), size, body),)
        self._blocks[-1].extend(body)

    @contextmanager
    def span(self, start: Value, stop: Value) -> Iterator[Dim]:
        """One loop over `start..stop`; empty where stop <= start, and no loop for one iteration."""
        if Dim.of(stop) - start == Dim.of(1):
            yield Dim.of(start)
            return
        variable = self._unique(f"i{self._depth}")
        self._depth += 1
        self._blocks.append([])
        yield Dim.of(variable)
        body = tuple(self._blocks.pop())
        self._depth -= 1
        self._taken.discard(variable)
        self._blocks[-1].append(For(variable, Dim.of(start), Dim.of(stop), body))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        self._blocks.append([])
        yield
        self._blocks[-2].append(If(condition, tuple(self._blocks.pop())))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The other branch of the `when` just closed."""
        last = self._blocks[-1].pop()
        assert isinstance(last, If) and not last.otherwise
        self._blocks.append([])
        yield
        body = tuple(self._blocks.pop())
        self._blocks[-1].append(If(last.condition, last.then, body))

    # Statements

    def store(self, where: Load, value: Operand) -> None:
        """`where` is written as a load: `k.store(y[at], value)`."""
        stored = as_expr(value, where.dtype)
        assert stored.dtype is where.dtype, f"{stored.dtype} into {where.buffer.type}"
        self._blocks[-1].append(Store(where.buffer, where.index, stored))

    def local(self, name: str, dtype: DType, value: Operand) -> Local:
        local = Local(self._unique(name), dtype)
        self._blocks[-1].append(Declare(local, as_expr(value, dtype)))
        return local

    def assign(self, local: Local, value: Operand) -> None:
        stored = as_expr(value, local.dtype)
        assert stored.dtype is local.dtype, f"{stored.dtype} into {local}"
        self._blocks[-1].append(Assign(local, stored))

    def let(self, name: str, value: Value) -> Dim:
        """Name an index expression, so that it is computed once."""
        dim = Dim.of(value)
        if dim.is_constant or any(dim == Dim.of(symbol) for symbol in dim.symbols):
            return dim
        unique = self._unique(name)
        self._blocks[-1].append(Let(unique, dim))
        return Dim.of(unique)

    def index(self, name: str, value: Expr, low: Value, high: Value) -> Dim:
        """An integer from data as an index; outside `low..high` the run ends with a status."""
        unique = self._unique(name)
        self._blocks[-1].append(Bind(unique, value, Dim.of(low), Dim.of(high)))
        return Dim.of(unique)

    def clamped(self, name: str, value: Expr, low: Value, high: Value) -> Dim:
        """An integer from data as an index: the nearest in `low..high`, and 0 for NaN. The
        range must hold 0 and must not be empty."""
        unique = self._unique(name)
        # The limits are applied to an integer, not to a float: value analyzers can follow
        # integers, and Arm converts to int32 with saturation in one instruction.
        kind = DType.I32 if value.dtype.is_float else DType.I64
        whole = value if value.dtype is kind else Cast(value, kind, "saturate")
        edges = [
            Index(d)
            if kind is DType.I64
            else Lit(d.constant, kind)
            if d.is_constant
            else Cast(Index(d), kind)
            for d in (Dim.of(high), Dim.of(low))
        ]
        inside: Expr = apply("max", apply("min", whole, edges[0]), edges[1])
        if kind is DType.I32:
            inside = Cast(inside, DType.I64)
        self._blocks[-1].append(Bind(unique, inside, Dim.of(low), Dim.of(high), "clamped"))
        return Dim.of(unique)

    def placed(self, name: str, value: Expr, low: Value, high: Value) -> Dim:
        """A counted integer as an index; what was counted keeps it within `low..high`."""
        unique = self._unique(name)
        self._blocks[-1].append(Bind(unique, value, Dim.of(low), Dim.of(high), "clamped"))
        return Dim.of(unique)

    def scratch(self, name: str, dtype: DType, shape: Sequence[Value]) -> Buffer:
        """Memory for this call only; its contents are undefined at the start."""
        buffer = Buffer(self._unique(name), dtype, tuple(Dim.of(s) for s in shape))
        self._scratch.append(buffer)
        return buffer

    def _unique(self, name: str) -> str:
        candidate = unused_name(name, self._taken)
        self._taken.add(candidate)
        return candidate
