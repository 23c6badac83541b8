# SPDX-License-Identifier: Apache-2.0
"""float32 -> floats of a byte and less, as ONNX's Cast tells it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.types import DType


def narrowed(x: Any, to: DType, mode: str) -> NDArray[Any]:
    """`mode` is that of a Cast: `wrap` or `saturate`, and for f8e8m0 a rounding."""
    single = np.asarray(x, np.float32)
    saturating, _, rounding = mode.partition("_")
    if to is DType.F8E8M0:
        return _power_of_two(single, rounding or "up", saturating == "saturate")
    if saturating == "saturate" or to is DType.F4E2M1:
        most = np.float32(ml_dtypes.finfo(to.numpy).max)  # type: ignore[no-untyped-call]
        single = np.clip(single, -most, most)
    return single.astype(to.numpy)


def _power_of_two(x: NDArray[Any], rounding: str, saturate: bool) -> NDArray[Any]:
    """Exponents by frexp: x = m * 2^e with 1/2 <= m < 1. Signs are left out."""
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(np.abs(x.astype(np.float64)))
    # 1/2 is a power of two; everything else lies between 2^(e-1) and 2^e.
    up = (mantissa > 0.5) & (rounding == "up") | (mantissa >= 0.75) & (rounding == "nearest")
    power = exponent - 1 + up
    # Below the least, what is rounded up becomes the least.
    if rounding == "up":
        power = np.maximum(power, -127)
    outside = (power < -127) | (power > 127) | ~np.isfinite(x) | (x == 0)
    nearest = np.where((power > 127) | np.isinf(x), 127, -127)
    code = np.where(outside, nearest if saturate else 128, power) + 127
    return np.where(np.isnan(x), 255, code).astype(np.uint8).view(DType.F8E8M0.numpy)
