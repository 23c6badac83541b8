# SPDX-License-Identifier: Apache-2.0
"""Sequences of tensors: none is there when the C runs.

A sequence is a list that the compiler keeps, whose tensors may have different shapes; or the rows
of one tensor, where a size says how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Listed, Node, Results, Sequenced, Stacked
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis

KNOWN = "the number of tensors must be static, or the tensors must have one shape"
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


def _fixed(node: Node, index: int) -> tuple[Var, ...]:
    """The tensors of a sequence that has to have a static number of them."""
    found = node.listed(index)
    if isinstance(found, Listed):
        return found.items
    count = found.rows.type.shape[0]
    if not count.is_constant:
        raise Refused(f"{count} determines the number of tensors; {KNOWN}")
    rest = found.rows.type.shape[1:]
    return tuple(node.reshape(node.part(found.rows, 0, i, 1), rest) for i in range(count.constant))


def stacked(node: Node, sequence: Sequenced) -> Var:
    """The tensors of a sequence as the rows of one; it has one at least."""
    if isinstance(sequence, Stacked):
        return sequence.rows
    first = sequence.items[0]
    for item in sequence.items[1:]:
        if item.type.rank != first.type.rank:
            raise Refused(f"a sequence has {first.type} and {item.type}; {KNOWN}")
        for left, right in zip(first.type.shape, item.type.shape, strict=True):
            node.require_equal(left, right, "the tensors of a sequence")
    rows = [node.reshape(item, (1, *first.type.shape)) for item in sequence.items]
    return rows[0] if len(rows) == 1 else node.emit("concat", *rows, axis=0)


def appended(node: Node, sequence: Sequenced, rows: Var) -> Stacked:
    """A sequence with further tensors behind its own: the rows of a tensor."""
    if isinstance(sequence, Listed) and not sequence.items:
        return Stacked(rows)
    before = stacked(node, sequence)
    if before.type.rank != rows.type.rank:
        raise Refused(f"a sequence has {before.type} and {rows.type}; {KNOWN}")
    for left, right in zip(before.type.shape[1:], rows.type.shape[1:], strict=True):
        node.require_equal(left, right, "the tensors of a sequence")
    return Stacked(node.emit("concat", before, rows, axis=0))


def _at(node: Node) -> Results:
    found = node.listed(0)
    known = node.builder.dims(node.arg(1))
    if isinstance(found, Listed) and known is not None and known[0].is_constant:
        return found.items[_place(node, 1, len(found.items))]
    if isinstance(found, Listed) and not found.items:
        raise ModelError("a SequenceAt reads an empty sequence")
    return node.emit("gather", stacked(node, found), node.reshape(node.arg(1), ()), axis=0)


def _insert(node: Node) -> Results:
    found, item = node.listed(0), node.arg(1)
    if isinstance(found, Stacked) and node.optional(2) is None:
        return appended(node, found, node.reshape(item, (1, *item.type.shape)))
    items = list(_fixed(node, 0))
    items.insert(_place(node, 2, len(items), default=len(items), over=1), item)
    return Listed(tuple(items))


def _erase(node: Node) -> Results:
    items = list(_fixed(node, 0))
    del items[_place(node, 1, len(items), default=-1)]
    return Listed(tuple(items))


def _length(node: Node) -> Results:
    found = node.listed(0)
    if isinstance(found, Listed):
        return node.constant(np.array(len(found.items), np.int64))
    return node.reshape(node.part(node.emit("shape_of", found.rows), 0, 0, 1), ())


def _split(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", 0)), x.type.rank)
    size = x.type.shape[axis]
    single = _single(node)
    # As in ONNX Runtime, also with parts of 1 as an input: PyTorch exports `unbind` so.
    keep = bool(node.attr("keepdims", 1)) or not single
    if not size.is_constant and single:
        return Stacked(_rows(node, x, axis, keep))
    parts = _parts(node, size)
    node.require_equal(sum(parts, Dim.of(0)), size, "the parts of a SplitToSequence")
    items = node.parts(x, axis, parts, "a part of a SplitToSequence")
    if not keep:
        rest = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
        items = (node.reshape(item, rest) for item in items)
    return Listed(tuple(items))


def _single(node: Node) -> bool:
    """Whether each part has the size 1."""
    split = node.optional(1)
    return split is None or (split.type.rank == 0 and _one(node, 1) == 1)


def _rows(node: Node, x: Var, axis: int, keep: bool) -> Var:
    """The slices of an axis as rows; `keep` leaves an axis of size 1 in each."""
    perm = (axis, *(i for i in range(x.type.rank) if i != axis))
    rows = x if axis == 0 else node.emit("transpose", x, perm=perm)
    if not keep:
        return rows
    count, *rest = rows.type.shape
    return node.reshape(rows, (count, *rest[:axis], 1, *rest[axis:]))


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
    found, new = node.listed(0), bool(node.attr("new_axis", 0))
    if isinstance(found, Stacked):
        axis = normal_axis(int(node.required("axis")), found.rows.type.rank - 1 + new)
        return _joined_rows(node, found.rows, axis, new)
    if not found.items:
        raise ModelError("a ConcatFromSequence has nothing to join")
    rank = found.items[0].type.rank
    return _joined_items(
        node, found.items, normal_axis(int(node.required("axis")), rank + new), new
    )


def _joined_rows(node: Node, rows: Var, axis: int, new: bool) -> Var:
    """The axis of rows as another axis of the rest, or as the outer part of one."""
    perm = [*range(1, axis + 1), 0, *range(axis + 1, rows.type.rank)]
    moved = rows if axis == 0 else node.emit("transpose", rows, perm=tuple(perm))
    if new:
        return moved
    shape = moved.type.shape
    return node.reshape(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _joined_items(node: Node, items: Sequence[Var], axis: int, new: bool) -> Var:
    if new:
        items = [
            node.reshape(x, (*x.type.shape[:axis], Dim.of(1), *x.type.shape[axis:])) for x in items
        ]
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
