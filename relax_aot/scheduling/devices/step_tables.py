# SPDX-License-Identifier: Apache-2.0
"""Where the steps of a sum over windows are, as tables in shared memory.

The steps of a window are several loops. Which of them a position is takes a division for each loop,
and two comparisons for each axis on which windows are clipped. A block computes once for all of its
threads how far each step is ahead of the first one, and a bit for its place on each clipped axis. A
thread has a word with the bits of the places that are outside for its line, and one instruction
tells whether a step is. Before the first step are zeros, so that parts have the same number of
steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_max
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Lit,
    Load,
    Local,
    Select,
    Store,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import moved, step_of, stride
from relax_aot.scheduling.devices.operands import At, Product, all_of, below, extent, inside, split
from relax_aot.scheduling.devices.window_bits import MOST, NO_BIT, bit_at
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.writer import Writer

LONGEST = 1024
"""Steps of a table, of which two take 8 KB."""
WHOLE = 16
"""Steps of a part at most. Sums of whole parts need no condition for the end of a sum, and take
fewer instructions without tables."""
NOWHERE = Lit(1 << MOST - 1, DType.I32)
"""The bit of what is before the first step."""


def have_tables(product: Product, bounds: Bounds) -> bool:
    """Whether tables tell the steps of a product of floats in memory."""
    found, steps = product.found, product.steps
    loads = (found.left, found.right)
    known = all(loop.extent.is_constant for loop in steps) and not found.computed
    if product.padded is None or not known:
        return False
    total = extent(steps).constant
    if total > LONGEST or total % WHOLE == 0:
        return False
    strides = [stride(load, loop.variable) for load in loads for loop in steps]
    places = sum(loop.extent.constant for loop in _clipped(product))
    floats = all(load.dtype is DType.F32 for load in loads)
    return floats and None not in strides and places < MOST - 1


def _clipped(product: Product) -> list[For]:
    """The loops over places of windows that are clipped."""
    pairs = zip(product.found.reductions, product.steps, strict=True)
    return [full for own, full in pairs if (own.start, own.stop) != (full.start, full.stop)]


@dataclass(frozen=True, slots=True)
class StepTable:
    """The steps of one factor, before which are so many zeros. `ahead`: elements from the first
    step on. `places`: bits, of a factor with windows that are clipped."""

    product: Product
    load: Load
    zeros: int
    ahead: Buffer
    places: Buffer | None

    def fill(self, w: Writer, thread: Dim, threads: int) -> None:
        """By all threads of a block."""
        steps = self.product.steps
        count = self.ahead.shape[0]
        with w.range("e", ceildiv(count, threads)) as e:
            position = w.let("position", thread + e * threads, ZERO, thread + count)
            with w.when(below(position, count)):
                step = w.let("step", dim_max(position - self.zeros, 0), ZERO, extent(steps) - 1)
                at = split(w, steps, step)
                shifts = [(at[lp.variable] - lp.start, lp) for lp in steps]
                ahead = sum((by * step_of(self.load, lp.variable) for by, lp in shifts), ZERO)
                w.add(Store(self.ahead, (position,), Cast(Index(ahead), DType.I32)))
                if self.places is not None:
                    bits: Expr = NO_BIT
                    first = 0
                    for loop in _clipped(self.product):
                        own = bit_at(at[loop.variable] - loop.start + first)
                        bits, first = Binary("|", bits, own), first + loop.extent.constant
                    some = below(Dim.of(self.zeros - 1), position)
                    w.add(Store(self.places, (position,), Select(some, bits, NOWHERE)))

    def closed(self, w: Writer, ends: Mapping[str, tuple[Dim, Dim]]) -> Local:
        """The bits of the places that are outside for a line. `ends`: of its window."""
        word, first = Local(w.fresh("closed"), DType.I32), 0
        w.add(Declare(word, NOWHERE))
        for loop in _clipped(self.product):
            with w.range(loop.variable, loop.extent) as number:
                at = {loop.variable: loop.start + number}
                within = inside(at, {loop.variable: ends[loop.variable]})
                own = Select(all_of(within), NO_BIT, bit_at(number + first))
                w.add(Assign(word, Binary("|", word, own)))
            first += loop.extent.constant
        return word

    def fetch(self, w: Writer, to: Load, line: At, position: Dim, closed: Local | None) -> None:
        """Loads the step at a position of the table, or zero where it is outside."""
        conditions: Expr = below(Dim.of(self.zeros - 1), position)
        if self.places is not None and closed is not None:
            conditions = Binary("==", Binary("&", closed, self.places[(position,)]), NO_BIT)
        some = Select(conditions, Lit(1, DType.I64), Lit(0, DType.I64))
        count = self._bound(w, "count", some, Dim.of(1))
        furthest = Dim.of(greatest(self._furthest, w.bounds))
        behind = self._bound(w, "ahead", Cast(self.ahead[(position,)], DType.I64), furthest)
        first = {loop.variable: loop.start for loop in self.product.steps}
        own = moved(self.load, {**line, **first})
        w.micro("raot_load_one_f32", to=to, count=count, ahead=behind, **{"from": own})

    def _bound(self, w: Writer, name: str, value: Expr, high: Dim) -> Dim:
        """A name for an integer that is at most `high`."""
        fresh = w.fresh(name)
        w.add(Bind(fresh, value, ZERO, high, "clamped"))
        w.bounds = w.bounds.with_value(fresh, ZERO, high)
        return Dim.of(fresh)

    @property
    def _furthest(self) -> Dim:
        steps = self.product.steps
        return sum(((lp.extent - 1) * step_of(self.load, lp.variable) for lp in steps), ZERO)


def step_table(w: Writer, product: Product, load: Load, count: Dim) -> StepTable:
    """Reserves shared memory for `count` positions."""
    zeros = (count - extent(product.steps)).constant
    ahead = w.reserve("steps", DType.I32, "shared", count)
    padded = load == product.padded
    places = w.reserve("places", DType.I32, "shared", count) if padded else None
    return StepTable(product, load, zeros, ahead, places)
