# SPDX-License-Identifier: Apache-2.0
"""Every TensorFlow Lite operator that is read: its handler, and its limits in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from relax_aot.frontends.tflite import (
    contraction,
    elementwise,
    movement,
    pooling,
    recurrent,
    reduction,
    shaping,
    unary,
)
from relax_aot.frontends.tflite.context import Handler
from relax_aot.frontends.tflite.model import Operator
from relax_aot.frontends.tflite.schema import OPERATORS

MODULES = (contraction, elementwise, movement, pooling, recurrent, reduction, shaping, unary)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `relax-aot ops --format tflite`."""

    operator: str
    limits: str


@cache
def handlers() -> Mapping[str, Handler]:
    """Handlers by operator, sorted."""
    found: dict[str, Handler] = {}
    for module in MODULES:
        twice = found.keys() & module.HANDLERS.keys()
        assert not twice, f"operators with two handlers: {sorted(twice)}"
        found |= module.HANDLERS
    assert found.keys() <= set(OPERATORS)
    return dict(sorted(found.items()))


def supported() -> list[Row]:
    limits: dict[str, str] = {}
    for module in MODULES:
        limits |= module.LIMITS
    return [Row(name, limits.get(name, "")) for name in handlers()]


CONTROL = ("CALL", "CALL_ONCE", "IF", "WHILE")
RESOURCES = ("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE")
RANDOM = ("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM")


def reason_against(operator: Operator) -> str:
    """Why no handler reads this operator; empty where one does."""
    name = operator.name
    if operator.custom:
        return (
            f"the custom operator {name} is not known; convert without select TensorFlow"
            " operators, or cut the model before it"
        )
    if name in handlers():
        return ""
    if name in CONTROL:
        return "subgraphs are not supported; unroll or fold them when converting"
    if name in RESOURCES:
        return "variables are not supported; make them inputs and outputs, and use --state"
    if name in RANDOM:
        return "random numbers are not supported; make them an input"
    if name.startswith(("HASHTABLE", "EMBEDDING", "LSH", "SKIP_GRAM", "CONCAT_EMB")):
        return f"operator {name} works on text or tables, which is not supported"
    return f"operator {name} of version {operator.version} is not supported"
