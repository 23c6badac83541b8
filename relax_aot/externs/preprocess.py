# SPDX-License-Identifier: Apache-2.0
"""As much of the C preprocessor as headers with prototypes need, without a compiler.

Conditions, includes and macros are followed; standard headers are stood in for by the few
types that prototypes use. What compilers add (`__attribute__`, `__restrict`) is taken out.
Lines keep their numbers, so that messages can name them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser

from relax_aot.externs._error import ExternError

STANDARD = {
    "stdint.h": " ".join(
        f"typedef {c} int{n}_t; typedef unsigned {c.removeprefix('signed ')} uint{n}_t;"
        for c, n in (("signed char", 8), ("short", 16), ("int", 32), ("long long", 64))
    ),
    "stddef.h": "typedef unsigned long size_t; typedef long ptrdiff_t;",
    "stdbool.h": "",
}
"""Stand-ins; every other standard header counts as empty."""
MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Macro:
    """`params` is None where the name alone is replaced."""

    params: tuple[str, ...] | None
    text: str


_ANY = ("x",)
PREDEFINED = {
    "__STDC__": Macro(None, "1"),
    "__STDC_VERSION__": Macro(None, "201112L"),
    "__GNUC__": Macro(None, "12"),
    "__restrict": Macro(None, "restrict"),
    "__restrict__": Macro(None, "restrict"),
    "__inline": Macro(None, "inline"),
    "__inline__": Macro(None, "inline"),
    "__const": Macro(None, "const"),
    "__extension__": Macro(None, ""),
    "__attribute__": Macro(_ANY, ""),
    "__asm__": Macro(_ANY, ""),
    "_Alignas": Macro(_ANY, ""),
}


@dataclass
class Preprocessed:
    """The text without directives, the files that it came from, and the macros it defines."""

    text: str
    files: tuple[Path, ...]
    macros: frozenset[str]


@dataclass
class _State:
    search: tuple[Path, ...]
    searched: set[Path] = field(default_factory=set)
    """Folders of headers that were found by searching."""
    macros: dict[str, Macro] = field(default_factory=lambda: dict(PREDEFINED))
    own: set[str] = field(default_factory=set)
    """Macros that headers define which were not found by searching, now or in passing."""
    files: list[Path] = field(default_factory=list)
    standard: set[str] = field(default_factory=set)
    once: set[Path] = field(default_factory=set)
    out: list[str] = field(default_factory=list)


def preprocess(path: Path, search: tuple[Path, ...] = ()) -> Preprocessed:
    """The header with everything that it includes. `search`: folders for quoted includes that
    are not next to the including file."""
    state = _State(search)
    _file(path, state, 0)
    return Preprocessed("\n".join(state.out) + "\n", tuple(state.files), frozenset(state.own))


_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*""", re.DOTALL
)


def without_comments(text: str) -> str:
    """Comments become white space; lines stay where they are."""
    return _COMMENT.sub(lambda m: m[1] or " " + "\n" * m[0].count("\n"), text)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with continuations joined, followed by as many empty ones."""
    joined, waiting = "", 0
    for line in without_comments(text.replace("\r\n", "\n")).split("\n"):
        if line.endswith("\\"):
            joined += line[:-1] + " "
            waiting += 1
            continue
        yield joined + line
        yield from [""] * waiting
        joined, waiting = "", 0


@dataclass
class _Branch:
    """One `#if`: whether its present part counts, and whether one has counted already."""

    outer: bool
    active: bool
    taken: bool


def _file(path: Path, state: _State, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ExternError(f"{path}: headers include each other in a cycle")
    if path.resolve() in state.once:
        return
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExternError(f"cannot read the C header {path}: {error}") from None
    if path not in state.files:
        state.files.append(path)
    branches: list[_Branch] = []
    state.out.append(f'#line 1 "{path.name}"')
    for number, line in enumerate(_logical_lines(text), 1):
        directive = re.match(r"\s*#\s*(\w*)\s*(.*)", line)
        where = f"{path}:{number}"
        if directive is None:
            active = all(b.active for b in branches[-1:])
            state.out.append(expand(line, state.macros) if active else "")
            continue
        word, rest = directive[1], directive[2].strip()
        if not _condition(word, rest, branches, state, where) and all(
            b.active for b in branches[-1:]
        ):
            _directive(word, rest, path, where, state, depth)
            if word == "define" and path.parent not in state.searched:
                state.own.add(rest.split("(")[0].split()[0] if rest else "")
            if word == "include":
                state.out.append(f'#line {number + 1} "{path.name}"')
                continue
        state.out.append("")
    if branches:
        raise ExternError(f"{path}: an #if has no #endif")


def _condition(word: str, rest: str, branches: list[_Branch], state: _State, where: str) -> bool:
    """Follow #if, #elif, #else, #endif; True where the directive was one of them."""
    if word in ("if", "ifdef", "ifndef"):
        outer = all(b.active for b in branches[-1:])
        held = outer and _holds(word, rest, state, where)
        branches.append(_Branch(outer, held, held))
        return True
    if word not in ("elif", "else", "endif"):
        return False
    if not branches:
        raise ExternError(f"{where}: #{word} without #if")
    branch = branches[-1]
    if word == "endif":
        branches.pop()
    elif word == "else":
        branch.active = branch.outer and not branch.taken
        branch.taken = True
    else:
        free = branch.outer and not branch.taken
        branch.active = free and _holds("if", rest, state, where)
        branch.taken = branch.taken or branch.active
    return True


