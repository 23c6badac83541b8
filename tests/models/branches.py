# SPDX-License-Identifier: Apache-2.0
"""Models with `If`: decided by data, with results of equal and of different size, and by shapes."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of, random_weights


def branch_equal(seed: int = 0) -> onnx.ModelProto:
    """x: float[n, 4], mode: int64 -> y: float[n, 3]: which layer is used depends on `mode`.

    The branches use values from outside, and one of them contains another `If`.
    """
    return model_of(
        "branch_equal (float[n, 4] x, int64 mode) => (float[n, 3] y)",
        """
        zero = Constant <value = int64 {0}> ()
        positive = Greater(mode, zero)
        scaled = Mul(x, scale)
        chosen = If (positive) <
            then_branch = straight () => (float[n, 3] straight_y) {
                straight_product = MatMul(scaled, w1)
                straight_y = Relu(straight_product)
            },
            else_branch = curved () => (float[n, 3] curved_y) {
                curved_product = MatMul(scaled, w2)
                negative = Less(mode, zero)
                curved_y = If (negative) <
                    then_branch = down () => (float[n, 3] down_y) { down_y = Tanh(curved_product) },
                    else_branch = up () => (float[n, 3] up_y) { up_y = Sigmoid(curved_product) }
                >
            }
        >
        y = Add(chosen, b)
        """,
        random_weights(np.random.default_rng(seed), scale=(4,), w1=(4, 3), w2=(4, 3), b=(3,)),
    )


def branch_equal_forward(w: Weights, x: Array, mode: Array) -> dict[str, Array]:
    scaled = x * w["scale"]
    if mode > 0:
        return {"y": np.maximum(scaled @ w["w1"], 0) + w["b"]}
    curved = scaled @ w["w2"]
    return {"y": (np.tanh(curved) if mode < 0 else 1 / (1 + np.exp(-curved))) + w["b"]}


def branch_sizes(seed: int = 0) -> onnx.ModelProto:
    """x: float[n, 4], twice: bool -> y: float[m, 3], total: float[3]: m is 2*n or n - 1."""
    return model_of(
        "branch_sizes (float[n, 4] x, bool twice) => (float[m, 3] y, float[3] total)",
        """
        rows = If (twice) <
            then_branch = twofold () => (float[many, 4] twofold_rows) {
                halved = Mul(x, half)
                twofold_rows = Concat <axis = 0> (x, halved)
            },
            else_branch = rest () => (float[few, 4] rest_rows) {
                rest_start = Constant <value = int64[1] {1}> ()
                rest_end = Constant <value = int64[1] {9223372036854775807}> ()
                rest_axis = Constant <value = int64[1] {0}> ()
                rest_rows = Slice(x, rest_start, rest_end, rest_axis)
            }
        >
        product = MatMul(rows, w)
        y = Relu(product)
        total = ReduceSum <keepdims = 0> (y, first_axis)
        """,
        random_weights(np.random.default_rng(seed), w=(4, 3))
        | {"half": np.array(0.5, np.float32), "first_axis": np.array([0], np.int64)},
    )


def branch_sizes_forward(w: Weights, x: Array, twice: Array) -> dict[str, Array]:
    rows = np.concatenate([x, x * w["half"]]) if twice else x[1:]
    y = np.maximum(rows @ w["w"], 0)
    return {"y": y, "total": y.sum(axis=0)}


def branch_decided(seed: int = 0) -> onnx.ModelProto:
    """x: float[n, 1, 4] -> y: float[n, 3]: shapes and the bounds of n decide both conditions.

    The first is what exporters write for `x.squeeze(1)`: its branches disagree in rank. The second
    asks whether n is 0.
    """
    return model_of(
        "branch_decided (float[n, 1, 4] x) => (float[n, 3] y)",
        """
        shape = Shape(x)
        middle = Constant <value = int64 {1}> ()
        size = Gather <axis = 0> (shape, middle)
        single = Equal(size, middle)
        flat = If (single) <
            then_branch = drop () => (float[n, 4] dropped) {
                drop_axis = Constant <value = int64[1] {1}> ()
                dropped = Squeeze(x, drop_axis)
            },
            else_branch = keep () => (float[n, 1, 4] kept) { kept = Identity(x) }
        >
        first = Constant <value = int64 {0}> ()
        count = Gather <axis = 0> (shape, first)
        some = Greater(count, first)
        some64 = Cast <to = 7> (some)
        some_again = Cast <to = 9> (some64)
        y = If (some_again) <
            then_branch = layer () => (float[n, 3] layer_y) { layer_y = MatMul(flat, w) },
            else_branch = never () => (float[n, 3] never_y) {
                never_shape = Constant <value = int64[2] {0, 3}> ()
                never_y = ConstantOfShape <value = float[1] {1.0}> (never_shape)
            }
        >
        """,
        random_weights(np.random.default_rng(seed), w=(4, 3)),
    )


def branch_decided_forward(w: Weights, x: Array) -> dict[str, Array]:
    return {"y": x[:, 0] @ w["w"]}
