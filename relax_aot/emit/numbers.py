# SPDX-License-Identifier: Apache-2.0
"""The numbers of a kernel, by what they are used for.

Kernels that differ by numbers alone can be one function that is given the numbers
(sharing.py). Each number has a position, also those that C leaves out: `i` is `1 * i + 0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from relax_aot.ir.dim_expr import Atom
from relax_aot.ir.dims import Dim, FloorDiv, Max, Min, Mod, dim_max, dim_min, row_major
from relax_aot.ir.loops import (
    PARTS,
    Apply,
    Assign,
    Barrier,
    Binary,
    Bind,
    Buffer,
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
    mapped,
    walk,
)
from relax_aot.ir.names import defined_name
from relax_aot.ir.names import renamed as renamed_body
from relax_aot.ir.types import DType

AXES = ("columns", "rows", "planes")
"""Sizes of arrays, the innermost first."""
_ROLES = {"*": "multiplier", "/": "divisor", "<<": "shift", ">>": "shift"}
_FLOAT_ROLES = {"*": "scale", "/": "divisor"}


@dataclass(frozen=True, slots=True)
class Number:
    """A value of the type `kind`: an element type, or the struct of a micro-kernel's sizes."""

    value: int | float | tuple[tuple[str, int], ...]
    kind: DType | str


Rule = Callable[[Number, str], tuple[str, int] | None]
"""The name, and the multiple of it, that take the place of a number of a role; None leaves it."""


def map_numbers(kernel: Kernel, rule: Rule) -> Kernel:
    """Each number through the rule, in an order that names and numbers do not change."""
    return _Mapped(rule).kernel(kernel)


