# SPDX-License-Identifier: Apache-2.0
"""Where the steps of a sum over windows are in memory, and tables that tell it.

The steps of a window are several loops. Which of them a position is takes a division for each loop,
and where windows are clipped, comparisons for each axis. A block computes once for all of its
threads how far the steps of each entry of a table are ahead of the first one, and the bits of their
place. A thread has a word with the bits of a line, and one instruction tells whether a place is
inside (window_bits.py). Before the first step may be entries that are of no place, so that parts
have the same number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.loops import Bind, Buffer, Cast, Expr, For, Index, Load, Select, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import step_of, stride
from relax_aot.scheduling.devices.operands import Product, all_of, below, extent, split
from relax_aot.scheduling.devices.window_bits import MOST, NOWHERE, places_of, quotient
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.writer import Writer

LONGEST = 1024
"""Steps of a table with an entry for each of them, of 8 bytes."""
WHOLE = 16
"""Steps of a part at most. Sums of whole parts need no condition for the end of a sum; without
tables, copies through registers take fewer of them."""
Known = tuple[Dim, Buffer]
"""How far ahead an element is, and an entry of a table."""


@dataclass(frozen=True, slots=True)
class Path:
    """The steps of a factor in memory."""

    load: Load
    steps: tuple[For, ...]

    @property
    def axes(self) -> list[tuple[str, Dim, Dim]]:
        """The name, size and stride of the axes of steps in memory, the innermost one first. Loops
        whose elements follow each other are one axis."""
        axes: list[tuple[str, Dim, Dim]] = []
        for loop in reversed(self.steps):
            name, size, step = loop.variable, loop.extent, step_of(self.load, loop.variable)
            if axes and step == axes[-1][1] * axes[-1][2]:
                _, inner, step = axes.pop()
                size *= inner
            axes.append((name, size, step))
        return axes

    @property
    def furthest(self) -> Dim:
        """How far the last step is ahead of the first one."""
        return sum(((size - 1) * step for _, size, step in self.axes), ZERO)

    def ahead(self, w: Writer, position: Dim) -> Dim:
        """How far the element of a step is ahead of that of the first one."""
        axes = self.axes
        ahead, names = ZERO, [name for name, _, _ in axes[1:]]
        for (_, size, step), outer in zip(axes, names, strict=False):
            before = w.short(outer, quotient(position, size))
            ahead, position = ahead + (position - before * size) * step, before
        return ahead + position * axes[-1][2]

    def first(self, apart: Dim = ZERO) -> dict[str, Dim]:
        """The loop variables of the first step, and so many elements behind it."""
        *outer, inner = self.steps
        at = {loop.variable: loop.start for loop in outer}
        return {**at, inner.variable: inner.start + apart}


@dataclass(frozen=True, slots=True)
class WindowTable:
    """`entries`: how far each is ahead of the first step, and the bits of its place. An entry is of
    so many `steps`. So many `before` the first one and `behind` the last one are of no place."""

    path: Path
    entries: Buffer
    steps: int = 1
    before: int = 0
    behind: int = 0

    def fill(
        self, w: Writer, thread: Dim, threads: int, bits: Callable[[Dim], Sequence[Expr]]
    ) -> None:
        """By all threads of a block. `bits`: those of the place of a step."""
        count, total = self.entries.shape[0], extent(self.path.steps)
        with w.range("e", ceildiv(count, threads)) as e:
            entry = w.named("entry", thread + e * threads)
            with w.when(below(entry, count)):
                position, some = entry * self.steps, list[Expr]()
                if self.before:
                    position = dim_max(position - self.before, 0)
                    some.append(below(Dim.of(self.before - 1), entry))
                if self.behind:
                    position = dim_min(position, total - 1)
                    some.append(below(entry, count - self.behind))
                if some:
                    position = w.let("position", position, ZERO, total - 1)
                ahead = Cast(Index(self.path.ahead(w, position)), DType.I32)
                w.add(Store(self.entries, (entry, ZERO), ahead))
                for n, bit in enumerate(bits(position), 1):
                    own = Select(all_of(some), bit, NOWHERE) if some else bit
                    w.add(Store(self.entries, (entry, Dim.of(n)), own))

    def copied(self, w: Writer, first: Dim, count: int) -> WindowTable:
        """So many entries, as registers of a thread."""
        columns = self.entries.shape[1]
        own = w.reserve("known", DType.I32, "register", count, columns)
        with w.range("e", count) as e, w.range("c", columns) as c:
            w.add(Store(own, (e, c), self.entries[first + e, c]))
        return replace(self, entries=own)

    def bits(self, entry: Dim) -> Expr:
        """Of the place of an entry."""
        return self.entries[entry, Dim.of(1)]

    def ahead(self, w: Writer, entry: Dim) -> Dim:
        """How far an entry is ahead."""
        return self._bounded(w, Cast(self.entries[entry, ZERO], DType.I64))

    def known(self, w: Writer, entry: Dim, far: Dim) -> Known:
        """An entry of four numbers in registers, `far` behind another one."""
        place = w.reserve("place", DType.I32, "register", 4)
        w.micro(
            "raot_load_shared_i32", to=place, far=4 * far, **{"from": self.entries[entry, ZERO]}
        )
        return self._bounded(w, place[ZERO,]), place

    def _bounded(self, w: Writer, value: Expr) -> Dim:
        return bounded(w, "ahead", value, Dim.of(greatest(self.path.furthest, w.bounds)))


def bounded(w: Writer, name: str, value: Expr, high: Dim) -> Dim:
    """A name for an integer that is at most `high`."""
    fresh = w.fresh(name)
    w.add(Bind(fresh, value, ZERO, high, "clamped"))
    w.bounds = w.bounds.with_value(fresh, ZERO, high)
    return Dim.of(fresh)


def clipped(product: Product) -> list[For]:
    """The loops over places of windows that are clipped."""
    pairs = zip(product.found.reductions, product.steps, strict=True)
    return [full for own, full in pairs if (own.start, own.stop) != (full.start, full.stop)]


def have_places(places: Sequence[For]) -> bool:
    """Whether a word has a bit for each place on the axes of a window, and one for none."""
    return sum(loop.extent.constant for loop in places) < MOST - 1


def have_tables(product: Product, *, waits: bool) -> bool:
    """Whether tables tell the steps of a product of floats in memory. `waits`: copies are through
    registers."""
    found, steps = product.found, product.steps
    loads = (found.left, found.right)
    known = all(loop.extent.is_constant for loop in steps) and not found.computed
    if product.padded is None or not known:
        return False
    total = extent(steps).constant
    if total > LONGEST or (waits and total % WHOLE == 0):
        return False
    strides = [stride(load, loop.variable) for load in loads for loop in steps]
    floats = all(load.dtype is DType.F32 for load in loads)
    return floats and None not in strides and have_places(clipped(product))


def table_of_steps(
    w: Writer, product: Product, load: Load, *, before: int = 0, behind: int = 0
) -> WindowTable:
    """Reserves shared memory for all steps, and so many entries of no place."""
    path = Path(load, product.steps)
    count = before + extent(product.steps).constant + behind
    entries = w.reserve("steps", DType.I32, "shared", count, 2)
    return WindowTable(path, entries, before=before, behind=behind)


def fill_steps(w: Writer, product: Product, table: WindowTable, thread: Dim, threads: int) -> None:
    """A table of steps, by all threads of a block."""
    loops = clipped(product) if table.path.load == product.padded else []

    def bits(position: Dim) -> list[Expr]:
        return [places_of(loops, split(w, product.steps, position) if loops else {})]

    table.fill(w, thread, threads, bits)
