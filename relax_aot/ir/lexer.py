# SPDX-License-Identifier: Apache-2.0
"""Text -> tokens with lines and columns, and a cursor that says what it expected.

A line end is a token, save inside `(...)` and `[...]`. A comment runs to the end of its
line; one behind something is kept, because it may be an origin. A name that is no word
stands in backticks, with the escapes of a JSON string: `` `a name` ``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from relax_aot.errors import RelaxAotError

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)|(?P<newline>\n)|(?P<comment>\#[^\n]*)
    |(?P<digest>sha256:[0-9a-f]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<quoted>`(?:[^`\\\n]|\\.)*`)
    |(?P<mark>\.\.|//|->|<=|>=|==|!=|&&|\|\||<<|>>|[-+*/%()\[\]{}<>=:,@!&|^?])""",
    re.VERBOSE,
)


_Item = TypeVar("_Item")


class TextError(RelaxAotError):
    """Text that is no program: where, what was expected, what came."""


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is the decoded value of a string or a name in backticks."""

    kind: str
    text: str
    line: int
    column: int

    def is_mark(self, *marks: str) -> bool:
        return self.kind == "mark" and self.text in marks


def quoted(name: str) -> str:
    """`name` as it stands in text: a word as it is, anything else in backticks."""
    if WORD.fullmatch(name):
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def comment_text(comment: str) -> str:
    """One line from which `_comment` gives `comment` back."""
    plain = comment == " ".join(comment.split()) and comment.isprintable()
    return comment if plain and not comment.startswith('"') else json.dumps(comment)


def _comment(text: str) -> str:
    text = text[1:].strip()
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return text


class Cursor:
    """The tokens of a text, taken one by one."""

    def __init__(self, text: str) -> None:
        self._tokens: list[Token] = []
        self._comments: dict[int, str] = {}
        self._at = 0
        self._read(text)

    def _read(self, text: str) -> None:
        position, line, start, depth = 0, 1, 0, 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            column = position - start + 1
            if match is None:
                raise TextError(f"line {line}, column {column}: unexpected {text[position]!r}")
            kind, value = match.lastgroup or "", match.group()
            position = match.end()
            if kind in ("string", "quoted"):
                value = _decoded(value, line, column)
            if kind == "comment" and self._tokens and self._tokens[-1].line == line:
                self._comments[line] = _comment(value)
            if kind == "mark":
                depth += (value in "([") - (value in ")]" and depth > 0)
            if kind not in ("space", "comment") and not (kind == "newline" and depth):
                self._tokens.append(Token(kind, value, line, column))
            if kind == "newline":
                line, start = line + 1, position
        self._tokens.append(Token("end", "", line, position - start + 1))

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    @property
    def ahead(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def fail(self, expected: str) -> NoReturn:
        names = {"newline": "the end of the line", "end": "the end"}
        came = names.get(self.token.kind, f"`{self.token.text}`")
        raise self.error(self.token, f"expected {expected}, got {came}")

    def error(self, token: Token, message: str) -> TextError:
        return TextError(f"line {token.line}, column {token.column}: {message}")

    def take(self, *marks: str) -> str:
        """The next token's text where it is one of these marks, else nothing."""
        if self.token.is_mark(*marks):
            return self.advance().text
        return ""

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(f"`{mark}`")

    def at_word(self, *words: str) -> bool:
        return self.token.kind == "name" and self.token.text in words

    def take_word(self, *words: str) -> str:
        return self.advance().text if self.at_word(*words) else ""

    def expect_word(self, word: str, expected: str) -> None:
        if not self.take_word(word):
            self.fail(expected)

    def one_of(self, words: Collection[str], what: str) -> str:
        """The next word, which is one of these."""
        if not self.at_word(*words):
            self.fail(f"{what} ({', '.join(words)})")
        return self.advance().text

    def listed(self, closing: str, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        """Items and commas up to the closing mark; the opening one is taken already."""
        items: list[_Item] = []
        while not self.take(closing):
            if items:
                self.expect(",")
            items.append(item())
        return tuple(items)

    def name(self, what: str) -> str:
        if self.token.kind not in ("name", "quoted"):
            self.fail(what)
        return self.advance().text

    def string(self, what: str) -> str:
        if self.token.kind != "string":
            self.fail(what)
        return self.advance().text

    def skip_lines(self) -> None:
        while self.token.kind == "newline":
            self.advance()

    def end_line(self) -> None:
        if self.token.kind not in ("newline", "end") and not self.token.is_mark("}"):
            self.fail("the end of the line")
        self.skip_lines()

    def origin(self) -> str:
        """The comment behind the token just taken, on its line."""
        return self._comments.get(self._tokens[self._at - 1].line, "")


def _decoded(text: str, line: int, column: int) -> str:
    inner = re.sub(r'(\\.)|"', lambda match: match.group(1) or '\\"', text[1:-1])
    try:
        return str(json.loads(f'"{inner}"'))
    except ValueError:
        raise TextError(f"line {line}, column {column}: {text} has a wrong escape") from None
