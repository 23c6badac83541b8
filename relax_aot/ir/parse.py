# SPDX-License-Identifier: Apache-2.0
"""Text -> IR: reads what text.py prints, `parse(to_text(m), data) == m`.

Everything is defined above its use. A value's annotation may say less than its type; such a
module is a draft, which `ops.refine` makes exact. The bytes of a constant that stands as a
digest come from `constants`, by the constant's name or by the digest. Whether the program
makes sense is for check.py to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from relax_aot.ir.dim_text import dim, integer
from relax_aot.ir.graph import (
    Alias,
    Array,
    Attr,
    Call,
    Condition,
    Constant,
    Division,
    Function,
    Growth,
    Module,
    State,
    Symbol,
    Var,
    attr_value,
)
from relax_aot.ir.lexer import Cursor, TextError
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.parse_extern import extern
from relax_aot.ir.parse_kernel import kernel
from relax_aot.ir.parse_values import (
    DTYPES,
    WORDS,
    annotation,
    at_number,
    inline_data,
    number,
    tensor_type,
)
from relax_aot.ir.text import VERSION
from relax_aot.ir.types import CoarseType, Ref, TensorType


def parse(
    text: str,
    constants: Mapping[str, Array] | None = None,
    micro_kernels: Mapping[str, MicroKernel] | None = None,
) -> Module:
    """The module that `text` spells. `micro_kernels`: those that its kernels may call."""
    try:
        return _module(Cursor(text), constants or {}, micro_kernels or {})
    except RecursionError:
        raise TextError("the text is nested without end") from None


def _module(
    cursor: Cursor, data: Mapping[str, Array], micro_kernels: Mapping[str, MicroKernel]
) -> Module:
    cursor.skip_lines()
    if cursor.take_word("relax_aot"):
        _version(cursor)
    source = ""
    if cursor.take_word("module"):
        source = cursor.string("the name of the source, as a string")
        cursor.end_line()
    found: dict[str, list[Any]] = {"functions": [], "constants": []}
    block: Any
    while cursor.token.kind != "end":
        match cursor.token.text if cursor.token.kind == "name" else "":
            case "symbol" | "inner":
                kind, block = "symbols", _symbol(cursor)
            case "require":
                kind, block = "conditions", _condition(cursor)
            case "state":
                kind, block = "states", _state(cursor)
            case "alias":
                kind, block = "aliases", _alias(cursor)
            case "const":
                kind, block = "constants", _constant(cursor, data)
            case "extern":
                kind, block = "externs", extern(cursor)
            case "func":
                kind, block = "functions", _function(cursor, found["constants"])
            case "kernel":
                kind, block = "kernels", kernel(cursor, micro_kernels)
            case _:
                cursor.fail("symbol, inner, require, state, alias, const, extern, func or kernel")
        found.setdefault(kind, []).append(block)
        cursor.end_line()
    if not found["functions"]:
        cursor.fail("a function (func @main(...) { ... })")
    blocks: dict[str, Any] = {kind: tuple(parts) for kind, parts in found.items()}
    return Module(source=source, **blocks)


def _version(cursor: Cursor) -> None:
    cursor.expect_word("text", "`text` and the version of the text form")
    readable = map(str, range(1, VERSION + 1))
    if not (cursor.token.kind == "number" and cursor.token.text in readable):
        cursor.fail(f"a version of the text form from 1 to {VERSION}")
    cursor.advance()
    cursor.end_line()


# Facts


def _symbol(cursor: Cursor) -> Symbol:
    inner = bool(cursor.take_word("inner"))
    cursor.expect_word("symbol", "`symbol`")
    name = cursor.name("the name of a size")
    cursor.expect_word("in", "`in` and its bounds, such as `in 1..128`")
    low = integer(cursor)
    cursor.expect("..")
    high = integer(cursor)
    growth = _growth(cursor) if cursor.take_word("grows") else None
    division = _division(cursor) if cursor.take_word("in") else None
    return Symbol(name, low, high, cursor.origin(), inner, growth, division)


def _growth(cursor: Cursor) -> Growth:
    cursor.expect_word("to", "`to` and the length after a call, such as `grows to m + 1`")
    after = dim(cursor)
    cursor.expect_word("within", "`within` and the capacity, such as `within 512`")
    return Growth(after, integer(cursor), integer(cursor) if cursor.take_word("of") else 0)


def _division(cursor: Cursor) -> Division:
    for word in ("parts", "of"):
        cursor.expect_word(word, "`in parts of 16 of 64`")
    part = integer(cursor)
    cursor.expect_word("of", "`of` and the greatest size of a call, such as `of 64`")
    return Division(part, integer(cursor))


def _condition(cursor: Cursor) -> Condition:
    cursor.advance()
    left = dim(cursor)
    relation = cursor.take("==", "<=", ">=", "<", ">")
    if not relation:
        cursor.fail("a relation (== <= >= < >)")
    right = dim(cursor)
    if relation in (">", ">="):
        left, right = right, left
    if relation in ("<", ">"):
        left = left + 1
    return Condition("==" if relation == "==" else "<=", left, right, cursor.origin())


def _state(cursor: Cursor) -> State:
    cursor.advance()
    before = _value_name(cursor)
    cursor.expect("=")
    after = _value_name(cursor)
    if not cursor.take_word("with"):
        return State(before, after)
    length = cursor.name("the name of a length")
    cursor.expect_word("on", "`on` and an axis, such as `on axis 0`")
    cursor.expect_word("axis", "`axis` and its number")
    return State(before, after, length, integer(cursor))


def _alias(cursor: Cursor) -> Alias:
    cursor.advance()
    name = cursor.name("the name of a parameter, result or symbol")
    cursor.expect("=")
    return Alias(name, cursor.string("its name in the source"))


def _constant(cursor: Cursor, given: Mapping[str, Array]) -> Constant:
    cursor.advance()
    name = _value_name(cursor)
    cursor.expect(":")
    type_ = tensor_type(cursor)
    cursor.expect("=")
    start = cursor.token
    if not all(size.is_constant and size.constant >= 0 for size in type_.shape):
        raise cursor.error(start, f"the sizes of a constant are numbers, got {type_}")
    data = inline_data(cursor, type_)
    if data is not None:
        return Constant(name, type_, data)
    if start.kind != "digest":
        cursor.fail("[elements], splat, or sha256:...")
    cursor.advance()
    return _stored(given, name, type_, start.text.removeprefix("sha256:"))


def _stored(given: Mapping[str, Array], name: str, type_: TensorType, digest: str) -> Constant:
    """The constant whose bytes are in the table of data."""
    data = given.get(name, given.get(digest))
    shape = tuple(size.constant for size in type_.shape)
    if data is None:
        nothing = np.broadcast_to(np.zeros((), type_.dtype.numpy), shape)
        return Constant(name, type_, nothing, digest)
    data = np.asarray(data)
    kind = type_.dtype.numpy
    if name not in given and data.nbytes == type_.bytes.constant:
        # A digest names bytes: constants of other types and shapes may share them.
        data = np.frombuffer(data.tobytes(), kind).reshape(shape)
    if data.dtype.kind == "V" and data.dtype.itemsize == kind.itemsize:
        data = data.view(kind)  # .npz knows no bfloat16
    came = f"{data.dtype}{list(data.shape)}"
    if data.dtype != kind or data.shape != shape:
        raise TextError(f"the data given for %{name}: {type_} are {came}")
    constant = Constant(name, type_, data)
    if constant.digest != digest:
        raise TextError(
            f"the data given for %{name} have the digest {constant.digest}, not {digest}:"
            " they belong to another version of this text"
        )
    return constant


# Functions


def _value_name(cursor: Cursor) -> str:
    cursor.expect("%")
    return cursor.name("the name of a value")


def _function(cursor: Cursor, constants: Sequence[Constant]) -> Function:
    cursor.advance()
    cursor.expect("@")
    name = cursor.name("the name of the function")
    values = {constant.name: constant.var for constant in constants}
    cursor.expect("(")
    params = cursor.listed(")", lambda: _define(cursor, values))
    cursor.expect("{")
    cursor.skip_lines()
    body: list[Call] = []
    while not cursor.take_word("return"):
        if not cursor.token.is_mark("%") and not cursor.ahead.is_mark("("):
            cursor.fail("a call (%y: f32[n] = op(%x)) or `return`")
        body.append(_call(cursor, values))
        cursor.end_line()
    results: list[Var] = []
    while cursor.token.is_mark("%", ","):
        if results:
            cursor.expect(",")
        results.append(_use(cursor, values))
    cursor.end_line()
    cursor.expect("}")
    return Function(name, params, tuple(body), tuple(results))


def _define(cursor: Cursor, values: dict[str, Var]) -> Var:
    start = cursor.token
    name = _value_name(cursor)
    if name in values:
        raise cursor.error(start, f"%{name} is defined above already")
    known = annotation(cursor) if cursor.take(":") else CoarseType()
    # Other annotations than exact types are gone when the module is refined.
    values[name] = Var(name, cast(TensorType, known))
    return values[name]


def _use(cursor: Cursor, values: Mapping[str, Var]) -> Var:
    start = cursor.token
    name = _value_name(cursor)
    if name not in values:
        raise cursor.error(start, f"%{name} is not defined above")
    return values[name]


def _call(cursor: Cursor, values: dict[str, Var]) -> Call:
    known = dict(values)
    outs: list[Var] = []
    while cursor.token.is_mark("%"):
        outs.append(_define(cursor, values))
        if not cursor.take(","):
            cursor.expect("=")
            break
    op = cursor.name("the name of an op")
    cursor.expect("(")
    args = cursor.listed(")", lambda: None if cursor.take_word("_") else _use(cursor, known))
    attrs = _attrs(cursor) if cursor.take("{") else ()
    return Call(tuple(outs), op, args, attrs, cursor.origin())


def _attrs(cursor: Cursor) -> tuple[tuple[str, Attr], ...]:
    cursor.skip_lines()
    found: list[tuple[str, Attr]] = []
    while not cursor.take("}"):
        if found:
            cursor.expect(",")
            cursor.skip_lines()
        start = cursor.token
        name = cursor.name("the name of an attribute")
        if name in dict(found):
            raise cursor.error(start, f"the attribute {name} is given twice")
        cursor.expect("=")
        found.append((name, _attr(cursor)))
        cursor.skip_lines()
    return tuple(sorted(found))


def _attr(cursor: Cursor) -> Attr:
    token = cursor.token
    if token.kind == "string":
        return cursor.advance().text
    if cursor.take("@"):
        return Ref(cursor.name("the name of a function or kernel"))
    if cursor.take("["):
        return cursor.listed("]", lambda: _attr(cursor))
    if token.kind == "name" and token.text in DTYPES:
        return DTYPES[cursor.advance().text]
    if at_number(cursor):
        shown = (cursor.ahead if token.is_mark("-") else token).text
        if shown in WORDS or not shown.isdigit():
            return number(cursor)
    return attr_value(dim(cursor))
