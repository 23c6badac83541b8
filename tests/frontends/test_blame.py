# SPDX-License-Identifier: Apache-2.0
"""An exception in a handler: the model is blamed only for a rule of its operator."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot.errors import InternalError
from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx import importer
from relax_aot.frontends.onnx.context import Node, Results


def model(op: str, domain: str = "", **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], name="it", domain=domain, **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)


@pytest.fixture
def broken_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_node: Node) -> Results:
        raise KeyError("gone")

    names = ("Relu", "Transpose", "com.microsoft.QuickGelu")
    monkeypatch.setattr(importer, "handlers", lambda: dict.fromkeys(names, broken))


@pytest.mark.usefixtures("broken_handlers")
def test_an_error_in_a_handler_is_not_blamed_on_the_model() -> None:
    with pytest.raises(InternalError, match=r"internal error .*KeyError.* test_blame.py") as caught:
        rx.load(model("Relu"))
    assert caught.value.__notes__ == ["in node it (Relu) of the model"]


@pytest.mark.usefixtures("broken_handlers")
def test_a_rule_that_the_node_breaks_is_named() -> None:
    with pytest.raises(ModelError, match=r"breaks the rules of its operator: .*perm.*STRING"):
        rx.load(model("Transpose", perm="ab"))


@pytest.mark.usefixtures("broken_handlers")
def test_without_a_schema_both_are_possible() -> None:
    with pytest.raises(ModelError, match=r"or relax_aot has an error \(KeyError"):
        rx.load(model("QuickGelu", "com.microsoft"))
