# SPDX-License-Identifier: Apache-2.0
"""Tables of externs: TOML files that join C functions to calls of a graph.

    header = "rms.h"
    sources = ["rms.c"]

    [[extern]]
    function = "fast_rms"
    replaces = "%y = rms_norm(%x, %gain) {epsilon=$epsilon}"
    [extern.arguments]
    x = { input = "f32[*m, k]" }
    gain = { input = "f32[k]" }
    y = { output = "f32[*m, k]" }
    rows = { size = "m" }
    width = { size = "k" }
    epsilon = { attribute = "epsilon" }

The C prototype gives order and C types; the table gives each parameter a meaning. All of it
is checked here, so that a mistake is named with file, key and C declaration.

A table of `[[product]]` has no header: it says which products of matrices a library of a GPU
computes (relax_aot/externs/cublaslt.toml).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relax_aot.externs._error import ExternError
from relax_aot.externs.files import inside, read_files
from relax_aot.externs.header import Header, Parameter, Prototype, read_header
from relax_aot.externs.pattern import Pattern, parse_pattern
from relax_aot.externs.rule import (
    Argument,
    Axis,
    Kind,
    ProductRule,
    Requirement,
    Rule,
    TableFile,
    TypeRule,
)
from relax_aot.ir.dims import Dim, DimSyntaxError, parse_dim, parse_relation
from relax_aot.ir.extern import FLOATS, INTEGER_RANGES, Extern, ExternParam, Returns, Role
from relax_aot.ir.types import C_TYPES, DType, TensorType
from relax_aot.ops import all_ops
from relax_aot.resources import data_dir

TOP_KEYS = ("header", "sources", "extern", "title")
PRODUCT_KEYS = ("library", "types", "requires", "absent", "workspace")
PRODUCT_SIZES = frozenset({"rows", "columns", "steps", "batch"})
PRODUCT_TYPES = (DType.F32, DType.F16, DType.BF16)
PRODUCT_LIBRARIES = ("cublaslt",)
MOST_WORKSPACE = 1 << 30
ABSENT = {"own": False, "fail": True}
"""What a program does without the library, and whether it is required then."""
EXTERN_KEYS = ("function", "name", "replaces", "node", "requires", "returns", "arguments")
ROLES = {
    Kind.INPUT: Role.INPUT, Kind.OUTPUT: Role.OUTPUT, Kind.UPDATE: Role.UPDATE,
    Kind.SCRATCH: Role.SCRATCH,
}  # fmt: skip
ENDS = {Kind.INPUT: ("of",), Kind.OUTPUT: ("of",), Kind.UPDATE: ("of", "to")}
"""Keys other than the kind: they select values of the pattern."""
TENSORS = tuple(ROLES)


@dataclass(frozen=True, slots=True)
class _At:
    """A table of the file, and what a message says about where it stands."""

    path: Path
    where: str
    data: dict[str, Any]
    declaration: str = ""

    def fail(self, key: str, problem: str) -> ExternError:
        shown = f"\n  C: {self.declaration}" if self.declaration else ""
        return ExternError(f"{self.path}: {self.where}{key}: {problem}{shown}")

    def only(self, known: Sequence[str]) -> None:
        for key in self.data:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise self.fail(key, f"unknown key; {hint}")

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str) or not value.strip():
            got = f"got {value!r}" if key in self.data else "it is missing"
            raise self.fail(key, f"expected a text; {got}")
        return value.strip()

    def chosen(self, key: str, known: Sequence[str]) -> str:
        text = self.text(key)
        if text not in known:
            raise self.fail(key, f"expected one of {', '.join(known)}; got {text!r}")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.fail(key, f"expected a text or a list of texts; got {value!r}")
        return tuple(value)


def read_table(path: Path, *, expected: bool) -> TableFile:
    """The rules of one file. `expected`: each must replace something, or it is an error."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExternError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExternError(f"{path}: not valid TOML: {error}") from None
    top = _At(path, "", data)
    if "product" in data:
        return _products(top)
    top.only(TOP_KEYS)
    name = top.text("header")
    sources = top.texts("sources")
    for key, names in (("header", (name,)), ("sources", sources)):
        for one in names:
            if not inside(path, one):
                raise top.fail(key, f"expected a path below the table's folder, got {one!r}")
    for source in sources:
        if not source.endswith(".c"):
            raise top.fail("sources", f"expected names of C sources (.c), got {source!r}")
    c_files = read_files(path, name, sources)
    header = read_header(path.parent / name, (data_dir("runtime_c") / "include",))
    entries = data.get("extern")
    if not isinstance(entries, list) or not entries:
        raise top.fail("extern", "expected at least one [[extern]]")
    rules = tuple(
        _rule(_At(path, f"extern[{i}].", entry), header, name, expected)
        for i, entry in enumerate(entries)
    )
    return TableFile(path, rules, name, c_files.files, c_files.units, header.names, header.macros)


