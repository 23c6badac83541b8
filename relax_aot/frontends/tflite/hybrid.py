# SPDX-License-Identifier: Apache-2.0
"""Floats times quantized weights (dynamic range): each row of the floats, or each image, is
quantized by its own range when it is there, and sums are scaled back.

Source: SymmetricQuantizeFloats and AsymmetricQuantizeFloats of the reference kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import Node
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

F32, F64, I16 = DType.F32, DType.F64, DType.I16


def products(
    node: Node, op: str, x: Var, w: Var, axis: int, *, symmetric: bool, **attrs: Any
) -> Var:
    """`op` of the quantized values of x and of w, in floats again; results lie along the last axis,
    and along `axis` of the weights."""
    found = node.quantization(node.tensor(1))
    if np.any(found.zeros) or w.type.dtype is not DType.I8:
        raise Refused(
            f"float activations with quantized {w.type.dtype.value} weights are not supported"
        )
    if not found.is_single and found.axis != axis:
        raise Refused(f"scales along axis {found.axis} of the weights are not supported")
    codes, scale = (_symmetric if symmetric else _asymmetric)(node, x)
    filters = w.type.shape[-1 if op != "conv_nhwc_integer" else 0]
    if not filters.is_constant:
        raise Refused("the number of filters must be static")
    # The zeros say that sums of these products fit 32 bits.
    bias = node.constant(np.zeros(filters.constant, np.int32), "zeros")
    total = node.cast(node.emit(op, codes, w, None, None, bias, **attrs), F32)
    per_channel = found.scales.reshape(()) if found.is_single else found.scales
    weighted = node.emit("mul", total, node.constant(per_channel, "scales"))
    ones = (1,) * (total.type.rank - 1)
    return node.emit("mul", weighted, node.reshape(scale, (scale.type.elements, *ones)))


def _range(node: Node, x: Var, kind: str) -> Var:
    axes = tuple(range(1, x.type.rank))
    return node.emit("reduce", x, kind=kind, axes=axes, keepdims=True)


def _symmetric(node: Node, x: Var) -> tuple[Var, Var]:
    """Quantized values in -127..127 and their scale; both are 0 where all inputs are 0."""
    reach = _range(node, node.emit("abs", x), "max")
    empty = node.emit("equal", reach, node.scalar(0.0, F32))
    most = node.scalar(127.0, F32)
    inverse = node.emit("div", most, node.emit("where", empty, most, reach))
    codes = _rounded(node, node.emit("mul", x, inverse), -127, 127)
    return node.cast(codes, I16), node.emit("div", reach, most)


def _rounded(node: Node, x: Var, low: int, high: int) -> Var:
    whole = node.emit("round_away", x)
    ends = (node.scalar(float(low), F32), node.scalar(float(high), F32))
    return node.emit("clip", whole, *ends)


def _asymmetric(node: Node, x: Var) -> tuple[Var, Var]:
    """Quantized values in -128..127 minus their zero point, and their scale. The range includes
    0; the zero point is derived from the end of the range that is closer to 0."""
    zero = node.scalar(0.0, F32)
    low, high = (
        node.cast(node.emit(kind, _range(node, x, kind), zero), F64) for kind in ("min", "max")
    )
    empty = node.emit("equal", low, high)
    width = node.emit("div", node.emit("sub", high, low), node.scalar(255.0, F64))
    step = node.emit("where", empty, node.scalar(1.0, F64), width)
    below, above = (node.emit("div", end, step) for end in (low, high))
    bottom, top = node.scalar(-128.0, F64), node.scalar(127.0, F64)
    near = node.emit(
        "less",
        node.emit("add", node.scalar(128.0, F64), node.emit("abs", below)),
        node.emit("add", top, node.emit("abs", above)),
    )
    exact = node.emit("where", near, node.emit("sub", bottom, below), node.emit("sub", top, above))
    place = node.emit("clip", node.emit("round_away", exact), bottom, top)
    place = node.cast(node.emit("where", empty, node.scalar(0.0, F64), place), F32)
    scale = node.cast(step, F32)
    steps = node.emit("mul", x, node.emit("div", node.scalar(1.0, F32), scale))
    codes = _rounded(node, node.emit("add", steps, place), -128, 127)
    return node.cast(node.emit("sub", codes, place), I16), scale
