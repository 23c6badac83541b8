# SPDX-License-Identifier: Apache-2.0
"""Strides, padding and dilation of windows, as TensorFlow Lite has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.tflite.context import Node
from relax_aot.ir.dims import Dim, ceildiv, dim_max

SAME, VALID = 0, 1


def windows(
    node: Node, sizes: Sequence[Dim], kernel: Sequence[int | Dim], *, dilated: bool = True
) -> dict[str, Any]:
    """The attributes of a window over height and width."""
    strides = (node.number("stride_h"), node.number("stride_w"))
    dilations = (node.number("dilation_h"), node.number("dilation_w")) if dilated else (1, 1)
    if min(*strides, *dilations) < 1:
        raise ModelError(f"its strides {strides} and dilations {dilations} must be positive")
    reach = [(Dim.of(n) - 1) * d + 1 for n, d in zip(kernel, dilations, strict=True)]
    return {
        "strides": strides,
        "pads": padding(node, sizes, reach, strides),
        "dilations": dilations,
    }


def padding(
    node: Node, sizes: Sequence[Dim], reach: Sequence[Dim], strides: Sequence[int]
) -> tuple[Dim, ...]:
    """Begins, then ends. SAME makes ceil(size / stride) windows, with the odd place at the end;
    an end may be negative, where windows stop before the last element."""
    code = node.number("padding")
    if code not in (SAME, VALID):
        raise ModelError(f"its padding has the number {code}")
    if code == VALID:
        return (Dim.of(0),) * (2 * len(sizes))
    begins, ends = [], []
    for size, width, stride in zip(sizes, reach, strides, strict=True):
        needed = (ceildiv(size, stride) - 1) * stride + width - size
        begin = dim_max(needed, 0) // 2
        begins.append(begin)
        ends.append(needed - begin)
    return (*begins, *ends)
