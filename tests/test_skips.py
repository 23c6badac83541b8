# SPDX-License-Identifier: Apache-2.0
"""What tests/conftest.py refuses: a skip without a good reason, where everything ought to be here,
and names of tests that differ between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ALLOWED_SKIPS, ROOT

IN_A_TEST = """
import pytest
def test_it():
    pytest.skip({reason!r})
"""
BY_MARK = """
import pytest
@pytest.mark.skipif(True, reason={reason!r})
def test_it():
    assert True
"""
IN_A_FIXTURE = """
import pytest
@pytest.fixture
def tool():
    pytest.skip({reason!r})
def test_it(tool):
    assert True
"""
FOR_EACH = """
import pytest
@pytest.mark.parametrize("reason", {reasons!r})
def test_it(reason):
    pytest.skip(reason)
"""
WHOLE_FILE = """
import pytest
pytest.skip({reason!r}, allow_module_level=True)
"""

BY_ADDRESS = """
import pytest
@pytest.mark.parametrize("value", [object()], ids=str)
def test_it(value):
    assert value
"""


WITHOUT_SKIPS = {"RELAX_AOT_NO_SKIPS": "1"}


def outcome(folder: Path, text: str, environment: dict[str, str]) -> tuple[int, str]:
    (folder / "test_sample.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    clean = {k: v for k, v in os.environ.items() if k not in {"CI", "RELAX_AOT_NO_SKIPS"}}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "test_sample.py"],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "environment"),
    [
        pytest.param(IN_A_TEST, WITHOUT_SKIPS, id="test"),
        pytest.param(BY_MARK, {"CI": "true"}, id="mark"),
        pytest.param(IN_A_FIXTURE, WITHOUT_SKIPS, id="fixture"),
        pytest.param(WHOLE_FILE, {"CI": "true"}, id="file"),
    ],
)
def test_an_unexpected_skip_fails(text: str, environment: dict[str, str], tmp_path: Path) -> None:
    code, said = outcome(tmp_path, text.format(reason="no qemu"), environment)
    assert code not in (0, pytest.ExitCode.NO_TESTS_COLLECTED), said
    assert "unexpected skip: no qemu" in said


@pytest.mark.slow
def test_allowed_skips_stay_skips(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, FOR_EACH.format(reasons=ALLOWED_SKIPS), WITHOUT_SKIPS)
    assert code == 0, said
    assert f"{len(ALLOWED_SKIPS)} skipped in" in said


@pytest.mark.slow
def test_without_the_variables_a_skip_is_a_skip(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, IN_A_TEST.format(reason="no qemu"), {})
    assert code == 0, said
    assert "1 skipped" in said


def test_the_address_of_an_object_is_no_name(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, BY_ADDRESS, {})
    assert code == pytest.ExitCode.USAGE_ERROR, said
    assert "the address of an object is no name of a test" in said
