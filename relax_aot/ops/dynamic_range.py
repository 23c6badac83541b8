# SPDX-License-Identifier: Apache-2.0
"""Data-dependent ranges: range_size counts their elements, range_from makes them."""

from __future__ import annotations

from math import ceil

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer, Cast, Index, Load, Select, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, is_float, not_negative, require, require_one_type
from relax_aot.ops._ranges import steps
from relax_aot.ops._size_lists import (
    ZERO,
    list_type,
    require_valid,
    wide,
)

# range_size: the number of elements of start, start + delta, ... before limit


def _range_type(start: TensorType, limit: TensorType, delta: TensorType) -> TensorType:
    types = (start, limit, delta)
    fits = all(t.dtype is start.dtype and t.elements == Dim.of(1) for t in types)
    require(fits, f"a range needs three numbers of one type, got {start}, {limit} and {delta}")
    return list_type(1)


def _only(buffer: Buffer) -> Load:
    return buffer[(Dim.of(0),) * buffer.rank]


def _range_lower(k: KernelBuilder, start: Buffer, limit: Buffer, delta: Buffer, y: Buffer) -> None:
    if start.dtype.is_float:
        begin, end, apart = (
            v if v.dtype is DType.F64 else Cast(v, DType.F64)
            for v in (_only(start), _only(limit), _only(delta))
        )
        trips = apply("ceil", (end - begin) / apart)
        k.store(y[(Dim.of(0),)], apply("max", Cast(trips, DType.I64, "saturate"), ZERO))
        return
    first, last, step = (wide(_only(buffer)) for buffer in (start, limit, delta))
    named = k.local("step", DType.I64, step)
    valid = require_valid(k, binary("!=", named, 0))
    reach = Select(binary("<", ZERO, named), last - first + named - 1, first - last - named - 1)
    k.store(y[(valid,)], apply("max", reach / apply("abs", named), ZERO))


def _range_reference(start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (v.reshape(-1)[0].item() for v in (start, limit, delta))
    if is_float(start):
        return np.array([max(ceil((last - first) / step), 0)], np.int64)
    return np.array([len(range(first, last, step))], np.int64)


RANGE = Op(
    "range_size",
    _range_type,
    _range_lower,
    _range_reference,
    lambda rng: (
        [
            Sample(tuple(np.array(v) for v in values))
            for values in ((1, 10, 3), (10, 0, -3), (5, 5, 1), (3, 9, -1))
        ]
        + [Sample(tuple(np.array(v, np.float32) for v in (1, 5, 1.5)))]
    ),
    value_range=steps,
)


# range_from: start, start + delta, ...


def _from_type(start: TensorType, delta: TensorType, *, length: int | Dim) -> TensorType:
    require_one_type("range_from", start, delta)
    return TensorType(start.dtype, (Dim.of(length),))


def _from_lower(
    k: KernelBuilder, start: Buffer, delta: Buffer, y: Buffer, *, length: int | Dim
) -> None:
    with k.loops(length) as (i,):
        turn = Cast(Index(i), y.dtype) if y.dtype is not DType.I64 else Index(i)
        k.store(y[(i,)], _only(start) + turn * _only(delta))


FROM = Op(
    "range_from",
    _from_type,
    _from_lower,
    lambda start, delta, *, length: (start + np.arange(int(length)) * delta).astype(start.dtype),
    lambda rng: [
        Sample((np.array(3), np.array(-2)), {"length": 5}, sizes=("length",)),
        Sample((np.array(0.5, np.float32), np.array(0.25, np.float32)), {"length": 4}),
    ],
    conditions=not_negative("length"),
)

OPS = (RANGE, FROM)
