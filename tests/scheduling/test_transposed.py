# SPDX-License-Identifier: Apache-2.0
"""Products of floats that are both computed, and what is added to products, compared with NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.ir.loops import Micro, walk
from relax_aot.verify.host import host_model
from tests.models.onnx_text import Array, model_of

MOST = {"n": 70, "m": 45}
SIZES = ((1, 1), (8, 9), (9, 33), (25, 32), (70, 45))
DEPTH, CHANNELS = 19, 37
SCORES = """
    columns = Transpose <perm = [0, 2, 1]> (k)
    sums = MatMul (q, columns)
    y = Mul (sums, scale)
"""
LAYER = """
    sums = MatMul (x, w)
    biased = Add (sums, b)
    all = Add (biased, r)
    y = Clip (all, low, high)
"""


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(
    signature: str, text: str, data: Mapping[str, Array], *sizes: Mapping[str, Array]
) -> list[Array]:
    """The results at all sizes; tiles store them, or copy columns."""
    bounds = {name: (1, most) for name, most in MOST.items() if f"{name}," in signature}
    options = driver.Options(bounds=bounds)
    project = driver.compile_model(model_of(signature, text, dict(data)), options=options)
    (kernel,) = project.plan.kernels
    stores = [s for s in walk(kernel.body) if isinstance(s, Micro)]
    assert {s.name for s in stores} <= {"raot_multiply_store_f32"}
    assert stores or {buffer.name for buffer in kernel.scratch} == {"panel"}
    host = host_model(project)
    return [host(**one)["y"] for one in sizes]


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_queries_by_keys(scale: float) -> None:
    """A factor of a power of two is exact, so that the bound is that of sums."""
    signature = f"s (float[2, n, {DEPTH}] q, float[2, m, {DEPTH}] k) => (float[2, n, m] y)"
    given = [{"q": floats(n, 2, n, DEPTH), "k": floats(m + 99, 2, m, DEPTH)} for n, m in SIZES]
    data = {"scale": np.array(scale, np.float32)}
    for one, found in zip(given, run(signature, SCORES, data, *given), strict=True):
        wide = {name: array.astype(np.float64) for name, array in one.items()}
        exact = wide["q"] @ wide["k"].swapaxes(1, 2) * scale
        most = np.abs(wide["q"]) @ np.abs(wide["k"]).swapaxes(1, 2) * scale
        assert np.all(np.abs(found - exact) <= (DEPTH + 1) * 2.0**-24 * most)


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (0.0, np.inf), (-1.0, 6.0)])
def test_a_bias_and_a_residual(low: float, high: float) -> None:
    signature = f"s (float[n, {DEPTH}] x, float[n, {CHANNELS}] r) => (float[n, {CHANNELS}] y)"
    w, b = floats(1, DEPTH, CHANNELS), floats(2, CHANNELS)
    data = {"w": w, "b": b, "low": np.array(low, np.float32), "high": np.array(high, np.float32)}
    given = [{"x": floats(n, n, DEPTH), "r": floats(n + 99, n, CHANNELS)} for n, _ in SIZES]
    for one, found in zip(given, run(signature, LAYER, data, *given), strict=True):
        x, r = (one[name].astype(np.float64) for name in "xr")
        exact = np.clip(x @ w.astype(np.float64) + b + r, low, high)
        most = np.abs(x) @ np.abs(w) + np.abs(b) + np.abs(r)
        assert np.all(np.abs(found - exact) <= (DEPTH + 3) * 2.0**-24 * most)
