# SPDX-License-Identifier: Apache-2.0
"""Copies of the factors of a matrix product to shared memory, in the types of matrix units.

Where eight neighbors in memory are always aligned and belong to one line of a matrix, a thread
copies them at once and does not wait (cp.async); other factors, such as those of windows or decoded
weights, are copied element by element. Padding puts the eight rows that one access of the matrix
units reads in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_max, dim_min, row_major, simplify
from relax_aot.ir.loops import Binary, Buffer, Cast, Expr, For, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import follow, moved, stride
from relax_aot.scheduling.devices.operands import (
    At,
    Product,
    below,
    clamped,
    extent,
    inside,
    split,
)
from relax_aot.scheduling.writer import Writer

VECTOR = 8
"""Elements that a thread copies at once."""
Pair = tuple[Dim, Dim]
"""A line and a step."""


@dataclass(frozen=True, slots=True)
class Side:
    """A factor in shared memory: so many `lines` (rows or columns) and `steps` of it. `rows`: the
    steps of a line are neighbors, else the lines of a step. `vector`: whether eight neighbors are
    copied at once. `zeros`: lines beyond the last one are zeros; else they are the last one, whose
    address is the same for all steps."""

    name: str
    product: Product
    load: Load
    loops: tuple[For, ...]
    lines: int
    steps: int
    rows: bool
    vector: bool
    shared: Buffer
    zeros: bool = False

    @property
    def pitch(self) -> Dim:
        return self.shared.shape[-1]

    @property
    def order(self) -> str:
        """In names of micro-kernels."""
        return "" if self.rows else "_steps"

    @property
    def moving(self) -> int:
        """The axis along which the next part of a factor is: 0 for lines, 1 for steps."""
        return 0 if self.zeros else 1

    def place(self, half: Dim, line: Dim, step: Dim) -> tuple[Dim, ...]:
        return (half, line, step) if self.rows else (half, step, line)

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, whole: bool = False,
    ) -> None:  # fmt: skip
        """Copies the lines and steps from `first` on to one half of shared memory. `whole`: none
        of them is beyond the last one."""
        each = VECTOR if self.vector else 1
        count = self.lines * self.steps // each
        with w.range("e", ceildiv(Dim.of(count), threads)) as e:
            chunk = thread + e * threads
            partial = count % threads != 0
            with w.when(*[below(chunk, Dim.of(count))] if partial else ()):
                wide = (self.steps if self.rows else self.lines) // each
                outer, inner = w.named("outer", chunk // wide), chunk % wide * each
                inner = w.named("inner", inner)
                line, step = (outer, inner) if self.rows else (inner, outer)
                to = self.shared[self.place(half, line, step)]
                copy = self._vector if self.vector else self._element
                copy(w, batch, to, (line, step), first, whole=whole)

    def _vector(
        self, w: Writer, batch: At, to: Load, place: Pair, first: Pair, *, whole: bool
    ) -> None:
        """Copies eight neighbors, as many of them as there are; zeros behind them. How far a part
        is behind the first one is apart from the address, which threads compute once."""
        loops, steps = self.loops, self.product.steps
        ends = (extent(loops), extent(steps))
        positions = [own + start for own, start in zip(place, first, strict=True)]
        even = [
            simplify(stop % size, w.bounds) == 0 or (whole and axis == self.moving)
            for axis, stop, size in zip((0, 1), ends, (self.lines, self.steps), strict=True)
        ]
        along, across = (1, 0) if self.rows else (0, 1)
        count = Dim.of(VECTOR)
        if not even[along]:
            count = dim_max(dim_min(ends[along] - positions[along], VECTOR), 0)
        if self.rows and not self.zeros:
            positions[0] = clamped(positions[0], ends[0], self.lines, w)
        elif not even[across]:
            count *= dim_max(dim_min(ends[across] - positions[across], 1), 0)
        ahead, axis = ZERO, self.moving
        (*outer, inner) = (loops, steps)[axis]
        step = stride(self.load, inner.variable)
        if not outer and step is not None and (axis or self.zeros):
            positions[axis] = place[axis]
            ahead = first[axis] * step
        at = {**batch, **split(w, loops, positions[0]), **split(w, steps, positions[1])}
        w.micro(
            f"raot_copy_async_{to.dtype.value}", to=to, **{"from": moved(self.load, at)},
            count=w.named("count", count), ahead=w.named("ahead", ahead),
        )  # fmt: skip

    def _element(
        self, w: Writer, batch: At, to: Load, place: Pair, first: Pair, *, whole: bool
    ) -> None:
        """Copies one element; zero outside of a window and behind the last step."""
        product, zero = self.product, Lit(0.0, to.dtype)
        line, step = (own + start for own, start in zip(place, first, strict=True))
        stop, conditions = extent(self.loops), list[Expr]()
        if self.zeros and not whole and simplify(stop % self.lines, w.bounds) != 0:
            conditions.append(below(line, stop))
        if not self.zeros:
            line = clamped(line, stop, self.lines, w)
        at = {**batch, **split(w, self.loops, line)}
        ends = product.window(w, self.load, at)
        total = extent(product.steps)
        if simplify(total % self.steps, w.bounds) != 0 and not (whole and self.moving):
            conditions.append(below(step, total))
        at |= split(w, product.steps, step)
        conditions += inside(at, ends)
        if conditions:
            w.add(Store(to.buffer, to.index, zero))
        with w.when(*conditions):
            value = product.value(w, self.load, at)
            w.add(Store(to.buffer, to.index, self._half(value, to.dtype)))

    def _half(self, value: Expr, kind: DType) -> Expr:
        """An element as it is in shared memory: a byte less its zero point."""
        if not value.dtype.is_int:
            return value
        found = self.product.found
        zero = found.zeros[self.load == found.right]
        value = Binary("-", Cast(value, DType.I32), Lit(zero, DType.I32))
        return Cast(Cast(value, DType.F32), kind)


def side_of(
    w: Writer, product: Product, load: Load, kind: DType, size: tuple[int, int], name: str,
    *, zeros: bool = False,
) -> Side:  # fmt: skip
    """How a factor is copied: along the axis on which its elements are neighbors. Reserves two
    halves of shared memory. `size`: lines and steps."""
    lines, steps = size
    loops = product.rows if load == product.found.left else product.columns
    along = vector_axes(product, load, loops, w.bounds)
    rows = product.contiguous_steps(load) or stride(load, loops[-1].variable) != 1
    rows = along[0] == product.steps if along else rows
    shape = (lines, steps + VECTOR) if rows else (steps, lines + VECTOR)
    shared = w.reserve(f"{name}_tile", kind, "shared", 2, *shape)
    return Side(name, product, load, loops, *size, rows, bool(along), shared, zeros)


def vector_axes(
    product: Product, load: Load, loops: tuple[For, ...], bounds: Bounds
) -> list[tuple[For, ...]]:
    """The axes of a factor, steps or lines, along which eight neighbors are copied at once."""
    if product.found.computed_at(load) is not None or load == product.padded:
        return []
    if not load.dtype.is_half:
        return []
    every = (*product.found.nest.loops, *product.steps)
    return [own for own in (product.steps, loops) if aligned(load, own, every, bounds)]


def aligned(load: Load, loops: Sequence[For], every: Sequence[For], bounds: Bounds) -> bool:
    """Whether the elements of a load along the last of `loops` are neighbors, and those from each
    multiple of eight on are aligned and belong to one iteration of the other loops, or are
    neighbors of those of the next one."""
    inner = loops[-1]
    steps = {loop.variable: stride(load, loop.variable) for loop in every}
    dense = all(follow(load, *pair) and pair[0].start == 0 for pair in pairwise(loops))
    one_axis = {loop.variable for loop in (loops if dense else loops[-1:])}
    others = [step for name, step in steps.items() if name not in one_axis]
    if steps[inner.variable] != 1 or inner.start != 0 or None in others:
        return False
    start = row_major(load.index, load.buffer.shape).substitute(dict.fromkeys(steps, 0))
    multiples = [start, *(step for step in others if step is not None)]
    multiples += [] if dense else [inner.extent]
    return all(simplify(dim % VECTOR, bounds) == 0 for dim in multiples)
