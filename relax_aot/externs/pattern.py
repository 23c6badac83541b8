# SPDX-License-Identifier: Apache-2.0
"""Which calls of a graph an extern stands for: a few calls in the text form.

    %p = matmul(%x, %w)
    %q = add(%p, %b)
    %y = relu(%q)

A name that no line makes is an input and matches any value; a number matches a constant of
one element that is equal to it. `{alpha=$slope}` gives an attribute a name that C parameters
may use (`{kernel=[$k]}` the element of a list); any other value must be equal. The operands
of commutative ops match in either order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from relax_aot.externs._error import ExternError
from relax_aot.ir.graph import Attr, Call, Constant, Function, Var
from relax_aot.ops import has
from relax_aot.ops._op import Trait

AXES = ("axis", "axes")


@dataclass(frozen=True, slots=True)
class AttrName:
    """`$name`: any value, known by this name."""

    name: str


Operand = str | float
"""The name of a value, or a number."""
AttrPattern = Attr | AttrName | tuple["AttrPattern", ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One call of a pattern. An absent argument (`_`) is None."""

    outs: tuple[str, ...]
    op: str
    args: tuple[Operand | None, ...]
    attrs: tuple[tuple[str, AttrPattern], ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """Lines in order; all of them lead to the last."""

    lines: tuple[Line, ...]

    @property
    def made(self) -> tuple[str, ...]:
        return tuple(out for line in self.lines for out in line.outs)

    @property
    def read(self) -> tuple[str, ...]:
        """Inputs: names that are read and not made, in the order of the text."""
        made = set(self.made)
        names = (arg for line in self.lines for arg in line.args if isinstance(arg, str))
        return tuple(dict.fromkeys(name for name in names if name not in made))

    @property
    def attr_names(self) -> tuple[str, ...]:
        return tuple(
            name for line in self.lines for _, value in line.attrs for name in _names_in(value)
        )


def _names_in(value: AttrPattern) -> Iterator[str]:
    if isinstance(value, AttrName):
        yield value.name
    elif isinstance(value, tuple):
        for part in value:
            yield from _names_in(part)


@dataclass(frozen=True)
class Match:
    """Calls that one extern call replaces; `values` are the pattern's names."""

    calls: tuple[Call, ...]
    values: Mapping[str, Var]
    attrs: Mapping[str, Attr]

    @property
    def last(self) -> Call:
        return self.calls[-1]


# Reading

_LINE = re.compile(
    r"\s*(?P<outs>%[\w.]+(?:\s*,\s*%[\w.]+)*)\s*=\s*(?P<op>\w+)"
    r"\s*\((?P<args>[^()]*)\)\s*(?:\{(?P<attrs>.*)\})?\s*"
)


def parse_pattern(text: str, ops: Sequence[str]) -> Pattern:
    """The pattern of lines `%y = op(%x, _) {attr=1}`; `ops` are the ops that exist."""
    lines = [_line(part, ops) for part in re.split(r"[\n;]", text) if part.strip()]
    if not lines:
        raise ExternError("a pattern needs at least one line such as `%y = relu(%x)`")
    pattern = Pattern(tuple(lines))
    twice = {name for name in pattern.made if pattern.made.count(name) > 1}
    if twice:
        raise ExternError(f"%{min(twice)} is defined twice")
    known: set[str] = set()
    for line in lines:
        later = {a for a in line.args if isinstance(a, str)} & (set(pattern.made) - known)
        if later:
            raise ExternError(f"%{min(later)} is read before the line that makes it")
        known |= set(line.outs)
    needed = {a for line in lines for a in line.args}
    for line in lines[:-1]:
        if not needed & set(line.outs):
            raise ExternError(f"%{line.outs[0]} does not lead to the last line")
    return pattern


def _line(text: str, ops: Sequence[str]) -> Line:
    match = _LINE.fullmatch(text)
    if match is None:
        raise ExternError(f"expected a line such as `%y = relu(%x)`, got `{text.strip()}`")
    if match["op"] not in ops:
        raise ExternError(
            f"unknown op {match['op']!r}; `relax-aot compile --dump` shows the ops of a model"
        )
    args = [arg.strip() for arg in match["args"].split(",")] if match["args"].strip() else []
    attrs = _split(match["attrs"] or "")
    return Line(
        tuple(out.strip()[1:] for out in match["outs"].split(",")),
        match["op"],
        _trimmed([_operand(arg, text) for arg in args]),
        tuple(_attribute(part, text) for part in attrs),
    )


def _operand(text: str, line: str) -> Operand | None:
    if text == "_":
        return None
    if re.fullmatch(r"%[\w.]+", text):
        return text[1:]
    try:
        return float(text)
    except ValueError:
        raise ExternError(
            f"expected %name, a number or _, got `{text}` in `{line.strip()}`"
        ) from None


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts = re.findall(r"(?:\[[^\]]*\]|\"[^\"]*\"|[^,\[\"])+", text)
    return [part.strip() for part in parts if part.strip()]


def _attribute(text: str, line: str) -> tuple[str, AttrPattern]:
    name, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not name.isidentifier():
        raise ExternError(f"expected attribute=value, got `{text}` in `{line.strip()}`")
    return name, _literal(value)


def _literal(text: str) -> AttrPattern:
    if re.fullmatch(r"\$[A-Za-z_]\w*", text):
        return AttrName(text[1:])
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("[") and text.endswith("]"):
        return tuple(_literal(part) for part in _split(text[1:-1]))
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ExternError(f'expected a number, true, false, "text", [list] or $name, got `{text}`')


Item = TypeVar("Item")


def _trimmed(args: Sequence[Item | None]) -> tuple[Item | None, ...]:
    """Without those that are absent at the end."""
    count = len(args)
    while count and args[count - 1] is None:
        count -= 1
    return tuple(args[:count])


# Matching


@dataclass
class _Found:
    values: dict[str, Var]
    attrs: dict[str, Attr]
    calls: dict[int, Call]
    """By line of the pattern."""

    def copy(self) -> _Found:
        return _Found(dict(self.values), dict(self.attrs), dict(self.calls))


@dataclass(frozen=True)
class Graph:
    """What a match looks into: a function, where each value is made and read, constants."""

    function: Function
    constants: Mapping[str, Constant]

    @cached_property
    def places(self) -> dict[str, int]:
        """Value -> position of the call that makes it."""
        return {out.name: at for at, call in enumerate(self.function.body) for out in call.outs}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """Value -> positions of the calls that read it; the function's results are read last."""
        found: dict[str, list[int]] = {}
        for at, call in enumerate(self.function.body):
            for value in call.inputs:
                found.setdefault(value.name, []).append(at)
        for result in self.function.results:
            found.setdefault(result.name, []).append(len(self.function.body))
        return found

    def maker(self, value: Var) -> Call | None:
        at = self.places.get(value.name)
        return None if at is None else self.function.body[at]

    def place(self, call: Call) -> int:
        return self.places[call.outs[0].name]

    def is_number(self, var: Var, number: float) -> bool:
        constant = self.constants.get(var.name)
        if constant is None or constant.data.size != 1:
            return False
        data = constant.data.reshape(())
        return bool(data == np.float64(number).astype(data.dtype))


def matches(pattern: Pattern, graph: Graph, root: Call) -> Iterator[Match]:
    """Every way in which `root` is the pattern's last line."""
    last = len(pattern.lines) - 1
    for found in _match(pattern, last, root, _Found({}, {}, {}), graph):
        if len(found.calls) == len(pattern.lines):
            order = sorted(found.calls.values(), key=graph.place)
            yield Match(tuple(order), found.values, found.attrs)


def _match(
    pattern: Pattern, number: int, call: Call, found: _Found, graph: Graph
) -> Iterator[_Found]:
    line = pattern.lines[number]
    if number in found.calls:
        if found.calls[number] is call:
            yield found
        return
    args = _trimmed(call.args)
    if call.op != line.op or len(args) != len(line.args) or len(call.outs) != len(line.outs):
        return
    if any(call is other for other in found.calls.values()):
        return
    start = found.copy()
    start.calls[number] = call
    if not _attrs_match(line, call, start):
        return
    for name, out in zip(line.outs, call.outs, strict=True):
        start.values[name] = out
    orders = [args]
    if len(args) == 2 and has(call.op, Trait.COMMUTATIVE):
        orders.append((args[1], args[0]))
    for order in orders:
        yield from _match_args(pattern, line.args, order, start, graph)


def _match_args(
    pattern: Pattern,
    names: Sequence[Operand | None],
    args: Sequence[Var | None],
    found: _Found,
    graph: Graph,
) -> Iterator[_Found]:
    if not names:
        yield found
        return
    name, arg = names[0], args[0]
    if (name is None) != (arg is None):
        return
    starts: Iterator[_Found] = iter((found,))
    if name is not None and arg is not None:
        starts = _match_operand(pattern, name, arg, found, graph)
    for start in starts:
        yield from _match_args(pattern, names[1:], args[1:], start, graph)


def _match_operand(
    pattern: Pattern, name: Operand, arg: Var, found: _Found, graph: Graph
) -> Iterator[_Found]:
    if not isinstance(name, str):
        if graph.is_number(arg, name):
            yield found
        return
    for number, line in enumerate(pattern.lines):
        if name in line.outs:
            call = graph.maker(arg)
            if call is not None and call.outs.index(arg) == line.outs.index(name):
                yield from _match(pattern, number, call, found, graph)
            return
    if name in found.values:
        if found.values[name] == arg:
            yield found
        return
    bound = found.copy()
    bound.values[name] = arg
    yield bound


def _attrs_match(line: Line, call: Call, found: _Found) -> bool:
    given = dict(call.attrs)
    for name, wanted in line.attrs:
        if name not in given:
            return False
        rank = _rank(call) if name in AXES else 0
        if not _attr_matches(wanted, given[name], found, rank):
            return False
    return True


def _rank(call: Call) -> int:
    """Of what an axis is an axis of: plain where the call changes no rank, else 0."""
    values = (*call.args[:1], *call.outs[:1])
    ranks = {len(value.type.shape) for value in values if value is not None}
    return ranks.pop() if len(ranks) == 1 else 0


def _attr_matches(wanted: AttrPattern, given: Attr, found: _Found, rank: int) -> bool:
    """With a rank, axes that are counted from the end are those that they are from the front."""
    if isinstance(wanted, AttrName):
        known = found.attrs.setdefault(wanted.name, given)
        return known == given
    if isinstance(wanted, tuple) and isinstance(given, tuple):
        return len(wanted) == len(given) and all(
            _attr_matches(w, g, found, rank) for w, g in zip(wanted, given, strict=True)
        )
    if rank and type(wanted) is int and type(given) is int and abs(wanted - given) == rank:
        return True
    return bool(wanted == given)
