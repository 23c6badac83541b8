# SPDX-License-Identifier: Apache-2.0
"""Programs for cores with Thumb-1 alone, whose functions release locals by `pop {r0, r1, ...}`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import Array, model_of

TEXT = """
    c = Concat <axis = 1> (x, x)
    q = QLinearConv <strides = [2, 2]> (c, s, z, w, ws, wz, t, z)
    f = DequantizeLinear (q, t, z)
    r = LeakyRelu <alpha = 0.3> (f)
    l = QuantizeLinear (r, s, z)
    y = Concat <axis = 1> (l, l)"""
"""One function joins x and x, and l and l; its caller found l in r1 after the function before."""


@pytest.mark.qemu
@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
def test_callers_do_not_rely_on_registers_that_are_popped(level: str) -> None:
    rng = np.random.default_rng(0)
    data: dict[str, Array] = {
        "s": np.array(0.05, np.float32), "z": np.array(3, np.int8), "t": np.array(0.04, np.float32),
        "w": rng.integers(-99, 99, (1, 2, 1, 1)).astype(np.int8),
        "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8),
    }  # fmt: skip
    model = model_of("m (int8[n, 1, 10, 12] x) => (int8[n, 2, 5, 6] y)", TEXT, data)
    project = driver.compile_model(
        model, "microbit", Options(bounds={"n": (1, 3)}, optimize="size")
    )
    flags = (*(f for f in project.board.flags if not f.startswith("-O")), level)
    project = replace(project, board=replace(project.board, flags=flags))
    samples = [{"x": rng.integers(-128, 128, (n, 1, 10, 12)).astype(np.int8)} for n in (1, 2, 3)]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for run, sample in zip(emulate(project, samples), samples, strict=True):
        (expected,) = session.run(None, sample)
        assert run.status == 0
        np.testing.assert_array_equal(run.outputs["y"], expected)
