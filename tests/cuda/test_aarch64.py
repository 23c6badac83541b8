# SPDX-License-Identifier: Apache-2.0
"""The host part as a program of a Jetson: cross-compiled, and run by QEMU's user emulation."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from elftools.elf.elffile import ELFFile

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.files import write_files
from relax_aot.project import Project
from relax_aot.toolchain import tools, zig
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.cuda import DRIVER, fake_driver, host_files
from relax_aot.verify.host import HostModel
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.library import Bytes, RawResult
from tests.conftest import ROOT
from tests.end_to_end.growing_models import STATE, attention
from tests.end_to_end.subjects import SUBJECTS
from tests.models.catalog import CATALOGUE

pytestmark = [pytest.mark.qemu, pytest.mark.slow]
BOARD = "jetson-orin-nano"
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


SERVER = """
#include <stdio.h>
#include <stdlib.h>
#include "raot_model.h"

static void get(void *to, size_t bytes)
{
    if (bytes > 0u && fread(to, 1, bytes, stdin) != bytes) {
        exit(0);
    }
}

static void *block(size_t bytes)
{
    return aligned_alloc(64, (bytes + 64u) / 64u * 64u);
}

/* Requests: 0 and sizes for init, 1, sizes and inputs for run, 2 and a number for a length. */
int main(void)
{
    const struct raot_model *const model = &raot_model;
    const struct raot_buffers memory = {.state = block(model->state_bytes)};
    int32_t dims[16], result[16];
    const void *inputs[16];
    void *outputs[16], *const kept = block(model->kept_bytes);

    for (int32_t i = 0; i < model->output_count; i++) {
        outputs[i] = block(model->output_bytes[i]);
    }
    for (;;) {
        int32_t kind, answer;

        get(&kind, sizeof kind);
        get(dims, sizeof *dims * (kind == 2 ? 1u : (size_t)model->dim_count));
        for (int32_t i = 0; kind == 1 && i < model->input_count; i++) {
            int32_t bytes;

            get(&bytes, sizeof bytes);
            inputs[i] = block((size_t)bytes);
            get((void *)inputs[i], (size_t)bytes);
        }
        answer = kind == 0   ? (int32_t)model->init(&memory, dims)
                 : kind == 1 ? (int32_t)model->run(&memory, dims, inputs, outputs, result)
                             : model->get_length(&memory, dims[0]);
        fwrite(&answer, sizeof answer, 1, stdout);
        if (kind == 1 && answer == 0) {
            fwrite(result, sizeof *result, (size_t)model->result_count, stdout);
            for (int32_t i = 0; i < model->output_count; i++) {
                fwrite(outputs[i], 1, model->output_bytes[i], stdout);
            }
            if (model->read_kept != NULL && model->read_kept(&memory, kept) == RAOT_OK) {
                fwrite(kept, 1, model->kept_bytes, stdout);
            }
        }
        for (int32_t i = 0; kind == 1 && i < model->input_count; i++) {
            free((void *)inputs[i]);
        }
        fflush(stdout);
    }
}
"""


@pytest.fixture(scope="module")
def gesture() -> Project:
    options = Options(bounds={"n": (1, 64)}, emit="cuda-source", name="gesture")
    return driver.compile_model(MODEL, BOARD, options)


@pytest.fixture(scope="module")
def program(gesture: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(gesture, {"main.c": MAIN.encode()}, tmp_path_factory.mktemp("aarch64"))


def built(project: Project, more: dict[str, bytes], folder: Path) -> Path:
    """A program of the host part and of `more`, in which `main.c` has main."""
    if not tools.has_wheel("ziglang"):
        pytest.skip("the wheel ziglang is not installed")
    write_files(folder, host_files(project, project.files) | more)
    command = [str(zig.program()), "cc", *TARGET, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    units = [*project.units, *(name for name in more if name.endswith(".c"))]
    command += ["-I.", *units, "-ldl", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def emulated(*arguments: str | Path) -> list[str]:
    """The command of a program."""
    emulator = shutil.which("qemu-aarch64")
    if emulator is None or not SYSROOT.is_dir():
        pytest.skip("qemu-aarch64 or its C library is not installed")
    return [emulator, "-L", str(SYSROOT), *map(str, arguments)]


@pytest.mark.long
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
    command = emulated(*flags, program, str(size))
    return subprocess.run(command, input=data, capture_output=True, check=False)


def test_without_a_driver_the_program_says_so(program: Path) -> None:
    done = run(program, 1, bytes(24))
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout == b"libcuda.so.1: no such driver on this machine\n"


def driver_of_aarch64(project: Project) -> Path:
    command = (str(zig.program()), "c++")
    return fake_driver(project, command, (*TARGET, "-Wno-unused-command-line-argument"))


@pytest.mark.long
def test_the_program_equals_onnxruntime(gesture: Project, program: Path) -> None:
    library = driver_of_aarch64(gesture)
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


class Server:
    """A model in a process of the emulator, as the runner of a HostModel."""

    def __init__(self, project: Project, folder: Path) -> None:
        common = ROOT / "boards" / "families" / "common"
        files = {"main.c": SERVER.encode(), "raot_model.h": (common / "raot_model.h").read_bytes()}
        files |= {n: text.encode() for n, text in adapter_files(project.interface).items()}
        program = built(project, files, folder)
        driver = driver_of_aarch64(project).parent
        sizes = {size.macro: size.number for size in project.view.sizes}
        self.interface = project.interface
        self.output_bytes = [sizes[port.macro] for port in project.interface.outputs]
        self.kept_bytes = project.state_bytes
        self.process = subprocess.Popen(
            emulated("-E", f"LD_LIBRARY_PATH={driver}", program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def init(self, dims: Sequence[int]) -> int:
        return self._ask(0, dims)

    def arena_need(self, dims: Sequence[int]) -> int:
        raise AssertionError("jobs that compare results ask for no arena")

    def get_length(self, index: int) -> int:
        return self._ask(2, [index])

    def run(self, dims: Sequence[int], inputs: Sequence[Bytes], *_: object) -> RawResult:
        given = b"".join(struct.pack("<i", len(data)) + data.tobytes() for data in inputs)
        status = self._ask(1, dims, given)
        if status:
            return RawResult(status, (), (), True, True)
        count = len(self.interface.results)
        sizes = struct.unpack(f"<{count}i", self._read(4 * count))
        outputs = tuple(np.frombuffer(self._read(n), np.uint8) for n in self.output_bytes)
        state = np.frombuffer(self._read(self.kept_bytes), np.uint8) if self.kept_bytes else None
        return RawResult(status, sizes, outputs, True, True, state)

    def _ask(self, kind: int, numbers: Sequence[int], data: bytes = b"") -> int:
        assert self.process.stdin is not None
        request = struct.pack(f"<{1 + len(numbers)}i", kind, *numbers)
        self.process.stdin.write(request + data)
        self.process.stdin.flush()
        return int(struct.unpack("<i", self._read(4))[0])

    def _read(self, count: int) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(count)


RECURRENT = replace(SUBJECTS["gru_tagger"].options, state=dict(CATALOGUE["gru_tagger"].state))
GROWING = Options(bounds={"n": (1, 3), "m": (0, 6)}, state=STATE, name="att")


@pytest.mark.long
@pytest.mark.parametrize("name", ["recurrent", "growing", "quantized"])
def test_a_model_equals_its_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    options = {"recurrent": RECURRENT, "growing": GROWING}.get(name, Options(name="kws"))
    model: Any = (
        SUBJECTS["gru_tagger"].model() if name == "recurrent"
        else attention("n") if name == "growing"
        else request.getfixturevalue("shared_models") / "kws_int8_qdq.onnx"
    )  # fmt: skip
    project = driver.compile_model(model, BOARD, replace(options, emit="cuda-source"))
    server = Server(project, tmp_path)
    monkeypatch.setattr(
        "relax_aot.verify.job.host_model", lambda *_, **__: HostModel(project.interface, server)
    )
    try:
        result = run_job(Job(model, (project,), state=options.state))
    finally:
        server.process.kill()
        server.process.communicate()
    assert result.ok
    states = [run.states for run in result.targets[0].runs]
    assert all(map(bool, states)) == bool(options.state)
