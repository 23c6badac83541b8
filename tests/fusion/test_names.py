# SPDX-License-Identifier: Apache-2.0
"""Sizes of a model may have any name, also one that a loop or an index of a kernel has."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[A,1] x, float[A,B] z) => (float[?,?] y, float[?,?] most)
<int64[4] pads = {1,0,2,0}, int64[4] more = {1,0,2,0}>
{ wide = Pad<mode="edge">(x, pads) other = Pad<mode="reflect">(z, more)
  both = Concat<axis=1>(wide, other) s = Softmax<axis=-1>(both) bent = Tanh(wide)
  y = Sub(s, bent) turned = Transpose<perm=[1,0]>(s) most = MatMul(turned, s) }"""


@pytest.mark.slow
@pytest.mark.parametrize("b", ["i0", "s0", "s2", "at"])
def test_sizes_may_be_called_as_loops_are(b: str) -> None:
    model = parser.parse_model(TEXT.replace("B]", f"{b}]"))
    options = Options(bounds={"A": (3, 6), b: (1, 4)}, name="m", check=True)
    host = host_model(driver.compile_model(model, options=options))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    source = np.random.default_rng(0)
    for m, n in ((3, 1), (6, 4), (5, 2)):
        x, z = (source.normal(size=(m, k)).astype(np.float32) for k in (1, n))
        for found, theirs in zip(host(x=x, z=z).values(), session.run(None, {"x": x, "z": z}),
                                 strict=True):  # fmt: skip
            np.testing.assert_allclose(found, np.asarray(theirs), rtol=1e-4, atol=1e-5)
