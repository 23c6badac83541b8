# SPDX-License-Identifier: Apache-2.0
"""Operators with other operands and attributes compile, or are refused by a message."""

from __future__ import annotations

import re
from functools import cache
from random import Random

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, numpy_helper

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import InternalError, RelaxAotError
from relax_aot.frontends.bounds import MissingBound
from tests.conformance.cases import all_cases

SEEDS = range(40)
PER_SEED = 25
TYPES = (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 16)
"""Element types that operators have."""
NUMBERS = (-2, -1, 0, 1, 2, 3, 7, 2**40)


@cache
def models() -> list[tuple[str, ModelProto, dict[str, np.ndarray]]]:
    """A model of each case of the standard's tests, with its inputs."""
    found = []
    for case in all_cases().values():
        if case.kind == "node" and case.data:
            names = [port.name for port in case.model.graph.input]
            pairs = zip(names, case.data[0][0], strict=False)
            arrays = {n: a for n, a in pairs if isinstance(a, np.ndarray) and a.dtype != object}
            found.append((case.name, case.model, arrays))
    return found


def mutated(random: Random) -> tuple[list[str], ModelProto]:
    """What was changed, and the model."""
    name, source, arrays = random.choice(models())
    model = ModelProto()
    model.CopyFrom(source)
    told = [name]
    for port in list(model.graph.input):
        if port.name in arrays and random.random() < 0.35:
            tensor = numpy_helper.from_array(arrays[port.name], port.name)
            model.graph.initializer.append(tensor)
            model.graph.input.remove(port)
            told.append(f"constant {port.name}")
    for _ in range(random.choice((1, 1, 2, 3))):
        node = random.choice(model.graph.node)
        match random.randrange(7):
            case 0:
                model.opset_import[0].version = random.randrange(1, 28)
                told.append(f"operator set {model.opset_import[0].version}")
            case 1 | 2:
                told.append(_other_shape(model, random))
            case 3 if model.graph.input:
                port = random.choice(model.graph.input)
                port.type.tensor_type.elem_type = random.choice(TYPES)
                told.append(f"type {port.name}")
            case 4 if node.input:
                told.append(_other_operands(node, random))
            case 5 | 6 if node.attribute:
                told.append(_other_attribute(node, random))
    return told, model


def _other_shape(model: ModelProto, random: Random) -> str:
    if not model.graph.input:
        return ""
    port = random.choice(model.graph.input)
    dims = port.type.tensor_type.shape.dim
    change = random.randrange(4)
    if change == 0:
        dims.add().dim_value = random.choice((1, 2, 3))
    elif dims and change == 1:
        del dims[random.randrange(len(dims))]
    elif dims and change == 2:
        dims[random.randrange(len(dims))].dim_value = random.choice((0, 1, 2, 5))
    else:
        for dim in dims:
            if random.random() < 0.6:
                dim.dim_param = random.choice("nmk")
    return f"shape {port.name} {[dim.dim_param or dim.dim_value for dim in dims]}"


def _other_operands(node: NodeProto, random: Random) -> str:
    first, second = (random.randrange(len(node.input)) for _ in range(2))
    change = random.randrange(3)
    if change == 0:
        node.input[first] = ""
    elif change == 1:
        del node.input[-1]
    else:
        node.input[first], node.input[second] = node.input[second], node.input[first]
    return f"operands {list(node.input)}"


def _other_attribute(node: NodeProto, random: Random) -> str:
    attribute = random.choice(node.attribute)
    told = f"attribute {attribute.name}"
    if random.random() < 0.3:
        node.attribute.remove(attribute)
    elif attribute.type == AttributeProto.INT:
        attribute.i = random.choice(NUMBERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = random.choice((0.0, -1.0, float("nan"), float("inf"), 0.5))
    elif attribute.type == AttributeProto.INTS and attribute.ints and random.random() < 0.6:
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(NUMBERS)
    elif attribute.type == AttributeProto.INTS:
        attribute.ints.append(random.choice(NUMBERS))
    return told


def loaded(model: ModelProto, random: Random) -> None:
    """With bounds of the sizes that an error names."""
    bounds: dict[str, tuple[int, int]] = {}
    for _ in range(4):
        try:
            driver.load(model, Options(bounds=bounds))
        except MissingBound as error:
            named = re.findall(r"--bound ([^ =]+)=", str(error))
            bounds |= {name: (random.choice((0, 1)), 6) for name in named}
        else:
            return


@pytest.mark.parametrize("seed", SEEDS)
def test_operators_are_refused_by_a_message(seed: int) -> None:
    random = Random(seed)
    for _ in range(PER_SEED):
        told, model = mutated(random)
        try:
            loaded(model, random)
        except InternalError as error:
            pytest.fail(f"{told}: {error}")
        except RelaxAotError:
            continue