def _holds(word: str, rest: str, state: _State, where: str) -> bool:
    if word != "if":
        known = (rest.split()[:1] or [""])[0] in state.macros
        return known if word == "ifdef" else not known
    asked = re.sub(
        r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))",
        lambda m: str(int((m[1] or m[2]) in state.macros)),
        rest,
    )
    try:
        return _value(expand(asked, state.macros)) != 0
    except _ConditionError as problem:
        raise ExternError(f"{where}: cannot decide `#if {rest}`: {problem}") from None


def _directive(word: str, rest: str, path: Path, where: str, state: _State, depth: int) -> None:
    if word == "include":
        _include(rest, path, where, state, depth)
    elif word == "define":
        _define(rest, state)
    elif word == "undef":
        state.macros.pop(rest.split()[0] if rest else "", None)
    elif word == "error":
        raise ExternError(f"{where}: the header says #error {rest}")
    elif word == "pragma" and rest == "once":
        state.once.add(path.resolve())


def _define(rest: str, state: _State) -> None:
    match = re.match(r"(\w+)(\(([^)]*)\))?\s*(.*)", rest)
    if match is None:
        return
    params = None
    if match[2] is not None:
        params = tuple(p.strip() for p in match[3].split(",") if p.strip())
    state.macros[match[1]] = Macro(params, match[4].strip())


def _include(rest: str, path: Path, where: str, state: _State, depth: int) -> None:
    match = re.match(r'<([^>]+)>|"([^"]+)"', expand(rest, state.macros))
    if match is None:
        raise ExternError(f"{where}: cannot read #include {rest}")
    if match[1]:
        if match[1] not in state.standard:
            state.standard.add(match[1])
            state.out.append(STANDARD.get(match[1], ""))
            if match[1] == "stdbool.h":
                state.macros["bool"] = Macro(None, "_Bool")
        return
    for folder in (path.parent, *state.search):
        found = folder / match[2]
        if found.is_file():
            if folder != path.parent or path.parent in state.searched:
                state.searched.add(found.parent)
            _file(found, state, depth + 1)
            return
    raise ExternError(
        f'{where}: "{match[2]}" is not next to the header; put the prototypes into a header'
        " that needs only its own files and standard ones"
    )


# Macros

_WORD = re.compile(r"""[A-Za-z_]\w*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\d[\w.]*""")


def expand(text: str, macros: dict[str, Macro], hidden: frozenset[str] = frozenset()) -> str:
    """Replace macros; `#` and `##` are left as they stand."""
    out, position = [], 0
    while match := _WORD.search(text, position):
        out.append(text[position : match.start()])
        position = match.end()
        macro = None if match[0] in hidden else macros.get(match[0])
        if macro is None:
            out.append(match[0])
            continue
        inner = hidden | {match[0]}
        if macro.params is None:
            out.append(expand(macro.text, macros, inner))
            continue
        call = _arguments(text, position)
        if call is None:
            out.append(match[0])
            continue
        arguments, position = call
        values = dict(zip(macro.params, arguments, strict=False))
        body = _WORD.sub(_chosen(values), macro.text)
        out.append(expand(body, macros, inner))
    return "".join([*out, text[position:]])


def _chosen(values: dict[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda match: values.get(match[0], match[0])


def _arguments(text: str, position: int) -> tuple[list[str], int] | None:
    """The arguments in parentheses that begin at `position`, and where they end."""
    start = re.compile(r"\s*\(").match(text, position)
    if start is None:
        return None
    depth, begin, found = 1, start.end(), []
    for at in range(start.end(), len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0 or (depth == 1 and text[at] == ","):
            found.append(text[begin:at].strip())
            begin = at + 1
        if depth == 0:
            return found, at + 1
    return None


# Conditions


class _ConditionError(Exception):
    pass


def _value(text: str) -> int:
    """The integer expression of an `#if`; names that are no macros are 0, as C says."""
    try:
        (declared,) = c_parser.CParser().parse(f"int value = ({text});").ext
    except (c_parser.ParseError, ValueError) as error:
        met = str(error).rpartition(": ")[2]
        partial = "it is incomplete, or a `)` is too many"
        reasons = {"Invalid expression": partial, ")": partial, ";": "a `)` is missing"}
        raise _ConditionError(reasons.get(met, f"{met!r} is not supported")) from None
    return _evaluated(declared.init)


def _evaluated(node: c_ast.Node) -> int:
    match node:
        case c_ast.ID():
            return 0
        case c_ast.Constant(type=kind) if "int" in kind:
            digits = node.value.rstrip("uUlL")
            return int(digits, 8 if re.fullmatch("0[0-7]+", digits) else 0)
        case c_ast.UnaryOp(op="!" | "-" | "+" | "~"):
            value = _evaluated(node.expr)
            return {"!": int(not value), "-": -value, "+": value, "~": ~value}[node.op]
        case c_ast.TernaryOp():
            return _evaluated(node.iftrue if _evaluated(node.cond) else node.iffalse)
        case c_ast.BinaryOp(op=sign):
            left, right = _evaluated(node.left), _evaluated(node.right)
            if sign in ("/", "%"):
                if right == 0:
                    raise _ConditionError("it divides by 0")
                quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
                return quotient if sign == "/" else left - quotient * right
            if sign in OPERATORS:
                return int(OPERATORS[sign](left, right))
    what = getattr(node, "op", "") or c_generator.CGenerator().visit(node)
    raise _ConditionError(f"{what!r} is not supported")


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: bool(a) or bool(b), "&&": lambda a, b: bool(a) and bool(b),
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "+": operator.add, "-": operator.sub,
    "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
