# SPDX-License-Identifier: Apache-2.0
"""Constants in the order in which micro-kernels read them, rearranged while compiling.

The meaning of a micro-kernel says where it reads each value of an operand, and so how the operand
is packed. What pads it is zero, and no result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.dim_expr import evaluated
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Array
from relax_aot.ir.layout import Layout
from relax_aot.ir.loops import Buffer, For, Load, expressions, walk
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.scheduling.nest import coefficient, without_lets

Arrays = Mapping[str, Array]
"""The data of the constants that a kernel reads, by the names of its inputs."""
GREATEST = 1 << 26
"""Elements at most that are rearranged at once."""

MOST_PANELS = (1 << 31) - 1
"""Elements at most in panels, which are rearranged one by one."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`values` in their final order. `origin`: the input that it replaces, where it is a rearranged
    copy of one."""

    buffer: Buffer
    values: Callable[[Arrays], Array]
    origin: str = ""

    def data(self, arrays: Arrays) -> Array:
        values = self.values(arrays).astype(self.buffer.dtype.numpy, copy=False)
        return np.ascontiguousarray(values).reshape([dim.constant for dim in self.buffer.shape])


class Operand:
    """How a micro-kernel reads an operand at given sizes, by its meaning."""

    def __init__(self, kernel: MicroKernel, name: str, sizes: Mapping[str, int]) -> None:
        body = without_lets(kernel.meaning.body)
        exprs = (expr for stmt in walk(body) for expr in expressions(stmt))
        loads = (expr for expr in exprs if isinstance(expr, Load))
        self.load = next(load for load in loads if load.buffer.name == name)
        used = frozenset[str]().union(*(dim.symbols for dim in self.load.index))
        loops = [stmt for stmt in walk(body) if isinstance(stmt, For) and stmt.variable in used]
        self.extents = [loop.stop.evaluate(sizes) for loop in loops]
        self.shape = [dim.evaluate(sizes) for dim in self.load.buffer.shape]
        self.values: dict[str, Any] = {**sizes}
        grid = np.indices(self.extents, sparse=True)
        self.values |= zip((loop.variable for loop in loops), grid, strict=True)

    def pack(self, values: Array, axes: int) -> Array:
        """Values behind some leading axes: at most one axis for the first loop, one for all
        others. Zeros where the micro-kernel reads more."""
        lead, first = values.shape[:axes], self.extents[: values.ndim - axes - 1]
        values = padded(values, (*lead, *first, prod(self.extents[len(first) :])))
        packed = np.zeros((*lead, *self.shape), self.load.dtype.numpy)
        places = [evaluated(dim, self.values) for dim in self.load.index]
        packed[(..., *places)] = values.reshape(*lead, *self.extents)
        return packed


def padded(values: Array, shape: Sequence[int]) -> Array:
    """Zeros behind the values of each axis."""
    sizes = [(0, whole - own) for whole, own in zip(shape, values.shape, strict=True)]
    return np.pad(values, sizes) if sizes else values


def round_up(count: int, to: int) -> int:
    return -(-count // to) * to


def permuted(lead: Sequence[int], memory: Sequence[int], order: Sequence[int]) -> Layout:
    """The layout of an array whose dimension k is dimension `order[k]` of a row-major one of
    the shape `memory`, behind the leading axes `lead` of both."""
    axes = len(lead)
    moves = (*range(axes), *(axes + k for k in order))
    return Layout.row_major((*lead, *memory)).permute((*lead, *memory), moves)


def elements(
    load: Load,
    data: Array,
    names: Sequence[str],
    extents: Sequence[int],
    starts: Mapping[str, int] | None = None,
) -> Array:
    """What an affine load reads in loops from 0, or from these `starts`, one axis per loop."""
    grid = zip(names, np.indices(extents, sparse=True), strict=True)
    values = {name: places + (starts or {}).get(name, 0) for name, places in grid}
    places = [evaluated(dim, values) for dim in load.index]
    for dim, place, size in zip(load.index, places, data.shape, strict=True):
        if prod(extents) and not 0 <= np.min(place) <= np.max(place) < size:
            raise IndexError(f"{dim} leaves 0..{size - 1}")
    return np.asarray(data[tuple(np.broadcast_to(place, extents) for place in places)])


@dataclass(frozen=True, slots=True)
class Panels:
    """The right operand of a tile in panels of `width` columns, one behind the other, the last
    one as wide as what is left: `packed[outer..., first column * depth + step * wide + column]`."""

    packed: Packed
    outer: tuple[For, ...]
    reductions: tuple[For, ...]

    @property
    def depth(self) -> Dim:
        """Steps of all reductions."""
        return prod((loop.stop for loop in self.reductions), start=ONE)

    def named(self, name: str) -> Panels:
        buffer = replace(self.packed.buffer, name=name)
        return replace(self, packed=replace(self.packed, buffer=buffer))

    def at(self, first: Dim, wide: Dim, origin: Sequence[Dim]) -> tuple[Load, Sequence[Dim]]:
        """The element of column `first` in a panel so wide, and how many elements a step of each
        reduction loop is; `origin`: where the reductions begin."""
        extents = [loop.stop for loop in self.reductions]
        steps = [prod(extents[at + 1 :], start=wide) for at in range(len(extents))]
        outer = (Dim.of(loop.variable) for loop in self.outer)
        pairs = zip(origin, steps, strict=True)
        where = sum((begin * step for begin, step in pairs), start=prod(extents, start=first))
        return Load(self.packed.buffer, (*outer, where)), steps


def panels_of(
    load: Load, nest: Sequence[For], columns: For, reductions: Sequence[For], width: int
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
    if not affine or 0 in extents or prod(extents) > MOST_PANELS:
        return None
    lead, across, depths = extents[: len(outer)], extents[len(outer)], extents[len(outer) + 1 :]
    names, depth = [loop.variable for loop in loops], prod(depths)

    def values(arrays: Arrays) -> Array:
        """One panel after another: tables of language models are large."""
        made = np.empty((*lead, across * depth), load.dtype.numpy)
        for first in range(0, across, width):
            wide = min(width, across - first)
            panel = (*lead, wide, *depths)
            starts = {columns.variable: first}
            found = elements(load, arrays[load.buffer.name], names, panel, starts)
            order = permuted(lead, (depth, wide), (1, 0))
            packed = order.pack(found.reshape(*lead, wide, depth)).reshape(*lead, depth * wide)
            made[..., first * depth : (first + wide) * depth] = packed
        return made

    name = f"{load.buffer.name}.packed"
    buffer = Buffer(name, load.dtype, tuple(map(Dim.of, (*lead, across * depth))))
    packed = Packed(buffer, values, origin=load.buffer.name)
    return Panels(packed, outer, tuple(reductions))
