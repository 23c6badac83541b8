# SPDX-License-Identifier: Apache-2.0
"""match_cast: asserts that a tensor has a given shape.

What is not proved of them is checked on entry; no byte moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_fit, require

Sizes = Sequence[Dim | int]


def deduce(x: TensorType, *, shape: Sizes) -> TensorType:
    require(len(shape) == x.rank, f"match_cast keeps the rank, got {x} and {len(shape)} sizes")
    return TensorType(x.dtype, tuple(Dim.of(size) for size in shape))


def conditions(x: TensorType, *, shape: Sizes) -> list[Condition]:
    return must_fit(TensorType(x.dtype, tuple(map(Dim.of, shape))), x.shape)


def lower(k: KernelBuilder, x: Buffer, y: Buffer, *, shape: Sizes) -> None:
    with k.loops(*y.shape) as at:
        k.store(y[at], x[at])


def reference(x: Array, *, shape: Sequence[int]) -> Array:
    assert x.shape == tuple(shape)
    return x


def samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [(3,), (2, 5), (1, 4, 2), ()]
    return [
        Sample((rng.normal(size=s).astype(np.float32),), {"shape": s}, sizes=("shape",))
        for s in shapes
    ]


OP = Op(
    "match_cast",
    deduce,
    lower,
    reference,
    samples,
    conditions=conditions,
    view=True,
    traits=Trait.MOVES | Trait.SAME,
)
