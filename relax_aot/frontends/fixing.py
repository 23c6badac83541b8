# SPDX-License-Identifier: Apache-2.0
"""Inputs that the user binds to a constant: text or arrays -> arrays of the input's type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import ModelError
from relax_aot.ir.types import DType

Array = NDArray[Any]
WORDS = {"inf": float("inf"), "-inf": -float("inf"), "nan": float("nan")}


@dataclass(frozen=True, slots=True)
class Fixed:
    """The value of an input that is gone from the interface.

    A splat is one number for every element of an input of dynamic size.
    """

    array: Array
    splat: bool = False


def fixed_value(name: str, shape: Sequence[int | str], dtype: DType, given: Any) -> Fixed:
    """`given` is a number, an array, or text of one; its shape must be the input's. A size
    that is dynamic is given by its text."""
    what = f"--fix {name}={given if isinstance(given, str | int | float) else '...'}"
    array = _cast(_parsed(given, what), dtype, what)
    known = [size for size in shape if isinstance(size, int)]
    static = len(known) == len(shape)
    if array.ndim == 0 and not static:
        return Fixed(array, splat=True)
    if array.ndim == 0 or (array.size == 1 and static and np.prod(known) == 1):
        return Fixed(np.broadcast_to(array.reshape(()), known).copy())
    pairs = zip(shape, array.shape, strict=False)
    if array.ndim != len(shape) or any(
        isinstance(size, int) and size != actual for size, actual in pairs
    ):
        raise ModelError(
            f"{what}: the input has shape [{', '.join(map(str, shape))}], got {list(array.shape)}"
        )
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
        raise ModelError(f"{what}: it is not a value of type {dtype.value}")
    return cast
