# SPDX-License-Identifier: Apache-2.0
"""The sizes of a model's inputs: names, expressions, bounds.

An axis is a number, a name, or an expression over names (`2*s0 + 1`); one that says nothing
is the symbol `<input>_<axis>`. Symbols get identifiers that are unique without regard to case;
a user may write either spelling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.bounds import (
    GREATEST,
    WrongBound,
    missing_bounds,
    no_such_symbol,
    printable,
)
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    DimSyntaxError,
    any_size,
    parse_dim,
    parse_relation,
    solve_for,
)
from relax_aot.ir.graph import ASSUMED, Alias, Condition, Symbol

RESERVED = ("min", "max", "inf", "nan")
"""Words of the text form."""
Ranges = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Sizes:
    """The shape of each input, and the symbols in them."""

    shapes: Mapping[str, tuple[Dim, ...]]
    symbols: tuple[Symbol, ...]
    aliases: tuple[Alias, ...]
    conditions: tuple[Condition, ...]
    other_bounds: Ranges
    """Bounds of names that no input has: of data-dependent sizes, or mistakes."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of an input as the file has it."""

    size: int | str
    where: str


def input_sizes(
    inputs: Mapping[str, Sequence[int | str]],
    given: Mapping[str, tuple[int, ...]],
    options: ImportOptions,
    taken: Collection[str],
) -> Sizes:
    """`inputs` holds each axis as the file has it, "" for one that says nothing. `given` are
    the shapes of arrays that fix some of the inputs; `taken` are the names of
    inputs and outputs, which a symbol may share only under the same name."""
    axes = {name: _axes(name, shape) for name, shape in inputs.items()}
    plain = {
        axis.size
        for shape in axes.values()
        for axis in shape
        if isinstance(axis.size, str) and re.fullmatch(r"\w+", axis.size)
    }
    origins: dict[str, str] = {}
    known: dict[str, int] = {}
    for name, shape in axes.items():
        for axis, actual in zip(shape, given.get(name, (None,) * len(shape)), strict=True):
            if not isinstance(axis.size, str):
                continue
            if actual is not None:
                known.update(_solved(axis.size, plain, actual))
                continue
            for symbol in _names(axis.size, plain):
                origins.setdefault(symbol, axis.where)
    names = _identifiers(origins, taken)
    ranges, rest = _ranges(origins, names, known, options)
    symbols = tuple(Symbol(names[text], *ranges[text], origins[text]) for text in origins)
    aliases = tuple(Alias(names[text], text) for text in origins if names[text] != text)
    # A symbol that can have one value only is that value in every type.
    values = {
        text: Dim.of(low) if low == high else Dim.of(names[text])
        for text, (low, high) in ranges.items()
    }
    assumed, conditions = _assumed(options, origins, names, values)
    _possible(options, symbols, conditions)
    values |= assumed
    shapes = {
        name: tuple(
            Dim.of(actual) if actual is not None else _dim(axis.size, values, plain)
            for axis, actual in zip(shape, given.get(name, (None,) * len(shape)), strict=True)
        )
        for name, shape in axes.items()
    }
    return Sizes(shapes, symbols, aliases, conditions, rest)


def _axes(name: str, shape: Sequence[int | str]) -> list[_Axis]:
    axes = []
    for number, size in enumerate(shape):
        where = f"input {printable(name)}, axis {number}"
        if isinstance(size, int):
            if not 0 <= size <= GREATEST:
                raise ModelError(f"{where} has the impossible size {size}")
            axes.append(_Axis(size, where))
        else:
            axes.append(_Axis(size.strip() or f"{name}_{number}", where))
    return axes


def shape_at(name: str, shape: Sequence[int | str], sizes: Mapping[str, int]) -> list[int | str]:
    """An input's shape, as `input_sizes` takes it, with a number for each axis whose sizes are
    known by the names of the source; the others are texts."""
    found: list[int | str] = []
    values = {text: Dim.of(size) for text, size in sizes.items()}
    for axis in _axes(name, shape):
        known = isinstance(axis.size, int) or sizes.keys() >= set(_names(axis.size, sizes))
        found.append(_dim(axis.size, values, sizes).evaluate({}) if known else axis.size)
    return found


# Names


def _expression(text: str, plain: Collection[str]) -> Dim | None:
    """A dim_param with operators in it; `batch-size` is a name unless both are symbols."""
    if not re.search(r"[-+*/%(]", text):
        return None
    try:
        parsed = parse_dim(text)
    except (DimSyntaxError, ZeroDivisionError):
        return None
    spaced = re.search(r"[+*/%(]|\s-\s|-\s*\d|\d\s*-", text)
    return parsed if parsed.symbols and (spaced or parsed.symbols <= set(plain)) else None


def _names(text: str, plain: Collection[str]) -> list[str]:
    """The symbols of a dim_param: those of an expression, else the text itself."""
    expression = _expression(text, plain)
    return [text] if expression is None else sorted(expression.symbols)


