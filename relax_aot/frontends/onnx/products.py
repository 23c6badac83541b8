# SPDX-License-Identifier: Apache-2.0
"""Matrix products, and sums of products by index letters."""

from __future__ import annotations

from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.einsum import einsum

LIMITS: dict[str, str] = {}


def _matmul(node: Node) -> Results:
    return node.emit("matmul", node.arg(0), node.arg(1))


def _gemm(node: Node) -> Results:
    return node.emit(
        "gemm",
        node.arg(0),
        node.arg(1),
        node.optional(2),
        alpha=float(node.attr("alpha", 1.0)),
        beta=float(node.attr("beta", 1.0)),
        trans_a=bool(node.attr("transA", 0)),
        trans_b=bool(node.attr("transB", 0)),
    )


HANDLERS: dict[str, Handler] = {
    "Det": lambda node: node.emit("det", node.arg(0)),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": einsum,
}
