# SPDX-License-Identifier: Apache-2.0
"""Breaks C statements that pass 100 columns where clang-format would break them.

A shortest path over the tokens of one statement: each break costs by how deep it is nested and
how tightly the operator around it binds, as in clang-format's LLVM style (ContinuationIndenter,
TokenAnnotator::splitPenalty).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from typing import NamedTuple, TypeAlias

COLUMNS = 100
INDENT = 4
_TOKEN = re.compile(
    r"\"[^\"]*\"|(?:\d[\w.]*[eE][-+]\d+\w*)|[\w.]+|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||##|[^\s\w]"
)
_COMMA, _ASSIGNMENT, _CONDITIONAL, _CAST = 1, 2, 3, 16
_BINARY = {
    "?": _CONDITIONAL, "||": 4, "&&": 5, "|": 6, "^": 7, "&": 8, "==": 9, "!=": 9, "<": 10,
    ">": 10, "<=": 10, ">=": 10, "<<": 12, ">>": 12, "+": 13, "-": 13, "*": 14, "/": 14,
    "%": 14,
}  # fmt: skip
_LOOSEST = {";": 0, ",": _COMMA, "=": _ASSIGNMENT, ":": _CONDITIONAL}
_FIRST_BREAK, _FIRST_ARGUMENT, _RETURN_TYPE, _DECLARATION, _LOOP_HEAD = 15, 19, 60, 100, 1000
_OUTSIDE = 1_000_000
_TYPES = ("const", "static", "struct", "enum", "void", "restrict", "RAOT_NOINLINE", "RAOT_INLINE")


class _Token(NamedTuple):
    text: str
    space: bool
    """A blank stands in front."""
    penalty: int | None = None
    """Of a break in front of it; None where no break may be."""
    opens: tuple[int, ...] = ()
    """Precedences of the operator groups that begin here."""
    closes: int = 0
    """How many of them end behind it."""
    operator: int = 0
    """Precedence of the binary operator, or comma, in front of the break."""
    several: bool = False
    """That operator has more than two operands."""
    heads: bool = False
    """The bracket of an `if` or of a loop."""
    name: bool = False
    """The name of a function in its head."""
    aligned: bool = False
    """The first group that begins here is not indented: it begins a bracket or a value."""


class _Level(NamedTuple):
    """An open bracket, or a group of operators: where its lines begin.

    A tuple, as the search makes and compares hundreds of thousands of them.
    """

    indent: int
    last: int
    broken: bool = False
    each: bool = False
    """Something inside is broken, so each part begins a line."""
    whole: bool = False
    """Nothing inside is broken: it belongs to an operand that does not begin a line."""
    operand: bool = False
    """The same of the operand that is open at this level."""


def laid_out(line: str) -> list[str]:
    """The line, or its lines where it is too long."""
    return [line] if len(line) <= COLUMNS else list(_broken(line))


@lru_cache(maxsize=1 << 12)
def _broken(line: str) -> tuple[str, ...]:
    indent = len(line) - len(line.lstrip())
    tokens = _tokens(line.strip())
    breaks = _cheapest(tokens, indent)
    lines: list[str] = []
    text = ""
    for position, token in enumerate(tokens):
        if position in breaks:
            lines.append(text)
            text = " " * breaks[position] + token.text
        else:
            blank = " " if token.space and text else ""
            text += f"{blank}{token.text}" if text else " " * indent + token.text
    return (*lines, text)


_COMPARISONS = (9, 10)
_TOGETHER = (0, _ASSIGNMENT, _CONDITIONAL, 10)
"""Precedences of operators whose later operands may be broken where they do not begin a line."""
_STATES = 5_000
_STEP = 1 << 30
_Breaks: TypeAlias = "tuple[_Breaks | None, int, int]"
"""The breaks before, the position of the last one, and its column."""
_State: TypeAlias = "tuple[int, int, int, int, tuple[_Level, ...], _Breaks | None]"
"""Cost, number, position, column, levels, breaks."""


def _cheapest(tokens: tuple[_Token, ...], indent: int) -> dict[int, int]:
    """Position of each token that begins a line -> its column."""
    order = count()
    start = (_Level(indent + INDENT, indent),)
    # Where the last token before `position` stands and the levels there: what that token does to
    # them is worked out when the state is taken, as most states never are.
    ahead: list[_State] = [(0, next(order), 0, indent, start, None)]
    seen: set[tuple[int, int, tuple[_Level, ...]]] = set()
    onward = 0
    while ahead:
        if len(seen) == _STATES and not onward:
            # Too many ways to compare all: whoever is furthest goes on.
            onward = _STEP
            ahead = [(c - onward * at, n, at, *rest) for c, n, at, *rest in ahead]  # type: ignore[misc]  # the same fields
            heapify(ahead)
        cost, _, position, column, levels, breaks = heappop(ahead)
        if position:
            begins = position == 1 or (breaks is not None and breaks[1] == position - 1)
            before = None if begins else tokens[position - 2]
            column, levels = _moved(tokens[position - 1], before, column, levels)
        if position == len(tokens):
            return _columns(breaks)
        if (position, column, levels) in seen:
            continue
        seen.add((position, column, levels))
        token, level = tokens[position], levels[-1]
        must = (
            position > 0
            and level.each
            and (token.operator not in (0, _ASSIGNMENT) or token.text in ("?", ":"))
            and (token.operator not in _COMPARISONS or tokens[position - 2].closes > 0)
            and token.penalty is not None
        )
        if not must:
            at = column + (token.space and position > 0)
            cost_here = cost - onward
            if at + len(token.text) > COLUMNS:
                cost_here += _outside(at, token)
            heappush(ahead, (cost_here, next(order), position + 1, at, levels, breaks))
        may_break = not level.whole and (not level.operand or token.operator > 0)
        if position and token.penalty is not None and may_break:
            extra = 0 if level.broken else _FIRST_BREAK
            outer = [one if one[3] else _Level(*one[:3], True, *one[4:]) for one in levels[:-1]]
            at = indent if token.name else level.indent
            here = _Level(level.indent, at, True, token.text == "?", level.whole)
            cost_here = cost + token.penalty + extra + _outside(at, token) - onward
            found = (breaks, position, at)
            heappush(ahead, (cost_here, next(order), position + 1, at, (*outer, here), found))
    raise AssertionError(tokens)


def _columns(breaks: _Breaks | None) -> dict[int, int]:
    found = {}
    while breaks is not None:
        breaks, position, column = breaks
        found[position] = column
    return found


def _outside(at: int, token: _Token) -> int:
    return max(0, at + len(token.text) - max(at, COLUMNS)) * _OUTSIDE


def _moved(
    token: _Token, before: _Token | None, at: int, levels: tuple[_Level, ...]
) -> tuple[int, tuple[_Level, ...]]:
    """The column behind a token that stands at `at`, and the levels that are open there."""
    top = levels[-1]
    if before is not None and before.text in "([{":
        top = _Level(at, at if before.heads else top.last, *top[2:])
    elif token.operator > _ASSIGNMENT or token.operator == _COMMA:
        operand = before is not None and token.several
        top = _Level(top.indent, at, top.broken, top.each, top.whole, operand)
    if token.text == "?":
        top = _Level(at, *top[1:])
    levels = (*levels[:-1], top)
    aligned = token.aligned
    for precedence in token.opens:
        level = levels[-1]
        indented = precedence == _CONDITIONAL or (precedence > _ASSIGNMENT and not aligned)
        deeper = INDENT if indented else 0
        whole = level.whole or level.operand
        begin = max(at, level.indent) + deeper
        levels = (*levels, _Level(begin, max(at, level.last), whole=whole))
        aligned = False
    column = at + len(token.text)
    if token.text in "([{":
        level = levels[-1]
        whole = level.whole or level.operand
        levels = (*levels, _Level(level.last + INDENT, level.last, whole=whole))
    elif token.text in ")]}":
        levels = levels[:-1] or levels
    return column, levels[: max(1, len(levels) - token.closes)]


def _tokens(text: str) -> tuple[_Token, ...]:
    matches = list(_TOKEN.finditer(text))
    words = [found[0] for found in matches]
    spaces = [bool(here.start() - there.end()) for there, here in pairwise(matches)]
    binary = [_is_binary(words, position) for position in range(len(words))]
    # A function's head.
    declares = words[-1] in (")", ";") and "=" not in words and words[0] in _HEADS
    penalties = _penalties(words, binary, declares)
    opens, closes, several = _groups(words, binary)
    result = []
    for position, word in enumerate(words):
        before = words[position - 1] if position else ""
        operator = 0
        if before == ",":
            operator = _COMMA
        elif position and binary[position - 1]:
            operator = _ASSIGNMENT if before == "=" else _BINARY.get(before, 0)
        result.append(
            _Token(
                word, position > 0 and spaces[position - 1], penalties[position],
                opens.get(position, ()), closes.get(position, 0), operator, position in several,
                word == "(" and before in _HEAD, declares and word == _name(words),
                before in ("", "(", "[", "{", ";", "return", "="),
            )
        )  # fmt: skip
    return tuple(result)


_HEADS = ("RAOT_NOINLINE", "RAOT_INLINE", "static", "enum", "void", "size_t", "const", "int32_t")


def _is_binary(words: list[str], position: int) -> bool:
    word = words[position]
    if word == "=" or word in ("?", ":", "/", "%", "==", "!=", "<", ">", "<=", ">=", "&&", "||"):
        return True
    if word not in _BINARY or not position:
        return False
    before = words[position - 1]
    if before == ")" and word in "*&-+" and _is_cast(words, position - 1):
        return False
    if word == "*" and (before in _TYPES or before.endswith("_t") or _pointed(words, position)):
        return False
    return before in (")", "]") or (bool(re.match(r"\w", before)) and before != "return")


def _pointed(words: list[str], position: int) -> bool:
    """`float *x`, `struct a *b`."""
    before = words[position - 1]
    if before in ("float", "double", "char", "size_t"):
        return True
    return position > 1 and words[position - 2] in ("struct", "enum")


def _is_cast(words: list[str], closing: int) -> bool:
    start = closing - 1
    while words[start] != "(":
        start -= 1
    inner = words[start + 1 : closing]
    called = start > 0 and re.match(r"\w", words[start - 1]) and words[start - 1] != "return"
    kinds = ("float", "double", "size_t", "void", "char", "long", "struct", "const", "unsigned")
    return (
        not called
        and bool(inner)
        and all(word == "*" or word in kinds or word.endswith("_t") for word in inner)
    )


def _penalties(words: list[str], binary: list[bool], declares: bool) -> list[int | None]:
    """What a break in front of each token costs."""
    result: list[int | None] = []
    strength = 1
    open_: list[str] = []
    for position, word in enumerate(words):
        before = words[position - 1] if position else ""
        here: int | None = None
        if before == ",":
            here = 20 * strength + _COMMA
        elif before == ";" and open_:
            here = 20 * strength
        elif before == "=" and word != "{":
            here = 20 * strength + (4 if words[0] == "for" else _ASSIGNMENT)
        elif position and word in ("?", ":"):
            here = 20 * strength + _CONDITIONAL
        elif position and binary[position - 1] and before not in ("?", ":") and word != "{":
            here = 20 * strength + _BINARY.get(before, 0)
        elif before == "(" and word != ")":
            call = _DECLARATION if declares else _FIRST_ARGUMENT
            in_head = position > 1 and words[position - 2] in _HEAD
            here = 20 * strength + (_LOOP_HEAD if in_head else call)
        elif before == "{" and word != "}":
            here = 20 * strength + _FIRST_ARGUMENT
        elif declares and word == _name(words) and position and strength == 1:
            here = 20 + _RETURN_TYPE
        result.append(here)
        if word in "([{":
            open_.append(word)
            strength += 10 if word == "[" else 1
        elif word in ")]}" and open_:
            strength -= 10 if open_.pop() == "[" else 1
    return result


_HEAD = ("if", "for", "while")


def _name(words: list[str]) -> str:
    return words[words.index("(") - 1] if "(" in words else ""


def _groups(
    words: list[str], binary: list[bool]
) -> tuple[dict[int, tuple[int, ...]], dict[int, int], set[int]]:
    """Where groups of operators of one precedence begin, outermost first, where they end, and
    the later operands of those that have more than two."""
    opens: dict[int, tuple[int, ...]] = {}
    closes: dict[int, int] = {}
    several: set[int] = set()
    for start, stop in _scopes(words):
        for first, last, precedence, operators in _inside(words, binary, start, stop):
            opens[first] = (*opens.get(first, ()), precedence)
            closes[last] = closes.get(last, 0) + 1
            if len(operators) > 1 and precedence not in _TOGETHER:
                several.update(position + 1 for position in operators)
    return {at: tuple(sorted(found)) for at, found in opens.items()}, closes, several


def _scopes(words: list[str]) -> Iterator[tuple[int, int]]:
    """First and last token of the statement and of what stands in each pair of brackets."""
    open_ = [0]
    for position, word in enumerate(words):
        if word in "([{":
            open_.append(position + 1)
        elif word in ")]}" and len(open_) > 1:
            start = open_.pop()
            if start < position:
                yield start, position - 1
    yield 0, len(words) - (2 if words[-1] in (";", "{") else 1)


def _inside(
    words: list[str], binary: list[bool], start: int, stop: int
) -> Iterator[tuple[int, int, int, list[int]]]:
    """The groups directly in one scope: parts split at the loosest operator, and so on. Each
    with its operators."""
    depth, least = 0, 99
    found: list[tuple[int, int]] = []
    for position in range(start, stop + 1):
        word = words[position]
        if word in "([{":
            depth += 1
        elif word in ")]}":
            depth -= 1
        elif depth == 0 and (word in _LOOSEST or binary[position]):
            precedence = _LOOSEST.get(word, _BINARY.get(word, 99))
            found.append((position, precedence))
            least = min(least, precedence)
    if not found:
        return
    yield start, stop, least, [position for position, precedence in found if precedence == least]
    first = start
    for position, precedence in (*found, (stop + 1, least)):
        if precedence == least:
            if first <= position - 1:
                yield from _inside(words, binary, first, position - 1)
            first = position + 1
