# SPDX-License-Identifier: Apache-2.0
"""Text -> kernels. Part of parse.py.

Names are known from where they are defined: a buffer from the kernel's head, a scalar
from its `local`.
"""

from __future__ import annotations

from collections.abc import Mapping

from relax_aot.ir.axes import ARENA, PARALLEL_AXES, REGISTER, SCOPES
from relax_aot.ir.dim_text import dim
from relax_aot.ir.dims import Dim
from relax_aot.ir.lexer import Cursor
from relax_aot.ir.loops import (
    FUNCTIONS,
    OPERATORS,
    Apply,
    Assign,
    Barrier,
    Binary,
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
    Micro,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
)
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.parse_values import DTYPES, at_number, dims, dtype, number, tensor_type
from relax_aot.ir.types import DType


def kernel(cursor: Cursor, micro_kernels: Mapping[str, MicroKernel] | None = None) -> Kernel:
    """A kernel, from its word on. `micro_kernels`: those that it may call."""
    cursor.expect_word("kernel", "`kernel`")
    cursor.expect("@")
    name = cursor.name("the kernel's name")
    inputs = _buffers(cursor)
    cursor.expect("->")
    outputs = _buffers(cursor)
    scratch = _buffers(cursor) if cursor.take_word("scratch") else ()
    parser = _Body(cursor, micro_kernels or {})
    for buffer in (*inputs, *outputs, *scratch):
        if buffer.name in parser.buffers:
            cursor.fail(f"another name: two buffers are called %{buffer.name}; the body")
        parser.buffers[buffer.name] = buffer
    in_place = _pairs(cursor) if cursor.take_word("in_place") else ()
    return Kernel(name, inputs, outputs, scratch, parser.block(), in_place)


