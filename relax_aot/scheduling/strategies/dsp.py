# SPDX-License-Identifier: Apache-2.0
"""Integer contractions for Arm's DSP extension: SMLAD adds two products of 16-bit numbers.

A contraction takes two output positions at a time: their windows are gathered as columns of
16-bit pairs, which all channels read (an implicit im2col). 3 x 3 depthwise convolutions run
over some rows of a channel, copied into a plane with a border.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv, interval, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import Binary, Buffer, Expr, If, Index, Load, Stmt
from relax_aot.ir.types import DType
from relax_aot.microkernels import call
from relax_aot.microkernels.dsp import SLACK
from relax_aot.scheduling.contraction import Weighted, moved, stride
from relax_aot.scheduling.epilogue import direct_store, requantized
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.packing import Arrays, padded, permuted, round_up
from relax_aot.scheduling.strategies._texts import DEPTHWISE_INTEGER, INTEGER_MATMUL, SHORT_SUMS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.weighted import WHOLE, Span, Weights, position_at, sizes_of, window
from relax_aot.scheduling.windows import Axis, image_of, window_axes
from relax_aot.scheduling.writer import Writer

SPANS = 3
"""Reduction loops at most; micro-kernels take one more, for taps side by side."""
SUMS = 160
"""Accumulators that a band of a depthwise convolution keeps at once, if a row is not longer."""


def columns(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Two output positions at a time."""
    if found.channel is None or len(found.reductions) > SPANS:
        return None
    if not found.has_depth(context.constants):
        return None
    kernel = f"raot_multiply_{'s8' if found.fits_bytes else 's16'}"
    return _Columns(found, w, kernel).emit


