# SPDX-License-Identifier: Apache-2.0
"""Convolution with channels first (NCHW), in any number of spatial axes.

conv_integer takes 8-bit operands less their zero points, and sums in 32 bits; padding stands
for the zero point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Array, Sample, Trait, is_float, must_equal, must_not_exceed, require
from relax_aot.ops._products import Form, Tap
from relax_aot.ops._samples import integers, normals
from relax_aot.ops._window import Strides, taps_of, usual, windows_of


@dataclass(frozen=True, kw_only=True)
class Conv(Strides):
    group: int


def _type(attrs: Conv, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
    require(x.rank >= 3 and w.rank == x.rank, f"conv needs x and w of one rank, got {x} and {w}")
    require(x.dtype is w.dtype, f"conv needs equal element types, got {x} and {w}")
    channels, per_group, group = x.shape[1], w.shape[1], attrs.group
    if channels.is_constant and per_group.is_constant:
        fits = channels == per_group * group
        require(fits, f"conv: {channels} channels are not {group} groups of {per_group}")
    split = not w.shape[0].is_constant or w.shape[0].constant % group == 0
    require(split, f"conv: {w.shape[0]} filters are not a multiple of {group} groups")
    spatial = attrs.window(w.shape[2:]).sizes(x.shape[2:])
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial))


def _conditions(
    attrs: Conv, x: TensorType, w: TensorType, b: TensorType | None = None
) -> list[Condition]:
    sizes = attrs.window(w.shape[2:]).sizes(x.shape[2:])
    conditions = [must_not_exceed(0, size, "conv's output size") for size in sizes]
    conditions.append(must_equal(x.shape[1], w.shape[1] * attrs.group, "conv's channels"))
    if b is not None:
        conditions.append(must_equal(b.shape[0], w.shape[0], "conv's bias"))
    return conditions


def _nest(
    attrs: Conv, k: KernelBuilder, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer, tap: Tap
) -> None:
    per_group, group = w.shape[1], attrs.group
    filters = w.shape[0] // group
    start = 0.0 if y.dtype.is_float else 0
    groups = [y.shape[0], group, filters] if group > 1 else [y.shape[0], w.shape[0]]
    with k.loops(*groups) as outer:
        if group > 1:
            image, part, filter_ = outer
            channel = k.let("channel", part * filters + filter_)
            first = k.let("first", part * per_group)
        else:
            image, channel = outer
            first = Dim.of(0)
        with k.loops(*y.shape[2:]) as at:
            total = k.local("total", y.dtype, start if b is None else b[(channel,)])
            with k.loops(per_group) as (c,):
                taps = taps_of(k, at, x.shape[2:], attrs.window(w.shape[2:]))
                with taps as (offset, place):
                    added = tap((image, first + c, *place), (channel, c, *offset))
                    k.assign(total, total + added)
            k.store(y[(image, channel, *at)], total)


def _reference(attrs: Conv, x: Array, w: Array, b: Array | None = None) -> Array:
    spatial, group = x.ndim - 2, attrs.group
    window = attrs.window(w.shape[2:])
    outputs = window.counts(x.shape[2:])
    wide = x.astype(np.float64) if is_float(x) else x
    view = windows_of(wide, window, 0, outputs)
    n, filters = x.shape[0], w.shape[0]
    grouped = view.reshape(n, group, x.shape[1] // group, *outputs, *w.shape[2:])
    weights = w.astype(wide.dtype).reshape(group, filters // group, *w.shape[1:])
    letters = "uvwxyz"
    out_axes, tap_axes = letters[:spatial], letters[3 : 3 + spatial]
    y = np.einsum(f"ngc{out_axes}{tap_axes},gfc{tap_axes}->ngf{out_axes}", grouped, weights)
    y = y.reshape(n, filters, *outputs)
    if b is not None:
        y = y + b.reshape(1, -1, *[1] * spatial)
    return np.asarray(y).astype(x.dtype)


def _case(x: Array, *rest: Array | None, **attrs: Any) -> Sample:
    return Sample((x, *rest), usual(x.ndim - 2, **{"group": 1, **attrs}), symbolic=False)


def _samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    return [
        _case(normal(1, 3, 7), normal(4, 3, 3), normal(4)),
        _case(normal(2, 3, 7), normal(4, 3, 3), None, pads=(1, 2), strides=(2,)),
        _case(normal(1, 2, 9), normal(3, 2, 3), normal(3), dilations=(2,), pads=(2, 2)),
        _case(normal(1, 2, 5, 6), normal(4, 2, 3, 2), normal(4), pads=(1, 0, 1, 1)),
        _case(normal(1, 4, 6, 5), normal(4, 1, 3, 3), normal(4), group=4, pads=(1, 1, 1, 1)),
        _case(normal(1, 4, 6, 5), normal(6, 2, 3, 3), None, group=2, strides=(2, 3)),
        _case(normal(1, 2, 3, 4, 5), normal(3, 2, 2, 2, 2), None),
        _case(normal(1, 1, 2), normal(1, 1, 5), None, pads=(4, 4)),
        _case(normal(0, 2, 5), normal(3, 2, 3), normal(3)),
    ]


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    random = integers(rng)
    u8, i8 = np.uint8, np.int8
    return [
        _case(random(u8, 1, 3, 7), random(i8, 4, 3, 3), random(u8), random(i8)),
        _case(random(u8, 2, 3, 7), random(u8, 4, 3, 3), random(u8, 1), random(u8, 4), pads=(1, 2)),
        _case(random(i8, 1, 4, 6, 5), random(i8, 4, 1, 3, 3), random(i8), None,
              rng.integers(-999, 999, 4).astype(np.int32), group=4, pads=(1, 1, 1, 1)),
        _case(random(i8, 1, 2, 5, 6), random(i8, 3, 2, 3, 2), strides=(2, 1)),
    ]  # fmt: skip


_FORM = Form("conv", Conv, _type, _conditions, _nest, _reference, per_filter=True)
OPS = (_FORM.plain(_samples, Trait.CONTRACTION), _FORM.integer(_integer_samples, Trait.QUANTIZED))
