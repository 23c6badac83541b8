# SPDX-License-Identifier: Apache-2.0
"""Integer sums that become floats: times a scale and a factor, plus a bias, limited.

Operands that a sum does not have are numbers that change nothing: a factor of 1, a bias of -0, and
infinite limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Buffer,
    Cast,
    Expr,
    Lit,
    Load,
    Local,
    Store,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Weighted, indexed_by, step_of
from relax_aot.scheduling.epilogue import inlined
from relax_aot.scheduling.writer import Writer

F32 = DType.F32
_NO_BIAS: Expr = Lit(-0.0, F32)


@dataclass(frozen=True, slots=True)
class Scaled:
    """min(max(sum * scale * factor + bias, low), high), each operation in floats. `start`: what is
    added to the sum as an integer."""

    total: Load | Local
    start: Load | None
    scale: Expr
    factor: Expr
    bias: Expr
    low: float
    high: float

    @property
    def moved_by(self) -> frozenset[str]:
        """The variables that a start, a scale or a bias depends on."""
        start = indexed_by(self.start) if self.start is not None else frozenset[str]()
        return start | indexed_by(self.scale) | indexed_by(self.bias)

    def operand(self, w: Writer) -> Buffer:
        """The factor and the limits, as micro-kernels read them."""
        by = w.buffer("by", F32, 3)
        values = (self.factor, Lit(self.low, F32), Lit(self.high, F32))
        w.add(*(Store(by, (Dim.of(n),), value) for n, value in enumerate(values)))
        return by


def scaled(value: Expr) -> Scaled | None:
    """The operands of a float, if it is one of a sum."""
    low, high = -inf, inf
    while isinstance(value, Apply) and value.function in ("min", "max"):
        inner, limit = value.args
        if not isinstance(limit, Lit) or not isinstance(limit.value, float):
            return None
        low = max(low, limit.value) if value.function == "max" else low
        high = min(high, limit.value) if value.function == "min" else high
        value = inner
    product, bias = value, _NO_BIAS
    if isinstance(value, Binary) and value.op == "+":
        product, bias = value.left, value.right
    factors: list[Expr] = []
    while isinstance(product, Binary) and product.op == "*":
        factors.insert(0, product.right)
        product = product.left
    start: Load | None = None
    match product:
        case Cast(Load() | Local() as total, DType.F32) if total.dtype is DType.I32:
            pass
        case Cast(Binary("+", Load() as total, Load() as added), DType.F32) if (
            total.dtype is DType.I32
        ):
            start = added
        case _:
            return None
    if not 1 <= len(factors) <= 2 or not all(map(_is_operand, (*factors, bias))):
        return None
    scale, factor = (*factors, Lit(1.0, F32))[:2]
    return Scaled(total, start, scale, factor, bias, low, high) if low <= high else None


def scaled_store(found: Weighted) -> Store | None:
    """The store of floats of sums that have no start yet."""
    store = inlined(found.after)
    one = scaled(store.value) if store is not None else None
    return store if one is not None and one.total == found.sum and one.start is None else None


def _is_operand(expr: Expr) -> bool:
    return isinstance(expr, Lit | Load | Local) and expr.dtype is F32


def step_along(operand: Expr, variable: str) -> Dim:
    """From iteration to iteration of a loop."""
    return step_of(operand, variable) if isinstance(operand, Load) else ZERO


def in_memory(w: Writer, operand: Expr, name: str) -> Load:
    """An operand as micro-kernels read it."""
    if isinstance(operand, Load):
        return operand
    one = w.buffer(name, F32, 1)
    w.add(Store(one, (ZERO,), operand))
    return one[(ZERO,)]
