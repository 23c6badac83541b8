# SPDX-License-Identifier: Apache-2.0
"""Small quantized networks of one graph, "trained" several times: other weights, scales and zero
points each time. ONNX Runtime's own quantization tools make them of random float networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a network is quantized: options of `quantize_static`."""

    operators: bool = False
    per_channel: bool = False
    activations: str = "QInt8"
    weights: str = "QInt8"
    symmetric: bool = False


MANNERS: Mapping[str, Manner] = {
    "qdq": Manner(),
    "qdq channels": Manner(per_channel=True),
    "qdq symmetric": Manner(per_channel=True, symmetric=True),
    "qdq unsigned": Manner(activations="QUInt8", weights="QInt8"),
    "qdq unsigned weights": Manner(activations="QUInt8", weights="QUInt8"),
    "qoperator": Manner(operators=True),
    "qoperator channels": Manner(operators=True, per_channel=True, activations="QUInt8"),
}


def network(seed: int) -> onnx.ModelProto:
    """Convolutions with and without frames, depthwise, joined by add and concat, pools, a table
    (sigmoid), a product and a softmax."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(0.6, 1.5)
    tensors: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def given(name: str, *shape: int) -> str:
        data = rng.normal(0.0, size / np.sqrt(np.prod(shape[1:]) or 1.0), shape)
        tensors.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def node(op: str, *inputs: str, out: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [out], name=out, **attrs))
        return out

    def conv(x: str, name: str, *shape: int, **attrs: Any) -> str:
        parts = given(f"{name}_w", *shape), given(f"{name}_b", shape[0])
        return node("Conv", x, *parts, out=name, **attrs)

    first = node("Relu", conv("x", "c1", 8, 3, 3, 3, pads=[1, 1, 1, 1]), out="r1")
    depth = conv(first, "d1", 8, 1, 3, 3, pads=[1, 1, 1, 1], group=8)
    limits = [numpy_helper.from_array(np.asarray(end, np.float32), f"end{end}") for end in (0, 6)]
    tensors.extend(limits)
    depth = node("Clip", depth, *(t.name for t in limits), out="r2")
    point = conv(depth, "p1", 8, 8, 1, 1)
    total = node("Add", first, point, out="sum")
    small = node("MaxPool", total, out="max", kernel_shape=[2, 2], strides=[2, 2])
    table = node("Sigmoid", conv(small, "c2", 8, 8, 3, 3), out="gate")
    plain = conv(small, "c3", 4, 8, 3, 3)
    joined = node("Concat", table, plain, out="joined", axis=1)
    mean = node("GlobalAveragePool", joined, out="mean")
    flat = node("Flatten", mean, out="flat")
    dense = node("Gemm", flat, given("g_w", 12, 5), given("g_b", 5), out="dense")
    node("Softmax", dense, out="y", axis=1)
    graph = helper.make_graph(
        nodes,
        "trained",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(seed: int, count: int = 6) -> list[Array]:
    """Inputs of a training: their range and middle are its own."""
    rng = np.random.default_rng(1000 + seed)
    scale, middle = rng.uniform(0.5, 3.0), rng.uniform(-1.0, 1.0)
    shape = (count, 1, 3, 8, 8)
    return list((rng.normal(0, scale, shape) + middle).astype(np.float32))


@cache
def trained(manner: str, seed: int) -> onnx.ModelProto:
    from onnxruntime import quantization

    how = MANNERS[manner]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # untyped package
        def __init__(self) -> None:
            self.left = iter([{"x": x} for x in samples(seed)])

        def get_next(self) -> dict[str, Array] | None:
            return next(self.left, None)

    form = quantization.QuantFormat
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "coded.onnx"
        onnx.save(network(seed), source)
        quantization.quantize_static(
            source,
            target,
            Reader(),
            quant_format=form.QOperator if how.operators else form.QDQ,
            per_channel=how.per_channel,
            activation_type=getattr(quantization.QuantType, how.activations),
            weight_type=getattr(quantization.QuantType, how.weights),
            extra_options={"ActivationSymmetric": how.symmetric},
        )
        return onnx.load(target)
