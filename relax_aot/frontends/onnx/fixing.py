"""Inputs that the user binds to a constant: text or arrays -> arrays of the input's type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ValueInfoProto

from relax_aot.frontends import ModelError
from relax_aot.ir.types import DType

Array = NDArray[Any]
WORDS = {"inf": float("inf"), "-inf": -float("inf"), "nan": float("nan")}


@dataclass(frozen=True, slots=True)
class Fixed:
    """The value of an input that is gone from the interface.

    A splat is one number for every element of an input whose size only run time knows.
    """

    array: Array
    splat: bool = False


def fixed_value(value: ValueInfoProto, dtype: DType, given: Any) -> Fixed:
    """`given` is a number, an array, or text of one; its shape must be the input's."""
    what = f"--fix {value.name}={given if isinstance(given, str | int | float) else '...'}"
    array = _cast(_parsed(given, what), dtype, what)
    dims = value.type.tensor_type.shape.dim
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    if array.ndim == 0 and None in sizes:
        return Fixed(array, splat=True)
    known = [size for size in sizes if size is not None]
    if array.ndim == 0 or (array.size == 1 and known == sizes and np.prod(known) == 1):
        return Fixed(np.broadcast_to(array.reshape(()), known).copy())
    pairs = zip(sizes, array.shape, strict=False)
    if array.ndim != len(sizes) or any(size not in (None, actual) for size, actual in pairs):
        shape = ", ".join(str(d.dim_param or d.dim_value or "?") for d in dims)
        raise ModelError(f"{what}: the input has shape [{shape}], got {list(array.shape)}")
    return Fixed(array)


def _parsed(given: Any, what: str) -> Array:
    if not isinstance(given, str):
        return np.asarray(given)
    text = given.strip().lower()
    try:
        return np.asarray(WORDS[text] if text in WORDS else json.loads(text))
    except (ValueError, RecursionError):
        raise ModelError(f"{what}: expected a number, true, false or a list like [1, 2]") from None


def _cast(array: Array, dtype: DType, what: str) -> Array:
    if array.dtype.kind not in "biuf" and array.dtype != dtype.numpy:
        raise ModelError(f"{what}: expected numbers")
    with np.errstate(all="ignore"):
        cast = array.astype(dtype.numpy)
        same = dtype.is_float or np.array_equal(cast.astype(array.dtype), array)
    if not same:
        raise ModelError(f"{what}: that is no value of type {dtype.value}")
    return cast
