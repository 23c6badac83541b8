# SPDX-License-Identifier: Apache-2.0
"""reverse_sequence: reverses the first lens[b] elements along the time axis.

A length outside 0..time ends the run with a status.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_equal, normal_axis, require


def _axes(rank: int, batch_axis: int, time_axis: int) -> tuple[int, int]:
    batch = normal_axis(batch_axis, rank, "batch_axis")
    time = normal_axis(time_axis, rank, "time_axis")
    require(batch != time, "reverse_sequence needs two different axes")
    return batch, time


def deduce(
    x: TensorType, lens: TensorType, *, batch_axis: int = 1, time_axis: int = 0
) -> TensorType:
    _axes(x.rank, batch_axis, time_axis)
    fits = lens.rank == 1 and lens.dtype.is_int
    require(fits, f"reverse_sequence needs one integer length per batch, got {lens}")
    return x


def conditions(
    x: TensorType, lens: TensorType, *, batch_axis: int = 1, time_axis: int = 0
) -> list[Condition]:
    batch, _ = _axes(x.rank, batch_axis, time_axis)
    return [must_equal(lens.shape[0], x.shape[batch], "reverse_sequence: one length per batch")]


def lower(
    k: KernelBuilder, x: Buffer, lens: Buffer, y: Buffer, *, batch_axis: int = 1, time_axis: int = 0
) -> None:
    batch, time = _axes(x.rank, batch_axis, time_axis)
    others = [size for axis, size in enumerate(x.shape) if axis not in (batch, time)]
    with k.loops(x.shape[batch]) as (b,):
        length = k.index("length", lens[(b,)], 0, x.shape[time])

        def at(moment: Dim, rest: tuple[Dim, ...]) -> tuple[Dim, ...]:
            where = list(rest)
            for axis, index in sorted([(batch, b), (time, moment)], key=lambda pair: pair[0]):
                where.insert(axis, index)
            return tuple(where)

        with k.span(0, length) as t, k.loops(*others) as rest:
            k.store(y[at(t, rest)], x[at(length - 1 - t, rest)])
        with k.span(length, x.shape[time]) as t, k.loops(*others) as rest:
            k.store(y[at(t, rest)], x[at(t, rest)])


def reference(x: Array, lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    moved = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    y = moved.copy()
    for batch, length in enumerate(lens):
        if not 0 <= length <= moved.shape[1]:
            raise IndexError(f"length {length} is outside 0..{moved.shape[1]}")
        y[batch, :length] = moved[batch, :length][::-1]
    return np.ascontiguousarray(np.moveaxis(y, (0, 1), (batch_axis, time_axis)))


def samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(5, 4)).astype(np.float32)
    deep = rng.integers(-99, 99, (3, 5, 2)).astype(np.int8)
    return [
        Sample((x, np.array([1, 5, 3, 0]))),
        Sample((x, np.array([4, 1, 2, 3, 0])), {"batch_axis": 0, "time_axis": 1}),
        Sample((deep, np.array([0, 3], np.int32)), {"batch_axis": -1, "time_axis": 0}),
        Sample((deep, np.array([2, 0, 1, 2, 2])), {"batch_axis": 1, "time_axis": 2}),
        Sample((np.zeros((0, 3), np.float32), np.zeros(3, np.int64))),
    ]


OP = Op(
    "reverse_sequence", deduce, lower, reference, samples, conditions=conditions, traits=Trait.MOVES
)
