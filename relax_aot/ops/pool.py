"""Max and average pooling with channels first, in any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Index, maximum
from relax_aot.ir.types import Shape, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, is_float, must_not_exceed, require
from relax_aot.ops._window import Sizes, output_sizes, window, windows_of


def deduce(
    x: TensorType,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
    **_attrs: Any,
) -> TensorType:
    require(x.rank == len(kernel) + 2, f"a pool over {len(kernel)} axes does not take {x}")
    spatial = output_sizes(x.shape[2:], kernel, strides, pads, dilations, ceil_mode=ceil_mode)
    return TensorType(x.dtype, (*x.shape[:2], *spatial))


def conditions(x: TensorType, **attrs: Any) -> list[Condition]:
    return [must_not_exceed(0, n, "pool's output size") for n in deduce(x, **attrs).shape[2:]]


def _lower_max(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
) -> None:
    start = -inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    with k.loops(*y.shape) as at:
        peak = k.local("peak", x.dtype, start)
        taps = window(k, at[2:], x.shape[2:], kernel, strides, pads, dilations, always=ceil_mode)
        with taps as (_, place):
            k.assign(peak, maximum(peak, x[at[:2] + place]))
        k.store(y[at], peak)


def _lower_average(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> None:
    with k.loops(*y.shape) as at:
        total = k.local("total", x.dtype, 0.0)
        count = k.local("count", x.dtype, 0.0)
        taps = window(k, at[2:], x.shape[2:], kernel, strides, pads, dilations, always=ceil_mode)
        with taps as (_, place):
            k.assign(total, total + x[at[:2] + place])
            if not count_include_pad:
                k.assign(count, count + 1.0)
        if count_include_pad:
            cells = _padded_taps(k, at[2:], x.shape[2:], kernel, strides, pads, dilations)
            k.assign(count, Cast(Index(cells), x.dtype))
        k.store(y[at], total / count)


def _padded_taps(
    k: KernelBuilder,
    at: At,
    sizes: Shape,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
) -> Dim:
    """Taps inside the input and its padding; those beyond (ceil_mode) do not count."""
    cells = Dim.of(1)
    for axis, size in enumerate(sizes):
        start = at[axis] * strides[axis]
        end = size + Dim.of(pads[axis]) + Dim.of(pads[axis + len(sizes)])
        inside = (end - start + dilations[axis] - 1) // dilations[axis]
        cells = cells * k.let(f"cells{axis}", dim_min(inside, kernel[axis]))
    return cells


def count(
    k: KernelBuilder,
    at: At,
    sizes: Shape,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> Dim:
    """How many taps a window divides by."""
    if not ceil_mode and (count_include_pad or not any(Dim.of(p) != Dim.of(0) for p in pads)):
        return Dim.of(int(np.prod(kernel)))
    if count_include_pad:
        return _padded_taps(k, at, sizes, kernel, strides, pads, dilations)
    cells = Dim.of(1)
    for axis, size in enumerate(sizes):
        start = at[axis] * strides[axis] - Dim.of(pads[axis])
        low = dim_max(ceildiv(-start, dilations[axis]), 0)
        high = dim_min(ceildiv(size - start, dilations[axis]), kernel[axis])
        cells = cells * k.let(f"taps{axis}", high - low)
    return cells


def _outputs(x: Array, attrs: dict[str, Any]) -> list[int]:
    sizes = output_sizes(
        tuple(Dim.of(n) for n in x.shape[2:]),
        attrs["kernel"], attrs["strides"], attrs["pads"], attrs["dilations"],
        ceil_mode=attrs["ceil_mode"],
    )  # fmt: skip
    return [size.constant for size in sizes]


def views(x: Array, fill: Any, attrs: dict[str, Any]) -> Array:
    outputs = _outputs(x, attrs)
    kernel, strides, pads, dilations = (
        attrs[name] for name in ("kernel", "strides", "pads", "dilations")
    )
    view = windows_of(x, kernel, strides, pads, dilations, fill, outputs)
    return view.reshape(*view.shape[: x.ndim], int(np.prod(view.shape[x.ndim :])))


def _max_reference(x: Array, **attrs: Any) -> Array:
    low = -np.inf if is_float(x) else np.iinfo(x.dtype).min
    return np.asarray(views(x, low, attrs).max(axis=-1))


def _average_reference(x: Array, *, count_include_pad: bool, **attrs: Any) -> Array:
    total = views(x.astype(np.float64), 0.0, attrs).sum(axis=-1)
    return np.asarray(total / counts(x, count_include_pad=count_include_pad, **attrs)).astype(
        x.dtype
    )


def counts(x: Array, *, count_include_pad: bool, **attrs: Any) -> Array:
    """The same of all windows of an array."""
    rank = x.ndim - 2
    ones = np.ones((1, 1, *x.shape[2:]))
    if count_include_pad:
        pads = attrs["pads"]
        widths = [(0, 0), (0, 0)] + [(int(pads[i]), int(pads[i + rank])) for i in range(rank)]
        ones = np.pad(ones, widths, constant_values=1.0)
        outputs = _outputs(x, attrs)
        zero = (0,) * 2 * rank
        view = windows_of(
            ones, attrs["kernel"], attrs["strides"], zero, attrs["dilations"], 0.0, outputs
        )
        return np.asarray(view.reshape(*view.shape[: x.ndim], -1).sum(axis=-1))
    return np.asarray(views(ones, 0.0, attrs).sum(axis=-1))


def cases(rng: np.random.Generator) -> list[tuple[Array, dict[str, Any]]]:
    def case(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
        rank = len(kernel)
        x = np.asarray(rng.normal(size=shape)).astype(np.float32)
        usual = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
        return x, {"kernel": kernel, **usual, "ceil_mode": False, **attrs}

    return [
        case((1, 2, 7), (3,)),
        case((2, 2, 7), (3,), strides=(2,), pads=(1, 1)),
        case((1, 2, 5, 6), (2, 3), strides=(2, 2), pads=(1, 0, 0, 1)),
        case((1, 1, 6, 6), (3, 3), strides=(2, 2), ceil_mode=True),
        case((1, 1, 8), (3,), strides=(3,), pads=(1, 1), ceil_mode=True),
        case((1, 1, 9), (3,), dilations=(2,)),
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
       traits=Trait.MOVES),
    Op(
        "average_pool", deduce, _lower_average, _average_reference, _average_samples,
        conditions=conditions, traits=Trait.QUANTIZABLE
    ),
)  # fmt: skip
