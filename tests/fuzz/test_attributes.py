# SPDX-License-Identifier: Apache-2.0
"""An attribute of another kind than the operator has is refused, with its name."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from relax_aot import driver
from relax_aot.errors import RelaxAotError


def compiled(op: str, opset: int, **attributes: Any) -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 4]) for n in ("x", "y")]
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    driver.compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


@pytest.mark.parametrize(
    "value", ["x", [0.5], helper.make_tensor("t", TensorProto.FLOAT, [1], [1])]
)
def test_text_or_a_list_is_no_number(value: Any) -> None:
    with pytest.raises(RelaxAotError, match="attribute 'alpha' must be a number"):
        compiled("HardSigmoid", 17, alpha=value)
    with pytest.raises(RelaxAotError, match="attribute 'axis' must be a whole number"):
        compiled("Softmax", 17, axis=value)


def recurrent(**changed: Any) -> None:
    """A GRU of 2 units over 3 numbers, with tensors or attributes of other shapes or kinds."""
    shapes = {"w": (1, 6, 3), "r": (1, 6, 2), "b": (1, 12), "h": (1, 4, 2)}
    shapes |= {name: changed.pop(name) for name in tuple(shapes) if name in changed}
    inputs = ["x", "w", "r", "b", "", "h"]
    node = helper.make_node("GRU", inputs, ["y"], **{"hidden_size": 2} | changed)
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": (5, 4, 3), **shapes}.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", ports, [result])
    driver.compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize(
    "changed",
    [
        {"w": (2, 6, 3)}, {"r": (1, 6, 3)}, {"r": (1, 6)}, {"b": (1, 6)}, {"h": (1, 4, 3)},
        {"h": (1, 3, 2)}, {"direction": "backwards"}, {"activations": ["Tanh"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_recurrent_layer_is_made_of_what_fits_together(changed: dict[str, Any]) -> None:
    recurrent()
    with pytest.raises(RelaxAotError):
        recurrent(**changed)


@pytest.mark.parametrize("shape", [(1, 2, 4, 5), (3,), (2, 5), (4, 4, 5)])
def test_a_scale_does_not_reach_beyond_the_input(shape: tuple[int, ...]) -> None:
    names = {"x": (2, 4, 5), "s": shape}
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in names.items()]
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=2)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", ports, [result])
    with pytest.raises(RelaxAotError):
        driver.compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_whole_numbers_may_be_written_as_floats_and_the_other_way() -> None:
    compiled("HardSigmoid", 17, alpha=1)
    compiled("Softmax", 17, axis=2.0)
    with pytest.raises(RelaxAotError, match="whole number"):
        compiled("Softmax", 17, axis=1.5)
