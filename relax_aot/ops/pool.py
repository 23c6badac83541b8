# SPDX-License-Identifier: Apache-2.0
"""Max and average pooling with channels first, in any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Index, apply
from relax_aot.ir.types import Shape, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, is_float, must_not_exceed, require
from relax_aot.ops._samples import normals
from relax_aot.ops._window import Window, taps_of, usual, windows_of


@dataclass(frozen=True, kw_only=True)
class Pool(Window):
    kernel: Sequence[int]
    ceil_mode: bool


@dataclass(frozen=True, kw_only=True)
class AveragePool(Pool):
    count_include_pad: bool


def deduce(attrs: Pool, x: TensorType) -> TensorType:
    axes = len(attrs.kernel)
    number = x.dtype.is_float or x.dtype.is_int
    require(x.rank == axes + 2 and number, f"a pool over {axes} axes does not take {x}")
    spatial = attrs.sizes(x.shape[2:], ceil_mode=attrs.ceil_mode)
    return TensorType(x.dtype, (*x.shape[:2], *spatial))


def conditions(attrs: Pool, x: TensorType) -> list[Condition]:
    return [must_not_exceed(0, n, "pool's output size") for n in deduce(attrs, x).shape[2:]]


def _lower_max(attrs: Pool, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    start = -inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    with k.loops(*y.shape) as at:
        peak = k.local("peak", x.dtype, start)
        with taps_of(k, at[2:], x.shape[2:], attrs, always=attrs.ceil_mode) as (_, place):
            k.assign(peak, apply("max", peak, x[at[:2] + place]))
        k.store(y[at], peak)


def _lower_average(attrs: AveragePool, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        total = k.local("total", x.dtype, 0.0)
        count = k.local("count", x.dtype, 0.0)
        with taps_of(k, at[2:], x.shape[2:], attrs, always=attrs.ceil_mode) as (_, place):
            k.assign(total, total + x[at[:2] + place])
            if not attrs.count_include_pad:
                k.assign(count, count + 1.0)
        if attrs.count_include_pad:
            cells = _padded_taps(attrs, k, at[2:], x.shape[2:])
            k.assign(count, Cast(Index(cells), x.dtype))
        k.store(y[at], total / count)


def _padded_taps(attrs: Window, k: KernelBuilder, at: At, sizes: Shape) -> Dim:
    """Taps inside the input and its padding; those beyond (ceil_mode) do not count."""
    cells = Dim.of(1)
    for axis, size in enumerate(sizes):
        start, dilation = at[axis] * attrs.strides[axis], attrs.dilations[axis]
        end = size + Dim.of(attrs.pads[axis]) + Dim.of(attrs.pads[axis + len(sizes)])
        inside = (end - start + dilation - 1) // dilation
        cells = cells * k.let(f"cells{axis}", dim_min(inside, attrs.kernel[axis]))
    return cells


def count(attrs: AveragePool, k: KernelBuilder, at: At, sizes: Shape) -> Dim:
    """How many taps a window divides by."""
    padded = any(Dim.of(p) != Dim.of(0) for p in attrs.pads)
    if not attrs.ceil_mode and (attrs.count_include_pad or not padded):
        return Dim.of(int(np.prod([int(n) for n in attrs.kernel])))
    if attrs.count_include_pad:
        return _padded_taps(attrs, k, at, sizes)
    cells = Dim.of(1)
    for axis, size in enumerate(sizes):
        start, dilation = at[axis] * attrs.strides[axis] - attrs.pads[axis], attrs.dilations[axis]
        low = dim_max(ceildiv(-start, dilation), 0)
        high = dim_min(ceildiv(size - start, dilation), attrs.kernel[axis])
        cells = cells * k.let(f"taps{axis}", high - low)
    return cells


def views(attrs: Pool, x: Array, fill: Any) -> Array:
    """The taps of each window as the last axis."""
    view = windows_of(x, attrs, fill, attrs.counts(x.shape[2:], ceil_mode=attrs.ceil_mode))
    return _taps_last(view, x.ndim)


def _taps_last(view: Array, rank: int) -> Array:
    return view.reshape(*view.shape[:rank], prod(view.shape[rank:]))


def _max_reference(attrs: Pool, x: Array) -> Array:
    low = -np.inf if is_float(x) else np.iinfo(x.dtype).min
    return np.asarray(views(attrs, x, low).max(axis=-1))


def _average_reference(attrs: AveragePool, x: Array) -> Array:
    total = views(attrs, x.astype(np.float64), 0.0).sum(axis=-1)
    return np.asarray(total / counts(attrs, x)).astype(x.dtype)


def counts(attrs: AveragePool, x: Array) -> Array:
    """The same of all windows of an array."""
    rank = x.ndim - 2
    ones = np.ones((1, 1, *x.shape[2:]))
    if not attrs.count_include_pad:
        return np.asarray(views(attrs, ones, 0.0).sum(axis=-1))
    pads = [int(pad) for pad in attrs.pads]
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    ones = np.pad(ones, widths, constant_values=1.0)
    outputs = attrs.counts(x.shape[2:], ceil_mode=attrs.ceil_mode)
    view = windows_of(ones, replace(attrs, pads=(0,) * 2 * rank), 0.0, outputs)
    return np.asarray(_taps_last(view, x.ndim).sum(axis=-1))


def cases(rng: np.random.Generator) -> list[tuple[Array, dict[str, Any]]]:
    normal = normals(rng)

    def case(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
        given = {"kernel": kernel, "ceil_mode": False, **attrs}
        return normal(*shape), usual(len(kernel), **given)

    return [
        case((1, 2, 7), (3,)),
        case((2, 2, 7), (3,), strides=(2,), pads=(1, 1)),
        case((1, 2, 5, 6), (2, 3), strides=(2, 2), pads=(1, 0, 0, 1)),
        case((1, 1, 6, 6), (3, 3), strides=(2, 2), ceil_mode=True),
        case((1, 1, 8), (3,), strides=(3,), pads=(1, 1), ceil_mode=True),
        case((1, 1, 9), (3,), dilations=(2,)),
        case((1, 1, 9, 9), (3, 2), dilations=(2, 3)),
        case((1, 2, 4, 5, 6), (2, 2, 2)),
    ]


def _max_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((x,), attrs, symbolic=False) for x, attrs in cases(rng)]


def _average_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((x,), {**attrs, "count_include_pad": include}, symbolic=False)
        for x, attrs in cases(rng)
        for include in (False, True)
    ]


OPS = (
    Op("max_pool", deduce, _lower_max, _max_reference, _max_samples, conditions=conditions,
       traits=Trait.MOVES, record=Pool),
    Op(
        "average_pool", deduce, _lower_average, _average_reference, _average_samples,
        conditions=conditions, traits=Trait.QUANTIZABLE, record=AveragePool,
    ),
)  # fmt: skip
