# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions for Helium, windows of at most three by four.

Some lines of a channel at a time are interleaved by four (`depthwise_interleaved4.h`), so that one
load is a window of two positions. Lines may be columns of the image: windows follow each other
along the longer axis. Works for channels-first and channels-last. Sums become bytes or floats.
"""

from __future__ import annotations

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
from relax_aot.scheduling.strategies._texts import DEPTHWISE_FLOATS, DEPTHWISE_INTEGER, LONG_WINDOWS
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import Weights
from relax_aot.scheduling.windows import Axis, image_of, window_axes
from relax_aot.scheduling.writer import Writer

SUMS = 160
"""Sums that are kept at once, if two lines are not longer."""


def depthwise_windows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    parts = by_channel(found, context.constants)
    store = direct_store(parts[1]) if parts is not None else scaled_store(found)
    axes = window_axes(found)
    if store is None or axes is None or not found.fits_bytes:
        return None
    if not found.known_by_channel(found.start, context.constants):
        return None
    choices = [pair for pair in (axes, axes[::-1]) if _fits(store, *pair)]
    best = max(choices, key=lambda pair: greatest(pair[1].positions, w.bounds), default=None)
    return None if best is None else partial(_emit, found, w, best, parts and parts[0], store)


def _fits(store: Store, lines: Axis, along: Axis) -> bool:
    """Whether lines can be interleaved along one axis, and windows follow along the other."""
    if lines.stride > 2 or lines.taps > 2 + lines.stride or along.stride > 2 or along.taps > 4:
        return False
    moves = (along.step, stride(store, along.variable))
    near = (move.constant if move is not None and move.is_constant else 0 for move in moves)
    return stride(store, lines.variable) is not None and all(0 < n <= MOST_APART for n in near)


def _emit(
    found: Weighted, w: Writer, axes: tuple[Axis, Axis], one: Requantization | None, store: Store
) -> None:
    """`one`: the epilogue of bytes, None where sums become floats."""
    lines, along = axes
    outs = 3 - lines.stride  # lines of the output per block
    order = [found.reductions.index(a.reduction) for a in (along, lines) if a.reduction]
    pack = Weights(found, order, *(one.loads if one else ()))
    weights = pack.buffer(w, "interleaved", DType.I8, (*pack.lead, outs * WINDOW))
    w.constant(Packed(weights, partial(_windows, pack, lines, along, outs)))
    start = pack.packed_starts(w, found.flip)
    scales = None
    if one is not None:
        scales = pack.buffer(w, "scales", one.table_type, (*pack.lead, len(one.numbers)))
        w.constant(Packed(scales, partial(scale_table, one, pack.loops)))
    with w.block() as body, w.nest([*found.shared, *found.positions[:-2]]):
        longest, highest = (greatest(axis.positions, w.bounds) for axis in (along, lines))
        height = max(1, min(-(-highest // outs), SUMS // (outs * longest))) * outs
        length = (along.positions - 1) * along.stride + along.taps
        size = length * (4 * (height // outs)) + WINDOW
        interleaved = w.buffer("interleaved", DType.I8, size)
        sums = w.buffer("sums", DType.I32, along.positions * height + 8)
        zero = found.x_zero - found.flip
        border = call("raot_fill_interleaved4", rows4=interleaved, zero=zero, count=size)
        single = simplify(ceildiv(lines.positions, height), w.bounds) == 1
        with w.tiles(("band", "height"), lines.positions, height) as (first, high):
            w.add(*() if single else (border,))
            w.micro(
                f"raot_interleave4_{found.suffix}", rows4=interleaved,
                image=image_of(found, axes), flip=found.flip, blocks=ceildiv(high, outs),
                length=length, top=first * lines.stride - lines.before, left=-along.before,
                lines=lines.size, columns=along.size, line_step=lines.step, step=along.step,
            )  # fmt: skip
            w.micro(
                "raot_depthwise_interleaved4_s8", sums=sums, rows4=interleaved,
                weights=pack.first(weights), blocks=ceildiv(high, outs), outs=outs,
                count=along.positions, stride=along.stride, length=length,
            )  # fmt: skip
            if one is None or scales is None:
                _each(found, w, axes, sums, (first, high), pack.first(start))
            else:
                w.micro(
                    f"raot_requantize_channel_{one.form}{one.suffix}", sums=sums,
                    out=moved(store, {lines.variable: first, along.variable: ZERO}),
                    start=pack.first(start), scale=pack.first(scales), lines=high,
                    count=along.positions, line_step=step_of(store, lines.variable),
                    step=step_of(store, along.variable), zero=one.zero, low=one.low, high=one.high,
                )  # fmt: skip
    w.add(*(border,) if single else (), *body)


def _each(
    found: Weighted, w: Writer, axes: tuple[Axis, Axis], sums: Buffer, band: tuple[Dim, Dim],
    start: Load,
) -> None:  # fmt: skip
    """The statements that follow each sum; `band`: its first line and its height."""
    lines, along = axes
    with w.range("line", band[1]) as r, w.range("column", along.positions) as c:
        total = Binary("+", Load(sums, (r * along.positions + c,)), start)
        w.finish(found.after, found.sum, total, {lines.variable: band[0] + r, along.variable: c})


def _windows(pack: Weights, lines: Axis, along: Axis, outs: int, data: Arrays) -> Array:
    """For each line of a block, the window in four lines of four."""
    values = pack.values(data)
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
