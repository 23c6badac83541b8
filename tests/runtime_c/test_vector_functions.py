# SPDX-License-Identifier: Apache-2.0
"""Functions for vectors: compilers make vectors of loops over them, with the bits of one call."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from functools import cache
from itertools import product
from pathlib import Path

import cffi
import numpy as np
import pytest

from benchmarks.math_errors import FORMS, SOURCE, VECTORS, build, measure
from relax_aot.microkernels.functions import FUNCTIONS
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "reference" / "math_functions.md"
EVERY = 61 * 331
LIMIT = 2.5
"""Units in the last place: what `verify` allows for (VECTOR_STEPS of relax_aot/verify/depth.py)."""
COMMON = ("-std=gnu11", "-ffp-contract=off", "-DRAOT_CONTRACTION_OFF", "-fPIC", "-shared")
LOOPS = """static inline float raot_exp_below_zerof(float x)
{
    return raot_exp_belowf(-raot_absf(x), 0.0f);
}
""" + "".join(
    f"void k_{name}(int32_t n, const float *restrict x, float *restrict y)\n"
    f"{{\n    for (int32_t i = 0; i < n; i++) {{\n        y[i] = raot_{name}f(x[i]);\n    }}\n}}\n"
    for name in VECTORS
)
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are those of x86-64"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]


def compiled(
    folder: Path, *flags: str, source: str = LOOPS, names: tuple[str, ...] = VECTORS
) -> tuple[cffi.FFI, object, str]:
    """The loops as a library, and what the compiler says of vectors."""
    folder.mkdir()
    (folder / "loops.c").write_text(f'#include "raot/math.h"\n{source}')
    include = ROOT / "runtime_c" / "include"
    command = ["gcc", *COMMON, *flags, f"-I{include}", "loops.c", "-o", "loops.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ffi = cffi.FFI()
    for name in names:
        ffi.cdef(f"void k_{name}(int32_t n, const float *x, float *y);")
    return ffi, ffi.dlopen(str(folder / "loops.so")), done.stderr


@cache
def processor() -> str:
    return Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize("flags", [(), ("-mavx2", "-mfma")], ids=["sse2", "avx2"])
def test_vectors_have_the_bits_of_single_calls(flags: tuple[str, ...], tmp_path: Path) -> None:
    fast = compiled(tmp_path / "fast", "-O3", "-fno-trapping-math", "-fopt-info-vec", *flags)
    slow = compiled(tmp_path / "slow", "-O1", "-fno-tree-vectorize", *flags)
    assert len(re.findall(r"loop vectorized using (?:16|32) byte vectors", fast[2])) >= 5
    if flags and " fma " not in processor():
        pytest.skip("this processor has no FMA")
    bits = np.random.default_rng(0).integers(0, 2**32, 100_003, np.uint32)
    near = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 88.8, -104.0], "f")
    x = np.concatenate([bits.view(np.float32), near, special])
    for name in VECTORS:
        found = []
        for ffi, library, _ in (fast, slow):
            y = np.zeros_like(x)
            pointers = (ffi.cast("float *", ffi.from_buffer(array)) for array in (x, y))
            getattr(library, f"k_{name}")(x.size, *pointers)
            found.append(np.where(np.isnan(y), np.float32(np.nan), y))
        assert found[0].tobytes() == found[1].tobytes(), name
        assert np.array_equal(np.isnan(found[0]), np.isnan(x)), name


def test_cores_without_vectors_have_the_bits_of_vectors(tmp_path: Path) -> None:
    """The form with branches, as for Cortex-M with FMA; erf has a form of its own."""
    if " fma " not in processor():
        pytest.skip("this processor has no FMA")
    flags, scalar = ("-O1", "-mfma"), ("-U__SSE2__", "-D__ARM_FEATURE_FMA=1", "-Wno-overflow")
    vectors, alone = (compiled(tmp_path / name, *flags, *more)
                      for name, more in (("vectors", ()), ("scalar", scalar)))  # fmt: skip
    bits = np.random.default_rng(4).integers(0, 2**32, 100_003, np.uint32).view(np.float32)
    near = np.random.default_rng(5).uniform(-110, 110, 100_000).astype(np.float32)
    edges = [87.5, 30.0, 1.0, 88.0, 105.0, 0.0, np.inf, np.nan, 1e-42]
    edges = [
        sign * np.nextafter(np.float32(edge), way)
        for edge in edges
        for way in map(np.float32, (0, np.inf))
        for sign in (1, -1)
    ]
    x = np.concatenate([bits, near, np.array(edges, "f")])
    for name in ("exp", "exp_below_zero", "expm1", "sigmoid", "tanh"):
        wanted, _ = row_of(vectors, name, x, in_place=False)
        found, _ = row_of(alone, name, x, in_place=False)
        assert found.tobytes() == wanted.tobytes(), name


ROWS = """#include "raot/functions_f32.h"
""" + "".join(
    f"void k_{name}(int32_t n, const float *x, float *y)\n{{\n    raot_{name}_f32(y, x, n);\n}}\n"
    for name in FUNCTIONS
)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("-O3",), ("-O1", "-fsanitize=undefined")], ids=["fast", "ub"])
def test_rows_by_intrinsics_have_the_bits_of_single_calls(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Of each length up to two groups of vectors, in place too, and no element behind the row."""
    if " fma " not in processor():
        pytest.skip("this processor has no FMA")
    avx2 = ("-mavx2", "-mfma")
    slow = compiled(tmp_path / "slow", "-O1", "-fno-tree-vectorize", *avx2)
    fast = compiled(tmp_path / "fast", *flags, *avx2, source=ROWS, names=(*FUNCTIONS,))
    bits = np.random.default_rng(2).integers(0, 2**32, 20_000, np.uint32).view(np.float32)
    near = np.random.default_rng(3).normal(size=20_000).astype(np.float32) * 4
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 88.8, -88.8, 1.0, -1.0, -104.0]
    x = np.concatenate([bits, near, np.array(special, "f")])
    lengths = [*range(70), 127, 128, 129, 200]
    rows = [x[:n] for n in lengths] + [x[-n:] for n in lengths if n] + [x]
    for name, row in product(FUNCTIONS, rows):
        wanted, _ = row_of(slow, name, row, in_place=False)
        for in_place in (False, True):
            found, behind = row_of(fast, name, row, in_place=in_place)
            assert found.tobytes() == wanted.tobytes(), (name, row.size)
            assert behind == 7.0


