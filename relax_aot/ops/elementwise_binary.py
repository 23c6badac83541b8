# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops with two operands and NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    dim_max,
    dim_min,
    prove,
    simplify,
)
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Load, Operand, Select, apply, as_expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import (
    Array,
    Op,
    Range,
    Sample,
    Trait,
    all_operands,
    broadcast,
    broadcast_conditions,
    is_float,
    require,
    spread,
)
from relax_aot.ops._ranges import corners, ratio
from relax_aot.ops._samples import normals


def _binary(
    name: str,
    formula: Callable[[Load, Load], Operand],
    reference: Callable[[Array, Array], Array],
    *,
    kinds: str = "fiu",
    result: DType | None = None,
    symbolic: Callable[[Bounds, Any, Any], Any] | None = None,
    inputs: Callable[[np.random.Generator], list[tuple[Array, Array]]] | None = None,
    traits: Trait = Trait.NONE,
    value_range: Callable[..., Range] | None = None,
) -> Op:
    def deduce(x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype is y.dtype, f"{name} needs equal element types, got {x} and {y}")
        require(_kind(x.dtype) in kinds, f"{name} does not take {x}")
        return TensorType(result or x.dtype, broadcast(x.shape, y.shape))

    def lower(k: KernelBuilder, x: Buffer, y: Buffer, z: Buffer) -> None:
        with k.loops(*z.shape) as at:
            k.store(z[at], formula(x[spread(at, x.shape)], y[spread(at, y.shape)]))

    def meaning(x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            value = np.asarray(reference(x, y))
        return value if result else value.astype(x.dtype)

    def on_objects(bounds: Bounds, x: Array, y: Array) -> Array | None:
        assert symbolic is not None
        left, right = np.broadcast_arrays(x, y)
        values = [symbolic(bounds, a, b) for a, b in zip(left.flat, right.flat, strict=True)]
        if any(v is None for v in values):
            return None
        return np.array([*values, None], object)[:-1].reshape(left.shape)

    def samples(rng: np.random.Generator) -> list[Sample]:
        pairs = inputs(rng) if inputs else _usual(rng, kinds)
        return [Sample(pair) for pair in pairs]

    return Op(
        name, deduce, lower, meaning, samples,
        conditions=broadcast_conditions, broadcasts=all_operands,
        symbolic=on_objects if symbolic else None,
        traits=traits, value_range=value_range,
    )  # fmt: skip


def _kind(dtype: DType) -> str:
    if dtype.is_float:
        return "f"
    return "b" if dtype is DType.BOOL else "i" if dtype.is_signed else "u"


def _usual(rng: np.random.Generator, kinds: str) -> list[tuple[Array, Array]]:
    pairs: list[tuple[Array, Array]] = []
    if "f" in kinds:
        normal = normals(rng)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)
        pairs += [(normal(3, 5), normal(3, 5)), (normal(2, 1, 4), normal(3, 1))]
        pairs += [(normal(5), normal()), (normal(), normal(7)), (normal(0, 3), normal(3))]
        pairs += [(special, special[::-1].copy())]
    if "i" in kinds:
        for t in (np.int8, np.int32, np.int64):
            a, b = rng.integers(-100, 100, (2, 4, 3)).astype(t)
            pairs.append((a, b))
    if "u" in kinds:
        a, b = rng.integers(0, 250, (2, 5)).astype(np.uint8)
        pairs.append((a, b))
    if "b" in kinds:
        a, b = rng.integers(0, 2, (2, 8)).astype(np.bool_)
        pairs.append((a, b))
    return pairs


