# SPDX-License-Identifier: Apache-2.0
"""Branches and bodies of loops name values from around them, whatever passes made of those."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.verify.host import host_model

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g'

SCAN = """(float[N,4] x, float[4] start) => (float[4] last, float[N,4] rows)
{ t = Sin(x) same = Transpose<perm=[0,1]>(t)
  last, rows = Scan<num_scan_inputs=1,
    body = one (float[4] s, float[4] r) => (float[4] a, float[4] b)
    { a = Add(s, r) b = Neg(a) }>(start, same) }"""

LOOP = """(float[N,4] x, float[N,4] start) => (float[N,4] last)
<int64 three = {3}, int64[2] whole = {0, 4}>
{ t = Sin(x) same = Transpose<perm=[0,1]>(t) again = Reshape(t, whole)
  last = Loop<body = one (int64 i, bool go, float[?,?] s) => (bool on, float[?,?] b)
    { on = Identity(go) a = Mul(s, same) b = Add(a, again) }>(three, , start) }"""

NESTED = """(float[N,4] x, bool f, bool g) => (float[N,4] y)
<int64[2] whole = {0, 4}>
{ t = Sin(x) same = Transpose<perm=[0,1]>(t) again = Reshape(t, whole)
  y = If<then_branch = a () => (float[N,4] u)
    { u = If<then_branch = b () => (float[N,4] v) { v = Add(same, again) },
             else_branch = c () => (float[N,4] w) { w = Neg(again) }>(g) },
    else_branch = d () => (float[N,4] z) { q = Identity(same) z = Cos(q) }>(f) }"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [SCAN, LOOP, NESTED], ids=["scan", "loop", "if"])
def test_what_a_pass_replaced_is_replaced_inside(text: str) -> None:
    model = parser.parse_model(f"{HEADER} {text}")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    options = Options(bounds={"N": (1, 5)}, name="m", check=True)
    host = host_model(driver.compile_model(model, options=options), sanitize=True)
    source = np.random.default_rng(0)
    for n, flags in ((1, (True, True)), (5, (True, False)), (4, (False, True))):
        feeds = {"x": source.normal(size=(n, 4)).astype(np.float32)}
        for value in session.get_inputs()[1:]:
            if value.type == "tensor(bool)":
                feeds[value.name] = np.array(flags["fg".index(value.name)])
            else:
                shape = [n if size == "N" else size for size in value.shape]
                feeds[value.name] = source.normal(size=shape).astype(np.float32)
        found = host(feeds)
        names = [output.name for output in session.get_outputs()]
        for name, theirs in zip(names, session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found[name], np.asarray(theirs), rtol=1e-5, atol=1e-6)
