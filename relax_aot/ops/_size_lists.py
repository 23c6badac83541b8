# SPDX-License-Identifier: Apache-2.0
"""Sizes as lists of int64 that kernels compute: shared by ops on shape operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import (
    Buffer,
    Cast,
    Expr,
    Index,
    Lit,
    Load,
    Select,
    binary,
)
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import require

Sizes = Sequence[int | Dim]
ZERO, ONE = Lit(0, DType.I64), Lit(1, DType.I64)

FARTHEST = 2**31 - 1
OPEN_ENDS = (FARTHEST, 2**63 - 1)
"""A Slice that ends at one of these ends where the axis does, or begins where steps are negative,
as in ONNX Runtime."""


def list_type(count: int) -> TensorType:
    return TensorType(DType.I64, (Dim.of(count),))


def wide(value: Load) -> Expr:
    return value if value.dtype is DType.I64 else Cast(value, DType.I64)


def require_valid(k: KernelBuilder, condition: Expr) -> Dim:
    """0; where the condition does not hold the run ends with a status. Add it to an index,
    or it is not used."""
    return k.index("valid", Select(condition, ZERO, Lit(-1, DType.I64)), 0, 0)


def entry(at: int | Dim, buffer: Buffer) -> Load:
    """An element of a list, or the number itself where it is a scalar."""
    return buffer[(Dim.of(at),)] if buffer.rank else buffer[()]


def length_of(given: Buffer | TensorType) -> Dim:
    return given.shape[0] if given.rank else Dim.of(1)


def axis_at(k: KernelBuilder, axes: Buffer, i: Dim, rank: int) -> Dim:
    """An axis from data; it counts from the end where it is negative."""
    given = k.local("given", DType.I64, wide(entry(i, axes)))
    return k.index("axis", Select(binary("<", given, 0), given + rank, given), 0, rank - 1)


def spread_sizes(k: KernelBuilder, sizes: Sizes, write: Callable[[Dim, Expr], None]) -> None:
    """`write(axis, size)` for each axis, written out: sizes are no array in C."""
    for axis, size in enumerate(sizes):
        write(Dim.of(axis), Index(Dim.of(size)))


def check_operands(*given: TensorType | None) -> None:
    for type_ in given:
        fits = type_ is None or (type_.dtype.is_int and type_.rank <= 1)
        require(fits, f"a list of integers is needed, got {type_}")
