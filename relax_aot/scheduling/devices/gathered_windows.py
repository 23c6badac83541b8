# SPDX-License-Identifier: Apache-2.0
"""Windows of half precision whose steps are no whole vectors, such as those of images in planes.

A thread gathers eight steps of a line, wherever they are, and stores them at once. A table tells
how far each is ahead of the first step of the window and the bits of its place; a thread keeps a
word for each line that it gathers, with the bits of the places that are outside (window_tables.py).
Behind the last step are entries that are of no place, so that all parts are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import Binary, Buffer, Lit, Select, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import moved, stride
from relax_aot.scheduling.devices.copies import Pair, Side
from relax_aot.scheduling.devices.operands import At, clamped, extent, split
from relax_aot.scheduling.devices.window_bits import NO_BIT, closed_of
from relax_aot.scheduling.devices.window_tables import (
    LONGEST,
    Known,
    WindowTable,
    bounded,
    clipped,
    fill_steps,
    have_places,
    table_of_steps,
)
from relax_aot.scheduling.writer import Writer

NEAR = 8
"""Elements between lines that are neighbors to a warp, as pixels of a plane are at any stride."""


@dataclass(frozen=True, slots=True)
class GatheredWindows(Side):
    """`table`: of steps. `closed`: the bits of the places that are outside, for each line that a
    lane gathers."""

    table: WindowTable = field(kw_only=True)
    closed: Buffer | None = field(default=None, kw_only=True)

    @property
    def lines_are_neighbors(self) -> bool:
        step = stride(self.load, self.loops[-1].variable)
        return step is not None and step.is_constant and step.constant <= NEAR

    def tabulated(self, w: Writer, threads: int) -> Side:
        return self

    def opened(self, w: Writer, warp: Dim, threads: int, batch: At, first: Dim) -> Side:
        product, loops = self.product, clipped(self.product)
        closed = w.reserve("closed", DType.I32, "lane", LANES, -(-self.count // threads))
        with w.range("lane", LANES, axis="lane") as lane:
            thread = w.named("thread", warp * LANES + lane)
            with self.chunks(w, thread, threads) as (e, place, _):
                line = clamped(first + place[0], extent(self.loops), self.lines, w)
                ends = product.window(w, self.load, {**batch, **split(w, self.loops, line)})
                word = closed_of(w, loops if ends else [], ends)
                w.add(Store(closed, (lane, e), word))
        with w.range("lane", LANES, axis="lane") as lane:
            fill_steps(w, product, self.table, warp * LANES + lane, threads)
        return replace(self, closed=closed)

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        path, closed = self.table.path, self.closed
        assert closed is not None
        with self.chunks(w, thread, threads) as (e, place, _):
            line = clamped(first[0] + place[0], extent(self.loops), self.lines, w)
            at = {**batch, **split(w, self.loops, line), **path.first()}
            entries = self.table.copied(w, first[1] + place[1], self.width)
            some = w.reserve("some", self.kind, "register", self.width)
            with w.range("s", self.width) as s:
                outside = Binary("&", closed[lane, e], entries.bits(s))
                inside = Select(Binary("==", outside, NO_BIT), Lit(1, DType.I64), Lit(0, DType.I64))
                w.micro(
                    f"raot_load_one_{self.kind.value}", to=some[s,],
                    count=bounded(w, "count", inside, Dim.of(1)), ahead=entries.ahead(w, s),
                    **{"from": moved(self.load, at)},
                )  # fmt: skip
            to = self.shared[self.place(half, *place)]
            w.micro(f"raot_store{self.width}_{self.kind.value}", to=to, **{"from": some})


def gathered_windows(w: Writer, side: Side) -> Side:
    """The side as one that gathers the steps of windows, if it does."""
    product, load, steps = side.product, side.load, side.product.steps
    known = len(steps) > 1 and all(loop.extent.is_constant for loop in steps)
    plain = load.dtype.is_half and product.found.computed_at(load) is None
    if side.vector or not side.rows or not known or not plain:
        return side
    total = extent(steps).constant
    many = total > LONGEST or any(stride(load, loop.variable) is None for loop in steps)
    places = clipped(product) if load == product.padded else []
    if many or len(side.path.axes) == 1 or not have_places(places):
        return side
    table = table_of_steps(w, product, load, behind=-total % side.steps)
    names = ("name", "product", "load", "loops", "lines", "steps", "rows", "vector", "shared")
    return GatheredWindows(**{name: getattr(side, name) for name in names}, table=table)
