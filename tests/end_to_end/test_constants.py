# SPDX-License-Identifier: Apache-2.0
"""What hangs on constants alone, and results that are inputs: values as ONNX Runtime has them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot.verify.host import StatusError

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g'


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEADER} {text}")


def equal_at(text: str, *rows: int) -> None:
    """At these sizes of N, the one symbol, which is the first axis of `x`."""
    model = model_of(text)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    host = rx.compile(model, bounds={"N": max(rows)}, name="m").host()
    rank = len(session.get_inputs()[0].shape)
    for n in rows:
        x = np.linspace(-1, 1, n * 4 ** (rank - 1), dtype=np.float32).reshape(n, *[4] * (rank - 1))
        found = host(x=x)
        names = [output.name for output in session.get_outputs()]
        for name, theirs in zip(names, session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found[name], np.asarray(theirs), rtol=1e-6)


def test_an_attribute_that_is_a_size_keeps_a_call_from_being_folded() -> None:
    equal_at(
        """(float[N,4] x) => (float[?,?] y)
        <float[3,3] c = {1,2,3,4,5,6,7,8,9}, int64 zero = {0}>
        { s = Shape(x) n = Gather(s, zero) t = Trilu(c, n) y = Tanh(t) }""",
        1, 2, 3,
    )  # fmt: skip


def test_a_constant_without_elements_may_have_a_symbolic_axis() -> None:
    equal_at(
        """(float[N,4] x) => (float[?,?] y)
        <float[1,0] c = {}, int64[1] zero = {0}, int64[1] one = {1}>
        { s = Shape(x) n = Slice(s, zero, one) shape = Concat<axis=0>(n, zero)
          t = Expand(c, shape) u = Tanh(t) y = Concat<axis=1>(x, u) }""",
        1, 3,
    )  # fmt: skip


def test_a_constant_index_out_of_range_is_a_status() -> None:
    model = model_of(
        """(float[N,4] x) => (float[N,4] y) <float[3] c = {1,2,3}, int64 k = {7}>
        { t = Gather(c, k) y = Add(x, t) }"""
    )
    host = rx.compile(model, bounds={"N": 4}, name="m").host()
    with pytest.raises(StatusError, match="INDEX"):
        host(x=np.zeros((2, 4), np.float32))


def test_one_number_expanded_without_bound_takes_no_memory_to_compile() -> None:
    """40 GB if it were written out."""
    model = model_of(
        """(float[N] x) => (float[?,?] y) <int64[2] shape = {100000, 100000}, float[1] one = {1}>
        { b = Expand(one, shape) t = Tanh(b) r = ReduceMax<keepdims=1>(t) y = Add(x, r) }"""
    )
    project = rx.compile(model, bounds={"N": 4}, name="m")
    assert sum(map(len, project.files.values())) < 2**20


def test_an_input_may_be_an_output_under_its_own_name() -> None:
    equal_at("(float[N] x) => (float[N] x, float[N] y, float[N] x_2) { y = Neg(x) x_2 = Abs(x) }",
             1, 5)  # fmt: skip
