# SPDX-License-Identifier: Apache-2.0
"""The rounding depth of a kernel: how many roundings lie on the way to one result element.

The error model (error_model.py) needs two numbers of each call. `sums` is the number of terms
that are added one after the other, the reduction depth; `steps` counts the other floating-point
operations. Both are read from the plain loops that the op lowers to, at the sizes of one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Bind,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Stmt,
    Store,
    parts,
)
from relax_aot.ops import all_ops

EXACT = (
    "abs", "floor", "ceil", "trunc", "rint", "round", "isnan", "isinf", "signbit", "max", "min",
    "fmod",
)  # fmt: skip
FUNCTION_STEPS = 2
"""What an elementary function counts: its error is below 1.3 units in the last place."""
VECTOR_STEPS = {"sigmoid": 7, "tanh": 7, "fraction": 3}
"""What those count that have a larger error, below 2.5 units, in vectors (vector_functions.h)."""


@dataclass(frozen=True, slots=True)
class Order:
    """In which order a sum takes the elements of an operand: along these axes, the last one
    fastest; along its other axes lie the operands of other sums."""

    operand: int
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Depth:
    """Terms added one after the other, and other operations that round. `order` is known where
    there is one sum and it takes each element of an operand once."""

    sums: int = 0
    steps: int = 0
    order: Order | None = None

    @property
    def roundings(self) -> int:
        """Of each term its product and its sum."""
        return 2 * self.sums + self.steps


def depth_of_call(call: Call, sizes: Mapping[str, int], *, vectors: bool = False) -> Depth:
    """The depth of an op's plain loops; a view computes nothing. `vectors`: elementary functions
    may be those for vectors."""
    if all_ops()[call.op].view:
        return Depth()
    return depth_of(plain_loops(call), sizes, vectors=vectors)


def plain_loops(call: Call) -> Kernel:
    """What an op lowers to; its inputs are the arguments that the call has."""
    buffers = [
        None if arg is None else Buffer(f"x{number}", arg.type.dtype, arg.type.shape)
        for number, arg in enumerate(call.args)
    ]
    outputs = [Buffer(f"y{n}", out.type.dtype, out.type.shape) for n, out in enumerate(call.outs)]
    builder = KernelBuilder("loops", [b for b in buffers if b is not None], outputs)
    all_ops()[call.op].lower(builder, *buffers, *outputs, **dict(call.attrs))
    return builder.finish()


def depth_of(kernel: Kernel, sizes: Mapping[str, int], *, vectors: bool = False) -> Depth:
    steps = VECTOR_STEPS if vectors else {}
    found = _Count(dict(sizes), [b.name for b in kernel.inputs], steps)
    found.block(kernel.body)
    orders = found.orders
    return Depth(found.sums, found.steps, orders[0] if len(orders) == 1 else None)


class _Count:
    """One walk over the statements; loops that contain the current one, outermost first."""

    def __init__(self, sizes: dict[str, int], inputs: list[str], own: Mapping[str, int]) -> None:
        """`own`: what some functions count."""
        self.sizes, self.inputs, self.own = sizes, inputs, own
        self.loops: list[tuple[str, int]] = []
        self.declared: dict[str, int] = {}
        """How many loops contain the declaration of a local."""
        self.sums = self.steps = 0
        self.orders: list[Order | None] = []

    def block(self, body: Iterable[Stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self.loop(stmt)
            case If():
                self.block(stmt.then)
                self.block(stmt.otherwise)
            case Let():
                self.sizes[stmt.name] = self.value(stmt.value)
            case Bind():
                self.sizes[stmt.name] = self.value(stmt.low)
            case Declare():
                self.declared[stmt.local.name] = len(self.loops)
                self.steps += self.operations(stmt.value)
            case Assign():
                inside = self.loops[self.declared.get(stmt.local.name, 0) :]
                self.written(stmt.value, stmt.local in parts(stmt.value), inside)
            case Store():
                used = frozenset[str]().union(*(d.symbols for d in stmt.index))
                inside = [loop for loop in self.loops if loop[0] not in used]
                again = any(
                    isinstance(e, Load) and e.buffer.name == stmt.buffer.name
                    for e in parts(stmt.value)
                )
                self.written(stmt.value, again, inside)
            case _:
                pass

    def written(self, value: Expr, again: bool, inside: list[tuple[str, int]]) -> None:
        """`again`: the value reads what it replaces, so that the loops `inside` sum."""
        operations = self.operations(value)
        trips = prod((extent for _, extent in inside), start=1)
        if again and operations and trips > 1:
            self.sums += trips
            operations -= 1
            self.orders.append(self.order(value, [name for name, _ in inside]))
        self.steps += operations

    def order(self, value: Expr, inside: list[str]) -> Order | None:
        """The last operand whose axes are indexed by these loops, each by itself."""
        for part in [*parts(value)][::-1]:
            if not isinstance(part, Load) or part.buffer.name not in self.inputs:
                continue
            plain = [str(d) for d in part.index]
            summed = [axis for axis, d in enumerate(part.index) if d.symbols & set(inside)]
            if sorted(plain[axis] for axis in summed) == sorted(inside):
                axes = tuple(plain.index(name) for name in inside)
                return Order(self.inputs.index(part.buffer.name), axes)
        return None

    def loop(self, loop: For) -> None:
        start, stop = self.value(loop.start), self.value(loop.stop)
        self.sizes[loop.variable] = (start + stop) // 2
        self.loops.append((loop.variable, max(stop - start, 0)))
        self.block(loop.body)
        self.loops.pop()

    def value(self, dim: Dim) -> int:
        """A data-dependent count is 1."""
        return dim.evaluate(self.sizes) if dim.symbols <= self.sizes.keys() else 1

    def operations(self, value: Expr) -> int:
        return sum(_cost(part, self.own) for part in parts(value))


def _cost(expr: Expr, own: Mapping[str, int]) -> int:
    match expr:
        case Binary(op="+" | "-" | "*" | "/"):
            return int(expr.dtype.is_float)
        case Apply(function="sqrt" | "fma" | "fraction"):
            return own.get(expr.function, 1)
        case Apply(function="exp_below"):
            return 1 + FUNCTION_STEPS
        case Apply() if expr.function not in EXACT and expr.dtype.is_float:
            return own.get(expr.function, FUNCTION_STEPS)
        case _:
            return 0
