# SPDX-License-Identifier: Apache-2.0
"""Arrays of numbers of which some are known, and the arithmetic of kernels on them.

Numbers that are not known are taken for finite: zero times any of them is zero (decision 0035).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relax_aot.ir.loops import LOGICAL
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Numbers, and which of them are known: two arrays that broadcast. Integers are int64, floats
    float32 or float64. What is unknown depends on `data`, or on sizes and positions alone."""

    value: Array
    known: Array
    data: bool = True

    @property
    def nothing(self) -> bool:
        return not self.known.any()

    @property
    def zero(self) -> Array:
        """Where the number is known to be 0."""
        return np.asarray(self.known & (self.value == 0))

    def deep(self, rank: int) -> Known:
        """With trailing axes of size 1."""
        return Known(_deep(self.value, rank), _deep(self.known, rank), self.data)


def _deep(array: Array, rank: int) -> Array:
    return array.reshape(array.shape + (1,) * (rank - array.ndim))


UNKNOWN = Known(np.zeros((), np.int64), np.zeros((), np.bool_))
POSITION = Known(UNKNOWN.value, UNKNOWN.known, data=False)
"""A number that depends on sizes or on a position."""


def computes(dtype: DType) -> bool:
    """Whether numbers of a type are computed here."""
    return dtype.is_float or dtype is DType.BOOL or (dtype.is_int and dtype is not DType.U64)


def exactly(array: Array, dtype: DType) -> Known:
    if not computes(dtype):
        return UNKNOWN
    array = np.asarray(array)
    return Known(array.astype(_wide(dtype)), np.ones((1,) * array.ndim, np.bool_), data=False)


def _wide(dtype: DType) -> type:
    if dtype is DType.F64:
        return np.float64
    if dtype.is_float:
        return np.float32
    return np.bool_ if dtype is DType.BOOL else np.int64


def stored(value: Known, dtype: DType) -> Known:
    """As a buffer keeps it: integers wrap, floats are rounded."""
    if not computes(dtype):
        return UNKNOWN
    with np.errstate(all="ignore"):
        kept: Array = value.value.astype(dtype.numpy).astype(_wide(dtype))
    return Known(kept, value.known, value.data)


def either(a: Known, b: Known) -> Known:
    """What holds of both."""
    a, b = _level(a, b)
    same = (a.value == b.value) | ((a.value != a.value) & (b.value != b.value))
    return Known(np.where(same, a.value, 0), a.known & b.known & same, a.data or b.data)


def chosen(condition: Known, a: Known, b: Known) -> Known:
    rank = max(part.value.ndim for part in (condition, a, b))
    condition, a, b = (part.deep(rank) for part in (condition, a, b))
    both = either(a, b)
    taken = np.where(condition.value, a.value, b.value)
    sure = condition.known & np.where(condition.value, a.known, b.known)
    known = np.asarray(sure | both.known)
    data = condition.data or a.data or b.data
    return Known(np.where(sure, taken, both.value), known, data)


def _level(a: Known, b: Known) -> tuple[Known, Known]:
    rank = max(a.value.ndim, a.known.ndim, b.value.ndim, b.known.ndim)
    return a.deep(rank), b.deep(rank)


def combined(op: str, a: Known, b: Known, dtype: DType) -> Known:
    """A binary operator on operands of one type; `dtype` is that of the result."""
    a, b = _level(a, b)
    both = np.asarray(a.known & b.known)
    data = a.data or b.data
    if op in LOGICAL:
        decides = op == "||"
        sure = (a.known & (a.value == decides)) | (b.known & (b.value == decides))
        value = (a.value | b.value) if decides else (a.value & b.value)
        return Known(np.where(sure, decides, value), both | sure, data)
    rule = OPERATORS.get(op)
    if rule is None or not computes(dtype):
        return UNKNOWN
    sure = np.zeros((), np.bool_)
    if op in ("*", "&"):
        sure = a.zero | b.zero
    elif op == "/" and not b.data:
        # Counts of elements, which are not zero where anything is divided by them.
        sure = a.zero & ~b.known
    if not (both.any() or sure.any()):
        return Known(UNKNOWN.value, UNKNOWN.known, data)
    with np.errstate(all="ignore"):
        value = rule(a.value, b.value)
        value = np.where(sure & ~both, np.zeros((), value.dtype), value)
    return stored(Known(value, both | sure, data), dtype)


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    whole = np.abs(a) // np.where(b == 0, 1, np.abs(b))
    return np.where(b == 0, 0, np.where((a < 0) == (b < 0), whole, -whole))


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))


def _left(a: Array, b: Array) -> Array:
    return np.where((b >= 0) & (b < 64), a << np.clip(b, 0, 63), 0)


def _right(a: Array, b: Array) -> Array:
    return np.where(b >= 0, a >> np.clip(b, 0, 63), np.where(a < 0, -1, 0))


OPERATORS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": _quotient, "%": _remainder,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": _left, ">>": _right,
    "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
EXACT: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "rint": np.rint, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
"""Scalar functions with one correct result."""
FROM_ZERO: dict[str, float] = {
    "sin": 0.0, "tan": 0.0, "asin": 0.0, "atan": 0.0, "sinh": 0.0, "tanh": 0.0, "asinh": 0.0,
    "atanh": 0.0, "erf": 0.0, "expm1": 0.0, "log1p": 0.0, "cos": 1.0, "cosh": 1.0, "exp": 1.0,
    "exp2": 1.0, "sigmoid": 0.5,
}  # fmt: skip
"""Of 0, every library computes these functions exactly."""


def applied(function: str, args: list[Known], dtype: DType) -> Known:
    data = any(arg.data for arg in args)
    if not computes(dtype):
        return UNKNOWN
    if function in FROM_ZERO:
        zero = args[0].zero
        return Known(np.full(zero.shape, FROM_ZERO[function], _wide(dtype)), zero, data)
    if function == "round":
        (arg,) = args
        small = arg.known & (np.abs(arg.value) < 2.0**22)
        value = np.where(small, arg.value, 0)
        return Known(np.copysign(np.floor(np.abs(value) + 0.5), value), small, data)
    rule = EXACT.get(function)
    if rule is None:
        return Known(UNKNOWN.value, UNKNOWN.known, data)
    if len(args) == 2:
        args = list(_level(*args))
    known = args[0].known if len(args) == 1 else args[0].known & args[1].known
    with np.errstate(all="ignore"):
        return stored(Known(rule(*(arg.value for arg in args)), np.asarray(known), data), dtype)


def converted(value: Known, source: DType, target: DType, mode: str) -> Known:
    nothing = Known(UNKNOWN.value, UNKNOWN.known, value.data)
    if mode not in ("wrap", "saturate") or not (computes(source) and computes(target)):
        return nothing
    with np.errstate(all="ignore"):
        if target is DType.BOOL:
            return Known(value.value != 0, value.known, value.data)
        if not target.is_int:
            return stored(value, target)
        whole = value.value
        if source.is_float:
            sane = np.where(np.isnan(whole), 0, np.clip(whole, -(2.0**62), 2.0**62))
            exact = np.abs(sane) < 2.0**62
            whole = np.trunc(sane.astype(np.float64)).astype(np.int64)
            value = Known(whole, value.known & exact, value.data)
        if mode == "saturate":
            value = Known(np.clip(whole.astype(np.int64), *target.limits), value.known, value.data)
    return stored(value, target)
