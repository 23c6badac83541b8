# SPDX-License-Identifier: Apache-2.0
"""det: determinants by Gaussian elimination with partial pivoting.

Half precision is worked out in f32.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, require
from relax_aot.ops._samples import normals


def deduce(x: TensorType) -> TensorType:
    require(x.dtype.is_float and x.rank >= 2, f"det needs float matrices, got {x}")
    return TensorType(x.dtype, x.shape[:-2])


def conditions(x: TensorType) -> list[Condition]:
    return [must_equal(x.shape[-1], x.shape[-2], "the sizes of a determinant")]


def lower(k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    size = x.shape[-1]
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    rest = k.scratch("rest", wide, (size, size))
    with k.loops(*y.shape) as batch:
        with k.loops(size, size) as (i, j):
            value: Expr = x[(*batch, i, j)]
            k.store(rest[(i, j)], value if x.dtype is wide else Cast(value, wide))
        det = k.local("det", wide, 1.0)
        with k.loops(size) as (step,):
            best = k.local("best", DType.I64, Index(step))
            peak = k.local("peak", wide, apply("abs", rest[(step, step)]))
            with k.span(step + 1, size) as row:
                found = k.local("found", wide, apply("abs", rest[(row, step)]))
                with k.when(peak < found):
                    k.assign(peak, found)
                    k.assign(best, Index(row))
            pivot = k.index("pivot", best, 0, size - 1)
            with k.when(binary("<", step, pivot)):
                k.assign(det, -det)
                with k.loops(size) as (column,):
                    upper = k.local("upper", wide, rest[(step, column)])
                    k.store(rest[(step, column)], rest[(pivot, column)])
                    k.store(rest[(pivot, column)], upper)
            k.assign(det, det * rest[(step, step)])
            with k.when(~binary("==", rest[(step, step)], 0.0)), k.span(step + 1, size) as row:
                factor = k.local("factor", wide, rest[(row, step)] / rest[(step, step)])
                with k.span(step + 1, size) as column:
                    taken = binary("*", factor, rest[(step, column)])
                    k.store(rest[(row, column)], rest[(row, column)] - taken)
        k.store(y[batch], det if y.dtype is wide else Cast(det, y.dtype))


def reference(x: Array) -> Array:
    return np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)


def samples(rng: np.random.Generator) -> list[Sample]:
    normal = normals(rng)
    swapped = np.array([[0, 2, 1], [3, 0, 0], [1, 1, 5]], np.float32)
    singular = np.array([[1, 2], [2, 4]], np.float32)
    return [
        Sample((normal(5, 5),), rtol=1e-4, atol=1e-4),
        Sample((normal(2, 3, 4, 4),), rtol=1e-4, atol=1e-4),
        Sample((swapped,)),
        Sample((singular,)),
        Sample((np.zeros((3, 3), np.float32),)),
        Sample((normal(2, 1, 1),)),
        Sample((np.zeros((2, 0, 0), np.float32),)),
        Sample((rng.normal(size=(6, 6)),), rtol=1e-9, atol=1e-9),
        Sample((normal(3, 3).astype(np.float16),), rtol=1e-2, atol=1e-2),
    ]


OP = Op("det", deduce, lower, reference, samples, conditions=conditions)
