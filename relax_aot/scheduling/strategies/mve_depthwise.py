# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions for Helium, windows of at most three by four.

Some lines of a channel at a time are interleaved by four (`depthwise_interleaved4.h`), so that one
load is a window of two positions. Lines may be columns of the image: windows follow each other
along the longer axis. Works for channels-first and channels-last, where up to sixteen channels are
interleaved at once. Sums become bytes or floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from relax_aot.ir.dims import ZERO, Dim, ceildiv, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels import call
from relax_aot.microkernels.mve import WINDOW
from relax_aot.scheduling.contraction import Weighted, moved, step_of, stride
from relax_aot.scheduling.epilogue import Requantization, by_channel, direct_store, scale_table
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Arrays, Packed
from relax_aot.scheduling.scaled import scaled_store
from relax_aot.scheduling.strategies._texts import (
    DEPTHWISE_FLOATS,
    DEPTHWISE_INTEGER,
    DEPTHWISE_LAST,
    LONG_WINDOWS,
)
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights, byte_of, rest_of, rests
from relax_aot.scheduling.windows import Axis, image_of, window_axes
from relax_aot.scheduling.writer import Writer

SUMS = 160
"""Sums that are kept at once, if two lines are not longer."""
SIDE_BY_SIDE, LEAST = 16, 4
"""Channels that are interleaved at once, most and least."""
KEPT = 4096
"""Bytes of interleaved lines of several channels."""


def depthwise_windows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    parts = by_channel(found, context.constants)
    store = direct_store(parts[1]) if parts is not None else scaled_store(found)
    axes = window_axes(found)
    more = rests(found, context.calls)
    if store is None or axes is None or more is None:
        return None
    if not found.known_by_channel(found.start, context.constants):
        return None
    choices = [pair for pair in (axes, axes[::-1]) if _fits(store, *pair)]
    best = max(choices, key=lambda pair: greatest(pair[1].positions, w.bounds), default=None)
    one = parts and parts[0]
    return None if best is None else partial(_emit, found, w, best, one, store, context.lean, more)


def _fits(store: Store, lines: Axis, along: Axis) -> bool:
    """Whether lines can be interleaved along one axis, and windows follow along the other."""
    if lines.stride > 2 or lines.taps > 2 + lines.stride or along.stride > 2 or along.taps > 4:
        return False
    moves = (along.step, stride(store, along.variable))
    near = (move.constant if move is not None and move.is_constant else 0 for move in moves)
    return stride(store, lines.variable) is not None and all(0 < n <= MOST_APART for n in near)


