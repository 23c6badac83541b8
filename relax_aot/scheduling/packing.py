"""Constants in the order in which micro-kernels read them, rearranged while compiling.

Each packed constant is a logical array, its padded shape, and the layout of that shape. What
pads an array is zero, and no result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Array
from relax_aot.ir.layout import Layout
from relax_aot.ir.loops import Buffer, For, Load
from relax_aot.scheduling.nest import coefficient

Arrays = Mapping[str, Array]
"""The data of the constants that a kernel reads, by the names of its inputs."""
GREATEST = 1 << 26
"""Elements at most that are rearranged."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`values` padded with zeros to the shape of `layout`'s logical array, as that lays it out.
    Without a layout the values are in their final order. `origin`: the input that it replaces,
    where it is a rearranged copy of one."""

    buffer: Buffer
    values: Callable[[Arrays], Array]
    shape: tuple[int, ...] = ()
    layout: Layout | None = None
    origin: str = ""

    def data(self, arrays: Arrays) -> Array:
        values = self.values(arrays).astype(self.buffer.dtype.numpy)
        if self.layout is not None:
            values = self.layout.pack(padded(values, self.shape))
        return np.ascontiguousarray(values).reshape([dim.constant for dim in self.buffer.shape])


def padded(values: Array, shape: Sequence[int]) -> Array:
    """Zeros behind the values of each axis."""
    sizes = zip(shape, values.shape, strict=True)
    return np.pad(values, [(0, whole - own) for whole, own in sizes])


def round_up(count: int, to: int) -> int:
    return -(-count // to) * to


def permuted(lead: Sequence[int], memory: Sequence[int], order: Sequence[int]) -> Layout:
    """The layout of an array whose dimension k is dimension `order[k]` of a row-major one of
    the shape `memory`, behind the leading axes `lead` of both."""
    axes = len(lead)
    moves = (*range(axes), *(axes + k for k in order))
    return Layout.row_major((*lead, *memory)).permute((*lead, *memory), moves)


def blocked(lead: Sequence[int], blocks: tuple[int, int], block: tuple[int, int]) -> Layout:
    """A matrix behind the axes of `lead`, block by block, each block row-major."""
    return permuted(lead, (*blocks, *block), (0, 2, 1, 3))


def elements(load: Load, data: Array, names: Sequence[str], extents: Sequence[int]) -> Array:
    """What an affine load reads in loops from 0, one axis per loop."""
    rank = len(names)
    values: dict[str, Array] = {
        name: np.arange(extent).reshape([-1 if at == axis else 1 for at in range(rank)])
        for axis, (name, extent) in enumerate(zip(names, extents, strict=True))
    }
    index = []
    for dim, size in zip(load.index, data.shape, strict=True):
        place = np.asarray(dim.substitute(dict.fromkeys(names, 0)).constant)
        for name in dim.symbols:
            place = place + (coefficient(dim, name) or 0) * values[name]
        if place.size and not 0 <= place.min() <= place.max() < size:
            raise IndexError(f"{dim} leaves 0..{size - 1}")
        index.append(np.broadcast_to(place, extents))
    return np.asarray(data[tuple(index)])


@dataclass(frozen=True, slots=True)
class Panels:
    """The right operand of a tile in panels of `width` columns, one behind the other, the last
    one as wide as what is left: `packed[outer..., first column * depth + step * wide + column]`."""

    packed: Packed
    outer: tuple[For, ...]
    reductions: tuple[For, ...]

    def steps(self, wide: Dim) -> tuple[Dim, ...]:
        """How many elements a step of each reduction loop is in a panel so wide."""
        extents = [loop.stop for loop in self.reductions]
        return tuple(prod(extents[at + 1 :], start=wide) for at in range(len(extents)))

    def at(self, first: Dim, wide: Dim, origin: Sequence[Dim]) -> Load:
        """The element of column `first`; `origin`: where the reductions begin."""
        outer = (Dim.of(loop.variable) for loop in self.outer)
        pairs = zip(origin, self.steps(wide), strict=True)
        depth = prod((loop.stop for loop in self.reductions), start=first)
        where = sum((begin * step for begin, step in pairs), start=depth)
        return Load(self.packed.buffer, (*outer, where))


def panels_of(
    load: Load, name: str, nest: Sequence[For], columns: For, reductions: Sequence[For], width: int
) -> Panels | None:
    """The operand that `load` reads, in panels; None where its loops are not all numbers."""
    used = frozenset[str]().union(*(dim.symbols for dim in load.index))
    outer = tuple(loop for loop in nest if loop.variable in used and loop != columns)
    loops = (*outer, columns, *reductions)
    fits = all(loop.start == 0 and loop.stop.is_constant for loop in loops)
    if not fits or not used <= {loop.variable for loop in loops}:
        return None
    affine = all(
        coefficient(dim, variable) is not None for dim in load.index for variable in dim.symbols
    )
    extents = [max(loop.stop.constant, 0) for loop in loops]
    if not affine or 0 in extents or prod(extents) > GREATEST:
        return None
    lead, across, depths = extents[: len(outer)], extents[len(outer)], extents[len(outer) + 1 :]
    names, depth = [loop.variable for loop in loops], prod(depths)

    def values(arrays: Arrays) -> Array:
        matrix = elements(load, arrays[load.buffer.name], names, extents)
        parts = []
        for first in range(0, across, width):
            wide = min(width, across - first)
            columns = matrix.reshape(*lead, across, depth)[..., first : first + wide, :]
            packed = permuted(lead, (depth, wide), (1, 0)).pack(columns)
            parts.append(packed.reshape(*lead, depth * wide))
        return np.concatenate(parts, axis=-1)

    buffer = Buffer(name, load.dtype, tuple(map(Dim.of, (*lead, across * depth))))
    packed = Packed(buffer, values, origin=load.buffer.name)
    return Panels(packed, outer, tuple(reductions))
