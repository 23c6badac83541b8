# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as the reference, where it stops the process."""

from __future__ import annotations

import os
import signal
from typing import Any

import onnxruntime
import pytest
from onnx import parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.reference import ReferenceFailed

OVERLAP = """
<ir_version: 9, opset_import: ["": 17]>
g (float[n, 4] x) => (float[4, 4] y)
<int64[1] first = {2}, int64[1] last = {99}, int64[1] axis = {0}>
{
  rows = Slice(x, first, last, axis)
  columns = Transpose <perm = [1, 0]> (rows)
  y = MatMul(columns, rows)
}
"""
"""At n = 2, the product has no steps; no input and no output is empty."""


def test_a_reference_that_stops_the_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of ONNX Runtime differ in the operators that do so."""
    ran = onnxruntime.InferenceSession.run

    def run(self: Any, names: Any, feed: Any) -> Any:
        if feed["x"].shape[0] == 2:
            os.kill(os.getpid(), signal.SIGFPE)
        return ran(self, names, feed)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", run)
    model = parser.parse_model(OVERLAP)
    project = driver.compile_model(model, "host", Options(bounds={"n": (2, 5)}, name="overlap"))
    assert run_job(Job(model, (project,), at=({"n": 3},))).ok
    with pytest.raises(ReferenceFailed, match="SIGFPE at a size of 0: use --reference numpy"):
        run_job(Job(model, (project,)))
    assert run_job(Job(model, (project,), reference="numpy")).ok