def side_by_side(found: Weighted, w: Writer, each: int) -> int:
    """How many channels are interleaved at once, 0 where they do not lie side by side or take too
    much memory; `each`: bytes of one."""
    if not found.shared or stride(found.x, found.shared[-1].variable) != 1:
        return 0
    channels = greatest(found.shared[-1].stop, w.bounds)
    counts = (SIDE_BY_SIDE, SIDE_BY_SIDE // 2, LEAST)
    fits = (n for n in counts if n * each <= KEPT and 2 * channels > n)
    return next(fits, 0) if channels >= LEAST else 0


def _emit(
    found: Weighted, w: Writer, axes: tuple[Axis, Axis], one: Requantization | None, store: Store,
    lean: bool, more: bool,
) -> None:  # fmt: skip
    """`one`: the epilogue of bytes, None where sums become floats."""
    _Windows(found, w, axes, one, store, lean, more).emit()


class _Windows:
    """`outs`: lines of the output per block; `height`: of a band; `together`: channels that are
    interleaved at once, 0 where they do not lie side by side; `apart`: their bytes; `more`: whether
    windows are multiplied twice, for weights beyond signed bytes."""

    def __init__(
        self,
        found: Weighted,
        w: Writer,
        axes: tuple[Axis, Axis],
        one: Requantization | None,
        store: Store,
        lean: bool,
        more: bool,
    ) -> None:
        self.found, self.w, self.axes, self.one, self.store = found, w, axes, one, store
        self.more = more
        lines, along = axes
        self.outs = 3 - lines.stride
        longest, highest = (greatest(axis.positions, w.bounds) for axis in (along, lines))
        blocks = max(1, min(-(-highest // self.outs), SUMS // (self.outs * longest)))
        bytes_of_block = 4 * ((longest - 1) * along.stride + 4)
        self.together = 0 if lean else side_by_side(found, w, bytes_of_block)
        if self.together:
            blocks = max(1, min(blocks, KEPT // (self.together * bytes_of_block)))
        self.height = blocks * self.outs
        taps = 4 if self.together else along.taps
        self.length = (along.positions - 1) * along.stride + taps
        self.apart = self.length * (4 * blocks)
        order = [found.reductions.index(a.reduction) for a in (along, lines) if a.reduction]
        self.pack = Weights(found, order, *(one.loads if one else ()))

    def emit(self) -> None:
        found, w, pack, one = self.found, self.w, self.pack, self.one
        along = self.axes[1]
        weights = self._weights("interleaved", byte_of)
        more = [self._weights("rests", rest_of)] if self.more else []
        start = pack.packed_starts(w, found.flip)
        scales = None
        if one is not None:
            scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, len(one.numbers)))
            w.constant(Packed(scales, partial(scale_table, one, pack.loops)))
        factors = [pack.first(buffer) for buffer in (weights, *more)]
        each = partial(self._sums, factors, pack.first(start), scales)
        sums = w.buffer("sums", DType.I32, along.positions * self.height + 8)
        if self.together:
            self._channels(partial(each, sums))
        else:
            self._channel(partial(each, sums))

    def _weights(self, suffix: str, part: Callable[[Array], Array]) -> Buffer:
        shape = (*self.pack.lead, self.outs * WINDOW)
        buffer = self.pack.buffer(self.w, suffix, DType.I8, shape)
        data = partial(_windows, self.pack, *self.axes, self.outs, part)
        return self.w.constant(Packed(buffer, data))

    def _channel(self, each: Callable[[Load | Buffer, tuple[Dim, Dim]], None]) -> None:
        """Each channel by itself, with a border that is written once if there is one band."""
        found, w = self.found, self.w
        lines = self.axes[0]
        size = self.apart + WINDOW
        interleaved = w.buffer("interleaved", DType.I8, size)
        zero = found.x_zero - found.flip
        border = call("raot_fill_interleaved4", rows4=interleaved, zero=zero, count=size)
        single = simplify(ceildiv(lines.positions, self.height), w.bounds) == 1
        with w.block() as body, ExitStack() as loops:
            loops.enter_context(w.nest([*found.shared, *found.positions[:-2]]))
            bands = w.tiles(("band", "height"), lines.positions, self.height)
            band = loops.enter_context(bands)
            w.add(*() if single else (border,))
            w.micro(
                f"raot_interleave4_{found.suffix}", rows4=interleaved,
                image=image_of(found, self.axes), **self._image(band),
            )  # fmt: skip
            each(interleaved, band)
        w.add(*(border,) if single else (), *body)

    def _channels(self, each: Callable[[Load | Buffer, tuple[Dim, Dim]], None]) -> None:
        """Channels that lie side by side."""
        found, w = self.found, self.w
        channel, lines = found.shared[-1], self.axes[0]
        interleaved = w.buffer("interleaved", DType.I8, self.apart * self.together)
        apart = w.short("apart", self.apart)
        with ExitStack() as loops:
            loops.enter_context(w.nest([*found.shared[:-1], *found.positions[:-2]]))
            parts = w.tiles(("part", "channels"), channel.stop, self.together)
            first, channels = loops.enter_context(parts)
            band = loops.enter_context(w.tiles(("band", "height"), lines.positions, self.height))
            image = image_of(found, self.axes)
            w.micro(
                f"raot_interleave4_channels_{found.suffix}", rows4=interleaved,
                image=moved(image, {channel.variable: first}), zero=found.x_zero - found.flip,
                channels=channels, apart=apart, **self._image(band),
            )  # fmt: skip
            with w.loop(channel.variable, first, first + channels) as c:
                each(Load(interleaved, ((c - first) * apart,)), band)

    def _image(self, band: tuple[Dim, Dim]) -> dict[str, Dim | int]:
        lines, along = self.axes
        return {
            "flip": self.found.flip, "blocks": ceildiv(band[1], self.outs), "length": self.length,
            "top": band[0] * lines.stride - lines.before, "left": -along.before,
            "lines": lines.size, "columns": along.size, "line_step": lines.step,
            "step": along.step,
        }  # fmt: skip

    def _sums(
        self,
        weights: Sequence[Load],
        start: Load,
        scales: Buffer | None,
        sums: Buffer,
        interleaved: Load | Buffer,
        band: tuple[Dim, Dim],
    ) -> None:
        """The sums of a band of a channel, and what follows them."""
        w, one, store = self.w, self.one, self.store
        lines, along = self.axes
        blocks = ceildiv(band[1], self.outs)
        products = [sums, *(w.buffer("more", DType.I32, *sums.shape) for _ in weights[1:])]
        for product, factors in zip(products, weights, strict=True):
            w.micro(
                "raot_depthwise_interleaved4_s8", sums=product, rows4=interleaved, weights=factors,
                blocks=blocks, outs=self.outs, count=along.positions, stride=along.stride,
                length=self.length,
            )  # fmt: skip
        for product in products[1:]:
            count = blocks * self.outs * along.positions
            w.micro("raot_add_sums", sums=sums, more=product, count=count)
        if one is None or scales is None:
            self._each(sums, band, start)
            return
        w.micro(
            f"raot_requantize_channel_{one.form}{one.suffix}", sums=sums,
            out=moved(store, {lines.variable: band[0], along.variable: ZERO}), start=start,
            scale=self.pack.first(scales), lines=band[1], count=along.positions,
            line_step=step_of(store, lines.variable), step=step_of(store, along.variable),
            zero=one.zero, low=one.low, high=one.high,
        )  # fmt: skip

    def _each(self, sums: Buffer, band: tuple[Dim, Dim], start: Load) -> None:
        """The statements that follow each sum."""
        found, w = self.found, self.w
        lines, along = self.axes
        with w.range("line", band[1]) as r, w.range("column", along.positions) as c:
            total = Binary("+", Load(sums, (r * along.positions + c,)), start)
            w.finish(
                found.after, found.sum, total, {lines.variable: band[0] + r, along.variable: c}
            )


def _windows(
    pack: Weights, lines: Axis, along: Axis, outs: int, part: Callable[[Array], Array], data: Arrays
) -> Array:
    """For each line of a block, the window in four lines of four."""
    values = part(pack.values(data))
    packed = np.zeros((*values.shape[:-2], outs, 4, 4), np.int8)
    for out in range(outs):
        packed[..., out, : along.taps, out : out + lines.taps] = values
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
    Example(
        why="channels that lie side by side",
        target="mve",
        before=DEPTHWISE_LAST,
        after="""
            kernel @conv(...
              for part in 0..2 {
                let channels = min(-16*part + 20, 16)
                micro raot_interleave4_channels_s8(...
                for c in 16*part..channels + 16*part {
                  micro raot_depthwise_interleaved4_s8(...
                  micro raot_requantize_channel_f32(...
                }
              }
            }""",
    ),
    Example(
        why="sums that become floats",
        target="mve",
        before=DEPTHWISE_FLOATS,
        after="""
            kernel @conv(...
              micro raot_fill_interleaved4(...
              for c in 0..2 {
                micro raot_interleave4_s8(...
                micro raot_depthwise_interleaved4_s8(...
                ...
                micro raot_scale_lines_from_f32(%y[c, 0, 0], ...
              }
            }""",
    ),
    Example(why="windows of more than four taps", target="mve", before=LONG_WINDOWS),
)
