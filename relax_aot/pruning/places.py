# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of ranges of numbers, at places that loops run through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array
from relax_aot.pruning.knowledge import Known, anything, either, strange, where


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A loop or condition around a statement. `size` is that of its axis."""

    number: int = -1
    """Of the loop; -1 for a condition."""
    variable: str = ""
    size: int = 1
    positions: Array | None = None
    count: int | None = None
    """How often it runs, where that is known."""
    runs: bool = False
    """It runs at least once."""


def loops_of(frames: Sequence[Frame]) -> list[Frame]:
    """The frames that have an axis."""
    return [frame for frame in frames if frame.number >= 0]


_ZERO = np.zeros((), np.int64)
_FIRST = Known(_ZERO, _ZERO, data=False)


def place_of(dim: Dim, frames: Sequence[Frame], binds: Mapping[str, Known]) -> Known | None:
    """The value of an index expression; None where it is that of any iteration."""
    total: Array = np.zeros((), np.int64)
    known: Array = np.ones((), np.bool_)
    data = False
    depths = loops_of(frames)
    for factor, monomial in dim.terms:
        part = np.asarray(factor)
        for atom, power in monomial:
            if not isinstance(atom, str):
                return None
            bound = binds.get(atom)
            if bound is not None:
                part = _apart(part, bound.value**power)
                known, data = _apart(known, bound.known), True
                continue
            depth = max((d for d, f in enumerate(depths) if f.variable == atom), default=-1)
            if depth < 0 or depths[depth].positions is None:
                return None
            positions = depths[depth].positions
            assert positions is not None
            axis = positions.reshape((1,) * depth + (-1,))
            part = _apart(part, axis**power)
        one, other = _both(total, part)
        total = one + other
    total, known = _both(total, known)
    place = Known(np.asarray(total), np.asarray(total), data)
    return place if known.all() else replace(where(known, place, DType.I64), data=data)


def loaded(
    known: Known, index: Sequence[Dim], frames: Sequence[Frame], binds: Mapping[str, Known]
) -> Known:
    """The range of an element of a buffer with the ranges `known`."""
    shape = known.shape
    known = known.each(lambda array: np.broadcast_to(array, shape))
    places: list[Known] = []
    for axis, dim in enumerate(index):
        place = place_of(dim, frames, binds) if shape[axis] > 1 else _FIRST
        if place is None:
            known, place = _any_of(known, axis), _FIRST
        places.append(place)
    quick = _whole(index, known.shape, places, loops_of(frames))
    if quick is not None:
        order, shape = quick
        return replace(known.each(lambda array: array.transpose(order).reshape(shape)), data=True)
    inside: Array = np.ones((), np.bool_)
    indices: list[Array] = []
    for place, size in zip(places, known.shape, strict=True):
        fits = place.known & (place.value >= 0) & (place.value < size)
        inside = _apart(inside, fits)
        indices.append(np.where(fits, place.value, 0))
    rank = max((i.ndim for i in (*indices, inside)), default=0)
    at = tuple(i.reshape(i.shape + (1,) * (rank - i.ndim)) for i in indices)
    inside = inside.reshape(inside.shape + (1,) * (rank - inside.ndim))
    found = known.each(lambda array: np.asarray(array[at]))
    if not inside.all():
        every = known.hull()
        low, high = (np.where(inside, *pair) for pair in
                     ((found.low, every.low), (found.high, every.high)))  # fmt: skip
        found = Known(low.astype(known.low.dtype), high.astype(known.low.dtype))
    return replace(found, data=True)


def _any_of(known: Known, axis: int) -> Known:
    """A number at any place of an axis."""
    low, high = known.low.min(axis, keepdims=True), known.high.max(axis, keepdims=True)
    lost = strange(low, high)
    if lost.any():
        low, high = np.where(lost, -np.inf, low), np.where(lost, np.inf, high)
    return Known(low, high, known.data)


def _whole(
    index: Sequence[Dim], shape: tuple[int, ...], places: list[Known], loops: Sequence[Frame]
) -> tuple[list[int], tuple[int, ...]] | None:
    """How the axes are reordered where each is run through by a loop of its own."""
    at: dict[int, int] = {}
    for axis, (dim, size) in enumerate(zip(index, shape, strict=True)):
        if size == 1:
            if places[axis] is not _FIRST:
                return None
            continue
        depth = max((d for d, f in enumerate(loops) if f.variable == dim.symbol), default=-1)
        positions = loops[depth].positions if depth >= 0 else None
        if positions is None or depth in at or positions.size != size or positions[0] != 0:
            return None
        at[depth] = axis
    order = [at[depth] for depth in sorted(at)]
    order += [axis for axis in range(len(shape)) if axis not in order]
    return order, tuple(shape[at[d]] if d in at else 1 for d in range(len(loops)))


def _both(a: Array, b: Array) -> tuple[Array, Array]:
    rank = max(a.ndim, b.ndim)
    return a.reshape(a.shape + (1,) * (rank - a.ndim)), b.reshape(b.shape + (1,) * (rank - b.ndim))


def _apart(a: Array, b: Array) -> Array:
    """The product, or both conditions, with axes for the loops of either."""
    one, other = _both(np.asarray(a), np.asarray(b))
    return np.asarray(one * other)


class Stores:
    """What is known of a buffer that a kernel writes: the ranges of all that is stored to a
    place."""

    def __init__(self, buffer: Buffer) -> None:
        self.dtype = buffer.dtype
        self.scalar = buffer.rank == 0
        sizes = tuple(s.constant if s.is_constant else 0 for s in buffer.shape)
        self.shape = (1,) if self.scalar else sizes
        self.found: Known | None = None
        self.stored: Array = np.zeros((1,) * len(self.shape), np.bool_)

    def known(self) -> Known:
        if self.found is None:
            return anything(self.dtype)
        known = where(self.stored, self.found, self.dtype)
        return known.each(lambda array: array.reshape(())) if self.scalar else known

    def add(self, value: Known, places: list[Known | None], depth: int) -> None:
        value = value.deep(depth)
        sizes = [1] * len(self.shape)
        at: list[Array] = []
        for axis, place in enumerate(places or [_FIRST]):
            if place is None or place.data or self.shape[axis] <= 1:
                at.append(_ZERO)
                continue
            if place.value.min() < 0 or place.value.max() >= self.shape[axis]:
                value = anything(self.dtype).deep(depth)
                at.append(_ZERO)
                continue
            sizes[axis] = self.shape[axis]
            at.append(place.value)
        deep = [place.reshape(place.shape + (1,) * (depth - place.ndim)) for place in at]
        whole = np.broadcast_shapes(value.shape, *(place.shape for place in deep))
        every = tuple(np.broadcast_to(place, whole) for place in deep)
        # Several iterations may store to one element.
        numbers = value.low.dtype
        here = np.zeros(sizes, np.bool_)
        here[every] = True
        ends: list[Array] = []
        for array, rule in ((value.low, np.minimum), (value.high, np.maximum)):
            new = np.zeros(sizes, numbers)
            new[every] = np.broadcast_to(array, whole)
            with np.errstate(invalid="ignore"):
                rule.at(new, every, np.broadcast_to(array, whole))
            ends.append(new)
        self.merge(Known(ends[0], ends[1]), here)

    def merge(self, new: Known, here: Array) -> None:
        if self.found is None:
            self.found, self.stored = new, here
            return
        both = either(self.found, new)
        low = np.where(here, np.where(self.stored, both.low, new.low), self.found.low)
        high = np.where(here, np.where(self.stored, both.high, new.high), self.found.high)
        self.found, self.stored = Known(low, high), np.asarray(self.stored | here)
