# SPDX-License-Identifier: Apache-2.0
"""A tile of products that has no step reads nothing, wherever it would begin."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model

TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,t] x) => (float[?,?,?] y)
{ y = Conv<strides=[275], pads=[255,255], kernel_shape=[1]>(x, w) }"""


@pytest.mark.slow
def test_windows_that_lie_in_the_padding_alone() -> None:
    model = parser.parse_model(TEXT)
    source = np.random.default_rng(0)
    weights = source.normal(size=(64, 1, 1)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    options = Options(bounds={"t": (1, 82)}, name="m", check=True)
    host = host_model(driver.compile_model(model, options=options), sanitize=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for t in (1, 20, 21, 41, 82):
        x = source.normal(size=(1, 1, t)).astype(np.float32)
        (theirs,) = session.run(None, {"x": x})
        np.testing.assert_allclose(host(x=x)["y"], np.asarray(theirs), rtol=1e-5, atol=1e-6)
