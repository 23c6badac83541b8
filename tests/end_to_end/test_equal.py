# SPDX-License-Identifier: Apache-2.0
"""Generated C computes what ONNX Runtime computes, at every size that is tried."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.compare import Tolerance
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.host import host_model
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.samples import Case, cases_of
from tests.conftest import ROOT
from tests.end_to_end.subjects import SILERO, SUBJECTS, Runtime, project_of
from tests.models.catalog import CATALOGUE
from tests.models.encoder import encoder

CHUNKS = 312
CLOSE = Tolerance(1e-4, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_host_equals_the_reference_under_the_sanitizers(name: str) -> None:
    subject = SUBJECTS[name]
    options = subject.options
    job = Job(
        source=subject.model(),
        projects=(project_of(name),),
        fix=options.fix,
        state=options.state,
        at=subject.at,
        tolerance=CLOSE,
        sanitize=True,
    )
    result = run_job(job)
    assert [run.dims for target in result.targets for run in target.runs if not run.ok] == []
    assert result.ok


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_catalog_equals_onnx_runtime_on_its_own_inputs(name: str) -> None:
    entry = CATALOGUE[name]
    model = host_model(project_of(name))
    runtime = Runtime(SUBJECTS[name])
    rng = np.random.default_rng(7)
    for trial in range(8):
        sizes = {
            s: low if trial == 0 else high if trial == 1 else int(rng.integers(low, high + 1))
            for s, (low, high) in entry.bounds.items()
        }
        feed = entry.inputs(rng, sizes)
        expected = runtime(feed)
        actual = model(feed)
        assert list(actual) == list(expected)
        for output, value in actual.items():
            np.testing.assert_allclose(value, expected[output], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws", "resnet8"])
def test_published_vectors(name: str, shared_models: Path) -> None:
    vectors = np.load(shared_models / f"{name}_vectors.npz")
    model = host_model(project_of(name))
    (port,) = model.interface.inputs
    for sample, expected in zip(vectors["x_fp32_nchw"], vectors["y_fp32"], strict=True):
        (actual,) = model({port.source: sample.reshape([int(n) for n in port.type.shape])}).values()
        assert np.abs(actual.reshape(-1) - expected.reshape(-1)).max() < 1e-4


@pytest.mark.parametrize("name", ["kws", "resnet8"])
def test_a_leading_axis_of_one_takes_samples(name: str, shared_models: Path) -> None:
    vectors = np.load(shared_models / f"{name}_vectors.npz")
    interface = project_of(name).interface
    cases = cases_of(interface, (), {interface.inputs[0].source: vectors["x_fp32_nchw"]})
    assert len(cases) == 16
    np.testing.assert_array_equal(cases[3].inputs[0][0], vectors["x_fp32_nchw"][3])


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["kws", "resnet8"])
def test_published_vectors_on_cortex_m4(name: str, shared_models: Path) -> None:
    vectors = np.load(shared_models / f"{name}_vectors.npz")
    project = project_of(name, "mps2-an386")
    (port,) = project.interface.inputs
    inputs = [x.reshape([int(n) for n in port.type.shape]) for x in vectors["x_fp32_nchw"][:2]]
    runs = emulate_cases(project, [Case({}, (x,)) for x in inputs])
    for run, expected in zip(runs, vectors["y_fp32"], strict=False):
        (actual,) = run.outputs.values()
        assert np.abs(actual.reshape(-1) - expected.reshape(-1)).max() < 1e-4
        assert run.instructions is not None and run.instructions > 0


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_encoder_compiled_once_is_right_at_every_length(batch: int) -> None:
    model = encoder()
    options = Options(bounds={"batch": (1, 3), "n": (1, 256)}, name="enc")
    project = driver.compile_model(model, "host", options)
    host = host_model(project)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n in (1, 2, 3, 17, 64, 255, 256):
        x = np.random.default_rng(n).normal(size=(batch, n, 256)).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
def test_encoder_on_cortex_m7() -> None:
    model = encoder()
    options = Options(bounds={"batch": (1, 1), "n": (1, 32)}, name="enc")
    projects = driver.compile_for(model, ["mps2-an500"], options)
    result = run_job(Job(model, projects, at=({"n": 1}, {"n": 17}), tolerance=CLOSE))
    assert [run.dims["n"] for run in result.targets[0].runs] == [1, 17]
    assert result.ok


def speech_chunks(folder: Path) -> list[np.ndarray]:
    """512 new samples each, after 64 of context."""
    with wave.open(str(folder / "silero_test_10s.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    padded = np.concatenate([np.zeros(64), samples / 32768.0]).astype(np.float32)
    return [padded[i * 512 : i * 512 + 576][None] for i in range(CHUNKS)]


@pytest.fixture(scope="module")
def speech(shared_models: Path) -> tuple[list[np.ndarray], list[float]]:
    runtime = Runtime(SUBJECTS["silero"])
    runtime.held = {"state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}
    chunks, expected = speech_chunks(shared_models), []
    for chunk in chunks:
        found = runtime({"input": chunk})
        runtime.held["state"] = found["stateN"]
        expected.append(float(found["output"][0, 0]))
    return chunks, expected


@pytest.mark.slow
def test_silero_on_the_host(speech: tuple[list[np.ndarray], list[float]]) -> None:
    chunks, expected = speech
    model = host_model(project_of("silero"))
    actual = [float(model(input=chunk)["output"][0, 0]) for chunk in chunks]
    assert np.abs(np.array(actual) - expected).max() < 1e-4
    model.reset()
    assert float(model(input=chunks[0])["output"][0, 0]) == actual[0]


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize(
    "board",
    [
        "mps2-an386",
        *(pytest.param(b, marks=pytest.mark.long) for b in ("mps2-an500", "aarch64-linux")),
    ],
)
@pytest.mark.long
def test_silero_on_boards(
    board: str, speech: tuple[list[np.ndarray], list[float]], shared_models: Path
) -> None:
    chunks, expected = speech
    source = shared_models / "silero_vad_16k_op15.onnx"
    project = driver.compile_model(source, board, SILERO)
    sizes = {f.symbol.name: f.symbol.low for f in project.interface.dims}
    runs = emulate_cases(project, [Case(sizes, (chunk,)) for chunk in chunks])
    actual = [float(run.outputs["output"][0, 0]) for run in runs]
    assert len(actual) == CHUNKS
    assert np.abs(np.array(actual) - expected).max() < 1e-4


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    [
        "mps2-an385", "netduinoplus2", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547",
        "aarch64-linux", "armhf-linux",
    ],
)  # fmt: skip
def test_example_on_every_board(board: str) -> None:
    subject = SUBJECTS["gesture"]
    project = project_of("gesture", board)
    result = run_job(Job(subject.model(), (project,), at=subject.at, tolerance=CLOSE))
    counts = [run.instructions for run in result.targets[0].runs]
    assert result.ok
    assert all(counts)
    again = emulate_cases(project, cases_of(project.interface, subject.at, {}))
    assert [run.instructions for run in again] == counts


@pytest.mark.qemu
def test_example_fits_a_cortex_m0() -> None:
    source = ROOT / "examples" / "gesture" / "gesture.onnx"
    options = Options(bounds={"n": (1, 32)}, name="gesture")
    projects = driver.compile_for(source, ["microbit"], options)
    result = run_job(Job(source, projects, at=({"n": 1}, {"n": 17}, {"n": 32}), tolerance=CLOSE))
    memory = result.targets[0].memory
    assert result.ok
    assert memory.stack_bytes and memory.arena_bytes + memory.stack_bytes < 16 * 1024
