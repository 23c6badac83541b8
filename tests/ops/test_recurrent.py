# SPDX-License-Identifier: Apache-2.0
"""Activations of recurrent layers, with their parameters, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx
from relax_aot.evaluation.reference import evaluate
from relax_aot.verify.onnx_reference import OnnxReference

GATES = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}
FORMS: list[dict[str, Any]] = [
    {"activations": ["LeakyRelu"], "activation_alpha": [0.3]},
    {"activations": ["HardSigmoid"], "activation_alpha": [0.3], "activation_beta": [0.4]},
    {"activations": ["ScaledTanh"], "activation_alpha": [1.5], "activation_beta": [0.5]},
    {"activations": ["Elu"], "activation_alpha": [0.7]},
    {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2]},
    {"activations": ["Softsign"]},
    {"activations": ["Softplus"]},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["activations"][0])
@pytest.mark.parametrize("layer", GATES)
def test_activations(layer: str, form: dict[str, Any]) -> None:
    gates, functions = GATES[layer]
    check(layer, gates, {name: value * functions for name, value in form.items()})


def test_coupled_gates() -> None:
    check("LSTM", 4, {"input_forget": 1})


def check(layer: str, gates: int, attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)

    def normal(*shape: int) -> NDArray[np.float32]:
        return (np.asarray(rng.normal(size=shape)) * 0.3).astype(np.float32)

    weights = {"w": normal(1, gates * 4, 3), "r": normal(1, gates * 4, 4)}
    node = helper.make_node(layer, ["x", "w", "r"], ["", "h"], hidden_size=4, **attrs)
    graph = helper.make_graph(
        [node], "one_layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "n", 3])],
        [helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, "n", 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    module = rx.load(model, bounds={"t": 6, "n": 3})
    x = normal(5, 2, 3)
    expected = OnnxReference(model, {}, {})({"x": x}, {})["h"]
    found = evaluate(module, {"x": x}, {"t": 5, "n": 2})["h"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
