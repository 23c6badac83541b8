# SPDX-License-Identifier: Apache-2.0
"""The published errors of elementary functions hold, against the C library of this machine."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from benchmarks.math_errors import NAMES, build, measure
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "reference" / "math_functions.md"
EVERY = 61 * 331
"""Some of the floats of the page; doubles are others, so that they may be a little worse."""
OTHERS = 1.5
FLOAT_LIMIT = 1.5
"""No function of float is worse, whatever the page says."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    return build(tmp_path_factory.mktemp("math"))


@cache
def published() -> dict[str, tuple[float, float]]:
    """Greatest errors of float and double by function."""
    number = r"([\d.]+)"
    row = re.compile(rf"^\| `(\w+)` \| [\d,]+ \| {number} \| [^|]* \| [\d,]+ \| {number} \|", re.M)
    rows = row.findall(PAGE.read_text())
    return {name: (float(single), float(double)) for name, single, double in rows}


def test_the_page_has_every_function() -> None:
    assert set(published()) == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_those_published(name: str, program: Path) -> None:
    single, double = (measure(program, function, EVERY) for function in (f"{name}f", name))
    most, most_of_double = published()[name]
    assert single.wrong == double.wrong == 0
    assert single.error <= min(most + 0.01, FLOAT_LIMIT), single.at
    assert double.error <= most_of_double * OTHERS, double.at


@pytest.mark.long
def test_an_error_would_show(tmp_path: Path) -> None:
    """A routine that is off in the last bits is found by the same program."""
    source = (ROOT / "benchmarks" / "math_errors.c").read_text()
    assert "raot_##name##f(x)" in source
    (tmp_path / "math_errors.c").write_text(
        source.replace("raot_##name##f(x)", "raot_##name##f(x) * 1.0000004f")
    )
    program = build(tmp_path, tmp_path / "math_errors.c")
    assert measure(program, "expf", EVERY).error > FLOAT_LIMIT
