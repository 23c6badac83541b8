# SPDX-License-Identifier: Apache-2.0
"""Convolutions of half precision on the emulated GPU, whose images have their channels last between
them: at every size with the results of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx

pytestmark = pytest.mark.long
LEAST, MOST = 3, 12
"""Lines and columns of the image."""


def convolutions(kind: int) -> onnx.ModelProto:
    """Windows with strides and dilations, a residual, a pool and points, of symbolic sizes. The
    weights are half-precision values in both types."""
    rng = np.random.default_rng(0)
    made = []

    def weights(name: str, *shape: int) -> str:
        deviation = np.prod(shape[1:]) ** -0.5
        half = (rng.normal(size=shape) * deviation).astype(np.float16)
        values = half.astype(helper.tensor_dtype_to_np_dtype(kind))
        made.append(numpy_helper.from_array(values, name))
        return name

    def conv(x: str, y: str, *shape: int, pads: int = 1, **more: Any) -> onnx.NodeProto:
        factors = [weights(f"w_{y}", *shape), weights(f"b_{y}", shape[0])]
        return helper.make_node("Conv", [x, *factors], [y], pads=[pads] * 4, **more)

    nodes = [
        conv("x", "a", 24, 5, 3, 3),
        helper.make_node("Relu", ["a"], ["b"]),
        conv("b", "c", 32, 24, 3, 3, strides=[2, 2]),
        conv("c", "d", 32, 32, 3, 3, pads=2, dilations=[2, 2]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["p"], kernel_shape=[2, 2]),
        conv("p", "q", 64, 32, 1, 1, pads=0),
        conv("q", "y", 7, 64, 3, 3),
    ]
    x = helper.make_tensor_value_info("x", kind, ["n", 5, "h", "w"])
    y = helper.make_tensor_value_info("y", kind, ["n", 7, "i", "j"])
    graph = helper.make_graph(nodes, "convolutions", [x], [y], made)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def layer(
    kind: int, filters: int, size: tuple[int, ...], pads: list[int], **more: Any
) -> onnx.ModelProto:
    """A convolution whose filters are few, of an image that has its channels last, and one whose
    result is in planes. On one axis for windows of one axis."""
    rng = np.random.default_rng(0)
    dtype, ones = helper.tensor_dtype_to_np_dtype(kind), [1] * len(size)
    shapes = {
        "u": (32, 8, *ones),
        "v": (filters, 32, *size),
        "b": (filters,),
        "w": (9, filters, *ones),
    }
    weights = [
        numpy_helper.from_array(
            (rng.normal(size=s) * np.prod(s[1:]) ** -0.5).astype(np.float16).astype(dtype), name
        )
        for name, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "v", "b"], ["y"], pads=pads, **more),
        helper.make_node("Relu", ["y"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["z"]),
    ]
    axes = ["h", "w"][-len(size) :]
    x = helper.make_tensor_value_info("x", kind, ["n", 8, *axes])
    results = [
        helper.make_tensor_value_info("y", kind, ["n", filters, *(f"y{a}" for a in axes)]),
        helper.make_tensor_value_info("z", kind, ["n", 9, *(f"y{a}" for a in axes)]),
    ]
    graph = helper.make_graph(nodes, "layer", [x], results, weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def near(found: NDArray[Any], wanted: NDArray[Any]) -> None:
    """Six layers are rounded to 11 bits."""
    assert found.shape == wanted.shape
    assert np.abs(found.astype(np.float64) - wanted).max() <= 2.0**-8 * np.abs(wanted).max()


def test_convolutions_have_the_results_of_floats() -> None:
    bounds = {"n": (1, 2), "h": (LEAST, MOST), "w": (LEAST, MOST)}
    project = rx.compile(
        convolutions(TensorProto.FLOAT16), name="conv", board="jetson-orin-nano",
        emit="cuda-source", bounds=bounds,
    )  # fmt: skip
    host = project.host()
    reference = ort.InferenceSession(convolutions(TensorProto.FLOAT).SerializeToString())
    rng = np.random.default_rng(1)
    for n, h, w in ((1, LEAST, LEAST), (1, 7, 10), (2, MOST, MOST)):
        x = rng.normal(size=(n, 5, h, w)).astype(np.float16)
        (wanted,) = reference.run(None, {"x": x.astype(np.float32)})
        near(host(x=x)["y"], wanted)


@pytest.mark.parametrize(
    ("filters", "size", "pads", "more"),
    [
        (24, (3, 3), [1, 1, 1, 1], {}),
        (64, (3, 3), [1, 1, 1, 1], {}),
        (40, (5, 5), [2, 2, 2, 2], {}),
        (20, (3, 3), [0, 0, 0, 0], {}),
        (24, (3, 3), [2, 2, 2, 2], {"dilations": [2, 2]}),
        (24, (2, 4), [1, 0, 0, 3], {}),
        (24, (3, 3), [1, 1, 1, 1], {"strides": [2, 1]}),
        (24, (1, 3), [0, 1, 0, 1], {}),
        (24, (5,), [2, 2], {}),
    ],
)
def test_windows_that_share_pixels_have_the_results_of_floats(
    filters: int, size: tuple[int, ...], pads: list[int], more: dict[str, list[int]]
) -> None:
    bounds = {"n": (1, 3), "h": (3, 12), "w": (5, 40)}
    model = layer(TensorProto.FLOAT16, filters, size, pads, **more)
    bounds = bounds if len(size) == 2 else {name: bounds[name] for name in "nw"}
    project = rx.compile(
        model, name="layer", board="jetson-orin-nano", emit="cuda-source", bounds=bounds
    )
    host = project.host()
    floats = layer(TensorProto.FLOAT, filters, size, pads, **more)
    reference = ort.InferenceSession(floats.SerializeToString())
    rng = np.random.default_rng(1)
    for n, h, w in ((1, 3, 5), (1, 7, 10), (3, 5, 7), (2, 12, 40)):
        x = rng.normal(size=(n, 8, *(h, w)[-len(size) :])).astype(np.float16)
        wanted = reference.run(None, {"x": x.astype(np.float32)})
        for name, values in zip("yz", wanted, strict=True):
            near(host(x=x)[name], values)


def first_layer(
    kind: int, form: tuple[int, int, int], pads: list[int], operator: str = "Conv", **more: Any
) -> onnx.ModelProto:
    """A convolution of the image of a model, which is in planes. `form`: its channels, filters and
    the size of its windows."""
    channels, filters, size = form
    rng = np.random.default_rng(0)
    both = (filters, channels) if operator == "Conv" else (channels, filters)
    weights = rng.normal(size=(*both, size, size)) * (channels * size * size) ** -0.5
    values = weights.astype(np.float16).astype(helper.tensor_dtype_to_np_dtype(kind))
    nodes = [helper.make_node(operator, ["x", "w"], ["y"], pads=pads, **more)]
    x = helper.make_tensor_value_info("x", kind, ["n", channels, "h", "w"])
    y = helper.make_tensor_value_info("y", kind, ["n", filters, "i", "j"])
    graph = helper.make_graph(nodes, "first", [x], [y], [numpy_helper.from_array(values, "w")])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


@pytest.mark.parametrize(
    ("form", "pads", "more"),
    [
        ((32, 24, 3), [1, 1, 1, 1], {}),
        ((16, 40, 3), [2, 0, 1, 1], {"dilations": [1, 2]}),
        ((48, 136, 3), [1, 1, 1, 1], {"strides": [2, 1]}),
        ((3, 24, 7), [3, 3, 3, 3], {"strides": [2, 2]}),
        ((5, 72, 3), [0, 0, 0, 0], {}),
        ((24, 40, 3), [1, 1, 1, 1], {"strides": [1, 2]}),
        ((160, 32, 7), [6, 6, 6, 6], {"dilations": [2, 2], "strides": [2, 2]}),
        ((256, 48, 3), [2, 2, 2, 2], {"dilations": [2, 2]}),
        ((12, 24, 4), [1, 1, 1, 1], {"operator": "ConvTranspose", "strides": [2, 2]}),
        ((40, 20, 5), [2, 1, 0, 2], {"operator": "ConvTranspose", "strides": [1, 3]}),
    ],
)
def test_windows_of_planes_have_the_results_of_floats(
    form: tuple[int, int, int], pads: list[int], more: dict[str, Any]
) -> None:
    bounds = {"n": (1, 3), "h": (7, 20), "w": (7, 40)}
    model = first_layer(TensorProto.FLOAT16, form, pads, **more)
    project = rx.compile(
        model, name="first", board="jetson-orin-nano", emit="cuda-source", bounds=bounds
    )
    host = project.host()
    floats = first_layer(TensorProto.FLOAT, form, pads, **more)
    reference = ort.InferenceSession(floats.SerializeToString())
    rng = np.random.default_rng(1)
    for n, h, w in ((1, 7, 7), (1, 9, 13), (2, 11, 8), (3, 20, 40)):
        x = rng.normal(size=(n, form[0], h, w)).astype(np.float16)
        (wanted,) = reference.run(None, {"x": x.astype(np.float32)})
        near(host(x=x)["y"], wanted)
