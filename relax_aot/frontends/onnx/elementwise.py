"""Operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relax_aot.frontends.onnx.context import Node, Unsupported, dtype_of
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

Handler = Callable[[Node], Var | tuple[Var, ...]]

LIMITS = {
    "BitShift": "unsigned integers",
    "PRelu": "slope broadcasts to the input",
    "Cast": "element types f16, bf16, f32, f64, 8 to 64-bit integers, bool",
}


def _plain(op: str, **attrs: tuple[str, Any]) -> Handler:
    """A row: the ONNX attribute and its default behind each attribute of ours."""

    def handle(node: Node) -> Var:
        values = {ours: node.attr(theirs, default) for ours, (theirs, default) in attrs.items()}
        return node.emit(op, *node.args(), **values)

    return handle


def _folded(op: str) -> Handler:
    """Operators of any number of arguments."""

    def handle(node: Node) -> Var:
        first, *rest = node.args()
        for other in rest:
            first = node.emit(op, first, other)
        return first if rest else _same(node, first)

    return handle


def _same(node: Node, x: Var) -> Var:
    return node.emit("copy", x)


def _mean(node: Node) -> Var:
    total = node.args()[0]
    for other in node.args()[1:]:
        total = node.emit("add", total, other)
    return node.emit("div", total, node.scalar(node.count, total))


def _alias(node: Node) -> Var:
    return node.arg(0)


def _dropout(node: Node) -> tuple[Var, ...]:
    training = node.number(2)
    if training:
        raise Unsupported("training mode is for training")
    x = node.arg(0)
    if len(node.proto.output) > 1 and node.proto.output[1]:
        mask = node.emit("fill", shape=x.type.shape, value=True, dtype=DType.BOOL)
        return x, mask
    return (x,)


def _clip(node: Node) -> Var:
    x = node.arg(0)
    limits: list[Var | None] = [node.optional(1), node.optional(2)]
    for index, name in enumerate(("min", "max")):
        if node.has(name):
            limits[index] = node.scalar(node.attr(name), x)
    return node.emit("clip", x, *limits)


def _cast(node: Node) -> Var:
    to = dtype_of(node.attr("to"))
    return _cast_to(node, node.arg(0), to)


def _cast_to(node: Node, x: Var, to: DType) -> Var:
    return x if x.type.dtype is to else node.emit("cast", x, to=to, saturate=False)


def _cast_like(node: Node) -> Var:
    return _cast_to(node, node.arg(0), node.arg(1).type.dtype)


def _pow(node: Node) -> Var:
    x, y = node.args()
    exponent = node.number(1)
    if exponent == 2.0:
        return node.emit("mul", x, x)
    if x.type.dtype is y.type.dtype:
        return node.emit("pow", x, y)
    if x.type.dtype.is_int and y.type.dtype.is_float:
        power = node.emit("pow", _cast_to(node, x, y.type.dtype), y)
        return _cast_to(node, power, x.type.dtype)
    return node.emit("pow", x, _cast_to(node, y, x.type.dtype))


def _mod(node: Node) -> Var:
    return node.emit("fmod" if node.attr("fmod", 0) else "mod", *node.args())


def _shift(node: Node) -> Var:
    left = node.attr("direction") == "LEFT"
    return node.emit("shift_left" if left else "shift_right", *node.args())


def _prelu(node: Node) -> Var:
    x, slope = node.args()
    zero = node.scalar(0, x)
    scaled = node.emit("mul", x, slope)
    return node.emit("where", node.emit("less", x, zero), scaled, x)


def _is_inf(node: Node) -> Var:
    return node.emit(
        "is_inf",
        node.arg(0),
        detect_negative=bool(node.attr("detect_negative", 1)),
        detect_positive=bool(node.attr("detect_positive", 1)),
    )


def _shrink(node: Node) -> Var:
    x = node.arg(0)
    lambd, bias = node.attr("lambd", 0.5), node.attr("bias", 0.0)
    above = node.emit("sub", x, node.scalar(bias, x))
    below = node.emit("add", x, node.scalar(bias, x))
    inner = node.emit(
        "where", node.emit("less", x, node.scalar(-lambd, x)), below, node.scalar(0, x)
    )
    return node.emit("where", node.emit("greater", x, node.scalar(lambd, x)), above, inner)


def _swish(node: Node) -> Var:
    x = node.arg(0)
    scaled = node.emit("mul", x, node.scalar(node.attr("alpha", 1.0), x))
    return node.emit("mul", x, node.emit("sigmoid", scaled))


HANDLERS: dict[str, Handler] = {
    **{
        name: _plain(op)
        for name, op in {
            "Abs": "abs", "Neg": "neg", "Sign": "sign", "Exp": "exp", "Log": "log",
            "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil",
            "Round": "round_even", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
            "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh",
            "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
            "Sigmoid": "sigmoid", "Relu": "relu", "Not": "logical_not",
            "BitwiseNot": "bitwise_not", "Softplus": "softplus", "Softsign": "softsign",
            "Mish": "mish", "IsNaN": "is_nan", "HardSwish": "hard_swish",
            "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "logical_and",
            "Or": "logical_or", "Xor": "logical_xor", "BitwiseAnd": "bitwise_and",
            "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "equal",
            "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater",
            "GreaterOrEqual": "greater_equal", "Where": "where",
        }.items()
    },
    "LeakyRelu": _plain("leaky_relu", alpha=("alpha", 0.01)),
    "Elu": _plain("elu", alpha=("alpha", 1.0)),
    "Celu": _plain("celu", alpha=("alpha", 1.0)),
    "Selu": _plain(
        "selu", alpha=("alpha", 1.67326319217681884765625),
        gamma=("gamma", 1.05070102214813232421875),
    ),
    "ThresholdedRelu": _plain("thresholded_relu", alpha=("alpha", 1.0)),
    "HardSigmoid": _plain("hard_sigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5)),
    "Gelu": _plain("gelu", approximate=("approximate", "none")),
    "Sum": _folded("add"),
    "Max": _folded("max"),
    "Min": _folded("min"),
    "Mean": _mean,
    "Identity": _alias,
    "Dropout": _dropout,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Pow": _pow,
    "Mod": _mod,
    "BitShift": _shift,
    "PRelu": _prelu,
    "IsInf": _is_inf,
    "Shrink": _shrink,
    "Swish": _swish,
}  # fmt: skip