class _Values:
    """Expressions and sizes."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._buffers: dict[str, Buffer] = {}

    def _load(self, load: Load) -> Load:
        buffer, index = self._buffers[load.buffer.name], load.index
        if len(buffer.shape) != len(index):
            index = (row_major(index, load.buffer.shape),)
        return Load(buffer, tuple(self._dim(dim, "offset") for dim in index))

    def _expr(self, expr: Expr, role: str) -> Expr:
        match expr:
            case Lit():
                return self._literal(expr, role)
            case Load():
                return self._load(expr)
            case Index(dim):
                return Index(self._dim(dim, role))
            case Binary("-", left, Lit(value, dtype)) if dtype.is_int and dtype.is_signed:
                # As the sum that it is where the number is negative.
                number, made = Lit(-value, dtype), self._expr(left, "offset")
                added = self._literal(number, "offset")
                return replace(expr, left=made) if added == number else Binary("+", made, added)
            case Binary(op, left, right):
                by = _FLOAT_ROLES if expr.left.dtype.is_float else _ROLES
                inner = by.get(op, "limit" if expr.dtype is DType.BOOL else "offset")
                return Binary(op, self._expr(left, inner), self._expr(right, inner))
            case Select(condition, then, otherwise):
                made = self._expr(condition, "limit")
                return Select(made, self._expr(then, role), self._expr(otherwise, role))
            case Apply("max" | "min"):
                role = "low" if expr.function == "max" else "high"
        return mapped(expr, PARTS, lambda part: self._expr(part, role))

    def _literal(self, lit: Lit, role: str) -> Expr:
        """Numbers that a parameter can be: those of float and of integers up to int32_t."""
        number = lit.dtype is DType.F32 and not math.isnan(lit.value)
        if not number and (not lit.dtype.is_int or not lit.dtype.is_signed or lit.dtype.bytes > 4):
            return lit
        value = float(lit.value) if lit.dtype is DType.F32 else int(lit.value)
        made = self._rule(Number(value, lit.dtype), role)
        if made is None:
            return lit
        name, ratio = made
        local = Local(name, lit.dtype)
        return local if ratio == 1 else Binary("*", local, Lit(ratio, lit.dtype))

    def _dim(self, dim: Dim, role: str) -> Dim:
        total = Dim.of(0)
        for coefficient, factors in (term for term in dim.terms if term[1]):
            product = self._number(coefficient, "stride")
            for atom, power in factors:
                base = self._atom(atom)
                for _ in range(power):
                    product = product * base
            total = total + product
        constant = sum(c for c, factors in dim.terms if not factors)
        return total + self._number(constant, role)

    def _number(self, value: int, role: str) -> Dim:
        made = self._rule(Number(value, DType.I32), role)
        return Dim.of(made[0]) * made[1] if made else Dim.of(value)

    def _atom(self, atom: Atom) -> Dim:
        match atom:
            case str():
                return Dim.of(atom)
            case FloorDiv(left, right):
                return self._dim(left, "offset") // self._dim(right, "divisor")
            case Mod(left, right):
                return self._dim(left, "offset") % self._dim(right, "divisor")
            case Min() | Max():
                args = [self._dim(arg, "limit") for arg in sorted(atom.args, key=_without_numbers)]
                return dim_min(*args) if isinstance(atom, Min) else dim_max(*args)


class _Mapped(_Values):
    def kernel(self, kernel: Kernel) -> Kernel:
        fixed = not kernel.free_symbols
        inputs, outputs, scratch = (
            tuple(self._shaped(buffer, fixed) for buffer in side)
            for side in (kernel.inputs, kernel.outputs, kernel.scratch)
        )
        body = self._body(kernel.body)
        return replace(kernel, inputs=inputs, outputs=outputs, scratch=scratch, body=body)

    def _shaped(self, buffer: Buffer, fixed: bool) -> Buffer:
        """With one axis where its elements are found by a sum (`linear_c`)."""
        if all(size.is_constant for size in buffer.shape[not fixed :]):
            buffer = replace(buffer, shape=(math.prod(buffer.shape, start=Dim.of(1)),))
        last = len(buffer.shape) - 1
        shape = tuple(
            self._dim(size, AXES[min(last - axis, len(AXES) - 1)])
            for axis, size in enumerate(buffer.shape)
        )
        self._buffers[buffer.name] = replace(buffer, shape=shape)
        return self._buffers[buffer.name]

    def _body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(self._stmt, body))

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For(variable, start, stop, body):
                first = self._dim(start, f"{variable}_first")
                last = self._dim(stop, f"{variable}_{'count' if start == 0 else 'limit'}")
                return replace(stmt, start=first, stop=last, body=self._body(body))
            case Store(buffer, index, value):
                place = self._load(Load(buffer, index))
                return Store(place.buffer, place.index, self._expr(value, "value"))
            case Declare(local, value):
                return Declare(local, self._expr(value, f"{local.name}_start"))
            case Assign(local, value):
                return Assign(local, self._expr(value, f"{local.name}_value"))
            case Let(name, value):
                return Let(name, self._dim(value, f"{name}_offset"))
            case Bind():
                low, high = self._dim(stmt.low, "low"), self._dim(stmt.high, "high")
                return replace(stmt, value=self._expr(stmt.value, "index"), low=low, high=high)
            case If(condition, then, otherwise):
                made = self._expr(condition, "limit")
                return If(made, self._body(then), self._body(otherwise))
            case Barrier():
                return stmt
            case Reserve(buffer):
                self._buffers[buffer.name] = buffer
                return stmt
            case Multiply():
                return self._multiply(stmt)
            case Micro():
                operands = tuple(self._load(load) for load in stmt.operands)
                return replace(stmt, operands=operands, sizes=self._sizes(stmt))

    def _multiply(self, stmt: Multiply) -> Multiply:
        return Multiply(
            self._buffers[stmt.sums.name],
            self._dim(stmt.rows, "rows"),
            self._dim(stmt.columns, "columns"),
            tuple(
                (
                    self._dim(count, "steps"),
                    self._dim(left, "left_step"),
                    self._dim(right, "right_step"),
                )
                for count, left, right in stmt.levels
            ),
            self._load(stmt.left),
            self._dim(stmt.left_row, "left_row_stride"),
            self._load(stmt.right),
            stmt.separate,
        )

    def _sizes(self, stmt: Micro) -> tuple[Dim, ...]:
        if stmt.kernel.in_flash:
            members = zip(stmt.kernel.sizes, stmt.sizes, strict=True)
            values = tuple((member, size.constant) for member, size in members)
            made = self._rule(Number(values, stmt.kernel.struct), "sizes")
            return (Dim.of(made[0]),) if made else stmt.sizes
        pairs = zip(stmt.sizes, stmt.kernel.sizes, strict=True)
        return tuple(self._dim(size, role) for size, role in pairs)


def _without_numbers(dim: Dim) -> str:
    return str([factors for _, factors in dim.terms if factors])


def canonical(kernel: Kernel) -> tuple[Kernel, dict[str, str]]:
    """With names in the order of definition, and the names that they had. Symbols of the model
    keep theirs."""
    names = [buffer.name for buffer in kernel.buffers]
    names += [name for stmt in walk(kernel.body) if (name := defined_name(stmt))]
    new = {name: f"#{number:03}" for number, name in enumerate(dict.fromkeys(names))}
    return renamed(kernel, new), {short: name for name, short in new.items()}


def renamed(kernel: Kernel, names: dict[str, str]) -> Kernel:
    """Buffers, loop variables, indices and scalars by other names. A symbol of the model may be
    called as a buffer is."""
    inside = {defined_name(stmt) for stmt in walk(kernel.body) if not isinstance(stmt, Reserve)}
    others = {old: new for old, new in names.items() if old in inside}
    inputs, outputs, scratch = (
        tuple(replace(old, name=names.get(old.name, old.name)) for old in side)
        for side in (kernel.inputs, kernel.outputs, kernel.scratch)
    )
    return Kernel(kernel.name, inputs, outputs, scratch, renamed_body(kernel.body, others, names))
