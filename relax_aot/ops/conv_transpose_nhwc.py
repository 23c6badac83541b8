# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution with channels last: each input element adds a scaled copy of the filter
to the result, `strides` apart.

x is [n, *space, c], a filter [o, *kernel, c], the result [n, *sizes, o]; `pads` are left out at the
beginnings. The _integer form takes quantized values less the zero point of x, and sums as conv_nhwc
does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import TensorType
from relax_aot.ops import conv_transpose
from relax_aot.ops._op import Array, Sample, require
from relax_aot.ops._products import Form, Tap
from relax_aot.ops._samples import normals
from relax_aot.ops._window import NHWC, Sizes, Window, reaching


@dataclass(frozen=True, kw_only=True)
class ConvTranspose:
    sizes: Sizes
    strides: Sequence[int]
    pads: Sizes


def _type(
    attrs: ConvTranspose, x: TensorType, w: TensorType, b: TensorType | None = None
) -> TensorType:
    fits = x.rank >= 3 and w.rank == x.rank and x.dtype is w.dtype
    require(fits, f"conv_transpose_nhwc: x and w of one rank and type, got {x} and {w}")
    sizes = attrs.sizes
    require(len(sizes) == x.rank - 2 == len(attrs.pads), f"conv_transpose_nhwc: sizes for {x}")
    return TensorType(x.dtype, (x.shape[0], *map(Dim.of, sizes), w.shape[0]))


def _channels(attrs: ConvTranspose, x: TensorType, w: TensorType) -> tuple[Dim, Dim]:
    return x.shape[-1], w.shape[-1]


def _nest(
    attrs: ConvTranspose,
    k: KernelBuilder,
    x: Buffer,
    w: Buffer,
    b: Buffer | None,
    y: Buffer,
    tap: Tap,
) -> None:
    ones = (1,) * len(attrs.strides)
    window = Window(
        kernel=w.shape[1:-1], strides=attrs.strides, pads=attrs.pads, dilations=ones
    )  # fmt: skip
    with k.loops(*y.shape) as (image, *at, channel):
        total = k.local("total", y.dtype, 0 if b is None else b[(channel,)])
        taps = reaching(k, tuple(at), x.shape[1:-1], window)
        with taps as (offset, place), k.loops(x.shape[-1]) as (c,):
            k.assign(total, total + tap((image, *place, c), (channel, *offset, c)))
        k.store(y[(image, *at, channel)], total)


def _reference(attrs: ConvTranspose, x: Array, w: Array) -> Array:
    """That of channels first, where the sizes are those that output padding leads to."""
    rank = len(attrs.strides)
    axes = zip(x.shape[1:-1], attrs.strides, w.shape[1:-1], attrs.pads, attrs.sizes, strict=True)
    same = conv_transpose.ConvTranspose(
        strides=attrs.strides, pads=(*attrs.pads, *[0] * rank), dilations=(1,) * rank, group=1,
        output_padding=[m + p - (n - 1) * s - k for n, s, k, p, m in axes],
    )  # fmt: skip
    y = conv_transpose.reference(same, np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 0))
    return np.moveaxis(y, 1, -1)


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    x, w, b = normal(2, 3, 4, 2), normal(3, 3, 2, 2), normal(3)
    attrs = {"sizes": (6, 8), "strides": (2, 2), "pads": (0, 0)}
    return [
        Sample((x, w, b), attrs, symbolic=False),
        Sample((x, w, None), {"sizes": (3, 4), "strides": (1, 1), "pads": (1, 0)}, symbolic=False),
        Sample((normal(1, 4, 2), normal(3, 2, 2)), {"sizes": (12,), "strides": (3,), "pads": (0,)},
               symbolic=False),
    ]  # fmt: skip


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.integers(-128, 128, (2, 3, 4, 2)).astype(np.int8)
    w = rng.integers(-128, 128, (3, 3, 2, 2)).astype(np.int8)
    b = rng.integers(-999, 999, 3)
    attrs = {"sizes": (6, 8), "strides": (2, 2), "pads": (1, 0)}
    return [
        Sample((x, w, np.array(5, np.int8), None, b.astype(np.int32)), attrs, symbolic=False),
        Sample((x.astype(np.int16), w, None, None, b), attrs, symbolic=False),
    ]


_FORM = Form("conv_transpose_nhwc", ConvTranspose, NHWC, _type, _nest, _reference, _channels,
             former="conv_transpose_last")  # fmt: skip
OPS = (_FORM.plain(_samples), _FORM.integer(_integer_samples))
