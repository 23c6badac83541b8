# SPDX-License-Identifier: Apache-2.0
"""The package of docs/how-to/extend.md is installed with pip, and its commands run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "how-to" / "extend.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:# |/\* )([\w./-]+\.\w+)(?: \*/)?\n")


def files_of_page() -> dict[str, str]:
    """Blocks whose first line names a file."""
    found = {}
    for _, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if name := FILE.match(text):
            found[name[1]] = text
    return found


def commands_of_page() -> str:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return "".join(text for language, text in blocks if language == "sh")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, with the package installed into `site`."""
    folder = tmp_path_factory.mktemp("extend")
    for name, text in files_of_page().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # No network: the build backend of the page is among our development tools.
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run([sys.executable, "-m", "pip", "install", *options, "--target", "site", "."], folder)
    # What is used from now on is the installed package.
    shutil.rmtree(folder / "raot_scale")
    return folder


def run(command: list[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": f"{folder / 'site'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_shows_a_whole_package() -> None:
    assert sorted(files_of_page()) == [
        "halves.raot", "pyproject.toml", "raot_scale/__init__.py", "raot_scale/chain.py",
        "raot_scale/fast_scale.c", "raot_scale/fast_scale.h", "raot_scale/join_scales.py",
        "raot_scale/my-m4.toml", "raot_scale/operators.py", "raot_scale/scale.py",
        "raot_scale/scale.toml", "soft.chain", "test_scale.py", "use.py",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_the_commands_of_the_page_run_with_the_installed_package(folder: Path) -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    ours = (
        f'relax-aot() {{ {sys.executable} -m relax_aot "$@"; }}\n'
        f'python() {{ {sys.executable} "$@"; }}\n'
    )
    commands = commands_of_page()
    assert commands.startswith("pip install .\n")
    said = run(["bash", "-euc", ours + commands.removeprefix("pip install .\n")], folder)
    assert said.count("; equal") == 2
    for group in ("ops", "onnx", "passes", "boards", "frontends", "libraries"):
        assert re.search(rf"^plug-?in: {group} +\S+ \(raot-scale 1.0\)$", said, re.MULTILINE)
    assert re.search(r"^example.Scale +the factor is an attribute$", said, re.MULTILINE)
    assert "my-m4: A board of mine: Cortex-M4 with FPU" in said
    assert (folder / "halves" / "fast_scale.c").is_file()


@pytest.mark.slow
def test_the_op_passes_its_samples_as_c(folder: Path) -> None:
    script = (
        "from raot_scale.scale import OP\n"
        "from relax_aot.verify.op_check import problems_of\n"
        "from tests.ops.c_executor import c_library\n"
        "assert problems_of(OP, c_library) == []\n"
    )
    run([sys.executable, "-c", script], folder)


@pytest.mark.qemu
@pytest.mark.long
def test_the_board_runs_the_model(folder: Path) -> None:
    script = (folder / "use.py").read_text() + (
        'board = rx.compile(model, bounds={"n": 16}, board="my-m4", libraries=["scale"])\n'
        'np.testing.assert_array_equal(board.emulate(x=x).outputs["y"], np.maximum(x / 4, 0))\n'
    )
    run([sys.executable, "-c", script], folder)
