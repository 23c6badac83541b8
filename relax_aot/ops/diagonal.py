# SPDX-License-Identifier: Apache-2.0
"""trilu: one triangle of a matrix; eye: ones on a diagonal; diagonal: the elements of a diagonal.

The diagonal is `column == row + k`. Its own elements belong to both sides. For trilu k may be
a dynamic integer.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Index, Select, as_expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_equal, not_negative, require


def _trilu_type(
    x: TensorType, offset: TensorType | None = None, *, k: int | Dim = 0, upper: bool = True
) -> TensorType:
    require(x.rank >= 2, f"trilu needs at least two axes, got {x}")
    one = offset is None or (offset.dtype is DType.I64 and offset.elements == Dim.of(1))
    require(one, f"trilu needs one i64 as its offset, got {offset}")
    return x


def _trilu_lower(
    builder: KernelBuilder,
    x: Buffer,
    *rest: Buffer | None,
    k: int | Dim = 0,
    upper: bool = True,
) -> None:
    *optional, y = rest
    assert y is not None
    offset = optional[0] if optional else None
    with builder.loops(*y.shape) as at:
        if offset is None:
            diagonal, column = at[-2] + Dim.of(k), at[-1]
            kept = binary("<=", diagonal, column) if upper else binary("<=", column, diagonal)
        else:
            # column - row is small, so that no offset overflows.
            apart, far = Index(at[-1] - at[-2]), offset[(Dim.of(0),) * offset.rank]
            kept = far <= apart if upper else apart <= far
        builder.store(y[at], Select(kept, x[at], as_expr(0, x.dtype)))


def _trilu_reference(
    x: Array, offset: Array | None = None, *, k: int = 0, upper: bool = True
) -> Array:
    row, column = np.ogrid[: x.shape[-2], : x.shape[-1]]
    apart, far = column - row, k if offset is None else int(offset.reshape(()))
    return np.where(apart >= far if upper else apart <= far, x, np.zeros_like(x))


def _trilu_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.normal(size=(2, 4, 5)).astype(np.float32)
    sides = [
        Sample((x,), {"k": k, "upper": upper}) for k in (-9, -1, 0, 2, 9) for upper in (True, False)
    ]
    special = np.array([[np.nan, np.inf], [-np.inf, np.nan]], np.float32)
    given = [
        Sample((x, np.array(k)), {"upper": upper})
        for k in (-(2**63), -1, 0, 3, 2**63 - 1)
        for upper in (True, False)
    ]
    return [
        *sides,
        *given,
        Sample((x,), {"k": 2, "upper": True}, ("k",)),
        Sample((special,), {"upper": True}),
        Sample((rng.integers(-9, 9, (3, 2)),), {"upper": False}),
        Sample((np.ones((3, 4), np.bool_),), {"k": 1, "upper": True}),
        Sample((np.zeros((0, 4), np.int8),)),
    ]


def _eye_type(*, rows: int | Dim, columns: int | Dim, k: int | Dim = 0, dtype: DType) -> TensorType:
    return TensorType(dtype, (Dim.of(rows), Dim.of(columns)))


def _eye_lower(
    builder: KernelBuilder,
    y: Buffer,
    *,
    rows: int | Dim,
    columns: int | Dim,
    k: int | Dim = 0,
    dtype: DType,
) -> None:
    with builder.loops(*y.shape) as (row, column):
        hot = binary("==", row + Dim.of(k), column)
        builder.store(y[(row, column)], Select(hot, as_expr(1, dtype), as_expr(0, dtype)))


def _eye_reference(*, rows: int, columns: int, k: int = 0, dtype: DType) -> Array:
    return np.eye(int(rows), int(columns), int(k), dtype=dtype.numpy)


def _eye_samples(rng: np.random.Generator) -> list[Sample]:
    sizes = ("rows", "columns")
    return [
        Sample((), {"rows": 3, "columns": 5, "k": 0, "dtype": DType.F32}, sizes),
        Sample((), {"rows": 4, "columns": 2, "k": -1, "dtype": DType.I64}, sizes),
        Sample((), {"rows": 2, "columns": 4, "k": 3, "dtype": DType.BOOL}, (*sizes, "k")),
        Sample((), {"rows": 2, "columns": 2, "k": 7, "dtype": DType.U8}, sizes),
        Sample((), {"rows": 0, "columns": 3, "k": 0, "dtype": DType.F64}, sizes),
    ]


def _diagonal_type(x: TensorType) -> TensorType:
    require(x.rank >= 2, f"diagonal needs at least two axes, got {x}")
    return TensorType(x.dtype, x.shape[:-1])


def _diagonal_conditions(x: TensorType) -> list[Condition]:
    return [must_equal(x.shape[-1], x.shape[-2], "the sizes of a diagonal")]


def _diagonal_lower(builder: KernelBuilder, x: Buffer, y: Buffer) -> None:
    with builder.loops(*y.shape) as at:
        builder.store(y[at], x[(*at, at[-1])])


def _diagonal_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.normal(size=(3, 5, 5)).astype(np.float32),)),
        Sample((np.arange(9).reshape(3, 3),)),
        Sample((np.zeros((0, 0), np.int8),)),
    ]


OPS = (
    Op(
        "diagonal",
        _diagonal_type,
        _diagonal_lower,
        lambda x: np.diagonal(x, axis1=-2, axis2=-1).copy(),
        _diagonal_samples,
        conditions=_diagonal_conditions,
        any_type=True,
    ),
    Op("trilu", _trilu_type, _trilu_lower, _trilu_reference, _trilu_samples, traits=Trait.EXACT),
    Op(
        "eye",
        _eye_type,
        _eye_lower,
        _eye_reference,
        _eye_samples,
        conditions=not_negative("rows", "columns"),
        traits=Trait.EXACT,
    ),
)
