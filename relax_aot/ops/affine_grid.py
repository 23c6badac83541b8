# SPDX-License-Identifier: Apache-2.0
"""affine_grid: sampling positions for grid_sample, from one affine map per batch element.

Coordinates count from -1 to 1, from the centers of the outer elements (`align_corners`) or
from their outer edges; the last axis comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Select, binary
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    may_equal,
    must_equal,
    must_not_exceed,
    require,
)

Sizes = Sequence[int | Dim]


def _type(theta: TensorType, *, sizes: Sizes, align_corners: bool) -> TensorType:
    rank = len(sizes)
    fits = theta.rank == 3 and all(map(may_equal, theta.shape[1:], (rank, rank + 1)))
    require(fits and theta.dtype.is_float, f"affine_grid over {rank} axes cannot take {theta}")
    return TensorType(theta.dtype, (theta.shape[0], *map(Dim.of, sizes), Dim.of(rank)))


def _conditions(theta: TensorType, *, sizes: Sizes, **_attrs: Any) -> list[Condition]:
    maps = zip(theta.shape[1:], (len(sizes), len(sizes) + 1), strict=True)
    shape = [must_equal(n, m, "affine_grid's maps") for n, m in maps]
    return shape + [must_not_exceed(0, size, "affine_grid's size") for size in sizes]


def _lower(
    k: KernelBuilder, theta: Buffer, y: Buffer, *, sizes: Sizes, align_corners: bool
) -> None:
    *outer, rank = y.shape
    with k.loops(*outer) as (image, *at), k.loops(rank) as (row,):
        total = k.local("total", y.dtype, theta[(image, row, rank)])
        for column, axis in enumerate(reversed(range(len(at)))):
            place: Expr = Cast(Index(at[axis]), y.dtype)
            size = Cast(Index(y.shape[axis + 1]), y.dtype)
            if align_corners:
                single = binary("<=", Index(y.shape[axis + 1]), 1)
                value: Expr = Select(single, place - 1.0, place * 2.0 / (size - 1.0) - 1.0)
            else:
                value = (place * 2.0 + 1.0) / size - 1.0
            k.assign(total, total + theta[(image, row, Dim.of(column))] * value)
        k.store(y[(image, *at, row)], total)


def _reference(theta: Array, *, sizes: Sequence[int], align_corners: bool) -> Array:
    axes = []
    for n in map(int, sizes):
        if align_corners:
            axes.append(np.linspace(-1, 1, n))
        else:
            axes.append((2 * np.arange(n) + 1) / n - 1)
    mesh = np.meshgrid(*axes, indexing="ij")
    places = np.stack([*reversed(mesh), np.ones_like(mesh[0])], axis=-1)
    wide = theta.astype(np.float64)
    return np.asarray(np.einsum("nij,...j->n...i", wide, places)).astype(theta.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(batch: int, sizes: tuple[int, ...], align: bool) -> Sample:
        rank = len(sizes)
        theta = rng.normal(size=(batch, rank, rank + 1)).astype(np.float32)
        attrs = {"sizes": sizes, "align_corners": align}
        return Sample((theta,), attrs, sizes=("sizes",), fixed=(rank, rank + 1))

    return [
        case(2, (5, 6), False),
        case(2, (5, 6), True),
        case(1, (5, 6, 7), False),
        case(1, (5, 6, 7), True),
        case(5, (1, 7), True),
    ]


OP = Op("affine_grid", _type, _lower, _reference, _samples, conditions=_conditions)
