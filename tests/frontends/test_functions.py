# SPDX-License-Identifier: Apache-2.0
"""Functions of ONNX models, where they are called."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot.errors import RelaxAotError

HEAD = '<ir_version: 10, opset_import: ["" : 17, "own" : 1]>'
OWN = '<domain: "own", opset_import: ["" : {version}, "own" : 1]>'


def model(graph: str, *functions: str, version: int = 17) -> onnx.ModelProto:
    head = OWN.format(version=version)
    return parser.parse_model("\n".join([HEAD, graph, *(f"{head}\n{f}" for f in functions)]))


def check(made: onnx.ModelProto, x: np.ndarray) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    found = rx.compile(made, name="called", bounds={"n": 4}).host()(x=x)
    np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-6)


def test_attributes_have_the_defaults_of_a_function() -> None:
    made = model(
        "agraph (float[n, 3] x) => (float[n, 3] y) { y = own.Outer (x) }",
        "Inner <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }",
        "Outer <slope: float = 0.5> (a) => (b) { b = own.Inner <slope: float = @slope> (a) }",
    )
    check(made, np.array([[-2, 0, 3]], np.float32))


def test_a_function_has_an_operator_set_of_its_own() -> None:
    made = model(
        "agraph (float[n, 3] x) => (float[n, 3] y) { y = own.Old (x) }",
        "Old (a) => (b) { b = Relu (a) }",
        version=15,
    )
    check(made, np.array([[-2, 0, 3]], np.float32))


def test_functions_that_call_each_other_often_are_refused() -> None:
    twice = [
        f"Twice{i + 1} (a) => (c) {{ b = own.Twice{i} (a) c = own.Twice{i} (b) }}"
        for i in range(60)
    ]
    made = model(
        "agraph (float[n] x) => (float[n] y) { y = own.Twice60 (x) }",
        "Twice0 (a) => (b) { b = Relu (a) }",
        *twice,
    )
    with pytest.raises(RelaxAotError, match="functions are more than 200000 nodes"):
        rx.compile(made, bounds={"n": 4})
