# SPDX-License-Identifier: Apache-2.0
"""Sizes that go through floats: what `Floor(Cast(n) * 0.75)` is, told while building.

Exporters write `int(0.75 * n)`, `arange(n, dtype=float)` and `ceil(n / 4) * 4` so. A float
is followed as a `Quotient` as long as its arithmetic provably rounds at most once, and then
in a way that no step to an integer can notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, lcm
from typing import Any

import numpy as np

from relax_aot.ir.dims import (
    Bounds,
    Dim,
    Proof,
    ceildiv,
    dim_max,
    dim_min,
    interval,
    prove,
    simplify,
)
from relax_aot.ir.types import DType
from relax_aot.ops import has
from relax_aot.ops._op import Array, Trait

EXACT_BELOW = {DType.F32: 2**24, DType.F64: 2**53}
"""Up to there each integer is a float, by element type."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """`over / under`, rounded to a float where `under` is no power of two.

    `over` lies where each integer is a float. So what was rounded is further from every
    integer than its rounding error, and floor, ceil and truncation see the true quotient.
    """

    over: Dim
    under: int

    @property
    def exact(self) -> bool:
        return self.under & (self.under - 1) == 0


def quotient(over: Dim, under: int, dtype: DType, bounds: Bounds) -> Quotient | None:
    """None where rounding may matter."""
    if under < 0:
        over, under = -over, -under
    if over.is_constant:
        plain = Fraction(over.constant, under)
        over, under = Dim.of(plain.numerator), plain.denominator
    limit = EXACT_BELOW[dtype]
    low, high = interval(over, bounds)
    fits = -limit < low and high < limit and under < limit
    return Quotient(over, under) if fits else None


def of_constant(data: Array) -> Array | None:
    """The elements of a constant."""
    dtype = DType.of(data.dtype)
    numbers = [float(v) for v in data.flat]
    if dtype not in EXACT_BELOW or not all(map(isfinite, numbers)):
        return None
    fractions = map(Fraction, numbers)
    return _array([Quotient(Dim.of(f.numerator), f.denominator) for f in fractions], data.shape)


def numbers(value: Array | None, dtype: DType) -> Array | None:
    """The floats that quotients are, where none depends on a symbol."""
    if value is None or not all(q.over.is_constant for q in value.flat):
        return None
    plain = [q.over.constant / q.under for q in value.flat]
    return np.array(plain, dtype.numpy).reshape(value.shape)


def follow(
    op: str,
    args: Sequence[Array],
    attrs: Mapping[str, Any],
    dtype: DType,
    bounds: Bounds,
    symbolic: Callable[..., Array | None] | None,
) -> Array | None:
    """The elements of a result of type `dtype`: quotients, or sizes where it is an integer."""
    if symbolic is not None and has(op, Trait.MOVES | Trait.PERMUTES):
        return symbolic(bounds, *args, **attrs)
    if op != "cast" and op not in RULES:
        return None
    shape = np.broadcast_shapes(*(a.shape for a in args))
    rows = list(zip(*(np.broadcast_to(a, shape).flat for a in args), strict=True))
    if op == "cast" and not dtype.is_float:
        found: list[Any] = [_truncated(value, bounds) for (value,) in rows]
    elif op == "cast":
        found = [_converted(value, dtype, bounds) for (value,) in rows]
    else:
        found = [RULES[op](*row, dtype, bounds) for row in rows]
    return None if any(value is None for value in found) else _array(found, shape)


def _array(values: Sequence[Any], shape: tuple[int, ...]) -> Array:
    return np.array([*values, None], object)[:-1].reshape(shape)


def _truncated(value: Quotient, bounds: Bounds) -> Dim | Proof | None:
    proof = Proof(True) if value.under == 1 else prove(0, "<=", value.over, bounds)
    return proof.then(simplify(value.over // value.under, bounds)) if proof else None


def _converted(value: Any, dtype: DType, bounds: Bounds) -> Quotient | None:
    """From an integer, or from another type of floats."""
    if isinstance(value, int | Dim):
        return quotient(Dim.of(value), 1, dtype, bounds)
    if isinstance(value, Quotient) and value.exact:
        return quotient(value.over, value.under, dtype, bounds)
    return None


def _joined(combine: Callable[[Dim, Dim], Dim]) -> Callable[..., Quotient | None]:
    def rule(a: Quotient, b: Quotient, dtype: DType, bounds: Bounds) -> Quotient | None:
        if not (a.exact and b.exact):
            return None
        under = lcm(a.under, b.under)
        over = combine(a.over * (under // a.under), b.over * (under // b.under))
        return quotient(over, under, dtype, bounds)

    return rule


def _product(a: Quotient, b: Quotient, dtype: DType, bounds: Bounds) -> Quotient | None:
    if not (a.exact and b.exact):
        return None
    return quotient(a.over * b.over, a.under * b.under, dtype, bounds)


def _ratio(a: Quotient, b: Quotient, dtype: DType, bounds: Bounds) -> Quotient | None:
    if not (a.exact and b.exact and b.over.is_constant) or b.over.constant == 0:
        return None
    return quotient(a.over * b.under, a.under * b.over.constant, dtype, bounds)


def _floor(value: Quotient, dtype: DType, bounds: Bounds) -> Quotient | None:
    return quotient(simplify(value.over // value.under, bounds), 1, dtype, bounds)


def _ceil(value: Quotient, dtype: DType, bounds: Bounds) -> Quotient | None:
    return quotient(simplify(ceildiv(value.over, value.under), bounds), 1, dtype, bounds)


def _round_even(value: Quotient, _dtype: DType, _bounds: Bounds) -> Quotient | None:
    return value if value.under == 1 else None


def _minus(value: Quotient, dtype: DType, bounds: Bounds) -> Quotient | None:
    return quotient(-value.over, value.under, dtype, bounds)


RULES: dict[str, Callable[..., Quotient | None]] = {
    "add": _joined(lambda a, b: a + b),
    "sub": _joined(lambda a, b: a - b),
    "max": _joined(dim_max),
    "min": _joined(dim_min),
    "mul": _product,
    "div": _ratio,
    "neg": _minus,
    "floor": _floor,
    "ceil": _ceil,
    "round_even": _round_even,
}
