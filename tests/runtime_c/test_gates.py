# SPDX-License-Identifier: Apache-2.0
"""Sigmoid and tanh by a table (raot/gates.h): its words, the errors, and the same bits in plain C,
in vectors and on boards."""

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
from relax_aot.ops import _gates
from relax_aot.verify.emulate import emulate
from tests.conftest import ROOT

INCLUDE = ROOT / "runtime_c" / "include"
BOARDS = ("mps3-an547", "mps2-an385", "aarch64-linux")
GATES = {"sigmoid": _gates.gate_sigmoid, "tanh": _gates.gate_tanh}
KERNEL = """
func @main(%x: f32[1500]) {
  %s: f32[1500], %t: f32[1500], %u: f32[1500] = call_kernel(%x) {kernel=@gates}
  return %s, %t, %u
}
kernel @gates(%x: f32[1500]) -> (%s: f32[1500], %t: f32[1500], %u: f32[1500]) {
  for i in 0..1500 {
    %s[i] = gate_sigmoid(%x[i])
  }
  for i in 0..1500 {
    %t[i] = gate_tanh(%x[i])
  }
  for i in 0..1500 {
    %u[i] = (gate_sigmoid(%x[i]) - gate_tanh(%x[i]))
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
    more = rng.uniform(-20, 20, 1500 - found.size).astype(np.float32)
    return np.concatenate([found, more])


def test_the_errors_of_the_table() -> None:
    x = np.concatenate([np.linspace(-20, 20, 200_001), arguments().astype(np.float64)])
    known = np.nan_to_num(x, nan=0.0).clip(-700, 700)
    right = {"sigmoid": 1 / (1 + np.exp(-known)), "tanh": np.tanh(known)}
    for name, most, low in (("sigmoid", 1.3e-4, 0.0), ("tanh", 2.5e-4, -1.0)):
        y = GATES[name](x)
        assert np.abs(y - right[name]).max() < most
        assert low <= y.min() and y.max() <= 1
    assert (_gates.gate_tanh(x[known == 0]) == 0).all()
    assert np.ptp(_gates.gate_sigmoid(x[known == 0]) - 0.5) == 0


def test_the_words_are_those_of_the_meaning() -> None:
    text = (INCLUDE / "raot" / "gates.h").read_text()
    found = np.array([int(word, 16) for word in re.findall(r"0x([0-9a-f]{8})u", text)])
    assert (np.roll(found, 128) == _gates.words() % 2**32).all()
    assert f"#define RAOT_GATE_MIDDLE {hex(found[0])}\n" in text


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("flags", [("-DRAOT_NO_INTRINSICS", "-fsanitize=undefined"), ()])
def test_on_this_machine(tmp_path: Path, flags: tuple[str, ...]) -> None:
    signature = "(float *values, const float *from, int32_t count)"
    (tmp_path / "gates.c").write_text(
        '#include "raot/gates.h"\n'
        + "".join(
            f"void of_{name}{signature}\n{{\n    raot_gate_{name}_f32(values, from, count);\n}}\n"
            for name in GATES
        )
    )
    command = ["gcc", "-O1", "-march=native", "-fPIC", "-shared", "-ffp-contract=off", *flags]
    command += [f"-I{INCLUDE}", "gates.c", "-o", "gates.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ffi = cffi.FFI()
    ffi.cdef("".join(f"void of_{name}{signature};" for name in GATES))
    library: Any = ffi.dlopen(str(tmp_path / "gates.so"))
    x = arguments()
    for name, meaning in GATES.items():
        y = x.copy()
        place = ffi.cast("float *", y.ctypes.data)
        getattr(library, f"of_{name}")(place, place, x.size)
        np.testing.assert_array_equal(y, meaning(x))


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    ["mps2-an386", *(pytest.param(b, marks=pytest.mark.slow) for b in BOARDS)],
)
def test_on_boards(board: str) -> None:
    """Rows, and gates in a loop with others."""
    project = rx.compile(rx.parse(KERNEL), board=board)
    x = arguments()
    (run,) = emulate(project.built, [{"x": x}])
    right = {"s": _gates.gate_sigmoid(x), "t": _gates.gate_tanh(x)}
    right["u"] = (right["s"] - right["t"]).astype(np.float32)
    for name, values in right.items():
        np.testing.assert_array_equal(run.outputs[name], values)
