# SPDX-License-Identifier: Apache-2.0
"""max_unpool: zeros, with the elements of x at the indices from max_pool_with_indices.

An index counts the elements of the result row by row, through batch and channels, as in ONNX
Runtime and (within a channel) PyTorch. ONNX's reference evaluator counts the elements of the shape
that it infers, and copies that into the corner of a larger result.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_fit, must_not_exceed, require

Sizes = Sequence[int | Dim]


def _type(x: TensorType, places: TensorType, *, sizes: Sizes) -> TensorType:
    require(places.dtype is DType.I64, f"max_unpool needs int64 indices, got {places}")
    fits = x.rank >= 3 and places.rank == x.rank == len(sizes)
    require(fits, f"max_unpool cannot take {x} at {places}")
    return TensorType(x.dtype, tuple(map(Dim.of, sizes)))


def _conditions(x: TensorType, places: TensorType, *, sizes: Sizes) -> list[Condition]:
    return [
        *must_fit(x, places.shape, "max_unpool's indices"),
        *(must_not_exceed(0, a, "max_unpool's size") for a in map(Dim.of, sizes)),
    ]


def _lower(k: KernelBuilder, x: Buffer, places: Buffer, y: Buffer, *, sizes: Sizes) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], 0.0 if y.dtype.is_float else 0)
    total = prod(map(Dim.of, sizes), start=Dim.of(1))
    with k.loops(*x.shape) as at:
        rest = k.index("place", places[at], 0, total - 1)
        where: list[Dim] = []
        for size in reversed([Dim.of(n) for n in sizes]):
            where.append(k.let("w", rest % size))
            rest = rest // size
        k.store(y[tuple(reversed(where))], x[at])


def _reference(x: Array, places: Array, *, sizes: Sequence[int]) -> Array:
    y = np.zeros([int(n) for n in sizes], x.dtype)
    y.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    return y


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Sample:
        places = rng.permutation(prod(sizes))[: prod(shape)].reshape(shape)
        x = rng.normal(size=shape).astype(np.float32)
        return Sample((x, places.astype(np.int64)), {"sizes": sizes}, sizes=("sizes",))

    return [
        case((1, 1, 2, 2), (1, 1, 4, 4)),
        case((2, 3, 2, 4), (2, 3, 6, 9)),
        case((1, 2, 3), (1, 2, 7)),
    ]


OP = Op(
    "max_unpool", _type, _lower, _reference, _samples, conditions=_conditions, traits=Trait.EXACT
)
