# SPDX-License-Identifier: Apache-2.0
"""Operators that work element by element."""

from __future__ import annotations

from functools import reduce

from onnx import TensorProto

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results, direct, dtype_of
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import ONE
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    "Dropout": "inference only",
}

UNARY = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
    "Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil", "Round": "round_even",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid", "Relu": "relu", "Not": "logical_not",
    "BitwiseNot": "bitwise_not", "Softplus": "softplus", "Softsign": "softsign", "Mish": "mish",
    "IsNaN": "is_nan", "HardSwish": "hard_swish",
}  # fmt: skip

BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
}  # fmt: skip


def _binary(op: str) -> Handler:
    return lambda node: node.emit(op, node.arg(0), _aligned(node))


def _aligned(node: Node) -> Var:
    """The second operand. Before version 7 it might lie along any axes of the first."""
    x, y = node.arg(0), node.arg(1)
    if node.opset >= 7:
        return y
    if not node.attr("broadcast", 0):
        if x.type.rank != y.type.rank:
            raise ModelError(f"without `broadcast`, {y.type} must have the shape of {x.type}")
        for left, right in zip(x.type.shape, y.type.shape, strict=True):
            node.require_equal(left, right, "sizes without broadcasting")
        return y
    if not node.has("axis"):
        return y
    after = x.type.rank - normal_axis(int(node.attr("axis")), x.type.rank) - y.type.rank
    if after < 0:
        raise ModelError(f"{y.type} does not lie along axis {node.attr('axis')} of {x.type}")
    return node.reshape(y, (*y.type.shape, *[ONE] * after))


def _prelu(node: Node) -> Results:
    """Before version 7 a vector of slopes is one per channel."""
    x, slope = node.arg(0), node.arg(1)
    if node.opset < 7 and slope.type.rank == 1 and x.type.rank > 2 and slope.type.shape[0] != ONE:
        node.require_equal(x.type.shape[1], slope.type.shape[0], "one slope per channel")
        slope = node.reshape(slope, (*slope.type.shape, *[ONE] * (x.type.rank - 2)))
    return node.emit("prelu", x, slope)


def _selu(node: Node) -> Results:
    exact = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}
    defaults = exact if node.opset >= 6 else {"alpha": 1.6732, "gamma": 1.0507}
    return direct("selu", **defaults)(node)


def _variadic(op: str) -> Handler:
    return lambda node: reduce(lambda x, y: node.emit(op, x, y), node.args())


def _mean(node: Node) -> Results:
    args = node.args()
    total = reduce(lambda x, y: node.emit("add", x, y), args)
    return node.emit("div", total, node.scalar(len(args), total))


def _dropout(node: Node) -> Results:
    """Nothing is dropped, so the mask says that all is kept; before version 12 it has no meaning,
    and is zero in ONNX Runtime."""
    x = node.arg(0)
    if node.optional(2) is not None and node.array(2).any():
        raise Refused("training mode is not supported; export the model for inference")
    if node.requested[1:] != [True]:
        return x
    kind = DType.BOOL if node.opset >= 10 else x.type.dtype
    return x, node.emit("fill", shape=x.type.shape, value=node.opset >= 12, dtype=kind)


def _clip(node: Node) -> Results:
    x = node.arg(0)
    limits: list[Var | None] = [node.optional(1), node.optional(2)]
    if node.opset < 11:
        limits = [
            node.scalar(node.attr(name), x) if node.has(name) else None for name in ("min", "max")
        ]
    return node.emit("clip", x, *limits) if any(limits) else x


def _cast(node: Node) -> Results:
    to = node.required("to")
    if isinstance(to, str):
        # Before version 6.
        to = dict(TensorProto.DataType.items()).get(to, 0)
    return _converted(node, dtype_of(to, "attribute 'to'"))


def _converted(node: Node, to: DType) -> Var:
    """Only floats of a byte saturate, and only powers of two are told how to round."""
    x = node.arg(0)
    if not to.is_stored_float:
        return node.cast(x, to)
    rounding = {"rounding": node.attr("round_mode", "up")} if to is DType.F8E8M0 else {}
    saturate = bool(node.attr("saturate", 1))
    return x if x.type.dtype is to else node.emit("cast", x, to=to, saturate=saturate, **rounding)


def _bit_cast(node: Node) -> Results:
    x, to = node.arg(0), dtype_of(node.required("to"), "attribute 'to'")
    return x if x.type.dtype is to else node.emit("bit_cast", x, to=to)


def _cast_like(node: Node) -> Results:
    return _converted(node, node.arg(1).type.dtype)


def _pow(node: Node) -> Results:
    """The result has the base's type, whatever the exponent's."""
    base, exponent = node.arg(0), _aligned(node)
    kind = base.type.dtype
    if node.number(1) == 2.0 and exponent.type.rank <= base.type.rank:
        return node.emit("mul", base, base)
    if kind.is_int and exponent.type.dtype.is_float:
        # Every integer up to 2^53 is exact in double precision.
        wide = node.cast(base, DType.F64), node.cast(exponent, DType.F64)
        return node.cast(node.emit("pow", *wide), kind)
    return node.emit("pow", base, node.cast(exponent, kind))


def _mod(node: Node) -> Results:
    x, y = node.arg(0), node.arg(1)
    if node.attr("fmod", 0):
        return node.emit("fmod", x, y)
    if not x.type.dtype.is_float:
        return node.emit("mod", x, y)
    # The remainder of truncation, moved to the divisor's side of zero.
    rest, zero = node.emit("fmod", x, y), node.scalar(0, x)
    apart = node.emit("logical_xor", node.emit("less", rest, zero), node.emit("less", y, zero))
    moved = node.emit("where", apart, node.emit("add", rest, y), rest)
    # A remainder of zero has the divisor's sign, too.
    signed = node.emit("where", node.emit("less", y, zero), node.scalar(-0.0, x), zero)
    return node.emit("where", node.emit("equal", rest, zero), signed, moved)


def _shift(node: Node) -> Results:
    left = node.required("direction") == "LEFT"
    return node.emit("shift_left" if left else "shift_right", node.arg(0), node.arg(1))


HANDLERS: dict[str, Handler] = {
    **{name: direct(op) for name, op in UNARY.items()},
    **{name: _binary(op) for name, op in BINARY.items()},
    "LeakyRelu": direct("leaky_relu", alpha=0.01),
    "Elu": direct("elu", alpha=1.0),
    "Celu": direct("celu", alpha=1.0),
    "ThresholdedRelu": direct("thresholded_relu", alpha=1.0),
    "HardSigmoid": direct("hard_sigmoid", alpha=0.2, beta=0.5),
    "Gelu": direct("gelu", approximate="none"),
    "Shrink": direct("shrink", lambd=0.5, bias=0.0),
    "Swish": direct("swish", alpha=1.0),
    "PRelu": _prelu,
    "Selu": _selu,
    "Sum": _variadic("add"),
    "Max": _variadic("max"),
    "Min": _variadic("min"),
    "Mean": _mean,
    "Where": direct("where", "xxx"),
    "Identity": lambda node: node.arg(0),
    "Dropout": _dropout,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
    "BitCast": _bit_cast,
    "Pow": _pow,
    "Mod": _mod,
    "BitShift": _shift,
    "IsInf": direct("is_inf", detect_negative=True, detect_positive=True),
}
