"""Breaks the long lines of C text, in the style of clang-format with a limit of columns.

Comments are filled with a hanging indent; a comment behind code moves above it; code breaks at
the outermost comma or operator that fits, aligned behind the open bracket.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

COLUMNS = 100
DEEPEST = 64
"""A bracket that opens behind this column does not align what follows it."""
_TRAILING = re.compile(r"( *)(.*?) */\* (.*) \*/")
_IN_COMMENT = re.compile(r"( *\* )( *)((?:\d+\. +|- +|\w+ {2,})?)(.*)")
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>[,;] )|(?P<assign> [-+*/%&|^]?= )"
    r"|(?P<choice> (?=[?:] ))|(?P<or> \|\| )|(?P<and> && )|(?P<order> (?:[<>=!]=|[<>]) )"
    r"|(?P<sum> [-+|^&] | << | >> )|(?P<product> [*/%] )"
)
_LOOSEST = ("comma", "choice", "or", "and", "order", "sum", "product", "open")
"""What a line breaks behind, the best first, inside the same bracket."""


def wrapped(text: str, columns: int = COLUMNS) -> str:
    """The same C with no line longer than `columns`, where it can be broken."""
    if all(len(line) <= columns for line in text.split("\n")):
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= columns else _line(line, columns)
    return "\n".join(lines)


def _line(line: str, columns: int) -> list[str]:
    if found := _IN_COMMENT.fullmatch(line):
        star, indent, label, words = found.groups()
        hanging = indent + " " * (len(label) or 4 * (words[:1] == "%"))
        return _filled(words, star + indent + label, star + hanging, columns)
    if found := _TRAILING.fullmatch(line):
        indent, code, note = found.groups()
        above = _comment(note, indent, columns)
        return [*above, *wrapped(indent + code, columns).split("\n")] if code else above
    if line.startswith("#define "):
        return _macro(line, columns)
    if line.startswith("#"):
        return [line]
    aligned = _code(line, columns)
    return aligned if max(map(len, aligned)) <= columns else _code(line, columns, opened=True)


def _filled(words: str, first: str, others: str, columns: int) -> list[str]:
    return textwrap.wrap(
        words, columns, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _comment(note: str, indent: str, columns: int) -> list[str]:
    if len(indent) + len(note) + 6 <= columns:
        return [f"{indent}/* {note} */"]
    lines = _filled(note, f"{indent} * ", f"{indent} * ", columns)
    return [f"{indent}/*", *lines, f"{indent} */"]


def _macro(line: str, columns: int) -> list[str]:
    """The body on lines of its own; pasted names break before `##`."""
    found = re.fullmatch(r"(#define \w+(?:\(.*?\))?) (.*)", line)
    assert found, "a macro has a name and a body"
    head, *lines = found[1], ""
    for piece in re.split(r"(?= )|(?=##)", found[2]):
        if len(lines[-1]) + len(piece) + 2 > columns or not lines[-1]:
            lines.append(f"    {piece.lstrip()}")
        else:
            lines[-1] += piece
    return [f"{text} \\" for text in (head, *lines[1:-1])] + [lines[-1]]


def _code(line: str, columns: int, *, opened: bool = False) -> list[str]:
    """With `opened` the first break is behind the outermost bracket, so that all that stands in
    it has room."""
    base = len(line) - len(line.lstrip())
    lines: list[str] = []
    brackets: tuple[int, ...] = (base + 4,)
    while len(line) > columns:
        rest = line.lstrip()
        breaks = [b for b in _breaks(line, brackets) if len(line[: b.at].rstrip()) <= columns]
        whole = [b for b in breaks if b.kind == "assign" and base + 4 + len(line) - b.at <= columns]
        others = [b for b in breaks if b.kind != "assign" and b.at > len(line) - len(rest)]
        if not whole and not others:
            break
        outermost = [b for b in others if b.kind == "open"] if opened and not lines else []
        best = (whole or outermost or sorted(others, key=_rank))[0]
        lines.append(line[: best.at].rstrip())
        brackets = best.brackets
        if best.kind in ("open", "assign") or brackets[-1] > DEEPEST:
            indent = len(line) - len(rest) if best.kind == "open" else base + 4 * bool(lines[1:])
            brackets = (*brackets[:-1], indent + 4)
        line = " " * brackets[-1] + line[best.at :].lstrip()
    return [*lines, line]


@dataclass(frozen=True, slots=True)
class _Break:
    """A column where a line may break, and the columns behind the brackets open there."""

    at: int
    kind: str
    brackets: tuple[int, ...]


def _rank(one: _Break) -> tuple[int, int, int]:
    return (len(one.brackets), _LOOSEST.index(one.kind), -one.at)


def _breaks(line: str, brackets: tuple[int, ...]) -> Iterator[_Break]:
    for match in _TOKEN.finditer(line):
        kind, at = match.lastgroup, match.end()
        if kind == "open":
            brackets = (*brackets, at)
        elif kind == "close":
            brackets = brackets[:-1]
        elif kind == "assign" and len(brackets) == 1:
            brackets = (at,)
        if kind is not None and kind != "close":
            yield _Break(at, kind, brackets)
