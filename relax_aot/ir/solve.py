# SPDX-License-Identifier: Apache-2.0
"""Sizes from shapes: solves a system of equations and inequalities over bounded symbols.

Equations that determine a symbol are solved exactly and without regard to bounds, first one at
a time, then together by Gaussian elimination over their monomials. What remains is searched
within the bounds by branch and bound on intervals, one connected component of symbols at a
time. A symbol is solved only if it has the same value in every solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from relax_aot.ir.bounds import Bounds, Relation, interval
from relax_aot.ir.dim_expr import Dim, Monomial
from relax_aot.ir.simplify import solve_for


@dataclass(frozen=True)
class Solved:
    """What is known of the symbols, and why the others are not."""

    sizes: dict[str, int]
    """Symbols that have the same value in every solution."""
    ambiguous: tuple[str, ...] = ()
    """Symbols that differ between two solutions, or whose search was given up."""
    examples: tuple[dict[str, int], ...] = ()
    """Two solutions that differ in the ambiguous symbols, unless a search was given up."""
    impossible: tuple[str, ...] = ()
    """Symbols that no values within their bounds satisfy."""


class _GivenUp(Exception):
    """A search has used up its boxes."""


def solve(
    equations: Sequence[tuple[Dim, int]],
    relations: Sequence[Relation],
    ranges: Mapping[str, tuple[int, int]],
    given: Mapping[str, int],
) -> Solved:
    """The symbols of `ranges` that satisfy `equations` (an expression and its value each) and
    `relations`. dict[str, int] in `given` are taken as they are. An equation that the known symbols
    contradict is not reported: the caller evaluates its shapes."""
    zeros = [dim - value for dim, value in equations]
    zeros += [left - right for relation, left, right in relations if relation == "=="]
    positive = [right - left for relation, left, right in relations if relation == "<="]
    known = dict(given)
    try:
        zeros = _eliminate(zeros, known)
        positive = [dim.substitute(known) for dim in positive]
    except ZeroDivisionError:  # by a size that is given or shown
        return Solved(known, impossible=tuple(n for n in ranges if n not in known))
    unknown = {name: ends for name, ends in ranges.items() if name not in known}
    ambiguous: list[str] = []
    impossible: list[str] = []
    examples: tuple[dict[str, int], dict[str, int]] | None = ({}, {})
    for names in _components(unknown, [*zeros, *positive]):
        box = {name: unknown[name] for name in names}
        try:
            found = _two_solutions(_about(zeros, names), _about(positive, names), box)
        except _GivenUp:
            ambiguous += names
            examples = None
            continue
        match found:
            case []:
                impossible += names
            case [only]:
                known |= only
            case [first, second]:
                differ = [name for name in names if first[name] != second[name]]
                ambiguous += differ
                for example, sizes in zip(examples or (), found, strict=False):
                    example |= {name: sizes[name] for name in differ}
    shown = examples if ambiguous and examples is not None else ()
    return Solved(known, tuple(ambiguous), shown, tuple(impossible))


def _about(dims: Iterable[Dim], names: Sequence[str]) -> list[Dim]:
    return [dim for dim in dims if not dim.symbols.isdisjoint(names)]


def _components(unknown: Mapping[str, tuple[int, int]], dims: Sequence[Dim]) -> list[list[str]]:
    """Symbols that stand together in an expression, in the order of `unknown`."""
    groups = [[name] for name in unknown]
    for dim in dims:
        joined = [group for group in groups if not dim.symbols.isdisjoint(group)]
        if len(joined) > 1:
            together = [name for name in unknown if any(name in group for group in joined)]
            groups = [group for group in groups if group not in joined] + [together]
    return groups


# Equations that determine a symbol without its bounds


def _eliminate(zeros: Sequence[Dim], known: dict[str, int]) -> list[Dim]:
    """Adds to `known` what the equations determine; the rest of them, with that put in."""
    while True:
        zeros = _one_unknown_each(zeros, known)
        found = _together(zeros)
        if not found:
            return list(zeros)
        known |= found


def _one_unknown_each(zeros: Sequence[Dim], known: dict[str, int]) -> list[Dim]:
    rest = [dim.substitute(known) for dim in zeros]
    never = False
    position = 0
    while position < len(rest):
        dim = rest[position]
        position += 1
        if len(dim.symbols) != 1:
            continue
        (symbol,) = dim.symbols
        solved = solve_for(dim, symbol, Dim.of(0))
        if solved is not None and solved[1].constant:
            never = True
        elif solved is not None:
            known[symbol] = solved[0].constant
            rest = [other.substitute({symbol: known[symbol]}) for other in rest]
            position = 0
    # An equation without solutions is that of another number and 0.
    return [dim for dim in rest if dim != 0] + [Dim.of(1)] * never


def _together(zeros: Sequence[Dim]) -> dict[str, int]:
    """Symbols that Gaussian elimination leaves alone in a row; every other monomial, such as a
    product, is an unknown like any other."""
    monomials = dict.fromkeys(m for dim in zeros for _, m in dim.terms if m)
    columns: list[Monomial] = sorted(monomials, key=lambda m: _symbol_of(m) is not None)
    if len(zeros) < 2:
        return {}
    rows = []
    for dim in zeros:
        table = {monomial: Fraction(c) for c, monomial in dim.terms}
        rows.append([table.get(column, Fraction(0)) for column in [*columns, ()]])
    found: dict[str, int] = {}
    for row in _reduced(rows, len(columns)):
        places = [place for place, value in enumerate(row[:-1]) if value]
        symbol = _symbol_of(columns[places[0]]) if len(places) == 1 else None
        if symbol is not None:
            value = -row[-1] / row[places[0]]
            if value.denominator == 1:
                found[symbol] = int(value)
    return found


def _symbol_of(monomial: Monomial) -> str | None:
    match monomial:
        case ((str(symbol), 1),):
            return symbol
        case _:
            return None


def _reduced(rows: list[list[Fraction]], columns: int) -> list[list[Fraction]]:
    """Reduced row echelon form."""
    done = 0
    for column in range(columns):
        pivot = next((row for row in range(done, len(rows)) if rows[row][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        scale = rows[done][column]
        rows[done] = [value / scale for value in rows[done]]
        for row in range(len(rows)):
            factor = rows[row][column]
            if row != done and factor:
                pairs = zip(rows[row], rows[done], strict=True)
                rows[row] = [value - factor * lead for value, lead in pairs]
        done += 1
    return rows[:done]


# Search within bounds


def _two_solutions(
    zeros: Sequence[Dim], positive: Sequence[Dim], box: Mapping[str, tuple[int, int]]
) -> list[dict[str, int]]:
    """At most two solutions: the first is alone only if there is no other."""
    found: list[dict[str, int]] = []
    for sizes in _solutions(zeros, positive, box):
        found.append(sizes)
        if len(found) == 2:
            break
    return found


def _solutions(
    zeros: Sequence[Dim], positive: Sequence[Dim], start: Mapping[str, tuple[int, int]]
) -> Iterator[dict[str, int]]:
    boxes: list[tuple[list[Dim], list[Dim], dict[str, tuple[int, int]]]]
    boxes = [(list(zeros), list(positive), dict(start))]
    for _ in range(20_000):  # boxes, before the search of a component is given up
        if not boxes:
            return
        equal, least, box = boxes.pop()
        if _excluded(equal, least, box):
            continue
        known = {name: low for name, (low, high) in box.items() if low == high}
        try:
            equal = _eliminate(equal, known)
            least = [dim.substitute(known) for dim in least]
        except ZeroDivisionError:
            continue
        if not all(box[name][0] <= size <= box[name][1] for name, size in known.items()):
            continue
        box |= {name: (size, size) for name, size in known.items()}
        if len(known) == len(box):
            if _satisfied(zeros, positive, known):
                yield known
            continue
        name = min((n for n in box if n not in known), key=lambda n: box[n][1] - box[n][0])
        low, high = box[name]
        middle = (low + high) // 2
        for half in ((middle + 1, high), (low, middle)):
            boxes.append((equal, least, box | {name: half}))
    raise _GivenUp


def _excluded(
    zeros: Sequence[Dim], positive: Sequence[Dim], box: Mapping[str, tuple[int, int]]
) -> bool:
    bounds = Bounds.of(box)
    for dim in zeros:
        low, high = _interval(dim, bounds)
        if low > 0 or high < 0:
            return True
    return any(_interval(dim, bounds)[1] < 0 for dim in positive)


def _interval(dim: Dim, bounds: Bounds) -> tuple[float, float]:
    try:
        return interval(dim, bounds)
    except ZeroDivisionError:  # a divisor may be 0 in this box
        return float("-inf"), float("inf")


def _satisfied(zeros: Sequence[Dim], positive: Sequence[Dim], sizes: dict[str, int]) -> bool:
    try:
        return all(dim.evaluate(sizes) == 0 for dim in zeros) and all(
            dim.evaluate(sizes) >= 0 for dim in positive
        )
    except ZeroDivisionError:
        return False
