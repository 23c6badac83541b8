# SPDX-License-Identifier: Apache-2.0
"""What cores without an FPU compute by the bits of floats has the bits of floats."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import ROOT

INCLUDE = ROOT / "runtime_c" / "include"
CONVERSIONS = {
    "raot_f32_to_i32_sat": "int32_t", "raot_f32_to_u32_sat": "uint32_t",
    "raot_f32_to_i64_sat": "int64_t", "raot_f32_to_u64_sat": "uint64_t",
    "raot_f32_low_bits": "uint32_t", "raot_f32_to_i32_nearest": "int32_t",
    "raot_gate_sigmoidf": "float", "raot_gate_tanhf": "float",
}  # fmt: skip
LEVELED = ("raot_at_leastf", "raot_at_mostf", "raot_is_at_mostf")
TYPES = {
    "int32_t": np.int32, "uint32_t": np.uint32, "int64_t": np.int64, "uint64_t": np.uint64,
    "float": np.uint32,
}  # fmt: skip
"""Floats are compared as bits."""
LEVELS = (-1.0, -0.0, 0.0, 6.0, np.inf)
DIVISORS = (1.0, 0.37, 1.9999999, 1.5e-3, 2e-38, 3e38, 2.0**-20)
QUOTIENTS = "raot_quotient_bits"


def library(folder: Path, *flags: str) -> tuple[Any, Any]:
    calls = {name: f"{kind} *y, const float *x, int n" for name, kind in CONVERSIONS.items()}
    calls |= dict.fromkeys(LEVELED, "float *y, const float *x, int n, float by")
    calls[QUOTIENTS] = "int32_t *y, const float *x, int n, float by"
    declared = {name: f"void all_{name}({given})" for name, given in calls.items()}
    headers = ("convert.h", "gates.h", "quantize_range.h")
    lines = [f'#include "raot/{header}"' for header in headers]
    for name, text in declared.items():
        more = ", by" if "by" in calls[name] else ""
        lines += [
            f"{text};",
            f"{text} {{ for (int i = 0; i < n; i++) y[i] = {name}(x[i]{more}); }}",
        ]
    (folder / "calls.c").write_text("\n".join(lines) + "\n")
    command = ["gcc", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fsanitize=undefined"]
    command += ["-fno-sanitize-recover", *flags, f"-I{INCLUDE}", "calls.c", "-o", "calls.so"]
    subprocess.run(command, cwd=folder, check=True)
    ffi = cffi.FFI()
    ffi.cdef(";".join(declared.values()) + ";")
    return ffi, ffi.dlopen(str(folder / "calls.so"))


def numbers() -> NDArray[np.float32]:
    """Floats of all exponents and next to powers of two, zeros, infinities and NaN."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 100_000, np.uint32)
    powers = (np.arange(512, dtype=np.uint32) << 23)[:, None] + np.arange(-2, 3).astype(np.uint32)
    small = rng.integers(-40 * 2**19, 40 * 2**19, 50_000) / np.float32(2**19)
    every = [bits.view(np.float32), powers.reshape(-1).view(np.float32), small.astype(np.float32)]
    halves = np.arange(-260, 260)[:, None] / 2 * np.array(DIVISORS, np.float64).astype(np.float32)
    with np.errstate(over="ignore"):
        singles = halves.astype(np.float32)
    near = singles.reshape(-1).view(np.uint32)[:, None] + np.arange(-3, 4)
    return np.concatenate([*every, near.astype(np.uint32).reshape(-1).view(np.float32)])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_results_have_the_bits_of_floats(tmp_path: Path) -> None:
    x = numbers()
    found: list[dict[str, Any]] = []
    for flags in ((), ("-DRAOT_FLOAT_CALLS=1",)):
        folder = tmp_path / str(len(flags))
        folder.mkdir()
        ffi, lib = library(folder, *flags)
        results: dict[str, Any] = {}
        for name in (*CONVERSIONS, *LEVELED, QUOTIENTS):
            kind = CONVERSIONS.get(name, "int32_t" if name == QUOTIENTS else "float")
            levels = DIVISORS if name == QUOTIENTS else LEVELS
            for level in (None,) if name in CONVERSIONS else levels:
                y = np.empty(x.shape, TYPES[kind])
                given = [ffi.cast(f"{kind} *", y.ctypes.data), ffi.cast("float *", x.ctypes.data)]
                more = [] if level is None else [level]
                getattr(lib, f"all_{name}")(*given, x.size, *more)
                results[f"{name} {level}"] = y & 255 if name == QUOTIENTS else y
        found.append(results)
    for name, expected in found[0].items():  # of quotients the lowest byte
        np.testing.assert_array_equal(found[1][name], expected, err_msg=name)
