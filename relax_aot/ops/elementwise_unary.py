# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops with one operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, isinf, sqrt
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, dim_max
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Buffer,
    Expr,
    Lit,
    Load,
    Operand,
    Select,
    Unary,
    apply,
    as_expr,
    binary,
)
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Range, Sample, Trait, require

Formula = Callable[..., Operand]


def _unary(
    name: str,
    formula: Formula,
    reference: Callable[..., Array],
    *,
    kinds: str = "f",
    result: DType | None = None,
    inputs: Callable[[np.random.Generator], list[Array]] | None = None,
    attrs: dict[str, Any] | None = None,
    symbolic: Callable[..., Array | None] | None = None,
    values: Mapping[str, Sequence[str]] | None = None,
    traits: Trait = Trait.NONE,
    value_range: Callable[..., Range] | None = None,
) -> Op:
    """`kinds`: f float, i signed, u unsigned, b bool."""

    def deduce(x: TensorType, **_attrs: Any) -> TensorType:
        kind = "f" if x.dtype.is_float else "b" if x.dtype is DType.BOOL else _int_kind(x.dtype)
        require(kind in kinds, f"{name} does not take {x}")
        return TensorType(result or x.dtype, x.shape)

    def lower(k: KernelBuilder, x: Buffer, y: Buffer, **given: Any) -> None:
        with k.loops(*y.shape) as at:
            k.store(y[at], formula(x[at], **given))

    def meaning(x: Array, **given: Any) -> Array:
        with np.errstate(all="ignore"):
            value = np.asarray(reference(x, **given))
        return value if result else value.astype(x.dtype)

    def samples(rng: np.random.Generator) -> list[Sample]:
        arrays = inputs(rng) if inputs else _usual(rng, kinds)
        return [Sample((a,), attrs or {}) for a in arrays]

    return Op(
        name, deduce, lower, meaning, samples, symbolic=symbolic, rules=(formula,),
        values=values or {}, traits=traits, value_range=value_range,
    )  # fmt: skip


def _int_kind(dtype: DType) -> str:
    return "i" if dtype.is_signed else "u"


def _usual(rng: np.random.Generator, kinds: str) -> list[Array]:
    arrays: list[Array] = []
    if "f" in kinds:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5], np.float32)
        arrays += [rng.normal(size=(3, 5)).astype(np.float32), special]
        arrays += [np.zeros((0, 3), np.float32), np.array(rng.normal(size=()), np.float32)]
    if "i" in kinds:
        arrays += [rng.integers(-100, 100, (2, 3)).astype(t) for t in (np.int8, np.int32, np.int64)]
    if "u" in kinds:
        arrays.append(rng.integers(0, 200, (4,)).astype(np.uint8))
    if "b" in kinds:
        arrays.append(rng.integers(0, 2, (7,)).astype(np.bool_))
    return arrays


def _positive(rng: np.random.Generator) -> list[Array]:
    return [rng.uniform(0.01, 20, (3, 7)).astype(np.float32), np.zeros((0,), np.float32)]


def _inner(rng: np.random.Generator) -> list[Array]:
    return [rng.uniform(-0.99, 0.99, (3, 7)).astype(np.float32)]


def _above_one(rng: np.random.Generator) -> list[Array]:
    return [rng.uniform(1.01, 20, (3, 7)).astype(np.float32)]


def _call(function: str) -> Formula:
    return lambda x: apply(function, x)


def _sign(x: Load) -> Expr:
    one = Lit(1.0 if x.dtype.is_float else 1, x.dtype)
    zero = Lit(0.0 if x.dtype.is_float else 0, x.dtype)
    minus = Unary("-", one) if x.dtype.is_float or x.dtype.is_signed else zero
    rest: Expr = Select(binary("<", x, zero), minus, x)
    return Select(binary("<", zero, x), one, rest)


def _softplus(x: Load) -> Operand:
    # log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|)).
    return apply("max", x, 0.0) + apply("log1p", apply("exp", -apply("abs", x)))


def _select(condition: Expr, then: Operand, otherwise: Operand, dtype: DType) -> Select:
    return Select(condition, as_expr(then, dtype), as_expr(otherwise, dtype))


def _leaky_relu(x: Load, *, alpha: float = 0.01) -> Operand:
    return _select(x < 0.0, x * alpha, x, x.dtype)


def _elu(x: Load, *, alpha: float = 1.0) -> Operand:
    return _select(x < 0.0, apply("expm1", x) * alpha, x, x.dtype)


def _celu(x: Load, *, alpha: float = 1.0) -> Operand:
    return _select(x < 0.0, apply("expm1", x / alpha) * alpha, x, x.dtype)


