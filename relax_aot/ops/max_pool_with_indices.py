# SPDX-License-Identifier: Apache-2.0
"""max_pool_with_indices also returns the positions of the maxima; lp_pool takes p-norms."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer, Expr, Index, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops import pool
from relax_aot.ops._op import Array, Op, Sample, Trait, require
from relax_aot.ops._window import taps_of

# max_pool_with_indices: the largest element of each window, and where in x it stands


@dataclass(frozen=True, kw_only=True)
class IndexedPool(pool.Pool):
    columns_first: bool


def _places_type(attrs: IndexedPool, x: TensorType) -> tuple[TensorType, TensorType]:
    y = pool.deduce(attrs, x)
    return y, TensorType(DType.I64, y.shape)


def _places_lower(
    attrs: IndexedPool, k: KernelBuilder, x: Buffer, y: Buffer, places: Buffer
) -> None:
    start = -inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
    with k.loops(*y.shape) as at:
        peak = k.local("peak", x.dtype, start)
        found = k.local("found", DType.I64, -1)
        with taps_of(k, at[2:], x.shape[2:], attrs, always=attrs.ceil_mode) as (_, place):
            value = x[at[:2] + place]
            better: Expr = binary("||", binary("<", found, 0), binary("<", peak, value))
            if x.dtype.is_float:
                fresh = binary("&&", apply("isnan", value), ~apply("isnan", peak))
                better = binary("||", better, fresh)
            with k.when(better):
                k.assign(peak, value)
                k.assign(found, Index(_flat((*at[:2], *place), x, attrs.columns_first)))
        k.store(y[at], peak)
        k.store(places[at], found)


def _flat(at: tuple[Dim, ...], x: Buffer, columns_first: bool) -> Dim:
    """The number of an element: rows first, or the spatial axes the other way round."""
    lead, spatial = list(zip(at, x.shape, strict=True))[:2], list(zip(at, x.shape, strict=True))[2:]
    result = Dim.of(0)
    for index, size in [*lead, *(reversed(spatial) if columns_first else spatial)]:
        result = result * size + index
    return result


def _places_reference(attrs: IndexedPool, x: Array) -> tuple[Array, Array]:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    spatial = tuple(range(2, x.ndim))
    order = (0, 1, *(reversed(spatial) if attrs.columns_first else spatial))
    ordered = np.arange(x.size).reshape([x.shape[a] for a in order])
    numbers = np.transpose(ordered, np.argsort(order))
    windows, places = pool.views(attrs, x, low), pool.views(attrs, numbers, -1)
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


@dataclass(frozen=True, kw_only=True)
class PowerPool(pool.Pool):
    p: int


def _power_type(attrs: PowerPool, x: TensorType) -> TensorType:
    require(x.dtype.is_float and attrs.p >= 1, f"lp_pool with p={attrs.p} cannot take {x}")
    return pool.deduce(attrs, x)


def _power_lower(attrs: PowerPool, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        total = k.local("total", x.dtype, 0.0)
        with taps_of(k, at[2:], x.shape[2:], attrs, always=attrs.ceil_mode) as (_, place):
            value = x[at[:2] + place]
            match attrs.p:
                case 1:
                    power: Expr = apply("abs", value)
                case 2:
                    power = binary("*", value, value)
                case p:
                    power = apply("pow", apply("abs", value), float(p))
            k.assign(total, total + power)
        match attrs.p:
            case 1:
                root: Expr = total
            case 2:
                root = apply("sqrt", total)
            case p:
                root = apply("pow", total, 1.0 / p)
        k.store(y[at], root)


def _power_reference(attrs: PowerPool, x: Array) -> Array:
    powers = np.abs(pool.views(attrs, x.astype(np.float64), 0.0)) ** attrs.p
    return np.asarray(powers.sum(axis=-1) ** (1 / attrs.p)).astype(x.dtype)


def _places_samples(rng: np.random.Generator) -> list[Sample]:
    ties = rng.integers(0, 3, (1, 2, 6, 7)).astype(np.int8)
    usual = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    return [
        Sample((x,), {**attrs, "columns_first": columns}, symbolic=False)
        for x, attrs in [*pool.cases(rng), (ties, {**usual, "ceil_mode": False})]
        for columns in (False, True)
    ]


def _power_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((x,), {**attrs, "p": p}, symbolic=False)
        for x, attrs in pool.cases(rng)
        for p in (1, 2, 3)
    ]


OPS = (
    Op(
        "max_pool_with_indices", _places_type, _places_lower, _places_reference, _places_samples,
        conditions=pool.conditions, former=("max_pool_places",), traits=Trait.EXACT,
        record=IndexedPool,
    ),
    Op(
        "lp_pool", _power_type, _power_lower, _power_reference, _power_samples,
        conditions=pool.conditions, record=PowerPool,
    ),
)  # fmt: skip
