# SPDX-License-Identifier: Apache-2.0
"""where, clip, fill, range, shape_of and size_of."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, apply
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    all_operands,
    broadcast,
    broadcast_conditions,
    code_limits,
    not_negative,
    plainly,
    require,
    spread,
)
from relax_aot.ops._ranges import clipped, union

Sizes = Sequence[int | Dim]


def _where_type(c: TensorType, x: TensorType, y: TensorType) -> TensorType:
    require(c.dtype is DType.BOOL, f"where needs a bool condition, got {c}")
    require(x.dtype is y.dtype, f"where needs equal element types, got {x} and {y}")
    return TensorType(x.dtype, broadcast(c.shape, x.shape, y.shape))


def _where_lower(k: KernelBuilder, c: Buffer, x: Buffer, y: Buffer, z: Buffer) -> None:
    with k.loops(*z.shape) as at:
        condition, *loads = (b[spread(at, b.shape)] for b in (c, x, y))
        # Loaded whatever the condition: where GCC 12 makes masked loads of two arms by booleans
        # of a byte each (-O3 -mavx2), it mixes up the lanes.
        arms = [k.local("value", z.dtype, load) for load in loads]
        k.store(z[at], Select(condition, arms[0], arms[1]))


def _where_symbolic(_bounds: Bounds, c: Array, x: Array, y: Array) -> Array | None:
    if any(isinstance(v, Condition) for v in c.flat):
        return None
    return np.where(c.astype(bool), x, y)


WHERE = Op(
    "where",
    _where_type,
    _where_lower,
    lambda c, x, y: np.where(c, x, y),
    lambda rng: [
        Sample((rng.integers(0, 2, (3, 1)).astype(np.bool_),
                rng.normal(size=(5,)).astype(np.float32), np.array(2, np.float32))),
        Sample((np.array(True), rng.integers(0, 9, (2, 3)), rng.integers(0, 9, (3,)))),
    ],
    conditions=broadcast_conditions, broadcasts=all_operands,
    symbolic=_where_symbolic,
    any_type=True, value_range=lambda _c, x, y: union(x, y)
)  # fmt: skip


def _clip_type(
    x: TensorType, low: TensorType | None = None, high: TensorType | None = None
) -> TensorType:
    for limit in (low, high):
        ok = limit is None or (limit.dtype is x.dtype and limit.elements == Dim.of(1))
        require(ok, f"clip needs one limit of type {x.dtype.value}, got {limit}")
    return x


def _clip_lower(
    k: KernelBuilder, x: Buffer, low: Buffer | None, high: Buffer | None, y: Buffer
) -> None:
    with k.loops(*y.shape) as at:
        value: Expr = x[at]
        if low is not None:
            value = apply("max", value, low[(Dim.of(0),) * low.rank])
        if high is not None:
            value = apply("min", value, high[(Dim.of(0),) * high.rank])
        k.store(y[at], value)


def _clip_reference(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    if low is not None:
        x = np.maximum(x, low.reshape(()))
    return x if high is None else np.minimum(x, high.reshape(()))


CLIP = Op(
    "clip",
    _clip_type,
    _clip_lower,
    _clip_reference,
    lambda rng: [
        Sample(
            (
                rng.normal(size=(3, 4)).astype(np.float32),
                np.array(-0.5, np.float32),
                np.array(0.5, np.float32),
            )
        ),
        Sample((rng.integers(-9, 9, (5,)).astype(np.int8), None, np.array(3, np.int8))),
        Sample((np.array([np.nan, np.inf], np.float32), np.array(0, np.float32), None)),
    ],
    traits=Trait.QUANTIZABLE | Trait.EXACT,
    value_range=clipped,
    quantization={"low": code_limits, "high": code_limits},
)


def _fill_type(*, shape: Sizes, value: float | int | bool, dtype: DType) -> TensorType:
    return TensorType(dtype, tuple(Dim.of(n) for n in shape))


def _fill_lower(
    k: KernelBuilder, y: Buffer, *, shape: Sizes, value: float | int | bool, dtype: DType
) -> None:
    with k.loops(*y.shape) as at:
        number = float(value) if dtype.is_float else int(value) if dtype.is_int else bool(value)
        k.store(y[at], Lit(number, dtype))


def _fill_reference(*, shape: Sizes, value: float | int | bool, dtype: DType) -> Array:
    return np.broadcast_to(np.array(value).astype(dtype.numpy), [int(n) for n in shape])


FILL = Op(
    "fill",
    _fill_type,
    _fill_lower,
    _fill_reference,
    lambda rng: [
        Sample((), {"shape": (2, 3), "value": 1.5, "dtype": DType.F32}, symbolic=False),
        Sample((), {"shape": (), "value": 7, "dtype": DType.I64}, symbolic=False),
    ],
    conditions=not_negative("shape"),
    symbolic=plainly(
        lambda *, shape, value, dtype: np.full([int(n) for n in shape], value, object)
    ),
    traits=Trait.EXACT,
)


def _range_type(
    *, start: Dim | int | float, step: int | float, length: Dim | int, dtype: DType
) -> TensorType:
    return TensorType(dtype, (Dim.of(length),))


def _range_lower(
    k: KernelBuilder,
    y: Buffer,
    *,
    start: Dim | int | float,
    step: int | float,
    length: Dim | int,
    dtype: DType,
) -> None:
    with k.loops(*y.shape) as at:
        if isinstance(start, float) or isinstance(step, float):
            place = Cast(Index(at[0]), dtype)
            k.store(y[at], place * float(step) + float(start))  # type: ignore[arg-type]
        else:
            k.store(y[at], Cast(Index(at[0] * step + start), dtype))


def _range_reference(
    *, start: Dim | int | float, step: int | float, length: Dim | int, dtype: DType
) -> Array:
    begin = start if isinstance(start, float) else int(start)
    return (begin + np.arange(int(length)) * step).astype(dtype.numpy)


RANGE = Op(
    "range",
    _range_type,
    _range_lower,
    _range_reference,
    lambda rng: [
        Sample((), {"start": 3, "step": -2, "length": 5, "dtype": DType.I64}, symbolic=False),
        Sample((), {"start": 0.5, "step": 0.25, "length": 4, "dtype": DType.F32}, symbolic=False),
    ],
    conditions=not_negative("length"),
    symbolic=lambda _bounds, *, start, step, length, dtype: np.array(
        [start + step * i for i in range(int(length))] + [None], object
    )[:-1],
)


def _shape_type(x: TensorType) -> TensorType:
    return TensorType(DType.I64, (Dim.of(x.rank),))


def _shape_lower(k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    for axis, size in enumerate(x.shape):
        k.store(y[(Dim.of(axis),)], Index(size))


SHAPE = Op(
    "shape_of",
    _shape_type,
    _shape_lower,
    lambda x: np.array(x.shape, np.int64),
    lambda rng: [Sample((np.zeros((2, 5), np.float32),)), Sample((np.array(1, np.float32),))],
    symbolic=plainly(lambda sizes: sizes),
    any_type=True,
)


def _size_lower(k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    k.store(y[()], Index(x.type.elements))


SIZE = Op(
    "size_of",
    lambda x: TensorType(DType.I64, ()),
    _size_lower,
    lambda x: np.array(x.size, np.int64),
    lambda rng: [Sample((np.zeros((2, 5), np.float32),)), Sample((np.array(1, np.float32),))],
    symbolic=plainly(lambda sizes: np.array(prod(sizes, start=Dim.of(1)), object)),
    any_type=True,
)

OPS = (WHERE, CLIP, FILL, RANGE, SHAPE, SIZE)
