# SPDX-License-Identifier: Apache-2.0
"""Operators on pairs of elements, and on conditions."""

from __future__ import annotations

from collections.abc import Callable

from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.activation import activated
from relax_aot.frontends.tflite.context import Handler, Node, Results
from relax_aot.frontends.tflite.fixed_point import code_limits, multiplier, ratio
from relax_aot.frontends.tflite.movement import same_scale
from relax_aot.frontends.tflite.rescaling import coded, is_coded, scaled, uncoded
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

LIMITS: dict[str, str] = {
    "ADD": "floats and integers; quantized i8, u8 and i16",
    "DIV": "floats and integers",
    "EQUAL": "floats, integers, conditions; quantized i8 and u8",
    "FLOOR_DIV": "floats and integers",
    "MAXIMUM": "quantized values of one scale",
    "MINIMUM": "quantized values of one scale",
    "MUL": "floats and integers; quantized i8, u8 and i16",
    "SELECT": "quantized values of one scale",
    "SELECT_V2": "quantized values of one scale",
    "SQUARED_DIFFERENCE": "floats and integers; quantized i8",
    "SUB": "floats and integers; quantized i8, u8 and i16",
}


# Sums, differences, products


def _sum(sign: int) -> Handler:
    def handler(node: Node) -> Results:
        a, b = node.arg(0), node.arg(1)
        if is_coded(node, a):
            return _sum_of_codes(node, a, b, sign)
        y = node.emit("add" if sign > 0 else "sub", a, b)
        return activated(node, y, node.activation())

    return handler


LEFT = {DType.I8: 20, DType.U8: 20, DType.I16: 15}
"""Bits that are added before operands are brought to one scale."""


def _sum_of_codes(node: Node, a: Var, b: Var, sign: int) -> Var:
    to = node.result_type()
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = node.singles(0, 1)
    pots = node.number("pot_scale_int16") and _are_powers(a_scale, b_scale, y_scale)
    if to is DType.I16 and pots:
        raise Refused(
            "quantized i16 with power-of-two scales is added by shifts, which is not supported; "
            "convert with a newer converter"
        )
    left = LEFT[to]
    twice = 2 * max(a_scale, b_scale)
    # From 2^16 on, all but 0 is a limit.
    last = min(twice / ((1 << left) * y_scale), 2.0**16)
    pairs = [multiplier(scale) for scale in (a_scale / twice, b_scale / twice, last)]
    return node.emit(
        "fixed_add", a, b, zeros=(a_zero, b_zero, y_zero),
        factors=tuple(factor for factor, _ in pairs), shifts=tuple(shift for _, shift in pairs),
        left=left, limits=code_limits(node.activation(), y_scale, y_zero, to), sign=sign,
    )  # fmt: skip


def _are_powers(*scales: float) -> bool:
    return all(scale.hex().startswith("0x1.0000000000000p") for scale in scales)


def _mul(node: Node) -> Results:
    a, b = node.arg(0), node.arg(1)
    if not is_coded(node, a):
        return activated(node, node.emit("mul", a, b), node.activation())
    to = node.result_type()
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = node.singles(0, 1)
    factor, shift = multiplier(ratio(a_scale, b_scale, to=y_scale))
    return node.emit(
        "fixed_mul", a, b, zeros=(a_zero, b_zero, y_zero), factor=factor, shift=shift,
        limits=code_limits(node.activation(), y_scale, y_zero, to),
    )  # fmt: skip


def _div(node: Node) -> Results:
    return activated(node, node.emit("div", uncoded(node), node.arg(1)), node.activation())


def _squared_difference(node: Node) -> Results:
    a, b = node.arg(0), node.arg(1)
    if not is_coded(node, a):
        apart = node.emit("sub", a, b)
        return node.emit("mul", apart, apart)
    if a.type.dtype is not DType.I8:
        raise Refused(f"quantized {a.type.dtype.value} SQUARED_DIFFERENCE is not supported")
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, _) = node.singles(0, 1)
    left, twice = 7, 2 * max(a_scale, b_scale)
    first, second = (
        scaled(node, x, zero, scale / twice, left=left)
        for x, zero, scale in ((a, a_zero, a_scale), (b, b_zero, b_scale))
    )
    apart = node.emit("sub", first, second)
    square = node.emit("mul", apart, apart)
    return coded(node, scaled(node, square, 0, twice * twice / ((1 << (2 * left)) * y_scale)))


def _add_n(node: Node) -> Results:
    total = node.arg(0)
    if is_coded(node, total):
        raise Refused("quantized ADD_N is not supported; use ADD")
    for index in range(1, node.count):
        total = node.emit("add", total, node.arg(index))
    return total


