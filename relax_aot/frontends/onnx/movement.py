# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements: transposes, slices, concatenation, padding."""

from __future__ import annotations

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results, direct
from relax_aot.ir.dims import Dim, dim_max, interval, simplify
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis
from relax_aot.ops._size_lists import FARTHEST, OPEN_ENDS
from relax_aot.ops.movement import normalize_slice

LIMITS = {
    "Pad": "data-dependent pads need a bound",
    "Tile": "data-dependent repeats need a bound",
}


def _transpose(node: Node) -> Results:
    x = node.arg(0)
    return node.emit("transpose", x, perm=node.numbers("perm", range(x.type.rank)[::-1]))


def _tile(node: Node) -> Results:
    x = node.arg(0)
    rank = x.type.rank
    if node.opset >= 6 and node.builder.dims(node.arg(1)) is None:
        requested = node.emit("tile_sizes", node.arg(1), sizes=x.type.shape)
        shape = [node.size_of(requested, axis, axis) for axis in range(rank)]
        return node.emit("tile_to", x, shape=tuple(shape))
    if node.opset < 6:
        places = [Dim.of(1)] * rank
        places[normal_axis(node.integer(2), rank)] = node.dim(1)
        repeats = tuple(places)
    else:
        repeats = node.dims(1)
    return node.emit("tile", node.arg(0), repeats=repeats)


def _slice(node: Node) -> Results:
    x = node.arg(0)
    if node.opset < 10:
        starts = tuple(Dim.of(int(v)) for v in node.required("starts"))
        ends = tuple(Dim.of(int(v)) for v in node.required("ends"))
        axes, steps = node.attr("axes"), None
    else:
        if any(not _known(node, index) for index in range(1, 5)):
            return _slice_at_run_time(node, x)
        starts, ends, axes, steps = node.dims(1), node.dims(2), node.ints(3), node.ints(4)
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(
            f"a Slice has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and"
            f" {len(steps)} steps"
        )
    places = [normal_axis(axis, x.type.rank) for axis in axes]
    if len(set(places)) < len(places) or 0 in steps:
        raise ModelError(f"a Slice has axes {axes} and steps {steps}")
    bounds = node.builder.bounds
    begins, lengths = [], []
    for start, end, axis, step in zip(starts, ends, places, steps, strict=True):
        if not (_sided(start, node) and _sided(end, node)) and node.opset >= 10:
            # Such an index may count from the end, which is dynamic.
            return _slice_at_run_time(node, x)
        # ONNX's numbers beyond any size stand for "open", and need no clamping then.
        opened = end.is_constant and end.constant in OPEN_ENDS
        begin, length, proof = normalize_slice(
            _open(start, past=step < 0), None if opened else _open(end, past=step > 0), step,
            x.type.shape[axis], bounds,
        )  # fmt: skip
        node.builder.accept(proof)
        begins.append(simplify(begin, bounds))
        lengths.append(simplify(length, bounds))
    whole = all(
        begin == 0 and length == x.type.shape[axis] and step == 1
        for begin, length, axis, step in zip(begins, lengths, places, steps, strict=True)
    )
    if whole:
        return x
    return node.emit(
        "slice", x, starts=tuple(begins), lengths=tuple(lengths), axes=tuple(places),
        steps=tuple(steps),
    )  # fmt: skip


def _sided(index: Dim, node: Node) -> bool:
    return node.builder.proves(index, "<", 0) or node.builder.proves(0, "<=", index)


def _known(node: Node, index: int) -> bool:
    var = node.optional(index)
    return var is None or node.builder.dims(var) is not None


