# SPDX-License-Identifier: Apache-2.0
"""Prototypes, read from a C header with pycparser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser

from relax_aot.externs._error import ExternError
from relax_aot.externs.preprocess import Preprocessed, preprocess

FIXED = frozenset(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)) | {
    "size_t", "ptrdiff_t",
}  # fmt: skip
"""Types that are not looked behind: what they are made of depends on the target."""
WORDS = {"char", "short", "int", "long", "float", "double", "signed", "unsigned"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """`base` is the element type of a pointer or the type of a value, typedefs resolved."""

    name: str
    base: str
    pointer: bool
    const: bool
    text: str


@dataclass(frozen=True, slots=True)
class Prototype:
    name: str
    params: tuple[Parameter, ...]
    returns: str
    text: str
    place: str
    """`rms.h:12`."""

    def __str__(self) -> str:
        return f"{self.text} ({self.place})"


@dataclass(frozen=True)
class Header:
    """What one header declares. `names` are all its identifiers at file scope."""

    path: Path
    prototypes: dict[str, Prototype]
    names: frozenset[str]
    macros: frozenset[str]
    files: tuple[Path, ...]


def read_header(path: Path, search: tuple[Path, ...] = ()) -> Header:
    """The prototypes (and inline functions) that the header and its includes declare."""
    source = preprocess(path, search)
    tree = _parsed(source, path)
    typedefs: dict[str, c_ast.Node] = {}
    prototypes: dict[str, Prototype] = {}
    names: set[str] = set()
    for node in tree.ext:
        if isinstance(node, c_ast.Typedef):
            typedefs[node.name] = node.type
        found = node.decl if isinstance(node, c_ast.FuncDef) else node
        names.add(getattr(found, "name", None) or "")
        if isinstance(found, c_ast.Decl) and isinstance(found.type, c_ast.FuncDecl):
            prototypes[found.name] = _prototype(found, typedefs)
    return Header(path, prototypes, frozenset(names - {""} - FIXED), source.macros, source.files)


def _parsed(source: Preprocessed, path: Path) -> c_ast.FileAST:
    try:
        return c_parser.CParser().parse(source.text, path.name)
    except c_parser.ParseError as error:
        raise ExternError(
            f"{path}: cannot be parsed as C declarations: {error}; if this header needs compiler "
            "extensions, put the prototypes into a separate header"
        ) from None


def _prototype(decl: c_ast.Decl, typedefs: dict[str, c_ast.Node]) -> Prototype:
    function = decl.type
    params = function.args.params if function.args else []
    plain = c_ast.Decl(decl.name, [], [], [], [], function, None, None)
    text = c_generator.CGenerator().visit(plain)
    made = [_parameter(p, typedefs) for p in params]
    if len(made) == 1 and made[0].base == "void" and not made[0].pointer:
        made = []
    returns = _parameter(c_ast.Decl("", [], [], [], [], function.type, None, None), typedefs)
    result = returns.base + (" *" if returns.pointer else "")
    place = f"{decl.coord.file}:{decl.coord.line}"
    return Prototype(decl.name, tuple(made), result, " ".join(text.split()), place)


def _parameter(param: c_ast.Node, typedefs: dict[str, c_ast.Node]) -> Parameter:
    if isinstance(param, c_ast.EllipsisParam):
        return Parameter("...", "...", False, False, "...")
    text = " ".join(c_generator.CGenerator().visit(param).split())
    pointer, const, node = False, False, param.type
    while True:
        match node:
            case c_ast.PtrDecl() | c_ast.ArrayDecl():
                if pointer:
                    return Parameter(param.name or "", "a pointer to a pointer", True, False, text)
                pointer, const, node = True, False, node.type
            case c_ast.TypeDecl():
                const = const or "const" in node.quals
                base = node.type
                name = " ".join(base.names) if isinstance(base, c_ast.IdentifierType) else ""
                if name in typedefs and name not in FIXED:
                    node = typedefs[name]
                    continue
                return Parameter(param.name or "", _base(base), pointer, const, text)
            case _:
                return Parameter(param.name or "", "a function", pointer, const, text)


def _base(node: c_ast.Node) -> str:
    if isinstance(node, c_ast.Enum):
        return f"enum {node.name or ''}".strip()
    if isinstance(node, c_ast.Struct | c_ast.Union):
        return f"{type(node).__name__.lower()} {node.name or ''}".strip()
    words = list(node.names)
    if len(words) == 1 and words[0] not in WORDS:
        return str(words[0])
    if "char" in words:
        sign = next((w for w in words if w in ("signed", "unsigned")), "")
        return f"{sign} char".strip()
    if "float" in words or "double" in words:
        return " ".join(words)
    unsigned = "unsigned " if "unsigned" in words else ""
    length = words.count("long")
    size = "short" if "short" in words else ("int", "long", "long long")[length]
    return f"{unsigned}{size}"
