# SPDX-License-Identifier: Apache-2.0
"""Sparse constants -> dense ones: what a file stores as coordinates and values is computed with as
any other tensor."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.prepare import all_nodes, subgraphs
from relax_aot.frontends.onnx.protobuf import array_of

GREATEST_ELEMENTS = 2**26
"""A file of a few bytes could fill the memory."""


def with_dense(model: ModelProto, folder: Path | None) -> ModelProto:
    """The model without sparse constants; itself where it has none."""
    if not any(graph.sparse_initializer for graph in _graphs(model)) and not any(
        node.attribute[0].HasField("sparse_tensor") for node in _constants(model)
    ):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy):
        graph.initializer.extend(_dense(one, folder) for one in graph.sparse_initializer)
        del graph.sparse_initializer[:]
    for node in _constants(copy):
        (attribute,) = node.attribute
        if attribute.HasField("sparse_tensor"):
            value = _dense(attribute.sparse_tensor, folder)
            attribute.Clear()
            attribute.name, attribute.type = "value", attribute.TENSOR
            attribute.t.CopyFrom(value)
    return copy


def _nodes(model: ModelProto) -> list[NodeProto]:
    roots = [model.graph.node, *(function.node for function in model.functions)]
    return [node for nodes in roots for node in all_nodes(nodes)]


def _graphs(model: ModelProto) -> list[GraphProto]:
    return [model.graph, *(graph for node in _nodes(model) for graph in subgraphs(node))]


def _constants(model: ModelProto) -> list[NodeProto]:
    return [n for n in _nodes(model) if n.op_type == "Constant" and len(n.attribute) == 1]


def _dense(sparse: SparseTensorProto, folder: Path | None) -> TensorProto:
    """Coordinates are places in the flat tensor, or one index for each axis."""
    values, places = array_of(sparse.values, folder), array_of(sparse.indices, folder)
    dims, where = tuple(sparse.dims), f"sparse tensor {sparse.values.name!r}"
    if any(n < 0 for n in dims) or prod(dims) > GREATEST_ELEMENTS:
        raise ModelError(
            f"{where} has sizes {list(dims)}; at most {GREATEST_ELEMENTS} elements are supported"
        )
    if places.dtype != np.int64 or values.ndim != 1:
        raise ModelError(f"{where} has indices {places.dtype} and values {list(values.shape)}")
    if places.shape == (len(values),):
        places, limits = places[:, None], (prod(dims),)
    else:
        limits = dims
    if places.shape != (len(values), len(limits)):
        raise ModelError(f"{where}: {len(values)} values have indices {list(places.shape)}")
    if ((places < 0) | (places >= np.array(limits, np.int64))).any():
        raise ModelError(f"{where}: an index is outside of {list(dims)}")
    dense = np.zeros(limits, values.dtype)
    dense[tuple(places.T)] = values
    return numpy_helper.from_array(dense.reshape(dims), sparse.values.name)
