# SPDX-License-Identifier: Apache-2.0
"""Rounding sums by integers or f32 is rounding the exact product, for every sum there can be."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot.ir.types import DType
from relax_aot.ops import all_ops
from relax_aot.ops._rescale import exact_rescale

Array = NDArray[Any]
MOST = 4000


def nearest(value: Fraction) -> int:
    """Halves to even: what Python's own rounding of exact fractions does."""
    return round(value)


def rounded(scale: Array, sums: Array, low: int, high: int) -> Array:
    """What requantize makes of sums, a row for each scale."""
    found = exact_rescale(scale, low, high, MOST)
    args: list[Array | None] = [np.broadcast_to(sums, (scale.size, sums.size)).astype(np.int32)]
    args += [found.scale, None]
    attrs: dict[str, Any] = {"to": DType.I8, "axis": 0, "rounding": found.rounding}
    if found.shift is not None:
        args.append(found.shift)
    return np.asarray(all_ops()["requantize"].reference(*args, **attrs))


@pytest.mark.parametrize(
    "scales",
    [
        [0.013, 0.0271, 0.00391],
        [0.5, 0.5, 0.5],
        [0.125, 0.0625, 0.25],
        [1.0, 0.75, 0.3721],
        [0.011739914762773, 0.1937, 2.0**-9],
    ],
)
def test_every_sum_is_rounded_as_the_exact_product(scales: list[float]) -> None:
    sums = np.arange(-MOST, MOST + 1)
    found = rounded(np.array(scales), sums, -128, 127)
    for scale, row in zip(scales, found, strict=True):
        exact = [nearest(Fraction(int(s)) * Fraction(scale)) for s in sums]
        np.testing.assert_array_equal(row, np.clip(exact, -128, 127))


def test_scales_whose_products_f32_would_round_to_the_middle_are_integers() -> None:
    # In f32, 1661 * 0.0117399147... is 19.5, of which the even neighbor is 20.
    scale = np.array([19.4999992 / 1661])
    found = exact_rescale(scale, -128, 127, MOST)
    assert found.rounding == "nearest"
    assert rounded(scale, np.array([1661]), -128, 127)[0, 0] == 19


def test_random_scales_are_exact() -> None:
    rng = np.random.default_rng(3)
    sums = np.arange(-MOST, MOST + 1)
    for _ in range(20):
        scales = rng.uniform(0.001, 0.2, 4)
        found = rounded(scales, sums, -128, 127)
        exact = np.rint(sums * scales.astype(np.longdouble)[:, None])
        np.testing.assert_array_equal(found, np.clip(exact, -128, 127))
