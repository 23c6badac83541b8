# SPDX-License-Identifier: Apache-2.0
"""Floats times quantized weights (dynamic range): each row of the floats, or each image, is
quantized by its own range when it is there, and sums are scaled back.

Sums are those of bytes. A zero point z that is known while the model runs is subtracted from them:
sum((x - z) * w) = sum(x * w) - z * sum(w), where bytes have a border of z instead of padding.

Source: the reference kernels of hybrid convolutions and products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import Node
from relax_aot.frontends.tflite.model import Array
from relax_aot.ir.dims import Dim, dim_max, dim_min
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.types import DType
from relax_aot.ops import has
from relax_aot.ops._op import Trait

F32, I8, I32 = DType.F32, DType.I8, DType.I32
LEAST = -128
"""The zero point of values that are not negative."""


def products(
    node: Node, op: str, x: Var, w: Var, axis: int, *, symmetric: bool, **attrs: Any
) -> Var:
    """`op` of the quantized values of x and of w, in floats again; results lie along the last axis,
    and along `axis` of the weights."""
    found = node.quantization(node.tensor(1))
    if np.any(found.zeros) or w.type.dtype is not I8:
        raise Refused(
            f"float activations with quantized {w.type.dtype.value} weights are not supported"
        )
    if not found.is_single and found.axis != axis:
        raise Refused(f"scales along axis {found.axis} of the weights are not supported")
    per_channel = found.scales.reshape(()) if found.is_single else found.scales
    return scaled_products(node, op, x, w, per_channel, symmetric=symmetric, **attrs)


def scaled_products(
    node: Node, op: str, x: Var, w: Var, scales: Array, *, symmetric: bool, **attrs: Any
) -> Var:
    """The same for weights with these scales, one or one for each place along the last axis."""
    total, scale = _sums(node, op, x, w, symmetric, attrs)
    rows = [scale.type.elements, *[Dim.of(1)] * (total.type.rank - 1)]
    weighted = node.emit("mul", node.cast(total, F32), node.constant(scales, "scales"))
    return node.emit("mul", weighted, node.reshape(scale, rows))


def _sums(
    node: Node, op: str, x: Var, w: Var, symmetric: bool, attrs: dict[str, Any]
) -> tuple[Var, Var]:
    """Sums of products of quantized values less their zero points, and the scale of each row."""
    form = "symmetric" if symmetric else "asymmetric"
    if not symmetric and _is_positive(node, x):
        quantized, scale = node.emit_all("quantize_by_range", x, form="positive")
        return node.emit(op, quantized, w, node.scalar(LEAST, I8), None, None, **attrs), scale
    if symmetric:
        quantized, scale = node.emit_all("quantize_by_range", x, form=form)
        return node.emit(op, quantized, w, None, None, None, **attrs), scale
    border, attrs = _with_border(attrs)
    quantized, scale, zero = node.emit_all("quantize_by_range", x, form=form, **border)
    total = node.emit(op, quantized, w, None, None, None, **attrs)
    channel = 0 if op == "conv_nhwc_integer" else w.type.rank - 1
    axes = tuple(n for n in range(w.type.rank) if n != channel)
    sums = node.emit("reduce", node.cast(w, I32), kind="sum", axes=axes, keepdims=False)
    zeros = node.reshape(zero, [zero.type.elements, *[Dim.of(1)] * (total.type.rank - 1)])
    return node.emit("sub", total, node.emit("mul", zeros, sums)), scale


def _with_border(attrs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The padding as a border of quantized values, and the attributes of the op without it. Ends
    stay that are negative: windows stop before the last element."""
    pads = attrs.get("pads", ())
    none, space = Dim.of(0), len(pads) // 2
    if all(pad == none for pad in pads):
        return {}, attrs
    sizes = [dim_max(pad, none) for pad in pads]
    border = {"before": (none, *sizes[:space], none), "after": (none, *sizes[space:], none)}
    return border, {**attrs, "pads": tuple(dim_min(pad, none) for pad in pads)}


def _is_positive(node: Node, x: Var) -> bool:
    """Whether no value is negative, by the calls that make them."""
    calls = {out.name: call for call in node.builder.body for out in call.outs}
    pending = [x]
    while pending:
        call = calls.get(pending.pop().name)
        if call is None:
            return False
        if has(call.op, Trait.PERMUTES | Trait.KEEPS_SIGN):
            pending += call.inputs
        elif has(call.op, Trait.MOVES):
            pending.append(call.inputs[0])
        elif not (has(call.op, Trait.POSITIVE) or _is_clipped(node, call)):
            return False
    return True


def _is_clipped(node: Node, call: Call) -> bool:
    low = node.builder.numeric(call.args[1]) if call.op == "clip" and call.args[1] else None
    return low is not None and bool(np.all(low >= 0))
