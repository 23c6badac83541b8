# SPDX-License-Identifier: Apache-2.0
"""Queries that share cached keys and values, in one call of a micro-kernel for each product, for
every number of keys."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx

TEXT = """
symbol n in 0..70
func @main(%q: f32[2, ROWS, 20], %k: f32[2, 20, n], %v: f32[2, n, 24]) {
  %scores: f32[2, ROWS, n] = matmul(%q, %k)
  %y: f32[2, ROWS, 24] = matmul(%scores, %v)
  return %y
}"""


@pytest.mark.qemu
@pytest.mark.parametrize(("rows", "numerics"), [(2, "ordered"), (3, "blocked")])
def test_a_few_rows_on_a_cortex_m7(rows: int, numerics: str) -> None:
    module = rx.parse(TEXT.replace("ROWS", str(rows)))
    project = rx.compile(module, name="m", board="mps2-an500", numerics=numerics)
    assert project.files["m.c"].count(b"raot_multiply_rows_f32(") == 2
    rng = np.random.default_rng(rows)
    for n in (0, 1, 17, 70):
        q, k, v = (
            rng.normal(size=shape).astype(np.float32)
            for shape in ((2, rows, 20), (2, 20, n), (2, n, 24))
        )
        run = project.emulate(q=q, k=k, v=v)
        exact = (q.astype(np.float64) @ k) @ v
        np.testing.assert_allclose(run.outputs["y"], exact, rtol=0, atol=1e-4)
