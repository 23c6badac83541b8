# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.ir.dims import Dim, ceildiv, dim_max, simplify
from relax_aot.ir.graph import Var


def windows(node: Node, x: Var, kernel: tuple[Dim, ...]) -> dict[str, Any]:
    """strides, pads and dilations of a sliding window, with auto_pad resolved."""
    rank = len(kernel)
    if x.type.rank != rank + 2:
        raise ModelError(f"a window over {rank} axes does not fit {x.type}")
    strides, dilations = (node.numbers(name, [1] * rank) for name in ("strides", "dilations"))
    node.require_numbers(1, strides=strides, dilations=dilations)
    pads = _pads(node, x.type.shape[2:], kernel, strides, dilations)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ModelError(f"strides, pads or dilations do not fit a window over {rank} axes")
    return {"strides": strides, "pads": tuple(pads), "dilations": dilations}


def _pads(
    node: Node,
    sizes: tuple[Dim, ...],
    kernel: tuple[Dim, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Sequence[int | Dim]:
    """Begins, then ends. SAME makes ceil(size / stride) windows, whatever the size."""
    auto = node.attr("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return node.numbers("pads", [0] * (2 * len(kernel)))
    if auto == "VALID":
        return (0,) * (2 * len(kernel))
    totals = []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        covered = (width - 1) * dilation + 1
        totals.append(dim_max((ceildiv(size, stride) - 1) * stride + covered - size, 0))
    return _halved(node, totals, auto)


def _halved(node: Node, totals: Sequence[Dim], auto: str) -> tuple[Dim, ...]:
    """Pads of these sums, begins and then ends; the larger half is at the end for SAME_UPPER."""
    bounds = node.builder.bounds
    totals = [simplify(total, bounds) for total in totals]
    small = [simplify(total // 2, bounds) for total in totals]
    large = [total - half for total, half in zip(totals, small, strict=True)]
    return (*small, *large) if auto == "SAME_UPPER" else (*large, *small)


def convolve(node: Node, x: Var, w: Var, b: Var | None) -> Var:
    attrs = windows(node, x, w.type.shape[2:])
    return node.emit("conv", x, w, b, group=int(node.attr("group", 1)), **attrs)


def _conv_transpose(node: Node) -> Results:
    x, w = node.arg(0), node.arg(1)
    kernel = w.type.shape[2:]
    rank = len(kernel)
    strides, dilations = (node.numbers(name, [1] * rank) for name in ("strides", "dilations"))
    extra, group = node.numbers("output_padding", [0] * rank), int(node.attr("group", 1))
    if x.type.rank != rank + 2 or not len(strides) == len(dilations) == len(extra) == rank:
        raise ModelError(f"strides, dilations or output_padding do not fit {x.type} and {w.type}")
    node.require_numbers(1, strides=strides, dilations=dilations, group=[group])
    node.require_numbers(0, output_padding=extra)
    requested: list[Dim] | None = None
    auto = node.attr("auto_pad", "NOTSET")
    if node.has("output_shape"):
        requested = [Dim.of(int(size)) for size in node.attr("output_shape")][-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        requested = [n * stride for n, stride in zip(x.type.shape[2:], strides, strict=True)]
    if requested is None:
        none = [0] * (2 * rank)
        pads: Sequence[int | Dim] = none if auto == "VALID" else node.numbers("pads", none)
    else:
        axes = zip(kernel, dilations, strides, x.type.shape[2:], extra, requested, strict=True)
        pads = _halved(
            node, [s * (n - 1) + e + (w - 1) * d + 1 - size for w, d, s, n, e, size in axes], auto
        )
    return node.emit(
        "conv_transpose", x, w, node.optional(2), strides=strides, pads=tuple(pads),
        output_padding=extra, dilations=dilations, group=group,
    )  # fmt: skip


# Pools


def pool(node: Node, op: str, x: Var, **more: Any) -> Var:
    return _pools(node, op, x, **more)[0]


def _pools(node: Node, op: str, x: Var, **more: Any) -> tuple[Var, ...]:
    kernel = _kernel(node)
    attrs = windows(node, x, tuple(Dim.of(size) for size in kernel))
    ceil_mode = bool(node.attr("ceil_mode", 0))
    return node.emit_all(op, x, kernel=kernel, ceil_mode=ceil_mode, **attrs, **more)


def _kernel(node: Node) -> tuple[int, ...]:
    kernel = tuple(int(size) for size in node.required("kernel_shape"))
    if not kernel:
        raise ModelError("a pool has an empty kernel_shape")
    node.require_numbers(1, kernel_shape=kernel)
    return kernel


def _max_pool(node: Node) -> Results:
    x = node.arg(0)
    if node.requested[1:] == [True]:
        columns = bool(node.attr("storage_order", 0))
        return _pools(node, "max_pool_with_indices", x, columns_first=columns)
    return pool(node, "max_pool", x)


def average_pool(node: Node, x: Var) -> Var:
    include = node.attr("count_include_pad", False)
    return pool(node, "average_pool", x, count_include_pad=include)


def _power(node: Node, x: Var, exponent: float) -> Var:
    if exponent == 1:
        return x
    if exponent == 2:
        return node.emit("mul", x, x)
    if exponent == 0.5:
        return node.emit("sqrt", x)
    return node.emit("pow", x, node.scalar(exponent, x))


def global_pool(node: Node, x: Var, kind: str) -> Var:
    return node.emit("reduce", x, kind=kind, axes=tuple(range(2, x.type.rank)), keepdims=True)


def _global_lp_pool(node: Node) -> Results:
    p = node.attr("p", 2)
    powers = _power(node, node.emit("abs", node.arg(0)), float(p))
    return _power(node, global_pool(node, powers, "sum"), 1 / p)


HANDLERS: dict[str, Handler] = {
    "Conv": lambda node: convolve(node, node.arg(0), node.arg(1), node.optional(2)),
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": lambda node: average_pool(node, node.arg(0)),
    "LpPool": lambda node: pool(node, "lp_pool", node.arg(0), p=node.attr("p", 2)),
    "GlobalAveragePool": lambda node: global_pool(node, node.arg(0), "mean"),
    "GlobalMaxPool": lambda node: global_pool(node, node.arg(0), "max"),
    "GlobalLpPool": _global_lp_pool,
}
