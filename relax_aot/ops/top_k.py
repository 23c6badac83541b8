# SPDX-License-Identifier: Apache-2.0
"""top_k: the k largest or smallest elements along an axis, and their indices.

One pass inserts each element that belongs to the first k of those before it, which the results
hold in order, so no scratch is needed and equal values keep theirs. Few elements of a random order
do: about k * log(n / k) of n. NaN counts as greater than every number, as NumPy sorts it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Binary, Buffer, Expr, Index, Lit, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_not_exceed, normal_axis, require


def _type(
    x: TensorType, *, k: int | Dim, axis: int, largest: bool, sorted: bool
) -> tuple[TensorType, TensorType]:
    require(x.rank >= 1 and x.dtype is not DType.BOOL, f"top_k cannot order {x}")
    at = normal_axis(axis, x.rank)
    shape = (*x.shape[:at], Dim.of(k), *x.shape[at + 1 :])
    return TensorType(x.dtype, shape), TensorType(DType.I64, shape)


def _conditions(x: TensorType, *, k: int | Dim, axis: int, **_attrs: Any) -> list[Condition]:
    size = x.shape[normal_axis(axis, x.rank)]
    return [must_not_exceed(0, k, "top_k"), must_not_exceed(k, size, "top_k of more than there is")]


def _less(a: Expr, b: Expr) -> Binary:
    """a < b in the order in which NaN is the largest."""
    plain = binary("<", a, b)
    if not a.dtype.is_float:
        return plain
    return binary("||", plain, binary("&&", ~apply("isnan", a), apply("isnan", b)))


def _lower(
    builder: KernelBuilder,
    x: Buffer,
    values: Buffer,
    places: Buffer,
    *,
    k: int | Dim,
    axis: int,
    largest: bool,
    sorted: bool,
) -> None:
    at = normal_axis(axis, x.rank)
    rows = (*x.shape[:at], *x.shape[at + 1 :])

    def before(a: Expr, b: Expr) -> Binary:
        return _less(b, a) if largest else _less(a, b)

    with builder.loops(*rows) as row:
        worst = builder.local("worst", x.dtype, 0.0 if x.dtype.is_float else 0)
        with builder.loops(x.shape[at]) as (i,):
            value = builder.local("value", x.dtype, x[(*row[:at], i, *row[at:])])
            room = binary("<", Index(i), Index(Dim.of(k)))
            with builder.when(binary("||", room, before(value, worst))):
                place = builder.local("place", DType.I64, Index(i))
                moved = builder.local("moved", DType.BOOL, False)
                with builder.loops(dim_min(i, Dim.of(k))) as (j,):
                    own = (*row[:at], j, *row[at:])
                    held = builder.local("held", x.dtype, values[own])
                    held_place = builder.local("held_place", DType.I64, places[own])
                    with builder.when(binary("||", moved, before(value, held))):
                        builder.store(values[own], value)
                        builder.store(places[own], place)
                        builder.assign(value, held)
                        builder.assign(place, held_place)
                        builder.assign(moved, Lit(True, DType.BOOL))
                    builder.assign(worst, values[own])
                with builder.when(room):
                    last = builder.clamped("last", Index(i), 0, Dim.of(k) - 1)
                    end = (*row[:at], last, *row[at:])
                    builder.store(values[end], value)
                    builder.store(places[end], place)
                    builder.assign(worst, value)


def _reference(x: Array, *, k: int, axis: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    if largest:
        # Descending and stable: sort the mirrored axis, so that the first of equals is last.
        mirrored = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = np.flip(x.shape[axis] - 1 - mirrored, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    chosen = np.take(order, range(int(k)), axis=axis).astype(np.int64)
    return np.take_along_axis(x, chosen, axis), chosen


def _samples(rng: np.random.Generator) -> list[Sample]:
    ties = rng.integers(-3, 3, (3, 7)).astype(np.float32)
    odd = np.array([2, np.nan, -np.inf, 5, np.nan, np.inf, -0.0, 0.0], np.float32)
    whole = np.array([0, 2**64 - 1, 5, 2**63], np.uint64)
    usual = {"axis": -1, "largest": True, "sorted": True}
    return [
        Sample((ties,), {**usual, "k": 2}, sizes=("k",)),
        Sample((ties,), {**usual, "k": 7, "largest": False}),
        Sample((ties,), {**usual, "k": 2, "axis": 0}),
        Sample((rng.normal(size=(2, 6, 3)).astype(np.float32),), {**usual, "k": 4, "axis": 1}),
        Sample((odd,), {**usual, "k": 8}, symbolic=False),
        Sample((odd,), {**usual, "k": 8, "largest": False}, symbolic=False),
        Sample((whole,), {**usual, "k": 3}),
        Sample((rng.integers(-9, 9, (4, 5)).astype(np.int32),), {**usual, "k": 0}),
    ]


OP = Op("top_k", _type, _lower, _reference, _samples, conditions=_conditions, traits=Trait.EXACT)
