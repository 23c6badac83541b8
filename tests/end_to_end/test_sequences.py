# SPDX-License-Identifier: Apache-2.0
"""Sequences of tensors that the compiler keeps as lists: values as ONNX Runtime has them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot.errors import RelaxAotError

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g'
SIGNATURE = "(float[N,7] x) => (float[?,?] y)"
PLACES = "int64 first = {0}, int64 last = {-1}, int64 two = {2}"
MODELS = {
    "chunks of two, the last of one": f"""{SIGNATURE} <{PLACES}>
        {{ s = SplitToSequence<axis=1>(x, two) a = SequenceAt(s, first) b = SequenceAt(s, last)
          y = Mul(a, b) }}""",
    "parts of given sizes, joined in another order": f"""{SIGNATURE}
        <{PLACES}, int64[3] parts = {{3, 0, 4}}>
        {{ s = SplitToSequence<axis=1>(x, parts) a = SequenceAt(s, last) t = SequenceErase(s)
          u = SequenceInsert(t, a, first) y = ConcatFromSequence<axis=-1>(u) }}""",
    "single columns, stacked again": """(float[N,7] x) => (float[?,?,?] y)
        { s = SplitToSequence<axis=1, keepdims=0>(x) n = SequenceLength(s)
          f = CastLike(n, x) t = ConcatFromSequence<axis=0, new_axis=1>(s) y = Add(t, f) }""",
    "built up from nothing": f"""{SIGNATURE} <{PLACES}>
        {{ e = SequenceEmpty() a = Neg(x) s = SequenceInsert(e, a) t = SequenceInsert(s, x, last)
          u = SequenceConstruct(x, a) b = SequenceAt(u, last)
          v = SequenceInsert(t, b) y = ConcatFromSequence<axis=0>(v) }}""",
}


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS.keys())
def test_a_list_that_the_compiler_knows_needs_no_sequence_at_run_time(text: str) -> None:
    model = parser.parse_model(f"{HEADER} {text}")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    host = rx.compile(model, bounds={"N": 5}, name="m").host()
    for n in (1, 3, 5):
        x = np.linspace(-1, 1, n * 7, dtype=np.float32).reshape(n, 7)
        np.testing.assert_array_equal(host(x=x)["y"], session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            """(float[N,7] x, int64 k) => (float[?,?] y)
            { s = SplitToSequence<axis=1>(x) y = SequenceAt(s, k) }""",
            r"y \(SequenceAt\): its input 1 is not constant",
        ),
        (
            """(float[N,7] x) => (float[?,?] y) <int64 k = {0}>
            { s = SplitToSequence<axis=0>(x) y = SequenceAt(s, k) }""",
            r"s \(SplitToSequence\): N determines the number of parts",
        ),
        (
            """(float[N,7] x) => (float[?,?] y) { s = SequenceConstruct(x, x) y = Neg(s) }""",
            r"y \(Neg\): its input 's' is a sequence",
        ),
    ],
)
def test_what_only_run_time_knows_of_a_sequence_is_refused(text: str, why: str) -> None:
    with pytest.raises(RelaxAotError, match=why):
        rx.compile(parser.parse_model(f"{HEADER} {text}"), bounds={"N": 5}, name="m")
