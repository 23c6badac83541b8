# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions in quantized values: against the floats of ONNX Runtime, with the bounds
that the rounding of inputs, weights and biases gives, and as quantized models of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx
from relax_aot import transforms
from relax_aot.evaluation.reference import evaluate, sizes_shown
from relax_aot.quantization import Choice, quantize

Array = NDArray[Any]
CHANNELS = 8
CASES: dict[str, dict[str, Any]] = {
    "plain": {"kernel": 3, "strides": [1, 1]},
    "stride 2": {"kernel": 4, "pads": [1, 1, 1, 1]},
    "short kernel": {"kernel": 2, "strides": [3, 2], "output_padding": [2, 1]},
    "groups": {"kernel": 3, "group": 4, "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    "depthwise": {"kernel": 3, "group": CHANNELS, "pads": [1, 1, 1, 1]},
    "dilated": {"kernel": 3, "dilations": [2, 1], "strides": [3, 2]},
}
SIZES = (1, 4, 7)
OFTEN = ("stride 2", "groups")


def often(case: str) -> Any:
    return pytest.param(case, marks=() if case in OFTEN else pytest.mark.slow)


def transposed(case: str, weights: Array, bias: Array, *more: Any) -> onnx.ModelProto:
    """`more`: nodes that make `v` of the input, and constants."""
    attrs = {"strides": [2, 2], **CASES[case]}
    kernel = attrs.pop("kernel")
    nodes, constants = more if more else ([], [])
    names = ("v", "w") if nodes else ("x", "w")
    nodes = [
        *nodes,
        helper.make_node("ConvTranspose", [*names, "b"], ["y"], kernel_shape=[kernel] * 2, **attrs),
    ]
    tensors = [numpy_helper.from_array(a, n) for n, a in (("w", weights), ("b", bias))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, CHANNELS, "n", 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "m", [x], [y], [*tensors, *constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: onnx.ModelProto, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


def parameters(case: str, rng: np.random.Generator) -> tuple[Array, Array]:
    kernel, group = CASES[case]["kernel"], CASES[case].get("group", 1)
    filters = 12 // group if group < CHANNELS else 2
    weights = rng.normal(size=(CHANNELS, filters, kernel, kernel)).astype(np.float32)
    weights *= rng.uniform(0.1, 1, (1, filters, 1, 1)).astype(np.float32)
    return weights, rng.normal(size=filters * group).astype(np.float32)


def scales_of(case: str, weights: Array) -> Array:
    """Half of the scale of each weight: those that share one are the weights of a filter, or of an
    input where it is alone in its group."""
    axes = (1, 2, 3) if CASES[case].get("group", 1) == CHANNELS else (0, 2, 3)
    most = np.abs(weights).max(axis=axes, keepdims=True)
    return np.broadcast_to(most / 254, weights.shape).astype(np.float32)


@pytest.mark.parametrize("case", [often(case) for case in CASES])
def test_errors_are_those_of_rounding(case: str) -> None:
    rng = np.random.default_rng(7)
    weights, bias = parameters(case, rng)
    model, nothing = transposed(case, weights, bias), np.zeros_like(bias)
    inputs = [rng.normal(size=(2, CHANNELS, n, 5)).astype(np.float32) for n in SIZES]
    low, high = min(x.min() for x in inputs), max(x.max() for x in inputs)
    samples = np.stack([np.resize(x, (2, CHANNELS, 7, 5)) for x in inputs])
    samples[0, 0, 0, 0, :2] = low, high
    project = rx.compile(model, bounds={"n": 7}, quantize="int8", calibrate={"x": samples})
    assert all("conv_transpose" not in line for line in project.built.floats)
    host, half = project.host(), scales_of(case, weights)
    step = np.float32((high - low) / 255)
    for x in inputs:
        exact = run(model, x)
        far = np.full_like(x, 0.51 * step)  # the zero point is rounded, too
        allowed = run(transposed(case, np.abs(weights) + half, nothing), far)
        allowed += run(transposed(case, half, nothing), np.abs(x)) + step * half.max() + 1e-5
        (found,) = host({"x": x}).values()
        assert found.shape == exact.shape
        assert np.all(np.abs(found - exact) <= allowed)


@pytest.mark.parametrize("case", CASES)
def test_integers_are_the_values_of_the_quantized_model(case: str) -> None:
    rng = np.random.default_rng(8)
    model = transposed(case, *parameters(case, rng))
    x = rng.normal(size=(2, CHANNELS, 4, 5)).astype(np.float32)
    made, _ = quantize(rx.load(model, bounds={"n": 7}), {"x": x[None]}, Choice("int8"))
    integers = transforms.run(made)
    ops = {call.op for call in integers.main.body}
    assert "conv_transpose_integer" in ops
    assert "conv_transpose" not in ops
    sizes = sizes_shown(made, {"x": x})
    (floats, found) = (
        evaluate(module, {"x": x}, sizes)[module.main.results[0].name]
        for module in (made, integers)
    )
    np.testing.assert_allclose(found, floats, rtol=1e-5, atol=1e-5)


def test_batch_normalization_behind_groups_is_folded() -> None:
    rng = np.random.default_rng(9)
    weights, bias = parameters("groups", rng)
    model = transposed("groups", weights, bias)
    count = len(bias)
    parts = {
        "scale": rng.uniform(0.5, 2, count), "shift": rng.normal(size=count),
        "mean": rng.normal(size=count), "var": rng.uniform(0.5, 2, count),
    }  # fmt: skip
    model.graph.node.append(helper.make_node("BatchNormalization", ["y", *parts], ["z"]))
    model.graph.output[0].name = "z"
    for name, data in parts.items():
        model.graph.initializer.append(numpy_helper.from_array(data.astype(np.float32), name))
    x = rng.normal(size=(2, CHANNELS, 4, 5)).astype(np.float32)
    project = rx.compile(model, bounds={"n": 7}, quantize="int8", calibrate={"x": x[None]})
    exact = run(model, x)
    (found,) = project.host()({"x": x}).values()
    assert all("batch_norm" not in line for line in project.built.floats)
    assert np.abs(found - exact).max() < 0.03 * np.abs(exact).max()


@pytest.mark.parametrize(("case", "axis"), [
    pytest.param("stride 2", 1, marks=pytest.mark.slow), ("groups", 1),
    pytest.param("depthwise", None, marks=pytest.mark.slow),
])  # fmt: skip
def test_quantized_models_of_others(case: str, axis: int | None) -> None:
    """DequantizeLinear, ConvTranspose, QuantizeLinear; scales of filters are shared by groups."""
    rng = np.random.default_rng(10)
    weights, bias = parameters(case, rng)
    shape = () if axis is None else (weights.shape[axis],)
    scales = rng.uniform(0.005, 0.02, shape).astype(np.float32)
    constants: dict[str, Array] = {
        "q": rng.integers(-127, 128, weights.shape).astype(np.int8), "qs": scales,
        "qz": np.zeros(shape, np.int8), "s": np.array(0.02, np.float32), "z": np.array(3, np.int8),
        "ys": np.array(0.11, np.float32), "yz": np.array(-7, np.int8),
    }  # fmt: skip
    more: dict[str, Any] = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["v"]),
        helper.make_node("DequantizeLinear", ["q", "qs", "qz"], ["w"], **more),
    ]
    tensors = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    model = transposed(case, weights, bias, nodes, tensors)
    del model.graph.initializer[0]  # the float weights
    model.graph.node.extend([
        helper.make_node("QuantizeLinear", ["y", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["z2"]),
    ])  # fmt: skip
    model.graph.output[0].name = "z2"
    x = rng.normal(size=(2, CHANNELS, 4, 5)).astype(np.float32)
    project = rx.compile(model, bounds={"n": 7})
    assert all("conv_transpose" not in line for line in project.built.floats)
    (found,) = project.host()({"x": x}).values()
    steps = (found - run(model, x)) / 0.11
    assert np.abs(steps).max() < 1.01  # a sum at the middle of two integers
    assert np.mean(np.abs(steps) > 0.5) < 0.01
