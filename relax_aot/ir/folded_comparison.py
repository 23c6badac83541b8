"""Comparisons that give the same whatever the data are: compilers warn of them."""

from __future__ import annotations

from relax_aot.ir.loops import Binary, Cast, Expr, Lit
from relax_aot.ir.types import DType


def folded_comparison(compared: Binary) -> bool | None:
    """What a comparison gives; None where that is not known. A float is not less than itself, and
    equals itself but where it is no number."""
    if compared.op == "<" and _is_zero(compared.right) and _never_negative(compared.left):
        return False
    if compared.left != compared.right:
        return None
    if compared.op == "<":
        return False
    if compared.left.dtype.is_float:
        return None
    return {"<=": True, "==": True, "!=": False}.get(compared.op)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Lit) and expr.dtype.is_int and expr.value == 0


def _never_negative(expr: Expr) -> bool:
    """Unsigned, or widened from unsigned."""
    if isinstance(expr, Cast) and expr.dtype.bytes > expr.value.dtype.bytes:
        return _never_negative(expr.value)
    return expr.dtype is DType.BOOL or (expr.dtype.is_int and not expr.dtype.is_signed)