class _Columns:
    """`taps`: whether the last reduction runs over three taps side by side, behind the pairs."""

    def __init__(self, found: Weighted, w: Writer, kernel: str) -> None:
        self.found, self.w, self.kernel = found, w, kernel
        self.order, self.taps = _order(found)

    def emit(self) -> None:
        """Two channels by four steps at a time; of 8-bit weights the middle two of four are
        exchanged, as the unpacking instructions want them."""
        found, w, rows = self.found, self.w, round_up(self.found.channels, 2)
        pair = found.counts[self.order[-2 if self.taps else -1]]
        self.blocks = -(-found.depth // pair * ((pair + 1) // 2) // 2)
        self.pack = Weights(found, self.order)
        sizes = {"channels": rows, "blocks": self.blocks}
        self.weights = self.pack.packed(
            w, "interleaved", self.kernel, "weights", sizes, self._steps
        )
        self.bias = self.pack.packed_starts(w, 0, 2)
        self.columns = w.buffer("columns", DType.I16, 2 * self.blocks, 2, 2)
        self.sums = w.buffer("sums", DType.I32, rows, 2)
        with w.nest(found.shared):
            count = found.position_count
            pairs = simplify(count // 2, w.bounds)
            if pairs != 0:
                with w.range("column_pair", pairs) as tile:
                    self._tile([tile * 2, tile * 2 + 1])
            odd = simplify(count - pairs * 2, w.bounds)
            if odd == 0:
                return
            if interval(odd, w.bounds.open) == (1, 1):
                self._tile([simplify(count - 1, w.bounds)])
                return
            with w.range("last", count, pairs * 2) as last:
                self._tile([last])

    def _tile(self, positions: Sequence[Dim]) -> None:
        found, w = self.found, self.w
        ats, windows = [], []
        for position in positions:
            ats.append(position_at(w, found, position))
            windows.append(window(w, found, self.order, ats[-1]))
        self._gather(windows)
        w.micro(
            self.kernel, sums=self.sums, weights=self.pack.first(self.weights),
            columns=self.columns, bias=self.pack.first(self.bias),
            channels=round_up(found.channels, 2), blocks=self.blocks,
        )  # fmt: skip
        with w.range(found.own, found.channels) as channel:
            for lane, at in enumerate(ats):
                value = Load(self.sums, (channel, Dim.of(lane)))
                w.finish(found.after, found.sum, value, {**at, found.own: channel})

    def _gather(self, windows: Sequence[tuple[list[Span], Load]]) -> None:
        """Both columns at once where no window is clipped, else one by one."""
        found = self.found
        single: list[Stmt] = []
        whole: list[Expr] = []
        for lane, (spans, image) in enumerate(windows):
            spans[:] = spans if self.taps else [*spans, WHOLE]
            spans[:0] = [WHOLE] * (SPANS + 1 - len(spans))
            column = Load(self.columns, (ZERO, Dim.of(lane), ZERO))
            sizes = sizes_of(spans, "count", "first", "last", "step")
            name = f"raot_column_{found.suffix}"
            single.append(call(name, column=column, image=image, zero=found.x_zero, **sizes))
            for span in spans:
                sides = ((span.first, ZERO), (span.last, Dim.of(span.count)))
                whole += [Binary("==", Index(a), Index(b)) for a, b in sides if a != b]
        if len(windows) == 2:
            (spans, left), (_, right) = windows
            sizes, name = sizes_of(spans, "count", "step"), f"raot_columns_{found.suffix}"
            both = call(name, columns=self.columns, left=left, right=right, **sizes)
            unclipped = reduce(lambda a, b: Binary("&&", a, b), whole) if whole else None
            single = [If(unclipped, (both,), tuple(single)) if unclipped else both]
        self.w.add(*single)

    def _steps(self, data: Arrays) -> Array:
        """Weights in the order of columns: pairs side by side, then taps."""
        values, lead = self.pack.values(data), (*self.pack.lead, self.found.channels)
        taps = values.shape[-1] if self.taps else 1
        pair = values.shape[-2 if self.taps else -1]
        values = values.reshape(*lead, -1, pair, taps)
        whole = (*values.shape[:-2], round_up(pair, 2), taps)
        layout = permuted(lead, (values.shape[-3], whole[-2] // 2, taps, 2), (0, 1, 3, 2))
        return layout.pack(padded(values, whole)).reshape(*lead, -1)


def _order(found: Weighted) -> tuple[list[int], bool]:
    """The reduction loops in the order of columns: pairs go along the one that wastes least,
    which is the last but for three taps side by side (True)."""
    counts = found.counts
    pair = min(range(len(counts)), key=lambda i: (round_up(counts[i], 2) / counts[i], -i))
    rest = [i for i in range(len(counts)) if i != pair]
    taps = [
        i for i in rest if counts[i] == 3 and stride(found.x, found.reductions[i].variable) == 1
    ]
    if not taps or counts[pair] % 2:
        return [*rest, pair], False
    rest.remove(taps[-1])
    return [*rest, pair, taps[-1]], True


# Depthwise convolutions


def depthwise(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """3 x 3 windows of one channel, equal strides."""
    axes = window_axes(found)
    if axes is None or not found.known_by_channel(found.start, context.constants):
        return None
    rows, across = axes
    if rows.reduction != found.reductions[0] or rows.stride != across.stride:
        return None
    fits = all(axis.taps == 3 and axis.clips in ((False, False), (True, True)) for axis in axes)
    return partial(_emit_depthwise, found, w, rows, across) if fits else None


def _emit_depthwise(found: Weighted, w: Writer, rows: Axis, columns: Axis) -> None:
    name, across = f"raot_depthwise_3x3_{found.suffix}", columns.positions
    with w.nest([*found.shared, *found.positions[:-2]]):
        longest, highest = (greatest(axis.positions, w.bounds) for axis in (columns, rows))
        height = max(1, min(highest, SUMS // longest))
        width = (across - 1) * columns.stride + 3
        pack = Weights(found, (0, 1))
        weights = pack.packed(w, "windows", name, "weights", {})
        bias = pack.packed_starts(w, 0)
        size = ceildiv(width * ((height - 1) * rows.stride + 3), 4) * 4 + SLACK - 3
        plane = w.buffer("plane", found.x.dtype, size)
        sums = w.buffer("sums", DType.I32, across * height + 8)
        with w.tiles(("band", "height"), rows.positions, height) as (first, high):
            w.micro(
                f"raot_pad_{found.suffix}", plane=plane, image=image_of(found, (rows, columns)),
                zero=found.x_zero, rows=(high - 1) * rows.stride + 3, width=width,
                top=first * rows.stride - rows.before, left=-columns.before,
                image_rows=rows.size, image_columns=columns.size, row_step=rows.step,
                step=columns.step,
            )  # fmt: skip
            w.micro(
                name, sums=sums, plane=plane, weights=pack.first(weights), bias=pack.first(bias),
                rows=high, columns=across, width=width, stride=rows.stride, sum_step=across,
            )  # fmt: skip
            _finish_band(found, w, (rows, columns), sums, (first, high))


def _finish_band(
    found: Weighted, w: Writer, axes: tuple[Axis, Axis], sums: Buffer, band: tuple[Dim, Dim]
) -> None:
    """All sums of a band to bytes at once, where those are the result; `band`: its first row and
    its height."""
    (first, height), across, names = band, axes[1].positions, [axis.variable for axis in axes]
    one, rest = requantized(found) or (None, found)
    store = direct_store(rest)
    row, near = (stride(store, name) if store else None for name in names)
    known = one and one.dtype is DType.I8 and isinstance(one.shift, int)
    steady = known and one and all(stride(one.loads[0], name) == 0 for name in names)
    if one is None or store is None or row is None or near != 1 or not steady:
        with w.range(names[0], height) as r, w.range(names[1], across) as c:
            at = {names[0]: first + r, names[1]: c}
            w.finish(found.after, found.sum, Load(sums, (r * across + c,)), at)
        return
    shift = {"shift": one.shift} if one.shift else {}
    rows, columns = (ONE, height * across) if row == across else (height, across)
    w.micro(
        f"raot_requantize_{'i32' if shift else 'f32'}", sums=sums, scale=one.loads[0],
        out=moved(store, {names[0]: first, names[1]: ZERO}), out_step=row, sum_step=across,
        rows=rows, columns=columns, scale_step=ZERO, zero=one.zero, **shift,
    )  # fmt: skip


EXAMPLES = (
    Example(
        why="two rows of a matrix at a time, the last one alone",
        target="dsp",
        before=INTEGER_MATMUL,
        after="""
            kernel @dot(%x: i8[n, 4], %w.interleaved: i8[1, 1, 2, 4], %w.bias: i32[2]) ...
              for column_pair in 0..n // 2 {
            ...
                micro raot_columns_s8(...
                micro raot_multiply_s8(...) [2, 1]
            ...
              for last in 2*(n // 2)..n {
            ...""",
    ),
    Example(
        why="a 3 x 3 window of one channel, from a plane with a border",
        target="dsp",
        before=DEPTHWISE_INTEGER,
        after="""
            kernel @conv(...
              for c in 0..2 {
                micro raot_pad_s8(...
                micro raot_depthwise_3x3_s8(...
                micro raot_requantize_f32(...
              }
            }""",
    ),
    Example(why="sums of three products are too short", target="dsp", before=SHORT_SUMS),
)
