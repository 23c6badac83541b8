# SPDX-License-Identifier: Apache-2.0
"""one_hot: values[1] at the index along a new axis, values[0] elsewhere.

An index from -depth to -1 counts from the end; one outside -depth..depth-1 gives no hot
element and is no error.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Index, Lit, Select, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    must_equal,
    must_not_exceed,
    normal_axis,
    require,
)


def deduce(
    indices: TensorType, values: TensorType, *, depth: int | Dim, axis: int = -1
) -> TensorType:
    require(indices.dtype is not DType.BOOL, f"one_hot needs indices, got {indices}")
    require(values.rank == 1, f"one_hot needs two values, off and on, got {values}")
    at = normal_axis(axis, indices.rank + 1)
    return TensorType(values.dtype, (*indices.shape[:at], Dim.of(depth), *indices.shape[at:]))


def conditions(
    indices: TensorType, values: TensorType, *, depth: int | Dim, axis: int = -1
) -> list[Condition]:
    return [
        must_equal(values.shape[0], 2, "one_hot: values for off and on"),
        must_not_exceed(0, depth, "one_hot: depth"),
    ]


def lower(
    k: KernelBuilder,
    indices: Buffer,
    values: Buffer,
    y: Buffer,
    *,
    depth: int | Dim,
    axis: int = -1,
) -> None:
    along = normal_axis(axis, y.rank)
    off, on = (values[(Dim.of(position),)] for position in (0, 1))
    with k.loops(*y.shape) as at:
        raw = Cast(indices[(*at[:along], *at[along + 1 :])], DType.I64)
        index = Select(raw < Lit(0, DType.I64), raw + Index(Dim.of(depth)), raw)
        k.store(y[at], Select(binary("==", index, Index(at[along])), on, off))


def reference(indices: Array, values: Array, *, depth: int, axis: int = -1) -> Array:
    whole = indices.astype(np.int64)
    whole = np.where(whole < 0, whole + depth, whole)
    at = normal_axis(axis, indices.ndim + 1)
    hot = np.expand_dims(whole, at) == np.arange(depth).reshape(-1, *[1] * (indices.ndim - at))
    return np.asarray(np.where(hot, values[1], values[0]))


def samples(rng: np.random.Generator) -> list[Sample]:
    values = np.array([0.5, 3], np.float32)
    indices = rng.integers(-7, 7, (3, 5))
    return [
        *(Sample((indices, values), {"depth": 7, "axis": axis}, ("depth",)) for axis in (-1, 0, 1)),
        Sample((np.array([7, -8, -7, 6]), np.array([0, 1], np.int8)), {"depth": 7}, ("depth",)),
        Sample((np.array(2, np.uint8), np.array([1, 0])), {"depth": 3}, ("depth",)),
        Sample((np.array([1.0, -1.0, 2.0], np.float32), values), {"depth": 4}, ("depth",)),
        Sample((np.zeros((0, 3), np.int32), np.array([True, False])), {"depth": 4}, ("depth",)),
        Sample((np.array([0, 1]), values), {"depth": 0}),
    ]


OP = Op("one_hot", deduce, lower, reference, samples, conditions=conditions, traits=Trait.EXACT)
