# SPDX-License-Identifier: Apache-2.0
"""Ranges of values, as pairs (lowest, highest): rules for `Op.value_range`."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan

from relax_aot.ops._op import Range

ANY: Range = (-inf, inf)


def union(*parts: Range) -> Range:
    return min(p[0] for p in parts), max(p[1] for p in parts)


def corners(combine: Callable[[float, float], float]) -> Callable[[Range, Range], Range]:
    """The rule of a function that is monotone in each operand."""

    def rule(a: Range, b: Range) -> Range:
        found = [combine(x, y) for x in a for y in b]
        return ANY if any(map(isnan, found)) else (min(found), max(found))

    return rule


def ratio(a: Range, b: Range) -> Range:
    if b[0] <= 0 <= b[1]:
        return ANY
    return corners(lambda x, y: x / y)(a, b)


def clipped(a: Range, low: Range = ANY, high: Range = ANY) -> Range:
    return min(max(a[0], low[0]), high[1]), min(max(a[1], low[1]), high[1])


def steps(first: Range, last: Range, step: Range) -> Range:
    """The number of steps from the first to the last."""
    low, high = ratio((last[0] - first[1], last[1] - first[0]), step)
    return max(low, 0.0), max(high + 1, 0.0)
