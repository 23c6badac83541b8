# SPDX-License-Identifier: Apache-2.0
"""Every verb with a standard output that does not take the answer, and interrupts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relax_aot.cli.main import cli, main
from tests.conftest import ROOT
from tests.frontends.llm.checkpoints import Llama

GESTURE = str(ROOT / "examples" / "gesture" / "gesture.onnx")
LAST = ("--bound", "n=4", "--quiet")
ANSWERS: dict[str, list[tuple[str, ...]]] = {
    "boards": [("boards",), ("boards", "--json", "-"), ("--help",), ("--version",)],
    "ops": [("ops",)],
    "doctor": [("doctor",)],
    "completion": [("completion", "bash")],
    "compile": [("compile", GESTURE, "-o", "out", *LAST)],
    "llm": [("llm", "tiny", "--context", "8", "-o", "out", "--quiet")],
    "verify": [("verify", GESTURE, "--at", "n=2", *LAST)],
    "report": [("report", GESTURE, "-o", "-", "--format", "txt", *LAST)],
    "plan": [("plan", "plan.csv")],
    "new-board": [("new-board", "mine")],
}
"""By verb. The others need an emulator, Frama-C or a long time, and answer in the same way."""
COMMANDS = [command for commands in ANSWERS.values() for command in commands]
WHY = {"full": "No space left", "closed": "it is closed", "pipe": "Broken pipe"}


def prepared(folder: Path) -> Path:
    (folder / "plan.csv").write_text("id,lower,upper,size\n1,0,2,64\n")
    Llama(layers=1).write(folder / "tiny")
    return folder


def start(
    command: tuple[str, ...], folder: Path, stdout: str, *, buffered: bool
) -> subprocess.Popen[str]:
    clean = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    clean |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    redirected = {"full": ">/dev/full", "closed": ">&-", "pipe": ""}[stdout]
    line = f"exec {shlex.join([sys.executable, '-m', 'relax_aot', *command])}"
    # The pipe's reader ends before the writer begins.
    script = f"({line}) {redirected}" if stdout != "pipe" else f"(sleep .2; {line}) | true"
    return subprocess.Popen(
        ["bash", "-c", f"set -o pipefail; {script}"],
        cwd=folder, env=clean | {"PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_every_verb_is_listed() -> None:
    left = {"bug", "chat", "compare", "demo", "perplexity", "profile", "prove", "runner"}
    assert set(cli.commands) == ANSWERS.keys() | left


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("boards",), *(pytest.param(c, marks=pytest.mark.long) for c in COMMANDS if c != ("boards",))],
    ids=" ".join,
)
def test_an_answer_that_is_lost_is_one_line_and_code_2(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """With nothing in the environment but HOME and PATH: output is buffered there."""
    for output, why in WHY.items():
        folder = tmp_path / output
        folder.mkdir()
        process = start(command, prepared(folder), output, buffered=output != "pipe")
        said = process.communicate()[1]
        assert process.returncode == 2, (output, said)
        (line,) = said.splitlines()
        assert line.startswith("relax-aot: ") and why in line


@pytest.mark.long
def test_answers_of_every_verb_that_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(prepared(tmp_path))
    for number, command in enumerate(COMMANDS):
        monkeypatch.setattr(sys, "argv", ["relax-aot", *command])
        with monkeypatch.context() as patch, Path("/dev/full").open("w") as full:
            patch.setattr(sys, "stdout", full if number % 2 else None)
            code = main()
        said = capsys.readouterr().err
        assert code == 2 and WHY["full" if number % 2 else "closed"] in said, (command, said)
        assert len(said.splitlines()) == 1, (command, said)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["2>/dev/full", ">&- 2>&- <&-"])
def test_messages_that_are_lost_leave_the_exit_code(lost: str, tmp_path: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m relax_aot boards mps2-an386 -v {lost}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (2 if lost.startswith(">") else 0), (done.stdout, done.stderr)
    assert not done.stderr


@pytest.mark.parametrize(
    "seconds", [0.3, *(pytest.param(n / 8, marks=pytest.mark.long) for n in range(1, 24))]
)
def test_an_interrupt_leaves_no_traceback(seconds: float, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "relax_aot", "compile", GESTURE, "-o", "out", *LAST],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode in (0, 130), said
    assert said.strip() in ("", "interrupted")