def _dim(size: int | str, values: Mapping[str, Dim], plain: Collection[str]) -> Dim:
    if isinstance(size, int):
        return Dim.of(size)
    expression = _expression(size, plain)
    return values[size] if expression is None else expression.substitute(values)


def _identifiers(texts: Collection[str], taken: Collection[str]) -> dict[str, str]:
    """Names that are kept come first, so that a hostile name cannot displace an honest one."""
    names: dict[str, str] = {}
    used: set[str] = set()
    for text in sorted(texts, key=lambda t: not _is_identifier(t)):
        base = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:64] or "size"
        base = base if base[0].isalpha() else f"n_{base}"
        requested = text if _is_identifier(text) else base
        name, count = requested, 1
        while name.lower() in used or (name != text and name in taken):
            count += 1
            name = f"{requested}_{count}"
        names[text] = name
        used.add(name.lower())
    return names


def _is_identifier(text: str) -> bool:
    fits = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", text)
    return fits is not None and text not in RESERVED


# Bounds


def _ranges(
    origins: Mapping[str, str],
    names: Mapping[str, str],
    known: Mapping[str, int],
    options: ImportOptions,
) -> tuple[Ranges, Ranges]:
    """Low and high of every symbol, and what is said of names that inputs do not have; a
    complete list of what is missing otherwise."""
    by_source = {name: text for text, name in names.items()} | {text: text for text in names}
    given: dict[str, tuple[int, int]] = {}
    rest: dict[str, tuple[int, int]] = {}
    for name, (low, high) in options.bounds.items():
        if name in by_source:
            given[by_source[name]] = (low, high)
        elif name not in known:
            rest[name] = (low, high)
        if not 0 <= low <= high <= GREATEST:
            raise WrongBound(f"{options.said(name, ends=True)} contains no size")
    for name, size in known.items():
        low, high = given.get(name, (size, size))
        if not low <= size <= high:
            raise WrongBound(f"{name} is {size} in a fixed input, outside its bound {low}..{high}")
        given[name] = (size, size)
    missing = [text for text in origins if text not in given]
    if missing:
        raise missing_bounds({names[text]: origins[text] for text in missing}, rest)
    return {text: given[text] for text in origins}, rest


def _solved(text: str, plain: Collection[str], actual: int) -> dict[str, int]:
    """What the size of a fixed input says of the symbol there."""
    expression = _expression(text, plain)
    if expression is None:
        return {text: actual}
    if len(expression.symbols) != 1:
        return {}
    (symbol,) = expression.symbols
    solution = solve_for(expression, symbol, Dim.of(actual))
    if solution is None or solution[1] != 0:
        return {}
    return {symbol: solution[0].constant}


# Relations


def _assumed(
    options: ImportOptions,
    origins: Mapping[str, str],
    names: Mapping[str, str],
    values: Mapping[str, Dim],
) -> tuple[dict[str, Dim], tuple[Condition, ...]]:
    """Each relation is checked on entry; an equation also spells one symbol by the others."""
    by_source = {name: Dim.of(name) for name in names.values()}
    by_source |= {text: Dim.of(name) for text, name in names.items()}
    conditions: list[Condition] = []
    replaced: dict[str, Dim] = {}
    for text in options.assume:
        relation, apart = parse_relation(text)
        unknown = sorted(apart.symbols - by_source.keys())
        if options.used is not None:
            if unknown:
                continue
            options.used.add(text)
        if unknown:
            raise WrongBound(
                no_such_symbol(f"--assume {text!r}, {unknown[0]}", unknown[0], origins)
            )
        apart = apart.substitute(by_source)
        if relation != "==0":
            conditions.append(Condition("<=", Dim.of(0), apart, ASSUMED + text))
            continue
        conditions.append(Condition("==", apart, Dim.of(0), ASSUMED + text))
        apart = apart.substitute(replaced)
        for source in sorted(origins, key=lambda s: values[s].is_constant):
            solution = solve_for(apart, names[source], Dim.of(0))
            if solution is not None and solution[1] == 0 and not values[source].is_constant:
                step = {names[source]: solution[0]}
                replaced = {k: v.substitute(step) for k, v in replaced.items()} | step
                break
    return {s: v.substitute(replaced) for s, v in values.items()}, tuple(conditions)


def _possible(
    options: ImportOptions, symbols: tuple[Symbol, ...], conditions: tuple[Condition, ...]
) -> None:
    bounds = Bounds.of({s.name: (s.low, s.high) for s in symbols})
    if not any_size(bounds, [(c.relation, c.left, c.right) for c in conditions]):
        listed = ", ".join(f"--assume {text!r}" for text in options.assume)
        ranges = ", ".join(f"{s.name} in {s.low}..{s.high}" for s in symbols)
        raise WrongBound(f"no size fulfills {listed} where {ranges}; change a relation or a bound")
