# SPDX-License-Identifier: Apache-2.0
"""Float convolutions as calls of one function of the runtime, for programs that shall be small.

A nest matches where its indices are those of a dense image, channels first or last, and the
taps that it leaves out are those beyond the image, which is tried for every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Apply, Binary, Buffer, For, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction
from relax_aot.scheduling.packing import panels_of
from relax_aot.scheduling.strategies._texts import CHANNELS_LAST, MATMUL
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import LINE, Axis, axis_at
from relax_aot.scheduling.writer import ONE, ZERO, Writer

GREATEST = (1 << 15) - 1
"""What int16_t holds."""
LEAST = 8
"""Contiguous results for which tiles are worth it."""
SELDOM = 1 / 64
"""Of a model's work; what does no more may be slow."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A convolution: its filters, the channels of its image, and its axes."""

    filters: For
    channels: int
    lines: Axis
    pixels: Axis

    @property
    def axes(self) -> tuple[Axis, Axis]:
        return self.lines, self.pixels

    @property
    def dense(self) -> bool:
        """Each result has one pixel of its own."""
        return all(
            (axis.stride, axis.taps, axis.before, axis.positions) == (1, 1, 0, axis.size)
            for axis in self.axes
        )


@dataclass(frozen=True, slots=True)
class _End:
    """The epilogue of a sum: `other` is added, then it is clipped."""

    other: Load | None
    low: float = -np.inf
    high: float = np.inf


