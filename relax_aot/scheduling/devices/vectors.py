# SPDX-License-Identifier: Apache-2.0
"""Which neighbors in memory a thread copies at once: those of 16, 8 or 4 bytes that are always
aligned and belong to one line of a matrix."""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.ir.dims import Bounds, row_major, simplify
from relax_aot.ir.loops import For, Load
from relax_aot.scheduling.contraction import follow, stride, symbols_of
from relax_aot.scheduling.devices.operands import Product, extent

BYTES = 16
"""What a thread copies at once."""
SIZES = (BYTES, 8, 4)
"""What it can copy without waiting."""
VECTOR = 8
"""Elements of half precision of 16 bytes."""


def vectors(
    product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds
) -> tuple[int, list[tuple[For, ...]]]:
    """How many elements of a factor are copied at once, and the axes along which they are."""
    for size in SIZES if load.dtype.is_half else (BYTES,):
        if axes := vector_axes(product, load, loops, bounds, size):
            return size // load.dtype.bytes, axes
    return 0, []


def vector_axes(
    product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds, size: int = BYTES
) -> list[tuple[For, ...]]:
    """The axes of a factor, steps or lines, along which so many bytes are copied at once."""
    kind, steps = load.dtype, product.steps
    if product.found.computed_at(load) is not None or kind.bytes > 4:
        return []
    if load == product.padded:
        one_window = whole_chunks(steps, BYTES // kind.bytes, bounds)
        clipped = symbols_of(product.found.reductions[-1])
        if clipped or not one_window or size < BYTES:
            return []
    every = (*product.found.nest.loops, *steps)
    axes = (steps, loops) if kind.is_float and load != product.padded else (steps,)
    width = size // kind.bytes
    return [own for own in axes if aligned(product, load, own, every, width, bounds)]


def whole_chunks(steps: Sequence[For], width: int, bounds: Bounds) -> bool:
    """Whether so many steps from each multiple of `width` on are of one window."""
    return simplify(steps[-1].extent % width, bounds) == 0


def aligned(
    product: Product, load: Load, loops: Sequence[For], every: Sequence[For], width: int,
    bounds: Bounds,
) -> bool:  # fmt: skip
    """Whether the elements of a load along the last of `loops` are neighbors, and `width` of them
    from each multiple of that on are aligned and belong to one iteration of the other loops, or are
    neighbors of those of the next one."""
    inner, near = loops[-1], len(loops) - 1
    steps = {loop.variable: stride(load, loop.variable) for loop in every}
    while near > 0 and follow(load, loops[near - 1], loops[near]) and loops[near - 1].start == 0:
        near -= 1
    one_axis = {loop.variable for loop in loops[near:]}
    others = [step for name, step in steps.items() if name not in one_axis]
    if steps[inner.variable] != 1 or inner.start != 0 or None in others:
        return False
    start = row_major(load.index, load.buffer.shape).substitute(dict.fromkeys(steps, 0))
    multiples = [start, *(step for step in others if step is not None)]
    multiples += [extent(loops[near:])] if near > 0 else []
    return all(product.divides(width, dim, bounds) for dim in multiples)
