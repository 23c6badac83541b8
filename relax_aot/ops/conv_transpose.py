# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution with channels first: each output element gathers the inputs that reach it.

Output o takes input i through tap t where o + pad == i * stride + t * dilation. The _integer form
takes quantized values less their zero points, and sums as conv does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Array, Sample, Trait, require
from relax_aot.ops._products import Form, Tap
from relax_aot.ops._samples import integers, normals
from relax_aot.ops._window import NCHW, Sizes, Strides, reaching, usual


@dataclass(frozen=True, kw_only=True)
class ConvTranspose(Strides):
    output_padding: Sizes
    group: int


def _type(
    attrs: ConvTranspose, x: TensorType, w: TensorType, b: TensorType | None = None
) -> TensorType:
    both = f"{x} and {w}"
    require(x.rank >= 3 and w.rank == x.rank, f"conv_transpose needs one rank, got {both}")
    require(x.dtype is w.dtype, f"conv_transpose needs equal element types, got {both}")
    spatial = _sizes(attrs, x.shape[2:], w.shape[2:])
    return TensorType(x.dtype, (x.shape[0], w.shape[1] * attrs.group, *spatial))


def _sizes(attrs: ConvTranspose, sizes: Sizes, kernel: Sizes) -> list[Dim]:
    found = []
    for axis, size in enumerate(sizes):
        reach = (Dim.of(kernel[axis]) - 1) * attrs.dilations[axis] + 1
        begin, end = Dim.of(attrs.pads[axis]), Dim.of(attrs.pads[axis + len(sizes)])
        padding = Dim.of(attrs.output_padding[axis])
        full = (Dim.of(size) - 1) * attrs.strides[axis] + padding + reach
        found.append(full - begin - end)
    return found


def scale_axis(inputs: int, group: int) -> int:
    """The axis of the filters along which scales may lie: every output channel has one. Groups
    share the scales of their filters, but for groups of one input, which have one each."""
    return 0 if inputs == group > 1 else 1


def by_channel(parts: Array, axis: int, group: int, filters: int) -> Array:
    """For each output channel, its number among those along an axis of the filters."""
    return np.tile(parts, group) if axis == 1 else np.repeat(parts, filters)


def by_output(w: Array, group: int) -> Array:
    """Filters with an output channel, then the inputs of its group, as conv has them."""
    parts = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    return parts.reshape(-1, *parts.shape[2:])


def _channels(attrs: ConvTranspose, x: TensorType, w: TensorType) -> tuple[Dim, Dim]:
    return x.shape[1], w.shape[0]


def _nest(
    attrs: ConvTranspose,
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    b: Buffer | None,
    y: Buffer,
    tap: Tap,
) -> None:
    filters, per_group = w.shape[1], w.shape[0] // attrs.group
    with k.loops(y.shape[0], attrs.group, filters, *y.shape[2:]) as (image, part, filter_, *at):
        channel = part * filters + filter_
        total = k.local("total", y.dtype, 0 if b is None else b[(channel,)])
        with k.loops(per_group) as (c,):
            source = part * per_group + c
            taps = reaching(k, tuple(at), x.shape[2:], attrs.window(w.shape[2:]))
            with taps as (offset, place):
                k.assign(total, total + tap((image, source, *place), (source, filter_, *offset)))
        k.store(y[(image, channel, *at)], total)


def reference(attrs: ConvTranspose, x: Array, w: Array) -> Array:
    """Every input scatters its taps into the unpadded output, which is then cut."""
    rank, group = x.ndim - 2, attrs.group
    strides, dilations = attrs.strides, attrs.dilations
    begins = [int(pad) for pad in attrs.pads[:rank]]
    filters, per_group = w.shape[1], x.shape[1] // group
    sizes = [size.constant for size in _sizes(attrs, x.shape[2:], w.shape[2:])]
    room = [
        (x.shape[a + 2] - 1) * strides[a] + (w.shape[a + 2] - 1) * dilations[a] + 1
        for a in range(rank)
    ]
    full = [max(r, s + pad, 0) for r, s, pad in zip(room, sizes, begins, strict=True)]
    y = np.zeros((x.shape[0], group * filters, *full), x.dtype)
    for part in range(group):
        source = x[:, part * per_group : (part + 1) * per_group]
        rows = w[part * per_group : (part + 1) * per_group]
        for tap in np.ndindex(*w.shape[2:]):
            piece = np.einsum("nc...,cf->nf...", source, rows[(slice(None), slice(None), *tap)])
            where = tuple(
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, s, size in zip(tap, dilations, strides, x.shape[2:], strict=True)
            )
            if piece.size:
                y[(slice(None), slice(part * filters, (part + 1) * filters), *where)] += piece
    cut = tuple(slice(max(pad, 0), pad + size) for pad, size in zip(begins, sizes, strict=True))
    widths = [(0, 0), (0, 0)] + [(max(-pad, 0), 0) for pad in begins]
    return np.pad(y[(slice(None), slice(None), *cut)], widths)


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)

    def case(x: Array, w: Array, b: Array | None = None, **attrs: Any) -> Sample:
        rank = x.ndim - 2
        given = usual(rank, **{"output_padding": (0,) * rank, "group": 1, **attrs})
        return Sample((x, w, b), given, symbolic=x.shape[1] == 7)

    return [
        case(normal(1, 3, 5), normal(3, 2, 3), normal(2)),
        case(normal(2, 2, 4), normal(2, 3, 4), strides=(2,), pads=(1, 1), output_padding=(1,)),
        case(normal(1, 2, 5), normal(2, 1, 3), dilations=(2,), pads=(1, 2)),
        case(normal(1, 2, 5), normal(2, 1, 3), strides=(3,), dilations=(2,), output_padding=(2,)),
        case(normal(1, 4, 3, 4), normal(4, 2, 3, 2), normal(4), group=2, strides=(2, 1)),
        case(normal(1, 2, 2, 3, 2), normal(2, 2, 2, 2, 3), strides=(1, 2, 3)),
        case(normal(1, 2, 3), normal(2, 2, 2), strides=(4,)),
        case(normal(1, 7, 5, 6), normal(7, 3, 4, 4), normal(3), strides=(2, 3), pads=(1, 0, 2, 1)),
        case(normal(0, 2, 3), normal(2, 2, 2)),
    ]


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    random = integers(rng)
    u8, i8 = np.uint8, np.int8
    bias = rng.integers(-999, 999, 4).astype(np.int32)

    def case(x: Array, w: Array, *rest: Array | None, **attrs: Any) -> Sample:
        rank = x.ndim - 2
        given = usual(rank, **{"output_padding": (0,) * rank, "group": 1, **attrs})
        return Sample((x, w, *rest), given, symbolic=False)

    return [
        case(random(u8, 1, 3, 5), random(i8, 3, 2, 3), random(u8), None),
        case(random(i8, 2, 4, 3, 4), random(i8, 4, 2, 3, 2), random(i8), None, bias, group=2,
             strides=(2, 1), pads=(1, 0, 0, 1), output_padding=(1, 0)),
        case(random(i8, 1, 2, 5), random(u8, 2, 1, 3), None, random(u8), strides=(3,),
             dilations=(2,)),
    ]  # fmt: skip


_FORM = Form("conv_transpose", ConvTranspose, NCHW, _type, _nest, reference, _channels)
OPS = (_FORM.plain(_samples, Trait.CONTRACTION), _FORM.integer(_integer_samples, Trait.QUANTIZED))
