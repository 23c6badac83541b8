# SPDX-License-Identifier: Apache-2.0
"""Operators along axes: sums, means, extremes, norms."""

from __future__ import annotations

from math import prod

from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import QUANTIZED_TYPES, Handler, Node, Results
from relax_aot.frontends.tflite.fixed_point import multiplier
from relax_aot.frontends.tflite.movement import same_scale
from relax_aot.frontends.tflite.rescaling import coded, is_coded, uncoded
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS: dict[str, str] = {
    "CUMSUM": "floats and integers; axis constant",
    "L2_NORMALIZATION": "f32",
    "MEAN": "floats and integers; quantized i8 and u8 with static sizes of the averaged axes",
    "REDUCE_MAX": "quantized values of one scale",
    "REDUCE_MIN": "quantized values of one scale",
    "REDUCE_PROD": "floats and integers",
    "SUM": "floats and integers; quantized u8, into another scale",
}


def _axes(node: Node, x: Var) -> tuple[int, ...]:
    return tuple(sorted({normal_axis(axis, x.type.rank) for axis in node.constants(1)}))


def _reduced(node: Node, x: Var, kind: str, axes: tuple[int, ...]) -> Var:
    if not axes:
        return x
    return node.emit("reduce", x, kind=kind, axes=axes, keepdims=bool(node.number("keep_dims")))


def _reduce(kind: str) -> Handler:
    def handler(node: Node) -> Results:
        x = node.arg(0)
        same_scale(node, 0)
        return _reduced(node, x, kind, _axes(node, x))

    return handler


def _prod(node: Node) -> Results:
    x = uncoded(node)
    return _reduced(node, x, "prod", _axes(node, x))


def _mean(node: Node) -> Results:
    x = node.arg(0)
    axes = _axes(node, x)
    if not is_coded(node, x):
        return _reduced(node, x, "mean", axes)
    return _of_codes(node, x, axes, mean=True)


def _sum(node: Node) -> Results:
    x = node.arg(0)
    axes = _axes(node, x)
    if not is_coded(node, x):
        return _reduced(node, x, "sum", axes)
    same = node.single(node.tensor(0)) == node.single(node.result())
    if same or x.type.dtype is not DType.U8:
        raise Refused(
            "a SUM of these quantized values overflows in the reference kernel; keep it in float"
        )
    return _of_codes(node, x, axes, mean=False)


def _of_codes(node: Node, x: Var, axes: tuple[int, ...], *, mean: bool) -> Var:
    """The sum less its zero points, times one scale; a mean has the count in its scale
    (QuantizedMeanOrSum)."""
    if x.type.dtype not in QUANTIZED_TYPES[:2]:
        raise Refused(f"quantized {x.type.dtype.value} {node.operator.name} is not supported")
    count = prod((x.type.shape[axis] for axis in axes), start=Dim.of(1))
    if not count.is_constant:
        raise Refused(f"the number of averaged values depends on {count} and must be static")
    total = count.constant
    (x_scale, x_zero), (y_scale, _) = node.singles(0)
    factor, shift = multiplier(x_scale / y_scale)
    if mean and total:
        places = min(total.bit_length() - 1, 32, 31 + shift)
        factor, shift = (factor << places) // total, shift - places
    whole = _reduced(node, node.cast(x, DType.I32), "sum", axes)
    zero = x_zero * total
    steps = node.emit("fixed_rescale", whole, zero=zero, left=0, factor=factor, shift=shift)
    return coded(node, steps)


def _l2_normalization(node: Node) -> Results:
    x = uncoded(node)
    square = node.emit("mul", x, x)
    total = node.emit("reduce", square, kind="sum", axes=(x.type.rank - 1,), keepdims=True)
    least = node.emit("max", total, node.scalar(1e-6, x.type.dtype))
    return node.emit("div", x, node.emit("sqrt", least))


def _cumsum(node: Node) -> Results:
    x = node.arg(0)
    sides = {side: bool(node.number(side)) for side in ("exclusive", "reverse")}
    return node.emit("cum_sum", x, axis=normal_axis(node.integer(1), x.type.rank), **sides)


HANDLERS: dict[str, Handler] = {
    "CUMSUM": _cumsum,
    "L2_NORMALIZATION": _l2_normalization,
    "MEAN": _mean,
    "REDUCE_ALL": _reduce("min"),
    "REDUCE_ANY": _reduce("max"),
    "REDUCE_MAX": _reduce("max"),
    "REDUCE_MIN": _reduce("min"),
    "REDUCE_PROD": _prod,
    "SUM": _sum,
}
