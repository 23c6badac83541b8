# SPDX-License-Identifier: Apache-2.0
"""Float convolutions as calls of one function of the runtime, for programs that shall be small.

A nest matches where its indices are those of a dense image, channels first or last, and the
taps that it leaves out are those beyond the image, which is tried for every position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.loops import Buffer, For, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction
from relax_aot.scheduling.packing import panels_of
from relax_aot.scheduling.strategies._ends import End, end_of, upper_half
from relax_aot.scheduling.strategies._texts import CHANNELS_LAST, MATMUL
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.windows import LINE, Axis, axis_at
from relax_aot.scheduling.writer import Writer

FORMS = {
    "convolve_nhwc": "fyxc,nyxc->nyxf",
    "convolve_nchw": "fcyx,ncyx->nfyx",
    "depthwise_nhwc": "yxc,nyxc->nyxc",
    "depthwise_nchw": "c1yx,ncyx->ncyx",
}
"""Axes of weights, image and result: n images, c channels, f filters, y lines, x pixels. Windows
move along lines and pixels, where the axes of weights are taps; 1 is an axis of one element."""
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
    def dense(self) -> bool:
        """Each result has one pixel of its own."""
        return all(
            (axis.stride, axis.taps, axis.before, axis.positions) == (1, 1, 0, axis.size)
            for axis in (self.lines, self.pixels)
        )


def calls(found: Contraction, w: Writer, context: Context) -> tuple[float, Emit] | None:
    """None also where the nest does too much of the work for a function that is slow."""
    end = end_of(found)
    names = (found.left.buffer.name, found.right.buffer.name)
    known = [name in context.constants for name in names] == [True, False]
    if end is None or not _fits(end) or not known:
        return None
    for form, letters in FORMS.items():
        shape = _shape(found, letters)
        emit = _Call(found, w, context, end, form, shape).matched() if shape is not None else None
        if emit is not None:
            return 0, emit
    return None


def _fits(end: End) -> bool:
    """Whether what is added has the places of the results."""
    other, store = end.other, end.store
    if end.row is not None:
        return False
    return other is None or (other.index, other.buffer.shape) == (store.index, store.buffer.shape)


# The convolution


def _shape(found: Contraction, form: str) -> _Shape | None:
    """The convolution whose axes have these letters, over whole images, with sums in the order of
    the weights. A dense one may lack lines."""
    store, loops = found.after[0], found.nest.loops
    assert isinstance(store, Store)
    if "f" in form and len(store.index) == 3:
        form = form.replace("y", "")
    texts = re.split(",|->", form)
    operands: tuple[Load | Store, ...] = (found.left, found.right, store)
    places = list(zip(operands, texts, strict=True))
    if any(len(place.index) != len(text) for place, text in places):
        return None
    if not all(dim.is_constant for place, _ in places for dim in place.buffer.shape[1:]):
        return None
    used: dict[str, tuple[For | None, int]] = {}
    for letter in sorted({*"1cf"} & {*form}):
        at = [(place, text.index(letter)) for place, text in places if letter in text]
        (index, extent), *others = {(p.index[n], p.buffer.shape[n]) for p, n in at}
        loop = _loop(index, loops if letter in texts[2] else found.reductions)
        if others or not _covers(loop, index, extent):
            return None
        used[letter] = (loop, extent.constant)
    axes = [
        _axis(found, store, texts[1].index(at), texts[0].index(at)) for at in "yx" if at in form
    ]
    known = [axis for axis in axes if axis is not None]
    filters, image = used["f" if "f" in form else "c"][0], found.right.index[0]
    steps = tuple(loop for dim in found.left.index if (loop := _loop(dim, found.reductions)))
    if filters is None or len(known) < len(axes) or steps != found.reductions:
        return None
    batch = [loop for loop in loops if image == Dim.of(loop.variable)]
    inner = {name for dim in store.index[1:] for name in dim.symbols}
    if store.index[0] != image or [lp for lp in loops if lp.variable not in inner] != batch:
        return None
    if not (batch or image == 0) or not {loop.variable for loop in loops} <= found.nest.free:
        return None
    lines, pixels = (LINE, *known)[-2:]
    return _Shape(filters, used["c"][1], lines, pixels)


def _loop(dim: Dim, loops: Sequence[For]) -> For | None:
    """The loop whose variable an index is."""
    return next((loop for loop in loops if dim == Dim.of(loop.variable)), None)


def _covers(loop: For | None, index: Dim, extent: Dim) -> bool:
    if loop is None:
        return index == 0 and extent == 1
    return loop.start == 0 and loop.stop == extent != 0


def _axis(found: Contraction, store: Store, at: int, tap_at: int) -> Axis | None:
    """The axis `at` of the image's index and of the store's, `tap_at` of the weights'."""
    tap, place = found.left.index[tap_at], store.index[at]
    loop, reduction = _loop(place, found.nest.loops), _loop(tap, found.reductions)
    if not _covers(loop, place, store.buffer.shape[at]) or (reduction is None and tap != 0):
        return None
    taps = found.left.buffer.shape[tap_at].constant
    axis = axis_at(found.right, at, loop, reduction, taps)
    return axis if axis is not None and axis.clips is not None else None


