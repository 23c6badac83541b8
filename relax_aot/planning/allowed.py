# SPDX-License-Identifier: Apache-2.0
"""The greatest need of memory over the sizes that the conditions of a model allow.

Best-first branch and bound over boxes of sizes: intervals bound a box, small boxes are
enumerated. The search counts its boxes; at the end of the count, the greatest bound that is
left is the answer, which is never too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, FloorDiv, Min, interval, maximize
from relax_aot.ir.evaluate import evaluate_all, magnitude
from relax_aot.ir.graph import Condition, Module, Symbol

Combine = Callable[[Sequence[Any]], Any]
"""From values of sizes, as numbers or arrays, to the need; it may not fall as a size grows."""

POINTS = 1 << 15
"""Boxes of at most so many sizes are enumerated."""
BOXES = 400


def most_by_relations(size: Dim, module: Module) -> tuple[int, int] | None:
    """The greatest value where the conditions hold, at the declared highs and for any highs;
    None where that is no less than `maximize` at the declared highs."""
    return None if size.is_constant else _most(size, module.symbols, module.conditions)


@lru_cache(maxsize=512)
def _most(
    size: Dim, symbols: tuple[Symbol, ...], conditions: tuple[Condition, ...]
) -> tuple[int, int] | None:
    module = Module((), symbols=symbols, conditions=conditions)
    declared = most_allowed([size], lambda values: values[0], module)
    if declared is None:
        return None
    return declared, max(declared, _upper(size, module.bounds.open))


def _upper(size: Dim, bounds: Bounds) -> int:
    """Like `interval`, through a rounding to whole alignments."""
    if len(size.terms) == 1:
        ((c, monomial),) = size.terms
        atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None
        if c > 0 and isinstance(atom, FloorDiv) and atom.denominator.is_constant:
            return c * (interval(atom.numerator, bounds)[1] // atom.denominator.constant)
    return interval(size, bounds)[1]


def most_allowed(dims: Sequence[Dim], combine: Combine, module: Module) -> int | None:
    """The greatest need where the conditions of a call hold; None where they exclude nothing of
    `combine` at the greatest values in the ranges."""
    ranges = {s.name: (s.low, s.high) for s in module.symbols if not s.inner}
    conditions = _connected(dims, module.conditions, ranges)
    names = sorted({n for dim in (*dims, *_sides(conditions)) for n in dim.symbols})
    highs = {name: ranges[name][1] for name in ranges}
    formula = combine([maximize(dim, module.bounds).evaluate(highs) for dim in dims])
    if not conditions or not all(name in ranges for name in names):
        return None
    if _holds(conditions, highs) and combine([dim.evaluate(highs) for dim in dims]) == formula:
        return None
    if any(magnitude(dim, highs) >= 2**62 for dim in (*dims, *_sides(conditions))):
        return None
    found = _search(dims, combine, conditions, {name: ranges[name] for name in names})
    return found if found is not None and found < formula else None


def _connected(
    dims: Iterable[Dim], conditions: Iterable[Condition], ranges: dict[str, tuple[int, int]]
) -> tuple[Condition, ...]:
    """The conditions that the sizes in `dims` take part in, also through other sizes."""
    names = {name for dim in dims for name in dim.symbols}
    waiting = [c for c in conditions if _symbols(c) <= ranges.keys() and not _broadcasts(c)]
    found: list[Condition] = []
    while near := [c for c in waiting if _symbols(c) & names]:
        found += near
        names = names.union(*map(_symbols, near))
        waiting = [c for c in waiting if c not in near]
    return tuple(found)


def _broadcasts(condition: Condition) -> bool:
    """A size is another one or 1, which excludes no highs."""
    atoms = [atom for _, monomial in condition.left.terms for atom, _ in monomial]
    return condition.right == 0 and len(atoms) == 1 and isinstance(atoms[0], Min)


def _symbols(condition: Condition) -> frozenset[str]:
    return condition.left.symbols | condition.right.symbols


def _sides(conditions: Iterable[Condition]) -> list[Dim]:
    return [side for c in conditions for side in (c.left, c.right)]


def _holds(conditions: Iterable[Condition], sizes: dict[str, Any]) -> Any:
    """Whether all conditions hold: of numbers, or by element of arrays."""
    held: Any = True
    for condition in conditions:
        left, right = evaluate_all(condition.left, sizes), evaluate_all(condition.right, sizes)
        held = held & (left == right if condition.relation == "==" else left <= right)
    return held


def _search(
    dims: Sequence[Dim],
    combine: Combine,
    conditions: tuple[Condition, ...],
    ranges: dict[str, tuple[int, int]],
) -> int | None:
    best: int | None = None
    waiting: list[tuple[int, int, dict[str, tuple[int, int]]]] = []
    count = 0

    def add(box: dict[str, tuple[int, int]]) -> None:
        bounds = Bounds.of(box)
        if all(_possible(condition, bounds) for condition in conditions):
            upper = int(combine([interval(dim, bounds)[1] for dim in dims]))
            if best is None or upper > best:
                heappush(waiting, (-upper, count, box))

    add(ranges)
    while waiting and (best is None or -waiting[0][0] > best):
        below, _, box = heappop(waiting)
        if count >= BOXES:
            return -below
        count += 1
        if prod(high - low + 1 for low, high in box.values()) <= POINTS:
            most = _enumerated(dims, combine, conditions, box)
            best = most if best is None else max(best, most or best)
            continue
        widest = max(box, key=lambda name: box[name][1] - box[name][0])
        low, high = box[widest]
        middle = (low + high) // 2
        add({**box, widest: (low, middle)})
        count += 1
        add({**box, widest: (middle + 1, high)})
    return best


def _possible(condition: Condition, bounds: Bounds) -> bool:
    low, high = interval(condition.right - condition.left, bounds)
    return high >= 0 and (condition.relation != "==" or low <= 0)


def _enumerated(
    dims: Sequence[Dim],
    combine: Combine,
    conditions: tuple[Condition, ...],
    box: dict[str, tuple[int, int]],
) -> int | None:
    grids = np.meshgrid(*(np.arange(a, b + 1, dtype=np.int64) for a, b in box.values()))
    sizes = dict(zip(box, grids, strict=True))
    held = np.broadcast_to(_holds(conditions, sizes), grids[0].shape)
    if not held.any():
        return None
    chosen = {name: grid[held] for name, grid in sizes.items()}
    need = combine([np.asarray(evaluate_all(dim, chosen)) for dim in dims])
    return int(np.max(need))
