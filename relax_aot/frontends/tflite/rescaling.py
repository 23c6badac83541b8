# SPDX-License-Identifier: Apache-2.0
"""Conversion of quantized values to another scale, and back."""

from __future__ import annotations

from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import QUANTIZED_TYPES, Node
from relax_aot.frontends.tflite.fixed_point import multiplier
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType


def is_coded(node: Node, x: Var) -> bool:
    """Whether the node works on quantized values; whole numbers without a scale count."""
    tensors = [node.tensor(i) for i in range(node.count) if node.has(i)]
    return x.type.dtype in QUANTIZED_TYPES and any(t.quantization is not None for t in tensors)


def uncoded(node: Node) -> Var:
    """The first input of an operator without a form for quantized values."""
    x = node.arg(0)
    if is_coded(node, x):
        raise Refused(f"quantized {node.operator.name} is not supported; keep it in float")
    return x


def scaled(node: Node, x: Var, zero: int, scale: float, *, left: int = 0) -> Var:
    """(x - zero) * 2^left * scale as an i32, rounded twice."""
    factor, shift = multiplier(scale)
    return node.emit("fixed_rescale", x, zero=zero, left=left, factor=factor, shift=shift)


def coded(node: Node, steps: Var, limits: tuple[int, int] | None = None) -> Var:
    """Steps of the result (i32) as its quantized values, within limits."""
    _, zero = node.single(node.result())
    to = node.result_type()
    if zero or node.replaceable:
        steps = node.emit("add", steps, node.scalar(zero, DType.I32))
    ends = [node.scalar(end, DType.I32) for end in (limits or to.limits)]
    return node.cast(node.emit("clip", steps, *ends), to)
