# SPDX-License-Identifier: Apache-2.0
"""Products of sums and floats by integers (raot/scaled.h) have the bits of floats."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.verify.emulate import emulate
from tests.conftest import ROOT
from tests.models.onnx_text import model_of

INCLUDE = ROOT / "runtime_c" / "include"
LARGEST = 1 << 15
"""Results are exact below it in magnitude."""
SOURCE = """
#define RAOT_FLOAT_CALLS 1
#include "raot/scaled.h"
void scale(int32_t *out, const int32_t *sums, const float *by, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        out[i] = raot_scaled(sums[i], by[i]);
    }
}
"""


def sums_and_scales() -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Scales of all sizes, some of few bits, and sums around those whose product is a half."""
    rng = np.random.default_rng(0)
    parts = []
    for exponent in range(-36, 3):
        scales = np.ldexp(rng.uniform(0.5, 1, 400), exponent).astype(np.float32)
        scales[:40] = np.ldexp(rng.integers(4, 8, 40) / 8, exponent)
        results = rng.integers(-400, 400, (400, 12)) + 0.5
        results[:, 10:] = rng.integers(-40000, 40000, (400, 2)) + 0.5
        exact = np.rint(results / scales[:, None]).clip(-(2.0**31) + 2, 2.0**31 - 3)
        around = exact.astype(np.int64)[:, :, None] + np.arange(-2, 3)
        whole = rng.integers(-(2**31), 2**31, (400, 10))
        sums = np.concatenate([around.reshape(400, -1), whole], axis=1)
        parts.append((sums.reshape(-1), np.repeat(scales, sums.shape[1])))
    sums, scales = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sums.astype(np.int32), scales.astype(np.float32)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_products_round_as_floats_do(tmp_path: Path) -> None:
    (tmp_path / "scaled.c").write_text(SOURCE)
    command = ["gcc", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fsanitize=undefined"]
    command += [f"-I{INCLUDE}", "scaled.c", "-o", "scaled.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ffi = cffi.FFI()
    ffi.cdef("void scale(int32_t *out, const int32_t *sums, const float *by, int32_t count);")
    library: Any = ffi.dlopen(str(tmp_path / "scaled.so"))
    sums, scales = sums_and_scales()
    out = np.empty_like(sums)
    arrays = zip(("int32_t *", "int32_t *", "float *"), (out, sums, scales), strict=True)
    library.scale(*(ffi.cast(kind, a.ctypes.data) for kind, a in arrays), sums.size)
    right = np.rint(sums.astype(np.float32) * scales).astype(np.float64)
    found, wanted = (np.clip(v, -LARGEST, LARGEST) for v in (out.astype(np.float64), right))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "most"), [("mps2-an385", 40), ("microbit", 110)])
def test_layers_of_integers_compute_no_floats(board: str, most: int) -> None:
    """A result takes so many instructions at most, with its products and what surrounds them."""
    rng = np.random.default_rng(0)
    f32, i8 = np.float32, np.int8
    data = {
        "xs": f32(0.05), "xz": i8(-3), "w": rng.integers(-127, 128, (16, 4, 1, 1)).astype(i8),
        "ws": rng.uniform(0.01, 0.02, 16).astype(f32), "wz": np.zeros(16, i8), "ys": f32(0.125),
        "yz": i8(7), "b": rng.integers(-900, 900, 16).astype(np.int32),
    }  # fmt: skip
    model = model_of(
        "m (int8[1, 4, 12, 12] x) => (int8[1, 16, 12, 12] y)",
        "y = QLinearConv (x, xs, xz, w, ws, wz, ys, yz, b)",
        {name: np.asarray(value) for name, value in data.items()},
    )
    x = rng.integers(-128, 128, (1, 4, 12, 12)).astype(i8)
    (run,) = emulate(driver.compile_model(model, board, driver.Options()), [{"x": x}])
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(run.outputs["y"], expected)
    assert run.instructions is not None
    assert run.instructions < most * expected.size
