# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions for Helium, windows of at most eight by eight over channels that lie side
by side.

Eight lines of up to sixteen channels at a time are interleaved (`depthwise_interleaved4.h`). The
window of an output is then contiguous, that of the next line begins one byte further on for each
line of its stride, and all of them have the same weights.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import numpy as np

from relax_aot.ir.dims import ZERO, Dim, ceildiv
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import EIGHT
from relax_aot.microkernels.mve import BLOCK
from relax_aot.scheduling.contraction import Weighted, moved, step_of, stride
from relax_aot.scheduling.epilogue import Requantization, by_channel, direct_store, scale_table
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Arrays, Packed, round_up
from relax_aot.scheduling.scaled import scaled_store
from relax_aot.scheduling.strategies._texts import LAST_LONG_WINDOWS, LONG_WINDOWS
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.strategies.mve_depthwise import side_by_side
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights, rests
from relax_aot.scheduling.windows import Axis, image_of, window_axes
from relax_aot.scheduling.writer import Writer

LINES = 8


def tall_windows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    parts = by_channel(found, context.constants)
    store = direct_store(parts[1]) if parts is not None else scaled_store(found)
    axes = window_axes(found)
    if store is None or axes is None or context.lean or rests(found, context.calls) is not False:
        return None
    if not found.known_by_channel(found.start, context.constants):
        return None
    choices = [
        _Windows(found, w, pair, parts and parts[0], store)
        for pair in (axes, axes[::-1])
        if _fits(store, *pair)
    ]
    best = max(choices, key=lambda windows: windows.longest, default=None)
    return None if best is None or not best.together else best.emit


def _fits(store: Store, lines: Axis, along: Axis) -> bool:
    """Whether lines can be interleaved along one axis, and windows follow along the other."""
    apart = stride(store, along.variable)
    if apart is None or not apart.is_constant or stride(store, lines.variable) is None:
        return False
    return max(lines.taps, along.taps) <= LINES and 0 < apart.constant <= MOST_APART


class _Windows:
    """`outs`: lines of the output at once; `longest`: positions along a line at most; `together`:
    channels at once, `apart`: the bytes of one; `depth`: bytes of a window."""

    def __init__(
        self,
        found: Weighted,
        w: Writer,
        axes: tuple[Axis, Axis],
        one: Requantization | None,
        store: Store,
    ) -> None:
        self.found, self.w, self.axes, self.one, self.store = found, w, axes, one, store
        lines, along = axes
        self.outs = (LINES - lines.taps) // lines.stride + 1
        self.depth = LINES * (along.taps - 1) + lines.taps
        read = (self.outs - 1) * lines.stride + round_up(self.depth, BLOCK)
        self.length = (along.positions - 1) * along.stride + -(-read // LINES)
        self.apart = self.length * LINES
        self.longest = greatest(along.positions, w.bounds)
        self.together = side_by_side(found, w, greatest(self.apart, w.bounds))

    def emit(self) -> None:
        found, w, one, (lines, along) = self.found, self.w, self.one, self.axes
        order = [found.reductions.index(a.reduction) for a in (along, lines) if a.reduction]
        self.pack = pack = Weights(found, order, *(one.loads if one else ()))
        weights = pack.buffer(w, "tall", DType.I8, (*pack.lead, round_up(self.depth, BLOCK)))
        w.constant(Packed(weights, partial(_interleaved, pack)))
        start = pack.packed_starts(w, found.flip)
        interleaved = w.buffer("interleaved", DType.I8, self.apart * self.together)
        pitch = ceildiv(along.positions, EIGHT) * EIGHT
        sums = w.buffer("sums", DType.I32, pitch * self.together)
        channel = found.shared[-1]
        with ExitStack() as loops:
            loops.enter_context(w.nest([*found.shared[:-1], *found.positions[:-2]]))
            parts = w.tiles(("part", "channels"), channel.stop, self.together)
            first, channels = loops.enter_context(parts)
            bands = w.tiles(("band", "height"), lines.positions, self.outs)
            top, height = loops.enter_context(bands)
            apart = w.short("apart", self.apart)
            w.micro(
                f"raot_interleave8_channels_{found.suffix}", rows8=interleaved,
                image=moved(image_of(found, self.axes), {channel.variable: first}),
                flip=found.flip, zero=found.x_zero - found.flip, channels=channels, apart=apart,
                length=self.length, top=top * lines.stride - lines.before, left=-along.before,
                lines=lines.size, columns=along.size, line_step=lines.step, step=along.step,
            )  # fmt: skip
            line = loops.enter_context(w.range("line", height))
            of = pack.of_channel
            w.micro(
                "raot_depthwise_columns_s8", sums=sums, weights=of(weights, first),
                strips=Load(interleaved, (line * lines.stride,)), channels=channels,
                count=along.positions, depth=self.depth, step=LINES * along.stride, width=apart,
            )  # fmt: skip
            at = {lines.variable: top + line, along.variable: ZERO, channel.variable: first}
            if one is None:
                self._each(sums, at, channels, start)
                return
            scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, len(one.numbers)))
            w.constant(Packed(scales, partial(scale_table, one, pack.loops)))
            w.micro(
                f"raot_requantize_channels_{one.form}{one.suffix}", sums=sums,
                out=moved(self.store, at), start=of(start, first),
                scale=of(scales, first), channels=channels, count=along.positions,
                channel_step=step_of(self.store, channel.variable),
                step=step_of(self.store, along.variable), zero=one.zero, low=one.low,
                high=one.high,
            )  # fmt: skip

    def _each(self, sums: Buffer, at: dict[str, Dim], channels: Dim, start: Buffer) -> None:
        """The statements that follow each sum."""
        found, w, (_, along) = self.found, self.w, self.axes
        channel = found.shared[-1].variable
        pitch = ceildiv(along.positions, EIGHT) * EIGHT
        with w.range("c", channels) as c, w.range("p", along.positions) as p:
            here = {**at, along.variable: p, channel: at[channel] + c}
            total = Binary(
                "+", Load(sums, (c * pitch + p,)), self.pack.of_channel(start, here[channel])
            )
            w.finish(found.after, found.sum, total, here)


def _interleaved(pack: Weights, data: Arrays) -> Array:
    """The columns of a window in eight lines."""
    values = pack.values(data)
    packed = np.zeros((*values.shape[:-1], LINES), np.int8)
    packed[..., : values.shape[-1]] = values
    packed = packed.reshape(*values.shape[:-2], -1)
    depth = round_up(LINES * (values.shape[-2] - 1) + values.shape[-1], BLOCK)
    space = max(0, depth - packed.shape[-1])
    return np.pad(packed, [(0, 0)] * (packed.ndim - 1) + [(0, space)])[..., :depth]


EXAMPLES = (
    Example(
        why="windows of three by five over twenty channels",
        target="mve",
        before=LAST_LONG_WINDOWS,
        after="""
            kernel @conv(...
              for part in 0..2 {
                let channels = min(-16*part + 20, 16)
                micro raot_interleave8_channels_s8(...
                for line in 0..6 {
                  micro raot_depthwise_columns_s8(...
                  micro raot_requantize_channels_f32(...
                }
              }
            }""",
    ),
    Example(why="channels one behind the other", target="mve", before=LONG_WINDOWS),
)
