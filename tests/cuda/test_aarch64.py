# SPDX-License-Identifier: Apache-2.0
"""The host part as a program of a Jetson: cross-compiled, and run by QEMU's user emulation."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from elftools.elf.elffile import ELFFile

from relax_aot import driver
from relax_aot.cache import write_files
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.toolchain import tools, zig
from relax_aot.verify.cuda import DRIVER, fake_driver, host_files
from tests.conftest import ROOT

pytestmark = [pytest.mark.qemu, pytest.mark.slow]
MODEL = ROOT / "examples" / "gesture" / "gesture.onnx"
SYSROOT = Path("/usr/aarch64-linux-gnu")
TARGET = ("-target", "aarch64-linux-gnu.2.27")
"""The C library of JetPack 4; that of JetPack 5 is 2.31."""
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "gesture.h"

static float motion[GESTURE_MOTION_COUNT], scores[GESTURE_SCORES_COUNT];
static float frames[GESTURE_FRAMES_COUNT];
static RAOT_ALIGNAS(16) unsigned char device[GESTURE_DEVICE_BYTES];

int main(int count, char **words)
{
    const struct gesture_memory memory = {.device = device, .device_bytes = sizeof device};
    const struct gesture_dims dims = {.n = count > 1 ? atoi(words[1]) : 1};
    const struct gesture_inputs in = {.motion = motion};
    const struct gesture_outputs out = {.scores = scores, .frames = frames};
    enum raot_status status;

    if (fread(motion, 24, (size_t)dims.n, stdin) != (size_t)dims.n) {
        return 9;
    }
    status = gesture_init(&memory, &dims);
    if (status == RAOT_OK) {
        status = gesture_run(&memory, &dims, &in, &out);
    }
    if (status != RAOT_OK) {
        puts(gesture_device_message(&memory));
        return 1;
    }
    fwrite(scores, 4, 8, stdout);
    fwrite(frames, 32, (size_t)(dims.n + 3) / 4, stdout);
    gesture_close(&memory);
    return 0;
}
"""


@pytest.fixture(scope="module")
def gesture() -> Project:
    options = Options(bounds={"n": (1, 64)}, emit="cuda-source", name="gesture")
    return driver.compile_model(MODEL, "jetson-orin-nano", options)


@pytest.fixture(scope="module")
def program(gesture: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not tools.has_wheel("ziglang"):
        pytest.skip("the wheel ziglang is not installed")
    folder = tmp_path_factory.mktemp("aarch64")
    write_files(folder, host_files(gesture, gesture.files) | {"main.c": MAIN.encode()})
    command = [str(zig.program()), "cc", *TARGET, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    command += ["-I.", "main.c", *gesture.units, "-ldl", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def test_a_program_runs_with_the_c_library_of_every_jetpack(program: Path) -> None:
    with program.open("rb") as file:
        elf = ELFFile(file)
        dynamic: Any = elf.get_section_by_name(".dynamic")
        versioned: Any = elf.get_section_by_name(".gnu.version_r")
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        versions = [auxiliary.name for _, found in versioned.iter_versions() for auxiliary in found]
    assert needed <= {"libc.so.6", "libdl.so.2", "libm.so.6", "ld-linux-aarch64.so.1"}
    numbers = [int(name.removeprefix("GLIBC_2.").partition(".")[0]) for name in versions]
    assert numbers and max(numbers) <= 27


def run(program: Path, size: int, data: bytes, *flags: str) -> subprocess.CompletedProcess[bytes]:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None or not SYSROOT.is_dir():
        pytest.skip("qemu-aarch64 or its C library is not installed")
    command = [emulator, "-L", str(SYSROOT), *flags, str(program), str(size)]
    return subprocess.run(command, input=data, capture_output=True, check=False)


def test_without_a_driver_the_program_says_so(program: Path) -> None:
    done = run(program, 1, bytes(24))
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout == b"libcuda.so.1: no such driver on this machine\n"


@pytest.mark.long
def test_the_program_equals_onnxruntime(gesture: Project, program: Path) -> None:
    command = (str(zig.program()), "c++")
    library = fake_driver(gesture, command, (*TARGET, "-Wno-unused-command-line-argument"))
    assert library.name == DRIVER
    session = onnxruntime.InferenceSession(MODEL)
    for size in (1, 7, 64):
        motion = np.random.default_rng(size).standard_normal((size, 6)).astype(np.float32)
        flags = ("-E", f"LD_LIBRARY_PATH={library.parent}")
        done = run(program, size, motion.tobytes(), *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        found = np.frombuffer(done.stdout, np.float32)
        scores, frames = session.run(["scores", "frames"], {"motion": motion})
        np.testing.assert_allclose(found[:8], scores.ravel(), atol=1e-5)
        np.testing.assert_allclose(found[8:], frames.ravel(), atol=1e-5)