def _pairs(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """`(%x = %y)`: an input and an output that may be the same memory."""

    def pair() -> tuple[str, str]:
        cursor.expect("%")
        read = cursor.name("the name of an input")
        cursor.expect("=")
        cursor.expect("%")
        return read, cursor.name("the name of an output")

    cursor.expect("(")
    return cursor.listed(")", pair)


def _buffers(cursor: Cursor) -> tuple[Buffer, ...]:
    cursor.expect("(")
    return cursor.listed(")", lambda: _buffer(cursor))


def _buffer(cursor: Cursor, scope: str = ARENA) -> Buffer:
    """`%x: f32[n]` with the given scope, or `%x: f32[n] in core`."""
    cursor.expect("%")
    name = cursor.name("the name of a buffer")
    cursor.expect(":")
    type_ = tensor_type(cursor)
    if cursor.take_word("in"):
        scope = _one_of(cursor, SCOPES, "a scope")
    return Buffer(name, type_.dtype, type_.shape, scope)


def _one_of(cursor: Cursor, names: tuple[str, ...], what: str) -> str:
    start, expected = cursor.token, f"{what} ({', '.join(names)})"
    name = cursor.name(expected)
    if name not in names:
        raise cursor.error(start, f"expected {expected}, got `{name}`")
    return name


class _Expressions:
    """Every compound expression stands in parentheses."""

    def __init__(self, cursor: Cursor, micro_kernels: Mapping[str, MicroKernel]) -> None:
        self.cursor = cursor
        self.micro_kernels = micro_kernels
        self.buffers: dict[str, Buffer] = {}
        self.locals: dict[str, Local] = {}

    def load(self) -> Load:
        cursor, start = self.cursor, self.cursor.token
        name = cursor.name("the name of a buffer")
        if name not in self.buffers:
            known = ", ".join(f"%{buffer}" for buffer in self.buffers)
            raise cursor.error(start, f"the kernel has no buffer %{name}, only {known}")
        index = dims(cursor)
        buffer = self.buffers[name]
        if len(index) != buffer.rank:
            raise cursor.error(start, f"%{name}: {buffer.type} takes {buffer.rank} indices")
        return Load(buffer, index)

    def local(self, expected: str) -> Local:
        start = self.cursor.token
        name = self.cursor.name(expected)
        if name not in self.locals:
            raise self.cursor.error(start, f"expected {expected}, got `{name}`, no scalar here")
        return self.locals[name]

    def expr(self) -> Expr:
        cursor = self.cursor
        if at_number(cursor) and not (cursor.ahead.is_mark("(") and cursor.token.kind == "name"):
            return self.literal()
        if sign := cursor.take("-", "!"):
            return Unary(sign, self.expr())
        if cursor.take("%"):
            return self.load()
        if cursor.take("("):
            return self.compound()
        if cursor.token.kind == "name" and cursor.ahead.is_mark("("):
            return self.function()
        return self.local("an expression")

    def literal(self) -> Lit:
        value = number(self.cursor)
        self.cursor.expect(":")
        return Lit(value, dtype(self.cursor))

    def compound(self) -> Expr:
        cursor = self.cursor
        inner = self.expr()
        start = cursor.token
        if operator := cursor.take(*OPERATORS):
            right = self.expr()
            if inner.dtype is not right.dtype:
                kinds = f"{inner.dtype.value} and {right.dtype.value}"
                raise cursor.error(start, f"`{operator}` takes sides of one type, got {kinds}")
            inner = Binary(operator, inner, right)
        cursor.expect(")")
        return inner

    def function(self) -> Expr:
        cursor, start = self.cursor, self.cursor.advance()
        cursor.expect("(")
        if start.text == "index":
            inner: Expr = Index(dim(cursor))
        elif start.text == "cast":
            inner = self.cast()
        elif start.text in DTYPES:
            inner = Cast(self.expr(), DTYPES[start.text])
        else:
            args = [self.expr()]
            while cursor.take(","):
                args.append(self.expr())
            count = 3 if start.text == "select" else FUNCTIONS.get(start.text)
            if count is None:
                raise cursor.error(start, f"unknown scalar function {start.text}")
            if len(args) != count:
                raise cursor.error(start, f"{start.text} takes {count} arguments, got {len(args)}")
            inner = Select(*args) if start.text == "select" else Apply(start.text, tuple(args))
        cursor.expect(")")
        return inner

    def cast(self) -> Cast:
        value = self.expr()
        self.cursor.expect(",")
        kind: DType = dtype(self.cursor)
        self.cursor.expect(",")
        if not self.cursor.at_word("wrap", "saturate", "bits"):
            self.cursor.fail("one of wrap, saturate, bits")
        return Cast(value, kind, self.cursor.advance().text)


class _Body(_Expressions):
    """Statements of a kernel."""

    def block(self) -> tuple[Stmt, ...]:
        """`{ ... }`; scalars declared inside are unknown behind it."""
        outer, buffers = dict(self.locals), dict(self.buffers)
        self.cursor.expect("{")
        self.cursor.skip_lines()
        body: list[Stmt] = []
        while not self.cursor.take("}"):
            body.append(self.statement())
            self.cursor.end_line()
        self.locals, self.buffers = outer, buffers
        return tuple(body)

    def statement(self) -> Stmt:
        cursor = self.cursor
        if cursor.take_word("for"):
            variable = cursor.name("a loop variable")
            start, stop = self.range()
            axis = ""
            if cursor.take_word("parallel"):
                cursor.expect("(")
                axis = _one_of(cursor, PARALLEL_AXES, "an axis")
                cursor.expect(")")
            return For(variable, start, stop, self.block(), axis)
        if cursor.take_word("barrier"):
            return Barrier(_one_of(cursor, PARALLEL_AXES, "an axis"))
        if cursor.take_word("if"):
            condition, then = self.expr(), self.block()
            return If(condition, then, self.block() if cursor.take_word("else") else ())
        if cursor.take_word("local"):
            return self.declare()
        if cursor.take_word("let"):
            name = cursor.name("a name")
            cursor.expect("=")
            return Let(name, dim(cursor))
        if cursor.at_word("bind", "clamped", "checked"):
            return self.bind()
        if cursor.take_word("reserve"):
            buffer = _buffer(cursor, REGISTER)
            self.buffers[buffer.name] = buffer
            return Reserve(buffer)
        if cursor.take_word("multiply"):
            return self.multiply()
        if cursor.take_word("micro"):
            return self.micro()
        if cursor.take("%"):
            where = self.load()
            cursor.expect("=")
            return Store(where.buffer, where.index, self.expr())
        local = self.local(
            "a statement (for, if, local, let, bind, reserve, barrier, multiply, micro, a store or"
            " an assignment)"
        )
        cursor.expect("=")
        return Assign(local, self.expr())

    def declare(self) -> Declare:
        name = self.cursor.name("the name of a scalar")
        self.cursor.expect(":")
        local = Local(name, dtype(self.cursor))
        self.cursor.expect("=")
        value = self.expr()
        self.locals[name] = local
        return Declare(local, value)

    def bind(self) -> Bind:
        cursor = self.cursor
        word = cursor.advance().text
        name = cursor.name("a name")
        low, high = self.range()
        cursor.expect("=")
        return Bind(name, self.expr(), low, high, "" if word == "bind" else word)

    def range(self) -> tuple[Dim, Dim]:
        self.cursor.expect_word("in", "`in`")
        low = dim(self.cursor)
        self.cursor.expect("..")
        return low, dim(self.cursor)

    def multiply(self) -> Multiply:
        cursor = self.cursor
        separate = bool(cursor.take_word("separate"))
        sums = self.operand("=")
        left = self.operand(",")
        row = dim(cursor)
        cursor.expect(",")
        right = self.operand(",")
        levels: list[tuple[Dim, Dim, Dim]] = []
        while not levels or cursor.take(","):
            level, start = dims(cursor), cursor.token
            if len(level) != 3:
                raise cursor.error(start, f"a level is three numbers, got {len(level)}")
            levels.append((level[0], level[1], level[2]))
        rows, columns = sums.index
        return Multiply(sums.buffer, rows, columns, tuple(levels), left, row, right, separate)

    def micro(self) -> Micro:
        cursor, start = self.cursor, self.cursor.token
        name = cursor.name("the name of a micro-kernel")
        if name not in self.micro_kernels:
            raise cursor.error(start, f"unknown micro-kernel {name}")
        kernel = self.micro_kernels[name]
        cursor.expect("(")
        marks = "," * (len(kernel.operands) - 1) + ")" if kernel.operands else ""
        operands = tuple(self.operand(mark) for mark in marks)
        if not operands:
            cursor.expect(")")
        start = cursor.token
        sizes = dims(cursor)
        if len(sizes) != len(kernel.sizes):
            raise cursor.error(start, f"{name} takes {len(kernel.sizes)} sizes, got {len(sizes)}")
        return Micro(kernel, operands, sizes)

    def operand(self, mark: str) -> Load:
        self.cursor.expect("%")
        where = self.load()
        self.cursor.expect(mark)
        return where
