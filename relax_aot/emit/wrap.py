# SPDX-License-Identifier: Apache-2.0
"""Breaks the long lines of C text, in the style of clang-format with a limit of columns.

Comments are filled with a hanging indent; a comment behind code moves above it; code breaks at
the outermost comma or operator that fits, aligned behind the open bracket.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from relax_aot.emit.c_layout import COLUMNS, laid_out

_TRAILING = re.compile(r"( *)(.*?) */\* (.*) \*/")
_IN_COMMENT = re.compile(r"( *\* )( *)((?:\d+\. +|- +|\w+ {2,})?)(.*)")


def wrapped(text: str, columns: int = COLUMNS) -> str:
    """The same C with no line longer than `columns`, where it can be broken."""
    if all(len(line) <= columns for line in text.split("\n")):
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= columns else _line(line, columns)
    return "\n".join(lines)


def noted(rows: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Rows of code with their notes below each other, or above the code where one is too wide."""
    width = max((len(code) for code, _ in rows), default=0)
    lines = tuple(f"{code.ljust(width)} /* {note} */" for code, note in rows)
    if all(len(line) <= COLUMNS for line in lines):
        return lines
    return tuple(line for code, note in rows for line in (f"/* {note} */", code))


def _line(line: str, columns: int) -> list[str]:
    if found := _IN_COMMENT.fullmatch(line):
        star, indent, label, words = found.groups()
        hanging = indent + " " * (len(label) or 4 * (words[:1] == "%"))
        return _filled(words, star + indent + label, star + hanging, columns)
    if "/*" in line and (found := _TRAILING.fullmatch(line)):
        indent, code, note = found.groups()
        above = _comment(note, indent, columns)
        return [*above, *wrapped(indent + code, columns).split("\n")] if code else above
    if line.startswith("#define "):
        return _macro(line, columns)
    if line.startswith("#"):
        return [line]
    return laid_out(line)


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
    if len(found[2]) + 4 > columns and ") " in found[2]:  # attributes, as clang-format has them
        attributes, declared = found[2].split(") ", 1)
        return [f"{head} \\", f"    {attributes})  \\", f"    {declared}"]
    for piece in re.split(r"(?= )|(?=##)", found[2]):
        if len(lines[-1]) + len(piece) + 2 > columns or not lines[-1]:
            lines.append(f"    {piece.lstrip()}")
        else:
            lines[-1] += piece
    return [f"{text} \\" for text in (head, *lines[1:-1])] + [lines[-1]]