def _selu(x: Load, *, alpha: float, gamma: float) -> Operand:
    return _select(x < 0.0, apply("expm1", x) * alpha, x, x.dtype) * gamma


def _hard_sigmoid(x: Load, *, alpha: float = 0.2, beta: float = 0.5) -> Operand:
    return apply("max", apply("min", x * alpha + beta, 1.0), 0.0)


def _shrink(x: Load, *, lambd: float = 0.5, bias: float = 0.0) -> Operand:
    below = _select(x < -lambd, x + bias, 0.0, x.dtype)
    return _select(x > lambd, x - bias, below, x.dtype)


def _np_shrink(x: Array, *, lambd: float = 0.5, bias: float = 0.0) -> Array:
    return np.where(x > lambd, x - bias, np.where(x < -lambd, x + bias, 0))


def _gelu(x: Load, *, approximate: str = "none") -> Operand:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * 0.7978845608028654
        return x * 0.5 * (apply("tanh", inner) + 1.0)
    return x * 0.5 * (apply("erf", x * 0.7071067811865476) + 1.0)


def _erf(x: Array) -> Array:
    from math import erf

    return np.asarray(np.vectorize(erf, otypes=[np.float64])(x.astype(np.float64)))


def _is_inf(x: Load, *, detect_negative: bool = True, detect_positive: bool = True) -> Expr:
    infinite = Apply("isinf", (x,))
    if detect_negative and detect_positive:
        return infinite
    if not (detect_negative or detect_positive):
        return Lit(False, DType.BOOL)
    side = x > 0.0 if detect_positive else x < 0.0
    return Binary("&&", infinite, side)


def _np_isinf(x: Array, *, detect_negative: bool = True, detect_positive: bool = True) -> Array:
    return (np.isposinf(x) & detect_positive) | (np.isneginf(x) & detect_negative)


def _np64(function: Callable[..., Array]) -> Callable[..., Array]:
    """The reference in double precision, whatever the element type."""
    return lambda x, **attrs: function(x.astype(np.float64), **attrs)


def _relu(x: Load) -> Operand:
    return apply("max", x, 0.0 if x.dtype.is_float else 0)


