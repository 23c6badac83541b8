# SPDX-License-Identifier: Apache-2.0
"""Attributes that state their default change nothing. Optimizers of models write all of them."""

from __future__ import annotations

from functools import cache

import pytest
from onnx import ModelProto, defs
from onnx.helper import make_attribute

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.ir.text import to_text
from tests.conformance.cases import Case, all_cases, cases_of


def with_defaults(model: ModelProto) -> ModelProto:
    stated = ModelProto()
    stated.CopyFrom(model)
    versions = {opset.domain: opset.version for opset in model.opset_import}
    for node in stated.graph.node:
        if defs.has(node.op_type, node.domain):
            given = {attribute.name for attribute in node.attribute}
            schema = defs.get_schema(node.op_type, versions[node.domain], node.domain)
            node.attribute.extend(
                attribute.default_value
                for name, attribute in schema.attributes.items()
                if name not in given and attribute.default_value.name
            )
    return stated


@cache
def first_of_each() -> tuple[Case, ...]:
    """The first case of each operator."""
    found: dict[str, Case] = {}
    for case in cases_of("core", "extended"):
        for node in case.model.graph.node:
            found.setdefault(node.op_type, case)
    return tuple({case.name: case for case in found.values()}.values())


def program(model: ModelProto) -> str:
    try:
        return to_text(rx.load(model))
    except RelaxAotError as error:
        return str(error)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_stated_defaults_change_nothing(every: bool) -> None:
    wrong = []
    for case in cases_of("core", "extended") if every else first_of_each():
        stated = with_defaults(case.model)
        if stated != case.model and program(stated) != program(case.model):
            wrong.append(case.name)
    assert wrong == []


@pytest.mark.parametrize(("op", "needed"), [("GRU", 2), ("LSTM", 3)])
def test_surplus_activations_are_refused_where_no_default_has_them(op: str, needed: int) -> None:
    model = with_defaults(all_cases()[f"test_{op.lower()}_reverse"].model)
    names = ["Sigmoid"] * (needed + 1)
    model.graph.node[0].attribute.append(make_attribute("activations", names))
    with pytest.raises(RelaxAotError, match="has the activations"):
        rx.load(model)
