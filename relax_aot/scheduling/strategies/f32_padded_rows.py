# SPDX-License-Identifier: Apache-2.0
"""Float depthwise convolutions on targets with vectors, or without floats: sums of shifted rows.

Some lines of the image and a border of zeros are copied to a strip, in which a tap lies a fixed
distance from each position; the positions of all those lines are then one long row, those
between lines included. As with im2col, the weights are known to be finite, and a sum of -0 may
become +0. Where windows are several positions apart, the rows and columns of the image that one
tap reads are contiguous.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise, product

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ZERO, Dim, ceildiv, dim_max, dim_min, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.loops import (
    Apply,
    Buffer,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Reserve,
    Select,
    Store,
    binary,
)
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.microkernels.integers import words
from relax_aot.scheduling.contraction import Contraction, indexed_by, moved, step_of, stride
from relax_aot.scheduling.strategies._sums import no_integers
from relax_aot.scheduling.strategies._texts import CONVOLUTION, DEPTHWISE
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import Axis, axis_of, whole
from relax_aot.scheduling.writer import Writer

MOST_TAPS = 32
LEAST_TAPS = 6
"""For which it is worth to round elements to integers."""
LEAST_POSITIONS = 16
MOST_STRIDE = 2


def padded_rows(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """Where a line takes no more memory than the target allows."""
    if found.left.buffer.name not in context.finite or no_integers(found, w, context):
        return None
    pixels = found.columns[-2:]
    others = [loop.variable for loop in found.nest.loops if loop not in pixels]
    separate = all(stride(found.right, name) not in (None, ZERO) for name in others)
    if len(pixels) < 2 or len(found.reductions) != 2 or not separate:
        return None
    down, across = (_axis(found, loop) for loop in pixels)
    if set(others) & found.clipped_by or down is None or across is None or down.tap == across.tap:
        return None
    if stride(found.right, across.tap) != across.dilation:
        return None
    high, wide = down.positions.constant, across.positions.constant
    depends = indexed_by(found.start) & {down.variable, across.variable}
    if depends or down.taps * across.taps > MOST_TAPS or high * wide < LEAST_POSITIONS:
        return None
    few = down.taps * across.taps < LEAST_TAPS
    if context.target.integers and (few or (down.stride, across.stride) != (1, 1)):
        return None
    one = (wide + across.overlap) * across.phases * down.phases * DType.F32.bytes
    lines = min(context.target.strip // one - down.overlap, high)
    match = _Rows(found, w, down, across, lines, integers=context.target.integers)
    return (0, match.emit) if lines > 0 else None


def uniform(found: Contraction, loops: Collection[str]) -> Store | None:
    """The only statement after a sum, where its value is the same in all iterations of `loops`."""
    match found.after:
        case (Store() as store,) if indexed_by(store.value).isdisjoint(loops):
            return store
    return None


def _axis(found: Contraction, loop: For) -> Axis | None:
    """An axis whose sizes are all numbers, along which windows are clipped at its ends."""
    full = [whole(lp, found.nest) for lp in found.reductions]
    stops = [lp.stop if lp is not None and lp.start == 0 else ZERO for lp in full]
    counts = [stop.constant if stop.is_constant else 0 for stop in stops]
    axis = axis_of(found.right, loop, found.reductions, counts)
    if axis is None or axis.reduction is None or axis.taps == 0 or loop.start != 0:
        return None
    if axis.stride > MOST_STRIDE or not axis.positions.is_constant or not axis.size.is_constant:
        return None
    return axis if axis.clips is not None else None


@dataclass
class _Rows:
    """A sum over windows along `down` and `across`; `lines` of the result at once."""

    found: Contraction
    w: Writer
    down: Axis
    across: Axis
    lines: int
    integers: bool = False

    def emit(self) -> None:
        w, own = self.w, (self.down.loop, self.across.loop)
        self.wide = self.across.positions.constant
        self.pitch = self.wide + self.across.overlap
        phases = self.down.phases * self.across.phases
        size = phases * (self.lines + self.down.overlap) * self.pitch
        self.strip = w.buffer("padded_rows", DType.F32, size)
        outer = [loop for loop in self.found.nest.loops if loop not in own]
        names = ("band", "height")
        with w.nest(outer), w.tiles(names, self.down.positions, self.lines) as (line, high):
            self._block(line, high)

    def _block(self, line: Dim, high: Dim) -> None:
        w, found = self.w, self.found
        self._gather(line, high)
        room = (self.lines - 1) * self.pitch + self.wide
        count = (high - 1) * self.pitch + self.wide
        if self.integers:
            row = w.buffer("row_sums", DType.F32, room)
            self._integers(row, count)
        else:
            row = Buffer(w.fresh("row_sums"), DType.F32, (Dim.of(room),), REGISTER)
            w.add(Reserve(row))
            self._sums(row, count)
        with w.range("row", high) as y, w.range("column", self.wide) as x:
            at = {self.down.variable: line + y, self.across.variable: x}
            own = {self.down.variable, self.across.variable}
            store = None if self.integers else uniform(found, own)
            after = [replace(store, value=found.sum)] if store else found.after
            w.finish(after, found.sum, Load(row, (y * self.pitch + x,)), at)

    def _gather(self, line: Dim, high: Dim) -> None:
        """The strip of some lines of windows."""
        w, down = self.w, self.down
        lines = high + down.overlap
        for row_phase, phase in product(range(down.phases), range(self.across.phases)):
            top = line * down.stride + (row_phase - down.before)
            first = _within(ceildiv(-top, down.stride), ZERO, lines)
            last = _within(ceildiv(down.size - top, down.stride), first, lines)
            first, last = simplify(first, w.bounds), simplify(last, w.bounds)
            for part, (start, stop) in enumerate(pairwise((ZERO, first, last, lines))):
                if start != stop:
                    with w.range("row", stop, start) as g:
                        self._line(row_phase, phase, g, top, inside=part == 1)

    def _line(self, row_phase: int, phase: int, g: Dim, top: Dim, *, inside: bool) -> None:
        down, across, load = self.down, self.across, self.found.right
        left = phase - across.before
        first = min(max(-(left // across.stride), 0), self.pitch)
        beyond = -(-(across.size.constant - left) // across.stride)
        last = min(max(beyond, first), self.pitch)
        with self.w.range("column", self.pitch) as x:
            value: Expr = Lit(0.0, DType.F32)
            if inside:
                index = list(load.index)
                index[down.dimension] = top + g * down.stride
                index[across.dimension] = left + x * across.stride
                reached = binary("&&", binary("<=", first, x), binary("<", x, last))
                value = Select(reached, Load(load.buffer, tuple(index)), value)
            where = self._place(row_phase, phase, g, x)
            self.w.add(Store(self.strip, (where,), value))

    def _place(self, row_phase: int, phase: int, line: Dim, position: Dim) -> Dim:
        """Where an element lies in the strip."""
        part = Dim.of(row_phase * self.across.phases + phase)
        return (part * (self.lines + self.down.overlap) + line) * self.pitch + position

    def _integers(self, row: Buffer, count: Dim) -> None:
        """All positions of a row, by a micro-kernel."""
        w, down, across = self.w, self.down, self.across
        weights = moved(self.found.left, {down.tap: ZERO, across.tap: ZERO})
        steps = [step_of(self.found.left, axis.tap) for axis in (down, across)]
        with w.range("p", count) as p:
            w.add(Store(row, (p,), self.found.start))
        with w.tiles(("span", "width"), count, COLUMNS) as (first, columns):
            w.micro(
                "raot_multiply_integers_f32", sums=row[(first,)], left=weights,
                right=self.strip[(first,)], parts=w.buffer("parts", DType.I32, words(1)), rows=1,
                columns=columns, left_row=0, lines=down.taps, left_line=steps[0],
                right_line=down.dilation * self.pitch, taps=across.taps, left_tap=steps[1],
                right_tap=across.dilation, depth=1, left_step=0, right_step=0,
            )  # fmt: skip

    def _sums(self, row: Buffer, count: Dim) -> None:
        """All positions of a row; the weights are read before."""
        w, found, down, across = self.w, self.found, self.down, self.across
        p = w.fresh("p")
        begin = Local(w.fresh("begin"), DType.F32)
        w.add(Declare(begin, found.start))
        total: Expr = begin
        for i, j in product(range(down.taps), range(across.taps)):
            at = {down.tap: Dim.of(i), across.tap: Dim.of(j)}
            weight = Local(w.fresh("weight"), DType.F32)
            w.add(Declare(weight, moved(found.left, at)))
            up, row_phase = divmod(i * down.dilation, down.stride)
            right, phase = divmod(j * across.dilation, across.stride)
            here = self._place(row_phase, phase, Dim.of(up), Dim.of(p) + right)
            total = Apply("fma", (weight, Load(self.strip, (here,)), total))
        store = uniform(found, {down.variable, across.variable})
        with w.loop(p, ZERO, count) as at_p:
            value = store.value if store else found.sum
            w.finish([Store(row, (at_p,), value)], found.sum, total, {})


def _within(value: Dim, low: Dim, high: Dim) -> Dim:
    return dim_min(dim_max(value, low), high)


EXAMPLES = (
    Example(
        why="an image with a border as one row, and nine shifted rows of it",
        target="host",
        before=DEPTHWISE,
        after="""
            kernel @conv(...) scratch (%padded_rows: f32[64]) {
              for c in 0..2 {
            ...
                    %padded_rows[column_0 + 8*row_0] = select(...
            ...
                for p in 0..46 {
                  %row_sums[p] = fma(weight_7, %padded_rows[p + 18], ...
            ...""",
    ),
    Example(
        why="without floats, products of integers",
        target="scalar",
        before=DEPTHWISE,
        after="""
            kernel @conv(...) ...
            ...
                for span in 0..2 {
                  let width = min(-32*span + 46, 32)
                  micro raot_multiply_integers_f32(%row_sums[32*span], %w[c, 0, 0], ...
            ...""",
    ),
    Example(why="windows of several channels", target="host", before=CONVOLUTION),
)
