# SPDX-License-Identifier: Apache-2.0
"""One ONNX node in ONNX Runtime and as our ops' NumPy references give it, at symbolic sizes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TypeProto, helper, numpy_helper

from relax_aot.evaluation.reference import evaluate, sizes_shown
from relax_aot.frontends import ImportOptions
from relax_aot.frontends.onnx import load
from relax_aot.ir.graph import Module
from relax_aot.ops._op import Array
from tests.ops.onnx_node import Node

IR_VERSION = 10
Shape = Sequence[int | str | None]


def node_model(
    node: Node, shapes: Mapping[int, Shape] | None = None, constants: Sequence[int] = ()
) -> ModelProto:
    """The node as a model; `shapes` declares inputs, those in `constants` are initializers."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(node.inputs)]
    inputs, initializers = [], []
    for i, array in enumerate(node.inputs):
        if array is None:
            continue
        if i in constants:
            initializers.append(numpy_helper.from_array(np.asarray(array), names[i]))
            continue
        shape = (shapes or {}).get(i, np.asarray(array).shape)
        dtype = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        inputs.append(helper.make_tensor_value_info(names[i], dtype, shape))
    outputs = [helper.make_value_info(f"y{i}", TypeProto()) for i in range(node.outputs)]
    made = helper.make_node(node.op_type, names, [o.name for o in outputs], **node.attrs)
    graph = helper.make_graph([made], "one_node", inputs, outputs, initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=IR_VERSION
    )


def feeds_of(node: Node, constants: Sequence[int] = ()) -> dict[str, Array]:
    return {
        f"x{i}": np.asarray(array)
        for i, array in enumerate(node.inputs)
        if array is not None and i not in constants
    }


def session_of(model: ModelProto) -> Any:
    """An unoptimized session of ONNX Runtime; raises where the runtime has no such kernel."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def module_of(model: ModelProto, bounds: Mapping[str, tuple[int, int]]) -> Module:
    return load(model, ImportOptions(bounds=dict(bounds), used=set()))


def ours(module: Module, feeds: Mapping[str, Array]) -> list[Array]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(evaluate(module, feeds, sizes_shown(module, feeds)).values())
