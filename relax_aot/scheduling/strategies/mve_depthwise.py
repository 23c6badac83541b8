"""Depthwise convolutions for Helium, windows of at most three by four.

Some lines of a channel at a time are interleaved by four (`depthwise_interleaved4.h`), so that one
load is a window of two positions. Lines may be columns of the image: windows follow each other
along the longer axis. Works for channels-first and channels-last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Dim, ceildiv, interval, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.mve import WINDOW
from relax_aot.scheduling.contraction import Weighted, moved, stride
from relax_aot.scheduling.epilogue import (
    Requantization,
    by_channel,
    direct_store,
    known_by_channel,
    scale_table,
)
from relax_aot.scheduling.packing import Arrays, Packed
from relax_aot.scheduling.strategies._texts import DEPTHWISE_INTEGER, LONG_WINDOWS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights, fits_bytes, shared_by
from relax_aot.scheduling.windows import Axis, image_of, window_axes
from relax_aot.scheduling.writer import ZERO, Writer

SUMS = 160
"""Sums that are kept at once, if two lines are not longer."""
MOST_APART = 9362
"""Elements from one result to the next at most: seven times that are 16 bits."""


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axis whose lines are interleaved, the one along which windows follow each other, and
    the distance of results along each."""

    lines: Axis
    along: Axis
    steps: tuple[Dim, Dim]

    @property
    def outs(self) -> int:
        """Lines of the output per block."""
        return 3 - self.lines.stride


def depthwise_windows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    parts = by_channel(found, context.constants)
    store = direct_store(parts[1]) if parts is not None else None
    axes = window_axes(found)
    if parts is None or store is None or axes is None or not fits_bytes(found):
        return None
    if not known_by_channel(found.start, found, context.constants):
        return None
    choices = [_axes(store, *pair) for pair in (axes, axes[::-1])]
    known = [choice for choice in choices if choice is not None]
    if not known:
        return None
    best = max(known, key=lambda choice: interval(choice.along.positions, w.bounds)[1])
    return _Windows(found, w, best, parts[0], store).emit


def _axes(store: Store, lines: Axis, along: Axis) -> _Axes | None:
    if lines.stride > 2 or lines.taps > 2 + lines.stride or along.stride > 2 or along.taps > 4:
        return None
    steps = [stride(store, axis.variable) for axis in (lines, along)]
    if steps[0] is None or steps[1] is None:
        return None
    moves = [step.constant if step.is_constant else 0 for step in (along.step, steps[1])]
    fits = all(0 < move <= MOST_APART for move in moves)
    return _Axes(lines, along, (steps[0], steps[1])) if fits else None


@dataclass
class _Windows:
    found: Weighted
    w: Writer
    axes: _Axes
    one: Requantization
    store: Store

    def emit(self) -> None:
        found, w, axes, one = self.found, self.w, self.axes, self.one
        lines, along = axes.lines, axes.along
        outer = shared_by(found, (found.w, found.start, *one.loads))
        order = [found.reductions.index(a.reduction) for a in (along, lines) if a.reduction]
        pack = self.pack = Weights(found, outer, order)
        weights = pack.buffer(w, "interleaved", DType.I8, (*pack.lead, axes.outs * WINDOW))
        self.weights = w.constant(Packed(weights, self._windows))
        self.start = pack.packed_starts(w, found.flip)
        scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, one.parts))
        self.scales = w.constant(Packed(scales, lambda data: scale_table(one, pack.loops, data)))
        loops = [*found.shared, *found.positions[:-2]]
        with w.block() as body, w.nest(loops):
            longest = max(interval(along.positions, w.bounds)[1], 1)
            highest = max(interval(lines.positions, w.bounds)[1], 1)
            blocks = max(1, min(-(-highest // axes.outs), SUMS // (axes.outs * longest)))
            height = blocks * axes.outs
            self.length = (along.positions - 1) * along.stride + along.taps
            size = self.length * (4 * blocks) + WINDOW
            self.interleaved = w.buffer("interleaved", DType.I8, size)
            self.sums = w.buffer("sums", DType.I32, along.positions * height + 8)
            single = simplify(ceildiv(lines.positions, height), w.bounds) == 1
            with w.tiles(("band", "height"), lines.positions, height) as (first, high):
                if not single:
                    self._border(size)
                self._band(first, high)
        if single:
            self._border(size)
        w.add(*body)

    def _border(self, size: Dim) -> None:
        zero = self.found.x_zero - self.found.flip
        self.w.micro("raot_fill_interleaved4", rows4=self.interleaved, zero=zero, count=size)

    def _band(self, first: Dim, height: Dim) -> None:
        found, w, axes, one = self.found, self.w, self.axes, self.one
        lines, along = axes.lines, axes.along
        blocks = ceildiv(height, axes.outs)
        w.micro(
            f"raot_interleave4_{found.suffix}", rows4=self.interleaved,
            image=image_of(found, (lines, along)),
            flip=found.flip, blocks=blocks, length=self.length,
            top=first * lines.stride - lines.before, left=-along.before, lines=lines.size,
            columns=along.size, line_step=lines.step, step=along.step,
        )  # fmt: skip
        w.micro(
            "raot_depthwise_interleaved4_s8", sums=self.sums, rows4=self.interleaved,
            weights=self.pack.first(self.weights), blocks=blocks, outs=axes.outs,
            count=along.positions, stride=along.stride, length=self.length,
        )  # fmt: skip
        w.micro(
            f"raot_requantize_channel_{one.form}{one.suffix}",
            out=moved(self.store, {lines.variable: first, along.variable: ZERO}), sums=self.sums,
            start=self.pack.first(self.start), scale=self.pack.first(self.scales), lines=height,
            count=along.positions, line_step=axes.steps[0], step=axes.steps[1], zero=one.zero,
            low=one.low, high=one.high,
        )  # fmt: skip

    def _windows(self, data: Arrays) -> Array:
        """For each line of a block, the window in four lines of four."""
        values, axes = self.pack.values(data), self.axes
        packed = np.zeros((*values.shape[:-2], axes.outs, 4, 4), np.int8)
        for out in range(axes.outs):
            packed[..., out, : axes.along.taps, out : out + axes.lines.taps] = values
        return packed


EXAMPLES = (
    Example(
        why="the lines of a channel interleaved by four",
        target="mve",
        before=DEPTHWISE_INTEGER,
        after="""
            kernel @conv(...
              micro raot_fill_interleaved4(...
              for c in 0..2 {
                micro raot_interleave4_s8(...
                micro raot_depthwise_interleaved4_s8(...
                micro raot_requantize_channel_f32(...
              }
            }""",
    ),
    Example(why="windows of more than four taps", target="mve", before=LONG_WINDOWS),
)
