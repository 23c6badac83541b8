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


def test_whole_numbers_may_be_written_as_floats_and_the_other_way() -> None:
    compiled("HardSigmoid", 17, alpha=1)
    compiled("Softmax", 17, axis=2.0)
    with pytest.raises(RelaxAotError, match="whole number"):
        compiled("Softmax", 17, axis=1.5)
