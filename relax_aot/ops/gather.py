# SPDX-License-Identifier: Apache-2.0
"""Reads at data-dependent indices. A negative index counts from the end; an index outside the
axis ends the run with a status."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, Select, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_equal, normal_axis, require


def wrapped_index(k: KernelBuilder, name: str, value: Expr, size: Dim) -> Dim:
    """An index from data, wrapped once where it is negative, checked against `size`."""
    wide = k.local(f"{name}_raw", DType.I64, Cast(value, DType.I64))
    shifted = Select(binary("<", wide, Lit(0, DType.I64)), binary("+", wide, Index(size)), wide)
    return k.index(name, shifted, 0, size - 1)


def _is_index(type_: TensorType) -> bool:
    return type_.dtype.is_int


def _gather_type(x: TensorType, indices: TensorType, *, axis: int = 0) -> TensorType:
    require(_is_index(indices), f"gather needs integer indices, got {indices}")
    at = normal_axis(axis, x.rank)
    return TensorType(x.dtype, x.shape[:at] + indices.shape + x.shape[at + 1 :])


def _gather_lower(
    k: KernelBuilder, x: Buffer, indices: Buffer, y: Buffer, *, axis: int = 0
) -> None:
    at_axis = normal_axis(axis, x.rank)
    with k.loops(*indices.shape) as chosen:
        index = wrapped_index(k, "at", indices[chosen], x.shape[at_axis])
        with k.loops(*x.shape[:at_axis], *x.shape[at_axis + 1 :]) as rest:
            before, after = rest[:at_axis], rest[at_axis:]
            k.store(y[before + chosen + after], x[(*before, index, *after)])


def _gather_symbolic(_bounds: Bounds, x: Array, indices: Array, *, axis: int = 0) -> Array | None:
    if any(not isinstance(i, int) for i in indices.flat):
        return None
    return np.asarray(np.take(x, indices.astype(np.int64), axis=axis), object)


GATHER = Op(
    "gather",
    _gather_type,
    _gather_lower,
    lambda x, indices, *, axis=0: np.take(x, indices, axis=axis),
    lambda rng: [
        Sample((rng.normal(size=(5, 3)).astype(np.float32), np.array([[0, -1], [2, 4]])),
               {"axis": 0}, symbolic=False),
        Sample((rng.normal(size=(2, 7, 3)).astype(np.float32), np.array([6, 0], np.int32)),
               {"axis": 1}, symbolic=False),
        Sample((rng.normal(size=(5,)).astype(np.float32), np.array(3)), {"axis": 0},
               symbolic=False),
    ],
    symbolic=_gather_symbolic,
    any_type=True, traits=Trait.MOVES
)  # fmt: skip


def _elements_type(x: TensorType, indices: TensorType, *, axis: int = 0) -> TensorType:
    require(_is_index(indices), f"gather_elements needs integer indices, got {indices}")
    require(indices.rank == x.rank, f"gather_elements needs equal ranks, got {x} and {indices}")
    return TensorType(x.dtype, indices.shape)


def _elements_conditions(x: TensorType, indices: TensorType, *, axis: int = 0) -> list[Any]:
    from relax_aot.ops._op import must_not_exceed

    at = normal_axis(axis, x.rank)
    pairs = enumerate(zip(indices.shape, x.shape, strict=True))
    return [must_not_exceed(i, n, "gather_elements") for axis_, (i, n) in pairs if axis_ != at]


def _elements_lower(
    k: KernelBuilder, x: Buffer, indices: Buffer, y: Buffer, *, axis: int = 0
) -> None:
    at_axis = normal_axis(axis, x.rank)
    with k.loops(*indices.shape) as at:
        index = wrapped_index(k, "at", indices[at], x.shape[at_axis])
        k.store(y[at], x[(*at[:at_axis], index, *at[at_axis + 1 :])])


def _elements_reference(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Other axes of the indices may be shorter than those of x."""
    at = normal_axis(axis, x.ndim)
    near = (slice(None if i == at else size) for i, size in enumerate(indices.shape))
    return np.take_along_axis(x[tuple(near)], indices, axis=at)


GATHER_ELEMENTS = Op(
    "gather_elements",
    _elements_type,
    _elements_lower,
    _elements_reference,
    lambda rng: [
        Sample((rng.normal(size=(4, 3)).astype(np.float32), rng.integers(-3, 3, (rows, 2))),
               {"axis": 1}, symbolic=False)
        for rows in (4, 3, 1)
    ],
    conditions=_elements_conditions,
    any_type=True, traits=Trait.MOVES
)  # fmt: skip


def _nd_type(x: TensorType, indices: TensorType, *, batch_dims: int = 0) -> TensorType:
    require(_is_index(indices), f"gather_nd needs integer indices, got {indices}")
    require(indices.rank >= 1, f"gather_nd needs indices of rank 1 or more, got {indices}")
    require(indices.shape[-1].is_constant, "gather_nd needs a constant last size of indices")
    depth = indices.shape[-1].constant
    require(batch_dims + depth <= x.rank, f"gather_nd: {indices} goes deeper than {x}")
    return TensorType(x.dtype, indices.shape[:-1] + x.shape[batch_dims + depth :])


def _nd_conditions(x: TensorType, indices: TensorType, *, batch_dims: int = 0) -> list[Any]:
    return [must_equal(x.shape[i], indices.shape[i], "gather_nd") for i in range(batch_dims)]


def _nd_lower(
    k: KernelBuilder, x: Buffer, indices: Buffer, y: Buffer, *, batch_dims: int = 0
) -> None:
    depth = indices.shape[-1].constant
    with k.loops(*indices.shape[:-1]) as at:
        where = tuple(
            wrapped_index(k, f"at{i}", indices[(*at, Dim.of(i))], x.shape[batch_dims + i])
            for i in range(depth)
        )
        with k.loops(*x.shape[batch_dims + depth :]) as rest:
            k.store(y[at + rest], x[at[:batch_dims] + where + rest])


def _nd_reference(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    lead, depth = x.shape[:batch_dims], indices.shape[-1]
    out = np.empty(indices.shape[:-1] + x.shape[batch_dims + depth :], x.dtype)
    for at in np.ndindex(indices.shape[:-1]):
        out[at] = x[at[: len(lead)] + tuple(int(i) for i in indices[at])]
    return out


GATHER_ND = Op(
    "gather_nd",
    _nd_type,
    _nd_lower,
    _nd_reference,
    lambda rng: [
        Sample((rng.normal(size=(4, 3, 2)).astype(np.float32), rng.integers(-3, 3, (5, 2))),
               symbolic=False),
        Sample((rng.normal(size=(2, 3, 4)).astype(np.float32), rng.integers(0, 3, (2, 5, 1))),
               {"batch_dims": 1}, symbolic=False),
    ],
    conditions=_nd_conditions,
    any_type=True, traits=Trait.MOVES
)  # fmt: skip

OPS = (GATHER, GATHER_ELEMENTS, GATHER_ND)