def calls(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """None also where the nest does too much of the work for a function that is slow."""
    end = _end(found)
    names = (found.left.buffer.name, found.right.buffer.name)
    if end is None or [name in context.constants for name in names] != [True, False]:
        return None
    call = _Call(found, w, context, end)
    emit = (
        call.channels_last(_shape(found, last=True))
        or call.channels_first(_shape(found, last=False))
        or call.depthwise("depthwise_nhwc", _depthwise(found, last=True))
        or call.planes(_depthwise(found, last=False))
    )
    return None if emit is None else (0, emit)


# The convolution


def _shape(found: Contraction, last: bool) -> _Shape | None:
    weights, image, store = found.left, found.right, found.after[-1]
    rank = len(image.index)
    if not isinstance(store, Store) or rank not in (3, 4):
        return None
    if not len(weights.index) == len(store.index) == rank or not _sized(weights, image, store):
        return None
    filters = _loop(weights.index[0], found.nest.loops)
    channel, *places = (rank - 1, *range(1, rank - 1)) if last else range(1, rank)
    axes = [_axis(found, store, place, place) for place in places]
    depth = image.buffer.shape[channel].constant
    known = [axis for axis in axes if axis is not None]
    if filters is None or len(known) < len(axes) or not _sums_channels(found, channel, depth):
        return None
    extents = {weights.buffer.shape[0].constant, store.buffer.shape[channel].constant}
    if {_extent(filters)} != extents or store.index[channel] != Dim.of(filters.variable):
        return None
    lines, pixels = (LINE, *known)[-2:]
    shape = _Shape(filters, depth, lines, pixels)
    return shape if _is_whole(found, filters, weights.index[1:], store) else None


def _depthwise(found: Contraction, last: bool) -> _Shape | None:
    """One filter for each channel; channels last, or first in image and weights."""
    weights, image, store = found.left, found.right, found.after[-1]
    if not isinstance(store, Store) or (len(image.index), len(store.index)) != (4, 4):
        return None
    at, own = (3, 2) if last else (1, 0)
    filters = _loop(image.index[at], found.nest.loops)
    if filters is None or len(weights.index) != (3 if last else 4):
        return None
    if not _sized(weights, image, store):
        return None
    if not last and (weights.index[1] != 0 or weights.buffer.shape[1] != 1):
        return None
    channel = Dim.of(filters.variable)
    extents = {image.buffer.shape[at], store.buffer.shape[at], weights.buffer.shape[own]}
    if {weights.index[own], store.index[at]} != {channel} or extents != {filters.stop}:
        return None
    places = ((1, 0), (2, 1)) if last else ((2, 2), (3, 3))
    lines, pixels = (_axis(found, store, *place) for place in places)
    taps = weights.index[:2] if last else weights.index[2:]
    if lines is None or pixels is None or not _is_whole(found, filters, taps, store):
        return None
    return _Shape(filters, _extent(filters), lines, pixels)


def _sized(*places: Load | Store) -> bool:
    return all(dim.is_constant for place in places for dim in place.buffer.shape[1:])


def _loop(dim: Dim, loops: Sequence[For]) -> For | None:
    """The loop whose variable an index is."""
    return next((loop for loop in loops if dim == Dim.of(loop.variable)), None)


def _extent(loop: For) -> int:
    """0 where it is not known or does not begin at 0; such a loop fits no image."""
    return loop.stop.constant if loop.start == 0 and loop.stop.is_constant else 0


def _sums_channels(found: Contraction, at: int, depth: int) -> bool:
    """Whether weights and image are both reduced over all channels."""
    ends = (found.right.index[at], found.left.index[at])
    if found.left.buffer.shape[at].constant != depth:
        return False
    loop = _loop(ends[0], found.reductions)
    if loop is None:
        return depth == 1 and ends[0] == ends[1] == 0
    return ends[0] == ends[1] and _extent(loop) == depth


def _axis(found: Contraction, store: Store, at: int, tap_at: int) -> Axis | None:
    """The axis `at` of the image's index and of the store's, `tap_at` of the weights'."""
    tap, place = found.left.index[tap_at], store.index[at]
    loop, reduction = _loop(place, found.nest.loops), _loop(tap, found.reductions)
    if (loop is None and place != 0) or (reduction is None and tap != 0):
        return None
    positions = 1 if loop is None else _extent(loop)
    taps = found.left.buffer.shape[tap_at].constant
    axis = axis_at(found.right, at, loop, reduction, taps)
    fits = positions > 0 and store.buffer.shape[at].constant == positions
    return axis if axis is not None and fits and axis.clips is not None else None


def _is_whole(found: Contraction, filters: For, taps: Sequence[Dim], store: Store) -> bool:
    """Whether sums are added up in the order of the weights, and the loops that are left, if
    any, are over whole images."""
    used = (_loop(dim, found.reductions) for dim in taps)
    if tuple(loop for loop in used if loop is not None) != found.reductions:
        return False
    loops, first = found.nest.loops, found.right.index[0]
    batch = _loop(first, loops)
    inner = {name for dim in store.index[1:] for name in dim.symbols} | {filters.variable}
    outer = [loop for loop in loops if loop.variable not in inner]
    if store.index[0] != first or (batch is None and first != 0):
        return False
    free = all(loop.variable in found.nest.free for loop in loops)
    return outer == ([] if batch is None else [batch]) and free


def _end(found: Contraction) -> _End | None:
    if len(found.after) != 1 or not isinstance(found.after[0], Store):
        return None
    store = found.after[0]
    value, low, high = store.value, -np.inf, np.inf
    for _ in range(2):
        match value:
            case Apply("max", (inner, Lit(limit)) | (Lit(limit), inner)) if low == -np.inf:
                value, low = inner, float(limit)
            case Apply("min", (inner, Lit(limit)) | (Lit(limit), inner)) if high == np.inf:
                value, high = inner, float(limit)
    if not low <= high or None in (_upper(low), _upper(high)):
        return None
    match value:
        case Binary("+", Load() as other, mine) | Binary("+", mine, Load() as other):
            fits = (other.index, other.buffer.shape) == (store.index, store.buffer.shape)
            return _End(other, low, high) if fits and mine == found.sum else None
        case _:
            return _End(None, low, high) if value == found.sum else None


def _upper(value: float) -> int | None:
    """The upper half of a float32, where the lower one is zero."""
    bits = int(np.float32(value).view(np.int32))
    return bits >> 16 if float(np.float32(value)) == value and bits & 0xFFFF == 0 else None


# The call


@dataclass
class _Call:
    found: Contraction
    w: Writer
    context: Context
    end: _End

    def _starts(self, shape: _Shape) -> bool:
        match self.found.start:
            case Lit(value):
                return value == 0 and not np.signbit(value)
            case Load(buffer, index):
                known = buffer.shape == (shape.filters.stop,)
                return known and index == (Dim.of(shape.filters.variable),)
            case _:
                return False

    def channels_last(self, shape: _Shape | None) -> Emit | None:
        found = self.found
        if shape is None or not self._starts(shape) or _extent(shape.filters) < LEAST:
            return None
        if shape.pixels.taps > 1 and shape.pixels.dilation > 1:
            return None
        if shape.dense:  # lines are one after another
            pixels = prod((axis.size for axis in shape.axes), start=ONE)
            line = replace(LINE, loop=For("", ZERO, pixels, ()), size=pixels)
            shape = replace(shape, lines=LINE, pixels=line)
        weights = found.left
        taps = {
            loop.variable: size
            for dim, size in zip(weights.index, weights.buffer.shape, strict=True)
            if (loop := _loop(dim, found.reductions)) is not None
        }
        whole = [For(loop.variable, ZERO, taps[loop.variable], ()) for loop in found.reductions]
        panels = panels_of(weights, found.nest.loops, shape.filters, whole, COLUMNS)
        sizes = self._sizes(shape)
        if panels is None or sizes is None:
            return None

        def emit() -> None:
            named = panels.named(self.w.names.fresh(panels.packed.buffer.name))
            self._emit("convolve_nhwc", sizes, self.w.constant(named.packed))

        return emit

    def depthwise(self, form: str, shape: _Shape | None) -> Emit | None:
        sizes = self._sizes(shape) if shape is not None and self._starts(shape) else None
        if sizes is None:
            return None
        return lambda: self._emit(form, sizes, self.found.left.buffer)

    def planes(self, shape: _Shape | None) -> Emit | None:
        """Short lines are slow."""
        short = shape is not None and shape.pixels.positions.constant < LEAST
        seldom = self.context.share <= SELDOM
        return self.depthwise("depthwise_nchw", shape) if seldom or not short else None

    def channels_first(self, shape: _Shape | None) -> Emit | None:
        found, target = self.found, self.context.target
        if shape is None or not self._starts(shape):
            return None
        weights = found.left.buffer
        if prod(axis.positions.constant for axis in shape.axes) < LEAST:
            return None
        if any(_cut(axis) for axis in shape.axes) and weights.name not in self.context.finite:
            return None
        taps = shape.channels * prod(axis.taps for axis in shape.axes)
        columns = COLUMNS
        if not shape.dense:
            fits = target.panel // (taps * DType.F32.bytes)
            columns = min(COLUMNS, fits // target.lanes * target.lanes)
        sizes = self._sizes(shape, dense=shape.dense, tile=columns)
        if columns == 0 or sizes is None:
            return None

        def emit() -> None:
            panel = self._out()
            if not shape.dense:
                panel = self.w.buffer("panel", DType.F32, taps, columns)[ZERO, ZERO]
            self._emit("convolve_nchw", sizes, weights, panel=panel)

        return emit

    def _sizes(self, shape: _Shape, *, dense: bool = False, tile: int = 0) -> dict[str, int] | None:
        """None where one is too large for its place in the table."""
        sizes = {
            "filters": _extent(shape.filters),
            "channels": shape.channels,
            "low": _upper(self.end.low) or 0,
            "high": _upper(self.end.high) or 0,
            "starts": int(isinstance(self.found.start, Load)),
            "adds": int(self.end.other is not None),
            "dense": int(dense),
            "tile": tile,
        }
        for name, axis in (("line", shape.lines), ("pixel", shape.pixels)):
            sizes |= {
                f"{name}s": axis.size.constant,
                f"out_{name}s": axis.positions.constant,
                f"{name}_taps": axis.taps,
                f"{name}_step": axis.stride,
                f"{name}_pad": axis.before,
                f"{name}_apart": axis.dilation,
            }
        return sizes if all(-GREATEST <= size <= GREATEST for size in sizes.values()) else None

    def _emit(self, form: str, sizes: dict[str, int], weights: Buffer, **more: Load) -> None:
        """One call per image. An absent operand is the result, which is not read."""
        found, end, out = self.found, self.end, self._out()
        batch = _loop(found.right.index[0], found.nest.loops)
        with self.w.nest([] if batch is None else [batch]):
            self.w.micro(
                f"raot_{form}_f32", out=out,
                image=_begin(found.right), weights=weights,
                start=_begin(found.start) if isinstance(found.start, Load) else out,
                other=_begin(end.other) if end.other is not None else out, **more, **sizes,
            )  # fmt: skip

    def _out(self) -> Load:
        store = self.found.after[0]
        assert isinstance(store, Store)
        return _begin(Load(store.buffer, store.index))


def _cut(axis: Axis) -> bool:
    """Some taps lie beyond the image."""
    last = (axis.positions.constant - 1) * axis.stride + (axis.taps - 1) * axis.dilation
    return axis.before > 0 or last - axis.before >= axis.size.constant


def _begin(load: Load) -> Load:
    """The first element of the image that an element belongs to."""
    images = load.index[:1] if len(load.index) > 1 else (ZERO,)
    return Load(load.buffer, (*images, *(ZERO,) * (len(load.index) - 1)))


EXAMPLES = (
    Example(
        why="channels last: one call with the sizes of the convolution",
        target="dsp",
        before=CHANNELS_LAST,
        after="""
            kernel @conv(%x: f32[1, 3, 5, 4], %w.packed: f32[32]) -> (%y: f32[1, 3, 5, 8]) {
              micro raot_convolve_nhwc_f32(...
            }""",
    ),
    Example(why="no image: the matrix has no batch axis", target="dsp", before=MATMUL),
)
