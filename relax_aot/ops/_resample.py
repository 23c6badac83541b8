# SPDX-License-Identifier: Apache-2.0
"""The attributes of resize; coordinates and weights in NumPy, one axis at a time. See resize.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ops._op import Array

REACH = {"linear": 1, "cubic": 2}
"""Samples on each side that a kernel of interpolation mixes."""
TIE = 1e-6
"""A fraction this close to one half is a tie of `nearest`, as in ONNX Runtime."""


Sizes = Sequence[int | Dim]


@dataclass(frozen=True, kw_only=True)
class Resize:
    sizes: Sizes
    scales: Sequence[float]
    mode: str
    transform: str
    rounding: str
    wanted: Sizes = ()
    policy: str = ""
    roi: Sequence[float] = ()
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


def centers(before: int, after: int, scale: Any, transform: str, ends: tuple[Any, Any]) -> Array:
    f = np.float32
    x: Array = np.arange(after, dtype=np.float32)
    half: Array = (x + f(0.5)) / scale - f(0.5)
    zero: Array = np.zeros_like(x)
    match transform:
        case "half_pixel":
            return half
        case "pytorch_half_pixel":
            return half if after > 1 else zero
        case "asymmetric":
            return np.asarray(x / scale)
        case "tf_half_pixel_for_nn":
            return np.asarray((x + f(0.5)) / scale)
        case "align_corners":
            return np.asarray(x * f(before - 1) / (f(after) - f(1))) if after > 1 else zero
        case "half_pixel_symmetric":
            shift = f(before) / f(2) * (f(1) - f(after) / (scale * f(before)))
            wide = float(shift) + (x.astype(np.float64) + 0.5) / float(scale) - 0.5
            return np.asarray(wide.astype(np.float32))
    start, end = ends
    if after <= 1:
        return np.full_like(x, (start + end) * f(before - 1) * f(0.5))
    return np.asarray(start * f(before - 1) + x * (end - start) * f(before - 1) / (f(after) - f(1)))


def rounded(centers: Array, size: int, scale: Any, rounding: str) -> Array:
    lower = np.floor(centers)
    match rounding:
        case "floor":
            value = lower
        case "ceil":
            value = np.ceil(centers)
        case "legacy":
            value = np.ceil(centers) if scale < 1 else lower
        case "round_prefer_floor":
            value = lower + (centers - lower > np.float32(0.5 + TIE))
        case _:
            value = lower + (centers - lower >= np.float32(0.5 - TIE))
    return np.clip(value, 0, size - 1).astype(np.int64)


def matrix_of(attrs: Resize, centers: Array, before: int, scale: Any) -> Array:
    """Row o holds the weights with which element o mixes the input."""
    mode, a, antialias = attrs.mode, attrs.cubic_a, attrs.antialias
    matrix = np.zeros((len(centers), before))
    shrink = min(float(scale), 1.0) if antialias else 1.0
    for row, center in enumerate(centers.astype(np.float64)):
        if mode == "linear" and not antialias:
            center = min(max(center, 0.0), before - 1.0)
        reach = int(np.ceil(REACH[mode] / shrink)) + 1
        places = np.arange(int(np.floor(center)) - reach, int(np.ceil(center)) + reach + 1)
        s = np.abs(places - center) * shrink
        if mode == "linear":
            weights = np.maximum(1 - s, 0)
        else:
            near = ((a + 2) * s - (a + 3)) * s * s + 1
            far = ((a * s - 5 * a) * s + 8 * a) * s - 4 * a
            weights = np.where(s <= 1, near, np.where(s < 2, far, 0))
        if attrs.exclude_outside:
            weights = np.where((places >= 0) & (places < before), weights, 0)
        if attrs.exclude_outside or antialias:
            total = weights.sum()
            weights = weights / (1.0 if antialias and total == 0 else total)
        np.add.at(matrix[row], np.clip(places, 0, before - 1), weights)
    return matrix
