# SPDX-License-Identifier: Apache-2.0
"""cum_sum, cum_prod: cumulative sum or product along one axis. `reverse` starts at the end;
`exclusive` leaves out the element itself.

The axis is an attribute, or a dynamic integer. Half-precision totals are
kept in f32 and rounded where they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Buffer, Expr, as_expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, is_float, normal_axis, require
from relax_aot.ops.gather import wrapped_index

Step = Callable[[Expr, Expr], Expr]


def _running(name: str, start: int, step: Step, ufunc: np.ufunc) -> Op:
    def deduce(
        x: TensorType,
        along: TensorType | None = None,
        *,
        axis: int = 0,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> TensorType:
        require(x.dtype is not DType.BOOL, f"{name} needs numbers, got {x}")
        normal_axis(axis, x.rank)
        one = along is None or (along.dtype.is_int and along.elements == Dim.of(1))
        require(one, f"{name} needs an integer as its axis, got {along}")
        return x

    def lower(
        k: KernelBuilder,
        x: Buffer,
        *rest: Buffer | None,
        axis: int = 0,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> None:
        *optional, y = rest
        assert y is not None
        along = optional[0] if optional else None

        def nest(number: int) -> None:
            _nest(k, (x, y), number, start, step, exclusive=exclusive, reverse=reverse)

        if along is None:
            nest(normal_axis(axis, x.rank))
            return
        chosen = wrapped_index(k, "axis", along[(Dim.of(0),) * along.rank], Dim.of(x.rank))
        for number in range(x.rank):
            with k.when(binary("==", chosen, number)):
                nest(number)

    def reference(
        x: Array,
        along: Array | None = None,
        *,
        axis: int = 0,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> Array:
        if along is not None:
            axis = int(along.reshape(()))
        wide = x.astype(np.float64) if is_float(x) else x
        flipped = np.flip(wide, axis) if reverse else wide
        total = ufunc.accumulate(flipped, axis=axis, dtype=wide.dtype)
        if exclusive:
            first = np.full(_one(total.shape, axis), start, total.dtype)
            total = np.concatenate([first, total], axis=axis).take(range(x.shape[axis]), axis=axis)
        return np.asarray(np.flip(total, axis) if reverse else total).astype(x.dtype)

    return Op(name, deduce, lower, reference, _samples)


def _nest(
    k: KernelBuilder,
    buffers: tuple[Buffer, Buffer],
    axis: int,
    start: int,
    step: Step,
    *,
    exclusive: bool,
    reverse: bool,
) -> None:
    x, y = buffers
    length = x.shape[axis]
    # -0 + x is x for every x, so that the first sum is the first element, as in NumPy.
    first = -0.0 if start == 0 and x.dtype.is_float and not exclusive else start
    with k.loops(*x.shape[:axis], *x.shape[axis + 1 :]) as rest:
        total = k.local("total", x.dtype, as_expr(first, x.dtype))
        with k.loops(length) as (number,):
            place = length - 1 - number if reverse else number
            at = (*rest[:axis], place, *rest[axis:])
            if exclusive:
                k.store(y[at], total)
            k.assign(total, step(total, x[at]))
            if not exclusive:
                k.store(y[at], total)


def _one(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    at = normal_axis(axis, len(shape))
    return (*shape[:at], 1, *shape[at + 1 :])


def _samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(3, 5, 2)).astype(np.float32)
    forms: list[dict[str, Any]] = [
        {"axis": axis, "exclusive": exclusive, "reverse": reverse}
        for axis in (0, 1, -1)
        for exclusive in (False, True)
        for reverse in (False, True)
    ]
    chosen = [
        Sample((x, np.array(axis, kind)), {"exclusive": axis == 1, "reverse": axis < 0})
        for axis in (0, 1, 2, -1, -3)
        for kind in (np.int32, np.int64)
    ]
    special = np.array([1, np.inf, 2, -np.inf, 3], np.float32)
    return [
        *(Sample((x,), form) for form in forms),
        *chosen,
        Sample((special,), {"axis": 0, "exclusive": True}),
        Sample((rng.integers(-2000, 2000, (6,)).astype(np.int16),), {"axis": 0}),
        Sample((np.array([2**62, 2**62, 5]),), {"axis": 0}),
        Sample((rng.integers(0, 9, (4,)).astype(np.uint32),), {"axis": 0, "reverse": True}),
        Sample((rng.normal(size=(4,)).astype(np.float16),), {"axis": 0}, rtol=1e-3, atol=1e-3),
        Sample((np.zeros((3, 0), np.float32),), {"axis": 1, "exclusive": True}),
        Sample((np.zeros((0, 3), np.float32),), {"axis": 1}),
    ]


OPS = (
    _running("cum_sum", 0, lambda total, value: total + value, np.add),
    _running("cum_prod", 1, lambda total, value: total * value, np.multiply),
)
