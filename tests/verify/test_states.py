# SPDX-License-Identifier: Apache-2.0
"""State is carried: several calls in a row, their outputs and the state after each are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.verify import library
from relax_aot.verify.job import Job, Result, run_job
from relax_aot.verify.sequences import CALLS

STATE = {"h": "h_next"}
FIXED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1, 6] x, float[1, 8] h) => (float[1, 3] y, float[1, 8] h_next) {
  a = MatMul(x, wx)
  b = MatMul(h, wh)
  c = Add(a, b)
  h_next = Tanh(c)
  y = MatMul(h_next, wy)
}
"""
SYMBOLIC = FIXED.replace("float[1, 6] x", "float[batch, 6] x").replace("[1, ", "[batch, ")


def model(text: str) -> onnx.ModelProto:
    rng = np.random.default_rng(8)
    made = parser.parse_model(text)
    for name, shape in (("wx", (6, 8)), ("wh", (8, 8)), ("wy", (8, 3))):
        weights = rng.normal(size=shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(weights, name))
    return made


def compiled(text: str, board: str = "host") -> Project:
    bounds = {"batch": (1, 3)} if "batch" in text else {}
    return driver.compile_model(
        model(text), board, Options(bounds=bounds, state=STATE, name="cell")
    )


def verified(text: str, reference: str = "onnxruntime", board: str = "host") -> Result:
    project = compiled(text, board)
    return run_job(Job(model(text), (project,), state=STATE, reference=reference))


@pytest.mark.parametrize("reference", ["onnxruntime", "numpy"])
def test_a_model_of_fixed_size_is_called_several_times(reference: str) -> None:
    result = verified(FIXED, reference)
    (target,) = result.targets
    assert result.ok and len(target.runs) == CALLS
    assert all([d.name for d in run.states] == ["h_next"] for run in target.runs)
    written = result.as_json()["targets"][0]["runs"][1]["states"]
    assert [(d["name"], d["shape"], d["mismatches"]) for d in written] == [("h_next", [1, 8], 0)]


@pytest.mark.slow
def test_sizes_that_shape_the_state_begin_a_sequence_each() -> None:
    (target,) = verified(SYMBOLIC).targets
    assert target.ok
    assert [run.dims["batch"] for run in target.runs] == [1] * CALLS + [3] * CALLS + [2] * CALLS


@pytest.mark.parametrize(("number", "equal"), [(None, True), (0, False), (1, False)])
def test_a_fault_of_the_state_is_found_in_each_call(
    monkeypatch: pytest.MonkeyPatch, number: int | None, equal: bool
) -> None:
    """One number of the state is 16 units in the last place off, after this call alone."""
    right = library.Library.run
    calls: list[library.RawResult] = []

    def run(self: library.Library, *arguments: Any) -> library.RawResult:
        result = right(self, *arguments)
        if len(calls) == number:
            last = self._state.data[-4:].view(np.float32)
            last[:] = np.float32(last[0] * (1 + 2**-19))
            object.__setattr__(result, "state", self._state.data.copy())
        calls.append(result)
        return result

    monkeypatch.setattr(library.Library, "run", run)
    result = verified(FIXED)
    assert result.ok is equal
    (target,) = result.targets
    if number is not None:
        (wrong,) = target.runs[number].states
        assert target.runs[number].outputs[0].ok and wrong.worst == (0, 7)


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "raspberry-pi-3b"])
def test_states_of_boards_are_compared(board: str) -> None:
    (target,) = verified(SYMBOLIC, board=board).targets
    assert target.ok and len(target.runs) == 3 * CALLS
    assert all(run.states for run in target.runs)
