"""Reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from relax_aot.frontends.onnx.context import Node, Unsupported
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis

Handler = Callable[[Node], Var | tuple[Var, ...]]

LIMITS = {
    "BatchNormalization": "inference",
    "LayerNormalization": "first result, mean and inverse deviation",
}


def _reduce(kind: str) -> Handler:
    def handle(node: Node) -> Var:
        x = node.arg(0)
        axes = node.ints(1, "axes")
        if axes is None or not axes:
            if node.attr("noop_with_empty_axes", 0):
                axes = []
                if kind in ("sum", "mean", "max", "min", "prod"):
                    return node.emit("copy", x)
            else:
                axes = list(range(x.type.rank))
        over = tuple(sorted(normal_axis(a, x.type.rank) for a in axes))
        return node.emit("reduce", x, kind=kind, axes=over, keepdims=bool(node.attr("keepdims", 1)))

    return handle


def _arg(op: str) -> Handler:
    def handle(node: Node) -> Var:
        return node.emit(
            op,
            node.arg(0),
            axis=int(node.attr("axis", 0)),
            keepdims=bool(node.attr("keepdims", 1)),
            select_last=bool(node.attr("select_last_index", 0)),
        )

    return handle


def _softmax(node: Node) -> Var:
    return _over_axis(node, lambda x, axis: node.emit("softmax", x, axis=axis))


def _over_axis(node: Node, make: Callable[[Var, int], Var]) -> Var:
    """Before opset 13 the input is seen as a matrix, split at the axis."""
    x = node.arg(0)
    if node.opset >= 13:
        return make(x, normal_axis(int(node.attr("axis", -1)), x.type.rank))
    axis = normal_axis(int(node.attr("axis", 1)), x.type.rank)
    shape = x.type.shape
    one = Dim.of(1)
    flat = node.reshape(x, (prod(shape[:axis], start=one), prod(shape[axis:], start=one)))
    return node.to_shape(make(flat, 1), x)


def _log_softmax(node: Node) -> Var:
    def make(x: Var, axis: int) -> Var:
        total = node.emit("reduce", x, kind="log_sum_exp", axes=(axis,), keepdims=True)
        return node.emit("sub", x, total)

    return _over_axis(node, make)


def _layer_norm(node: Node) -> tuple[Var, ...]:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", -1)), x.type.rank)
    epsilon = float(node.attr("epsilon", 1e-5))
    y = node.emit("layer_norm", x, node.arg(1), node.optional(2), axis=axis, epsilon=epsilon)
    wanted = [name for name in node.proto.output[1:] if name]
    if not wanted:
        return (y,)
    over = tuple(range(axis, x.type.rank))
    mean = node.emit("reduce", x, kind="mean", axes=over, keepdims=True)
    apart = node.emit("sub", x, mean)
    square = node.emit("mul", apart, apart)
    variance = node.emit("reduce", square, kind="mean", axes=over, keepdims=True)
    root = node.emit("sqrt", node.emit("add", variance, node.scalar(epsilon, x)))
    return y, mean, node.emit("reciprocal", root)


def _rms_norm(node: Node) -> Var:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", -1)), x.type.rank)
    return node.emit(
        "rms_norm", x, node.arg(1), axis=axis, epsilon=float(node.attr("epsilon", 1e-5))
    )


def _batch_norm(node: Node) -> Var:
    if node.attr("training_mode", 0) or len([o for o in node.proto.output if o]) > 1:
        raise Unsupported("training mode is for training")
    if node.opset < 9 and not node.attr("spatial", 1):
        raise Unsupported("statistics per element (spatial=0)")
    x, *rest = node.args()
    return node.emit("batch_norm", x, *rest, epsilon=float(node.attr("epsilon", 1e-5)))


def _instance_norm(node: Node) -> Var:
    x, scale, bias = node.args()
    channels = x.type.shape[1]
    if not channels.is_constant:
        raise Unsupported("it needs a constant number of channels")
    epsilon = float(node.attr("epsilon", 1e-5))
    return node.emit("group_norm", x, scale, bias, groups=channels.constant, epsilon=epsilon)


def _group_norm(node: Node) -> Var:
    x, scale, bias = node.args()
    groups = int(node.attr("num_groups"))
    if node.opset < 21:
        # One scale per group: repeat it over the channels of the group.
        channels = x.type.shape[1]
        if not channels.is_constant:
            raise Unsupported("it needs a constant number of channels")
        repeat = channels.constant // groups
        scale, bias = (
            node.reshape(
                node.emit("expand", node.reshape(v, (Dim.of(groups), Dim.of(1))),
                          shape=(groups, repeat)),
                (channels,),
            )
            for v in (scale, bias)
        )  # fmt: skip
    epsilon = float(node.attr("epsilon", 1e-5))
    return node.emit("group_norm", x, scale, bias, groups=groups, epsilon=epsilon)


def _lp_norm(node: Node) -> Var:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", -1)), x.type.rank)
    kind = {1: "l1", 2: "l2"}[int(node.attr("p", 2))]
    norm = node.emit("reduce", x, kind=kind, axes=(axis,), keepdims=True)
    zero = node.emit("equal", norm, node.constant(np.array(0, x.type.dtype.numpy)))
    safe = node.emit("where", zero, node.scalar(1, x), norm)
    return node.emit("div", x, safe)


HANDLERS: dict[str, Handler] = {
    "ReduceSum": _reduce("sum"),
    "ReduceMean": _reduce("mean"),
    "ReduceMax": _reduce("max"),
    "ReduceMin": _reduce("min"),
    "ReduceProd": _reduce("prod"),
    "ReduceL1": _reduce("l1"),
    "ReduceL2": _reduce("l2"),
    "ReduceLogSum": _reduce("log_sum"),
    "ReduceLogSumExp": _reduce("log_sum_exp"),
    "ReduceSumSquare": _reduce("sum_square"),
    "ArgMax": _arg("arg_max"),
    "ArgMin": _arg("arg_min"),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
}
