"""Max and average pooling with channels last.

Averages count the elements inside the input alone. Those of integers are rounded to nearest,
halves away from 0, as TensorFlow Lite has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Lit, Local, Select, binary, maximum
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, is_float, must_not_exceed, require
from relax_aot.ops._window import Sizes, output_sizes, window, windows_of


def _type(
    x: TensorType, *, kernel: Sequence[int], strides: Sequence[int], pads: Sizes
) -> TensorType:
    require(x.rank == len(kernel) + 2, f"a pool over {len(kernel)} axes does not take {x}")
    ones = (1,) * len(kernel)
    space = output_sizes(x.shape[1:-1], kernel, strides, pads, ones)
    return TensorType(x.dtype, (x.shape[0], *space, x.shape[-1]))


def _average_type(x: TensorType, **attrs: Any) -> TensorType:
    narrow = x.dtype in (DType.I8, DType.U8, DType.I16)
    require(x.dtype.is_float or narrow, f"average_pool_nhwc does not take {x}")
    return _type(x, **attrs)


def _conditions(x: TensorType, **attrs: Any) -> list[Condition]:
    return [must_not_exceed(0, n, "pool's output size") for n in _type(x, **attrs).shape[1:-1]]


def _lower_max(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
) -> None:
    start = -inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    ones = (1,) * len(kernel)
    with k.loops(*y.shape) as at:
        peak = k.local("peak", x.dtype, start)
        taps = window(k, at[1:-1], x.shape[1:-1], kernel, strides, pads, ones, always=True)
        with taps as (_, place):
            k.assign(peak, maximum(peak, x[(at[0], *place, at[-1])]))
        k.store(y[at], peak)


def _lower_average(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
) -> None:
    wide = x.dtype if x.dtype.is_float else DType.I32
    ones = (1,) * len(kernel)
    zero, one = (0.0, 1.0) if wide.is_float else (0, 1)
    with k.loops(*y.shape) as at:
        total = k.local("total", wide, zero)
        count = k.local("count", wide, zero)
        taps = window(k, at[1:-1], x.shape[1:-1], kernel, strides, pads, ones, always=True)
        with taps as (_, place):
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


def _views(x: Array, fill: Any, attrs: dict[str, Any]) -> Array:
    kernel, strides, pads = (attrs[name] for name in ("kernel", "strides", "pads"))
    ones = (1,) * len(kernel)
    first = np.moveaxis(x, -1, 1)
    sizes = output_sizes(tuple(map(Dim.of, first.shape[2:])), kernel, strides, pads, ones)
    view = windows_of(first, kernel, strides, pads, ones, fill, [s.constant for s in sizes])
    flat = view.reshape(*view.shape[: x.ndim], int(np.prod(view.shape[x.ndim :])))
    return np.moveaxis(flat, 1, -2)


def _max_reference(x: Array, **attrs: Any) -> Array:
    low = -np.inf if is_float(x) else np.iinfo(x.dtype).min
    return np.asarray(_views(x, low, attrs).max(axis=-1))


def _average_reference(x: Array, **attrs: Any) -> Array:
    wide = np.float64 if is_float(x) else np.int64
    total = _views(x.astype(wide), 0, attrs).sum(axis=-1)
    count = _views(np.ones((1, *x.shape[1:-1], 1), np.int64), 0, attrs).sum(axis=-1)
    if is_float(x):
        return np.asarray(total / count).astype(x.dtype)
    magnitude = (np.abs(total) + count // 2) // count
    return np.asarray(np.sign(total) * magnitude).astype(x.dtype)


def _cases(rng: np.random.Generator) -> list[tuple[Array, dict[str, Any]]]:
    def case(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
        rank = len(kernel)
        usual = {"kernel": kernel, "strides": (1,) * rank, "pads": (0,) * 2 * rank}
        return np.asarray(rng.normal(size=shape)).astype(np.float32), {**usual, **attrs}

    return [
        case((1, 7, 2), (3,)),
        case((2, 7, 6, 3), (3, 2), strides=(2, 2), pads=(1, 0, 1, 1)),
        case((1, 4, 4, 5), (4, 4)),
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
       former=("max_pool_last",), traits=Trait.EXACT),
    Op(
        "average_pool_nhwc", _average_type, _lower_average, _average_reference, _samples,
        conditions=_conditions, former=("average_pool_last",),
    ),
)  # fmt: skip
