# SPDX-License-Identifier: Apache-2.0
"""Quotients by the steps of GPUs (quotient.h) have the bits of those of the processor, whatever
the instruction of a GPU for reciprocals gives within its error."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime_c.headers import HEADERS

SOURCE = Path(__file__).with_name("quotients.c")
ESTIMATE = re.compile(r'asm\("rcp\.approx\.ftz\.(f32|f64) %0, %1;"[^;]*;')


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("quotients")
    text = (HEADERS / "raot" / "quotient.h").read_text()
    text, count = ESTIMATE.subn(r"r = estimate_\1(d);", text)
    assert count == 2
    (folder / "estimated.h").write_text(text.replace('"ieee.h"', '"raot/ieee.h"'))
    flags = ("-std=c11", "-O2", "-march=native", "-ffp-contract=off", "-Wall", "-Werror")
    include = (f"-I{HEADERS}", '-DESTIMATED="estimated.h"', f"-I{folder}")
    built = folder / "quotients"
    subprocess.run(["gcc", *flags, *include, SOURCE, "-o", built, "-lm"], check=True)
    return built


@pytest.mark.parametrize("rounds", ["200000", pytest.param("20000000", marks=pytest.mark.long)])
@pytest.mark.parametrize("off", ["-1", "0", "1"])
def test_quotients_have_the_bits_of_the_processor(program: Path, off: str, rounds: str) -> None:
    done = subprocess.run([program, off, rounds], capture_output=True, text=True, check=False)
    assert done.stdout == "0 wrong\n"
