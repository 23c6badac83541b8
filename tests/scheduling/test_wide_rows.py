# SPDX-License-Identifier: Apache-2.0
"""Products of rows of 16-bit integers and bytes, compared with NumPy at every kind of size."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import Array

TEXT = """
    symbol n in 1..300
    symbol m in 1..9
    func @main(%x: i16[2, 3, m, n], %w: i8[2, 1, 21, n], %r: f32[2, 3, m], %c: f32[2, 1, 21],
      %a: i16[3, n], %b: i8[m, n], %s: f32[3]) {
      %columns: i8[2, 1, n, 21] = transpose(%w) {perm=[0, 1, 3, 2]}
      %y: f32[2, 3, m, 21] = matmul_scaled(%x, %columns, %r, %c)
      %lines: i8[n, m] = transpose(%b) {perm=[1, 0]}
      %z: f32[3, m] = matmul_scaled(%a, %lines, %s, _)
      return %y, %z
    }"""
SIZES = ((1, 1), (3, 2), (4, 9), (255, 3), (257, 4), (300, 9))


def inputs(n: int, m: int) -> dict[str, Array]:
    rng = np.random.default_rng(n)

    def numbers(kind: type, *shape: int) -> Array:
        info = np.iinfo(kind)
        return rng.integers(-info.max, info.max, shape, endpoint=True).astype(kind)

    def scales(*shape: int) -> Array:
        return rng.uniform(0.1, 1, shape).astype(np.float32)

    return {
        "x": numbers(np.int16, 2, 3, m, n), "w": numbers(np.int8, 2, 1, 21, n),
        "r": scales(2, 3, m), "c": scales(2, 1, 21),
        "a": numbers(np.int16, 3, n), "b": numbers(np.int8, m, n), "s": scales(3),
    }  # fmt: skip


def products(left: Array, right: Array) -> Array:
    sums = left.astype(np.int64) @ right.astype(np.int64).swapaxes(-1, -2)
    return np.asarray(sums.astype(np.float32))


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    [
        "mps2-an386",
        pytest.param("mps3-an547", marks=pytest.mark.slow),
        pytest.param("raspberry-pi-4b", marks=pytest.mark.slow),
    ],
)
def test_sums_are_exact(board: str) -> None:
    project = rx.compile(rx.parse(TEXT), board=board)
    assert b"raot_scale_columns_f32(" in b"".join(project.built.files.values())
    samples = [inputs(*sizes) for sizes in SIZES]
    for sample, run in zip(samples, emulate(project.built, samples), strict=True):
        x, w, r, c, a, b, s = sample.values()
        y = products(x, w) * r[..., None] * c[..., None, :]
        assert np.array_equal(run.outputs["y"], y)
        assert np.array_equal(run.outputs["z"], products(a, b) * s[:, None])
