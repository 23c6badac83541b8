# SPDX-License-Identifier: Apache-2.0
"""Ranges of numbers, and the arithmetic of kernels on them (interval arithmetic).

A number is known where its range is one number. Numbers of which nothing is known are taken for
finite: zero times any of them is zero (decision 0035).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.loops import LOGICAL
from relax_aot.ir.types import DType
from relax_aot.ops._gates import gate_sigmoid
from relax_aot.ops._op import Array

SAFE = 1 << 62
"""Integers beyond this are not computed in int64, unless they are known and wrap."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The least and the greatest value of each number: two arrays that broadcast, the same object
    where all numbers are known. Integers are int64, floats float32 or float64. What is unknown
    depends on `data`, or on sizes and positions alone."""

    low: Array
    high: Array
    data: bool = True

    @property
    def exact(self) -> bool:
        return self.low is self.high

    @property
    def value(self) -> Array:
        """The number, where it is known."""
        return self.low

    @property
    def known(self) -> Array:
        if self.exact:
            return np.ones((1,) * self.low.ndim, np.bool_)
        return np.asarray((self.low == self.high) | (_nan(self.low) & _nan(self.high)))

    def tells(self, dtype: DType) -> bool:
        """Whether anything is known that the type does not say."""
        low, high = _limits(dtype)
        return computes(dtype) and bool((self.low != low).any() or (self.high != high).any())

    @property
    def zero(self) -> Array:
        """Where the number is known to be 0."""
        return np.asarray((self.low == 0) & (self.high == 0))

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.low.shape, self.high.shape)

    def each(self, rule: Callable[[Array], Array]) -> Known:
        """With both arrays moved or indexed alike."""
        low = rule(self.low)
        return replace(self, low=low, high=low if self.exact else rule(self.high))

    def deep(self, rank: int) -> Known:
        """With trailing axes of size 1."""
        return self.each(lambda array: _deep(array, rank))

    def hull(self) -> Known:
        """One range for all numbers; infinite where one of them is not a number."""
        low, high = np.asarray(self.low.min()), np.asarray(self.high.max())
        return ANYTHING if strange(low, high) else Known(low, high, self.data)


def _deep(array: Array, rank: int) -> Array:
    return array.reshape(array.shape + (1,) * (rank - array.ndim))


def _nan(array: Array) -> Array:
    return np.asarray(array != array)


def strange(low: Array, high: Array) -> Array:
    """Where one of two numbers is none."""
    return np.asarray(_nan(low) | _nan(high))


def computes(dtype: DType) -> bool:
    """Whether numbers of a type are computed here."""
    return dtype.is_float or dtype is DType.BOOL or (dtype.is_int and dtype is not DType.U64)


def _wide(dtype: DType) -> type:
    if dtype is DType.F64:
        return np.float64
    if dtype.is_float:
        return np.float32
    return np.bool_ if dtype is DType.BOOL else np.int64


ANYTHING = Known(np.asarray(-np.inf), np.asarray(np.inf))
"""A number of a type that is not computed here."""


def anything(dtype: DType, data: bool = True) -> Known:
    """Any number of a type."""
    if not computes(dtype):
        return ANYTHING
    low, high = _limits(dtype)
    return Known(np.asarray(low, _wide(dtype)), np.asarray(high, _wide(dtype)), data)


def _limits(dtype: DType) -> tuple[float, float]:
    if dtype.is_float:
        return -np.inf, np.inf
    return (False, True) if dtype is DType.BOOL else dtype.limits


def exactly(array: Array, dtype: DType) -> Known:
    if not computes(dtype):
        return ANYTHING
    value: Array = np.asarray(array).astype(_wide(dtype))
    return Known(value, value, data=False)


def where(known: Array, values: Known, dtype: DType) -> Known:
    """The given numbers where they are `known`, and any others elsewhere."""
    other = anything(dtype)
    low = np.where(known, values.low, other.low)
    return Known(low, np.where(known, values.high, other.high), values.data)


def stored(value: Known, dtype: DType) -> Known:
    """As a buffer keeps it: known integers wrap, floats are rounded."""
    if not computes(dtype):
        return ANYTHING
    with np.errstate(all="ignore"):
        kept = value.each(lambda array: array.astype(dtype.numpy).astype(_wide(dtype)))
    if value.exact or not value.low.size:
        return kept
    if dtype.is_int:
        low, high = dtype.limits
        outside = np.asarray((value.low < low) | (value.high > high))
    else:
        outside = strange(kept.low, kept.high)
    return where(~outside | value.known, kept, dtype) if outside.any() else kept


def either(a: Known, b: Known) -> Known:
    """What holds of both."""
    a, b = _level(a, b)
    low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
    mixed = strange(low, high) & ~(_nan(a.low) & _nan(b.low))
    if mixed.any():
        low, high = np.where(mixed, -np.inf, low), np.where(mixed, np.inf, high)
    return Known(low, high, a.data or b.data)


def chosen(condition: Known, a: Known, b: Known) -> Known:
    rank = max(len(part.shape) for part in (condition, a, b))
    condition, a, b = (part.deep(rank) for part in (condition, a, b))
    both = either(a, b)
    always, never = condition.low.astype(np.bool_), ~condition.high.astype(np.bool_)
    low = np.where(always, a.low, np.where(never, b.low, both.low))
    high = np.where(always, a.high, np.where(never, b.high, both.high))
    return Known(low, high, condition.data or a.data or b.data)


def _level(a: Known, b: Known) -> tuple[Known, Known]:
    rank = max(len(a.shape), len(b.shape))
    return a.deep(rank), b.deep(rank)


def combined(op: str, a: Known, b: Known, dtype: DType) -> Known:
    """A binary operator on operands of one type; `dtype` is that of the result."""
    a, b = _level(a, b)
    data = a.data or b.data
    if op in COMPARISONS:
        return replace(COMPARISONS[op](a, b), data=data)
    rule = OPERATORS.get(op)
    if rule is None or not computes(dtype):
        return replace(anything(dtype), data=data)
    if a.exact and b.exact:
        with np.errstate(all="ignore"):
            value: Array = np.asarray(rule(a.low, b.low))
        return stored(Known(value, value, data), dtype)
    return replace(_ranged(op, rule, a, b, dtype), data=data)


def _ranged(
    op: str, rule: Callable[[Array, Array], Array], a: Known, b: Known, dtype: DType
) -> Known:
    """The least and the greatest result at the ends of two ranges, where an operator has them
    there."""
    if op in ("+", "-"):
        first, second = (b.low, b.high) if op == "+" else (b.high, b.low)
        ends = [(a.low, first), (a.high, second)]
    elif op in ("<<", ">>"):
        ends = [(a.low, b.low), (a.high, b.low)]
    else:
        ends = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    with np.errstate(all="ignore"):
        results = [rule(x, y) for x, y in ends]
        low, high = results[0], results[-1]
        if len(ends) > 2:
            low, high = results[0], results[0]
            for result in results[1:]:
                low, high = np.fmin(low, result), np.fmax(high, result)
        both = np.asarray(a.known & b.known)
        lost = _lost(op, a, b) | _beyond(op, ends, dtype)
    zero = np.zeros((), np.bool_)
    if op in ("*", "&"):
        zero = a.zero | b.zero
    elif op == "/" and not b.data:
        # Counts of elements, which are not zero where anything is divided by them.
        zero = a.zero & ~b.known
    if dtype.is_float:
        lost = lost | _nan(low) | _nan(high) | (low == np.inf) | (high == -np.inf)
    zero = zero & ~both
    if zero.any():
        low, high = np.where(zero, 0, low), np.where(zero, 0, high)
    lost = lost & ~both & ~zero
    if lost.any():
        least, most = _limits(dtype)
        low, high = np.where(lost, least, low), np.where(lost, most, high)
        low, high = low.astype(_wide(dtype)), high.astype(_wide(dtype))
    if both.any() and op in BITWISE:
        known = rule(a.low, b.low)
        low, high = np.where(both, known, low), np.where(both, known, high)
    return stored(Known(low, high), dtype)


def _lost(op: str, a: Known, b: Known) -> Array:
    """Where the ends of the ranges say nothing of what lies between."""
    if op in ("<<", ">>"):
        return ~b.known
    if op == "/":
        return np.asarray(((b.low <= 0) & (b.high >= 0)) | ((b.low <= -1) & (a.low <= -SAFE)))
    return np.asarray(op in BITWISE or op == "%")


def _beyond(op: str, ends: list[tuple[Array, Array]], dtype: DType) -> Array:
    """Where a result may be too large for int64."""
    if not dtype.is_int or op not in ("+", "-", "*", "<<") or not all(x.size for x, _ in ends):
        return np.zeros((), np.bool_)
    a, b = (max(abs(int(part.min())), abs(int(part.max()))) for part in _sides(ends))
    if (a << min(b, 64) if op == "<<" else a * b if op == "*" else a + b) < SAFE:
        return np.zeros((), np.bool_)
    rule = OPERATORS[op] if op != "<<" else np.ldexp
    sizes = [np.abs(rule(x.astype(np.float64), y if op == "<<" else y.astype(np.float64)))
             for x, y in ends]  # fmt: skip
    beyond = sizes[0] >= SAFE
    for size in sizes[1:]:
        beyond = beyond | (size >= SAFE)
    return np.asarray(beyond)


def _sides(ends: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return (
        np.concatenate([x.reshape(-1) for x, _ in ends]),
        np.concatenate([y.reshape(-1) for _, y in ends]),
    )


def _less(a: Known, b: Known) -> Known:
    return Known(np.asarray(a.high < b.low), np.asarray(a.low < b.high))


def _less_equal(a: Known, b: Known) -> Known:
    return Known(np.asarray(a.high <= b.low), np.asarray(a.low <= b.high))


def _equal(a: Known, b: Known) -> Known:
    same = a.known & b.known & (a.low == b.low)
    return Known(np.asarray(same), np.asarray((a.low <= b.high) & (b.low <= a.high)))


def inverted(a: Known) -> Known:
    return replace(a, low=~a.high.astype(np.bool_), high=~a.low.astype(np.bool_))


def _and(a: Known, b: Known) -> Known:
    return Known(np.asarray(a.low & b.low), np.asarray(a.high & b.high))


def _or(a: Known, b: Known) -> Known:
    return Known(np.asarray(a.low | b.low), np.asarray(a.high | b.high))


COMPARISONS: dict[str, Callable[[Known, Known], Known]] = {
    "<": _less, "<=": _less_equal, "==": _equal, "!=": lambda a, b: inverted(_equal(a, b)),
    "&&": _and, "||": _or,
}  # fmt: skip
assert set(LOGICAL) <= COMPARISONS.keys()


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    by = np.where(b == 0, 1, b)
    whole = a // by
    return np.where(b == 0, 0, whole + ((whole * by != a) & ((a < 0) != (b < 0))))


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))


def _left(a: Array, b: Array) -> Array:
    return np.where((b >= 0) & (b < 64), a << np.clip(b, 0, 63), 0)


def _right(a: Array, b: Array) -> Array:
    return np.where(b >= 0, a >> np.clip(b, 0, 63), np.where(a < 0, -1, 0))


BITWISE = ("&", "|", "^")
OPERATORS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": _quotient, "%": _remainder,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": _left, ">>": _right,
}  # fmt: skip
INCREASING: dict[str, Callable[..., Array]] = {
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "max": np.maximum, "min": np.minimum,
}  # fmt: skip
"""Scalar functions with one correct result, which does not fall where an operand rises."""
FROM_ZERO: dict[str, float] = {
    "sin": 0.0, "tan": 0.0, "asin": 0.0, "atan": 0.0, "sinh": 0.0, "tanh": 0.0, "asinh": 0.0,
    "atanh": 0.0, "erf": 0.0, "expm1": 0.0, "log1p": 0.0, "cos": 1.0, "cosh": 1.0, "exp": 1.0,
    "exp2": 1.0, "sigmoid": 0.5, "gate_tanh": 0.0,
    "fixed_sigmoid": 16384, "fixed_tanh": 0,
    "gate_sigmoid": float(gate_sigmoid(np.zeros(()))),
}  # fmt: skip
"""Of 0, every library computes these functions exactly."""
WHOLE = 2.0**22
"""`round` is computed below this number."""


def applied(function: str, args: list[Known], dtype: DType) -> Known:
    data = any(arg.data for arg in args)
    unknown = replace(anything(dtype), data=data)
    if not computes(dtype):
        return unknown
    first = args[0]
    if function in FROM_ZERO:
        number: Array = np.asarray(FROM_ZERO[function], _wide(dtype))
        return where(first.zero, Known(number, number, data), dtype)
    if function == "abs":
        return stored(replace(_absolute(first, dtype), data=data), dtype)
    if function == "round":
        return replace(_rounded(first, dtype), data=data)
    rule = INCREASING.get(function)
    if rule is None:
        return unknown
    if len(args) == 2:
        args = list(_level(*args))
    with np.errstate(all="ignore"):
        low = rule(*(arg.low for arg in args))
        exact = all(arg.exact for arg in args)
        high = low if exact else rule(*(arg.high for arg in args))
    found = Known(low, high, data)
    lost = strange(low, high)
    if not exact and lost.any():
        both = args[0].known if len(args) == 1 else args[0].known & args[1].known
        found = where(both | ~lost, found, dtype)
    return stored(found, dtype)


def _absolute(x: Known, dtype: DType) -> Known:
    if dtype.is_int and x.low.size and int(x.low.min()) <= -SAFE:
        x = where(x.low > -SAFE, x, dtype)
        return Known(
            np.zeros((), np.int64), np.where(x.low > -SAFE, np.abs(x.high), dtype.limits[1])
        )
    if x.exact:
        value = np.abs(x.low)
        return Known(value, value)
    low = np.maximum(np.maximum(x.low, -x.high), np.zeros((), x.low.dtype))
    return Known(low, np.maximum(np.abs(x.low), np.abs(x.high)))


def _rounded(x: Known, dtype: DType) -> Known:
    """Halves away from zero."""

    def rule(array: Array) -> Array:
        value = np.where(np.abs(array) < WHOLE, array, np.zeros((), array.dtype))
        return np.copysign(np.floor(np.abs(value) + 0.5), value)

    low, high = rule(x.low), rule(x.high)
    low = np.where(np.abs(x.low) < WHOLE, low, -np.inf).astype(low.dtype)
    high = np.where(np.abs(x.high) < WHOLE, high, np.inf).astype(high.dtype)
    return Known(low, high)


def converted(value: Known, source: DType, target: DType, mode: str) -> Known:
    unknown = replace(anything(target), data=value.data)
    if mode not in ("wrap", "saturate") or not (computes(source) and computes(target)):
        return unknown
    with np.errstate(all="ignore"):
        if target is DType.BOOL:
            sure = (value.low > 0) | (value.high < 0) | _nan(value.low)
            return Known(np.asarray(sure), np.asarray(~value.zero), value.data)
        if not target.is_int:
            return stored(value, target)
        if source.is_float:
            value = _truncated(value, target)
        elif source is DType.BOOL:
            value = value.each(lambda array: array.astype(np.int64))
        if mode == "saturate":
            value = value.each(lambda array: np.clip(array, *target.limits))
    return stored(value, target)


def _truncated(value: Known, target: DType) -> Known:
    """Integers below 2^62 of floats; what is not a number is 0, as in the C."""

    def rule(array: Array) -> Array:
        sane = np.where(_nan(array), 0, np.clip(array, -(2.0**62), 2.0**62))
        return np.trunc(sane.astype(np.float64)).astype(np.int64)

    whole = value.each(rule)
    beyond = np.asarray((np.abs(whole.low) >= SAFE) & (np.abs(whole.high) >= SAFE) & value.known)
    return where(~beyond, whole, target) if beyond.any() else whole
