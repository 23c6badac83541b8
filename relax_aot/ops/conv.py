# SPDX-License-Identifier: Apache-2.0
"""Convolution with channels first (NCHW), in any number of spatial axes.

conv_integer takes 8-bit operands less their zero points, and sums in 32 bits; padding stands
for the zero point.
"""

from __future__ import annotations

from collections.abc import Callable
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
from relax_aot.ops._window import NCHW, Axes, Strides, taps_of, usual, windows_of


@dataclass(frozen=True, kw_only=True)
class Conv(Strides):
    group: int


def dense(name: str, record: type[Any], axes: Axes, nest: Callable[..., None], **more: Any) -> Form:
    """Filters [o, ...] whose other axes lie as those of x, with the channels of one group."""

    def deduce(attrs: Any, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        both = f"{x} and {w}"
        require(x.rank >= 3 and w.rank == x.rank, f"{name} needs x and w of one rank, got {both}")
        require(x.dtype is w.dtype, f"{name} needs equal element types, got {both}")
        channels, per_group = x.shape[axes.channels], w.shape[axes.channels]
        filters, group = w.shape[0], attrs.group
        if channels.is_constant and per_group.is_constant:
            fits = channels == per_group * group
            require(fits, f"{name}: {channels} channels are not {group} groups of {per_group}")
        split = not filters.is_constant or filters.constant % group == 0
        require(split, f"{name}: {filters} filters are not a multiple of {group} groups")
        sizes = attrs.window(w.shape[axes.space]).sizes(x.shape[axes.space])
        return TensorType(x.dtype, axes.of(x.shape[0], filters, sizes))

    def channels(attrs: Any, x: TensorType, w: TensorType) -> tuple[Dim, Dim]:
        return x.shape[axes.channels], w.shape[axes.channels] * attrs.group

    def reference_of(attrs: Any, x: Array, w: Array) -> Array:
        x, w = (np.moveaxis(array, axes.channels, 1) for array in (x, w))
        return np.moveaxis(reference(attrs, attrs.group, x, w), 1, axes.channels)

    return Form(name, record, axes, deduce, nest, reference_of, channels, **more)


def _nest(
    attrs: Conv, k: KernelBuilder, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer, tap: Tap
) -> None:
    per_group, group = w.shape[1], attrs.group
    filters = w.shape[0] // group
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
            total = k.local("total", y.dtype, 0 if b is None else b[(channel,)])
            with k.loops(per_group) as (c,):
                taps = taps_of(k, at, x.shape[2:], attrs.window(w.shape[2:]))
                with taps as (offset, place):
                    added = tap((image, first + c, *place), (channel, c, *offset))
                    k.assign(total, total + added)
            k.store(y[(image, channel, *at)], total)


def reference(attrs: Strides, group: int, x: Array, w: Array) -> Array:
    """With channels first."""
    window = attrs.window(w.shape[2:])
    outputs = window.counts(x.shape[2:])
    view = windows_of(x, window, 0, outputs)
    grouped = view.reshape(x.shape[0], group, x.shape[1] // group, *outputs, *w.shape[2:])
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    out, tap = "uvw"[: x.ndim - 2], "xyz"[: x.ndim - 2]
    y = np.einsum(f"ngc{out}{tap},gfc{tap}->ngf{out}", grouped, weights)
    return np.asarray(y.reshape(x.shape[0], w.shape[0], *outputs))


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


_FORM = dense("conv", Conv, NCHW, _nest, per_filter=True)
OPS = (
    _FORM.plain(_samples, Trait.CONTRACTION | Trait.WIDENS),
    _FORM.integer(_integer_samples, Trait.QUANTIZED),
)
