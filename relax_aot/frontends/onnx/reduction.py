# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes, the places of extremes, running sums."""

from __future__ import annotations

from relax_aot.frontends.onnx.context import Handler, Node, Results, direct
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import dim_max
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis

REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod", "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp", "ReduceSumSquare": "sum_square",
}  # fmt: skip
EXTREME = {"axis": 0, "keepdims": True, "select_last": ("select_last_index", False)}


def _reduce(kind: str) -> Handler:
    def handle(node: Node) -> Results:
        x = node.arg(0)
        rank = x.type.rank
        if not node.has("axes") and _unknown_axes(node):
            return _reduce_at_run_time(node, x, kind)
        axes = node.ints(1, "axes")
        if not axes:
            axes = [] if node.attr("noop_with_empty_axes", 0) else list(range(rank))
        over = tuple(sorted({normal_axis(axis, rank) for axis in axes}))
        keep = bool(node.attr("keepdims", 1))
        return node.emit("reduce", x, kind=kind, axes=over, keepdims=keep)

    return handle


def _unknown_axes(node: Node) -> bool:
    given = node.optional(1)
    return given is not None and node.builder.dims(given) is None


def _reduce_at_run_time(node: Node, x: Var, kind: str) -> Results:
    """Axes from data: the sizes that are left tell the kernel what to reduce."""
    rank, shape = x.type.rank, x.type.shape
    kept = bool(node.attr("keepdims", 1))
    count = node.arg(1).type.elements
    if kept:
        node.require_at_most(1, count, "axes to reduce")
    elif not count.is_constant:
        if node.declared_rank is None:
            raise Refused("its number of axes is data-dependent")
        count = node.as_long(1, rank - node.declared_rank).type.elements
    places = node.emit("reduce_sizes", node.arg(1), sizes=shape)
    sizes = [
        node.size_of(places, axis, axis, dim_max(shape[axis], 1))
        if kept
        else node.named_size(places, axis, f"kept_{axis}", dim_max(shape[axis], 1))
        for axis in range(rank)
    ]
    result = node.emit("reduce_to", x, kind=kind, shape=tuple(sizes))
    if kept:
        return result
    # The j-th size that is left is one of those from axis j on.
    left = [
        node.size_of(places, rank + j, j, dim_max(*shape[j : j + count.constant + 1]))
        for j in range(rank - count.constant)
    ]
    return node.reshape(result, left)


def _running(op: str) -> Handler:
    def handle(node: Node) -> Results:
        x = node.arg(0)
        sides = {side: bool(node.attr(side, 0)) for side in ("exclusive", "reverse")}
        if node.builder.numeric(node.arg(1)) is None:
            return node.emit(op, x, node.arg(1), **sides)
        return node.emit(op, x, axis=normal_axis(node.integer(1), x.type.rank), **sides)

    return handle


HANDLERS: dict[str, Handler] = {
    **{name: _reduce(kind) for name, kind in REDUCTIONS.items()},
    **{name: direct(op, **EXTREME) for name, op in (("ArgMax", "arg_max"), ("ArgMin", "arg_min"))},
    "CumSum": _running("cum_sum"),
    "CumProd": _running("cum_prod"),
}
