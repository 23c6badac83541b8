# SPDX-License-Identifier: Apache-2.0
"""The example programs, built as their READMEs say with what the compiler makes of the models."""

from __future__ import annotations

import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

import relax_aot as rx
from tests.conftest import ROOT

STRICT = (
    "-std=c11", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Wextra",
    "-Wconversion", "-Wshadow", "-Wvla", "-Wdouble-promotion", "-Wstrict-prototypes",
    "-Wmissing-prototypes", "-Werror",
)  # fmt: skip
# Apart from the warnings: with its sanitizers on, gcc reports false narrowing. Debian's
# clang comes without the libraries that its sanitizers need.
BUILDS = {
    "gcc": ("gcc", *STRICT),
    "clang": ("clang", *STRICT),
    "sanitizers": (
        "gcc", "-std=c11", "-O1", "-g", "-fno-strict-aliasing", "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ),
}  # fmt: skip
GESTURE = ROOT / "examples" / "gesture"
VAD = ROOT / "examples" / "silero_vad" / "vad.c"
CHUNK, CONTEXT = 512, 64


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def built(project: Path, name: str, program: Path, build: str) -> subprocess.CompletedProcess[str]:
    """`program`, and the sources of the project, as the executable `project/run`."""
    command = BUILDS[build]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    places = ("-I", project, "-I", program.parent, f"-Wa,-I,{project}")
    sources = (program, project / f"{name}.c", project / f"{name}_weights.c")
    return run(*command, *places, "-o", project / "run", *sources, "-lm")


def gesture_project(bound: int, folder: Path) -> Path:
    model = GESTURE / "gesture.onnx"
    return rx.compile(model, bounds={"n": (1, bound)}, name="gesture").write(folder)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("bound", [61, 256])
def test_the_gesture_program_recognizes_its_sample(build: str, bound: int, tmp_path: Path) -> None:
    project = gesture_project(bound, tmp_path / "gesture")
    made = built(project, "gesture", GESTURE / "main.c", build)
    assert made.returncode == 0, made.stderr
    done = run(project / "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("swipe_right, ")


@pytest.mark.slow
def test_the_gesture_program_does_not_build_where_its_sample_is_too_long(tmp_path: Path) -> None:
    project = gesture_project(60, tmp_path / "gesture")
    made = built(project, "gesture", GESTURE / "main.c", "gcc")
    assert made.returncode != 0
    assert "the sample is longer than the model's bound" in made.stderr


@pytest.mark.qemu
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", "cortex-m55"])
def test_the_gesture_program_compiles_for_boards_without_a_console(
    cpu: str, tmp_path: Path
) -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    project = gesture_project(64, tmp_path / "gesture")
    target = ("-DGESTURE_NO_STDIO", f"-mcpu={cpu}", "-mthumb", "-I", project, "-I", GESTURE)
    made = run(
        "arm-none-eabi-gcc", *STRICT, *target, "-c", GESTURE / "main.c", "-o", tmp_path / "main.o"
    )
    assert made.returncode == 0, made.stderr
    symbols = run("arm-none-eabi-nm", "-u", tmp_path / "main.o").stdout.split()[1::2]
    assert "gesture_run_n64" in symbols
    assert "printf" not in symbols


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_the_speech_program_says_what_onnx_runtime_says(
    build: str, shared_models: Path, tmp_path: Path
) -> None:
    model, speech = (
        shared_models / "silero_vad_16k_op15.onnx",
        shared_models / "silero_test_10s.wav",
    )
    project = rx.compile(
        model,
        name="silero",
        bounds={"sequence": (576, 576), "batch": 1},
        fix={"sr": 16000},
        state={"state": "stateN"},
    ).write(tmp_path / "silero")
    made = built(project, "silero", VAD, build)
    assert made.returncode == 0, made.stderr
    done = run(project / "run", speech)
    assert (done.returncode, done.stderr) == (0, "")

    spoken = np.array([float(line) for line in done.stdout.split()])
    expected = speech_by_onnx_runtime(model, speech)
    assert spoken.shape == expected.shape == (313,)
    np.testing.assert_allclose(spoken, expected, rtol=0, atol=1e-4)


def speech_by_onnx_runtime(model: Path, speech: Path) -> np.ndarray:
    """The probability of each chunk, the last one filled up with silence."""
    with wave.open(str(speech)) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    samples = np.pad(pcm.astype(np.float32) / 32768, (CONTEXT, -len(pcm) % CHUNK))
    session = InferenceSession(model, providers=["CPUExecutionProvider"])
    state = np.zeros((2, 1, 128), np.float32)
    found = []
    for start in range(0, len(samples) - CONTEXT, CHUNK):
        piece = samples[None, start : start + CONTEXT + CHUNK]
        feeds = {"input": piece, "state": state, "sr": np.array(16000)}
        chance, state = session.run(["output", "stateN"], feeds)
        found.append(chance[0, 0])
    return np.array(found)
