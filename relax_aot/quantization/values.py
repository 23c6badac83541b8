# SPDX-License-Identifier: Apache-2.0
"""Scales, zero points and quantized values of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.quantization.ranges import Range

Array = NDArray[Any]
LEAST_SCALE = 2.0**-60
MOST_BIAS = 2.0**30


@dataclass(frozen=True, slots=True)
class Step:
    """The real value is (quantized - zero) * scale."""

    scale: np.float32
    zero: int


def step_of(covered: Range, *, symmetric: bool = False) -> Step:
    """The i8 quantization of a range that includes 0; 0 is a quantized value."""
    if symmetric:
        most = max(-covered.low, covered.high)
        return Step(np.float32(max(most / 127, LEAST_SCALE)), 0)
    scale = np.float32(max((covered.high - covered.low) / 255, LEAST_SCALE))
    zero = round(-128 - covered.low / float(scale))
    return Step(scale, min(max(zero, -128), 127))


def encoded(numbers: Array, step: Step) -> Array:
    quantized = np.rint(numbers / step.scale) + step.zero
    return np.asarray(np.clip(quantized, -128, 127).astype(np.int8))


def decoded(quantized: Array, step: Step) -> Array:
    return np.asarray((quantized.astype(np.int32) - step.zero).astype(np.float32) * step.scale)


def channel_scales(weights: Array, axis: int, bias: Array | None, step: Step) -> Array:
    """Symmetric scales of i8, one for each place of an axis. A bias counts in steps of the
    products, and must not be more of them than sums can hold."""
    others = tuple(i for i in range(weights.ndim) if i != axis)
    most = np.abs(weights).max(axis=others, initial=0).astype(np.float64)
    scales = np.where(most > 0, most / 127, 1.0)
    if bias is not None:
        scales = np.maximum(scales, np.abs(bias.astype(np.float64)) / MOST_BIAS / float(step.scale))
    return np.asarray(np.maximum(scales, LEAST_SCALE).astype(np.float32))


def channel_codes(weights: Array, scales: Array, axis: int) -> Array:
    shape = [-1 if i == axis else 1 for i in range(weights.ndim)]
    quantized = np.rint(weights.astype(np.float64) / scales.reshape(shape))
    return np.asarray(np.clip(quantized, -127, 127).astype(np.int8))


def bias_codes(bias: Array, scales: Array) -> Array:
    return np.asarray(np.rint(bias.astype(np.float64) / scales).astype(np.int32))
