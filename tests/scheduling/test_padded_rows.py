# SPDX-License-Identifier: Apache-2.0
"""Convolutions by channel alone, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,6,{h},{w}] x) => (float[?,?,?,?] y)
{{ s = Conv<strides=[{s},{s}], pads=[{p},{p},{p},{p}], group=6>(x, w, b)
   y = Clip(s, low, high) }}"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taps", "stride", "high", "wide"), [(3, 1, 25, 5), (3, 2, 60, 57), (5, 1, 61, 40)]
)
def test_planes_are_those_of_onnx_runtime(taps: int, stride: int, high: int, wide: int) -> None:
    """Few lines, every second place, and several blocks of lines, the last one short."""
    model = parser.parse_model(TEXT.format(h=high, w=wide, s=stride, p=taps // 2))
    rng = np.random.default_rng(taps)
    arrays = {
        "w": rng.normal(size=(6, 1, taps, taps)), "b": rng.normal(size=6),
        "low": np.array(-1.0), "high": np.array(6.0),
    }  # fmt: skip
    for name, array in arrays.items():
        tensor = numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    options = Options(bounds={"n": (1, 3)}, name="m", check=True)
    host = host_model(driver.compile_model(model, options=options), sanitize=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n in (1, 2, 3):
        x = rng.normal(size=(n, 6, high, wide)).astype(np.float32)
        (theirs,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], np.asarray(theirs), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_windows_over_a_part_of_an_image_end_where_the_part_does() -> None:
    """The rows and columns that a Slice leaves out are no part of the padding."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,4,20,22] x) => (float[?,?,?,?] y)
        { part = Slice(x, first, last, axes)
          y = Conv<pads=[1,1,1,1], group=4>(part, w) }""")
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "first": np.array([2, 3]), "last": np.array([17, 19]), "axes": np.array([2, 3]),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    options = Options(bounds={"n": (1, 3)}, name="m", check=True)
    host = host_model(driver.compile_model(model, options=options))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n in (1, 3):
        x = rng.normal(size=(n, 4, 20, 22)).astype(np.float32)
        (theirs,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], np.asarray(theirs), rtol=1e-4, atol=1e-5)
