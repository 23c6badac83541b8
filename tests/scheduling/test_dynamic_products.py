# SPDX-License-Identifier: Apache-2.0
"""Quantized products with a dynamic zero point and constant weights, compared with NumPy.

ONNX Runtime is no witness here: without VNNI its products saturate in 16 bits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.verify.host import HostModel, host_model
from tests.models.onnx_text import model_of

DEPTH, CHANNELS, MOST = 37, 21, 50
WEIGHTS = np.random.default_rng(3).integers(-128, 128, (DEPTH, CHANNELS)).astype(np.int8)
SIGNATURE = f"m (uint8[n, {DEPTH}] x, uint8 z) => (int32[n, {CHANNELS}] y)"


@cache
def compiled() -> HostModel:
    weights = {"w": WEIGHTS, "wz": np.array(3, np.int8)}
    model = model_of(SIGNATURE, "y = MatMulInteger (x, w, z, wz)", weights)
    return host_model(driver.compile_model(model, options=driver.Options(bounds={"n": (1, MOST)})))


@pytest.mark.parametrize("n", [1, 23, 24, 25, MOST])
@pytest.mark.parametrize("zero", [0, 117, 255])
def test_products_are_exact(n: int, zero: int) -> None:
    x = np.random.default_rng(n).integers(0, 256, (n, DEPTH)).astype(np.uint8)
    found = compiled()(x=x, z=np.array(zero, np.uint8))["y"]
    expected = (x.astype(np.int64) - zero) @ (WEIGHTS.astype(np.int64) - 3)
    assert np.array_equal(found, expected)
