# SPDX-License-Identifier: Apache-2.0
"""Convolution with channels last (NHWC), in any number of spatial axes.

x is [n, *space, c] and the result [n, *space, o]. A filter lies as the products are summed:
[o, *kernel, c / group], or for a depthwise one [*kernel, o], where o = c * m and place j of the
result sees channel j // m. The _integer forms take operands less their zero points and sum in
the bias's type, 32 or 64 bits; padding stands for the zero point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import TensorType
from relax_aot.ops import conv
from relax_aot.ops._op import Array, Sample, Trait, require
from relax_aot.ops._products import Form, Tap
from relax_aot.ops._samples import integers, normals
from relax_aot.ops._window import NHWC, Strides, taps_of, usual

# conv_nhwc


@dataclass(frozen=True, kw_only=True)
class Conv(Strides):
    group: int = 1


def _nest(
    attrs: Conv, k: KernelBuilder, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer, tap: Tap
) -> None:
    per_group, group = w.shape[-1], attrs.group
    filters = w.shape[0] // group
    groups = [group, filters] if group > 1 else [w.shape[0]]
    with k.loops(*y.shape[:-1], *groups) as outer:
        image, at = outer[0], outer[1 : len(y.shape) - 1]
        channel = outer[-1]
        first = Dim.of(0)
        if group > 1:
            first = k.let("first", outer[-2] * per_group)
            channel = k.let("channel", outer[-2] * filters + outer[-1])
        total = k.local("total", y.dtype, 0 if b is None else b[(channel,)])
        taps = taps_of(k, at, x.shape[1:-1], attrs.window(w.shape[1:-1]))
        with taps as (offset, place), k.loops(per_group) as (c,):
            added = tap((image, *place, first + c), (channel, *offset, c))
            k.assign(total, total + added)
        k.store(y[(image, *at, channel)], total)


# depthwise_nhwc


def _depth_type(
    attrs: Strides, x: TensorType, w: TensorType, b: TensorType | None = None
) -> TensorType:
    fits = x.rank >= 3 and w.rank == x.rank - 1
    require(fits, f"depthwise_nhwc: w has one axis less than x, got {x} and {w}")
    require(x.dtype is w.dtype, f"depthwise_nhwc needs equal element types, got {x} and {w}")
    known = x.shape[-1].is_constant and w.shape[-1].is_constant and x.shape[-1].constant > 0
    require(x.shape[-1].is_constant, f"depthwise_nhwc: the channels of {x} must be known")
    whole = known and w.shape[-1].constant % x.shape[-1].constant == 0
    require(whole, f"depthwise_nhwc: {w.shape[-1]} places for {x.shape[-1]} channels")
    space = attrs.window(w.shape[:-1]).sizes(x.shape[1:-1])
    return TensorType(x.dtype, (x.shape[0], *space, w.shape[-1]))


def _depth_nest(
    attrs: Strides, k: KernelBuilder, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer, tap: Tap
) -> None:
    many = w.shape[-1] // x.shape[-1]
    with k.loops(*y.shape[:-1], x.shape[-1], many) as (image, *at, c, copy):
        channel = k.let("channel", c * many + copy)
        total = k.local("total", y.dtype, 0 if b is None else b[(channel,)])
        taps = taps_of(k, tuple(at), x.shape[1:-1], attrs.window(w.shape[:-1]))
        with taps as (offset, place):
            k.assign(total, total + tap((image, *place, c), (*offset, channel)))
        k.store(y[(image, *at, channel)], total)


def _depth_reference(attrs: Strides, x: Array, w: Array) -> Array:
    filters = np.moveaxis(w, -1, 0)[:, None]
    y = conv.reference(attrs, x.shape[-1], np.moveaxis(x, -1, 1), filters)
    return np.moveaxis(y, 1, -1)


# Samples


def _case(x: Array, *rest: Array | None, **attrs: Any) -> Sample:
    return Sample((x, *rest), usual(x.ndim - 2, **attrs), symbolic=False)


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    return [
        _case(normal(1, 7, 3), normal(4, 3, 3), normal(4)),
        _case(normal(2, 7, 3), normal(4, 3, 3), None, pads=(1, 2), strides=(2,)),
        _case(normal(1, 5, 6, 2), normal(4, 3, 2, 2), normal(4), pads=(1, 0, 1, 1)),
        _case(normal(1, 9, 6, 4), normal(6, 3, 3, 2), normal(6), group=2, dilations=(2, 1)),
        _case(normal(1, 3, 4, 5, 2), normal(3, 2, 2, 2, 2), None),
        _case(normal(0, 5, 2), normal(3, 3, 2), normal(3)),
    ]


def _depth_samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    return [
        _case(normal(1, 7, 3), normal(3, 3), normal(3)),
        _case(normal(2, 7, 5, 3), normal(3, 2, 6), normal(6), pads=(1, 0, 1, 1), strides=(2, 1)),
        _case(normal(1, 9, 6, 1), normal(3, 3, 4), None, dilations=(2, 1)),
    ]


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    random = integers(rng)
    i8, u8, i16 = np.int8, np.uint8, np.int16
    bias = rng.integers(-9999, 9999, 4)
    return [
        _case(random(i8, 1, 7, 3), random(i8, 4, 3, 3), random(i8), None, bias.astype(np.int32)),
        _case(random(u8, 2, 7, 5, 3), random(u8, 4, 3, 2, 3), random(u8), random(u8),
              pads=(1, 0, 1, 1), strides=(2, 1)),
        _case(random(i16, 1, 5, 6, 4), random(i8, 4, 3, 3, 2), None, None, bias, group=2),
    ]  # fmt: skip


def _depth_integer_samples(rng: np.random.Generator) -> list[Sample]:
    random = integers(rng)
    x, w = random(np.int8, 1, 7, 5, 2), random(np.int8, 3, 3, 4)
    bias = rng.integers(-9999, 9999, 4)
    return [
        _case(x, w, random(np.int8), None, bias.astype(np.int32), pads=(1, 1, 1, 1)),
        _case(random(np.int16, 1, 7, 5, 2), w, None, None, bias, strides=(2, 2)),
    ]


_DEPTHWISE = Form("depthwise_nhwc", Strides, NHWC, _depth_type, _depth_nest, _depth_reference,
                  former="depthwise_last")  # fmt: skip
_DENSE = conv.dense("conv_nhwc", Conv, NHWC, _nest, former="conv_last")
OPS = (
    _DENSE.plain(_samples, Trait.WIDENS),
    _DENSE.integer(_integer_samples),
    _DEPTHWISE.plain(_depth_samples, Trait.WIDENS),
    _DEPTHWISE.integer(_depth_integer_samples),
)
