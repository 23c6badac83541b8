# SPDX-License-Identifier: Apache-2.0
"""Softmax of rows by a micro-kernel: the bits of plain loops, also where powers are subnormal
numbers, and for special values."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.loops import Micro, walk
from relax_aot.scheduling.passes import softmax_rows
from relax_aot.scheduling.targets import find
from tests.transforms.examples import example_module

TEXT = """
symbol n in 1..70
func @main(%x: f32[9, n], %t: f32[n, 9]) {
  %y: f32[9, n] = softmax(%x) {axis=1, masked=MASKED}
  %z: f32[n, 9] = softmax(%t) {axis=0, masked=MASKED}
  return %y, %z
}"""


def rows(n: int) -> np.ndarray:
    """Rows of usual scores, of distant ones, and with special values."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(9, n)).astype(np.float32) * np.float32(3)
    x[1] *= 40
    x[2] = np.linspace(-63.9, 0, n)
    x[3, n // 2] = -np.inf
    x[4] = -np.inf
    x[5, n // 3] = np.uint32(0x7FC00001).view(np.float32)
    x[6, n - 1] = np.inf
    x[7] = np.nan
    x[8] = np.float32(-1e30)
    return x


@pytest.mark.parametrize(
    ("name", "numerics", "masked"),
    [
        ("mps2-an500", "blocked", "true"),
        ("mps2-an500", "ordered", "false"),
        ("mps2-an386", "blocked", "false"),
        ("mps2-an386", "ordered", "true"),
    ],
)
def test_rows_have_the_bits_of_columns(name: str, numerics: str, masked: str) -> None:
    """Columns are loops: their elements are not contiguous."""
    module = rx.parse(TEXT.replace("MASKED", masked))
    board = rx.compile(module, name="m", board=name, numerics=numerics)
    assert board.files["m.c"].count(b"raot_softmax_") == 1
    for n in (5, 70):
        x = rows(n)
        run = board.emulate(x=x, t=np.ascontiguousarray(x.T))
        found, wanted = np.asarray(run.outputs["y"]), np.asarray(run.outputs["z"]).T
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        known = ~np.isnan(wanted)
        assert found[known].tobytes() == wanted[known].tobytes(), n
        exact = np.exp(x[0].astype(np.float64) - x[0].max())
        np.testing.assert_allclose(found[0], exact / exact.sum(), rtol=1e-6)


ROW = softmax_rows.EXAMPLES[0].before
KEPT = {
    "the sum is read": (
        "total)\n                }\n",
        "total)\n                }\n%y[i, 0] = total\n",
    ),
    "the row is shorter": (
        "in 0..n {\n                  %y[i, j] = f",
        "in 0..1 {\n                  %y[i, j] = f",
    ),
    "a few elements": ("in 0..n", "in 0..15"),
    "half a mask": ("total = select((total == 0.0:f32), 1.0:f32, total)", ""),
    "another row": ("fraction(%y[i, j]", "fraction(%y[0, j]"),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_loops_stay(name: str) -> None:
    old, new = KEPT[name]
    assert old in ROW
    module = example_module(ROW.replace(old, new))
    assert softmax_rows.run(module, find("cortex_m", ("fpu",))) == module


def test_the_micro_kernel_computes_the_row() -> None:
    before = example_module(ROW)
    after = softmax_rows.run(before, find("cortex_m", ("fpu",)))
    assert any(isinstance(stmt, Micro) for stmt in walk(after.kernels[0].body))
    for n in (1, 5, 99):
        x = rows(n)[:3]
        wanted, found = (run_kernel(m.kernels[0], [x], {"n": n})[0] for m in (before, after))
        np.testing.assert_array_equal(found, wanted)
