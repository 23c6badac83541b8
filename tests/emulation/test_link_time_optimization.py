# SPDX-License-Identifier: Apache-2.0
"""Programs for boards run where GCC optimizes all files as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.emulate import emulate
from tests.models.perceptron import perceptron


@pytest.mark.qemu
@pytest.mark.parametrize("level", ["-O1", "-O2", "-Os"])
def test_the_emulator_finds_the_model(level: str) -> None:
    model = perceptron()
    project = driver.compile_model(model, "mps2-an386", Options(bounds={"batch": (1, 2)}))
    flags = (*(f for f in project.board.flags if not f.startswith("-O")), level, "-flto")
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12)
    linked = replace(project, board=replace(project.board, flags=flags))
    (name,) = (port.source for port in project.interface.inputs)
    (run,) = emulate(linked, [{name: x}])
    assert run.status == 0 and run.instructions is not None and run.instructions > 1000
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {name: x})
    (found,) = run.outputs.values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
