# SPDX-License-Identifier: Apache-2.0
"""Sigmoid and tanh by a table (raot/gates.h): its words, the errors, and the same results in plain
C and by the instructions of Cortex-M4."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.verify.emulate import emulate
from tests.conftest import ROOT
from tests.runtime_c import gate_table

INCLUDE = ROOT / "runtime_c" / "include"
KERNEL = """
func @main(%x: f32[4000]) {
  %s: f32[4000], %t: f32[4000] = call_kernel(%x) {kernel=@gates}
  return %s, %t
}
kernel @gates(%x: f32[4000]) -> (%s: f32[4000], %t: f32[4000]) {
  for i in 0..4000 {
    %s[i] = gate_sigmoid(%x[i])
    %t[i] = gate_tanh(%x[i])
  }
}"""


def arguments() -> NDArray[np.float32]:
    """Ends of intervals and their neighbors, numbers of every size, infinities and NaN."""
    rng = np.random.default_rng(0)
    ends = np.arange(-136, 137, dtype=np.float32) / 8
    around = [np.nextafter(ends, np.float32(way)) for way in (-np.inf, np.inf)]
    bits = rng.integers(0, 2**32, 400, np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 3e38, -3e38], np.float32)
    found = np.concatenate([ends, *around, bits, special])
    more = rng.uniform(-20, 20, 4000 - found.size).astype(np.float32)
    return np.concatenate([found, more])


def test_words_follow_from_the_sigmoid() -> None:
    text = (INCLUDE / "raot" / "gates.h").read_text()
    found = [int(word, 16) for word in re.findall(r"0x([0-9a-f]{8})u", text)]
    table, slope = gate_table.words()
    assert found == [int(word) % 2**32 for word in table]
    assert f"#define RAOT_GATE_SLOPE {slope}u\n" in text


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_errors_of_gates(tmp_path: Path) -> None:
    source = '#include "raot/gates.h"\n' + "".join(
        f"void {name}(int32_t n, const float *x, float *y)\n"
        f"{{\n    for (int32_t i = 0; i < n; i++) {{ y[i] = raot_gate_{name}f(x[i]); }}\n}}\n"
        for name in ("sigmoid", "tanh")
    )
    (tmp_path / "gates.c").write_text(source)
    command = ["gcc", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover", "-fPIC", "-shared"]
    command += [f"-I{INCLUDE}", "gates.c", "-o", "gates.so", "-ffp-contract=off"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ffi = cffi.FFI()
    ffi.cdef("void sigmoid(int32_t, const float *, float *);")
    ffi.cdef("void tanh(int32_t, const float *, float *);")
    library: Any = ffi.dlopen(str(tmp_path / "gates.so"))
    x = np.concatenate([np.linspace(-20, 20, 200_001, dtype=np.float32), arguments()])
    exact = np.nan_to_num(x.astype(np.float64), nan=0.0)
    with np.errstate(over="ignore"):
        right = {"sigmoid": 1 / (1 + np.exp(-exact)), "tanh": np.tanh(exact)}
    for name, most, low in (("sigmoid", 1.2e-4, 0.0), ("tanh", 2.4e-4, -1.0)):
        y = np.empty_like(x)
        ends = (ffi.cast("const float *", x.ctypes.data), ffi.cast("float *", y.ctypes.data))
        getattr(library, name)(x.size, *ends)
        assert np.abs(y - right[name]).max() < most
        assert low <= y.min() and y.max() <= 1
        assert (y[np.isnan(x) | (x == 0)] == right[name][x == 0][0]).all()
        np.testing.assert_allclose(y, getattr(gate_table, name)(x), rtol=0, atol=1e-7)


@pytest.mark.qemu
def test_gates_on_cortex_m4_are_those_of_the_table() -> None:
    project = rx.compile(rx.parse(KERNEL), board="mps2-an386")
    assert "raot_gate_tanhf(" in project.files["model.c"].decode()
    x = arguments()
    (run,) = emulate(project.built, [{"x": x}])
    np.testing.assert_allclose(run.outputs["s"], gate_table.sigmoid(x), rtol=0, atol=1e-7)
    np.testing.assert_allclose(run.outputs["t"], gate_table.tanh(x), rtol=0, atol=1e-7)


@pytest.mark.parametrize("numerics", ["blocked", "ordered"])
def test_other_targets_compute_gates_exactly(numerics: str) -> None:
    board = "host" if numerics == "blocked" else "mps2-an386"
    project = rx.compile(rx.parse(KERNEL), board=board, numerics=numerics)
    assert "raot_gate_" not in project.files["model.c"].decode()
