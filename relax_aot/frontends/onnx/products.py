# SPDX-License-Identifier: Apache-2.0
"""Matrix products, and sums of products by index letters."""

from __future__ import annotations

from relax_aot.frontends.onnx.context import Handler, direct
from relax_aot.frontends.onnx.einsum import einsum

HANDLERS: dict[str, Handler] = {
    "Det": direct("det"),
    "MatMul": direct("matmul", "xx"),
    "Gemm": direct(
        "gemm", "xx?", alpha=1.0, beta=1.0, trans_a=("transA", False), trans_b=("transB", False)
    ),
    "Einsum": einsum,
}
