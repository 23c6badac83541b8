# SPDX-License-Identifier: Apache-2.0
"""A project for 64-bit Arm Linux has code for SDOT and SMMLA, and chooses while it runs. Built by
its own CMakeLists.txt and run under QEMU."""

from __future__ import annotations

import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from relax_aot import driver
from relax_aot.project import Project
from tests.models import every_kernel
from tests.models.catalog import CATALOGUE

NEEDED = ("cmake", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64")
pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]
STRICT = "-Wall -Wextra -Wconversion -Wshadow -Wvla -Wdouble-promotion -Wmissing-prototypes -Werror"
LARGEST = 6
MAIN = """
#include <stdio.h>
#include "sums.h"
static const int8_t x[SUMS_X_COUNT] = {%s};
static int8_t y[SUMS_Y_COUNT], sum[SUMS_SUM_COUNT];
SUMS_ARENA(static, arena);
int main(void)
{
    const struct sums_memory memory = {.arena = arena, .arena_bytes = SUMS_ARENA_BYTES};
    for (int32_t n = 1; n <= SUMS_N_MAX; n++) {
        const struct sums_dims dims = {.n = n};
        const struct sums_inputs in = {.x = x};
        const struct sums_outputs out = {.y = y, .sum = sum};
        const int status = sums_run(&memory, &dims, &in, &out);
        if (status) {
            return status;
        }
        for (int i = 0; i < 5 * n; i++) {
            printf("%%d ", y[i]);
        }
        for (int i = 0; i < 24 * n; i++) {
            printf("%%d ", sum[i]);
        }
    }
    return 0;
}
"""
FORCED = """
#include <sys/auxv.h>
unsigned long getauxval(unsigned long type) { return type == AT_HWCAP ? 1UL << 20 : 0; }
"""


@cache
def compiled() -> Project:
    options = driver.Options(bounds={"n": (1, LARGEST)}, name="sums")
    return driver.compile_model(every_kernel.codes_and_sums(), "aarch64-linux", options)


@cache
def values() -> tuple[np.ndarray, str]:
    """Input values, and what ONNX Runtime makes of the first n rows of them for every n."""
    x = np.random.default_rng(7).integers(-128, 128, (LARGEST, 4, 3, 2)).astype(np.int8)
    session = ort.InferenceSession(every_kernel.codes_and_sums().SerializeToString())
    text = ""
    for n in range(1, LARGEST + 1):
        for result in session.run(["y", "sum"], {"x": x[:n]}):
            text += "".join(f"{value} " for value in result.reshape(-1))
    return x, text


def built(folder: Path, *arguments: str, main: str = MAIN, flags: str = STRICT) -> Path:
    source, build = folder / "project", folder / "build"
    compiled().write(source)
    (source / "main.c").write_text(main % ", ".join(map(str, values()[0].reshape(-1))))
    command = [
        "cmake", "-S", str(source), "-B", str(build), "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc",
        "-DCMAKE_EXE_LINKER_FLAGS=-static", f"-DCMAKE_C_FLAGS={flags}", *arguments,
    ]  # fmt: skip
    for one in (command, ["cmake", "--build", str(build)]):
        done = subprocess.run(one, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "sums_example"


def instructions(program: Path) -> set[str]:
    command = ["aarch64-linux-gnu-objdump", "-d", str(program)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name for name in ("sdot", "smmla") if name in text}


def run(program: Path, processor: str) -> subprocess.CompletedProcess[str]:
    command = ["qemu-aarch64", "-cpu", processor, str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_each_processor_computes_the_same(tmp_path: Path) -> None:
    program = built(tmp_path)
    assert instructions(program) == {"sdot", "smmla"}
    for processor in ("cortex-a72", "cortex-a76", "max"):
        done = run(program, processor)
        assert (done.returncode, done.stdout) == (0, values()[1]), processor


@pytest.mark.long
def test_the_choice_follows_what_linux_says(tmp_path: Path) -> None:
    """A processor without SDOT that is said to have it."""
    program = built(tmp_path, main=MAIN + FORCED, flags="")
    assert run(program, "cortex-a76").stdout == values()[1]
    assert run(program, "cortex-a72").returncode in (-signal.SIGILL, 128 + signal.SIGILL)


@pytest.mark.parametrize(
    ("flags", "arguments", "found"),
    [
        ("-mcpu=cortex-a76", (), {"sdot"}),
        ("", ("-DRAOT_I8MM=OFF",), {"sdot"}),
        ("", ("-DRAOT_I8MM=OFF", "-DRAOT_DOTPROD=OFF"), set()),
    ],
    ids=["one", "old-compiler", "older-compiler"],
)
@pytest.mark.long
def test_builds_with_less(
    flags: str, arguments: tuple[str, ...], found: set[str], tmp_path: Path
) -> None:
    """For one kind of processor, and by compilers that do not know the newer instructions."""
    program = built(tmp_path, *arguments, flags=f"{STRICT} {flags}")
    assert instructions(program) == found
    done = run(program, "max")
    assert (done.returncode, done.stdout) == (0, values()[1])


def test_models_without_such_instructions_have_one_code() -> None:
    options = driver.Options(bounds={"batch": (1, 9)}, name="perceptron")
    project = driver.compile_model(CATALOGUE["perceptron"].make(), "aarch64-linux", options)
    assert not [path for path in project.files if path.startswith("aarch64/")]
    assert b"RAOT_NATIVE" not in project.files["CMakeLists.txt"]