def _products(top: _At) -> TableFile:
    """A table of `[[product]]` alone."""
    top.only(("product", "title"))
    entries = top.data["product"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise top.fail("product", "expected [[product]]")
    rules = tuple(
        _product(_At(top.path, f"product[{i}].", entry)) for i, entry in enumerate(entries)
    )
    return TableFile(top.path, (), "", {}, (), frozenset(), frozenset(), rules)


def _product(at: _At) -> ProductRule:
    at.only(PRODUCT_KEYS)
    library = at.chosen("library", PRODUCT_LIBRARIES)
    names = at.texts("types")
    known = {one.value: one for one in PRODUCT_TYPES}
    for name in names or ("",):
        if name not in known:
            raise at.fail("types", f"expected some of {', '.join(known)}; got {name!r}")
    workspace = at.data.get("workspace", 0)
    if not isinstance(workspace, int) or not 0 <= workspace <= MOST_WORKSPACE:
        raise at.fail("workspace", f"expected bytes from 0 to {MOST_WORKSPACE}; got {workspace!r}")
    required = ABSENT[at.chosen("absent", tuple(ABSENT))]
    requires = _requires(at, PRODUCT_SIZES)
    types = tuple(known[name] for name in names)
    return ProductRule(library, types, requires, required, workspace)


def _rule(at: _At, header: Header, header_name: str, expected: bool) -> Rule:
    at.only(EXTERN_KEYS)
    function = at.text("function")
    prototype = header.prototypes.get(function)
    if prototype is None:
        close = difflib.get_close_matches(function, header.prototypes, n=1)
        hint = f"did you mean {close[0]!r}?" if close else _listed(header)
        raise at.fail("function", f"{header.path} declares no function {function!r}; {hint}")
    at = _At(at.path, at.where, at.data, str(prototype))
    name = at.text("name") if "name" in at.data else function
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise at.fail("name", f"expected an identifier, got {name!r}")
    pattern = _pattern(at)
    nodes = at.texts("node")
    if pattern is None and not nodes:
        raise at.fail("replaces", 'it is missing; select the calls with a pattern or node = "..."')
    returns = _returns(at, prototype)
    arguments = _arguments(at, prototype, pattern)
    requires = _requires(at, _symbols(arguments, pattern))
    _check_attr_names(at, arguments, requires, pattern)
    params = tuple(
        ExternParam(a.param, ROLES.get(a.kind, Role.VALUE), a.c_type, _declared(a))
        for a in arguments
    )
    extern = Extern(name, function, header_name, params, returns)
    where = f"{at.path}: {at.where}".rstrip(".")
    return Rule(extern, prototype, arguments, pattern, nodes, requires, where, expected)


def _listed(header: Header) -> str:
    names = ", ".join(sorted(header.prototypes)[:10])
    return f"it declares {names}" if names else "it declares none"


def _pattern(at: _At) -> Pattern | None:
    if "replaces" not in at.data:
        return None
    try:
        return parse_pattern(at.text("replaces"), list(all_ops()))
    except ExternError as error:
        raise at.fail("replaces", str(error)) from None


def _returns(at: _At, prototype: Prototype) -> Returns:
    natural = {"void": Returns.NOTHING, "enum raot_status": Returns.STATUS}.get(prototype.returns)
    if "returns" not in at.data:
        if natural is None:
            raise at.fail(
                "returns",
                f'the function returns {prototype.returns}; write "code" (0 is success)'
                ' or "ignored"',
            )
        return natural
    said = at.text("returns")
    integer = prototype.returns in INTEGER_RANGES or prototype.returns.startswith("enum")
    fitting = {
        "nothing": natural is Returns.NOTHING,
        "status": natural is Returns.STATUS,
        "code": integer and natural is None,
        "ignored": natural is not Returns.NOTHING,
    }
    if not fitting.get(said, False):
        known = ", ".join(f'"{name}"' for name, fits in fitting.items() if fits)
        raise at.fail(
            "returns", f"{said!r} does not fit a function that returns {prototype.returns};"
            f" valid values are: {known}"
        )  # fmt: skip
    return Returns(said)


# Arguments


def _arguments(at: _At, prototype: Prototype, pattern: Pattern | None) -> tuple[Argument, ...]:
    given = at.data.get("arguments")
    if not isinstance(given, dict):
        raise at.fail("arguments", "expected a table [extern.arguments]")
    names = [p.name for p in prototype.params]
    if "" in names or "..." in names or len(set(names)) < len(names):
        raise at.fail("function", "every parameter in the prototype needs a unique name")
    inner = _At(at.path, f"{at.where}arguments.", given, at.declaration)
    inner.only(names)
    for name in names:
        if name not in given:
            raise inner.fail(name, "it is missing; every C parameter needs an entry")
    arguments = tuple(_argument(inner, param, pattern) for param in prototype.params)
    _check_names(at, arguments, pattern)
    symbols = frozenset[str]().union(
        *(a.type.symbols for a in arguments if a.type and a.kind is not Kind.SCRATCH)
    )
    symbols |= frozenset(pattern.attr_names if pattern else ())
    for argument in arguments:
        used = argument.size.symbols
        if argument.kind is Kind.SCRATCH and argument.type:
            used = argument.type.symbols
        unknown = sorted(used - symbols)
        if unknown:
            raise inner.fail(
                argument.param,
                f"no parameter has the size {unknown[0]!r}; known are {sorted(symbols)}",
            )
    return arguments


def _argument(at: _At, param: Parameter, pattern: Pattern | None) -> Argument:
    entry = at.data[param.name]
    if not isinstance(entry, dict):
        raise at.fail(param.name, 'expected a table such as { input = "f32[m, k]" }')
    here = _At(at.path, f"{at.where}{param.name}.", entry, at.declaration)
    kinds = [kind for kind in Kind if kind.value in entry]
    if len(kinds) != 1:
        every = ", ".join(kind.value for kind in Kind)
        got = ", ".join(entry) or "nothing"
        raise at.fail(param.name, f"expected exactly one of {every}; got {got}")
    (kind,) = kinds
    here.only([kind.value, *ENDS.get(kind, ())])
    where = f"{at.path}: {at.where}{param.name}"
    if kind in TENSORS:
        rule = _type_rule(here, kind)
        _check_pointer(at, param, kind, rule.dtype)
        ends = {}
        for key in ("of", "to"):
            name = entry.get(key, param.name)
            if not isinstance(name, str):
                raise here.fail(key, f"expected the name of a value in the pattern, got {name!r}")
            ends[key] = name.lstrip("%")
        if kind is Kind.UPDATE and ends["of"] == ends["to"]:
            raise here.fail("to", 'an update reads one value and writes another; write to = "name"')
        made = ends["to" if kind is Kind.UPDATE else "of"]
        return Argument(param.name, kind, param.base, where, rule, ends["of"], made)
    if param.base.startswith("enum") and not param.pointer and kind is not Kind.SIZE:
        param = replace(param, base="int")
    _check_value(at, param)
    if kind is Kind.SIZE:
        return Argument(
            param.name, kind, param.base, where, size=_size(here, kind.value, at, param)
        )
    if kind is Kind.ATTRIBUTE:
        match = re.fullmatch(r"\$?([A-Za-z_]\w*)(?:\[(\d+)\])?", here.text(kind.value))
        if match is None:
            raise here.fail(kind.value, 'expected a name such as "alpha" or "strides[0]"')
        if pattern is not None and match[1] not in pattern.attr_names and len(pattern.lines) > 1:
            raise here.fail(kind.value, f"the pattern does not name an attribute ${match[1]}")
        index = int(match[2]) if match[2] else None
        return Argument(param.name, kind, param.base, where, attribute=(match[1], index))
    if kind is Kind.CONSTANT:
        name = here.text(kind.value).lstrip("%")
        return Argument(param.name, kind, param.base, where, name=name)
    value = entry[kind.value]
    if not isinstance(value, bool | int | float):
        raise here.fail(kind.value, f"expected a number, true or false; got {value!r}")
    problem = value_problem(value, param.base)
    if problem:
        raise here.fail(kind.value, problem)
    return Argument(param.name, kind, param.base, where, literal=value)


def value_problem(value: int | float | bool, c_type: str) -> str:
    """Why a number cannot be passed as `c_type`; empty where it can."""
    if c_type in FLOATS:
        return ""
    if isinstance(value, float):
        return f"{value!r} is not a value of {c_type}"
    low, high = INTEGER_RANGES[c_type]
    return "" if low <= value <= high else f"{value} is outside {c_type} ({low}..{high})"


def _check_pointer(at: _At, param: Parameter, kind: Kind, dtype: DType) -> None:
    const = "const " if kind is Kind.INPUT else ""
    wanted = f"{const}{C_TYPES[dtype]} *{param.name}"
    if not param.pointer or param.base != C_TYPES[dtype]:
        raise at.fail(
            param.name,
            f"{kind.value} of {dtype.value} is `{wanted}` in C; the header has `{param.text}`",
        )
    if kind is Kind.INPUT and not param.const:
        raise at.fail(
            param.name, f"an input is only read: `{wanted}`; the header has `{param.text}`"
        )
    if kind is not Kind.INPUT and param.const:
        raise at.fail(
            param.name, f"{kind.value} is written: `{wanted}`; the header has `{param.text}`"
        )


def _check_value(at: _At, param: Parameter) -> None:
    if param.pointer or (param.base not in INTEGER_RANGES and param.base not in FLOATS):
        raise at.fail(
            param.name, f"expected an integer or floating type in C; the header has `{param.text}`"
        )


def _check_names(at: _At, arguments: tuple[Argument, ...], pattern: Pattern | None) -> None:
    outputs = [a for a in arguments if a.kind in (Kind.OUTPUT, Kind.UPDATE)]
    if not outputs:
        raise at.fail("arguments", "no parameter is an output")
    if pattern is None:
        constant = next((a for a in arguments if a.kind is Kind.CONSTANT), None)
        if constant is not None:
            raise ExternError(f"{constant.where}: a constant needs a pattern that names it")
        return
    for argument in arguments:
        if argument.kind in (Kind.INPUT, Kind.UPDATE, Kind.CONSTANT):
            _check_end(at, argument, argument.name, pattern.read, "read")
        if argument.kind in (Kind.OUTPUT, Kind.UPDATE):
            _check_end(at, argument, argument.made, pattern.made, "made")
    taken = {a.name for a in arguments if a.kind in (Kind.INPUT, Kind.UPDATE, Kind.CONSTANT)}
    unread = [name for name in pattern.read if name not in taken]
    if unread:
        raise at.fail(
            "arguments",
            f"the pattern reads %{unread[0]}, which is not a C parameter; add an input or "
            "constant, or write its value into the pattern",
        )
    names = [a.made for a in outputs]
    if len(set(names)) < len(names):
        raise at.fail("arguments", "two outputs are the same value of the pattern")


def _check_end(at: _At, argument: Argument, name: str, known: Sequence[str], word: str) -> None:
    if name not in known:
        shown = ", ".join(f"%{one}" for one in known)
        key = "to" if argument.kind is Kind.UPDATE and word == "made" else "of"
        raise ExternError(
            f"{argument.where}: the pattern has no %{name} that is {word}, only {shown}; say which"
            f' with {key} = "name"\n  C: {at.declaration}'
        )


def _check_attr_names(
    at: _At,
    arguments: tuple[Argument, ...],
    requires: tuple[Requirement, ...],
    pattern: Pattern | None,
) -> None:
    """An attribute that is named and not used could have any value unnoticed."""
    used = {a.attribute[0] for a in arguments}.union(
        *(a.size.symbols | (a.type.symbols if a.type else frozenset()) for a in arguments),
        *(requirement.difference.symbols for requirement in requires),
    )
    for name in pattern.attr_names if pattern else ():
        if name not in used:
            raise at.fail("replaces", f"no C parameter is the attribute ${name}")


def _symbols(arguments: tuple[Argument, ...], pattern: Pattern | None) -> frozenset[str]:
    named = frozenset(pattern.attr_names if pattern else ())
    return named.union(*(a.type.symbols for a in arguments if a.type))


# Types and sizes

_TYPE = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*")


def _type_rule(at: _At, kind: Kind) -> TypeRule:
    text = at.text(kind.value)
    match = _TYPE.fullmatch(text)
    known = ", ".join(d.value for d in DType)
    if match is None or match[1] not in {d.value for d in DType}:
        raise at.fail(
            kind.value, f"expected a type such as f32[m, k]; got {text!r} (element types: {known})"
        )
    axes = []
    for part in _top_level_parts(match[2]):
        many = part.startswith("*")
        axes.append(Axis(_parsed(at, kind.value, part.removeprefix("*")), many))
    for position, axis in enumerate(axes):
        if axis.many and (position or kind is Kind.SCRATCH or not _plain(axis.size)):
            raise at.fail(kind.value, "`*m` is one symbol and must be first in an input or output")
    return TypeRule(DType(match[1]), tuple(axes), text)


def _plain(size: Dim) -> bool:
    return str(size) in size.symbols


def _top_level_parts(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


_CEILDIV = re.compile(r"\bceildiv\s*\(")


def _parsed(at: _At, key: str, text: str) -> Dim:
    try:
        return parse_dim(_without_ceildiv(text))
    except (DimSyntaxError, ZeroDivisionError) as error:
        raise at.fail(key, f"not a size: {error}") from None


def _without_ceildiv(text: str) -> str:
    """`ceildiv(a, b)` in words that sizes have: `((a + b - 1) // b)`."""
    while match := _CEILDIV.search(text):
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        parts = _top_level_parts(text[match.end() : end - 1])
        if depth or len(parts) != 2:
            raise DimSyntaxError(f"expected ceildiv(a, b) in {text!r}")
        above, below = parts
        made = f"((({above}) + ({below}) - 1) // ({below}))"
        text = text[: match.start()] + made + text[end:]
    return text


def _size(here: _At, key: str, at: _At, param: Parameter) -> Dim:
    if param.base not in INTEGER_RANGES:
        raise at.fail(param.name, f"a size is an integer in C; the header has `{param.text}`")
    value = here.data[key]
    return Dim.of(value) if isinstance(value, int) else _parsed(here, key, here.text(key))


def _requires(at: _At, symbols: frozenset[str]) -> tuple[Requirement, ...]:
    made = []
    for text in at.texts("requires"):
        try:
            relation, difference = parse_relation(_without_ceildiv(text))
        except (DimSyntaxError, ZeroDivisionError) as error:
            raise at.fail("requires", str(error)) from None
        unknown = sorted(difference.symbols - symbols)
        if unknown:
            raise at.fail(
                "requires", f"nothing has the size {unknown[0]!r}; known are {sorted(symbols)}"
            )
        made.append(Requirement(relation, difference, text))
    return tuple(made)


def _declared(argument: Argument) -> TensorType | None:
    if argument.type is None:
        return None
    return TensorType(argument.type.dtype, tuple(axis.size for axis in argument.type.axes))
