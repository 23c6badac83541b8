# SPDX-License-Identifier: Apache-2.0
"""Double functions compared with mpmath, which computes with any number of bits: over the whole
range, at the hardest angles, and where IEEE 754 and C (annex F) say what comes."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import ROOT

Array = NDArray[np.float64]
SOURCE = ROOT / "tests" / "runtime_c" / "maths_values.c"
LIMIT = 2.0
"""Units of the last place."""
SAMPLES = 300
BITS = 1300
"""Of mpmath's numbers: angles have up to 1024 bits before the point."""
BUILDS = {
    "plain": ("gcc", "-O2", "-ffp-contract=off"),
    "fused": ("gcc", "-O3", "-march=native", "-ffp-contract=fast"),
    "clang": ("clang", "-O2", "-march=native", "-ffp-contract=off"),
}
FUNCTIONS = (
    "sin", "cos", "tan", "exp", "log", "log2", "log1p", "expm1", "asin", "acos", "atan", "tanh",
    "erf", "pow",
)  # fmt: skip
HARDEST = 6381956970095103.0 * 2.0**797
"""Nearest of all doubles to a multiple of pi / 2 (Muller, Elementary Functions, table 11.1)."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, (compiler, *flags) in BUILDS.items():
        if shutil.which(compiler) is None:
            continue
        made[name] = tmp_path_factory.mktemp(name) / "values"
        include = f"-I{ROOT / 'runtime_c' / 'include'}"
        command = [compiler, "-std=c11", *flags, include, str(SOURCE), "-o", str(made[name])]
        subprocess.run(command, check=True)
    if "plain" not in made:
        pytest.skip("gcc is not installed")
    return made


def run(program: Path, function: str, x: Array, y: Array) -> Array:
    data = np.stack([x, y], axis=1).astype(np.float64).tobytes()
    done = subprocess.run([program, function], input=data, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.float64)


def arguments_of(function: str) -> tuple[Array, Array]:
    """Of every size, near 1 and near multiples of pi / 2; for pow such that results are finite."""
    rng = np.random.default_rng(len(function))
    anything = rng.integers(0, 0x7FF0 << 48, SAMPLES).astype(np.uint64).view(np.float64)
    usual = rng.normal(0, 3, SAMPLES)
    turns = rng.integers(1, 2**20, SAMPLES) * (math.pi / 2)
    beside_one = 1 + rng.normal(0, 1, SAMPLES) * 2.0 ** rng.integers(-50, 0, SAMPLES)
    x = np.concatenate([anything, usual, turns, beside_one, [HARDEST, 1e22, 0.5, 2.0**-1074]])
    y = np.zeros_like(x)
    if function == "pow":
        x = np.abs(x)
        x = x[(x > 0) & (x != 1)]
        y = rng.uniform(-745, 709, x.size) / np.log(x)
        y[::3] = np.trunc(y[::3])
    elif function in ("asin", "acos"):
        x = np.where(np.abs(x) <= 1, x, 1 / np.where(np.abs(x) <= 1, 1, x))
    elif function in ("log", "log2"):
        x = np.abs(x)
        x = x[x > 0]
        y = y[: x.size]
    elif function == "log1p":
        x = x[x > -1]
        y = y[: x.size]
    elif function in ("exp", "expm1"):
        x = np.where(np.abs(x) < 700, x, np.fmod(x, 700))
    return x, y


def exactly(function: str, x: float, y: float) -> Any:
    given = mpmath.mpf(x)
    if function == "pow":
        return mpmath.power(given, mpmath.mpf(y))
    if function == "log2":
        return mpmath.log(given, 2)
    return getattr(mpmath, function)(given)


def units(found: float, exact: Any) -> float:
    """How far off, in units of the last place of the exact value."""
    if exact == 0:
        return 0.0 if found == 0 else math.inf
    _, exponent = mpmath.frexp(exact)
    unit = mpmath.mpf(2) ** max(int(exponent) - 53, -1074)
    return float(abs(mpmath.mpf(found) - exact) / unit)


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_errors_are_small_everywhere(function: str, programs: dict[str, Path]) -> None:
    x, y = arguments_of(function)
    found = run(programs["plain"], function, x, y)
    assert found.size == x.size
    with mpmath.workprec(BITS if function in ("sin", "cos", "tan") else 160):
        errors = [
            units(float(f), exactly(function, float(a), float(b)))
            for f, a, b in zip(found, x, y, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= LIMIT, (x[worst].hex(), y[worst].hex(), errors[worst])
    assert max(errors) > 0.3, "an exact function would be a wrong measure"


@pytest.mark.slow
@pytest.mark.parametrize("function", ["sin", "cos", "tan", "pow", "exp", "log", "atan", "acos"])
def test_other_compilers_give_the_same_bits(function: str, programs: dict[str, Path]) -> None:
    x, y = arguments_of(function)
    plain = run(programs["plain"], function, x, y).view(np.uint64)
    for name in ("fused", "clang"):
        if name in programs:
            other = run(programs[name], function, x, y).view(np.uint64)
            np.testing.assert_array_equal(other, plain, name)


def test_powers_that_the_standard_fixes(programs: dict[str, Path]) -> None:
    """C11 F.10.4.4, compared with Python's pow, which implements it."""
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e300, -1e300, 5e-324]
    special += [math.inf, -math.inf, math.nan, 1025.0, -1075.0, 2.0**53, 2.0**53 + 2, 0.1]
    x, y = (a.ravel() for a in np.meshgrid(np.array(special), np.array(special)))
    found = run(programs["plain"], "pow", x, y)
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    for a, b, ours, theirs in zip(x, y, found, wanted, strict=True):
        assert np.isnan(ours) == np.isnan(theirs), (a, b, ours, theirs)
        if np.isnan(theirs):
            continue
        assert np.signbit(ours) == np.signbit(theirs), (a, b, ours, theirs)
        if np.isinf(theirs) or theirs == 0 or theirs in (1, 2, 3, 4, 8, 9, 0.5, 0.25, 27):
            assert ours == theirs, (a, b, ours, theirs)
        else:
            assert abs(ours - theirs) <= 2 * np.spacing(abs(theirs)), (a, b, ours, theirs)


def test_angles_that_the_standard_fixes(programs: dict[str, Path]) -> None:
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan])
    for function, at_zero in (("sin", 0.0), ("tan", 0.0), ("cos", 1.0)):
        found = run(programs["plain"], function, x, x)
        assert found[0] == found[1] == at_zero
        assert np.signbit(found[1]) == (function != "cos")
        assert np.isnan(found[2:]).all()
