# SPDX-License-Identifier: Apache-2.0
"""Which cases of tests with many parameters are in the gate (tests/conftest.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.conftest import ROOT, SAMPLED

FOLDER = "frontends"
FILE = f"{FOLDER}/test_tflite_movement.py"


def collected(*arguments: str) -> Counter[str]:
    """How many cases of each test of FILE are chosen."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "not long"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = re.findall(rf"^tests/{FILE}::(\w+)", done.stdout, re.MULTILINE)
    return Counter(found)


@pytest.mark.slow
def test_the_gate_runs_a_case_in_so_many_of_each_test() -> None:
    others = [f"--ignore=tests/{path.name}" for path in (ROOT / "tests").iterdir()]
    others.remove(f"--ignore=tests/{FOLDER}")
    gate, alone = collected(*others), collected(f"tests/{FILE}")
    assert gate.keys() == alone.keys()
    for test, cases in alone.items():
        assert gate[test] == -(-cases // SAMPLED[FILE]), test
    assert max(alone.values()) > SAMPLED[FILE]


@pytest.mark.parametrize("path", SAMPLED)
def test_what_is_sampled_exists(path: str) -> None:
    assert (ROOT / "tests" / path).exists()
