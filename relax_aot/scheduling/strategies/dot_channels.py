# SPDX-License-Identifier: Apache-2.0
"""Integer contractions whose vectors are channels, contiguous in the output.

Windows of some positions are gathered as rows of numbers, which a tile multiplies by the
weights of sixteen channels at a time. A tile takes operands of 16-bit pairs (PMADDWD,
VPDPWSSD), of four signed bytes (SDOT, SMMLA), or of unsigned by signed bytes (VPDPBUSD).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.loops import For, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.dot2 import COLUMNS
from relax_aot.scheduling.contraction import Weighted, step_of, stride
from relax_aot.scheduling.packing import Packed, permuted, round_up
from relax_aot.scheduling.strategies._texts import INTEGER_MATMUL, WIDE_MATMUL
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import (
    WHOLE,
    Span,
    Weights,
    in_place,
    position_tiles,
    sizes_of,
    window,
)
from relax_aot.scheduling.writer import Writer

SPANS = 3
LEAST_CHANNELS = 4
ROWS = (24, 12)
"""Positions that are done at once, fewer where they take much memory."""
MOST_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Form:
    """Operands of a tile: `suffix` of its micro-kernels. `left` and `right`: the tile whose image
    is that factor. Images are gathered as rows of `dtype`, with a multiple of `group` elements, and
    as panels of `panel`, of which `panel_group` steps lie together; up to `panels` at once."""

    suffix: str
    left: str
    right: str
    dtype: DType
    group: int
    panel: DType
    panel_group: int
    panels: int = 1

    def takes(self, found: Weighted) -> bool:
        """Whether both factors fit the operands."""
        return self.dtype is DType.I16 or found.channel is None or found.fits_bytes

    def offset(self, found: Weighted) -> int:
        """What gathering subtracts from x: all of its zero point, or what makes bytes of it."""
        return found.x_zero if self.dtype is DType.I16 else self.flip(found)

    def flip(self, found: Weighted) -> int:
        """What is subtracted from bytes of x for their sign."""
        return {DType.I8: found.flip, DType.U8: found.flip - 128}.get(self.dtype, 0)


I16, I8, U8 = DType.I16, DType.I8, DType.U8
DOT2_I16 = Form("dot2_i16", "raot_dot2_i16", "raot_dot2_i16", I16, 2, I16, 2, 4)
DOT4_I8 = Form("dot4_i8", "raot_dot4_i8", "raot_dot4_i8", I8, 4, I8, 4)
DOT4_U8 = Form("dot4_u8", "raot_dot4_us", "raot_dot4_su", U8, 4, I16, 2, 4)


def contiguous(found: Weighted, loop: For) -> bool:
    """Whether the results of a loop are contiguous."""
    stores = (stmt for stmt in found.after if isinstance(stmt, Store))
    return all(stride(store, loop.variable) == 1 for store in stores)


def channels(form: Form, found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Tiles along channels that are contiguous in the result."""
    if found.channel is None or not contiguous(found, found.channel):
        return None
    return strided_channels(form, found, w, context)


