# SPDX-License-Identifier: Apache-2.0
"""Every TensorFlow Lite operator that is read: its handler, and its limits in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.frontends.importing import operators_of
from relax_aot.frontends.tflite.context import Handler
from relax_aot.frontends.tflite.model import Operator


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `relax-aot ops --format tflite`."""

    operator: str
    limits: str


def handlers() -> Mapping[str, Handler]:
    """Handlers by operator, sorted."""
    return operators_of(__package__).handlers


def supported() -> list[Row]:
    limits = operators_of(__package__).limits
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
