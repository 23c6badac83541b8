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
from relax_aot.ir.graph import Var
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


def _empty(node: Node) -> Results:
    return Listed(())


def _construct(node: Node) -> Results:
    return Listed(tuple(node.args()))


def _place(node: Node, index: int, end: int, default: int | None = None) -> int:
    """A place in a list of places 0 to `end` - 1; negative ones count from `length`."""
    given = default if node.optional(index) is None else _one(node, index)
    if given is None:
        raise ModelError(f"its input {index} is missing")
    place = given + end if given < 0 else given
    if not 0 <= place < end:
        raise ModelError(f"its index {given} is outside a sequence of {end}")
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
    place = len(items)
    if node.optional(2) is not None:
        given = _one(node, 2)
        place = given + len(items) if given < 0 else given
    if not 0 <= place <= len(items):
        raise ModelError(f"its index {place} is outside a sequence of {len(items)}")
    items.insert(place, node.arg(1))
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
    items: list[Var] = []
    start = Dim.of(0)
    for part in parts:
        node.require_at_most(0, part, "a part of a SplitToSequence")
        item = node.emit("slice", x, starts=(start,), lengths=(part,), axes=(axis,), steps=(1,))
        if alone and not node.attr("keepdims", 1):
            item = node.reshape(item, (*x.type.shape[:axis], *x.type.shape[axis + 1 :]))
        items.append(item)
        start = start + part
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


def _get_element(node: Node) -> Results:
    return node.arg(0)


HANDLERS: dict[str, Handler] = {
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
    "SequenceEmpty": _empty,
    "SequenceConstruct": _construct,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
}
