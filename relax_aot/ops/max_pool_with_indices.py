"""max_pool_with_indices also returns the positions of the maxima; lp_pool takes p-norms."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Expr, Index, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_not_exceed, require
from relax_aot.ops._window import Sizes, output_sizes, window, windows_of


def _type(
    x: TensorType,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
) -> TensorType:
    require(x.rank == len(kernel) + 2, f"a pool over {len(kernel)} axes does not take {x}")
    spatial = output_sizes(x.shape[2:], kernel, strides, pads, dilations, ceil_mode=ceil_mode)
    return TensorType(x.dtype, (*x.shape[:2], *spatial))


def _conditions(x: TensorType, **attrs: Any) -> list[Condition]:
    attrs = {name: value for name, value in attrs.items() if name not in ("p", "columns_first")}
    return [must_not_exceed(0, n, "pool's output size") for n in _type(x, **attrs).shape[2:]]


def _views(x: Array, fill: Any, attrs: dict[str, Any]) -> Array:
    sizes = output_sizes(
        tuple(Dim.of(n) for n in x.shape[2:]),
        attrs["kernel"], attrs["strides"], attrs["pads"], attrs["dilations"],
        ceil_mode=attrs["ceil_mode"],
    )  # fmt: skip
    view = windows_of(
        x, attrs["kernel"], attrs["strides"], attrs["pads"], attrs["dilations"], fill,
        [size.constant for size in sizes],
    )  # fmt: skip
    return view.reshape(*view.shape[: x.ndim], int(np.prod(view.shape[x.ndim :])))


# max_pool_with_indices: the largest element of each window, and where in x it stands


def _places_type(
    x: TensorType, *, columns_first: bool, **attrs: Any
) -> tuple[TensorType, TensorType]:
    y = _type(x, **attrs)
    return y, TensorType(DType.I64, y.shape)


def _places_lower(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    places: Buffer,
    *,
    columns_first: bool,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
) -> None:
    start = -inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    with k.loops(*y.shape) as at:
        peak = k.local("peak", x.dtype, start)
        found = k.local("found", DType.I64, -1)
        taps = window(k, at[2:], x.shape[2:], kernel, strides, pads, dilations, always=ceil_mode)
        with taps as (_, place):
            value = x[at[:2] + place]
            better: Expr = binary("||", binary("<", found, 0), binary("<", peak, value))
            if x.dtype.is_float:
                fresh = binary("&&", apply("isnan", value), ~apply("isnan", peak))
                better = binary("||", better, fresh)
            with k.when(better):
                k.assign(peak, value)
                k.assign(found, Index(_flat((*at[:2], *place), x, columns_first)))
        k.store(y[at], peak)
        k.store(places[at], found)


def _flat(at: tuple[Dim, ...], x: Buffer, columns_first: bool) -> Dim:
    """The number of an element: rows first, or the spatial axes the other way round."""
    lead, spatial = list(zip(at, x.shape, strict=True))[:2], list(zip(at, x.shape, strict=True))[2:]
    result = Dim.of(0)
    for index, size in [*lead, *(reversed(spatial) if columns_first else spatial)]:
        result = result * size + index
    return result


def _places_reference(x: Array, *, columns_first: bool, **attrs: Any) -> tuple[Array, Array]:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    order = (0, 1, *reversed(range(2, x.ndim))) if columns_first else tuple(range(x.ndim))
    ordered = np.arange(x.size).reshape([x.shape[a] for a in order])
    numbers = np.transpose(ordered, np.argsort(order))
    windows, places = _views(x, low, attrs), _views(numbers, -1, attrs)
    # Padding never wins, not even where every element is as low as it.
    ranked = np.where(places < 0, -1, np.argsort(np.argsort(windows, axis=-1), axis=-1))
    best = windows.max(axis=-1, keepdims=True)
    same = (windows == best) | (np.isnan(windows.astype(np.float64)) & np.isnan(best * 1.0))
    first = np.argmax(same & (places >= 0) & (ranked >= 0), axis=-1)[..., None]
    return (
        np.take_along_axis(windows, first, -1)[..., 0],
        np.take_along_axis(places, first, -1)[..., 0].astype(np.int64),
    )


# lp_pool: the p-th root of the sum of p-th powers of magnitudes


def _power_type(x: TensorType, *, p: int, **attrs: Any) -> TensorType:
    require(x.dtype.is_float and p >= 1, f"lp_pool with p={p} cannot take {x}")
    return _type(x, **attrs)


def _power_lower(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    p: int,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sizes,
    dilations: Sequence[int],
    ceil_mode: bool,
) -> None:
    with k.loops(*y.shape) as at:
        total = k.local("total", x.dtype, 0.0)
        taps = window(k, at[2:], x.shape[2:], kernel, strides, pads, dilations, always=ceil_mode)
        with taps as (_, place):
            value = x[at[:2] + place]
            match p:
                case 1:
                    power: Expr = apply("abs", value)
                case 2:
                    power = binary("*", value, value)
                case _:
                    power = apply("pow", apply("abs", value), float(p))
            k.assign(total, total + power)
        match p:
            case 1:
                root: Expr = total
            case 2:
                root = apply("sqrt", total)
            case _:
                root = apply("pow", total, 1.0 / p)
        k.store(y[at], root)


def _power_reference(x: Array, *, p: int, **attrs: Any) -> Array:
    powers = np.abs(_views(x.astype(np.float64), 0.0, attrs)) ** p
    return np.asarray(powers.sum(axis=-1) ** (1 / p)).astype(x.dtype)


def _cases(rng: np.random.Generator) -> list[tuple[Array, dict[str, Any]]]:
    def case(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
        rank = len(kernel)
        x = np.asarray(rng.normal(size=shape)).astype(np.float32)
        usual = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
        return x, {"kernel": kernel, **usual, "ceil_mode": False, **attrs}

    return [
        case((1, 2, 7), (3,)),
        case((2, 2, 5, 6), (2, 3), strides=(2, 2), pads=(1, 0, 0, 1)),
        case((1, 1, 6, 6), (3, 3), strides=(2, 2), ceil_mode=True),
        case((1, 1, 8), (3,), strides=(3,), pads=(1, 1), ceil_mode=True),
        case((1, 1, 9, 9), (3, 2), dilations=(2, 3)),
        case((1, 2, 4, 5, 6), (2, 2, 2)),
    ]


def _places_samples(rng: np.random.Generator) -> list[Sample]:
    ties = rng.integers(0, 3, (1, 2, 6, 7)).astype(np.int8)
    usual = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    return [
        Sample((x,), {**attrs, "columns_first": columns}, symbolic=False)
        for x, attrs in [*_cases(rng), (ties, {**usual, "ceil_mode": False})]
        for columns in (False, True)
    ]


def _power_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((x,), {**attrs, "p": p}, symbolic=False)
        for x, attrs in _cases(rng)
        for p in (1, 2, 3)
    ]


OPS = (
    Op(
        "max_pool_with_indices", _places_type, _places_lower, _places_reference, _places_samples,
        conditions=_conditions, former=("max_pool_places",), traits=Trait.EXACT
    ),
    Op(
        "lp_pool", _power_type, _power_lower, _power_reference, _power_samples,
        conditions=_conditions,
    ),
)  # fmt: skip