def strided_channels(form: Form, found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Tiles along channels, wherever their results lie."""
    if found.channels < LEAST_CHANNELS or not form.takes(found):
        return None
    if len(found.reductions) > SPANS or not found.has_depth(context.constants):
        return None
    return partial(_emit_channels, found, w, form)


def _emit_channels(found: Weighted, w: Writer, form: Form) -> None:
    order, joint = found.farthest_first, found.joined(found.x)
    pack = Weights(found, order)
    depth, wide = round_up(found.depth, form.group), round_up(found.channels, COLUMNS)
    weights = pack.packed(
        w, "blocks", form.left, "right", {"columns": found.channels, "depth": depth}
    )
    bias = pack.packed_starts(w, form.offset(found), COLUMNS)
    one = form.dtype.bytes * depth + 4 * wide
    high = next((high for high in ROWS if high * one <= MOST_BYTES), ROWS[-1])
    most = simplify(dim_max(dim_min(found.tiled(joint), high), 1), w.bounds)
    rows = w.buffer("rows", form.dtype, most, depth)
    sums = w.buffer("sums", DType.I32, most, wide)
    with position_tiles(w, found, high, joint) as tile:

        def gather(offset: Dim, count: Dim, step: Dim) -> None:
            spans, image = window(w, found, order, tile.at(w, offset))
            spans = _merged(spans)
            spans = [WHOLE] * (SPANS - len(spans)) + spans
            w.micro(
                f"raot_rows_{form.suffix}_{found.suffix}", to=Load(rows, (offset, ZERO)),
                image=image, zero=found.x_zero, rows=count, row_step=step, depth=depth,
                **sizes_of(spans, "count", "first", "last", "step"),
            )  # fmt: skip

        if found.clipped:
            with w.range("p", tile.count) as p:
                gather(p, ONE, ZERO)
        else:
            step = sum(
                (step_of(found.x, loop.variable) for loop in found.positions[-1:]), start=ZERO
            )
            gather(ZERO, tile.count, step)
        w.micro(
            form.left, sums=sums, left=rows, right=pack.first(weights),
            bias=pack.first(bias), rows=tile.count, columns=found.channels, depth=depth,
            sum_step=wide, bias_row=ZERO, bias_column=ONE,
        )  # fmt: skip
        tile.finish(w, found, lambda channel, p: Load(sums, (p, channel)))
    w.in_place = in_place(found, [*found.shared, *found.positions])


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Spans that are never clipped and follow each other, as one."""
    result: list[Span] = []
    for span in spans:
        last = result[-1] if result else None
        if last and last.whole and span.whole and last.step == span.step * span.count:
            count = last.count * span.count
            result[-1] = Span(count, ZERO, Dim.of(count), span.step)
        else:
            result.append(span)
    return result


# Depthwise convolutions


def depthwise_channels(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """All channels of one position, contiguous in image and result."""
    if found.channel is not None or not found.shared or not 0 < len(found.reductions) < SPANS:
        return None
    last = found.shared[-1]
    if stride(found.x, last.variable) != 1 or not last.stop.is_constant:
        return None
    if last.stop.constant < LEAST_CHANNELS or stride(found.w, last.variable) == 0:
        return None
    if not found.known_by_channel(found.start, context.constants) or not contiguous(found, last):
        return None
    return partial(_emit_depthwise, found, w, last)


def _emit_depthwise(found: Weighted, w: Writer, last: For) -> None:
    pack = Weights(found, range(len(found.reductions)))
    *lead, channels = pack.lead
    index = pack.index[:-1]
    buffer = pack.buffer(w, "taps", DType.I16, (*lead, found.depth, channels))
    layout = permuted(lead, (found.depth, channels), (1, 0))
    weights = w.constant(Packed(buffer, lambda data: layout.pack(pack.matrix(data))))
    bias = pack.packed_starts(w, found.x_zero)
    sums = w.buffer("sums", DType.I32, last.stop)
    with w.nest([*found.shared[:-1], *found.positions]):
        at = {loop.variable: Dim.of(loop.variable) for loop in found.positions}
        spans, image = window(w, found, pack.order, {**at, last.variable: ZERO})
        rows, columns = [WHOLE] * (2 - len(spans)) + spans
        sizes = sizes_of((rows, columns), "count", "first", "last", "step")
        del sizes["count0"]
        w.micro(
            f"raot_depthwise_channels_{found.suffix}", sums=sums, image=image,
            weights=Load(weights, (*index, ZERO, ZERO)), bias=Load(bias, (*index, ZERO)),
            channels=channels, zero=found.x_zero, **sizes,
        )  # fmt: skip
        with w.range(last.variable, last.stop) as channel:
            value = Load(sums, (channel,))
            w.finish(found.after, found.sum, value, {**at, last.variable: channel})


EXAMPLES = (
    Example(
        why="tiles of sixteen channels, contiguous in the result",
        target="host",
        before=WIDE_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.blocks: i8[1, 1, 16, 4], %w.bias: i32[16]) ...
              for tile in 0..(n + 23) // 24 {
                let positions = min(24, n - 24*tile)
                micro raot_rows_dot4_u8_s8(...
                micro raot_dot4_us(...
            ...""",
    ),
    Example(why="too few channels", target="host", before=INTEGER_MATMUL),
)
