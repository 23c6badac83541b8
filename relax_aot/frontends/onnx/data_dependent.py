# SPDX-License-Identifier: Apache-2.0
"""Operators whose results have as many elements as data say."""

from __future__ import annotations

from math import prod

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import ONE, Dim, dim_min, simplify
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    "Unique": "every NaN is a separate value",
}


def _non_zero(node: Node) -> Results:
    """Exporters write `NonZero(ConstantOfShape([n]))` for the numbers below n."""
    x = node.arg(0)
    value = _filling(node, x)
    if value is not None and x.type.rank == 1:
        length = x.type.shape[0] if value else Dim.of(0)
        places = node.emit("range", start=0, step=1, length=length, dtype=DType.I64)
        return node.reshape(places, (ONE, length))
    return _places(node, x, 1)


def _places(node: Node, x: Var, axis: int) -> Var:
    """The places of what is not zero; their number is axis `axis` of the node's result."""
    total = node.emit("count_nonzero", x)
    count = node.size_of(total, 0, axis, most=x.type.elements)
    return node.emit("nonzero", x, count=count)


def _filling(node: Node, x: Var) -> object:
    """The one value of all elements, where that is known."""
    for call in node.builder.body:
        if call.op == "fill" and call.out == x:
            return call.attr("value")
    constant = node.builder.numeric(x)
    if constant is not None and constant.size and (constant == constant.reshape(-1)[0]).all():
        return constant.reshape(-1)[0].item()
    return None


def _compress(node: Node) -> Results:
    """The elements where the condition holds; it may be shorter than the axis."""
    x, chosen = node.arg(0), node.arg(1)
    if chosen.type.rank != 1:
        raise ModelError(f"the condition of a Compress is {chosen.type}")
    axis = 0
    if node.has("axis"):
        axis = normal_axis(int(node.attr("axis")), x.type.rank)
    else:
        x = node.reshape(x, (x.type.elements,))
    node.require_at_most(chosen.type.shape[0], x.type.shape[axis], "a condition of Compress")
    places = _places(node, chosen, axis)
    places = node.reshape(places, (places.type.shape[1],))
    return node.emit("gather", x, places, axis=axis)


def _unique(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis")), x.type.rank) if node.has("axis") else None
    if axis is None:
        x = node.reshape(x, (x.type.elements,))
    along = 0 if axis is None else axis
    others = [other for other in range(x.type.rank) if other != along]
    rows = node.emit("transpose", x, perm=(along, *others)) if along else x
    length = rows.type.shape[0]
    width = prod(rows.type.shape[1:], start=ONE)
    rows = node.reshape(rows, (length, width))
    sort = bool(node.attr("sorted", 1))
    firsts, inverse, counts, total = node.emit_all("unique", rows, sort=sort)
    count = node.size_of(total, 0, along, most=length)
    firsts = node.part(firsts, 0, 0, count)
    values = node.emit("gather", x, firsts, axis=along)
    return values, firsts, inverse, node.part(counts, 0, 0, count)


def _non_max_suppression(node: Node) -> Results:
    boxes, scores = node.arg(0), node.arg(1)
    given = [node.optional(index) for index in (2, 3, 4)]
    found, total = node.emit_all(
        "non_max_suppression", boxes, scores, *given, center=bool(node.attr("center_point_box", 0))
    )
    if scores.type.rank != 3:
        raise Refused(f"scores of shape {scores.type}")
    batch, classes, boxes_each = scores.type.shape
    requested = node.number(2) if given[0] is not None else 0.0
    if requested is not None:
        boxes_each = dim_min(boxes_each, max(int(requested), 0))
    most = simplify(batch * classes * boxes_each, node.builder.bounds)
    count = node.size_of(total, 0, 0, most=most)
    return node.part(found, 0, 0, count)


HANDLERS: dict[str, Handler] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Unique": _unique,
}
