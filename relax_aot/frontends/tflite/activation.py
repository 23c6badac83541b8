# SPDX-License-Identifier: Apache-2.0
"""The activation that many operators end with."""

from __future__ import annotations

from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import Node
from relax_aot.ir.graph import Var

LIMITS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
}


def limits_of(activation: str) -> tuple[float | None, float | None]:
    """Between which numbers it keeps results; the others are no limits."""
    if activation not in LIMITS:
        raise Refused(f"the activation {activation} is not supported here")
    return LIMITS[activation]


def activated(node: Node, x: Var, activation: str) -> Var:
    """The activation of floats (and of integers that count, not quantized values)."""
    low, high = limits_of(activation)
    if (low, high) == (0.0, None):
        return node.emit("relu", x)
    if low is None and high is None:
        return x
    ends = [None if end is None else node.scalar(end, x.type.dtype) for end in (low, high)]
    return node.emit("clip", x, *ends)
