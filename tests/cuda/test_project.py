# SPDX-License-Identifier: Apache-2.0
"""The folder of a project for a GPU: what it holds, and that it builds alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.project.cuda_board import DeviceError
from relax_aot.toolchain.nvrtc import OPTIONS
from tests.conftest import ROOT
from tests.cuda.toolkits import needs_compilers, needs_fixed_addresses

MODEL = ROOT / "examples" / "gesture" / "gesture.onnx"


def compiled(board: str, emit: str = "auto") -> Project:
    options = Options(bounds={"n": (1, 64)}, name="gesture", emit=emit)
    return driver.compile_model(MODEL, board, options)


@pytest.mark.parametrize("board", ["jetson-nano", "jetson-tx2", "jetson-thor", "cuda-sm90"])
def test_a_project_in_source_needs_no_compiler_of_cuda(board: str) -> None:
    project = compiled(board, "cuda-source")
    again = compiled(board, "cuda-source")
    assert project.files == again.files
    assert {"gesture.c", "gesture.cu", "gesture_cubin.c", "CMakeLists.txt"} <= project.files.keys()
    build = project.files["CMakeLists.txt"].decode()
    assert f"--gpu-architecture=sm_{project.board.cuda.sm}" in build  # type: ignore[union-attr]
    assert b".incbin" in project.files["gesture_cubin.c"]


DIGESTS = """
import hashlib, sys
from relax_aot import driver
from tests.end_to_end.subjects import SUBJECTS
subject, board = SUBJECTS[sys.argv[1]], sys.argv[2]
files = driver.compile_model(subject.model(), board, subject.options).files
for name, contents in files.items():
    print(name, hashlib.sha256(contents).hexdigest())
"""


@pytest.mark.slow
@needs_compilers
@needs_fixed_addresses
@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("gesture", "jetson-xavier"),
        pytest.param("gesture", "jetson-orin-nano", marks=pytest.mark.long),
        *(
            pytest.param(name, board, marks=pytest.mark.long)
            for name in ("gru_tagger", "small_encoder")
            for board in ("jetson-orin-nano", "jetson-xavier")
        ),
    ],
)
@pytest.mark.long
def test_two_processes_make_the_same_project(name: str, board: str, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS, name, board], cwd=ROOT, check=True, text=True,
            capture_output=True, env=os.environ | {
                "PYTHONHASHSEED": seed, "RELAX_AOT_CACHE": str(tmp_path / seed),
                "PYTHONPATH": str(ROOT),
            },
        )  # fmt: skip
        found.append(done.stdout.splitlines())
    assert found[0] == found[1]
    assert any("_cubin.c " in line for line in found[0])


@pytest.mark.slow
@needs_compilers
def test_a_project_builds_alone_and_says_what_is_missing(tmp_path: Path) -> None:
    if shutil.which("cmake") is None or shutil.which("gcc") is None:
        pytest.skip("cmake or gcc is not installed")
    project = compiled("jetson-orin-nano")
    text = project.files["gesture_cubin.c"].decode()
    assert all(f"gesture_cubin_{toolkit}[] = {{" in text for toolkit in (11, 12))
    folder = project.write(tmp_path / "project")
    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Wconversion -Werror"
    build = str(tmp_path / "build")
    for arguments in (["-S", str(folder), "-B", build, flags], ["--build", build]):
        subprocess.run(["cmake", *arguments], check=True, capture_output=True)
    done = subprocess.run(
        [tmp_path / "build" / "gesture_example"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == "RAOT_ERR_DEVICE libcuda.so.1: no such driver on this machine\n"


NVCC = """#!/bin/sh
echo "$@" > "$(dirname "$0")/arguments"
while [ "$1" != -o ]; do shift; done
printf '\\177ELF' > "$2"
"""
"""It says what it was given, and makes a file."""


@pytest.mark.slow
def test_a_project_in_source_calls_the_nvcc_of_the_machine(tmp_path: Path) -> None:
    if shutil.which("cmake") is None or shutil.which("gcc") is None:
        pytest.skip("cmake or gcc is not installed")
    folder = compiled("jetson-nano", "cuda-source").write(tmp_path / "project")
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    home, build = {"CUDA_HOME": str(tmp_path / "cuda")}, str(tmp_path / "build")
    for arguments in (["-S", str(folder), "-B", build], ["--build", build]):
        subprocess.run(
            ["cmake", *arguments], check=True, capture_output=True, env=os.environ | home
        )
    given = (nvcc.parent / "arguments").read_text().split()
    assert {"--cubin", "--gpu-architecture=sm_53", *OPTIONS, str(folder / "gesture.cu")} <= {*given}
    example = tmp_path / "build" / "gesture_example"
    done = subprocess.run([example], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("RAOT_ERR_DEVICE libcuda.so.1: ")


@pytest.mark.parametrize(
    "given", [{"threads": 2}, {"stepwise": True}, {"offsets": "dynamic"}], ids=str
)
def test_what_is_for_processors_is_refused(given: dict[str, Any]) -> None:
    options = Options(bounds={"n": (1, 64)}, emit="cuda-source", **given)
    (name,) = given
    with pytest.raises(DeviceError, match=f"--{name}.* is for programs on a CPU"):
        driver.compile_model(MODEL, "jetson-orin-nano", options)
