# SPDX-License-Identifier: Apache-2.0
"""Normalization: layer, RMS, batch, instance and group."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, apply, binary
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import (
    Array,
    Broadcast,
    Op,
    Sample,
    must_equal,
    normal_axis,
    require,
    require_one_type,
    spread,
)
from relax_aot.ops._samples import normals


def _same(x: TensorType, *rest: TensorType | None, **_attrs: Any) -> TensorType:
    require(x.dtype.is_float, f"a normalization needs a float tensor, got {x}")
    require_one_type("a normalization", x, *rest)
    return x


# layer_norm and rms_norm: over the last axes


def _layer_conditions(
    x: TensorType, *rest: TensorType | None, axis: int, **_attrs: Any
) -> list[Condition]:
    inner = x.shape[normal_axis(axis, x.rank) :]
    found: list[Condition] = []
    for t in rest:
        if t is None:
            continue
        require(t.rank <= len(inner), f"{t} has more axes than what is normalized of {x}")
        pairs = zip(t.shape, inner[len(inner) - t.rank :], strict=True)
        found += [
            must_equal(size, whole) for size, whole in pairs if size not in (Dim.of(1), whole)
        ]
    return found


def _layer_broadcasts(
    x: TensorType, *rest: TensorType | None, axis: int, **_attrs: Any
) -> tuple[Broadcast, ...]:
    inner = x.shape[normal_axis(axis, x.rank) :]
    return (Broadcast(tuple(range(1, 1 + len(rest))), target=inner),)


def _layer_lower(
    k: KernelBuilder,
    x: Buffer,
    scale: Buffer | None,
    bias: Buffer | None,
    y: Buffer,
    *,
    axis: int,
    epsilon: float,
) -> None:
    split = normal_axis(axis, x.rank)
    outer, inner = x.shape[:split], x.shape[split:]
    count = Cast(Index(TensorType(x.dtype, inner).elements), x.dtype)
    with k.loops(*outer) as row:
        total = k.local("total", x.dtype, 0.0)
        with k.loops(*inner) as j:
            k.assign(total, total + x[row + j])
        mean = k.local("mean", x.dtype, total / count)
        squares = k.local("squares", x.dtype, 0.0)
        with k.loops(*inner) as j:
            apart = k.local("apart", x.dtype, x[row + j] - mean)
            k.assign(squares, squares + apart * apart)
        factor = k.local("factor", x.dtype, 1.0 / apply("sqrt", squares / count + epsilon))
        with k.loops(*inner) as j:
            value: Expr = (x[row + j] - mean) * factor
            k.store(y[row + j], _scaled(value, j, scale, bias))


def _scaled(value: Expr, j: tuple[Dim, ...], scale: Buffer | None, bias: Buffer | None) -> Expr:
    if scale is not None:
        value = binary("*", value, scale[spread(j, scale.shape)])
    if bias is not None:
        value = binary("+", value, bias[spread(j, bias.shape)])
    return value


def _layer_reference(
    x: Array, scale: Array | None, bias: Array | None, *, axis: int, epsilon: float
) -> Array:
    over = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    apart = wide - wide.mean(axis=over, keepdims=True)
    y = apart / np.sqrt((apart**2).mean(axis=over, keepdims=True) + epsilon)
    y = y if scale is None else y * scale
    return np.asarray(y if bias is None else y + bias).astype(x.dtype)


LAYER_NORM = Op(
    "layer_norm",
    _same,
    _layer_lower,
    _layer_reference,
    lambda rng: [
        Sample((normals(rng)(3, 7), normals(rng)(7), normals(rng)(7)),
               {"axis": -1, "epsilon": 1e-5}),
        Sample((normals(rng)(2, 3, 5), normals(rng)(3, 5), None), {"axis": 1, "epsilon": 1e-3}),
    ],
    conditions=_layer_conditions,
    broadcasts=_layer_broadcasts,
)  # fmt: skip


def _rms_lower(
    k: KernelBuilder, x: Buffer, scale: Buffer, y: Buffer, *, axis: int, epsilon: float
) -> None:
    split = normal_axis(axis, x.rank)
    inner = x.shape[split:]
    count = Cast(Index(TensorType(x.dtype, inner).elements), x.dtype)
    with k.loops(*x.shape[:split]) as row:
        squares = k.local("squares", x.dtype, 0.0)
        with k.loops(*inner) as j:
            k.assign(squares, squares + x[row + j] * x[row + j])
        factor = k.local("factor", x.dtype, 1.0 / apply("sqrt", squares / count + epsilon))
        with k.loops(*inner) as j:
            k.store(y[row + j], _scaled(x[row + j] * factor, j, scale, None))


def _rms_reference(x: Array, scale: Array, *, axis: int, epsilon: float) -> Array:
    over = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    mean = (wide**2).mean(axis=over, keepdims=True)
    return np.asarray(wide / np.sqrt(mean + epsilon) * scale).astype(x.dtype)


RMS_NORM = Op(
    "rms_norm",
    _same,
    _rms_lower,
    _rms_reference,
    lambda rng: [Sample((normals(rng)(3, 7), normals(rng)(7)), {"axis": -1, "epsilon": 1e-5})],
    conditions=_layer_conditions,
    broadcasts=_layer_broadcasts,
)


# batch_norm: per channel, with given statistics


def _channel_conditions(x: TensorType, *rest: TensorType | None, **_attrs: Any) -> list[Condition]:
    given = [t for t in rest if t is not None]
    require(x.rank >= 2, f"a normalization over channels does not take {x}")
    for t in given:
        require(t.rank == 1, f"a normalization needs a number for each channel, got {t}")
    return [must_equal(t.shape[0], x.shape[1], "channels") for t in given]


def _batch_lower(
    k: KernelBuilder,
    x: Buffer,
    scale: Buffer,
    bias: Buffer,
    mean: Buffer,
    variance: Buffer,
    y: Buffer,
    *,
    epsilon: float,
) -> None:
    with k.loops(*x.shape[:2]) as (n, c):
        channel = (c,)
        factor = k.local(
            "factor", x.dtype, scale[channel] / apply("sqrt", variance[channel] + epsilon)
        )
        shift = k.local("shift", x.dtype, bias[channel] - mean[channel] * factor)
        with k.loops(*x.shape[2:]) as at:
            k.store(y[(n, c, *at)], x[(n, c, *at)] * factor + shift)


def _batch_reference(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float
) -> Array:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    s, b, m, v = (t.astype(np.float64).reshape(shape) for t in (scale, bias, mean, variance))
    return np.asarray((x - m) / np.sqrt(v + epsilon) * s + b).astype(x.dtype)


def _statistics(rng: np.random.Generator, channels: int) -> tuple[Array, ...]:
    spread_ = rng.uniform(0.5, 2, channels).astype(np.float32)
    return (*(normals(rng)(channels) for _ in range(3)), spread_)


BATCH_NORM = Op(
    "batch_norm",
    _same,
    _batch_lower,
    _batch_reference,
    lambda rng: [
        Sample((normals(rng)(2, 3, 5), *_statistics(rng, 3)), {"epsilon": 1e-5}),
        Sample((normals(rng)(4, 3), *_statistics(rng, 3)), {"epsilon": 1e-3}),
    ],
    conditions=_channel_conditions,
)


# group_norm: per image and group of channels; instance_norm is one channel per group


def _group_conditions(
    x: TensorType, *rest: TensorType | None, groups: int | Dim, **attrs: Any
) -> list[Condition]:
    channels = _channel_conditions(x, *rest)
    size = must_equal(_each(x.shape[1], groups) * groups, x.shape[1], "groups of channels")
    return [size, *channels]


def _each(channels: Dim, groups: int | Dim) -> Dim:
    """How many channels a group has: one, where there are as many groups, be they none."""
    return Dim.of(1) if channels == Dim.of(groups) else channels // groups


def _group_lower(
    k: KernelBuilder,
    x: Buffer,
    scale: Buffer,
    bias: Buffer,
    y: Buffer,
    *,
    groups: int | Dim,
    epsilon: float,
) -> None:
    channels = _each(x.shape[1], groups)
    inner = (channels, *x.shape[2:])
    count = Cast(Index(TensorType(x.dtype, inner).elements), x.dtype)
    with k.loops(x.shape[0], groups) as (n, g):
        first = k.let("first", g * channels)
        total = k.local("total", x.dtype, 0.0)
        with k.loops(*inner) as (c, *at):
            k.assign(total, total + x[(n, first + c, *at)])
        mean = k.local("mean", x.dtype, total / count)
        squares = k.local("squares", x.dtype, 0.0)
        with k.loops(*inner) as (c, *at):
            apart = k.local("apart", x.dtype, x[(n, first + c, *at)] - mean)
            k.assign(squares, squares + apart * apart)
        factor = k.local("factor", x.dtype, 1.0 / apply("sqrt", squares / count + epsilon))
        with k.loops(*inner) as (c, *at):
            where = (n, first + c, *at)
            value = (x[where] - mean) * factor * scale[(first + c,)] + bias[(first + c,)]
            k.store(y[where], value)


def _group_reference(x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float) -> Array:
    wide = x.astype(np.float64).reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    apart = wide - wide.mean(axis=-1, keepdims=True)
    y = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + epsilon)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    y = y.reshape(x.shape) * scale.reshape(shape) + bias.reshape(shape)
    return np.asarray(y).astype(x.dtype)


GROUP_NORM = Op(
    "group_norm",
    _same,
    _group_lower,
    _group_reference,
    lambda rng: [
        Sample((normals(rng)(2, 6, 5), normals(rng)(6), normals(rng)(6)),
               {"groups": 3, "epsilon": 1e-5}, symbolic=False),
        Sample((normals(rng)(1, 4, 3, 2), normals(rng)(4), normals(rng)(4)),
               {"groups": 4, "epsilon": 1e-5}, ("groups",)),
    ],
    conditions=_group_conditions,
)  # fmt: skip

OPS = (LAYER_NORM, RMS_NORM, BATCH_NORM, GROUP_NORM)
