# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of numbers that are known, at places that loops run through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer
from relax_aot.ops._op import Array
from relax_aot.pruning.knowledge import Known


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


_FIRST = Known(np.zeros((), np.int64), np.ones((), np.bool_), data=False)


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
    return Known(np.asarray(total), np.asarray(known), data)


def loaded(
    known: Known, index: Sequence[Dim], frames: Sequence[Frame], binds: Mapping[str, Known]
) -> Known:
    """What is known of an element of a buffer of which `known` is known."""
    value, mask = known.value, known.known
    value = np.broadcast_to(value, np.broadcast_shapes(value.shape, mask.shape))
    mask = np.broadcast_to(mask, value.shape)
    places: list[Known] = []
    for axis, dim in enumerate(index):
        place = place_of(dim, frames, binds) if value.shape[axis] > 1 else _FIRST
        if place is None:
            first = np.take(value, [0], axis)
            mask = np.asarray((mask & (value == first)).all(axis=axis, keepdims=True))
            value, place = first, _FIRST
        places.append(place)
    quick = _whole(index, value.shape, places, loops_of(frames))
    if quick is not None:
        order, shape = quick
        return Known(value.transpose(order).reshape(shape), mask.transpose(order).reshape(shape))
    inside: Array = np.ones((), np.bool_)
    indices: list[Array] = []
    for place, size in zip(places, value.shape, strict=True):
        fits = place.known & (place.value >= 0) & (place.value < size)
        inside = _apart(inside, fits)
        indices.append(np.where(fits, place.value, 0))
    rank = max((i.ndim for i in (*indices, inside)), default=0)
    at = tuple(i.reshape(i.shape + (1,) * (rank - i.ndim)) for i in indices)
    inside = inside.reshape(inside.shape + (1,) * (rank - inside.ndim))
    return Known(np.asarray(value[at]), np.asarray(mask[at]) & inside)


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
    """What is known of a buffer that a kernel writes, store by store."""

    def __init__(self, buffer: Buffer) -> None:
        self.shape = tuple(s.constant if s.is_constant else 0 for s in buffer.shape)
        ones = (1,) * buffer.rank
        self.value = np.zeros(ones)
        self.sure, self.lost = np.zeros(ones, np.bool_), np.zeros(ones, np.bool_)
        """Where a known number was stored; where an unknown one, or another, may have been."""

    def known(self) -> Known:
        return Known(self.value, self.sure & ~self.lost)

    def add(self, value: Known, places: list[Known | None], depth: int) -> None:
        value = value.deep(depth)
        shape = np.broadcast_shapes(value.value.shape, value.known.shape)
        sizes = [1] * len(self.shape)
        at: list[Array] = []
        for axis, place in enumerate(places):
            if place is None or place.data or self.shape[axis] <= 1:
                at.append(np.zeros((), np.int64))
                continue
            if place.value.min() < 0 or place.value.max() >= self.shape[axis]:
                value = Known(value.value, np.zeros_like(value.known), value.data)
                at.append(np.zeros((), np.int64))
                continue
            sizes[axis] = self.shape[axis]
            at.append(place.value)
        deep = [place.reshape(place.shape + (1,) * (depth - place.ndim)) for place in at]
        whole = np.broadcast_shapes(shape, *(place.shape for place in deep))
        every = tuple(np.broadcast_to(place, whole) for place in deep)
        # Where several iterations store to one element, all of them must agree.
        new, count = np.zeros(sizes, value.value.dtype), np.zeros(sizes, np.bool_)
        lost = np.zeros(sizes, np.bool_)
        values = np.broadcast_to(value.value, whole)
        known = np.broadcast_to(value.known, whole)
        new[every] = values
        count[every] = True
        same = known & ((new[every] == values) | (values != values))
        np.logical_or.at(lost, every, ~same)
        self.merge(new, count, lost)

    def merge(self, new: Array, count: Array, lost: Array) -> None:
        old = self.value if self.sure.any() else np.zeros_like(self.value)
        again = count & self.sure & (new != old)
        self.lost = self.lost | lost | again
        self.value = np.where(count, new, old.astype(new.dtype))
        self.sure = self.sure | count
