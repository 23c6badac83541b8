# SPDX-License-Identifier: Apache-2.0
"""Deformable convolutions: taps are sampled once for all filters, and then multiplied."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import parser

import relax_aot as rx

MODEL = parser.parse_model("""<ir_version: 10, opset_import: ["" : 19]>
g (float[n,4,h,w] x, float[n,24,h,v] offset, float[n,12,h,v] mask, float[6,2,3,2] f, float[6] b)
  => (float[n,6,h,v] y)
{ y = DeformConv<group=2, offset_group=2, kernel_shape=[3,2], pads=[1,1,1,0], strides=[1,2]>
    (x, f, offset, b, mask) }
""")


def test_a_deformable_convolution_is_a_pointwise_one_of_sampled_taps() -> None:
    module = rx.load(MODEL, bounds={"n": 2, "h": 5, "w": 6, "v": 3})
    assert [call.op for call in module.functions[0].body if call.op.endswith("conv")] == ["conv"]
    host = rx.compile(module, name="deformable").host()
    session = onnxruntime.InferenceSession(MODEL.SerializeToString())
    rng = np.random.default_rng(0)
    for n, h, w in ((1, 1, 1), (2, 5, 6), (1, 4, 3)):
        v = (w + 1) // 2
        shapes = {
            "x": (n, 4, h, w), "offset": (n, 24, h, v), "mask": (n, 12, h, v),
            "f": (6, 2, 3, 2), "b": (6,),
        }  # fmt: skip
        arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}
        arrays["offset"] *= 2
        (theirs,) = session.run(None, arrays)
        np.testing.assert_allclose(host(**arrays)["y"], theirs, rtol=1e-4, atol=1e-5)
