# SPDX-License-Identifier: Apache-2.0
"""Float attributes are of float32, in double models too, whether a model states them or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx.defs
from onnx import AttributeProto, ModelProto, TensorProto

from relax_aot.ir.text import to_text
from tests.frontends.half_precision import Retyped, module_in, retyped
from tests.ops.against_runtime import feeds_of, module_of, node_model, ours, session_of
from tests.ops.onnx_node import Node


def opset_of(model: ModelProto) -> int:
    return max(int(o.version) for o in model.opset_import if not o.domain)


def stated(found: Retyped) -> tuple[ModelProto, list[str]]:
    """The model with the defaults of its node's float attributes written out."""
    model = ModelProto()
    model.CopyFrom(found.model)
    (node,) = model.graph.node
    schema: Any = onnx.defs.get_schema(node.op_type, opset_of(model))
    given = {attribute.name for attribute in node.attribute}
    added = []
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        if name not in given and default.type == AttributeProto.FLOAT:
            node.attribute.append(default)
            added.append(name)
    return model, added


def test_a_default_is_what_a_model_states() -> None:
    compared: set[tuple[str, str]] = set()
    for found in retyped(TensorProto.FLOAT16):
        node = found.model.graph.node[0]
        if node.domain or found.operator == "SimplifiedLayerNormalization":
            continue
        if node.op_type == "LayerNormalization" and opset_of(found.model) < 17:
            continue  # of ONNX Runtime, without a schema
        model, added = stated(found)
        if all((found.operator, name) in compared for name in added):
            continue
        left = module_in(found, TensorProto.DOUBLE)
        right = module_in(replace(found, model=model), TensorProto.DOUBLE)
        if left is None or right is None:
            continue
        assert to_text(left) == to_text(right), (found.name, added)
        compared |= {(found.operator, name) for name in added}
    wanted = {("BatchNormalization", "epsilon"), ("LeakyRelu", "alpha"), ("LRN", "alpha")}
    assert compared >= wanted, sorted(compared)


def test_double_batch_normalization_equals_onnx_runtime() -> None:
    rng = np.random.default_rng(5)
    x, ones = rng.normal(size=(2, 3, 4)) * 1e-2, np.ones(3)
    node = Node("BatchNormalization", (x, ones, 0 * ones, 0 * ones, rng.uniform(0, 1e-4, 3)), {})
    model = node_model(replace(node, opset=15))
    (expected,) = session_of(model).run(None, feeds_of(node))
    (found,) = ours(module_of(model, {}), feeds_of(node))
    np.testing.assert_allclose(found, expected, 1e-14)
