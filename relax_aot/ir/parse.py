"""Text -> IR: reads what text.py prints, `parse(to_text(m), data) == m`.

Everything is defined above its use. A value's annotation may say less than its type; such a
module is a draft, which `ops.refine` makes exact. The bytes of a constant that stands as a
digest come from `constants`, by the constant's name or by the digest. Whether the program
makes sense is for check.py to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from relax_aot.ir.dim_text import dim, integer
from relax_aot.ir.extern import Extern
from relax_aot.ir.graph import (
    Alias,
    Array,
    Attr,
    Call,
    Condition,
    Constant,
    Function,
    Module,
    State,
    Symbol,
    Var,
    attr_value,
)
from relax_aot.ir.lexer import Cursor, TextError
from relax_aot.ir.loops import Kernel
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

READABLE = [str(version) for version in range(1, VERSION + 1)]
BLOCKS = "symbol, inner, require, state, alias, const, extern, func or kernel"


def parse(
    text: str,
    constants: Mapping[str, Array] | None = None,
    micro_kernels: Mapping[str, MicroKernel] | None = None,
) -> Module:
    """The module that `text` spells. `micro_kernels`: those that its kernels may call."""
    try:
        return _Parser(Cursor(text), constants or {}, micro_kernels or {}).module()
    except RecursionError:
        raise TextError("the text is nested without end") from None


@dataclass
class _Found:
    functions: list[Function] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    externs: list[Extern] = field(default_factory=list)
    source: str = ""


class _Parser:
    def __init__(
        self,
        cursor: Cursor,
        data: Mapping[str, Array],
        micro_kernels: Mapping[str, MicroKernel],
    ) -> None:
        self.cursor = cursor
        self.data = data
        self.micro_kernels = micro_kernels
        self.found = _Found()

    def module(self) -> Module:
        cursor, found = self.cursor, self.found
        cursor.skip_lines()
        if cursor.take_word("relax_aot"):
            self.version()
        if cursor.take_word("module"):
            found.source = cursor.string("the name of the source, as a string")
            cursor.end_line()
        while cursor.token.kind != "end":
            self.block()
            cursor.end_line()
        if not found.functions:
            cursor.fail("a function (func @main(...) { ... })")
        return Module(
            functions=tuple(found.functions),
            kernels=tuple(found.kernels),
            constants=tuple(found.constants),
            symbols=tuple(found.symbols),
            conditions=tuple(found.conditions),
            states=tuple(found.states),
            aliases=tuple(found.aliases),
            externs=tuple(found.externs),
            source=found.source,
        )

    def version(self) -> None:
        cursor = self.cursor
        if not cursor.take_word("text"):
            cursor.fail("`text` and the version of the text form")
        if not (cursor.token.kind == "number" and cursor.token.text in READABLE):
            cursor.fail(f"a version of the text form from 1 to {VERSION}")
        cursor.advance()
        cursor.end_line()

    def block(self) -> None:
        cursor, found = self.cursor, self.found
        match cursor.token.text if cursor.token.kind == "name" else "":
            case "symbol" | "inner":
                found.symbols.append(self.symbol())
            case "require":
                found.conditions.append(self.condition())
            case "state":
                cursor.advance()
                before = self.value_name()
                cursor.expect("=")
                found.states.append(State(before, self.value_name()))
            case "alias":
                cursor.advance()
                name = cursor.name("the name of a parameter, result or symbol")
                cursor.expect("=")
                found.aliases.append(Alias(name, cursor.string("its name in the source")))
            case "const":
                cursor.advance()
                found.constants.append(self.constant())
            case "extern":
                cursor.advance()
                found.externs.append(extern(cursor))
            case "func":
                cursor.advance()
                found.functions.append(self.function())
            case "kernel":
                cursor.advance()
                found.kernels.append(kernel(cursor, self.micro_kernels))
            case _:
                cursor.fail(BLOCKS)

    # Facts

    def symbol(self) -> Symbol:
        cursor = self.cursor
        inner = bool(cursor.take_word("inner"))
        if not cursor.take_word("symbol"):
            cursor.fail("`symbol`")
        name = cursor.name("the name of a size")
        if not cursor.take_word("in"):
            cursor.fail("`in` and its bounds, such as `in 1..128`")
        low = integer(cursor)
        cursor.expect("..")
        high = integer(cursor)
        return Symbol(name, low, high, cursor.origin(), inner)

    def condition(self) -> Condition:
        cursor = self.cursor
        cursor.advance()
        left = dim(cursor)
        relation = cursor.take("==", "<=", ">=", "<", ">")
        if not relation:
            cursor.fail("a relation (== <= >= < >)")
        right = dim(cursor)
        if relation in ("<", ">="):
            left, right = (left + 1, right) if relation == "<" else (right, left)
        elif relation == ">":
            left, right = right + 1, left
        relation = "==" if relation == "==" else "<="
        return Condition(relation, left, right, cursor.origin())

    def constant(self) -> Constant:
        cursor = self.cursor
        name, type_ = self.typed()
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
        return self.stored(name, type_, start.text.removeprefix("sha256:"))

    def stored(self, name: str, type_: TensorType, digest: str) -> Constant:
        """The constant whose bytes are in the table of data."""
        data = self.data.get(name, self.data.get(digest))
        shape = tuple(size.constant for size in type_.shape)
        if data is None:
            nothing = np.broadcast_to(np.zeros((), type_.dtype.numpy), shape)
            return Constant(name, type_, nothing, digest)
        data = np.asarray(data)
        kind = type_.dtype.numpy
        if name not in self.data and data.nbytes == type_.bytes.constant:
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

    def value_name(self) -> str:
        self.cursor.expect("%")
        return self.cursor.name("the name of a value")

    def typed(self) -> tuple[str, TensorType]:
        name = self.value_name()
        self.cursor.expect(":")
        return name, tensor_type(self.cursor)

    def function(self) -> Function:
        cursor = self.cursor
        cursor.expect("@")
        name = cursor.name("the name of the function")
        values = {constant.name: constant.var for constant in self.found.constants}
        cursor.expect("(")
        params: list[Var] = []
        while not cursor.take(")"):
            if params:
                cursor.expect(",")
            params.append(self.define(values))
        cursor.expect("{")
        cursor.skip_lines()
        body: list[Call] = []
        while not cursor.take_word("return"):
            if not cursor.token.is_mark("%") and not cursor.ahead.is_mark("("):
                cursor.fail("a call (%y: f32[n] = op(%x)) or `return`")
            body.append(self.call(values))
            cursor.end_line()
        results: list[Var] = []
        while cursor.token.is_mark("%", ","):
            if results:
                cursor.expect(",")
            results.append(self.use(values))
        cursor.end_line()
        cursor.expect("}")
        return Function(name, tuple(params), tuple(body), tuple(results))

    def define(self, values: dict[str, Var]) -> Var:
        start = self.cursor.token
        name = self.value_name()
        if name in values:
            raise self.cursor.error(start, f"%{name} is defined above already")
        known = annotation(self.cursor) if self.cursor.take(":") else CoarseType()
        # Other annotations than exact types are gone when the module is refined.
        values[name] = Var(name, cast(TensorType, known))
        return values[name]

    def use(self, values: Mapping[str, Var]) -> Var:
        start = self.cursor.token
        name = self.value_name()
        if name not in values:
            raise self.cursor.error(start, f"%{name} is not defined above")
        return values[name]

    def call(self, values: dict[str, Var]) -> Call:
        cursor = self.cursor
        known = dict(values)
        outs: list[Var] = []
        while cursor.token.is_mark("%"):
            outs.append(self.define(values))
            if not cursor.take(","):
                cursor.expect("=")
                break
        op = cursor.name("the name of an op")
        cursor.expect("(")
        args: list[Var | None] = []
        while not cursor.take(")"):
            if args:
                cursor.expect(",")
            args.append(None if cursor.take_word("_") else self.use(known))
        attrs = self.attrs() if cursor.token.is_mark("{") else ()
        return Call(tuple(outs), op, tuple(args), attrs, cursor.origin())

    def attrs(self) -> tuple[tuple[str, Attr], ...]:
        cursor = self.cursor
        cursor.expect("{")
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
            found.append((name, self.attr()))
            cursor.skip_lines()
        return tuple(sorted(found))

    def attr(self) -> Attr:
        cursor = self.cursor
        token = cursor.token
        if token.kind == "string":
            return cursor.advance().text
        if cursor.take("@"):
            return Ref(cursor.name("the name of a function or kernel"))
        if cursor.take("["):
            items: list[Attr] = []
            while not cursor.take("]"):
                if items:
                    cursor.expect(",")
                items.append(self.attr())
            return tuple(items)
        if token.kind == "name" and token.text in DTYPES:
            return DTYPES[cursor.advance().text]
        if at_number(cursor):
            shown = (cursor.ahead if token.is_mark("-") else token).text
            if shown in WORDS or not shown.isdigit():
                return number(cursor)
        return attr_value(dim(cursor))