# The call


@dataclass(frozen=True, slots=True)
class _Call:
    found: Contraction
    w: Writer
    context: Context
    end: End
    form: str
    shape: _Shape

    def matched(self) -> Emit | None:
        match self.found.start:
            case Lit(value) if value == 0 and not np.signbit(value):
                pass
            case Load(buffer, (index,)) if index == Dim.of(self.shape.filters.variable):
                if buffer.shape != (self.shape.filters.stop,):
                    return None
            case _:
                return None
        match self.form:
            case "convolve_nhwc":
                return self._channels_last()
            case "convolve_nchw":
                return self._channels_first()
            case "depthwise_nchw":  # short lines are slow
                short = self.shape.pixels.positions.constant < LEAST
                if short and self.context.share > SELDOM:
                    return None
        return self._emit(lambda: self.found.left.buffer)

    def _channels_last(self) -> Emit | None:
        shape, w, weights = self.shape, self.w, self.found.left
        pixels = shape.pixels
        if shape.filters.stop.constant < LEAST or (pixels.taps > 1 and pixels.dilation > 1):
            return None
        if shape.dense:  # lines are one after another
            size = shape.lines.size * pixels.size
            line = replace(LINE, loop=For("", ZERO, size, ()), size=size)
            shape = replace(shape, lines=LINE, pixels=line)
        taps = zip(weights.index, weights.buffer.shape, strict=True)
        inner = [For(str(at), ZERO, n, ()) for at, n in taps if _loop(at, self.found.reductions)]
        panels = panels_of(weights, self.found.nest.loops, shape.filters, inner, COLUMNS)
        if panels is None:
            return None
        packed = panels.packed
        return replace(self, shape=shape)._emit(
            lambda: w.constant(panels.named(w.fresh(packed.buffer.name)).packed)
        )

    def _channels_first(self) -> Emit | None:
        shape, weights = self.shape, self.found.left.buffer
        axes = (shape.lines, shape.pixels)
        if prod(axis.positions.constant for axis in axes) < LEAST:
            return None
        if any(map(_cut, axes)) and weights.name not in self.context.finite:
            return None
        taps = shape.channels * prod(axis.taps for axis in axes)
        columns = COLUMNS if shape.dense else self.context.target.panel_columns(taps)
        return self._emit(lambda: weights, taps=taps, tile=columns) if columns else None

    def _emit(self, weights: Callable[[], Buffer], *, taps: int = 0, tile: int = 0) -> Emit | None:
        """One call per image; None where a size is too large for its place in the table. An absent
        operand is the result, which is not read."""
        found, end, w, shape, store = self.found, self.end, self.w, self.shape, self.found.after[0]
        assert isinstance(store, Store)
        out = _begin(Load(store.buffer, store.index))
        dense = tile > 0 and shape.dense
        starts, other = found.start if isinstance(found.start, Load) else None, end.other
        sizes = {
            "filters": shape.filters.stop.constant, "channels": shape.channels,
            "low": upper_half(end.low) or 0, "high": upper_half(end.high) or 0,
            "starts": int(starts is not None), "adds": int(other is not None),
            "dense": int(dense), "tile": tile,
        }  # fmt: skip
        for name, axis in (("line", shape.lines), ("pixel", shape.pixels)):
            sizes |= {
                f"{name}s": axis.size.constant, f"out_{name}s": axis.positions.constant,
                f"{name}_taps": axis.taps, f"{name}_step": axis.stride,
                f"{name}_pad": axis.before, f"{name}_apart": axis.dilation,
            }  # fmt: skip
        if max(map(abs, sizes.values())) > GREATEST:
            return None

        def emit() -> None:
            panel = {"panel": out} if tile else {}
            if tile and not dense:
                panel = {"panel": w.buffer("panel", DType.F32, taps, tile)[ZERO, ZERO]}
            operand = weights()
            batch = _loop(found.right.index[0], found.nest.loops)
            with w.nest([] if batch is None else [batch]):
                w.micro(
                    f"raot_{self.form}_f32", out=out, image=_begin(found.right), weights=operand,
                    start=_begin(starts or out), other=_begin(other or out), **panel, **sizes,
                )  # fmt: skip

        return emit


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
