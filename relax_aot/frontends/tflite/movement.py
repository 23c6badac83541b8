# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements. Quantized values are copied; where a tensor has another scale than
the one it goes into, the quantized values are rescaled first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.activation import activated
from relax_aot.frontends.tflite.context import QUANTIZED_TYPES, Handler, Node, Results
from relax_aot.ir.dims import ONE, Dim, simplify
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis
from relax_aot.ops.movement import normalize_slice

LIMITS: dict[str, str] = {
    "BATCH_TO_SPACE_ND": "block and crops constant",
    "CONCATENATION": "quantized values of one scale",
    "GATHER": "no batch axes unless at the front of both",
    "PAD": "pads constant or derived from sizes",
    "PADV2": "pads constant or derived from sizes",
    "SLICE": "begin and size constant or derived from sizes",
    "SPACE_TO_BATCH_ND": "block and pads constant",
    "SPLIT": "axis constant",
    "SPLIT_V": "axis and sizes constant or derived from sizes",
    "STRIDED_SLICE": "begin, end and strides constant or derived from sizes",
    "TILE": "repeats constant or derived from sizes",
    "TRANSPOSE": "permutation constant",
}


def same_scale(node: Node, *indices: int) -> None:
    """Refuses quantized values whose inputs do not all have the scale of the result."""
    result = node.result()
    if result.dtype not in QUANTIZED_TYPES or result.quantization is None:
        return
    requested = node.single(result)
    for index in indices:
        tensor = node.tensor(index)
        if tensor.quantization is not None and node.single(tensor) != requested:
            raise Refused(f"input {tensor.name!r} has another scale than the result")


# Slices


def _cut(
    node: Node, x: Var, starts: Sequence[Dim], lengths: Sequence[Dim], steps: Sequence[int]
) -> Var:
    chosen = [
        axis
        for axis in range(x.type.rank)
        if not (starts[axis] == 0 and lengths[axis] == x.type.shape[axis] and steps[axis] == 1)
    ]
    if not chosen:
        return x
    return node.emit(
        "slice", x, starts=tuple(starts[i] for i in chosen),
        lengths=tuple(lengths[i] for i in chosen), axes=tuple(chosen),
        steps=tuple(steps[i] for i in chosen),
    )  # fmt: skip


def _slice(node: Node) -> Results:
    x = node.arg(0)
    starts, sizes = node.dims(1), node.dims(2)
    if len(starts) != x.type.rank or len(sizes) != x.type.rank:
        raise ModelError(f"it cuts {len(starts)} axes of {x.type}")
    lengths = [
        size - start if length == Dim.of(-1) else length
        for start, length, size in zip(starts, sizes, x.type.shape, strict=True)
    ]
    return _cut(node, x, starts, _opened(node, x, lengths), [1] * x.type.rank)


def _opened(node: Node, x: Var, lengths: list[Dim]) -> list[Dim]:
    """A length of all the places that an axis has in the file goes on being all of them."""
    return [
        x.type.shape[axis] if _is_whole(node, length, axis) else length
        for axis, length in enumerate(lengths)
    ]