def _slice_at_run_time(node: Node, x: Var) -> Results:
    """First elements, lengths and steps are worked out by a kernel; axes that no operand
    names stay whole."""
    rank, shape = x.type.rank, x.type.shape
    args = [node.arg(1), node.arg(2), node.optional(3), node.optional(4)]
    places = node.emit("slice_sizes", *args, sizes=shape)
    axes = _sliced_axes(node, rank)
    steps = node.ints(4) if _known(node, 4) else None
    by_axis = dict(zip(axes, steps, strict=True)) if steps and _known(node, 3) else {}
    starts, lengths, strides = [], [], []
    for axis in axes:
        size = shape[axis]
        lengths.append(node.size_of(places, rank + axis, axis, most=size))
        starts.append(node.named_size(places, axis, f"start_{axis}", size))
        step: Dim | int = 1
        if node.optional(4) is not None:
            high = interval(size, node.builder.bounds)[1]
            step = by_axis.get(axis, 0) or node.named_size(
                places, 2 * rank + axis, f"step_{axis}", dim_max(size, 1), least=-max(high, 1)
            )
        strides.append(step)
    return node.emit(
        "slice", x, starts=tuple(starts), lengths=tuple(lengths), axes=tuple(axes),
        steps=tuple(strides),
    )  # fmt: skip


def _sliced_axes(node: Node, rank: int) -> list[int]:
    """The axes that a Slice may cut: all, where data name them."""
    given = node.optional(3)
    if given is None:
        first = node.arg(1).type
        if first.rank != 1:
            raise ModelError(f"the first elements of a Slice are {first}")
        count = first.shape[0]
        return list(range(count.constant if count.is_constant else rank))
    if not _known(node, 3):
        return list(range(rank))
    return [normal_axis(axis, rank) for axis in node.ints(3) or []]


def _open(index: Dim, *, past: bool) -> Dim | None:
    """None where the index lies beyond every size on the side where the slice is open."""
    if not index.is_constant:
        return index
    beyond = index.constant >= FARTHEST if past else index.constant <= -FARTHEST
    return None if beyond else index