def _divisible(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    pairs: list[tuple[Array, Array]] = []
    for t in (np.int8, np.int32, np.int64, np.uint8):
        a = rng.integers(-100, 100, (4, 3)).astype(t)
        b = rng.integers(1, 20, (3,)).astype(t)
        pairs += [(a, b)] + ([(a, np.negative(b).astype(t))] if t is not np.uint8 else [])
    for t in (np.int8, np.int64):
        least = np.iinfo(t).min
        pairs.append((np.array([7, -7, 0, least, least], t), np.array([0, 0, 0, 0, -1], t)))
    return pairs


def _dividing(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    floats = rng.normal(size=(2, 3, 5)).astype(np.float32)
    return [(floats[0], floats[1]), *_divisible(rng)]


def _powers(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    base = rng.uniform(0.1, 4, (3, 5)).astype(np.float32)
    return [
        (base, rng.normal(size=(5,)).astype(np.float32)),
        (rng.normal(size=(4,)).astype(np.float32), np.array(2.0, np.float32)),
        (rng.normal(size=(4,)).astype(np.float32), np.array(3.0, np.float32)),
        (rng.integers(-4, 5, (6,)).astype(np.int32), np.array([3], np.int32)),
        *(
            (np.array([-2, -1, -1, 0, 1, 2], kind), np.array([-1, -1, -2, 3, -5, -3], kind))
            for kind in (np.int8, np.int64)
        ),
    ]


def _power(x: Array, y: Array) -> Array:
    """With a negative exponent an integer's power is truncated; 0 has none, and stays 0."""
    if x.dtype.kind != "i":
        return np.power(x, y)
    power = np.power(x, np.maximum(y, 0))
    minus = np.where(y % 2 == 0, 1, -1)
    below = np.where(x == 1, 1, np.where(x == -1, minus, 0))
    return np.where(y < 0, below, power).astype(x.dtype)


def _shifts(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    return [
        (rng.integers(0, 200, (6,)).astype(t), rng.integers(0, 7, (6,)).astype(t))
        for t in (np.uint8, np.uint32, np.int32)
    ]


def _truncating_divide(x: Array, y: Array) -> Array:
    if is_float(x):
        return np.asarray(np.divide(x, y))
    with np.errstate(all="ignore"):  # the least number divided by -1 wraps around
        divisor = np.where(y == 0, 1, y).astype(y.dtype)
        inexact = (x % divisor != 0) & ((x < 0) != (divisor < 0))
        return np.where(y == 0, 0, x // divisor + inexact).astype(x.dtype)


def _prelu(x: Load, slope: Load) -> Operand:
    return Select(binary("<", x, as_expr(0, x.dtype)), x * slope, x)


def _compare(relation: str) -> Callable[[Bounds, Any, Any], Any]:
    """Decided by the bounds, or a Condition."""

    def symbolic(bounds: Bounds, a: Any, b: Any) -> Any:
        if isinstance(a, Condition) or isinstance(b, Condition):
            return None
        left, right = Dim.of(a), Dim.of(b)
        if relation in ("==", "!="):
            if equal := prove(left, "==", right, bounds):
                return equal.then(relation == "==")
            if differ := prove(left, "<", right, bounds) or prove(right, "<", left, bounds):
                return differ.then(relation == "!=")
            return Condition(relation, left, right)
        if relation == "<":
            right = right - 1
        if holds := prove(left, "<=", right, bounds):
            return holds.then(True)
        fails = prove(right, "<", left, bounds)
        return fails.then(False) if fails else Condition("<=", left, right)

    return symbolic


def _swapped(rule: Callable[[Bounds, Any, Any], Any]) -> Callable[[Bounds, Any, Any], Any]:
    return lambda bounds, a, b: rule(bounds, b, a)


def _sizes(function: Callable[[Dim, Dim], Dim]) -> Callable[[Bounds, Any, Any], Any]:
    def symbolic(_bounds: Bounds, a: Any, b: Any) -> Any:
        if isinstance(a, Condition | float) or isinstance(b, Condition | float):
            return None
        return function(Dim.of(a), Dim.of(b))

    return symbolic


def _divide_sizes(bounds: Bounds, a: Any, b: Any) -> Any:
    """Division truncates: a quotient is that of what is not negative, with its sign."""
    if isinstance(a, Condition | float) or isinstance(b, Condition | float):
        return None
    left, right = Dim.of(a), Dim.of(b)
    divisor = prove(right, "<", 0, bounds)
    if divisor:
        left, right = -left, -right
    divisor = divisor or prove(0, "<", right, bounds)
    if not divisor:
        return None
    if sign := prove(0, "<=", left, bounds):
        return (divisor & sign).then(simplify(left // right, bounds))
    if sign := prove(left, "<=", 0, bounds):
        return (divisor & sign).then(simplify(-(-left // right), bounds))
    return divisor.then(dim_max(left, 0) // right - dim_max(-left, 0) // right)


def _modulo_sizes(bounds: Bounds, a: Any, b: Any) -> Any:
    if isinstance(a, Condition | float) or isinstance(b, Condition | float):
        return None
    positive = prove(0, "<", b, bounds)
    return positive.then(simplify(Dim.of(a) % b, bounds)) if positive else None


def _logical(combine: Callable[[Any, Any], Any]) -> Callable[[Bounds, Any, Any], Any]:
    def symbolic(_bounds: Bounds, a: Any, b: Any) -> Any:
        return combine(a, b)

    return symbolic


def _and(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return b if a is True else a if b is True else None


def _or(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return b if a is False else a if b is False else None


BOOL = DType.BOOL

EXACT = Trait.EXACT | Trait.COMMUTATIVE
JUMPS = Trait.EXACT | Trait.DISCONTINUOUS
SWAPS = Trait.COMMUTATIVE

OPS = (
    _binary("add", lambda x, y: x + y, np.add,
            value_range=lambda a, b: (a[0] + b[0], a[1] + b[1]),
            symbolic=_sizes(lambda a, b: a + b), traits=SWAPS),
    _binary("sub", lambda x, y: x - y, np.subtract,
            value_range=lambda a, b: (a[0] - b[1], a[1] - b[0]),
            symbolic=_sizes(lambda a, b: a - b)),
    _binary("mul", lambda x, y: x * y, np.multiply, value_range=corners(lambda x, y: x * y),
            symbolic=_sizes(lambda a, b: a * b), traits=SWAPS),
    _binary("div", lambda x, y: x / y, _truncating_divide, symbolic=_divide_sizes,
            inputs=_dividing, value_range=ratio),
    _binary("mod", lambda x, y: binary("%", x, y), np.mod, kinds="iu", symbolic=_modulo_sizes,
            inputs=_divisible, traits=Trait.DISCONTINUOUS),
    _binary("fmod", lambda x, y: apply("fmod", x, y), np.fmod, inputs=_dividing, traits=JUMPS),
    _binary("pow", lambda x, y: apply("pow", x, y), _power, inputs=_powers),
    _binary("max", lambda x, y: apply("max", x, y), np.maximum, symbolic=_sizes(dim_max),
            value_range=lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), traits=EXACT),
    _binary("min", lambda x, y: apply("min", x, y), np.minimum, symbolic=_sizes(dim_min),
            value_range=lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), traits=EXACT),
    _binary("prelu", _prelu, lambda x, slope: np.where(x < 0, x * slope, x)),
    _binary("logical_and", lambda x, y: x & y, np.logical_and, kinds="b", symbolic=_logical(_and),
            traits=SWAPS),
    _binary("logical_or", lambda x, y: x | y, np.logical_or, kinds="b", symbolic=_logical(_or),
            traits=SWAPS),
    _binary("logical_xor", lambda x, y: binary("!=", x, y), np.logical_xor, kinds="b",
            traits=SWAPS),
    _binary("bitwise_and", lambda x, y: binary("&", x, y), np.bitwise_and, kinds="iu",
            traits=SWAPS),
    _binary("bitwise_or", lambda x, y: binary("|", x, y), np.bitwise_or, kinds="iu", traits=SWAPS),
    _binary("bitwise_xor", lambda x, y: binary("^", x, y), np.bitwise_xor, kinds="iu",
            traits=SWAPS),
    _binary("shift_left", lambda x, y: binary("<<", x, y), np.left_shift, kinds="iu",
            inputs=_shifts),
    _binary("shift_right", lambda x, y: binary(">>", x, y), np.right_shift, kinds="iu",
            inputs=_shifts),
    _binary("equal", lambda x, y: binary("==", x, y), np.equal, kinds="fiub", result=BOOL,
            symbolic=_compare("=="), traits=SWAPS),
    _binary("less", lambda x, y: x < y, np.less, result=BOOL, symbolic=_compare("<")),
    _binary("less_equal", lambda x, y: x <= y, np.less_equal, result=BOOL,
            symbolic=_compare("<=")),
    _binary("greater", lambda x, y: x > y, np.greater, result=BOOL,
            symbolic=_swapped(_compare("<"))),
    _binary("greater_equal", lambda x, y: x >= y, np.greater_equal, result=BOOL,
            symbolic=_swapped(_compare("<="))),
)  # fmt: skip
