# SPDX-License-Identifier: Apache-2.0
"""Sliding windows, shared by convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.types import Shape
from relax_aot.ops._op import Array

Sizes = Sequence[int | Dim]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window over the spatial axes; `pads` holds begins, then ends."""

    kernel: Sizes
    strides: Sequence[int]
    pads: Sizes
    dilations: Sequence[int]

    def sizes(self, sizes: Shape, *, ceil_mode: bool = False) -> Shape:
        """ONNX's output size per spatial axis."""
        rank = len(sizes)
        result = []
        for axis, size in enumerate(sizes):
            begin, end = Dim.of(self.pads[axis]), Dim.of(self.pads[axis + rank])
            reach = (Dim.of(self.kernel[axis]) - 1) * self.dilations[axis]
            room = size + begin + end - reach - 1
            stride = self.strides[axis]
            if ceil_mode:
                # The last window must begin inside the input or the padding before it.
                fitting = ceildiv(room, stride) + 1
                result.append(dim_min(fitting, ceildiv(size + begin, stride)))
            else:
                result.append(room // stride + 1)
        return tuple(result)

    def counts(self, sizes: Sequence[int], *, ceil_mode: bool = False) -> list[int]:
        """The same of sizes that are numbers."""
        found = self.sizes(tuple(map(Dim.of, sizes)), ceil_mode=ceil_mode)
        return [size.constant for size in found]


@dataclass(frozen=True, kw_only=True)
class Strides:
    """Attributes of a convolution, whose kernel is that of its filters."""

    strides: Sequence[int]
    pads: Sizes
    dilations: Sequence[int]

    def window(self, kernel: Sizes) -> Window:
        return Window(kernel=kernel, strides=self.strides, pads=self.pads, dilations=self.dilations)


@dataclass(frozen=True, slots=True)
class Axes:
    """Where channels and spatial axes lie."""

    channels: int
    space: slice

    def of(self, image: Dim, channel: Dim, space: Sequence[Dim]) -> At:
        """A shape or an index from its parts."""
        return (image, channel, *space) if self.channels == 1 else (image, *space, channel)


NCHW, NHWC = Axes(1, slice(2, None)), Axes(-1, slice(1, -1))


def usual(rank: int, **attrs: Any) -> dict[str, Any]:
    """Attributes of samples over `rank` axes."""
    return {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank, **attrs}


@contextmanager
def taps_of(
    k: KernelBuilder, at: At, sizes: Shape, window: Window, *, always: bool = False
) -> Iterator[tuple[At, At]]:
    """Loops over the taps that lie inside the input: yields (tap, place in the input).

    The range of taps is worked out before each loop, so no element is tested. `always`
    does so without padding too, for windows that may end beyond the input.
    """
    taps: list[Dim] = []
    places: list[Dim] = []
    with ExitStack() as stack:
        for axis, size in enumerate(sizes):
            begin, end = Dim.of(window.pads[axis]), Dim.of(window.pads[axis + len(sizes)])
            start = at[axis] * window.strides[axis] - begin
            dilation = window.dilations[axis]
            padded = always or (begin, end) != (Dim.of(0), Dim.of(0))
            width = Dim.of(window.kernel[axis])
            low, high = Dim.of(0), width
            if padded:
                low = k.let(f"first{axis}", dim_max(ceildiv(-start, dilation), 0))
                high = k.let(f"last{axis}", dim_min(ceildiv(size - start, dilation), width))
            tap = stack.enter_context(k.span(low, high))
            taps.append(tap)
            places.append(start + tap * dilation)
        yield tuple(taps), tuple(places)


@contextmanager
def reaching(k: KernelBuilder, at: At, sizes: Shape, window: Window) -> Iterator[tuple[At, At]]:
    """Loops over the taps that reach an element of the padded side: yields (tap, window).

    The inverse of `taps_of`: `sizes` counts the windows per axis, which are taken in their order.
    Element o is reached by the taps that follow the first one in steps of stride / gcd(stride,
    dilation), each from an earlier window; for all elements of one residue by the stride these are
    the same taps, of a convolution with stride 1.
    """
    taps: list[Dim] = []
    places: list[Dim] = []
    with ExitStack() as stack:
        for axis, size in enumerate(sizes):
            stride, dilation = window.strides[axis], window.dilations[axis]
            common = gcd(stride, dilation)
            step, apart = stride // common, dilation // common
            start = at[axis] + Dim.of(window.pads[axis])
            tap = k.let(f"phase{axis}", start // common * pow(apart, -1, step) % step)
            count = ceildiv(Dim.of(window.kernel[axis]) - tap, step)
            if common > 1:  # elements between those of the dilated taps are reached by none
                count *= 1 - ceildiv(start % common, common)
            count = k.let(f"count{axis}", count)
            newest = (start - tap * dilation if dilation > 1 else start) // stride
            oldest = k.let(f"oldest{axis}", newest - (count - 1) * apart)
            first = k.let(f"first{axis}", dim_max(ceildiv(-oldest, apart), 0))
            last = k.let(f"last{axis}", dim_min(ceildiv(size - oldest, apart), count))
            turn = stack.enter_context(k.span(first, last))
            taps.append(tap + (count - 1 - turn) * step)
            places.append(oldest + turn * apart)
        yield tuple(taps), tuple(places)


def windows_of(x: Array, window: Window, fill: Any, outputs: Sequence[int]) -> Array:
    """NumPy: every window of the trailing spatial axes, kernel axes last."""
    kernel, strides, dilations = [int(n) for n in window.kernel], window.strides, window.dilations
    spatial = len(kernel)
    lead = x.ndim - spatial
    widths = [(0, 0)] * lead
    for axis in range(spatial):
        reach = (outputs[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        begin = int(window.pads[axis])
        widths.append((begin, max(reach - begin - x.shape[lead + axis], 0)))
    padded = np.pad(x, widths, constant_values=fill)
    if any(o <= 0 for o in outputs):
        return np.zeros((*x.shape[:lead], *[max(o, 0) for o in outputs], *kernel), x.dtype)
    reach_shape = [(n - 1) * d + 1 for n, d in zip(kernel, dilations, strict=True)]
    axes = tuple(range(lead, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach_shape, axis=axes)
    index = [slice(None)] * lead
    index += [slice(0, (o - 1) * s + 1, s) for o, s in zip(outputs, strides, strict=True)]
    index += [slice(None, None, d) for d in dilations]
    return np.asarray(view[tuple(index)])
