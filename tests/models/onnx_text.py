# SPDX-License-Identifier: Apache-2.0
"""ONNX models from ONNX's own text form, with weights from arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper, parser

Array = npt.NDArray[Any]
Weights = dict[str, Array]

OPSET = 17
IR_VERSION = 8
"""Old enough for every ONNX Runtime that knows the opset."""


def model_of(signature: str, body: str, weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The checked model `signature { body }`; names that `weights` has are its initializers.

    Every node is named after its first result and its operator, as exporters do.
    """
    header = f'<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}]>'
    model = parser.parse_model(f"{header}\n{signature}\n{{{body}\n}}")
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    _name_nodes(model.graph.node)
    onnx.checker.check_model(model, full_check=True)
    return model


def _name_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        node.name = f"/{node.output[0]}/{node.op_type}"
        for attribute in node.attribute:
            _name_nodes(attribute.g.node)


def sizes(of: str, *axes: int) -> str:
    """Lines that define `<of>_size<axis>` as a list of one number, as exporters ask for a size."""
    return "\n".join(
        f"""
        {of}_shape{axis} = Shape({of})
        {of}_axis{axis} = Constant <value = int64 {{{axis}}}> ()
        {of}_scalar{axis} = Gather <axis = 0> ({of}_shape{axis}, {of}_axis{axis})
        {of}_first{axis} = Constant <value = int64[1] {{0}}> ()
        {of}_size{axis} = Unsqueeze({of}_scalar{axis}, {of}_first{axis})"""
        for axis in axes
    )


def random_weights(rng: np.random.Generator, **shapes: tuple[int, ...]) -> Weights:
    """Float weights that keep values of order 1: the last axis but one is summed over.

    Vectors are small: they are biases.
    """
    return {
        name: (rng.normal(size=shape) / np.sqrt(shape[-2] if len(shape) > 1 else 100.0)).astype(
            np.float32
        )
        for name, shape in shapes.items()
    }
