# SPDX-License-Identifier: Apache-2.0
"""Every handler of an ONNX operator reads a case of ONNX's own tests, or a model of ours.

Those of com.microsoft and TensorFlow Lite have tests of their own (ops/test_contrib.py,
test_tflite_operators.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onnx import GraphProto, parser

import relax_aot as rx
from relax_aot.frontends.onnx.table import handlers
from tests.conformance.cases import Case, cases_of

OURS = {
    "GlobalLpPool": "y = GlobalLpPool (x)",
    "MaxRoiPool": """rois = Constant <value = float[1, 5] {0, 0, 0, 2, 2}> ()
        y = MaxRoiPool <pooled_shape = [1, 1]> (x, rois)""",
    "OptionalGetElement": "y = OptionalGetElement (x)",
    "OptionalHasElement": "y = OptionalHasElement (x)",
    "SequenceAt": """s = SequenceConstruct (x, x) at = Constant <value = int64 {1}> ()
        y = SequenceAt (s, at)""",
    "SequenceErase": """s = SequenceConstruct (x, x) t = SequenceErase (s)
        at = Constant <value = int64 {0}> () y = SequenceAt (t, at)""",
    "SequenceInsert": """e = SequenceEmpty () s = SequenceInsert (e, x)
        y = ConcatFromSequence <axis = 0> (s)""",
    "SequenceLength": "s = SequenceConstruct (x, x) y = SequenceLength (s)",
    "SimplifiedLayerNormalization": """scale = Constant <value = float[3] {1, 1, 1}> ()
        y = SimplifiedLayerNormalization <axis = -1> (x, scale)""",
    "SplitToSequence": """s = SplitToSequence <axis = 2> (x)
        y = ConcatFromSequence <axis = 2> (s)""",
}
OURS |= {
    "ConcatFromSequence": OURS["SequenceInsert"],
    "SequenceConstruct": OURS["SequenceAt"],
    "SequenceEmpty": OURS["SequenceInsert"],
}
"""Nodes that make y of `x: float[1, 2, 3, 3]`, for operators without a case of tensors."""


def operators(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            yield from operators(attribute.g)


@pytest.fixture(scope="module")
def smallest() -> dict[str, list[Case]]:
    """The cases of each operator, the smallest first."""
    found: dict[str, list[Case]] = {}
    for case in sorted(cases_of("core", "extended"), key=lambda case: case.model.ByteSize()):
        for name in set(operators(case.model.graph)):
            found.setdefault(name, []).append(case)
    return found


@pytest.mark.parametrize("name", [name for name in handlers() if "." not in name])
def test_the_handler_reads_a_model(name: str, smallest: dict[str, list[Case]]) -> None:
    if name in OURS:
        model = parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : 18]> '
            f"g (float[1, 2, 3, 3] x) => (y) {{ {OURS[name]} }}"
        )
        assert name in set(operators(model.graph))
        rx.load(model)
        return
    refused = []
    for case in smallest.get(name, []):
        try:
            rx.load(case.model)
        except rx.RelaxAotError as error:
            refused.append(f"{case.name}: {error}")
        else:
            return
    pytest.fail(f"no case has {name}, or all are refused: {refused[:3]}")
