# SPDX-License-Identifier: Apache-2.0
"""Pages whose blocks are one story: files, shell and Python, run in order in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from examples.keyword import make_model
from tests.conftest import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(sh|bash|python|c|toml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:# |/\* )([\w./-]+\.\w+)(?: \*/)?\n")
TOOLS = ("gcc", "arm-none-eabi-gcc", "qemu-system-arm", "cmake")
TUTORIAL = DOCS / "tutorial" / "keyword_spotting.md"
STORIES = (
    "tutorial/keyword_spotting.md",
    "how-to/find_a_difference.md",
    "how-to/growing_state.md",
    "how-to/language_models.md",
    "how-to/separate_weights.md",
    "how-to/package.md",
    "how-to/return_between_kernels.md",
    "how-to/threads.md",
    "how-to/without_root.md",
    "reference/report.md",
)
ELSEWHERE = {
    "explanation/planner.md": "below",
    "explanation/symbolic_sizes.md": "below",
    "how-to/add_a_board.md": "below, and its board by test_documents.py",
    "how-to/add_a_micro_kernel.md": "test_documents.py",
    "how-to/add_a_pass.md": "test_documents.py",
    "how-to/add_an_op.md": "test_documents.py",
    "how-to/extend.md": "test_extend.py",
    "how-to/jetson.md": "needs the compilers of CUDA; tests/cuda does the same",
    "how-to/use_your_own_c.md": "a table without its header; tests/externs runs whole ones",
    "reference/fuzzing.md": "runs for minutes; tests/fuzz runs a sample of each generator",
    "reference/generated_c.md": "declarations, of a model that is not there",
    "reference/text_form.md": "test_documents.py",
    "how-to/verify_many.md": "runs for minutes; tests/cli/test_farm.py does the same",
    "how-to/several_entries.md": "models that are not there; tests/end_to_end/test_entries.py",
    "reference/serial.md": "needs a board at a serial line; tests/emulation/test_serial.py has one",
    "how-to/pytorch.md": "needs PyTorch; tests/frontends/torch does the same",
}
"""Pages with blocks that are not stories: the test that runs them, or why none does."""
FRAGMENTS = ("struct gesture_memory memory =",)
"""Beginnings of blocks of C that are no whole file."""
INSTALLS = re.compile(r"^(pip install|make) .*\n", re.MULTILINE)


def run_story(page: Path, folder: Path) -> None:
    """A block whose first line names a file is written there; each other one is run."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "model.onnx").symlink_to(ROOT / "examples" / "gesture" / "gesture.onnx")
    ours = (
        f'relax-aot() {{ {sys.executable} -m relax_aot "$@"; }}\n'
        f'python() {{ {sys.executable} "$@"; }}\n'
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RELAX_AOT_CACHE": str(folder / "cache")}
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        text = INSTALLS.sub("", text)
        if text.startswith(FRAGMENTS):
            continue
        if name := FILE.match(text):
            path = folder / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        assert language in ("sh", "bash", "python"), f"{page.name}: this block is not run:\n{text}"
        command = (
            [sys.executable, "-c", text] if language == "python" else ["bash", "-euc", ours + text]
        )
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", STORIES)
def test_the_blocks_of_a_page_run_in_order(name: str, tmp_path: Path) -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    run_story(DOCS / name, tmp_path)


@pytest.mark.slow
def test_the_program_of_the_tutorial_knows_its_words(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    make_model.main(tmp_path)
    rx.compile(tmp_path / "keyword.onnx", bounds={"n": make_model.LONGEST}).write(tmp_path / "c")
    (program,) = [
        text for language, text in BLOCK.findall(TUTORIAL.read_text("utf-8")) if language == "c"
    ]
    (tmp_path / "spot.c").write_text(program)
    sources = ("spot.c", "c/keyword.c", "c/keyword_weights.c")
    flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-Ic")
    subprocess.run(["gcc", *flags, *sources, "-o", "spot"], cwd=tmp_path, check=True)
    rng = np.random.default_rng(5)
    for word in make_model.WORDS:
        said = make_model.spoken(word, 41, rng).tobytes()
        found = subprocess.run([tmp_path / "spot"], input=said, capture_output=True, check=True)
        assert found.stdout.decode().strip() == word


@pytest.mark.parametrize("name", ["symbolic_sizes", "planner"])
def test_programs_of_the_explanations_run(name: str) -> None:
    page = DOCS / "explanation" / f"{name}.md"
    scripts = [text for kind, text in BLOCK.findall(page.read_text("utf-8")) if kind == "python"]
    assert scripts
    for script in scripts:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
def test_the_commands_for_a_board_of_one_s_own_run(tmp_path: Path) -> None:
    text = (DOCS / "how-to" / "add_a_board.md").read_text("utf-8")
    (board,) = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (commands,) = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "myboard.toml").write_text(board)
    story = tmp_path / "story.md"
    story.write_text(f"```sh\nexport RELAX_AOT_BOARDS=$PWD/boards\n{commands}```\n")
    run_story(story, tmp_path)
    assert "myboard" in commands


def test_every_page_with_blocks_is_run_or_says_why_not() -> None:
    pages = {
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if BLOCK.search(path.read_text(encoding="utf-8"))
    }
    assert pages == {*STORIES, *ELSEWHERE}
