# SPDX-License-Identifier: Apache-2.0
"""Rows that are expanded for the lines of a larger image: results are those of ONNX Runtime, and
loads that move change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.scheduling.passes import expanded_rows
from relax_aot.scheduling.targets import find
from relax_aot.verify.host import host_model
from tests.transforms.examples import example_module

MODES = {
    "linear": 'mode="linear"',
    "corners": 'mode="linear", coordinate_transformation_mode="align_corners"',
}


def resize(mode: str, shape: str, scales: tuple[float, float]) -> ModelProto:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[{shape}] x) => (float[?,?,?,?] y) {{ y = Resize<{MODES[mode]}>(x, , s) }}""")
    array = np.array([1, 1, *scales], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "s"))
    return model


@pytest.mark.parametrize(
    ("mode", "shape", "scales", "expanded"),
    [
        ("linear", "2,3,5,7", (2, 2), True),
        ("corners", "1,1,1,4", (3, 2.5), True),
        ("linear", "1,2,9,8", (1.5, 0.5), True),
        ("linear", "1,2,8,9", (0.5, 2), False),  # most rows would be expanded for nothing
        ("linear", "n,3,h,w", (2, 2), True),
    ],
)
def test_results_are_those_of_onnx_runtime(
    mode: str, shape: str, scales: tuple[float, float], *, expanded: bool
) -> None:
    model = resize(mode, shape, scales)
    options = Options(bounds={"n": (1, 2), "h": (1, 9), "w": (1, 9)} if "n" in shape else {})
    project = driver.compile_model(model, options=options)
    (kernel,) = project.plan.kernels
    assert any(buffer.name == "rows" for buffer in kernel.scratch) == expanded
    host, rng = host_model(project), np.random.default_rng(0)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n, h, w in ((1, 1, 1), (2, 9, 8), (1, 4, 9)):
        sizes = {"n": n, "h": h, "w": w}
        drawn = rng.normal(size=[sizes.get(size) or int(size) for size in shape.split(",")])
        x = drawn.astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], np.asarray(wanted), rtol=1e-5, atol=1e-5)


PLACES = """
    kernel @sum(%x: f32[2, {rows}, 6], %at: i32[2, 11], %row: i32[2, 8]) -> (%y: f32[2, 8, 11]) {{
      for c in 0..2 {{
        for i in 0..8 {{
          for j in 0..11 {{
            clamped near in 0..{last} = cast(%row[0, i], i64, wrap)
            clamped far in 0..{last} = cast(%row[1, i], i64, wrap)
            clamped left in 0..5 = cast(%at[0, j], i64, wrap)
            clamped right in 0..5 = cast(%at[1, j], i64, wrap)
            local total: f32 = (%x[c, near, left] + (%x[c, far, left] * %x[c, near, {other}]))
            %y[c, i, j] = (total + cast({place}, f32, wrap))
          }}
        }}
      }}
    }}"""


@pytest.mark.parametrize(
    ("rows", "other", "place", "expanded"),
    [
        (6, "right", "index(0)", True),
        (6, "right", "index(left)", True),  # the place itself is used as well
        (7, "right", "index(0)", False),
        (3, "j % 6", "index(0)", True),  # a load that no table tells stays as it is
        (3, "right", "index(near)", True),
    ],
)
def test_bits_stay(rows: int, other: str, place: str, *, expanded: bool) -> None:
    module = example_module(PLACES.format(rows=rows, last=rows - 1, other=other, place=place))
    (plain,) = module.kernels
    (kernel,) = expanded_rows.run(module, find("host", ())).kernels
    assert bool(kernel.scratch) == expanded
    rng = np.random.default_rng(rows)
    inputs: list[Any] = [
        rng.normal(size=(2, rows, 6)).astype(np.float32),
        rng.integers(0, 6, (2, 11), np.int32),
        rng.integers(0, rows, (2, 8), np.int32),
    ]
    (wanted,), (found,) = (run_kernel(k, inputs, {}) for k in (plain, kernel))
    assert found.tobytes() == wanted.tobytes()