def _strided_slice(node: Node) -> Results:
    x = node.arg(0)
    begins, ends, steps = node.dims(1), node.dims(2), node.constants(3)
    masks = {
        name: node.number(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if masks["ellipsis"] or masks["new_axis"]:
        raise Refused("an ellipsis or a new axis in a slice is not supported; reshape instead")
    if not len(begins) == len(ends) == len(steps) <= x.type.rank or 0 in steps:
        raise ModelError(f"it cuts {len(begins)} axes of {x.type} with steps {steps}")
    starts, lengths, gone = [], [], set()
    bounds = node.builder.bounds
    for axis, size in enumerate(x.type.shape):
        if axis >= len(steps):
            starts.append(Dim.of(0))
            lengths.append(size)
            continue
        bit, step = 1 << axis, steps[axis]
        begin = None if masks["begin"] & bit else begins[axis]
        end = None if masks["end"] & bit else ends[axis]
        if node.number("offset") and end is not None:
            end = end + begins[axis]
        if masks["shrink_axis"] & bit:
            gone.add(axis)
            step, begin = 1, begins[axis]
            last = begin.is_constant and begin.constant == -1
            end = None if last else begin + 1
        elif end is not None and step > 0 and _is_whole(node, end, axis):
            end = None
        start, length, proof = normalize_slice(begin, end, step, size, bounds)
        node.builder.accept(proof)
        starts.append(simplify(start, bounds))
        lengths.append(simplify(length, bounds))
        steps[axis] = step
    y = _cut(node, x, starts, lengths, [*steps, *[1] * (x.type.rank - len(steps))])
    for axis in gone:
        node.require_equal(lengths[axis], 1, "an axis that is cut to one element")
    return node.reshape(y, [n for axis, n in enumerate(y.type.shape) if axis not in gone])


def _is_whole(node: Node, end: Dim, axis: int) -> bool:
    """The size that the file gives an axis means all of it, where the user opened a size that the
    file fixes: an axis that the file leaves open has some size there, mostly 1."""
    size = node.arg(0).type.shape[axis]
    opened = bool(size.symbols) and size.symbols <= node.scope.opened
    return opened and end.is_constant and end.constant == node.tensor(0).shape[axis]


def _split(node: Node) -> Results:
    x = node.arg(1)
    axis, count = normal_axis(node.integer(0), x.type.rank), len(node.operator.outputs)
    size = x.type.shape[axis]
    part = simplify(size // count, node.builder.bounds)
    node.require_equal(part * count, size, "the parts of a SPLIT")
    return tuple(node.parts(x, axis, [part] * count))


def _split_v(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(node.integer(2), x.type.rank)
    parts = list(node.dims(1))
    given = sum((part for part in parts if part != Dim.of(-1)), Dim.of(0))
    parts = [x.type.shape[axis] - given if part == Dim.of(-1) else part for part in parts]
    node.require_equal(sum(parts, Dim.of(0)), x.type.shape[axis], "the parts of a SPLIT_V")
    return tuple(node.parts(x, axis, parts))


# Joining


def _concatenation(node: Node) -> Results:
    args = [node.arg(i) for i in range(node.count)]
    same_scale(node, *range(node.count))
    axis = normal_axis(node.number("axis"), args[0].type.rank)
    y = node.emit("concat", *args, axis=axis) if len(args) > 1 else args[0]
    return activated(node, y, node.activation())


def _pack(node: Node) -> Results:
    args = [node.arg(i) for i in range(node.count)]
    same_scale(node, *range(node.count))
    axis = normal_axis(node.number("axis"), args[0].type.rank + 1)
    rows = [node.reshape(a, (*a.type.shape[:axis], ONE, *a.type.shape[axis:])) for a in args]
    return node.emit("concat", *rows, axis=axis) if len(rows) > 1 else rows[0]


def _unpack(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(node.number("axis"), x.type.rank)
    count = len(node.operator.outputs)
    node.require_equal(x.type.shape[axis], count, "the parts of an UNPACK")
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    parts = list(node.parts(x, axis, [ONE] * count))
    return tuple(node.reshape(part, shape) for part in parts)


# Padding, turning, repeating


def _pad_value(node: Node, x: Var) -> Var | None:
    """What stands outside: the given value, else 0 as the result quantizes it."""
    if node.has(2):
        return node.reshape(node.arg(2), ())
    return _pad_zero(node, x)


def _pad(node: Node) -> Results:
    x = node.arg(0)
    same_scale(node, 0)
    before, after = _pads(node, x)
    value = _pad_value(node, x)
    args = (x,) if value is None else (x, value)
    return node.emit("pad", *args, before=before, after=after, mode="constant")


def _pads(node: Node, x: Var) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    pads = node.dims(1)
    if len(pads) != 2 * x.type.rank:
        raise ModelError(f"it has {len(pads)} pads for {x.type}")
    return pads[::2], pads[1::2]


def _mirror_pad(node: Node) -> Results:
    x = node.arg(0)
    same_scale(node, 0)
    before, after = _pads(node, x)
    mode = node.number("mode")
    if mode not in (0, 1):
        raise ModelError(f"its mode has the number {mode}")
    if mode == 0:
        return node.emit("pad", x, before=before, after=after, mode="reflect")
    # SYMMETRIC repeats the edge: the mirrored pieces are concatenated with x, axis by axis.
    for axis, (left, right) in enumerate(zip(before, after, strict=True)):
        if left == 0 and right == 0:
            continue
        size = x.type.shape[axis]
        pieces = [x]
        if left != 0:
            pieces.insert(0, node.part(x, axis, left - 1, left, step=-1))
        if right != 0:
            pieces.append(node.part(x, axis, size - 1, right, step=-1))
        x = node.emit("concat", *pieces, axis=axis)
    return x


def _reverse(node: Node) -> Results:
    x = node.arg(0)
    for given in node.constants(1):
        axis = normal_axis(given, x.type.rank)
        size = x.type.shape[axis]
        x = node.part(x, axis, size - 1, size, step=-1)
    return x


def _reverse_sequence(node: Node) -> Results:
    batch, time = node.number("batch_dim"), node.number("seq_dim")
    return node.emit("reverse_sequence", node.arg(0), node.arg(1), batch_axis=batch, time_axis=time)


# Blocks


def _block(node: Node) -> Dim:
    block = node.number("block_size")
    if block < 1:
        raise ModelError(f"its block has size {block}")
    return Dim.of(block)


def _depth_to_space(node: Node) -> Results:
    x, block = node.arg(0), _block(node)
    n, h, w, c = x.type.shape
    inner = c // (block * block)
    moved = node.reshape(x, (n, h, w, block, block, inner))
    moved = node.emit("transpose", moved, perm=(0, 1, 3, 2, 4, 5))
    return node.reshape(moved, (n, h * block, w * block, inner))


def _space_to_depth(node: Node) -> Results:
    x, block = node.arg(0), _block(node)
    n, h, w, c = x.type.shape
    rows, columns = h // block, w // block
    moved = node.reshape(x, (n, rows, block, columns, block, c))
    moved = node.emit("transpose", moved, perm=(0, 1, 3, 2, 4, 5))
    return node.reshape(moved, (n, rows, columns, block * block * c))


def _space_to_batch(node: Node) -> Results:
    x = node.arg(0)
    blocks, pads = node.constants(1), node.constants(2)
    count = len(blocks)
    if len(pads) != 2 * count or min(blocks, default=0) < 1 or x.type.rank <= count:
        raise ModelError(f"its blocks {blocks} and pads {pads} do not fit {x.type}")
    tail = (0,) * (x.type.rank - count - 1)
    value = _pad_zero(node, x)
    args = (x,) if value is None else (x, value)
    if any(pads):
        before, after = (0, *pads[::2], *tail), (0, *pads[1::2], *tail)
        x = node.emit("pad", *args, before=before, after=after, mode="constant")
    n, *space = x.type.shape[: count + 1]
    rest = x.type.shape[count + 1 :]
    split: list[Dim] = []
    for size, block in zip(space, blocks, strict=True):
        split += [size // block, Dim.of(block)]
    moved = node.reshape(x, (n, *split, *rest))
    inner = [2 + 2 * i for i in range(count)]
    outer = [1 + 2 * i for i in range(count)]
    last = range(1 + 2 * count, moved.type.rank)
    moved = node.emit("transpose", moved, perm=(*inner, 0, *outer, *last))
    total = n * int(np.prod(blocks))
    return node.reshape(moved, (total, *split[::2], *rest))


def _pad_zero(node: Node, x: Var) -> Var | None:
    zero = node.single(node.result())[1] if node.result().quantization is not None else 0
    return node.scalar(zero, x.type.dtype) if zero and x.type.dtype in QUANTIZED_TYPES else None


def _batch_to_space(node: Node) -> Results:
    x = node.arg(0)
    blocks, crops = node.constants(1), node.constants(2)
    count = len(blocks)
    if len(crops) != 2 * count or min(blocks, default=0) < 1 or x.type.rank <= count:
        raise ModelError(f"its blocks {blocks} and crops {crops} do not fit {x.type}")
    batch = simplify(x.type.shape[0] // int(np.prod(blocks)), node.builder.bounds)
    space, rest = x.type.shape[1 : count + 1], x.type.shape[count + 1 :]
    moved = node.reshape(x, (*blocks, batch, *space, *rest))
    perm = [count]
    for axis in range(count):
        perm += [count + 1 + axis, axis]
    moved = node.emit("transpose", moved, perm=(*perm, *range(2 * count + 1, moved.type.rank)))
    whole = [size * block for size, block in zip(space, blocks, strict=True)]
    y = node.reshape(moved, (batch, *whole, *rest))
    starts = [Dim.of(0), *map(Dim.of, crops[::2]), *[Dim.of(0)] * len(rest)]
    lengths = [
        batch,
        *(size - a - b for size, a, b in zip(whole, crops[::2], crops[1::2], strict=True)),
        *rest,
    ]
    return _cut(node, y, starts, lengths, [1] * y.type.rank)


# Places from data


def _gather(node: Node) -> Results:
    x, indices = node.arg(0), node.arg(1)
    same_scale(node, 0)
    if node.number("batch_dims"):
        raise Refused("batch axes are not supported; gather without them")
    return node.emit("gather", x, indices, axis=normal_axis(node.number("axis"), x.type.rank))


def _gather_nd(node: Node) -> Results:
    same_scale(node, 0)
    return node.emit("gather_nd", node.arg(0), node.arg(1), batch_dims=0)


def _scatter_nd(node: Node) -> Results:
    dtype = node.arg(1).type.dtype
    zero = 0.0 if dtype.is_float else 0
    start = node.emit("fill", shape=node.dims(2), value=zero, dtype=dtype)
    return node.emit("scatter_nd", start, node.arg(0), node.arg(1), reduction="add")


def _one_hot(node: Node) -> Results:
    depth = node.integer(1)
    off, on = (node.reshape(node.arg(i), (1,)) for i in (3, 2))
    values = node.emit("concat", off, on, axis=0)
    axis = node.number("axis")
    return node.emit("one_hot", node.arg(0), values, depth=depth, axis=axis)


def _top_k(node: Node) -> Results:
    same_scale(node, 0)
    found = node.emit_all(
        "top_k", node.arg(0), k=node.integer(1), axis=-1, largest=True, sorted=True
    )
    to = node.result_type(1)
    return found[0], node.cast(found[1], to)


def _arg(op: str) -> Handler:
    def handler(node: Node) -> Results:
        found = node.emit(op, node.arg(0), axis=node.integer(1), keepdims=False, select_last=False)
        return node.cast(found, node.result_type())

    return handler


HANDLERS: dict[str, Handler] = {
    "ARG_MAX": _arg("arg_max"),
    "ARG_MIN": _arg("arg_min"),
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "CONCATENATION": _concatenation,
    "DEPTH_TO_SPACE": _depth_to_space,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "MIRROR_PAD": _mirror_pad,
    "ONE_HOT": _one_hot,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "REVERSE_V2": _reverse,
    "SCATTER_ND": _scatter_nd,
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "STRIDED_SLICE": _strided_slice,
    "TILE": lambda node: node.emit("tile", node.arg(0), repeats=node.dims(1)),
    "TOPK_V2": _top_k,
    "TRANSPOSE": lambda node: node.emit("transpose", node.arg(0), perm=tuple(node.constants(1))),
    "UNPACK": _unpack,
}
