# SPDX-License-Identifier: Apache-2.0
"""C text without the preprocessor conditions whose value is known.

As `unifdef` does, but what is not known stays. A macro is known if it is given, or defined where
the text is surely compiled; all others are undefined, except for those that stay open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"#\s*(if|ifdef|ifndef|elif|else|endif|define|undef)\b\s*(.*)", re.DOTALL)
_TOKEN = re.compile(r"\s*(?:(\d+)[uUlL]*|(\w+)|(&&|\|\||[=!<>]=|[-+*&!<>()])|('.'))")
_LEVELS = (("||",), ("&&",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*",))
"""Binary operators, those that bind least first."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """`condition` is empty for `#else`."""

    condition: str
    lines: tuple[str, ...]


@dataclass
class Conditions:
    """What is known of macros, by their names: a value, or None for those that stay open."""

    macros: dict[str, str | None]
    unsure: int = field(default=0, init=False)
    """How many open conditions are around the text."""

    def resolved(self, text: str) -> str:
        """The text that is left; what it defines is known from then on."""
        logical = text.replace("\\\n", "\\\0").split("\n")
        return "\n".join(self._kept(logical)).replace("\0", "\n")

    def _kept(self, lines: Sequence[str]) -> Iterator[str]:
        at = 0
        while at < len(lines):
            found = _DIRECTIVE.match(lines[at])
            if found and found[1].startswith("if"):
                branches, at = _group(lines, at)
                yield from self._chosen(branches)
                continue
            if found and found[1] in ("define", "undef"):
                self._define(found[1], found[2])
            yield lines[at]
            at += 1

    def _define(self, what: str, rest: str) -> None:
        found = re.match(r"(\w+)(\(?)(.*)", rest, re.DOTALL)
        if found is None or found[2]:
            return
        if what == "undef":
            self.macros.pop(found[1], None)
        else:
            value = _COMMENT.sub(" ", found[3].replace("\\\0", " ")).strip()
            self.macros[found[1]] = None if self.unsure else value

    def _chosen(self, branches: Sequence[_Branch]) -> Iterator[str]:
        opened = False
        for branch in branches:
            value = self.value(branch.condition) if branch.condition else 1
            if value == 0:
                continue
            if value is not None and not opened:
                yield from self._kept(branch.lines)
                return
            yield f"#{'elif' if opened else 'if'} {branch.condition}" if value is None else "#else"
            opened = True
            self.unsure += 1
            yield from self._kept(branch.lines)
            self.unsure -= 1
            if value is not None:
                break
        if opened:
            yield "#endif"

    def value(self, condition: str) -> int | None:
        """None where it depends on what is open."""
        plain = _COMMENT.sub(" ", condition.replace("\\\0", " "))
        tokens = [found[0].strip() for found in _TOKEN.finditer(plain)]
        return _Reader(tokens, self.macros).binary(0)


def _group(lines: Sequence[str], at: int) -> tuple[list[_Branch], int]:
    """The branches of the condition that begins there, and where the text goes on."""
    branches: list[_Branch] = []
    condition, own, depth = "", list[str](), 0
    for number in range(at, len(lines)):
        found = _DIRECTIVE.match(lines[number])
        word = found[1] if found else ""
        depth += word.startswith("if") - (word == "endif")
        inner = depth > 1 or (depth == 1 and word not in ("elif", "else") and number > at)
        if inner:
            own.append(lines[number])
            continue
        if number > at:
            branches.append(_Branch(condition, tuple(own)))
        if word == "endif":
            return branches, number + 1
        assert found is not None
        how = {"ifdef": f"defined({found[2]})", "ifndef": f"!defined({found[2]})", "else": ""}
        condition, own = how.get(word, found[2]), []
    raise AssertionError("#if without #endif")


@dataclass
class _Reader:
    """Reads an expression. None: a value that is not known."""

    tokens: list[str]
    macros: Mapping[str, str | None]
    at: int = 0

    def binary(self, level: int) -> int | None:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.at < len(self.tokens) and self.tokens[self.at] in _LEVELS[level]:
            operator = self.take()
            left = _combined(operator, left, self.binary(level + 1))
        return left

    def unary(self) -> int | None:
        token = self.take()
        if token == "!":
            value = self.unary()
            return None if value is None else int(not value)
        if token == "(":
            value = self.binary(0)
            self.take()
            return value
        if token == "defined":
            bare = self.tokens[self.at] != "("
            name = self.take() if bare else [self.take() for _ in range(3)][1]
            return None if self.macros.get(name, "") is None else int(name in self.macros)
        if token.isdigit():
            return int(token)
        if token.startswith("'"):
            return ord(token[1])
        if token not in self.macros:
            return 0
        value_text = self.macros[token]
        if value_text is None:
            return None
        tokens = [found[0].strip() for found in _TOKEN.finditer(value_text)]
        return _Reader(tokens, self.macros).binary(0) if tokens else 0

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]


def _combined(operator: str, left: int | None, right: int | None) -> int | None:
    if operator in ("&&", "||"):
        decides = int(operator == "||")
        sides = [None if side is None else int(side != 0) for side in (left, right)]
        if decides in sides:
            return decides
        return None if None in sides else 1 - decides
    if left is None or right is None:
        return None
    values = {
        "&": left & right, "==": left == right, "!=": left != right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right, "+": left + right,
        "-": left - right, "*": left * right,
    }  # fmt: skip
    return int(values[operator])
