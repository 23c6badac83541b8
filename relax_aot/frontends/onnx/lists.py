# SPDX-License-Identifier: Apache-2.0
"""Sequences of tensors, as lists that the compiler keeps: none is there when the C runs.

So how many tensors a sequence has, and which of them is taken, must be known here; the sizes of
the tensors may be symbols.
"""

from __future__ import annotations

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Listed, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim
from relax_aot.ops._op import normal_axis

KNOWN = "the number of tensors and the selected index must be static"
OPTIONALS = ("OptionalHasElement", "OptionalGetElement")
LIMITS: dict[str, str] = dict.fromkeys(
    (
        "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
        "SequenceLength", "SplitToSequence", "ConcatFromSequence",
    ),
    KNOWN,
) | dict.fromkeys(OPTIONALS, "inputs that are tensors, not optional values")  # fmt: skip


def _place(node: Node, index: int, length: int, default: int | None = None, over: int = 0) -> int:
    """A place among `length` items, or up to `over` behind them; negative ones count from the
    end."""
    given = default
    if default is None or node.optional(index) is not None:
        given = _one(node, index)
    assert given is not None
    place = given + length if given < 0 else given
    if not 0 <= place < length + over:
        raise ModelError(f"its index {given} is outside a sequence of {length}")
    return place


def _one(node: Node, index: int) -> int:
    known = node.builder.dims(node.arg(index))
    if known is None or len(known) != 1 or not known[0].is_constant:
        raise Refused(f"its input {index} is not constant; {KNOWN}")
    return known[0].constant


def _at(node: Node) -> Results:
    items = node.listed(0).items
    return items[_place(node, 1, len(items))]


def _insert(node: Node) -> Results:
    items = list(node.listed(0).items)
    items.insert(_place(node, 2, len(items), default=len(items), over=1), node.arg(1))
    return Listed(tuple(items))


def _erase(node: Node) -> Results:
    items = list(node.listed(0).items)
    del items[_place(node, 1, len(items), default=-1)]
    return Listed(tuple(items))


def _length(node: Node) -> Results:
    return node.constant(np.array(len(node.listed(0).items), np.int64))


def _split(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", 0)), x.type.rank)
    size = x.type.shape[axis]
    alone = node.optional(1) is None
    parts = _parts(node, size)
    node.require_equal(sum(parts, Dim.of(0)), size, "the parts of a SplitToSequence")
    items = node.parts(x, axis, parts, "a part of a SplitToSequence")
    if alone and not node.attr("keepdims", 1):
        rest = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
        items = (node.reshape(item, rest) for item in items)
    return Listed(tuple(items))


MOST_PARTS = 10_000
"""Each is a value of its own."""


def _parts(node: Node, size: Dim) -> list[Dim]:
    split = node.optional(1)
    if split is not None and split.type.rank == 1:
        return list(node.dims(1))
    if not size.is_constant:
        raise Refused(f"{size} determines the number of parts; {KNOWN}")
    length = 1 if split is None else _one(node, 1)
    if length < 1:
        raise ModelError(f"a SplitToSequence has parts of {length}")
    whole, rest = divmod(size.constant, length)
    if whole > MOST_PARTS:
        raise Refused(f"a sequence has at most {MOST_PARTS} items, not {whole}")
    return [Dim.of(length)] * whole + [Dim.of(rest)] * bool(rest)


def _concat(node: Node) -> Results:
    items = node.listed(0).items
    if not items:
        raise ModelError("a ConcatFromSequence has nothing to join")
    new = bool(node.attr("new_axis", 0))
    rank = items[0].type.rank
    axis = normal_axis(int(node.required("axis")), rank + new)
    if new:
        items = tuple(
            node.reshape(x, (*x.type.shape[:axis], Dim.of(1), *x.type.shape[axis:])) for x in items
        )
    for item in items[1:]:
        pairs = zip(items[0].type.shape, item.type.shape, strict=True)
        for number, (left, right) in enumerate(pairs):
            if number != axis:
                node.require_equal(left, right, "the tensors of a ConcatFromSequence")
    return items[0] if len(items) == 1 else node.emit("concat", *items, axis=axis)


def _has_element(node: Node) -> Results:
    """Of a tensor that is not declared optional: whether it is there at all."""
    return node.constant(np.array(node.count > 0 and bool(node.proto.input[0])))


HANDLERS: dict[str, Handler] = {
    "OptionalHasElement": _has_element,
    "OptionalGetElement": lambda node: node.arg(0),
    "SequenceEmpty": lambda node: Listed(()),
    "SequenceConstruct": lambda node: Listed(tuple(node.args())),
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
}
