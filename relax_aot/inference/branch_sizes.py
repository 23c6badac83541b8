# SPDX-License-Identifier: Apache-2.0
"""For which sizes a condition on sizes holds, and so which branch of an `if` runs."""

from __future__ import annotations

from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Condition

ENUMERATED = 200_000
"""Sizes that are tried."""

Ranges = list[tuple[bool, int, int]]


def runs_of(truth: object, bounds: Bounds) -> tuple[str, Ranges]:
    """(symbol, runs of sizes for which the condition holds or not); no runs where it has
    several symbols or too many sizes."""
    if not isinstance(truth, Condition):
        return "", []
    symbols = sorted(truth.left.symbols | truth.right.symbols)
    if len(symbols) != 1:
        return "", []
    (symbol,) = symbols
    low, high = bounds.range(symbol)
    if high - low > ENUMERATED:
        return "", []
    ranges: Ranges = []
    for value in range(low, high + 1):
        left, right = (dim.evaluate({symbol: value}) for dim in (truth.left, truth.right))
        holds = {"==": left == right, "!=": left != right, "<=": left <= right}[truth.relation]
        if ranges and ranges[-1][0] == holds:
            ranges[-1] = (holds, ranges[-1][1], value)
        else:
            ranges.append((holds, value, value))
    return symbol, ranges


def narrowed(truth: object, side: bool, bounds: Bounds) -> dict[str, tuple[int, int]]:
    """The sizes for which the branch of this side runs, where one symbol tells. Where the
    symbol's high is raised, the end of these sizes stays what it is, or is that high."""
    symbol, ranges = runs_of(truth, bounds)
    mine = [(first, last) for holds, first, last in ranges if holds is side]
    if not mine:
        return {}
    first, (low, high) = mine[0][0], bounds.range(symbol)
    if _ends_for_good(truth, side, symbol, high):
        return {symbol: (first, mine[-1][1])}
    # A range of one size would be one for good.
    return {symbol: (max(min(first, high - 1), low), high)}


def _ends_for_good(truth: object, side: bool, symbol: str, high: int) -> bool:
    """Whether no size above `high` is on this side, given that some up to it are."""
    if not isinstance(truth, Condition) or not _straight(truth.left - truth.right, symbol):
        return False
    if truth.relation != "<=":
        return side is (truth.relation == "==")
    left, right = (dim.evaluate({symbol: high + 1}) for dim in (truth.left, truth.right))
    return side is not (left <= right)


def _straight(dim: Dim, symbol: str) -> bool:
    """A multiple of the symbol and a number: it has each sign on one side of one size."""
    return all(monomial in ((), ((symbol, 1),)) for _, monomial in dim.terms)
