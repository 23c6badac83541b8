# SPDX-License-Identifier: Apache-2.0
"""The classifier as ONNX, with the nodes that a framework's exporter writes.

Sizes that a framework asks of its tensors at run time (`x.shape[0]`) become chains of Shape,
Gather, Concat and Reshape; so does the GRU's first state. `n` stays symbolic throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples.gesture.layers import Array
from examples.gesture.model import EPSILON, HIDDEN, Weights
from examples.gesture.motion import CLASSES

OPSET = 17
IR_VERSION = 8


class _Graph:
    """Nodes and initializers so far, in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Array | Sequence[int]) -> str:
        array = np.asarray(value, None if isinstance(value, np.ndarray) else np.int64)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node with one result."""
        result = f"{name}_output_0"
        self.nodes.append(helper.make_node(kind, list(inputs), [result], name=name, **attributes))
        return result

    def name_last(self, output: str) -> None:
        """The newest node makes this output of the model."""
        self.nodes[-1].output[0] = output

    def size(self, of: str, axis: int, name: str) -> str:
        """One size of a value, as a list of one number."""
        shape = self.node("Shape", f"{name}/Shape", [of])
        index = self.constant(f"{name}.axis", np.array(axis, np.int64))
        size = self.node("Gather", f"{name}/Gather", [shape, index], axis=0)
        return self.node(
            "Unsqueeze", f"{name}/Unsqueeze", [size, self.constant(f"{name}.axes", [0])]
        )


def to_onnx(weights: Weights) -> onnx.ModelProto:
    """The model: motion[n, 6] -> scores[classes], frames[(n+3)//4, classes]."""
    graph = _Graph()
    features = _features(graph, weights)
    states = _states(graph, weights, features)
    _frames(graph, weights, states)
    _scores(graph, weights, states)
    made = helper.make_graph(
        graph.nodes,
        "gesture",
        [helper.make_tensor_value_info("motion", TensorProto.FLOAT, ["n", 6])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [len(CLASSES)]),
            helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["steps", len(CLASSES)]),
        ],
        graph.constants,
        doc_string="Gestures from an accelerometer (g) and a gyroscope (rad/s) at 50 Hz.",
    )
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="examples/gesture",
    )
    helper.set_model_props(model, {"classes": " ".join(CLASSES)})
    onnx.checker.check_model(model, full_check=True)
    return model


def _features(graph: _Graph, weights: Weights) -> str:
    """The convolutions: motion [n, 6] -> [1, hidden, steps]."""
    rows = graph.node("Transpose", "/Transpose", ["motion"], perm=[1, 0])
    batch = graph.node("Unsqueeze", "/Unsqueeze", [rows, graph.constant("batch.axes", [0])])
    ones = np.ones(6, np.float32)
    norm = [
        graph.constant("norm.weight", ones),
        graph.constant("norm.bias", 0 * ones),
        graph.constant("norm.running_mean", weights["norm.mean"]),
        graph.constant("norm.running_var", weights["norm.variance"]),
    ]
    normal = graph.node(
        "BatchNormalization", "/norm/BatchNormalization", [batch, *norm], epsilon=EPSILON
    )
    stem = _conv(graph, weights, "stem", normal, stride=2)
    stem_on = graph.node("Relu", "/stem/Relu", [stem])
    wide = _conv(graph, weights, "wide", stem_on, dilation=2)
    wide_on = graph.node("Relu", "/wide/Relu", [wide])
    mix = _conv(graph, weights, "mix", wide_on)
    mix_on = graph.node("Relu", "/mix/Relu", [graph.node("Add", "/Add", [mix, stem_on])])
    narrow = _conv(graph, weights, "narrow", mix_on, stride=2)
    return graph.node("Relu", "/grow/Relu", [_conv(graph, weights, "grow", narrow)])


def _conv(
    graph: _Graph, weights: Weights, name: str, x: str, *, stride: int = 1, dilation: int = 1
) -> str:
    weight = weights[f"{name}.weight"]
    channels, per_group, taps = weight.shape
    margin = dilation * (taps - 1) // 2
    constants = [
        graph.constant(f"{name}.weight", weight),
        graph.constant(f"{name}.bias", weights[f"{name}.bias"]),
    ]
    return graph.node(
        "Conv",
        f"/{name}/Conv",
        [x, *constants],
        kernel_shape=[taps],
        strides=[stride],
        dilations=[dilation],
        pads=[margin, margin],
        group=channels if per_group == 1 else 1,
    )


def _states(graph: _Graph, weights: Weights, features: str) -> str:
    """The GRU over the steps: -> [steps, 1, hidden]."""
    steps = graph.node("Transpose", "/gru/Transpose", [features], perm=[2, 0, 1])
    first_shape = graph.node(
        "Concat",
        "/gru/Concat",
        [
            graph.constant("gru.directions", [1]),
            graph.size(steps, 1, "/gru/batch"),
            graph.constant("gru.hidden", [HIDDEN]),
        ],
        axis=0,
    )
    first = graph.node("ConstantOfShape", "/gru/ConstantOfShape", [first_shape])
    bias = np.concatenate([weights["gru.bias"], weights["gru.recurrence_bias"]])
    constants = [
        graph.constant("gru.weight", weights["gru.weight"][None]),
        graph.constant("gru.recurrence", weights["gru.recurrence"][None]),
        graph.constant("gru.bias", bias[None]),
    ]
    states = graph.node(
        "GRU",
        "/gru/GRU",
        [steps, *constants, "", first],
        hidden_size=HIDDEN,
        linear_before_reset=1,
    )
    return graph.node("Squeeze", "/gru/Squeeze", [states, graph.constant("gru.squeezed", [1])])


def _frames(graph: _Graph, weights: Weights, states: str) -> None:
    """A linear layer on each state, flattened to [steps, classes]."""
    weight = graph.constant("frames.weight", np.ascontiguousarray(weights["frames.weight"].T))
    product = graph.node("MatMul", "/frames/MatMul", [states, weight])
    bias = graph.constant("frames.bias", weights["frames.bias"])
    logits = graph.node("Add", "/frames/Add", [bias, product])
    flat_shape = graph.node(
        "Concat",
        "/frames/Concat",
        [graph.size(logits, 0, "/frames/steps"), graph.constant("frames.rest", [-1])],
        axis=0,
    )
    flat = graph.node("Reshape", "/frames/Reshape", [logits, flat_shape])
    graph.node("Softmax", "/frames/Softmax", [flat], axis=-1)
    graph.name_last("frames")


def _scores(graph: _Graph, weights: Weights, states: str) -> None:
    """A linear layer on the mean and the peak of all states."""
    mean = graph.node("ReduceMean", "/scores/ReduceMean", [states], axes=[0], keepdims=0)
    peak = graph.node("ReduceMax", "/scores/ReduceMax", [states], axes=[0], keepdims=0)
    pooled = graph.node("Concat", "/scores/Concat", [mean, peak], axis=1)
    constants = [
        graph.constant("scores.weight", weights["scores.weight"]),
        graph.constant("scores.bias", weights["scores.bias"]),
    ]
    logits = graph.node("Gemm", "/scores/Gemm", [pooled, *constants], transB=1)
    chances = graph.node("Softmax", "/scores/Softmax", [logits], axis=-1)
    graph.node("Squeeze", "/scores/Squeeze", [chances, graph.constant("scores.squeezed", [0])])
    graph.name_last("scores")
