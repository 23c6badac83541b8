# SPDX-License-Identifier: Apache-2.0
"""Softmax and its kin, and normalizations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

TRAINING = "training mode is not supported; export the model for inference"
LIMITS = {
    "BatchNormalization": "training mode from operator set 14; statistics per channel",
}
OF_STANDARD = 17
"""The operator set that took over LayerNormalization from ONNX Runtime."""
NONE, ONE = Dim.of(0), Dim.of(1)


def _over_axis(make: Callable[[Node, Var, int], Var]) -> Handler:
    """Before version 13 the input is seen as a matrix, split at the axis."""

    def handle(node: Node) -> Results:
        x = node.arg(0)
        rank = x.type.rank
        if node.opset >= 13:
            return make(node, x, normal_axis(int(node.attr("axis", -1)), rank))
        axis = normal_axis(int(node.attr("axis", 1)), rank)
        if axis == rank - 1:
            return make(node, x, axis)
        shape = x.type.shape
        matrix = (prod(shape[:axis], start=ONE), prod(shape[axis:], start=ONE))
        return node.reshape(make(node, node.reshape(x, matrix), 1), shape)

    return handle


def _softmax(node: Node, x: Var, axis: int) -> Var:
    return node.emit("softmax", x, axis=axis)


def _log_softmax(node: Node, x: Var, axis: int) -> Var:
    """The largest element is taken off first, as two sums of great numbers would cancel."""
    peak = node.emit("reduce", x, kind="max", axes=(axis,), keepdims=True)
    apart = node.emit("sub", x, peak)
    total = node.emit("reduce", apart, kind="log_sum_exp", axes=(axis,), keepdims=True)
    return node.emit("sub", apart, total)


def _hardmax(node: Node, x: Var, axis: int) -> Var:
    if x.type.shape[axis] == NONE:
        return x
    place = node.emit(
        "arg_max", _one_more(node, x, axis), axis=axis, keepdims=False, select_last=False
    )
    values = node.constant(np.array([0, 1], x.type.dtype.numpy))
    return node.emit("one_hot", place, values, depth=x.type.shape[axis], axis=axis)


def _one_more(node: Node, x: Var, axis: int) -> Var:
    """Where the axis may be empty, -inf is appended: an extreme exists, and is never
    the appended one unless there is no other."""
    if node.builder.proves(1, "<=", x.type.shape[axis]):
        return x
    after = tuple(int(i == axis) for i in range(x.type.rank))
    lowest = node.constant(np.array(-np.inf, x.type.dtype.numpy))
    return node.emit("pad", x, lowest, before=(0,) * x.type.rank, after=after, mode="constant")


def _epsilon(node: Node) -> float:
    return float(node.attr("epsilon", 1e-5))


def _layer_norm(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", -1)), x.type.rank)
    scale, bias = node.optional(1), node.optional(2)
    if node.opset < OF_STANDARD and scale is not None and scale.type.dtype is not x.type.dtype:
        alike = in_one_type(node, x, scale, bias)
        y = node.emit("layer_norm", *alike, axis=axis, epsilon=_epsilon(node))
        y = node.cast(y, scale.type.dtype)
    elif any(value is not None and value.type.rank > x.type.rank - axis for value in (scale, bias)):
        plain = node.emit("layer_norm", x, None, None, axis=axis, epsilon=_epsilon(node))
        y = _spread(node, _spread(node, plain, "mul", scale), "add", bias)
    else:
        y = node.emit("layer_norm", x, scale, bias, axis=axis, epsilon=_epsilon(node))
    if not any(node.requested[1:]):
        return y
    # The statistics are computed again, in the type that the standard gives them.
    wide = node.cast(x, DType.F64 if x.type.dtype is DType.F64 else DType.F32)
    over = tuple(range(axis, x.type.rank))
    mean = node.emit("reduce", wide, kind="mean", axes=over, keepdims=True)
    apart = node.emit("sub", wide, mean)
    square = node.emit("mul", apart, apart)
    variance = node.emit("reduce", square, kind="mean", axes=over, keepdims=True)
    root = node.emit("sqrt", node.emit("add", variance, node.scalar(_epsilon(node), wide)))
    return y, mean, node.emit("reciprocal", root)


def in_one_type(node: Node, *args: Var | None) -> tuple[Var | None, ...]:
    """Arguments in one type that has the values of all: those of ONNX Runtime's own operators may
    differ."""
    kinds = {arg.type.dtype for arg in args if arg is not None}
    wide = DType.F64 if DType.F64 in kinds else DType.F32
    if len(kinds) == 1:
        return args
    return tuple(None if arg is None else node.cast(arg, wide) for arg in args)


def _spread(node: Node, x: Var, op: str, value: Var | None) -> Var:
    """x with a scale or a bias of further axes than those that are normalized."""
    if value is None:
        return x
    if value.type.rank > x.type.rank:
        raise ModelError(f"{value.type} has more axes than {x.type}")
    result = node.emit(op, x, value)
    for size, own in zip(result.type.shape, x.type.shape, strict=True):
        node.require_equal(size, own, "a scale or a bias of a normalization")
    return result


def _rms_norm(node: Node) -> Results:
    x, scale = node.arg(0), node.arg(1)
    axis, kind = normal_axis(int(node.attr("axis", -1)), x.type.rank), scale.type.dtype
    if scale.type.rank <= x.type.rank - axis and kind is x.type.dtype:
        return node.emit("rms_norm", x, scale, axis=axis, epsilon=_epsilon(node))
    one = node.scalar(1.0, x)
    plain = node.emit("rms_norm", x, one, axis=axis, epsilon=_epsilon(node))
    return _spread(node, node.cast(plain, kind), "mul", scale)


def _batch_norm(node: Node) -> Results:
    if node.opset < 14 and any(node.requested[1:]):
        raise Refused(TRAINING)
    if node.opset < 9 and not node.attr("spatial", 1):
        raise Refused("statistics per element (spatial=0) are not supported")
    x, *statistics = (node.arg(index) for index in range(5))
    kind = x.type.dtype
    args = [node.cast(value, kind) for value in statistics]
    if node.attr("training_mode", 0):
        return _by_own_statistics(node, x, *args[:2], *statistics[2:])
    return node.emit("batch_norm", x, *args, epsilon=_epsilon(node))


def _by_own_statistics(node: Node, x: Var, scale: Var, bias: Var, mean: Var, var: Var) -> Results:
    """In training mode, which exporters also write for weights that are standardized: each
    channel by the mean and the variance of its own elements."""
    channels = _channels(x)
    perm = (1, 0, *range(2, x.type.rank))
    rows = x if x.type.shape[0] == ONE else node.emit("transpose", x, perm=perm)
    row = node.reshape(rows, (ONE, channels, prod(x.type.shape, start=ONE) // channels))
    y = node.emit("group_norm", row, scale, bias, groups=channels, epsilon=_epsilon(node))
    y = node.reshape(y, rows.type.shape)
    y = y if rows == x else node.emit("transpose", y, perm=perm)
    if not any(node.requested[1:]):
        return y
    momentum = float(node.attr("momentum", 0.9))
    kept, new = node.scalar(momentum, mean), node.scalar(1 - momentum, mean)
    running = [
        node.emit("add", node.emit("mul", before, kept), node.emit("mul", found, new))
        for before, found in zip((mean, var), _moments(node, row, mean.type.dtype), strict=True)
    ]
    return y, *running


def _moments(node: Node, row: Var, kind: DType) -> tuple[Var, Var]:
    """The mean and the variance of each channel, of the type of running statistics."""
    row = node.cast(row, kind)
    mean = node.emit("reduce", row, kind="mean", axes=(0, 2), keepdims=True)
    apart = node.emit("sub", row, mean)
    square = node.emit("mul", apart, apart)
    variance = node.emit("reduce", square, kind="mean", axes=(0, 2), keepdims=False)
    return node.reshape(mean, variance.type.shape), variance


def _channels(x: Var) -> Dim:
    if x.type.rank < 2:
        raise ModelError(f"a normalization over channels does not take {x.type}")
    return x.type.shape[1]


def _instance_norm(node: Node) -> Results:
    x, scale, bias = node.arg(0), node.arg(1), node.arg(2)
    groups = _channels(x)
    return node.emit("group_norm", x, scale, bias, groups=groups, epsilon=_epsilon(node))


def _group_norm(node: Node) -> Results:
    x, scale, bias = node.arg(0), node.arg(1), node.arg(2)
    groups = int(node.required("num_groups"))
    node.require_numbers(1, num_groups=[groups])
    if node.opset < 21:
        # One scale per group: each is repeated over the channels of its group.
        each = _channels(x) // groups
        scale, bias = (_repeated(node, value, groups, each) for value in (scale, bias))
    return node.emit("group_norm", x, scale, bias, groups=groups, epsilon=_epsilon(node))


def _repeated(node: Node, value: Var, groups: int, each: Dim) -> Var:
    column = node.reshape(value, (Dim.of(groups), ONE))
    return node.reshape(node.emit("expand", column, shape=(groups, each)), (each * groups,))


def _lp_norm(node: Node) -> Results:
    """A row of zeros stays so."""
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", -1)), x.type.rank)
    kind = {1: "l1", 2: "l2"}.get(int(node.attr("p", 2)))
    if kind is None:
        raise ModelError("an LpNormalization has a p other than 1 and 2")
    norm = node.emit("reduce", x, kind=kind, axes=(axis,), keepdims=True)
    is_zero = node.emit("equal", norm, node.scalar(0, x))
    return node.emit("div", x, node.emit("where", is_zero, node.scalar(1, x), norm))


def _lrn(node: Node) -> Results:
    """x / (bias + alpha * m)^beta, m the mean square over `size` neighboring channels;
    beyond the first and the last channel there are zeros."""
    x = node.arg(0)
    size = int(node.required("size"))
    node.require_numbers(1, size=[size])
    n, channels, *inner = x.type.shape
    rows = (n, ONE, channels, prod(inner, start=ONE))
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    square = node.reshape(node.emit("mul", x, x), rows)
    mean = node.emit(
        "average_pool", square, kernel=(size, 1), strides=(1, 1), pads=(low, 0, high, 0),
        dilations=(1, 1), ceil_mode=False, count_include_pad=True,
    )  # fmt: skip
    scaled = node.emit("mul", mean, node.scalar(node.attr("alpha", 0.0001), x))
    base = node.emit("add", scaled, node.scalar(node.attr("bias", 1.0), x))
    power = node.emit("pow", base, node.scalar(node.attr("beta", 0.75), x))
    return node.emit("div", x, node.reshape(power, x.type.shape))


def _mean_variance_norm(node: Node) -> Results:
    """(x - mean) / (deviation + 1e-9). ONNX's definition types that number as float32 alone, and
    takes the variance as a difference of large numbers."""
    x = node.arg(0)
    given = node.attr("axes", [0, 2, 3])
    axes = tuple(sorted({normal_axis(int(axis), x.type.rank) for axis in given}))
    apart = node.emit("sub", x, node.emit("reduce", x, kind="mean", axes=axes, keepdims=True))
    square = node.emit("mul", apart, apart)
    variance = node.emit("reduce", square, kind="mean", axes=axes, keepdims=True)
    least = node.scalar(float(np.float32(1e-9)), x)
    return node.emit("div", apart, node.emit("add", node.emit("sqrt", variance), least))


HANDLERS: dict[str, Handler] = {
    "MeanVarianceNormalization": _mean_variance_norm,
    "Softmax": _over_axis(_softmax),
    "LogSoftmax": _over_axis(_log_softmax),
    "Hardmax": _over_axis(_hardmax),
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "LRN": _lrn,
}
