# SPDX-License-Identifier: Apache-2.0
"""Layouts: where the elements of an array lie, in memories and on lanes, as values.

A layout maps a logical index to positions on named axes: an address in a memory (`m`), a lane,
a core. It is a list of *shard* pieces (extent, stride, axis), whose extents are the digits of
the row-major logical index, *replica* pieces, which repeat each element, and an *offset* on
each axis. Packed weights, NHWC and NCHW, blocks and shards over cores are all layouts.

Source: Hou et al., "Axe: A Simple Unified Layout Abstraction for Machine Learning Compilers",
arXiv:2601.19092, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Dim

MEMORY = "m"
"""The axis of addresses, in elements."""


class LayoutError(RelaxAotError):
    """A layout that an operation does not apply to."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`extent` steps of `stride` along an axis."""

    extent: int
    stride: int
    axis: str = MEMORY

    def __post_init__(self) -> None:
        if self.extent < 1:
            raise LayoutError(f"the extent of a piece is at least 1, not {self.extent}")

    def __str__(self) -> str:
        return f"{self.extent}:{self.stride}@{self.axis}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The element with digits d lies at `sum d[k] * shard[k].stride + offset`, and again at
    each step of the replica."""

    shard: tuple[Piece, ...]
    replica: tuple[Piece, ...] = ()
    offset: tuple[tuple[str, int], ...] = ()
    """Axis and distance, sorted, without zeros."""

    @staticmethod
    def row_major(shape: Sequence[int], axis: str = MEMORY) -> Layout:
        """Elements side by side, the last dimension innermost."""
        return Layout(tuple(Piece(e, prod(shape[k + 1 :]), axis) for k, e in enumerate(shape)))

    @property
    def size(self) -> int:
        """How many logical elements there are."""
        return prod(piece.extent for piece in self.shard)

    @property
    def axes(self) -> tuple[str, ...]:
        names = {piece.axis for piece in (*self.shard, *self.replica)}
        return tuple(sorted(names | {axis for axis, _ in self.offset}))

    def span(self, axis: str) -> int:
        """From the lowest to the highest position on the axis, both counted."""
        pieces = (piece for piece in (*self.shard, *self.replica) if piece.axis == axis)
        return 1 + sum((piece.extent - 1) * abs(piece.stride) for piece in pieces)

    def __str__(self) -> str:
        parts = [" ".join(map(str, self.shard)) or "1"]
        if self.replica:
            parts.append("replica " + " ".join(map(str, self.replica)))
        if self.offset:
            parts.append("offset " + " ".join(f"{value}@{axis}" for axis, value in self.offset))
        return "[" + ", ".join(parts) + "]"

    def at(self, index: Sequence[Dim | int], shape: Sequence[int]) -> dict[str, Dim]:
        """The position on each axis of the first copy of the element at `index` of an array of
        that shape. Indices may be symbolic, and are taken to be within the shape."""
        found = {axis: Dim.of(0) for axis in self.axes}
        found |= {axis: Dim.of(value) for axis, value in self.offset}
        for place, pieces in zip(index, self.group(shape), strict=True):
            inner = prod(piece.extent for piece in pieces)
            for position, piece in enumerate(pieces):
                inner //= piece.extent
                digit = Dim.of(place) // inner
                if position:
                    digit = digit % piece.extent
                found[piece.axis] += digit * piece.stride
        return found

    def normal(self) -> Layout:
        """The shortest spelling: no piece of one step, pieces that continue each other are
        one, and the replica is sorted with positive strides."""
        offset = dict(self.offset)
        for p in self.replica:
            offset[p.axis] = offset.get(p.axis, 0) + (p.extent - 1) * min(p.stride, 0)
        copies = [replace(p, stride=abs(p.stride)) for p in self.replica if p.stride]
        copies.sort(key=lambda piece: (piece.axis, -piece.stride, -piece.extent))
        return Layout(_merged(self.shard), _merged(copies), _sorted(offset))

    def group(self, shape: Sequence[int]) -> tuple[tuple[Piece, ...], ...]:
        """The pieces of each dimension of an array of that shape; pieces are split where a
        dimension ends within one. Raises `LayoutError` where they do not divide."""
        if prod(shape) != self.size:
            raise LayoutError(f"{self} holds {self.size} elements, not those of {tuple(shape)}")
        rest = list(self.shard)
        groups: list[tuple[Piece, ...]] = []
        for extent in reversed(shape):
            taken: list[Piece] = []
            while extent > 1:
                piece = rest.pop()
                if piece.extent > extent and piece.extent % extent == 0:
                    outer = piece.extent // extent
                    rest.append(Piece(outer, piece.stride * extent, piece.axis))
                    piece = replace(piece, extent=extent)
                elif extent % piece.extent:
                    raise LayoutError(f"{self} has no pieces for the shape {tuple(shape)}")
                extent //= piece.extent
                if piece.extent > 1:
                    taken.insert(0, piece)
            groups.insert(0, tuple(taken))
        return tuple(groups)

    def permute(self, shape: Sequence[int], order: Sequence[int]) -> Layout:
        """The layout of the array whose dimension k is dimension `order[k]` of this one."""
        groups = self.group(shape)
        return replace(self, shard=tuple(piece for k in order for piece in groups[k]))

    def slice(self, shape: Sequence[int], start: Sequence[int], extent: Sequence[int]) -> Layout:
        """The layout of a box of the array. Raises `LayoutError` where the box cuts pieces in
        a way that no layout describes."""
        shard: list[Piece] = []
        offset = dict(self.offset)
        for dim, pieces in enumerate(self.normal().group(shape)):
            low, count = start[dim], extent[dim]
            if low < 0 or count < 1 or low + count > shape[dim]:
                raise LayoutError(
                    f"{low}..{low + count} is not within dimension {dim}: {shape[dim]}"
                )
            for piece, digit, steps in _cut(pieces, low, count):
                offset[piece.axis] = offset.get(piece.axis, 0) + digit * piece.stride
                if steps > 1:
                    shard.append(replace(piece, extent=steps))
        return Layout(tuple(shard), self.replica, _sorted(offset))

    def tile(self, shape: Sequence[int], inner: Layout, inner_shape: Sequence[int]) -> Layout:
        """An array of tiles: `inner` says where an element lies in its tile, this layout where
        the tiles of a grid of that shape stand, each as far as one tile reaches."""

        def apart(piece: Piece) -> Piece:
            return replace(piece, stride=piece.stride * inner.span(piece.axis))

        grid = replace(self, shard=tuple(map(apart, self.shard))).group(shape)
        cells = inner.group(inner_shape)
        shard = [piece for pair in zip(grid, cells, strict=True) for part in pair for piece in part]
        copies = (*map(apart, self.replica), *inner.replica)
        offset = dict(inner.offset)
        for axis, value in self.offset:
            offset[axis] = offset.get(axis, 0) + value * inner.span(axis)
        return Layout(tuple(shard), copies, _sorted(offset))

    def positions(self, axis: str = MEMORY) -> NDArray[np.int64]:
        """Where the first copy of each element lies on an axis, by its row-major number."""
        found = np.array([dict(self.offset).get(axis, 0)], np.int64)
        for piece in self.shard:
            steps = np.arange(piece.extent) * (piece.stride if piece.axis == axis else 0)
            found = (found[:, None] + steps).reshape(-1)
        return found

    def is_injective(self) -> bool:
        """Whether no two elements share a position, whichever copies: legal storage. Raises
        `LayoutError` for what is too large and irregular to tell."""
        layout = self.normal()
        return all(_injective(layout, axis) for axis in {piece.axis for piece in layout.shard})

    def pack(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """The elements of an array, in row-major order, laid into a memory that begins at the
        lowest position. Where no element lies there are zeros. The memory is the only axis."""
        if self.axes not in ((), (MEMORY,)):
            raise LayoutError(f"{self} does not lie in one memory")
        if array.size != self.size:
            raise LayoutError(f"{self} does not hold the {array.size} elements of the array")
        places = self.positions()[:, None] + Layout(self.replica).positions()
        packed = np.zeros(self.span(MEMORY), array.dtype)
        packed[places - places.min()] = array.reshape(-1, 1)
        return packed


def _injective(layout: Layout, axis: str) -> bool:
    """No two elements meet on the axis: digits of other axes do not move along it."""
    shard = tuple(piece for piece in layout.shard if piece.axis == axis)
    copies = tuple(piece for piece in layout.replica if piece.axis == axis)
    reach = 0
    for piece in sorted((*shard, *copies), key=lambda piece: abs(piece.stride)):
        if abs(piece.stride) <= reach:
            break
        reach += (piece.extent - 1) * abs(piece.stride)
    else:
        return True
    total = prod(piece.extent for piece in (*shard, *copies))
    if total > 1 << 24:
        raise LayoutError(f"{layout}: {total} positions along {axis} are too many to compare")
    away = Layout(copies).positions(axis)
    owners = [np.unique(at + away) for at in Layout(shard).positions(axis)]
    met = np.concatenate(owners)
    return len(np.unique(met)) == len(met)


def _merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Without steps of one, and with one piece for two that continue each other."""
    kept: list[Piece] = []
    for piece in pieces:
        if piece.extent == 1:
            continue
        last = kept[-1] if kept else None
        if last and last.axis == piece.axis and last.stride == piece.extent * piece.stride:
            kept[-1] = replace(piece, extent=last.extent * piece.extent)
        else:
            kept.append(piece)
    return tuple(kept)


def _sorted(offset: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((axis, value) for axis, value in offset.items() if value))


def _cut(pieces: Sequence[Piece], low: int, count: int) -> list[tuple[Piece, int, int]]:
    """Of each piece, the first digit and how many follow, for indices low..low + count."""
    found = []
    inner = prod(piece.extent for piece in pieces)
    for piece in pieces:
        inner //= piece.extent
        first, last = low // inner, (low + count - 1) // inner
        if first == last:
            found.append((piece, first, 1))
            low -= first * inner
        elif low % inner or count % inner:
            raise LayoutError(
                f"indices {low}..{low + count} begin or end within a piece of {inner}"
            )
        else:
            found.append((piece, first, last - first + 1))
            low, count = 0, inner
    return found
