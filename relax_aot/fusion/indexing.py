# SPDX-License-Identifier: Apache-2.0
"""Index maps between two shapes of one value.

A view keeps the bytes and changes the shape, so an index into one shape has a partner
in the other. Where an axis is cut into several, the loop that runs along it is cut the
same way: no division appears in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from relax_aot.fusion.piece import Fresh
from relax_aot.ir.bounds import GREATEST
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, simplify
from relax_aot.ir.loops import For, Stmt
from relax_aot.ir.rewrite import map_index_dims, map_statements
from relax_aot.ir.types import Shape

Digits = tuple[tuple[str, Dim], ...]
"""Variable and extent of each part of a loop that is cut, the outermost first."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """`index` holds once the loops in `splits` are cut."""

    index: At
    splits: dict[str, Digits]


def reindex(
    index: At, source: Shape, target: Shape, loops: Mapping[str, For], fresh: Fresh
) -> Reindexed | None:
    """The index into `target` of the element at `index` of `source`; None where that
    would take a division. `loops` are those around it, by variable."""
    if source == target:
        return Reindexed(index, {})
    if ZERO in source or ZERO in target:
        return None  # no element, and splitting empty loops would not end
    groups = _groups(source, target)
    if groups is None:
        return None
    result = [ZERO] * len(target)
    splits: dict[str, Digits] = {}
    for ours, theirs in groups:
        linear = ZERO
        for axis in ours:
            linear = linear * source[axis] + index[axis]
        sizes = [target[axis] for axis in theirs]
        digits = _digits(linear, sizes, loops, splits, fresh)
        if digits is None:
            return None
        for axis, digit in zip(theirs, digits, strict=True):
            result[axis] = digit
    cut = {name: joined(parts) for name, parts in splits.items()}
    return Reindexed(tuple(dim.substitute(cut) for dim in result), splits)


def _groups(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Runs of axes that hold the same elements, as short as can be; axes of size 1 are in
    none of them."""
    left = [axis for axis, size in enumerate(source) if size != ONE]
    right = [axis for axis, size in enumerate(target) if size != ONE]
    groups = []
    while left or right:
        lengths = (
            (p, total - p)
            for total in range(2, len(left) + len(right) + 1)
            for p in range(max(1, total - len(right)), min(len(left), total - 1) + 1)
        )
        equal = ((p, q) for p, q in lengths if _size(source, left[:p]) == _size(target, right[:q]))
        if (found := next(equal, None)) is None:
            return None
        p, q = found
        groups.append((left[:p], right[:q]))
        left, right = left[p:], right[q:]
    return groups


def _size(shape: Shape, axes: list[int]) -> Dim:
    return prod((shape[axis] for axis in axes), start=ONE)


def _digits(
    linear: Dim,
    sizes: list[Dim],
    loops: Mapping[str, For],
    splits: dict[str, Digits],
    fresh: Fresh,
) -> list[Dim] | None:
    if len(sizes) == 1:
        return [linear]
    variable = linear.symbol
    if variable is not None and variable in splits:
        known = splits[variable]
        return [Dim.of(name) for name, _ in known] if [s for _, s in known] == sizes else None
    if variable is not None and variable in loops:
        loop = loops[variable]
        if loop.start == ZERO and loop.stop == prod(sizes, start=ONE):
            splits[variable] = tuple((fresh(variable), size) for size in sizes)
            return [Dim.of(name) for name, _ in splits[variable]]
    return _quotients(linear, sizes, loops)


def _quotients(linear: Dim, sizes: list[Dim], loops: Mapping[str, For]) -> list[Dim] | None:
    """Digits by division, where every division works out at compile time."""
    if not all(size.is_constant for size in sizes[1:]):
        return None
    bounds = _bounds_of_loops(linear, loops)
    digits: list[Dim] = []
    for size in sizes:
        stride = prod(sizes[len(digits) + 1 :], start=ONE)
        quotient = linear // stride if stride != ONE else linear
        digit = quotient if not digits else quotient % size
        digits.append(simplify(digit, bounds))
    return None if any(digit.divides for digit in digits) else digits


def _bounds_of_loops(dim: Dim, loops: Mapping[str, For]) -> Bounds:
    """Ranges of the loop variables in `dim` that are known now; others count as any."""
    ranges = dict.fromkeys(dim.symbols, (0, GREATEST))
    for loop in (loops[name] for name in dim.symbols & loops.keys()):
        fixed = loop.start.is_constant and loop.stop.is_constant
        if fixed and loop.stop.constant > loop.start.constant:
            ranges[loop.variable] = (loop.start.constant, loop.stop.constant - 1)
    return Bounds.of(ranges)


def joined(digits: Digits) -> Dim:
    """The value of the loop variable that was cut into `digits`."""
    total = ZERO
    for name, size in digits:
        total = total * size + Dim.of(name)
    return total


def split_loops(body: tuple[Stmt, ...], splits: Mapping[str, Digits]) -> tuple[Stmt, ...]:
    """Cut the loops that run from 0 to the product of their digits' extents. Another loop
    may have the same variable and another range: it stays."""
    if not splits:
        return body

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.variable not in splits:
            return stmt
        digits = splits[stmt.variable]
        if stmt.start != ZERO or stmt.stop != prod((size for _, size in digits), start=ONE):
            return stmt
        whole = {stmt.variable: joined(digits)}
        inner = map_index_dims(stmt.body, lambda dim: dim.substitute(whole))
        for name, size in reversed(digits):
            inner = (For(name, ZERO, size, inner),)
        (loop,) = inner
        return loop

    return map_statements(body, rule)
