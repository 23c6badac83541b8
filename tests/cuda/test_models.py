# SPDX-License-Identifier: Apache-2.0
"""Models on the emulated GPU, through generated C and the fake driver, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.compare import Tolerance
from relax_aot.verify.job import Job, run_job
from tests.cuda.toolkits import needs_compilers
from tests.end_to_end.growing_models import STATE, attention
from tests.end_to_end.subjects import SHARED, SILERO, SUBJECTS, Subject
from tests.end_to_end.test_data_sizes import chosen_elements
from tests.end_to_end.test_loops import HALVED, check
from tests.models.catalog import CATALOGUE
from tests.models.detector import detector
from tests.models.encoder import encoder
from tests.models.u_net import u_net

pytestmark = pytest.mark.slow
BOARD = "jetson-orin-nano"
FEW = ("gesture", "small_encoder")
"""Those of the gate."""
OTHERS = (
    "kws", "resnet8", "silero", "lstm_tagger", "gru_tagger", "branch_equal", "branch_sizes",
    "windows", "image_net",
)  # fmt: skip


def silero_8khz() -> onnx.ModelProto:
    """The same network for half the sample rate: every other sample and frequency."""
    model = onnx.load(SHARED / "silero_vad_16k_op15.onnx")
    for weights in model.graph.initializer:
        array = numpy_helper.to_array(weights)
        if weights.name == "model.stft.forward_basis_buffer":
            array = array.reshape(2, 129, 1, 256)[:, ::2, :, ::2].reshape(130, 1, 128)
        elif weights.name == "model.encoder.0.reparam_conv.weight":
            array = array[:, ::2]
        weights.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), weights.name))
    constants = {"onnx::Unsqueeze_18": np.array(65), "onnx::Shape_19": np.array([0, 32])}
    for node in model.graph.node:
        if node.output[0] in constants:
            value = constants[node.output[0]].astype(np.int64)
            node.attribute[0].t.CopyFrom(numpy_helper.from_array(value))
        elif node.name == "/model/stft/Conv":
            halved = {"kernel_shape": 128, "strides": 64}
            for attribute in node.attribute:
                if attribute.name in halved:
                    attribute.ints[:] = [halved[attribute.name]]
    return model


LARGE = {
    "encoder": Subject(
        encoder,
        Options(bounds={"n": (1, 96), "batch": (1, 2)}, name="encoder"),
        ({"n": 1, "batch": 1}, {"n": 37, "batch": 2}, {"n": 96, "batch": 1}),
    ),
    "silero_8khz": Subject(
        silero_8khz, replace(SILERO, bounds={"sequence": (288, 288), "batch": (1, 1)}), shared=True
    ),
    "u_net": Subject(
        u_net,
        Options(bounds={"batch": (1, 2), "height": (1, 40), "width": (1, 40)}, name="u_net"),
        (
            {"batch": 1, "height": 1, "width": 1},
            {"batch": 2, "height": 27, "width": 3},
            {"batch": 1, "height": 40, "width": 40},
        ),
    ),
    "detector": Subject(
        detector,
        Options(bounds={"height": (1, 64), "width": (1, 64)}, name="detector"),
        ({"height": 1, "width": 1}, {"height": 37, "width": 50}, {"height": 64, "width": 64}),
    ),
    "chosen_elements": Subject(
        chosen_elements, Options(bounds={"n": (1, 7), "m": (1, 9)}, name="chosen_elements")
    ),
}


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in (*OTHERS, *LARGE))]
)
def test_a_model_equals_its_reference(name: str) -> None:
    subject = LARGE.get(name) or SUBJECTS[name]
    model, options = subject.model(), replace(subject.options, emit="cuda-source")
    project = driver.compile_model(model, BOARD, options)
    result = run_job(Job(model, (project,), fix=options.fix, state=options.state, at=subject.at))
    said = result.as_json()["targets"][0]
    assert said["emulated"] is True
    assert result.ok, [run for run in said["runs"] if not run["ok"]]


@pytest.mark.long
@pytest.mark.parametrize("name", ["resnet8", "kws"])
def test_a_quantized_model_has_every_bit_of_its_reference(name: str, shared_models: Path) -> None:
    model = shared_models / f"{name}_int8_qdq.onnx"
    options = Options(name=name, emit="cuda-source")
    project = driver.compile_model(model, BOARD, options)
    result = run_job(Job(model, (project,), tolerance=Tolerance(0.0, 0.0)))
    assert result.ok


@pytest.mark.long
def test_a_decoder_appends_to_its_cache() -> None:
    options = Options(
        bounds={"n": (1, 8), "m": (0, 64)}, state=STATE, name="att", emit="cuda-source"
    )
    model = attention("n")
    project = driver.compile_model(model, BOARD, options)
    result = run_job(Job(model, (project,), state=options.state))
    assert result.ok and {run.dims["n"] for run in result.targets[0].runs} >= {1, 8}


@pytest.fixture(scope="module")
def halved() -> Any:
    project = rx.compile(
        HALVED, board=BOARD, emit="cuda-source", bounds={"n": 5, "all_0": 10}, name="halved"
    )
    return project.host()


@pytest.mark.parametrize("most", [0, 1, 3, 10])
def test_a_loop_that_data_end_is_launched_to_its_bound(halved: Any, most: int) -> None:
    x = np.arange(4, dtype=np.float32) + 1
    for limit in (0.3, 0.001, 9.0):
        at = np.array(limit, np.float32)
        found = check(halved, HALVED, x=x, limit=at, most=np.array(most, np.int64))
        assert found["all"].shape[0] <= most


@pytest.mark.long
def test_a_state_on_the_gpu_is_compared() -> None:
    subject = SUBJECTS["gru_tagger"]
    options = replace(
        subject.options, emit="cuda-source", state=dict(CATALOGUE["gru_tagger"].state)
    )
    project = driver.compile_model(subject.model(), BOARD, options)
    result = run_job(Job(subject.model(), (project,), state=options.state, at=({"n": 3},)))
    assert result.ok
    assert [d.name for run in result.targets[0].runs for d in run.states] == ["stateN"] * 4


@needs_compilers
@pytest.mark.long
@pytest.mark.parametrize("board", ["jetson-xavier", "jetson-thor", "cuda-sm90", "cuda-host"])
def test_a_model_equals_its_reference_on_other_chips(board: str, shared_models: Path) -> None:
    """Each with the driver of its chip, and the machine code that it loads."""
    model = shared_models / "kws_int8_qdq.onnx"
    project = driver.compile_model(model, board, Options(name="kws"))
    assert run_job(Job(model, (project,), tolerance=Tolerance(0.0, 0.0))).ok


@pytest.mark.long
def test_a_window_on_the_gpu_is_compared() -> None:
    """States of which the first rows are gone begin behind them."""
    options = Options(
        bounds={"n": (1, 4)}, state=STATE, window={"m": 16}, name="att", emit="cuda-source"
    )
    model = attention("n")
    project = driver.compile_model(model, BOARD, options)
    # Two rows are dropped without moving the others: every second call leaves them there.
    result = run_job(Job(model, (project,), state=options.state, at=({"n": 2},) * 2))
    assert result.ok
    assert all(len(run.states) == 2 for run in result.targets[0].runs)
