# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools."""

from __future__ import annotations

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
    strides = tuple(int(stride) for stride in node.attr("strides") or [1] * rank)
    dilations = tuple(int(step) for step in node.attr("dilations") or [1] * rank)
    pads = _pads(node, x.type.shape[2:], kernel, strides, dilations)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ModelError(f"strides, pads or dilations do not fit a window over {rank} axes")
    if min(*strides, *dilations, 1) < 1:
        raise ModelError("strides and dilations must be positive")
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _pads(
    node: Node,
    sizes: tuple[Dim, ...],
    kernel: tuple[Dim, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int | Dim, ...]:
    """Begins, then ends. SAME makes ceil(size / stride) windows, whatever the size."""
    auto = node.attr("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return tuple(int(pad) for pad in node.attr("pads") or [0] * (2 * len(kernel)))
    if auto == "VALID":
        return (0,) * (2 * len(kernel))
    begins, ends = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        covered = (width - 1) * dilation + 1
        missing = (ceildiv(size, stride) - 1) * stride + covered - size
        total = simplify(dim_max(missing, 0), node.builder.bounds)
        small = simplify(total // 2, node.builder.bounds)
        low, high = (small, total - small) if auto == "SAME_UPPER" else (total - small, small)
        begins.append(low)
        ends.append(high)
    return (*begins, *ends)


def _conv(node: Node) -> Results:
    return convolve(node, node.arg(0), node.arg(1), node.optional(2))


def convolve(node: Node, x: Var, w: Var, b: Var | None) -> Var:
    attrs = windows(node, x, w.type.shape[2:])
    return node.emit("conv", x, w, b, group=int(node.attr("group", 1)), **attrs)


def _conv_transpose(node: Node) -> Results:
    x, w = node.arg(0), node.arg(1)
    kernel = w.type.shape[2:]
    rank = len(kernel)
    strides = tuple(int(stride) for stride in node.attr("strides") or [1] * rank)
    dilations = tuple(int(step) for step in node.attr("dilations") or [1] * rank)
    extra = tuple(int(pad) for pad in node.attr("output_padding") or [0] * rank)
    requested: list[Dim] | None = None
    auto = node.attr("auto_pad", "NOTSET")
    if node.has("output_shape"):
        requested = [Dim.of(int(size)) for size in node.attr("output_shape")][-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        requested = [n * stride for n, stride in zip(x.type.shape[2:], strides, strict=True)]
    if requested is None:
        pads: tuple[int | Dim, ...] = tuple(
            int(pad) for pad in node.attr("pads") or [0] * (2 * rank)
        )
        if auto == "VALID":
            pads = (0,) * (2 * rank)
    else:
        begins, ends = [], []
        for axis in range(rank):
            covered = (kernel[axis] - 1) * dilations[axis] + 1
            full = strides[axis] * (x.type.shape[axis + 2] - 1) + extra[axis] + covered
            total = simplify(full - requested[axis], node.builder.bounds)
            half = simplify(total // 2, node.builder.bounds)
            upper = auto == "SAME_UPPER"
            begins.append(half if upper else total - half)
            ends.append(total - half if upper else half)
        pads = (*begins, *ends)
    return node.emit(
        "conv_transpose", x, w, node.optional(2), strides=strides, pads=pads,
        output_padding=extra, dilations=dilations, group=int(node.attr("group", 1)),
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
    if min(kernel, default=0) < 1:
        raise ModelError(f"a pool has the kernel {list(kernel)}")
    return kernel


def _max_pool(node: Node) -> Results:
    x = node.arg(0)
    if node.requested[1:] == [True]:
        columns = bool(node.attr("storage_order", 0))
        return _pools(node, "max_pool_with_indices", x, columns_first=columns)
    return pool(node, "max_pool", x)


def _average_pool(node: Node) -> Results:
    include = bool(node.attr("count_include_pad", 0))
    return pool(node, "average_pool", node.arg(0), count_include_pad=include)


def _lp_pool(node: Node) -> Results:
    return pool(node, "lp_pool", node.arg(0), p=int(node.attr("p", 2)))


def _power(node: Node, x: Var, exponent: float) -> Var:
    if exponent == 1:
        return x
    if exponent == 2:
        return node.emit("mul", x, x)
    if exponent == 0.5:
        return node.emit("sqrt", x)
    return node.emit("pow", x, node.scalar(exponent, x))


def _global_pool(kind: str) -> Handler:
    def handle(node: Node) -> Results:
        x = node.arg(0)
        return node.emit("reduce", x, kind=kind, axes=tuple(range(2, x.type.rank)), keepdims=True)

    return handle


def _global_lp_pool(node: Node) -> Results:
    x = node.arg(0)
    p = int(node.attr("p", 2))
    axes = tuple(range(2, x.type.rank))
    powers = _power(node, node.emit("abs", x), float(p))
    total = node.emit("reduce", powers, kind="sum", axes=axes, keepdims=True)
    return _power(node, total, 1 / p)


HANDLERS: dict[str, Handler] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "GlobalLpPool": _global_lp_pool,
}
