# SPDX-License-Identifier: Apache-2.0
"""Scalar arithmetic of the loop level on Python numbers, with the bits that C computes.

Integers are Python ints that wrap at their width; `f32` and half-precision values are NumPy
float32 scalars, `f64` float64 ones. Half-precision values are computed in `f32` and rounded
when stored. A scalar function is computed in double precision and rounded once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.types import DType
from relax_aot.ops._fixed_gates import fixed_sigmoid, fixed_tanh
from relax_aot.ops._gates import gate_sigmoid, gate_tanh
from relax_aot.ops._narrow import narrowed

Array = NDArray[Any]
Value = Any
"""A Python int or bool, or a NumPy float32 or float64."""

EXACT_IN_DOUBLE = 2**53
LAST_BIT = 1


def number(value: Value, dtype: DType) -> Value:
    """A number as a kernel computes with it."""
    if dtype is DType.BOOL:
        return bool(value)
    if dtype.is_int or dtype.is_stored_int:
        return int(value)
    return np.float64(value) if dtype is DType.F64 else np.float32(value)


def values_of(array: Array, dtype: DType) -> list[Value]:
    """The elements of an array as numbers, in row-major order."""
    flat = array.reshape(-1)
    if dtype in (DType.F32, DType.F64):
        return list(flat)
    if dtype.is_int or dtype is DType.BOOL:
        found: list[Value] = flat.tolist()
        return found
    return [number(value, dtype) for value in flat]


def array_of(values: Sequence[Value], dtype: DType) -> Array:
    """The inverse of `values_of`, as a flat array."""
    if dtype.is_int or dtype in (DType.F32, DType.F64, DType.BOOL):
        return np.array(values, dtype.numpy)
    return np.array([dtype.numpy.type(value) for value in values], dtype.numpy)


def stored(dtype: DType) -> Callable[[Value], Value] | None:
    """The rounding of a value that is stored; None where a store keeps every value."""
    if dtype.is_int or dtype.is_stored_int or dtype in (DType.F32, DType.F64, DType.BOOL):
        return None
    kind = dtype.numpy.type
    return lambda value: np.float32(kind(value))


# Integers


def wrap(value: int, dtype: DType) -> int:
    bits = dtype.bits
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if dtype.is_signed and low >> (bits - 1) else low


def quotient(a: int, b: int) -> int:
    """Truncated; 0 for a divisor of 0."""
    if b == 0:
        return 0
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def remainder(a: int, b: int) -> int:
    """With the sign of the divisor; 0 for a divisor of 0."""
    return a % b if b else 0


def truncated_remainder(a: int, b: int) -> int:
    """With the sign of the dividend; 0 for a divisor of 0."""
    return a - b * quotient(a, b) if b else 0


def shifted_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def shifted_right(a: int, b: int, bits: int) -> int:
    """Beyond the width nothing but the sign is left, as in NumPy and in the C."""
    if 0 <= b < bits:
        return a >> b
    return -1 if a < 0 else 0


def power(a: int, b: int, dtype: DType) -> int:
    if b >= 0:
        return wrap(pow(a, b, 1 << 64), dtype)
    return 1 if a == 1 or (a == -1 and b % 2 == 0) else -int(a == -1)


# Floating-point functions


def maximum(a: Value, b: Value) -> Value:
    """NaN where either is NaN; of equal zeros the second, as in C."""
    return a if a > b or a != a else b  # NaN alone differs from itself


def minimum(a: Value, b: Value) -> Value:
    return a if a < b or a != a else b  # NaN alone differs from itself


FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": math.erf, "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x) if abs(x) < 2.0**52 else x,
    "pow": np.power, "fmod": np.fmod, "gate_sigmoid": gate_sigmoid, "gate_tanh": gate_tanh,
}  # fmt: skip
FIXED_FUNCTIONS: dict[str, Callable[[int], int]] = {
    "fixed_sigmoid": lambda x: int(fixed_sigmoid(np.asarray(x))),
    "fixed_tanh": lambda x: int(fixed_tanh(np.asarray(x))),
}
"""Of 32-bit integers."""
PREDICATES: dict[str, Callable[[Value], Any]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "signbit": np.signbit,
}


def float_function(function: str, dtype: DType) -> Callable[..., Value]:
    """Computed in double and rounded once: what a perfect C library would give."""
    if function in PREDICATES:
        predicate = PREDICATES[function]
        return lambda value: bool(predicate(value))
    exact = FLOAT_FUNCTIONS[function]
    rounded = np.float64 if dtype is DType.F64 else np.float32
    return lambda *values: rounded(exact(*map(np.float64, values)))


def fused(a: Value, b: Value, c: Value) -> Value:
    """a * b + c in single precision, rounded once.

    The product is exact in double precision. A sum that is not is rounded to odd, so that the
    second rounding has the effect of the only one (Boldo and Melquiond, 2008).
    """
    product, addend = float(a) * float(b), float(c)
    total = product + addend
    if not math.isfinite(total):
        return np.float32(total)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    if error:
        bits = struct.unpack("<q", struct.pack("<d", total))[0]
        if not bits & LAST_BIT:
            bits += 1 if (error > 0) == (total > 0) else -1
            total = struct.unpack("<d", struct.pack("<q", bits))[0]
    return np.float32(total)


def separate(a: Value, b: Value, c: Value) -> Value:
    """a * b + c in single precision, rounded twice."""
    return np.float32(np.float32(a) * np.float32(b) + np.float32(c))


def fused_double(a: Value, b: Value, c: Value) -> Value:
    if not all(np.isfinite(v) for v in (a, b, c)) or a * b + c == 0:
        return np.float64(a * b + c)
    return np.float64(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))


# Conversions


def converted(value: Value, source: DType, target: DType, mode: str) -> Value:
    if mode == "bits":
        return number(np.array(value, source.numpy).view(target.numpy)[()], target)
    if target is DType.BOOL:
        return bool(value != 0)
    if target.is_stored_float:
        return number(narrowed(np.float32(value), target, mode), target)
    if target.is_int or target.is_stored_int:
        fractional = source.is_float or source.is_stored_float
        whole = _whole(value, target, mode) if fractional else int(value)
        if mode == "saturate":
            low, high = target.limits
            return max(low, min(whole, high))
        return wrap(whole, target)
    rounded = np.float64 if target is DType.F64 else np.float32
    exact = not (source.is_int or source.is_stored_int) or (
        -EXACT_IN_DOUBLE <= value <= EXACT_IN_DOUBLE
    )
    # A large Python int would be rounded twice; the integer type of its own is exact.
    single = rounded(value) if exact else np.array(value, source.numpy).astype(rounded)[()]
    return single if target in (DType.F32, DType.F64) else number(target.numpy.type(single), target)


def _whole(value: Value, target: DType, mode: str) -> int:
    """Truncated; NaN is 0. What wraps saturates to 64 bits first, as in `convert.h`."""
    if value != value:  # NaN alone differs from itself
        return 0
    low, high = target.limits
    if mode == "wrap":
        low, high = DType.I64.limits[0], max(high, DType.I64.limits[1])
    if math.isinf(value):
        return high if value > 0 else low
    return max(low, min(int(value), high))