# The same for floats and whole numbers


def _plain(op: str) -> Handler:
    return lambda node: node.emit(op, uncoded(node), node.arg(1))


def _extreme(op: str) -> Handler:
    def handler(node: Node) -> Results:
        same_scale(node, 0, 1)
        return node.emit(op, node.arg(0), node.arg(1))

    return handler


def _floor_div(node: Node) -> Results:
    a, b = uncoded(node), node.arg(1)
    if a.type.dtype.is_float:
        return node.emit("floor", node.emit("div", a, b))
    # (a - a mod b) / b, where mod has the sign of b.
    return node.emit("div", node.emit("sub", a, node.emit("mod", a, b)), b)


def _floor_mod(node: Node) -> Results:
    a, b = uncoded(node), node.arg(1)
    if not a.type.dtype.is_float:
        return node.emit("mod", a, b)
    rest = node.emit("fmod", a, b)
    zero = node.scalar(0.0, a.type.dtype)
    other_sign = node.emit("logical_xor", node.emit("less", rest, zero), node.emit("less", b, zero))
    moved = node.emit("logical_and", other_sign, _not(node, node.emit("equal", rest, zero)))
    return node.emit("where", moved, node.emit("add", rest, b), rest)


# Conditions


COMPARED = 8
"""Bits that are added before quantized values of two scales are compared."""


def _compare(op: str, finish: Callable[[Node, Var], Var] = lambda _node, x: x) -> Handler:
    def handler(node: Node) -> Results:
        a, b = node.arg(0), node.arg(1)
        if is_coded(node, a):
            if a.type.dtype is DType.I16:
                raise Refused("comparisons of quantized i16 are not supported; keep them in float")
            pairs = [(x, *node.single(node.tensor(i))) for i, x in enumerate((a, b))]
            a, b = (scaled(node, x, zero, scale, left=COMPARED) for x, scale, zero in pairs)
        return finish(node, node.emit(op, a, b))

    return handler


def _not(node: Node, x: Var) -> Var:
    return node.emit("logical_not", x)


def _logical(op: str) -> Handler:
    return lambda node: node.emit(op, *(node.arg(i) for i in range(node.count)))


def _select(node: Node) -> Results:
    chosen, a, b = node.arg(0), node.arg(1), node.arg(2)
    same_scale(node, 1, 2)
    if node.operator.name == "SELECT" and chosen.type.rank == 1 and a.type.rank > 1:
        # One condition for each row.
        chosen = node.reshape(chosen, (*chosen.type.shape, *[1] * (a.type.rank - 1)))
    return node.emit("where", chosen, a, b)


def _prelu(node: Node) -> Results:
    x, slope = node.arg(0), node.arg(1)
    if not is_coded(node, x):
        return node.emit("prelu", x, slope)
    if x.type.dtype not in (DType.I8, DType.U8):
        raise Refused(f"quantized {x.type.dtype.value} PRELU is not supported")
    (x_scale, x_zero), (a_scale, a_zero), (y_scale, _) = node.singles(0, 1)
    above = scaled(node, x, x_zero, ratio(x_scale, to=y_scale))
    wide = node.emit("sub", node.cast(x, DType.I32), node.scalar(x_zero, DType.I32))
    factor = node.emit("sub", node.cast(slope, DType.I32), node.scalar(a_zero, DType.I32))
    product = node.emit("mul", wide, factor)
    below = scaled(node, product, 0, ratio(x_scale, a_scale, to=y_scale))
    negative = node.emit("less", wide, node.scalar(0, DType.I32))
    return coded(node, node.emit("where", negative, below, above))


HANDLERS: dict[str, Handler] = {
    "ADD": _sum(1),
    "ADD_N": _add_n,
    "BITWISE_XOR": _plain("bitwise_xor"),
    "DIV": _div,
    "EQUAL": _compare("equal"),
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "GREATER": _compare("greater"),
    "GREATER_EQUAL": _compare("greater_equal"),
    "LESS": _compare("less"),
    "LESS_EQUAL": _compare("less_equal"),
    "LOGICAL_AND": _logical("logical_and"),
    "LOGICAL_NOT": _logical("logical_not"),
    "LOGICAL_OR": _logical("logical_or"),
    "MAXIMUM": _extreme("max"),
    "MINIMUM": _extreme("min"),
    "MUL": _mul,
    "NOT_EQUAL": _compare("equal", _not),
    "POW": _plain("pow"),
    "PRELU": _prelu,
    "RIGHT_SHIFT": _plain("shift_right"),
    "SELECT": _select,
    "SELECT_V2": _select,
    "SQUARED_DIFFERENCE": _squared_difference,
    "SUB": _sum(-1),
}
