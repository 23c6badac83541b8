# SPDX-License-Identifier: Apache-2.0
"""Annotations: what is known about a value before it exists.

A `TensorType` is an element type and a shape of symbolic sizes. Shapes are row-major
and contiguous everywhere. Elements of less than a byte lie in the low bits of a byte each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from relax_aot.ir.dims import Dim

_NUMPY: dict[str, type] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
    "i4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "i2": ml_dtypes.int2,
    "u2": ml_dtypes.uint2,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}


class DType(Enum):
    """Element types; the value is the name in the text form."""

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"
    # Storage types: moved, cast and (de)quantized, never computed with.
    I4 = "i4"
    U4 = "u4"
    I2 = "i2"
    U2 = "u2"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F4E2M1 = "f4e2m1"

    def __init__(self, name: str) -> None:
        # Attributes rather than properties: the compiler asks millions of times.
        self.numpy: np.dtype[Any] = np.dtype(_NUMPY[name])
        self.bytes = int(self.numpy.itemsize)
        self.is_half = name in ("f16", "bf16")
        self.is_float = self.is_half or name in ("f32", "f64")
        self.is_stored_int = name in ("i4", "u4", "i2", "u2")
        # Narrower than half precision; f8e8m0 holds powers of two alone, for scales.
        self.is_stored_float = name.startswith(("f8", "f4"))
        self.is_storage = self.is_stored_int or self.is_stored_float
        self.is_int = not self.is_float and not self.is_storage and name != "bool"
        # Floats that are computed in f32, and rounded where they are stored.
        self.is_narrow = self.is_half or self.is_stored_float
        self.is_signed = name.startswith("i")
        # Bits that mean something; in memory an element has whole bytes.
        self.bits = {"4": 4, "2": 2}.get(name[1], 8 * self.bytes)

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value of an integer type."""
        assert self.is_int or self.is_stored_int, self
        if self.is_signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @staticmethod
    def of(dtype: np.dtype[Any]) -> DType:
        """The element type of a NumPy dtype; KeyError where we have none."""
        return _FROM_NUMPY[dtype]


_FROM_NUMPY = {np.dtype(kind): DType(name) for name, kind in _NUMPY.items()}


def array_of(dtype: DType, given: object) -> np.ndarray[Any, Any]:
    """`given` as an array of `dtype`, with rounded floats. A ValueError says what does not fit."""
    array = np.asarray(given, order="C")
    if array.dtype.type is np.void and not array.dtype.names and dtype.numpy.isbuiltin != 1:
        # Files of NumPy keep only the bytes of types that NumPy itself does not have.
        if array.dtype.itemsize == dtype.bytes:
            return array.view(dtype.numpy)
    elif array.dtype in _FROM_NUMPY:
        with np.errstate(all="ignore"):
            found = array.astype(dtype.numpy)
            if dtype.is_float or dtype.is_stored_float or (found == array).all():
                return found
        raise ValueError(f"it has values that {dtype.value} does not have")
    raise ValueError(f"its elements are {array.dtype}, not {dtype.value}")


C_TYPES = {
    DType.F32: "float", DType.F64: "double", DType.F16: "uint16_t", DType.BF16: "uint16_t",
    DType.I8: "int8_t", DType.I16: "int16_t", DType.I32: "int32_t", DType.I64: "int64_t",
    DType.U8: "uint8_t", DType.U16: "uint16_t", DType.U32: "uint32_t", DType.U64: "uint64_t",
    DType.BOOL: "uint8_t", **{kind: "uint8_t" for kind in DType if kind.is_storage},
}  # fmt: skip
"""How C holds the elements: half floats as their bits, bool as 0 or 1."""

Shape = tuple[Dim, ...]


def shape_of(*sizes: int | str | Dim) -> Shape:
    return tuple(Dim.of(size) for size in sizes)


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a function, kernel or extern of the module, as an attribute: `@name`."""

    name: str


@dataclass(frozen=True, slots=True)
class TensorType:
    """A row-major tensor. Sizes count elements."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        return prod(self.shape, start=Dim.of(1))

    @property
    def bytes(self) -> Dim:
        return self.elements * self.dtype.bytes

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset[str]().union(*(size.symbols for size in self.shape))

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(str(size) for size in self.shape)}]"


# What may be said of a value before it is known exactly. A program as text may say this much
# or less; `ops.refine` makes a TensorType of every value, or names those of which it cannot.


@dataclass(frozen=True, slots=True)
class CoarseType:
    """A tensor of which the element type, the rank, or sizes are not said (None)."""

    dtype: DType | None = None
    shape: tuple[Dim | None, ...] | None = None

    def __str__(self) -> str:
        dtype = "?" if self.dtype is None else self.dtype.value
        if self.shape is None:
            return dtype
        return f"{dtype}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True, slots=True)
class ShapeType:
    """A vector of integers whose values are these sizes, or one integer."""

    sizes: Shape
    rank: int = 1

    def __str__(self) -> str:
        return f"{'shape' if self.rank else 'scalar'}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    parts: tuple[Annotation, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class FunctionType:
    params: tuple[Annotation, ...]
    result: Annotation

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.params))}) -> {self.result}"


Annotation = TensorType | CoarseType | ShapeType | TupleType | FunctionType
