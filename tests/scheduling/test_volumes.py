# SPDX-License-Identifier: Apache-2.0
"""Convolutions over three axes are tiles whose windows are gathered, with the results of ONNX
Runtime at every size."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model

FORMS = {
    "bordered": ("pads=[1,1,1,1,1,1]", (24, 5, 3, 3, 3)),
    "strides": ("pads=[1,0,2,1,1,1], strides=[2,1,2]", (9, 4, 3, 2, 5)),
    "dilations": ("pads=[2,1,0,2,1,0], dilations=[2,1,1]", (16, 4, 3, 3, 1)),
    "whole": ("strides=[1,1,1]", (8, 6, 2, 2, 2)),
}
SIZES = ((1, 3, 5, 5), (2, 4, 7, 6), (1, 9, 3, 9), (2, 5, 9, 17))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_volumes_give_the_results_of_onnx_runtime(form: str) -> None:
    attributes, shape = FORMS[form]
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,{shape[1]},d,h,w] x) => (float[?,?,?,?,?] y)
        {{ a = Conv<{attributes}>(x, f, b)
           y = Relu(a) }}""")
    rng = np.random.default_rng(1)
    for name, size in (("f", shape), ("b", shape[:1])):
        tensor = numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name)
        model.graph.initializer.append(tensor)
    bounds = {"n": (1, 2), "d": (3, 9), "h": (3, 9), "w": (5, 17)}
    project = driver.compile_model(model, options=Options(bounds=bounds, name="m", check=True))
    assert b"raot_multiply" in project.files[project.units[0]]
    host = host_model(project, sanitize=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n, d, h, w in SIZES:
        x = rng.normal(size=(n, shape[1], d, h, w)).astype(np.float32)
        (theirs,) = session.run(None, {"x": x})
        wanted = np.asarray(theirs)
        scale = float(np.abs(wanted).max())
        np.testing.assert_allclose(host(x=x)["y"], wanted, rtol=1e-4, atol=1e-5 * scale)
