# SPDX-License-Identifier: Apache-2.0
"""Products of quantized values that are both computed while a model runs, as those of attention
over quantized caches.

    matmul_scaled   y[..., m, n] = (sum of x[..., m, k] * w[..., k, n]) * rows[..., m]
                    * columns[..., n]

`x` and `w` are made by quantize_rows: `x` of 8 or 16 bits with the scales `rows`, `w` of 8 bits,
with the scales `columns` if they do not vary with k. Sums have 32 bits: k times the greatest
magnitudes of `x` and `w` must be below 2^31.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Sample,
    Trait,
    broadcast,
    broadcast_conditions,
    must_equal,
    require,
    spread,
)
from relax_aot.ops._samples import integers

WIDTHS = (DType.I8, DType.I16)


def _type(
    x: TensorType, w: TensorType, rows: TensorType, columns: TensorType | None = None
) -> TensorType:
    known = x.dtype in WIDTHS and w.dtype is DType.I8 and x.rank >= 2 and w.rank >= 2
    require(known, f"matmul_scaled of {x} by {w}")
    for scales, factor in ((rows, x), (columns, w)):
        fits = scales is None or (scales.dtype is DType.F32 and scales.rank == factor.rank - 1)
        require(fits, f"matmul_scaled: scales {scales} of {factor}")
    inner = (x.shape[-1], w.shape[-2])
    both = all(size.is_constant for size in inner)
    require(not both or inner[0] == inner[1], f"matmul_scaled of {x} by {w}")
    batch = broadcast(x.shape[:-2], w.shape[:-2])
    return TensorType(DType.F32, (*batch, x.shape[-2], w.shape[-1]))


def _conditions(
    x: TensorType, w: TensorType, rows: TensorType, columns: TensorType | None = None
) -> list[Condition]:
    what = "matmul_scaled's inner sizes"
    found = [must_equal(x.shape[-1], w.shape[-2], what)]
    found += broadcast_conditions(*(TensorType(t.dtype, t.shape[:-2]) for t in (x, w)))
    pairs = list(zip(rows.shape, x.shape[:-1], strict=True))
    if columns is not None:
        pairs += zip(columns.shape, (*w.shape[:-2], w.shape[-1]), strict=True)
    return found + [must_equal(a, b, "matmul_scaled's scales") for a, b in pairs]


def _lower(
    k: KernelBuilder, x: Buffer, w: Buffer, rows: Buffer, columns: Buffer | None, y: Buffer
) -> None:
    with k.loops(*y.shape) as at:
        *batch, row, column = at
        left, right = (spread(tuple(batch), one.shape[:-2]) for one in (x, w))
        total = k.local("total", DType.I32, Lit(0, DType.I32))
        with k.loops(x.shape[-1]) as (j,):
            factors = x[(*left, row, j)], w[(*right, j, column)]
            one, other = (Cast(factor, DType.I32) for factor in factors)
            k.assign(total, total + one * other)
        value: Expr = Cast(total, DType.F32) * rows[(*left, row)]
        k.store(y[at], value if columns is None else value * columns[(*right, column)])


def _reference(x: Array, w: Array, rows: Array, columns: Array | None = None) -> Array:
    y = np.matmul(x.astype(np.float64), w.astype(np.float64)) * rows[..., None]
    if columns is not None:
        y = y * columns[..., None, :]
    doubles = rows.dtype == np.float64  # of an error model
    return np.asarray(y if doubles else y.astype(np.float32))


def _samples(rng: np.random.Generator) -> list[Sample]:
    random = integers(rng)

    def scales(*shape: int) -> Array:
        return rng.uniform(0.1, 1, shape).astype(np.float32)

    i8, i16 = np.int8, np.int16
    return [
        Sample((random(i16, 3, 5), random(i8, 5, 4), scales(3), scales(4)), rtol=1e-6),
        Sample((random(i8, 3, 5), random(i8, 5, 4), scales(3)), rtol=1e-6),
        Sample(
            (random(i16, 2, 3, 1, 9), random(i8, 2, 1, 9, 6), scales(2, 3, 1), scales(2, 1, 6)),
            rtol=1e-6,
        ),
    ]


OP = Op(
    "matmul_scaled", _type, _lower, _reference, _samples, conditions=_conditions,
    traits=Trait.QUANTIZED | Trait.ROUNDS,
)  # fmt: skip
