# SPDX-License-Identifier: Apache-2.0
"""Max and average pooling with channels last.

Averages count the elements inside the input alone. Those of integers are rounded to nearest,
halves away from 0, as TensorFlow Lite has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Lit, Local, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, is_float, must_not_exceed, require
from relax_aot.ops._samples import normals
from relax_aot.ops._window import Sizes, Window, taps_of, windows_of


@dataclass(frozen=True, kw_only=True)
class Pool:
    kernel: Sequence[int]
    strides: Sequence[int]
    pads: Sizes

    @property
    def window(self) -> Window:
        ones = (1,) * len(self.kernel)
        return Window(kernel=self.kernel, strides=self.strides, pads=self.pads, dilations=ones)


def _type(attrs: Pool, x: TensorType) -> TensorType:
    axes = len(attrs.kernel)
    number = x.dtype.is_float or x.dtype.is_int
    require(x.rank == axes + 2 and number, f"a pool over {axes} axes does not take {x}")
    return TensorType(x.dtype, (x.shape[0], *attrs.window.sizes(x.shape[1:-1]), x.shape[-1]))


def _average_type(attrs: Pool, x: TensorType) -> TensorType:
    narrow = x.dtype in (DType.I8, DType.U8, DType.I16)
    require(x.dtype.is_float or narrow, f"average_pool_nhwc does not take {x}")
    return _type(attrs, x)


def _conditions(attrs: Pool, x: TensorType) -> list[Condition]:
    return [must_not_exceed(0, n, "pool's output size") for n in _type(attrs, x).shape[1:-1]]


def _lower_max(attrs: Pool, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    start = -inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    with k.loops(*y.shape) as at:
        peak = k.local("peak", x.dtype, start)
        with taps_of(k, at[1:-1], x.shape[1:-1], attrs.window, always=True) as (_, place):
            k.assign(peak, apply("max", peak, x[(at[0], *place, at[-1])]))
        k.store(y[at], peak)


def _lower_average(attrs: Pool, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    wide = x.dtype if x.dtype.is_float else DType.I32
    zero, one = (0.0, 1.0) if wide.is_float else (0, 1)
    with k.loops(*y.shape) as at:
        total = k.local("total", wide, zero)
        count = k.local("count", wide, zero)
        with taps_of(k, at[1:-1], x.shape[1:-1], attrs.window, always=True) as (_, place):
            value = x[(at[0], *place, at[-1])]
            k.assign(total, total + (value if wide is x.dtype else Cast(value, wide)))
            k.assign(count, count + one)
        if wide.is_float:
            k.store(y[at], total / count)
        else:
            k.store(y[at], Cast(_rounded(total, count), y.dtype))


def _rounded(total: Local, count: Local) -> Any:
    """total / count to nearest, halves away from 0; `/` truncates."""
    half = binary("/", count, Lit(2, DType.I32))
    return binary("/", Select(total < 0, total - half, total + half), count)


def _views(attrs: Pool, x: Array, fill: Any) -> Array:
    window, first = attrs.window, np.moveaxis(x, -1, 1)
    view = windows_of(first, window, fill, window.counts(x.shape[1:-1]))
    flat = view.reshape(*view.shape[: x.ndim], int(np.prod(view.shape[x.ndim :])))
    return np.moveaxis(flat, 1, -2)


def _max_reference(attrs: Pool, x: Array) -> Array:
    low = -np.inf if is_float(x) else np.iinfo(x.dtype).min
    return np.asarray(_views(attrs, x, low).max(axis=-1))


def _average_reference(attrs: Pool, x: Array) -> Array:
    wide = np.float64 if is_float(x) else np.int64
    total = _views(attrs, x.astype(wide), 0).sum(axis=-1)
    count = _views(attrs, np.ones((1, *x.shape[1:-1], 1), np.int64), 0).sum(axis=-1)
    if is_float(x):
        return np.asarray(total / count).astype(x.dtype)
    magnitude = (np.abs(total) + count // 2) // count
    return np.asarray(np.sign(total) * magnitude).astype(x.dtype)


def _cases(rng: np.random.Generator) -> list[tuple[Array, dict[str, Any]]]:
    normal = normals(rng)
    return [
        (normal(1, 7, 2), {"kernel": (3,), "strides": (1,), "pads": (0, 0)}),
        (normal(2, 7, 6, 3), {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)}),
        (normal(1, 4, 4, 5), {"kernel": (4, 4), "strides": (1, 1), "pads": (0, 0, 0, 0)}),
    ]


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases = _cases(rng)
    codes = [
        ((x * scale).astype(kind), attrs)
        for x, attrs in cases
        for kind, scale in ((np.int8, 40), (np.int16, 9000))
    ]
    return [Sample((x,), attrs, symbolic=False) for x, attrs in (*cases, *codes)]


OPS = (
    Op("max_pool_nhwc", _type, _lower_max, _max_reference, _samples, conditions=_conditions,
       former=("max_pool_last",), traits=Trait.EXACT | Trait.KEEPS_SIGN, record=Pool),
    Op(
        "average_pool_nhwc", _average_type, _lower_average, _average_reference, _samples,
        conditions=_conditions, former=("average_pool_last",), traits=Trait.KEEPS_SIGN,
        record=Pool,
    ),
)  # fmt: skip
