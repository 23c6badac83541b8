# SPDX-License-Identifier: Apache-2.0
"""A generated project stands alone: every compiler, no warning, no runtime, same bytes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.end_to_end.subjects import SUBJECTS, project_of

STRICT = (
    "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Wdouble-promotion",
    "-Werror",
)  # fmt: skip
FORBIDDEN = ("malloc", "free", "calloc", "realloc", "printf", "exit", "abort", "__errno_location")
SHOWN = [name for name in SUBJECTS if name != "branch_decided"]


def run(command: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return done.stdout


def need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strict_flags_give_no_warning(name: str, compiler: str, tmp_path: Path) -> None:
    folder = project_of(name).write(tmp_path / "out")
    sources = sorted(path.name for path in folder.glob("*.c"))
    for optimize in ("-O0", "-O2"):
        run([need(compiler), *STRICT, optimize, "-c", *sources], folder)
    assert list(folder.glob("*.o"))


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["gesture", "kws", "branch_sizes", "lstm_tagger"])
def test_strict_flags_on_cortex_m(name: str, tmp_path: Path) -> None:
    folder = project_of(name).write(tmp_path / "out")
    sources = sorted(path.name for path in folder.glob("*.c") if path.name != "main.c")
    compiler = need("arm-none-eabi-gcc")
    for core in (
        ["-mcpu=cortex-m0"],
        ["-mcpu=cortex-m4"],
        ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"],
        ["-mcpu=cortex-m55", "-mfloat-abi=hard"],
    ):
        run([compiler, *STRICT, *core, "-mthumb", "-O2", "-c", *sources], folder)
    assert list(folder.glob("*.o"))


@pytest.mark.parametrize("name", ["gesture", "silero", "kws"])
def test_cc_alone_builds_a_program_that_runs(name: str, tmp_path: Path) -> None:
    folder = project_of(name).write(tmp_path / "out")
    run(["sh", "-c", "cc *.c"], folder)
    assert run([folder / "a.out"], folder) == ""


@pytest.mark.parametrize("name", ["gesture", "kws", "branch_sizes"])
def test_the_folder_holds_the_headers_that_are_included_and_no_others(
    name: str, tmp_path: Path
) -> None:
    """As the compiler's own list of dependencies has them; headers for other cores than this
    machine's stand in an include at least."""
    folder = project_of(name).write(tmp_path / "out")
    listed = run(["sh", "-c", "cc -MM *.c"], folder)
    used = {word for word in listed.split() if word.startswith("raot/")}
    here = {f"raot/{path.name}" for path in (folder / "raot").iterdir()}
    assert len(used) > 5 and used <= here
    texts = "".join(path.read_text() for path in folder.rglob("*.[ch]"))
    named = set(re.findall(r'#include "(?:raot/)?(\w+\.h)"', texts))
    assert {Path(path).name for path in here} <= named


@pytest.mark.long  # the gate builds an installed project in tests/project/test_packaging.py
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture", "silero"])
def test_cmake_builds_a_program_that_runs(name: str, tmp_path: Path) -> None:
    project_of(name).write(tmp_path / "out")
    run([need("cmake"), "-S", "out", "-B", "b"], tmp_path)
    run([need("cmake"), "--build", "b"], tmp_path)
    assert run([tmp_path / "b" / f"{name}_example"], tmp_path) == ""


@pytest.mark.parametrize("name", SHOWN)
def test_header_serves_cpp(name: str, tmp_path: Path) -> None:
    project = project_of(name)
    folder = project.write(tmp_path / "out")
    (folder / "use.cpp").write_text(f'#include "{project.name}.h"\nint f() {{ return 0; }}\n')
    run([need("g++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-c", "use.cpp"], folder)
    assert (folder / "use.o").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_heap_no_stdio_no_writable_globals(name: str, tmp_path: Path) -> None:
    project = project_of(name)
    folder = project.write(tmp_path / "out")
    sources = [f"{project.name}.c", f"{project.name}_weights.c"]
    run([need("gcc"), "-O2", "-c", *sources], folder)
    for source in sources:
        for line in run([need("nm"), Path(source).with_suffix(".o")], folder).splitlines():
            kind, symbol = line.split()[-2:]
            assert symbol not in FORBIDDEN
            assert kind not in "bBdDcC", f"{symbol} is writable"


def test_two_models_link_into_one_program(tmp_path: Path) -> None:
    folders = [project_of(name).write(tmp_path / name) for name in ("gesture", "gru_tagger")]
    for folder in folders:
        (folder / "main.c").unlink()
    (tmp_path / "both.c").write_text(
        '#include "gesture/gesture.h"\n#include "gru_tagger/gru_tagger.h"\n'
        "int main(void)\n{\n    return (int)(gesture_arena_bytes(NULL) == 0)"
        " + (int)(gru_tagger_arena_bytes(NULL) == 0);\n}\n"
    )
    sources = [str(path) for folder in folders for path in sorted(folder.glob("*.c"))]
    run(["gcc", "-I", ".", "-I", "gesture", "-I", "gru_tagger", "both.c", *sources], tmp_path)
    assert run([tmp_path / "a.out"], tmp_path) == ""


@pytest.mark.slow
def test_same_model_same_bytes(tmp_path: Path) -> None:
    """Another hash seed and another folder change nothing."""
    made = []
    for seed in ("1", "2"):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        model = folder / "gesture.onnx"
        shutil.copyfile(ROOT / "examples" / "gesture" / "gesture.onnx", model)
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [
            sys.executable, "-m", "relax_aot", "compile", str(model), "--bound", "n=128",
            "-o", str(folder / "out"),
        ]  # fmt: skip
        subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
        out = folder / "out"
        files = sorted(p for p in out.rglob("*") if p.is_file())
        made.append({str(p.relative_to(out)): p.read_bytes() for p in files})
    assert made[0] == made[1]
    assert len(made[0]) > 10


def test_constants_above_the_limit_are_not_text() -> None:
    project = project_of("silero")
    assert len(project.files["silero_weights.bin"]) > 1_000_000
    assert len(project.files["silero_weights.c"]) < 4096
