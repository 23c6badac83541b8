# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of images with channels first, against ONNX Runtime."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model

TEXT = """<ir_version: 9, opset_import: ["" : 20]>
g (float[b,{c},h,v] x, float[b,{c},h,v] r) => (float[?,?,?,?] y)
{{ s = Conv<strides=[{s},{s}], dilations=[{d},1], pads=[{q},{p},{q},{p}], group={c}>(x, w, t)
   {behind} }}"""
BEHIND = {
    "a function": "y = Gelu(s)",
    "factors of channels": "y = Mul(s, f)",
    "an image": "y = Add(s, r)",
    "channels last": "y = Transpose<perm=[0,2,3,1]>(s)",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "taps", "stride", "dilation", "behind"),
    [
        (20, 7, 1, 1, "a function"), (37, 3, 2, 1, "factors of channels"),
        (16, 3, 1, 3, "an image"), (41, 11, 2, 1, "channels last"),
    ],
)  # fmt: skip
def test_symbolic_images_are_those_of_onnx_runtime(
    channels: int, taps: int, stride: int, dilation: int, behind: str
) -> None:
    """The lowest sizes, odd ones, a line of two tiles, and an image of two bands."""
    rows = dilation * (taps // 2)
    text = TEXT.format(c=channels, s=stride, d=dilation, p=taps // 2, q=rows, behind=BEHIND[behind])
    model = parser.parse_model(text)
    rng = np.random.default_rng(taps)
    arrays = {
        "w": rng.normal(size=(channels, 1, taps, taps)), "t": rng.normal(size=channels),
        "f": rng.normal(size=(channels, 1, 1)),
    }  # fmt: skip
    for name, array in arrays.items():
        tensor = numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    sizes = {"b": (1, 2), "h": (1, 61), "v": (1, 139)}
    options = Options(bounds=sizes, name="m", check=True)
    project = driver.compile_model(model, options=options)
    assert re.search(r"raot_transpose_f32\(", project.files["m.c"].decode())
    host = host_model(project, sanitize=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for b, h, v in ((1, 1, 1), (2, 6, 7), (1, 17, 66), (1, 61, 139)):
        shape = (b, channels, h, v)
        feeds = {name: rng.normal(size=shape).astype(np.float32) for name in ("x", "r")}
        used = {port.name for port in session.get_inputs()}
        feeds = {name: value for name, value in feeds.items() if name in used}
        (theirs,) = session.run(None, feeds)
        np.testing.assert_allclose(host(**feeds)["y"], np.asarray(theirs), rtol=1e-4, atol=2e-5)
