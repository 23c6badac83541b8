# SPDX-License-Identifier: Apache-2.0
"""Writes at data-dependent indices: copies x, then applies the updates in row-major order.

Where several updates meet, they are combined by `reduction`; with `none` the last one
stays. A negative index counts from the end, once; any other index outside the axis ends
the run with a status.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Load, Operand, apply
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._attributes import with_attributes
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    ShapeError,
    must_fit,
    must_not_exceed,
    normal_axis,
    require,
)
from relax_aot.ops.gather import wrapped_index

REDUCTIONS: dict[str, Callable[[Operand, Operand], Operand]] = {
    "none": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: apply("max", old, new),
    "min": lambda old, new: apply("min", old, new),
}
NUMPY = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _check(op: str, x: TensorType, indices: TensorType, updates: TensorType, how: str) -> None:
    require(how == "none" or x.dtype is not DType.BOOL, f"{op}: no reduction {how} of {x}")
    require(indices.dtype.is_int, f"{op} needs integer indices, got {indices}")
    require(updates.dtype is x.dtype, f"{op} needs equal element types, got {x} and {updates}")


def _exact_where(*, reduction: str = "none", **_attrs: Any) -> bool:
    return reduction in ("none", "max", "min")


def _update(k: KernelBuilder, target: Load, update: Load, reduction: str) -> None:
    k.store(target, REDUCTIONS[reduction](target, update))


def _copy(k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], x[at])


def _combine(y: Array, where: tuple[int, ...], update: Array, reduction: str) -> None:
    y[where] = update if reduction == "none" else NUMPY[reduction](y[where], update)


def _index(value: Any, size: int) -> int:
    if not -size <= value < size:
        raise IndexError(f"index {value} is outside an axis of size {size}")
    return int(value) % size


def _symbolic(reference: Callable[..., Array]) -> Callable[..., Array | None]:
    """`reference` where it writes sizes at places that are known, and combines nothing."""

    def symbolic(
        _bounds: Bounds, x: Array, indices: Array, updates: Array, **attrs: Any
    ) -> Array | None:
        if attrs.get("reduction", "none") != "none":
            return None
        if any(not isinstance(i, int) for i in indices.flat):
            return None
        return reference(x, indices, updates, **attrs)

    return symbolic


# scatter_elements


@dataclass(frozen=True, kw_only=True)
class Scatter:
    axis: int = 0
    reduction: str = "none"


def _elements_type(
    attrs: Scatter, x: TensorType, indices: TensorType, updates: TensorType
) -> TensorType:
    _check("scatter_elements", x, indices, updates, attrs.reduction)
    same = indices.rank == updates.rank == x.rank
    require(same, f"scatter_elements needs equal ranks, got {x}, {indices} and {updates}")
    normal_axis(attrs.axis, x.rank)
    return x


def _elements_conditions(
    attrs: Scatter, x: TensorType, indices: TensorType, updates: TensorType
) -> list[Condition]:
    at = normal_axis(attrs.axis, x.rank)
    agree = must_fit(indices, updates.shape, "scatter_elements: indices and updates")
    inside = [
        must_not_exceed(i, n, "scatter_elements: indices within x")
        for number, (i, n) in enumerate(zip(indices.shape, x.shape, strict=True))
        if number != at
    ]
    return agree + inside


def _elements_lower(
    attrs: Scatter, k: KernelBuilder, x: Buffer, indices: Buffer, updates: Buffer, y: Buffer
) -> None:
    along = normal_axis(attrs.axis, x.rank)
    _copy(k, x, y)
    with k.loops(*indices.shape) as at:
        index = wrapped_index(k, "at", indices[at], x.shape[along])
        _update(k, y[(*at[:along], index, *at[along + 1 :])], updates[at], attrs.reduction)


def _elements_reference(attrs: Scatter, x: Array, indices: Array, updates: Array) -> Array:
    y = x.copy()
    for at in np.ndindex(indices.shape):
        where = list(at)
        where[attrs.axis] = _index(indices[at], x.shape[attrs.axis])
        _combine(y, tuple(where), updates[at], attrs.reduction)
    return y


def _elements_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(4, 5)).astype(np.float32)
    updates = rng.normal(size=(3, 2)).astype(np.float32)
    every = [
        Sample((x, rng.integers(-5, 5, (3, 2)), updates), {"axis": 1, "reduction": reduction})
        for reduction in REDUCTIONS
    ]
    narrow = rng.integers(-100, 100, (2, 7)).astype(np.int8)
    return [
        *every,
        Sample((narrow[0], rng.integers(-7, 7, (7,)).astype(np.int32), narrow[1]), {"axis": -1}),
        Sample((narrow[0], np.zeros(7, np.int64), narrow[1]), {"reduction": "add"}),
        Sample((x, np.zeros((0, 2), np.int64), np.zeros((0, 2), np.float32)), {"axis": 0}),
        Sample((np.array([True, False]), np.array([-1]), np.array([True]))),
    ]


# scatter_nd


def _nd_type(
    x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str = "none"
) -> TensorType:
    _check("scatter_nd", x, indices, updates, reduction)
    require(indices.rank >= 1, f"scatter_nd needs indices of rank 1 or more, got {indices}")
    depth = _depth(indices)
    require(depth <= x.rank, f"scatter_nd: {indices} goes deeper than {x}")
    rank = indices.rank - 1 + x.rank - depth
    require(updates.rank == rank, f"scatter_nd needs updates of rank {rank}, got {updates}")
    return x


def _depth(indices: TensorType) -> int:
    if not indices.shape[-1].is_constant:
        raise ShapeError(f"scatter_nd needs a constant last size of indices, got {indices}")
    return indices.shape[-1].constant


def _nd_conditions(
    x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str = "none"
) -> list[Condition]:
    expected = indices.shape[:-1] + x.shape[_depth(indices) :]
    return must_fit(updates, expected, "scatter_nd: updates")


def _nd_lower(
    k: KernelBuilder,
    x: Buffer,
    indices: Buffer,
    updates: Buffer,
    y: Buffer,
    *,
    reduction: str = "none",
) -> None:
    depth = indices.shape[-1].constant
    _copy(k, x, y)
    with k.loops(*indices.shape[:-1]) as at:
        where = tuple(
            wrapped_index(k, f"at{axis}", indices[(*at, Dim.of(axis))], x.shape[axis])
            for axis in range(depth)
        )
        with k.loops(*x.shape[depth:]) as rest:
            _update(k, y[where + rest], updates[at + rest], reduction)


def _nd_reference(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    y = x.copy()
    for at in np.ndindex(indices.shape[:-1]):
        where = tuple(_index(i, n) for i, n in zip(indices[at], x.shape, strict=False))
        _combine(y, where, updates[at], reduction)
    return y


def _nd_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(4, 5, 2)).astype(np.float32)
    rows = rng.normal(size=(3, 5, 2)).astype(np.float32)
    points = rng.normal(size=(7, 3)).astype(np.float32)
    every = [
        Sample((x, rng.integers(-4, 4, (3, 1)), rows), {"reduction": reduction})
        for reduction in REDUCTIONS
    ]
    # Two indices per point: how many is part of the meaning, so it stays a number.
    deep = Sample((x[:, :, 0], rng.integers(-4, 4, (7, 3, 2)), points), fixed=(2,))
    empty = Sample((x, np.zeros((0, 1), np.int64), np.zeros((0, 5, 2), np.float32)))
    whole = Sample((x[0], np.zeros((3, 0), np.int64), rows), {"reduction": "add"})
    return [*every, deep, empty, whole]


OPS = (
    Op(
        "scatter_elements", _elements_type, _elements_lower, _elements_reference,
        _elements_samples, conditions=_elements_conditions, values={"reduction": REDUCTIONS},
        symbolic=_symbolic(with_attributes(_elements_reference, Scatter)), exact_where=_exact_where,
        record=Scatter,
    ),
    Op(
        "scatter_nd", _nd_type, _nd_lower, _nd_reference, _nd_samples,
        conditions=_nd_conditions, symbolic=_symbolic(_nd_reference),
        values={"reduction": REDUCTIONS}, exact_where=_exact_where
    ),
)  # fmt: skip
