# SPDX-License-Identifier: Apache-2.0
"""Progress: a bar on a terminal, lines else, nothing for short work, all of it with -v."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from relax_aot.cli import progress as cli_progress
from relax_aot.progress import LOG, step
from tests.cli.in_process import relax_aot
from tests.conftest import ROOT

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
COMPILE = ("compile", str(GESTURE), "--bound", "n=8", "-o", "out")


@pytest.mark.slow
def test_verbose_names_every_stage_and_quiet_none(tmp_path: Path) -> None:
    said = relax_aot(*COMPILE, "-v", folder=tmp_path)
    places = [said.stderr.index(f"{s} done") for s in ("frontend", "lowering", "plan")]
    assert places == sorted(places)
    quiet = relax_aot(*COMPILE, "--quiet", folder=tmp_path)
    assert said.returncode == quiet.returncode == 0
    assert (quiet.stderr, quiet.stdout) == ("", said.stdout)


@pytest.mark.parametrize(
    ("silent", "between", "expected"), [(60.0, 0.0, 0), (0.0, 60.0, 1), (0.0, 0.0, 3)]
)
def test_lines_where_there_is_no_terminal(
    silent: float,
    between: float,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli_progress, "SILENT_SECONDS", silent)
    monkeypatch.setattr(cli_progress, "SECONDS_BETWEEN_LINES", between)
    level = LOG.level
    with cli_progress.Shown():
        for number in range(3):
            step("working", number, 3)
    step("unheard")
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == expected and all("working (" in line for line in lines)
    assert LOG.level == level


def test_a_bar_on_a_terminal_that_is_gone_afterwards(tmp_path: Path) -> None:
    script = (
        "from relax_aot.cli import progress as cli_progress\n"
        "from relax_aot.progress import finished, step\n"
        "import time\n"
        "cli_progress.SILENT_SECONDS = 0.0\n"
        "with cli_progress.Shown():\n"
        "    step('half of it', 1, 2)\n"
        "    time.sleep(0.3)\n"
        "    finished()\n"
        "    print('the result')\n"
    )
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        stderr=theirs,
        stdout=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while data := os.read(ours, 4096):
                said += data
        except OSError:
            pass  # how a terminal says that its other end is closed
        assert process.stdout is not None
        assert process.stdout.read() == b"the result\n"
        assert process.wait(60) == 0
    os.close(ours)
    assert "half of it" in said.decode() and "━" in said.decode()
    assert said.rstrip().endswith(b"\x1b[2K"), said[-40:]  # the bar's line is erased
