# SPDX-License-Identifier: Apache-2.0
"""MaxUnpool with an output_shape against ONNX Runtime, constant and from data."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot.errors import RelaxAotError
from tests.ops.against_runtime import feeds_of, module_of, node_model, ours, session_of
from tests.ops.onnx_node import Node, i64

ATTRS = {"kernel_shape": [2, 2], "strides": [2, 2]}
INFERRED = (1, 2, 4, 6)


def node_of(sizes: tuple[int, ...], opset: int = 11) -> Node:
    """Indices anywhere in the result, also beyond what the inferred shape has."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(1, 2, 2, 3)).astype(np.float32)
    places = rng.permutation(np.prod(sizes))[: x.size].reshape(x.shape).astype(np.int64)
    return Node("MaxUnpool", (x, places, i64(*sizes)), ATTRS, opset=opset)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("sizes", [INFERRED, (1, 2, 5, 7), (1, 2, 4, 9), (1, 2, 3, 8)])
def test_indices_count_the_elements_of_the_result(sizes: tuple[int, ...], constant: bool) -> None:
    node, constants = node_of(sizes), (2,) if constant else ()
    model = node_model(node, {0: (1, 2, "h", "w"), 1: (1, 2, "h", "w")}, constants)
    feeds = feeds_of(node, constants)
    (expected,) = session_of(model).run(None, feeds)
    bounds = {"h": (1, 2), "w": (1, 3), **{f"y0_{axis}": (1, 9) for axis in range(4)}}
    (found,) = ours(module_of(model, bounds), feeds)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sizes", [(1, 2, 4, 5), (1, 3, 4, 6), (2, 2, 4, 6)])
def test_a_shape_that_onnx_runtime_refuses_is_refused(sizes: tuple[int, ...]) -> None:
    model = node_model(node_of(sizes), None, (2,))
    with pytest.raises(RelaxAotError, match="output_shape"):
        module_of(model, {})
