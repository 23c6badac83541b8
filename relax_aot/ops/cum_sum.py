"""cum_sum: the running sum along one axis, from the end with `reverse`; with `exclusive`
an element's own value is not yet in it.

Half-precision sums are kept in f32 and rounded where they are stored.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.loops import Buffer, as_expr
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, normal_axis, require


def deduce(
    x: TensorType, *, axis: int, exclusive: bool = False, reverse: bool = False
) -> TensorType:
    require(x.dtype is not DType.BOOL, f"cum_sum needs numbers, got {x}")
    normal_axis(axis, x.rank)
    return x


def lower(
    k: KernelBuilder,
    x: Buffer,
    y: Buffer,
    *,
    axis: int,
    exclusive: bool = False,
    reverse: bool = False,
) -> None:
    along = normal_axis(axis, x.rank)
    length = x.shape[along]
    with k.loops(*x.shape[:along], *x.shape[along + 1 :]) as rest:
        total = k.local("total", x.dtype, as_expr(0, x.dtype))
        with k.loops(length) as (step,):
            place = length - 1 - step if reverse else step
            at = (*rest[:along], place, *rest[along:])
            if exclusive:
                k.store(y[at], total)
            k.assign(total, total + x[at])
            if not exclusive:
                k.store(y[at], total)


def reference(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    wide = x.astype(np.float64) if DType.of(x.dtype).is_float else x
    turned = np.flip(wide, axis) if reverse else wide
    total = np.cumsum(turned, axis=axis, dtype=wide.dtype)
    if exclusive:
        zero = np.zeros_like(np.take(total, [], axis=axis), shape=_one(total.shape, axis))
        total = np.concatenate([zero, total], axis=axis).take(range(x.shape[axis]), axis=axis)
    return np.asarray(np.flip(total, axis) if reverse else total).astype(x.dtype)


def _one(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    at = normal_axis(axis, len(shape))
    return (*shape[:at], 1, *shape[at + 1 :])


def samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(3, 5, 2)).astype(np.float32)
    forms = [
        Sample((x,), {"axis": axis, "exclusive": exclusive, "reverse": reverse})
        for axis in (0, 1, -1)
        for exclusive in (False, True)
        for reverse in (False, True)
    ]
    special = np.array([1, np.inf, 2, -np.inf, 3], np.float32)
    return [
        *forms,
        Sample((special,), {"axis": 0, "exclusive": True}),
        Sample((rng.integers(-2000, 2000, (6,)).astype(np.int16),), {"axis": 0}),
        Sample((np.array([2**62, 2**62, 5]),), {"axis": 0}),
        Sample((rng.integers(0, 9, (4,)).astype(np.uint32),), {"axis": 0, "reverse": True}),
        Sample((rng.normal(size=(4,)).astype(np.float16),), {"axis": 0}, rtol=1e-3, atol=1e-3),
        Sample((np.zeros((3, 0), np.float32),), {"axis": 1, "exclusive": True}),
        Sample((np.zeros((0, 3), np.float32),), {"axis": 1}),
    ]


OP = Op("cum_sum", deduce, lower, reference, samples)
