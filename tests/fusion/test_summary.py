# SPDX-License-Identifier: Apache-2.0
"""What became of each call is told as it is: of the calls before, none is lost or moved to a call
that cannot compute it."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from relax_aot import driver, lowering, transforms
from relax_aot.driver import Options
from relax_aot.fusion import fuse
from relax_aot.ir.graph import Module
from tests.models.encoder import encoder


def lowered(model: onnx.ModelProto, **bounds: int) -> Module:
    options = Options(bounds={name: (1, high) for name, high in bounds.items()})
    return lowering.lower(transforms.run(driver.load(model, options)))


def chain() -> onnx.ModelProto:
    """Relu and Neg of it can join; y2 reads the Relu too, so that it stays in memory."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    outs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 1]),
    ]
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["y"]),
        helper.make_node("Sigmoid", ["y"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["z"], axes=[1], keepdims=1),
    ]
    graph = helper.make_graph(nodes, "chain", [x], outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


def test_members_of_a_chain() -> None:
    summary = fuse(lowered(chain(), n=9)).summary
    home = {
        member.writes[0].name: (member.into, member.writes[0].kept) for member in summary.members
    }
    assert home["a"] == (("y",), False)
    assert home["y"] == (("y",), True)
    assert home["z"] == (("y",), True)
    assert [m.writes[0].greatest_bytes for m in summary.members if m.writes[0].name == "y"] == [288]


@pytest.mark.parametrize("layers", [1, 2])
def test_members_account_for_every_call(layers: int) -> None:
    module = lowered(encoder(width=16, heads=2, layers=layers, hidden=24), n=40, batch=2)
    fused = fuse(module)
    members = fused.summary.members
    assert len(members) == fused.summary.before.calls
    after = {
        call.outs[0].name: call
        for function in fused.module.functions
        for call in function.body
        if call.op == "call_kernel"
    }
    assert {name for member in members for name in member.into} == set(after)
    alone = [m.into for n, m in enumerate(members) if n == 0 or members[n - 1].into != m.into]
    assert len(alone) == len(set(alone)), "calls that became one stand together"
    for member in members:
        for name in member.into:
            assert set(member.origin.split(" + ")) <= set(after[name].origin.split(" + "))


def test_a_long_chain_is_several_expressions() -> None:
    """Functions on expressions call themselves for each operand in an operand."""
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("v240", TensorProto.FLOAT, ["n", 8])
    kinds = ("Relu", "Sigmoid", "Neg")
    nodes = [helper.make_node(kinds[i % len(kinds)], [f"v{i}"], [f"v{i + 1}"]) for i in range(240)]
    graph = helper.make_graph(nodes, "chain", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    fused = fuse(lowered(model, n=9)).module
    assert 1 < len(fused.kernels) < 40
