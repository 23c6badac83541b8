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