def _split(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(int(node.attr("axis", 0)), x.type.rank)
    size = x.type.shape[axis]
    parts = _parts(node, size)
    node.require_equal(sum(parts, Dim.of(0)), size, "the parts of a Split")
    return tuple(node.parts(x, axis, parts, "a part of a Split"))


def _parts(node: Node, size: Dim) -> list[Dim]:
    if node.has("split"):
        return [Dim.of(int(part)) for part in node.attr("split")]
    if node.opset >= 13 and node.optional(1) is not None:
        return _given_parts(node, size)
    count = int(node.attr("num_outputs", len(node.proto.output)))
    if count != len(node.proto.output):
        raise ModelError(f"a Split into {count} has {len(node.proto.output)} outputs")
    if node.opset < 18:
        return [simplify(size // count, node.builder.bounds)] * count
    # The last part may be smaller.
    part = simplify((size + count - 1) // count, node.builder.bounds)
    return [part] * (count - 1) + [size - part * (count - 1)]


def _given_parts(node: Node, size: Dim) -> list[Dim]:
    known = node.builder.dims(node.arg(1))
    if known is not None:
        return list(known)
    if node.arg(1).type.elements != Dim.of(len(node.proto.output)):
        if node.arg(1).type.elements.is_constant:
            raise ModelError(f"a Split has {node.arg(1).type} parts for its results")
        node.as_long(1, len(node.proto.output))
    axis = normal_axis(int(node.attr("axis", 0)), node.arg(0).type.rank)
    return [
        node.named_size(node.arg(1), i, f"{name or 'part'}_{axis}", size)
        for i, name in enumerate(node.proto.output)
    ]


def _concat(node: Node) -> Results:
    args = node.args()
    given = node.attr("axis", 1) if node.opset < 4 else node.required("axis")
    axis = normal_axis(int(given), args[0].type.rank)
    return node.emit("concat", *args, axis=axis) if len(args) > 1 else args[0]


def _pad(node: Node) -> Results:
    x = node.arg(0)
    rank = x.type.rank
    if node.opset < 11:
        pads = tuple(
            Dim.of(int(pad)) for pad in node.required("paddings" if node.opset < 2 else "pads")
        )
        value = node.scalar(node.attr("value"), x) if node.attr("value", 0.0) else None
    else:
        given = node.optional(2)
        value = None if given is None else node.reshape(given, ())
        if not _known(node, 1) or not _known(node, 3):
            return _pad_at_run_time(node, x, value)
        pads = node.dims(1)
    axes = node.ints(3)
    places = list(range(rank)) if axes is None else [normal_axis(axis, rank) for axis in axes]
    if len(pads) != 2 * len(places):
        raise ModelError(f"a Pad has {len(pads)} pads for {len(places)} axes")
    before, after = [Dim.of(0)] * rank, [Dim.of(0)] * rank
    for position, axis in enumerate(places):
        before[axis], after[axis] = pads[position], pads[position + len(places)]
    return _padded(node, x, value, before, after)


def _pad_at_run_time(node: Node, x: Var, value: Var | None) -> Results:
    """The user bounds the sizes of the result; what stands before the input follows."""
    rank = x.type.rank
    places = node.emit("pad_sizes", node.arg(1), node.optional(3), sizes=x.type.shape)
    before, after = [Dim.of(0)] * rank, [Dim.of(0)] * rank
    named = node.ints(3) if _known(node, 3) else None
    axes = range(rank) if named is None else [normal_axis(axis, rank) for axis in named]
    for axis in axes:
        size = x.type.shape[axis]
        after_all = node.size_of(places, rank + axis, axis)
        least = -interval(size, node.builder.bounds)[1]
        before[axis] = node.named_size(places, axis, f"before_{axis}", after_all, least=least)
        after[axis] = after_all - size - before[axis]
    return _padded(node, x, value, before, after)


def _padded(node: Node, x: Var, value: Var | None, before: list[Dim], after: list[Dim]) -> Results:
    mode = node.attr("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ModelError(f"a Pad has mode {mode!r}")
    if all(pad == 0 for pad in (*before, *after)):
        return x
    if mode != "constant":
        for pad in (*before, *after):
            node.require_at_most(0, pad, f"negative pads, which mode {mode} does not support")
    args = (x,) if value is None or mode != "constant" else (x, value)
    return node.emit("pad", *args, before=tuple(before), after=tuple(after), mode=mode)


def _block(node: Node) -> Dim:
    size = int(node.required("blocksize"))
    node.require_numbers(1, blocksize=[size])
    return Dim.of(size)


def _depth_to_space(node: Node) -> Results:
    x = node.arg(0)
    block = _block(node)
    n, channels, height, width = x.type.shape
    inner = channels // (block * block)
    if node.attr("mode", "DCR") == "DCR":
        split, perm = (n, block, block, inner, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, inner, block, block, height, width), (0, 1, 4, 2, 5, 3)
    moved = node.emit("transpose", node.reshape(x, split), perm=perm)
    return node.reshape(moved, (n, inner, height * block, width * block))


def _space_to_depth(node: Node) -> Results:
    x = node.arg(0)
    block = _block(node)
    n, channels, height, width = x.type.shape
    rows, columns = height // block, width // block
    blocks = node.reshape(x, (n, channels, rows, block, columns, block))
    perm = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = node.emit("transpose", blocks, perm=perm)
    return node.reshape(moved, (n, channels * block * block, rows, columns))


def _trilu(node: Node) -> Results:
    """The diagonal's place may be a size, or a dynamic number."""
    x, offset, upper = node.arg(0), node.optional(1), bool(node.attr("upper", 1))
    if offset is not None and node.builder.dims(offset) is None:
        return node.emit("trilu", x, offset, upper=upper)
    k = node.dim(1) if offset is not None else 0
    return node.emit("trilu", x, k=k, upper=upper)


HANDLERS: dict[str, Handler] = {
    "Transpose": _transpose,
    "Tile": _tile,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _trilu,
    "ReverseSequence": direct("reverse_sequence", "xx", batch_axis=1, time_axis=0),
}
