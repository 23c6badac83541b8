"""FMA contraction: sums of products by the fused multiply-add.

`RAOT_FMAF` is an instruction where the target has one and a multiply and an add where it
has none; stated in the code, it does not depend on the compiler's contraction mode.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.loops import Apply, Assign, Binary, Kernel, Stmt, Store
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType


def fuse_multiply_add(kernel: Kernel) -> Kernel:
    """`sum = sum + a * b` becomes `sum = fma(a, b, sum)`."""

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Assign | Store):
            return stmt
        match stmt.value:
            case Binary("+", total, Binary("*", left, right)) as value:
                if value.dtype in (DType.F32, DType.F64):
                    return replace(stmt, value=Apply("fma", (left, right, total)))
        return stmt

    return replace(kernel, body=map_statements(kernel.body, rule))
