# SPDX-License-Identifier: Apache-2.0
"""Constants that a file stores as sparse tensors: ONNX Runtime's values, or one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

import relax_aot as rx

FLAT = np.array([1, 6, 11])
COORDINATES = np.array([[0, 1], [1, 2], [2, 3]])
VALUES = np.array([2.0, -3.0, 0.5], np.float32)


def sparse(indices: Any, values: Any = VALUES, dims: tuple[int, ...] = (3, 4)) -> SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(values, "w"), numpy_helper.from_array(indices, "w_places"), dims
    )


def model_of(tensor: SparseTensorProto, *, as_node: bool = False) -> ModelProto:
    """y = x @ w, where w is an initializer or the result of a Constant."""
    constant = helper.make_node("Constant", [], ["w"], sparse_value=tensor)
    nodes = [constant] * as_node + [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", None])
    graph = helper.make_graph(nodes, "g", [x], [y])
    if not as_node:
        graph.sparse_initializer.append(tensor)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("as_node", [False, True], ids=["initializer", "Constant"])
@pytest.mark.parametrize("indices", [FLAT, COORDINATES], ids=["flat", "coordinates"])
def test_sparse_constants_are_dense_ones(indices: Any, as_node: bool) -> None:
    model = model_of(sparse(indices), as_node=as_node)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    host = rx.compile(model, bounds={"n": 5}, name="m").host()
    for n in (1, 5):
        x = np.linspace(-1, 1, n * 3, dtype=np.float32).reshape(n, 3)
        np.testing.assert_allclose(host(x=x)["y"], session.run(None, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (sparse(np.array([1, 6, 12])), r"an index is outside of \[3, 4\]"),
        (sparse(np.array([1, 6, -1])), r"an index is outside of \[3, 4\]"),
        (sparse(np.array([[0, 1], [1, 2], [3, 0]])), r"an index is outside of \[3, 4\]"),
        (sparse(np.array([1, 6])), r"3 values have indices \[2\]"),
        (sparse(FLAT.astype(np.float32)), "has indices float32"),
        (sparse(FLAT, dims=(2**20, 2**20)), "at most 67108864 elements are supported"),
        (sparse(FLAT, dims=(-3, 4)), r"has sizes \[-3, 4\]"),
    ],
)
def test_sparse_constants_that_contradict_themselves_are_refused(
    tensor: SparseTensorProto, said: str
) -> None:
    with pytest.raises(rx.RelaxAotError, match=f"sparse tensor 'w'.*{said}"):
        rx.load(model_of(tensor), bounds={"n": 5})
