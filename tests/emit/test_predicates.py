# SPDX-License-Identifier: Apache-2.0
"""Questions that several readers ask of a float compile without a warning."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import parser

import relax_aot as rx


def test_a_scalar_keeps_what_isnan_says() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        asked (float[n] x, bool[n] c) => (float[n] y) {
            odd = IsNaN(x)
            far = IsInf(x)
            either = Or(odd, far)
            chosen = And(c, odd)
            neither = Not(either)
            small = And(far, neither)
            one = Cast <to = 1> (either)
            two = Cast <to = 1> (chosen)
            three = Cast <to = 1> (small)
            some = Add(one, two)
            y = Add(some, three)
        }"""
    )
    x = np.array([0, np.nan, np.inf, -np.inf, 1, np.nan], np.float32)
    c = np.array([True, True, True, False, False, False])
    host = rx.compile(model, bounds={"n": 6}, name="asked").host()
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x, "c": c})
    np.testing.assert_array_equal(host(x=x, c=c)["y"], wanted)


def test_what_compares_with_itself_is_known() -> None:
    """Compilers warn of it; a float that is no number does not equal itself."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        alike (int32[n] a, float[n] x) => (bool[n] r, bool[n] s, bool[n] t, bool[n] u, bool[n] v) {
            b = Mul(a, a)
            r = Greater(b, b)
            s = GreaterOrEqual(b, b)
            t = Equal(b, b)
            z = Mul(x, x)
            u = Less(z, z)
            v = GreaterOrEqual(z, z)
        }"""
    )
    feeds = {"a": np.arange(4, dtype=np.int32), "x": np.array([0, np.nan, np.inf, 1], np.float32)}
    host = rx.compile(model, bounds={"n": 6}, name="alike").host()
    names = ["r", "s", "t", "u", "v"]
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(names, feeds)
    ours = host(feeds)
    for name, expected in zip(names, wanted, strict=True):
        np.testing.assert_array_equal(ours[name], expected)