def _round_away(x: Array) -> Array:
    """Halves away from 0, as round of C."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def _not_symbolic(_bounds: object, x: Array) -> Array:
    opposite = {"==": "!=", "!=": "=="}

    def flip(value: Any) -> Any:
        if not isinstance(value, Condition):
            return not value
        if value.relation in opposite:
            return Condition(opposite[value.relation], value.left, value.right, value.origin)
        # not (left <= right) is right + 1 <= left.
        return Condition("<=", value.right + 1, value.left, value.origin)

    return np.array([flip(v) for v in x.flat] + [None], object)[:-1].reshape(x.shape)


def _plain_symbolic(function: Callable[[Any], Any]) -> Callable[..., Array]:
    def symbolic(_bounds: object, x: Array) -> Array:
        return np.array([function(v) for v in x.flat] + [None], object)[:-1].reshape(x.shape)

    return symbolic


def _minus(value: Any) -> Any:
    return -value if isinstance(value, Dim) else -int(value)


def _magnitude(value: Any) -> Any:
    return dim_max(value, -value) if isinstance(value, Dim) else abs(int(value))


_SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}

JUMPS = Trait.EXACT | Trait.DISCONTINUOUS

OPS = (
    _unary("abs", _call("abs"), np.abs, kinds="fiu",
           value_range=lambda a: (0.0, max(map(abs, a))),
           symbolic=_plain_symbolic(_magnitude), traits=Trait.EXACT | Trait.POSITIVE),
    _unary("neg", lambda x: Unary("-", x), np.negative, kinds="fi",
           value_range=lambda a: (-a[1], -a[0]),
           symbolic=_plain_symbolic(_minus), traits=Trait.EXACT),
    _unary("sign", _sign, np.sign, kinds="fiu", value_range=lambda _a: (-1.0, 1.0), traits=JUMPS),
    _unary("exp", _call("exp"), _np64(np.exp), traits=Trait.POSITIVE),
    _unary("log", _call("log"), _np64(np.log), inputs=_positive),
    _unary("sqrt", _call("sqrt"), _np64(np.sqrt), inputs=_positive,
           value_range=lambda a: (sqrt(max(a[0], 0.0)), sqrt(max(a[1], 0.0))),
           traits=Trait.POSITIVE),
    _unary("reciprocal", lambda x: 1.0 / x, np.reciprocal, inputs=_positive),
    _unary("floor", _call("floor"), np.floor, value_range=lambda a: (a[0] - 1, a[1]), traits=JUMPS),
    _unary("ceil", _call("ceil"), np.ceil,
           value_range=lambda a: (a[0], a[1] if isinf(a[1]) else ceil(a[1])), traits=JUMPS),
    _unary("round_even", _call("rint"), np.rint,
           value_range=lambda a: (a[0] - 1, a[1] + 1), traits=JUMPS),
    _unary("round_away", _call("round"), _round_away, traits=JUMPS),
    _unary("sin", _call("sin"), _np64(np.sin)),
    _unary("cos", _call("cos"), _np64(np.cos)),
    _unary("tan", _call("tan"), _np64(np.tan), inputs=_inner),
    _unary("asin", _call("asin"), _np64(np.arcsin), inputs=_inner),
    _unary("acos", _call("acos"), _np64(np.arccos), inputs=_inner),
    _unary("atan", _call("atan"), _np64(np.arctan)),
    _unary("sinh", _call("sinh"), _np64(np.sinh)),
    _unary("cosh", _call("cosh"), _np64(np.cosh)),
    _unary("tanh", _call("tanh"), _np64(np.tanh), value_range=lambda _a: (-1.0, 1.0)),
    _unary("asinh", _call("asinh"), _np64(np.arcsinh)),
    _unary("acosh", _call("acosh"), _np64(np.arccosh), inputs=_above_one),
    _unary("atanh", _call("atanh"), _np64(np.arctanh), inputs=_inner),
    _unary("erf", _call("erf"), _erf),
    _unary("sigmoid", _call("sigmoid"), _np64(lambda x: 1 / (1 + np.exp(-x))),
           value_range=lambda _a: (0.0, 1.0), traits=Trait.POSITIVE),
    _unary("relu", _relu, lambda x: np.maximum(x, 0), kinds="fi",
           traits=Trait.EXACT | Trait.POSITIVE),
    _unary("logical_not", lambda x: Unary("!", x), np.logical_not, kinds="b",
           symbolic=_not_symbolic),
    _unary("bitwise_not", lambda x: binary("^", x, -1 if x.dtype.is_signed
                                           else 2 ** (8 * x.dtype.bytes) - 1),
           np.bitwise_not, kinds="iu"),
    _unary("softplus", _softplus, _np64(lambda x: np.logaddexp(x, 0)), traits=Trait.POSITIVE),
    _unary("softsign", lambda x: x / (apply("abs", x) + 1.0), _np64(lambda x: x / (1 + np.abs(x))),
           inputs=_inner),
    _unary("mish", lambda x: x * apply("tanh", _softplus(x)),
           _np64(lambda x: x * np.tanh(np.logaddexp(x, 0))), inputs=_inner),
    _unary("is_nan", _call("isnan"), np.isnan, result=DType.BOOL),
    _unary("is_inf", _is_inf, _np_isinf, result=DType.BOOL),
    _unary("leaky_relu", _leaky_relu, lambda x, alpha=0.01: np.where(x < 0, alpha * x, x),
           attrs={"alpha": 0.1}),
    _unary("elu", _elu, _np64(lambda x, alpha=1.0: np.where(x < 0, alpha * np.expm1(x), x)),
           attrs={"alpha": 0.7}),
    _unary("celu", _celu,
           _np64(lambda x, alpha=1.0: np.where(x < 0, alpha * np.expm1(x / alpha), x)),
           attrs={"alpha": 0.7}),
    _unary("selu", _selu,
           _np64(lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(x), x)),
           attrs=_SELU),
    _unary("thresholded_relu", lambda x, *, alpha=1.0: _select(x > alpha, x, 0.0, x.dtype),
           lambda x, alpha=1.0: np.where(x > alpha, x, 0), attrs={"alpha": 0.5}),
    _unary("hard_sigmoid", _hard_sigmoid,
           _np64(lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1)),
           attrs={"alpha": 0.3, "beta": 0.4}),
    _unary("hard_swish", lambda x: x * _hard_sigmoid(x, alpha=1 / 6, beta=0.5),
           _np64(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)), inputs=_inner),
    _unary("shrink", _shrink, _np_shrink, attrs={"lambd": 0.4, "bias": 0.3}),
    _unary("swish", lambda x, *, alpha=1.0: x * apply("sigmoid", x if alpha == 1.0 else x * alpha),
           _np64(lambda x, alpha=1.0: x / (1 + np.exp(-alpha * x))), attrs={"alpha": 1.7}),
    _unary("gelu", _gelu, _np64(
               lambda x, approximate="none": x * 0.5 * (1 + _erf(x / np.sqrt(2)))
               if approximate == "none" else x * 0.5 * (1 + np.tanh(0.7978845608028654
                                                                    * (x + 0.044715 * x**3)))),
           inputs=_inner, attrs={"approximate": "tanh"}, values={"approximate": ("none", "tanh")}),
)  # fmt: skip
