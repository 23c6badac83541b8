# SPDX-License-Identifier: Apache-2.0
"""A multi-layer perceptron over a batch of any size."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of, random_weights


def perceptron(seed: int = 0) -> onnx.ModelProto:
    """x: float[batch, 12] -> chances: float[batch, 5], through Gemm, Relu, Tanh and Softmax."""
    return model_of(
        "perceptron (float[batch, 12] x) => (float[batch, 5] chances)",
        """
        first = Gemm <transB = 1> (x, w1, b1)
        first_on = Relu(first)
        second = Gemm <alpha = 0.5, beta = 2.0> (first_on, w2, b2)
        second_on = Tanh(second)
        third = MatMul(second_on, w3)
        logits = Add(third, b3)
        chances = Softmax <axis = 1> (logits)
        """,
        _weights(seed),
    )


def _weights(seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    shapes = {"w1": (24, 12), "b1": (24,), "w2": (24, 16), "b2": (16,), "w3": (16, 5), "b3": (5,)}
    return random_weights(rng, **shapes)


def perceptron_forward(w: Weights, x: Array) -> dict[str, Array]:
    first = np.maximum(x @ w["w1"].T + w["b1"], 0)
    second = np.tanh(0.5 * (first @ w["w2"]) + 2.0 * w["b2"])
    e = np.exp(second @ w["w3"] + w["b3"])
    return {"chances": e / e.sum(axis=1, keepdims=True)}
