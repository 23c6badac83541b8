# SPDX-License-Identifier: Apache-2.0
"""Operators that read or write at places which data name, or tell such places."""

from __future__ import annotations

from relax_aot.frontends.onnx.context import Handler, Node, Results, direct
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis

SCATTER_ELEMENTS = direct("scatter_elements", "xxx", axis=0, reduction="none")


def _gather_nd(node: Node) -> Results:
    x, indices, batch_dims = node.arg(0), node.arg(1), int(node.attr("batch_dims", 0))
    found = node.declared_rank
    if found is not None:
        depth = x.type.rank - batch_dims + indices.type.rank - 1 - found
        indices = _as_deep(node, indices, depth)
    return node.emit("gather_nd", x, indices, batch_dims=batch_dims)


def _as_deep(node: Node, indices: Var, depth: int) -> Var:
    """Of how many numbers an index is, where the ranks of the others say it."""
    *front, last = indices.type.shape
    if last.is_constant or depth < 1:
        return indices
    return node.emit("match_cast", indices, shape=(*front, depth))


def _scatter_nd(node: Node) -> Results:
    x, indices, updates = node.arg(0), node.arg(1), node.arg(2)
    indices = _as_deep(node, indices, x.type.rank + indices.type.rank - 1 - updates.type.rank)
    return node.emit("scatter_nd", x, indices, updates, reduction=node.attr("reduction", "none"))


def _one_hot(node: Node) -> Results:
    indices, values = node.arg(0), node.arg(2)
    given = node.number(1)
    axis = int(node.attr("axis", -1))
    depth = Dim.of(int(given)) if given is not None else None
    if depth is None:
        (depth,) = node.sizes(1, [normal_axis(axis, indices.type.rank + 1)])
    return node.emit("one_hot", indices, values, depth=depth, axis=axis)


def _top_k(node: Node) -> Results:
    x, axis = node.arg(0), node.attr("axis", -1)
    if node.opset < 10:
        k = Dim.of(int(node.required("k")))
    else:
        at = normal_axis(axis, x.type.rank)
        (k,) = node.sizes(1, [at], [x.type.shape[at]])
    node.require_at_most(k, x.type.shape[axis], "TopK of more than there is")
    order = {name: node.attr(name, True) for name in ("largest", "sorted")}
    return node.emit_all("top_k", x, k=k, axis=axis, **order)


HANDLERS: dict[str, Handler] = {
    "Gather": direct("gather", "xx", axis=0),
    "GatherElements": direct("gather_elements", "xx", axis=0),
    "GatherND": _gather_nd,
    "Scatter": SCATTER_ELEMENTS,
    "ScatterElements": SCATTER_ELEMENTS,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "TopK": _top_k,
}