def row_of(
    built: tuple[cffi.FFI, object, str], name: str, x: np.ndarray, *, in_place: bool
) -> tuple[np.ndarray, float]:
    """The function of x, one NaN for all, and the element behind it, which was 7."""
    ffi, library, _ = built
    y = np.append(x if in_place else np.zeros_like(x), np.float32(7))
    source = y if in_place else x.copy()
    pointers = (ffi.cast("float *", ffi.from_buffer(array)) for array in (source, y))
    getattr(library, f"k_{name}")(x.size, *pointers)
    return np.where(np.isnan(y[:-1]), np.float32(np.nan), y[:-1]), float(y[-1])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_errors_are_those_published(form: str, tmp_path: Path) -> None:
    if FORMS[form] and " fma " not in processor():
        pytest.skip("this processor has no FMA")
    row = re.compile(r"^\| `(\w+)` \| [\d,]+ \| ([\d.]+) \| [^|]* \| ([\d.]+) \| [^|]* \|$", re.M)
    rows = row.findall(PAGE.read_text())
    published = {name: float(errors[[*FORMS].index(form)]) for name, *errors in rows}
    assert set(published) == set(VECTORS)
    program = build(tmp_path, SOURCE, FORMS[form])
    for name in VECTORS:
        worst = measure(program, f"{name}f", EVERY)
        assert worst.wrong == 0, name
        assert worst.error <= min(published[name] + 0.01, LIMIT), (name, worst.at)
