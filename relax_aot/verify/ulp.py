# SPDX-License-Identifier: Apache-2.0
"""Units in the last place of the floating-point types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.types import DType

Array = NDArray[Any]

FORMATS = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}
"""Bits of the significand, and the least exponent of a normal number."""


def unit_in_last_place(x: Array, dtype: DType) -> Array:
    """The spacing of the numbers of a type around `x`; finite everywhere."""
    bits, least = FORMATS[dtype.value]
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(x), x, 0.0).astype(np.float64))[1] - 1
    spacing: Array = np.ldexp(1.0, np.maximum(exponent, least) - (bits - 1))
    return spacing


def unit_roundoff(dtype: DType) -> float:
    return float(2.0 ** -FORMATS[dtype.value][0])
