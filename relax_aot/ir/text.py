# SPDX-License-Identifier: Apache-2.0
"""IR -> text: one canonical form for dumps, errors, tests and comments; parse.py reads it.

relax_aot text 2
symbol n in 1..8  # input x, axis 0

func @main(%x: f32[n, 4]) {
  %y: f32[n, 4] = softmax(%x) {axis=-1}  # /c/Softmax
  return %y
}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from relax_aot.ir.axes import ARENA, REGISTER
from relax_aot.ir.dims import Dim
from relax_aot.ir.lexer import comment_text, quoted
from relax_aot.ir.loops import (
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
from relax_aot.ir.parse_values import DTYPES, WORDS, array_of, number_text, numbers_of
from relax_aot.ir.types import DType, Ref

if TYPE_CHECKING:
    from relax_aot.ir.graph import Array, Attr, Call, Constant, Function, Module, Var

VERSION = 2
"""Of the text form; texts without a version line are of version 1."""


def to_text(module: Module) -> str:
    """The whole module. Large constants are given by a digest of their bytes."""
    blocks = ["\n".join([f"relax_aot text {VERSION}", *_facts(module)])]
    blocks += ["\n".join(map(str, module.externs))] if module.externs else []
    blocks += [_function(function) for function in module.functions]
    blocks += [kernel_text(kernel) for kernel in module.kernels]
    return "\n\n".join(blocks) + "\n"


def _facts(module: Module) -> Iterator[str]:
    if module.source:
        yield f"module {json.dumps(module.source)}"
    for symbol in module.symbols:
        kind = "inner symbol" if symbol.inner else "symbol"
        bounds = f"{symbol.low}..{symbol.high}"
        if (growth := symbol.growth) is not None:
            bounds += f" grows to {growth.after} within {growth.capacity}"
            bounds += f" of {growth.places}" if growth.is_window else ""
        if (division := symbol.division) is not None:
            bounds += f" in parts of {division.part} of {division.whole}"
        yield f"{kind} {quoted(symbol.name)} in {bounds}{_origin(symbol.origin)}"
    for condition in module.conditions:
        yield f"require {condition}{_origin(condition.origin)}"
    for state in module.states:
        rows = f" with {quoted(state.length)} on axis {state.axis}" if state.length else ""
        yield f"state {_value(state.input)} = {_value(state.output)}{rows}"
    for alias in module.aliases:
        yield f"alias {quoted(alias.name)} = {json.dumps(alias.source)}"
    for constant in module.constants:
        yield f"const {_typed(constant.var)} = {_data(constant)}"


def is_stored(constant: Constant) -> bool:
    """Whether text holds a digest only, so that the data must come from elsewhere."""
    return _data(constant).startswith("sha256:")


def _data(constant: Constant) -> str:
    data, dtype = constant.data, constant.type.dtype
    if constant.absent:
        return f"sha256:{constant.absent}"
    if data.size <= 8:
        values = numbers_of(data, dtype)
        if array_of(values, dtype).tobytes() == data.tobytes():
            return f"[{', '.join(map(number_text, values))}]"
    elif _is_splat(data):
        element = data[(slice(0, 1),) * data.ndim]
        (first,) = numbers_of(element, dtype)
        if array_of([first], dtype).tobytes() == element.tobytes():
            return f"splat {number_text(first)}"
    return f"sha256:{constant.digest}"


def _is_splat(data: Array) -> bool:
    """All elements have the bytes of the first."""
    if not any(data.strides):
        return True
    bits = np.ascontiguousarray(data).reshape(-1).view(f"u{data.dtype.itemsize}")
    return all(bool((part == bits[0]).all()) for part in (bits[:64], bits))


def _value(name: str) -> str:
    return f"%{quoted(name)}"


def _typed(value: Var | Buffer) -> str:
    return f"{_value(value.name)}: {value.type}"


def _scoped(buffer: Buffer, usual: str) -> str:
    return _typed(buffer) + (f" in {buffer.scope}" if buffer.scope != usual else "")


def _function(function: Function) -> str:
    params = ", ".join(map(_typed, function.params))
    lines = [f"func @{quoted(function.name)}({params}) {{"]
    lines += [f"  {call_text(call)}{_origin(call.origin)}" for call in function.body]
    results = ", ".join(_value(r.name) for r in function.results)
    return "\n".join([*lines, f"  return {results}".rstrip(), "}"])


def _origin(origin: str) -> str:
    return f"  # {comment_text(origin)}" if origin else ""


def call_text(call: Call) -> str:
    """One call, without its origin."""
    outs = ", ".join(map(_typed, call.outs)) + (" = " if call.outs else "")
    args = ", ".join("_" if arg is None else _value(arg.name) for arg in call.args)
    attrs = ", ".join(f"{quoted(name)}={attr_text(value)}" for name, value in call.attrs)
    op = "`return`" if call.op == "return" else quoted(call.op)
    return f"{outs}{op}({args})" + (f" {{{attrs}}}" if attrs else "")


def attr_text(value: Attr) -> str:
    match value:
        case str():
            return json.dumps(value)
        case DType():
            return value.value
        case Ref():
            return f"@{quoted(value.name)}"
        case tuple():
            return f"[{', '.join(attr_text(v) for v in value)}]"
        case Dim():
            # A size may be called f32 or inf; in parentheses it is a size.
            return f"({value})" if value.symbols & (DTYPES.keys() | WORDS.keys()) else str(value)
        case bool() | int() | float():
            return number_text(value)


def kernel_text(kernel: Kernel) -> str:
    """A kernel as indented pseudo-code."""

    def buffers(group: tuple[Buffer, ...]) -> str:
        return ", ".join(_scoped(buffer, ARENA) for buffer in group)

    name = quoted(kernel.name)
    head = f"kernel @{name}({buffers(kernel.inputs)}) -> ({buffers(kernel.outputs)})"
    if kernel.scratch:
        head += f" scratch ({buffers(kernel.scratch)})"
    if kernel.in_place:
        pairs = ", ".join(
            f"{_value(read)} = {_value(written)}" for read, written in kernel.in_place
        )
        head += f" in_place ({pairs})"
    return "\n".join([f"{head} {{", *_block(kernel.body, 1), "}"])


def _block(body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for stmt in body:
        match stmt:
            case For():
                axis = f" parallel({stmt.axis})" if stmt.axis else ""
                yield f"{pad}for {quoted(stmt.variable)} in {stmt.start}..{stmt.stop}{axis} {{"
                yield from _block(stmt.body, depth + 1)
                yield f"{pad}}}"
            case If():
                yield f"{pad}if {expr_text(stmt.condition)} {{"
                yield from _block(stmt.then, depth + 1)
                if stmt.otherwise:
                    yield f"{pad}}} else {{"
                    yield from _block(stmt.otherwise, depth + 1)
                yield f"{pad}}}"
            case Store():
                where = _element(stmt.buffer, stmt.index)
                yield f"{pad}{where} = {expr_text(stmt.value)}"
            case Declare():
                head = f"local {quoted(stmt.local.name)}: {stmt.local.dtype.value}"
                yield f"{pad}{head} = {expr_text(stmt.value)}"
            case Assign():
                yield f"{pad}{_local(stmt.local)} = {expr_text(stmt.value)}"
            case Let():
                yield f"{pad}let {quoted(stmt.name)} = {stmt.value}"
            case Reserve():
                yield f"{pad}reserve {_scoped(stmt.buffer, REGISTER)}"
            case Barrier():
                yield f"{pad}barrier {stmt.axis}"
            case Multiply():
                sums = _element(stmt.sums, (stmt.rows, stmt.columns))
                left, right = expr_text(stmt.left), expr_text(stmt.right)
                levels = ", ".join(f"[{', '.join(map(str, level))}]" for level in stmt.levels)
                word = "multiply separate" if stmt.separate else "multiply"
                yield f"{pad}{word} {sums} = {left}, {stmt.left_row}, {right}, {levels}"
            case Micro():
                operands = ", ".join(map(expr_text, stmt.operands))
                sizes = ", ".join(map(str, stmt.sizes))
                yield f"{pad}micro {stmt.name}({operands}) [{sizes}]"
            case Bind():
                value = expr_text(stmt.value)
                word = stmt.trust or "bind"
                yield f"{pad}{word} {quoted(stmt.name)} in {stmt.low}..{stmt.high} = {value}"


def expr_text(expr: Expr) -> str:
    """An expression; every compound one in parentheses."""
    match expr:
        case Lit():
            return f"{number_text(expr.value)}:{expr.dtype.value}"
        case Local():
            return _local(expr)
        case Index():
            return f"index({expr.dim})"
        case Load():
            return _element(expr.buffer, expr.index)
        case Unary():
            # `(-1.0:f32)` is a literal.
            inner = expr_text(expr.value)
            return f"({expr.op}({inner}))" if isinstance(expr.value, Lit) else f"({expr.op}{inner})"
        case Binary():
            return f"({expr_text(expr.left)} {expr.op} {expr_text(expr.right)})"
        case Apply():
            return f"{expr.function}({', '.join(map(expr_text, expr.args))})"
        case Cast():
            return f"cast({expr_text(expr.value)}, {expr.dtype.value}, {expr.mode})"
        case Select():
            sides = (expr.condition, expr.then, expr.otherwise)
            return f"select({', '.join(map(expr_text, sides))})"


_STATEMENTS = (
    "for", "if", "local", "let", "bind", "clamped", "checked", "reserve", "barrier", "multiply",
)  # fmt: skip


def _local(local: Local) -> str:
    reserved = local.name in _STATEMENTS or local.name in WORDS
    return f"`{local.name}`" if reserved else quoted(local.name)


def _element(buffer: Buffer, index: tuple[Dim, ...]) -> str:
    return f"{_value(buffer.name)}[{', '.join(map(str, index))}]"
