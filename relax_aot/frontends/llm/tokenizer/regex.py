# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of pre-tokenizers -> instructions of a machine with alternatives in order.

The syntax is that of Oniguruma, which `tokenizers` uses, as far as published checkpoints need it:
literals, classes, `\\s`, `\\p{..}` of general categories, groups, `(?i:..)`, repetitions, and a
look-ahead at one code point. Everything else is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from relax_aot.frontends import UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.tokenizer.points import (
    POINTS,
    Points,
    any_case,
    category,
    joined_folds,
    of,
    white,
)

LONGEST, DEEPEST, MOST_REPEATS, MOST_INSTRUCTIONS = 4000, 20, 100, 4000
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}


@dataclass(frozen=True, slots=True)
class One:
    """A code point of set number `set`."""

    set: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next code point is in a set, or `negated`: it is not, or the text ends."""

    set: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of these that leads to a match."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None
    lazy: bool


Node = One | Ahead | Sequence | Choice | Repeat


@dataclass
class Sets:
    """The sets of code points of all patterns of a tokenizer."""

    all: list[Points] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def number(self, points: Points) -> int:
        key = points.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.all)
            self.all.append(points)
        return self._numbers[key]


@dataclass
class _Reader:
    """A pattern that is read from the left."""

    text: str
    where: str
    sets: Sets
    at: int = 0
    any_case: bool = False

    def wrong(self, what: str) -> NoReturn:
        shown = printable(self.text)
        raise UnsupportedError(f"{self.where}: the pattern {shown!r} has {what} at {self.at}")

    @property
    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def one(self) -> str:
        found = self.next
        if not found:
            self.wrong("an unexpected end")
        self.at += 1
        return found


def parse(text: str, where: str, sets: Sets) -> Node:
    """The tree of a pattern; `where` names it in messages."""
    reader = _Reader(text, where, sets)
    if len(text) > LONGEST:
        raise UnsupportedError(f"{where}: a pattern of {len(text)} characters; at most {LONGEST}")
    node = _choice(reader, 0)
    if reader.next:
        reader.wrong(f"{reader.next!r} without its start")
    return node


def _choice(reader: _Reader, depth: int) -> Node:
    if depth > DEEPEST:
        reader.wrong(f"more than {DEEPEST} groups in each other")
    parts = [_sequence(reader, depth)]
    while reader.take("|"):
        parts.append(_sequence(reader, depth))
    return parts[0] if len(parts) == 1 else Choice(tuple(parts))


def _sequence(reader: _Reader, depth: int) -> Node:
    parts: list[Node] = []
    while reader.next and reader.next not in "|)":
        parts.append(_repeated(reader, _atom(reader, depth)))
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _repeated(reader: _Reader, node: Node) -> Node:
    bounds: tuple[int, int | None]
    if reader.take("?"):
        bounds = (0, 1)
    elif reader.take("*"):
        bounds = (0, None)
    elif reader.take("+"):
        bounds = (1, None)
    elif reader.next == "{":
        bounds = _bounds(reader)
    else:
        return node
    lazy = reader.take("?")
    if isinstance(node, Ahead):
        reader.wrong("a look-ahead that is repeated")
    if reader.next and reader.next in "?*+{":
        reader.wrong("a possessive or double repetition, which is not supported,")
    return Repeat(node, *bounds, lazy)


def _bounds(reader: _Reader) -> tuple[int, int | None]:
    end = reader.text.find("}", reader.at)
    low, comma, high = reader.text[reader.at + 1 : end].partition(",")
    numbers = [text for text in (low, high) if text]
    if end < 0 or not low or not all(t.isascii() and t.isdigit() and len(t) < 5 for t in numbers):
        reader.wrong("a repetition that is not {m}, {m,} or {m,n}")
    least, most = int(low), int(high) if high else None if comma else int(low)
    if max(least, most or 0) > MOST_REPEATS or (most is not None and most < max(least, 1)):
        reader.wrong(f"a repetition that is not of 1 to {MOST_REPEATS}")
    reader.at = end + 1
    if reader.next == "?" or reader.next == "+":
        reader.wrong("a lazy or repeated {m,n}, which is not supported,")
    return least, most


def _atom(reader: _Reader, depth: int) -> Node:
    if reader.take("(?!"):
        return _ahead(reader, negated=True)
    if reader.take("(?="):
        return _ahead(reader, negated=False)
    if reader.take("(?i:"):
        outer, reader.any_case = reader.any_case, True
        start = reader.at
        node = _group(reader, depth)
        reader.any_case = outer
        _require_single_folds(reader, start)
        return node
    if reader.take("(?:"):
        return _group(reader, depth)
    if reader.next == "(" and reader.text[reader.at + 1 : reader.at + 2] != "?":
        reader.at += 1
        return _group(reader, depth)
    return One(reader.sets.number(_points(reader)))


def _group(reader: _Reader, depth: int) -> Node:
    node = _choice(reader, depth + 1)
    if not reader.take(")"):
        reader.wrong("a group that does not end")
    return node


def _ahead(reader: _Reader, *, negated: bool) -> Node:
    points = _points(reader)
    if not reader.take(")"):
        reader.wrong("a look-ahead at more than one code point, which is not supported,")
    return Ahead(reader.sets.number(points), negated)


def _require_single_folds(reader: _Reader, start: int) -> None:
    """One code point may match several without regard to case, which is not compiled."""
    text = reader.text[start : reader.at].casefold()
    if not text.isascii():
        reader.wrong("(?i:) around characters that are not ASCII, which is not supported,")
    joined = next((fold for fold in joined_folds() if fold in text), None)
    if joined:
        reader.wrong(f"(?i:) around {joined!r}, to which single code points fold,")


def _points(reader: _Reader) -> Points:
    """The set of code points that a literal, an escape or a class matches."""
    if reader.take("["):
        return _class(reader)
    char = reader.one()
    if char == "\\":
        return _escape(reader)
    if char in ".^$()*+?{|":
        reader.wrong(f"{char!r}, which is not supported,")
    return _literal(reader, char)


def _literal(reader: _Reader, char: str) -> Points:
    return of(any_case(char) if reader.any_case and char.isascii() else [ord(char)])


def _escape(reader: _Reader) -> Points:
    char = reader.one()
    if char in "sS":
        return white() if char == "s" else ~white()
    if char in "pP":
        return _category(reader, negated=char == "P")
    if char in _ESCAPES:
        return of([ord(_ESCAPES[char])])
    if char.isalnum() or not char.isascii():
        reader.wrong(f"the escape \\{char}, which is not supported,")
    return _literal(reader, char)


def _category(reader: _Reader, *, negated: bool) -> Points:
    end = reader.text.find("}", reader.at)
    name = reader.text[reader.at + 1 : end]
    if reader.next != "{" or end < 0:
        reader.wrong("a property that is not \\p{..}")
    if name.startswith("^"):
        name, negated = name[1:], not negated
    points = category(name) if len(name) in (1, 2) else None
    if points is None:
        reader.wrong(f"the property {printable(name)!r}, which is no general category of Unicode,")
    reader.at = end + 1
    return ~points if negated else points


def _class(reader: _Reader) -> Points:
    negated = reader.take("^")
    found = of(())
    first = True
    while first or reader.next != "]":
        if reader.next == "[" or reader.text.startswith("&&", reader.at):
            reader.wrong("a class in a class, which is not supported,")
        start = reader.at
        char = reader.one()
        if char == "\\" and reader.any_case and reader.next in ("p", "P"):
            reader.wrong("a property in a class within (?i:), which is not supported,")
        points = _escape(reader) if char == "\\" else _literal(reader, char)
        if reader.next == "-" and reader.text[reader.at + 1 : reader.at + 2] not in ("]", ""):
            reader.at += 1
            points = _range(reader, reader.text[start : reader.at - 1])
        found = found | points
        first = False
    reader.at += 1
    return ~found if negated else found


def _range(reader: _Reader, low: str) -> Points:
    high = reader.one()
    escaped = high == "\\" or len(low) != 1 or high == "["
    if escaped or reader.any_case or not ord(low) <= ord(high) < POINTS:
        reader.wrong("a range that is not of two characters, which is not supported,")
    return of(range(ord(low), ord(high) + 1))
