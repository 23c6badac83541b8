# SPDX-License-Identifier: Apache-2.0
"""Products of bytes that are both computed, compared with NumPy at every kind of size."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import Array, model_of

MOST = {"n": 70, "m": 33}
SIZES = ((1, 1), (2, 3), (7, 9), (70, 33))
ZEROS = {"az": 131, "bz": -7, "sz": -128, "vz": 3}
SIGNATURE = """m (uint8[2, n, 24] a, int8[2, m, 24] b, int8[2, m, n] s, uint8[2, m, 44] v)
    => (int32[2, n, m] y, int32[2, n, 44] z)"""
TEXT = """
    columns = Transpose <perm = [0, 2, 1]> (b)
    y = MatMulInteger (a, columns, az, bz)
    rows = Transpose <perm = [0, 2, 1]> (s)
    z = MatMulInteger (rows, v, sz, vz)
"""
KINDS = {"a": np.uint8, "b": np.int8, "s": np.int8, "v": np.uint8}


def inputs(n: int, m: int) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    shapes = {"a": (2, n, 24), "b": (2, m, 24), "s": (2, m, n), "v": (2, m, 44)}
    limits = {name: np.iinfo(kind) for name, kind in KINDS.items()}
    return {
        name: rng.integers(limits[name].min, limits[name].max + 1, shape).astype(KINDS[name])
        for name, shape in shapes.items()
    }


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board", ["mps2-an386", pytest.param("mps3-an547", marks=pytest.mark.slow)]
)
def test_products_are_exact(board: str) -> None:
    data = {name: np.array(zero, KINDS[name[0]]) for name, zero in ZEROS.items()}
    options = driver.Options(bounds={name: (1, most) for name, most in MOST.items()})
    project = driver.compile_model(model_of(SIGNATURE, TEXT, data), board, options)
    text = b"".join(project.files.values())
    assert b"raot_dot_rows_u8(" in text and b"raot_add_rows_s8(" in text
    samples = [inputs(*sizes) for sizes in SIZES]
    for sample, run in zip(samples, emulate(project, samples), strict=True):
        a, b, s, v = (sample[x].astype(np.int64) - ZEROS[f"{x}z"] for x in "absv")
        assert run.status == 0
        assert np.array_equal(run.outputs["y"], a @ b.swapaxes(1, 2))
        assert np.array_equal(run.outputs["z"], s.swapaxes(1, 2) @ v)
