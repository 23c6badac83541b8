# SPDX-License-Identifier: Apache-2.0
"""Models on the emulated GPU, through generated C and the fake driver, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.compare import Tolerance
from relax_aot.verify.job import Job, run_job
from tests.end_to_end.growing_models import STATE, attention
from tests.end_to_end.subjects import SUBJECTS
from tests.end_to_end.test_loops import HALVED, check

pytestmark = pytest.mark.slow
BOARD = "jetson-orin-nano"
FEW = ("gesture", "small_encoder")
"""Those of the gate."""
OTHERS = (
    "kws", "resnet8", "silero", "lstm_tagger", "gru_tagger", "branch_equal", "branch_sizes",
    "windows",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_a_model_equals_its_reference(name: str) -> None:
    subject = SUBJECTS[name]
    options = replace(subject.options, emit="cuda-source")
    project = driver.compile_model(subject.model(), BOARD, options)
    result = run_job(
        Job(subject.model(), (project,), fix=options.fix, state=options.state, at=subject.at)
    )
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
