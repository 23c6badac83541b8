# SPDX-License-Identifier: Apache-2.0
"""Small QDQ models of one operator each, and what ONNX Runtime makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


@dataclass
class Qdq:
    """A model under construction; values are named by what makes them."""

    rng: np.random.Generator
    kind: type = np.int8
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def tensor(self, array: Any) -> str:
        name = self.fresh()
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        out = self.fresh()
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def parameters(self, scale: float | None, zero: int | None, kind: type) -> tuple[str, str]:
        info = np.iinfo(kind)
        step = self.rng.uniform(0.01, 0.2) if scale is None else scale
        point = int(self.rng.integers(info.min, info.max + 1)) if zero is None else zero
        return self.tensor(np.float32(step)), self.tensor(np.array(point, kind))

    def input(
        self, shape: list[int | str], scale: float | None = None, zero: int | None = None
    ) -> str:
        name = f"x{len(self.inputs)}"
        proto = TensorProto.INT8 if self.kind is np.int8 else TensorProto.UINT8
        self.inputs.append(helper.make_tensor_value_info(name, proto, shape))
        return self.node("DequantizeLinear", name, *self.parameters(scale, zero, self.kind))

    def requantized(self, x: str, scale: float | None = None, zero: int | None = None) -> str:
        """Quantized values and their real values."""
        parts = self.parameters(scale, zero, self.kind)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parts), *parts)

    def weights(
        self, *shape: int, axis: int | None = None, scale: float = 0.02
    ) -> tuple[str, Array]:
        """Symmetric weights of i8, with one scale or one per element of an axis; the scales."""
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        size = 1 if axis is None else shape[axis]
        scales = (scale * self.rng.uniform(0.3, 1, size)).astype(np.float32)
        given = scales.reshape(()) if axis is None else scales
        point = np.zeros(given.shape, np.int8)
        attrs = {} if axis is None else {"axis": axis}
        args = (self.tensor(codes), self.tensor(given), self.tensor(point))
        return self.node("DequantizeLinear", *args, **attrs), scales

    def bias(self, channels: int, scales: Array) -> str:
        """Quantized i32 values with the scale of the sums."""
        codes = self.rng.integers(-2000, 2000, channels).astype(np.int32)
        steps = np.asarray(scales, np.float32)
        one = steps.size == 1
        given = steps.reshape(()) if one else steps
        attrs = {} if one else {"axis": 0}
        zero = self.tensor(np.zeros(given.shape, np.int32))
        return self.node("DequantizeLinear", self.tensor(codes), self.tensor(given), zero, **attrs)

    def model(self, y: str, scale: float, zero: int | None = None) -> onnx.ModelProto:
        kind = TensorProto.INT8 if self.kind is np.int8 else TensorProto.UINT8
        parts = self.parameters(scale, zero, self.kind)
        self.nodes.append(helper.make_node("QuantizeLinear", [y, *parts], ["y"]))
        out = helper.make_tensor_value_info("y", kind, None)
        graph = helper.make_graph(self.nodes, "qdq", self.inputs, [out], self.tensors)
        opset = helper.make_opsetid("", 17)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def unoptimized(model: onnx.ModelProto, inputs: dict[str, Array]) -> Array:
    """The model's result in ONNX Runtime, each operator as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (result,) = session.run(None, inputs)
    return np.asarray(result)
