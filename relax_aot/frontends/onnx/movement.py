"""Operators that move elements or make shapes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from relax_aot.frontends.onnx.context import Node, Unsupported
from relax_aot.ir.dims import Dim, ceildiv, dim_max, prove_eq, prove_le, prove_lt, simplify
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import broadcast, normal_axis
from relax_aot.ops.movement import normalise_slice

Handler = Callable[[Node], Var | tuple[Var, ...]]
ONE = Dim.of(1)
HUGE = 2**31

LIMITS = {
    "Reshape": "the shape must be derivable from sizes",
    "Slice": "starts, ends, axes and steps must be derivable from sizes; steps constant",
    "Expand": "the shape must be derivable from sizes",
    "Pad": "pads must be derivable from sizes",
    "Range": "start, limit and delta must be derivable from sizes; delta constant",
    "Split": "sizes must be constant",
}


def _constant(node: Node) -> Var:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if node.has(name):
            value = node.attr(name)
            kind = np.float32 if "float" in name else np.int64
            return node.constant(value if name == "value" else np.array(value, kind))
    raise Unsupported("only numeric constants are supported")


def _shape(node: Node) -> Var:
    x = node.arg(0)
    rank = x.type.rank
    start, end = node.attr("start", 0), node.attr("end", rank)
    shape = node.emit("shape_of", x)
    start = min(max(start + rank if start < 0 else start, 0), rank)
    end = min(max(end + rank if end < 0 else end, 0), rank)
    if (start, end) == (0, rank):
        return shape
    length = max(end - start, 0)
    return node.emit("slice", shape, starts=(start,), lengths=(length,), axes=(0,), steps=(1,))


def _size(node: Node) -> Var:
    shape = node.emit("shape_of", node.arg(0))
    return _size_of(node, shape)


def _size_of(node: Node, shape: Var) -> Var:
    total = node.constant(np.array(1, np.int64))
    for axis in range(shape.type.shape[0].constant):
        one = node.emit("slice", shape, starts=(axis,), lengths=(1,), axes=(0,), steps=(1,))
        total = node.emit("mul", total, node.reshape(one, ()))
    return total


def _reshape(node: Node) -> Var:
    x = node.arg(0)
    wanted = (
        tuple(Dim.of(int(n)) for n in node.attr("shape")) if node.has("shape") else node.dims(1)
    )
    zero_is_zero = bool(node.attr("allowzero", 0))
    shape: list[Dim | None] = []
    for axis, size in enumerate(wanted):
        if size == Dim.of(0) and not zero_is_zero:
            if axis >= x.type.rank:
                raise Unsupported(f"a 0 at place {axis} copies a size that {x.type} has not")
            size = x.type.shape[axis]
        shape.append(None if size == Dim.of(-1) else size)
    return node.reshape(x, _inferred(node, x, shape))


def _inferred(node: Node, x: Var, shape: list[Dim | None]) -> list[Dim]:
    open_places = [i for i, size in enumerate(shape) if size is None]
    if not open_places:
        return [size for size in shape if size is not None]
    if len(open_places) > 1:
        raise Unsupported("two sizes are -1")
    # Sizes that stand on both sides cancel, so that (n, 4, 8) -> (n, -1) divides nothing.
    left = list(x.type.shape)
    right = [size for size in shape if size is not None]
    for size in list(right):
        if size in left:
            left.remove(size)
            right.remove(size)
    numerator, denominator = prod(left, start=ONE), prod(right, start=ONE)
    if denominator == Dim.of(0):
        raise Unsupported("-1 cannot be told where another size is 0")
    rest = _exact(numerator, denominator, node)
    return [rest if size is None else size for size in shape]


def _exact(numerator: Dim, denominator: Dim, node: Node) -> Dim:
    """numerator / denominator; that it divides becomes a condition of the reshape."""
    quotient = simplify(numerator // denominator, node.builder.bounds)
    if prove_eq(quotient * denominator, numerator, node.builder.bounds):
        return quotient
    for size in numerator.symbols | denominator.symbols:
        # Polynomials that divide exactly: try to cancel one symbol.
        cancelled = _cancel(numerator, denominator, size)
        if cancelled is not None:
            return _exact(*cancelled, node)
    return quotient


def _cancel(numerator: Dim, denominator: Dim, symbol: str) -> tuple[Dim, Dim] | None:
    sides = []
    for dim in (numerator, denominator):
        terms = []
        for coefficient, monomial in dim.terms:
            powers = dict(monomial)
            if symbol not in powers:
                return None
            powers[symbol] -= 1
            term = Dim.of(coefficient)
            for atom, power in powers.items():
                for _ in range(power):
                    term = term * Dim(((1, ((atom, 1),)),))
            terms.append(term)
        sides.append(sum(terms[1:], terms[0]))
    return sides[0], sides[1]


def _flatten(node: Node) -> Var:
    x = node.arg(0)
    axis = node.attr("axis", 1)
    axis = axis + x.type.rank if axis < 0 else axis
    shape = x.type.shape
    return node.reshape(x, (prod(shape[:axis], start=ONE), prod(shape[axis:], start=ONE)))


def _squeeze(node: Node) -> Var:
    x = node.arg(0)
    axes = node.ints(1, "axes")
    if axes is None:
        gone = {i for i, n in enumerate(x.type.shape) if n == ONE}
        unclear = [n for n in x.type.shape if n != ONE and not _above_one(n, node)]
        if unclear:
            raise Unsupported(f"without axes its rank depends on the size {unclear[0]}")
    else:
        gone = {normal_axis(a, x.type.rank) for a in axes}
    return node.reshape(x, [n for i, n in enumerate(x.type.shape) if i not in gone])


def _above_one(size: Dim, node: Node) -> bool:
    return prove_lt(1, size, node.builder.bounds)


def _unsqueeze(node: Node) -> Var:
    x = node.arg(0)
    axes = node.ints(1, "axes") or []
    rank = x.type.rank + len(axes)
    places = {normal_axis(a, rank) for a in axes}
    rest = iter(x.type.shape)
    return node.reshape(x, [ONE if i in places else next(rest) for i in range(rank)])


def _transpose(node: Node) -> Var:
    x = node.arg(0)
    perm = node.attr("perm") or list(range(x.type.rank))[::-1]
    return node.emit("transpose", x, perm=tuple(int(p) for p in perm))


def _expand(node: Node) -> Var:
    x = node.arg(0)
    shape = broadcast(x.type.shape, node.dims(1))
    return node.emit("expand", x, shape=shape)


def _tile(node: Node) -> Var:
    return node.emit("tile", node.arg(0), repeats=node.dims(1))


def _slice(node: Node) -> Var:
    x = node.arg(0)
    starts: tuple[Dim, ...]
    if node.has("starts"):
        starts, ends = (tuple(Dim.of(int(v)) for v in node.attr(n)) for n in ("starts", "ends"))
        axes = node.attr("axes") or list(range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, ends = node.dims(1), node.dims(2)
        axes = node.ints(3) or list(range(len(starts)))
        steps = node.ints(4) or [1] * len(starts)
    begins, lengths, places = [], [], []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise Unsupported("a step of 0")
        at = normal_axis(axis, x.type.rank)
        size = x.type.shape[at]
        bounds = node.builder.bounds
        begin, length = normalise_slice(
            _open(start, low=step < 0), _open(end, low=step > 0), step, size, bounds
        )
        places.append(at)
        begins.append(simplify(begin, bounds))
        lengths.append(simplify(length, bounds))
    return node.emit(
        "slice", x, starts=tuple(begins), lengths=tuple(lengths), axes=tuple(places),
        steps=tuple(steps),
    )  # fmt: skip


def _open(index: Dim, *, low: bool) -> Dim | None:
    """Huge values mean "to the end"; as None they need no clamping."""
    if index.is_constant and index.constant >= HUGE:
        return None if not low else index
    if index.is_constant and index.constant <= -HUGE:
        return None if low else index
    return index


def _split(node: Node) -> tuple[Var, ...]:
    x = node.arg(0)
    axis = normal_axis(node.attr("axis", 0), x.type.rank)
    size = x.type.shape[axis]
    parts = list(node.dims(1)) if node.count > 1 and node.proto.input[1] else None
    if node.has("split"):
        parts = [Dim.of(int(n)) for n in node.attr("split")]
    if parts is None:
        count = int(node.attr("num_outputs", len(node.proto.output)))
        chunk = (size + count - 1) // count
        parts = [chunk] * (count - 1) + [size - chunk * (count - 1)]
    results, start = [], Dim.of(0)
    for part in parts:
        results.append(
            node.emit("slice", x, starts=(start,), lengths=(part,), axes=(axis,), steps=(1,))
        )
        start = start + part
    return tuple(results)


def _concat(node: Node) -> Var:
    args = node.args()
    return node.emit("concat", *args, axis=normal_axis(node.attr("axis", 0), args[0].type.rank))


def _pad(node: Node) -> Var:
    x = node.arg(0)
    pads = tuple(Dim.of(int(p)) for p in node.attr("pads")) if node.has("pads") else node.dims(1)
    axes = node.ints(3) if node.count > 3 else None
    rank = x.type.rank
    places = [normal_axis(a, rank) for a in axes] if axes else list(range(rank))
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for i, axis in enumerate(places):
        before[axis], after[axis] = pads[i], pads[i + len(places)]
    mode = node.attr("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {mode!r}")
    value = node.optional(2)
    if node.has("value"):
        value = node.scalar(node.attr("value"), x)
    args = [x] if value is None or mode != "constant" else [x, node.reshape(value, ())]
    return node.emit("pad", *args, before=tuple(before), after=tuple(after), mode=mode)


def _gather(node: Node) -> Var:
    return node.emit("gather", *node.args(), axis=int(node.attr("axis", 0)))


def _gather_elements(node: Node) -> Var:
    return node.emit("gather_elements", *node.args(), axis=int(node.attr("axis", 0)))


def _gather_nd(node: Node) -> Var:
    return node.emit("gather_nd", *node.args(), batch_dims=int(node.attr("batch_dims", 0)))


def _constant_of_shape(node: Node) -> Var:
    value = node.attr("value")
    value = np.zeros(1, np.float32) if value is None else value
    return node.emit(
        "fill", shape=node.dims(0), value=value.reshape(-1)[0].item(), dtype=DType.of(value.dtype)
    )


def _range(node: Node) -> Var:
    dtype = node.arg(0).type.dtype
    if dtype.is_float:
        start, limit, step = (node.number(i) for i in range(3))
        if start is None or limit is None or not step:
            raise Unsupported("a float range needs constant start, limit and delta")
        length = max(int(np.ceil((limit - start) / step)), 0)
        return node.emit("range", start=start, step=step, length=length, dtype=dtype)
    (start_dim,), (limit_dim,), (step_dim,) = (node.dims(i) for i in range(3))
    if not step_dim.is_constant or step_dim == Dim.of(0):
        raise Unsupported("its delta must be a constant other than 0")
    stride = step_dim.constant
    apart = limit_dim - start_dim if stride > 0 else start_dim - limit_dim
    count = simplify(ceildiv(apart, abs(stride)), node.builder.bounds)
    if not prove_le(0, count, node.builder.bounds):
        count = dim_max(count, 0)
    return node.emit("range", start=start_dim, step=stride, length=count, dtype=dtype)


def _depth_to_space(node: Node) -> Var:
    x = node.arg(0)
    block = int(node.attr("blocksize"))
    n, c, h, w = x.type.shape
    inner = c // (block * block)
    if node.attr("mode", "DCR") == "DCR":
        split, perm = (n, Dim.of(block), Dim.of(block), inner, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, inner, Dim.of(block), Dim.of(block), h, w), (0, 1, 4, 2, 5, 3)
    moved = node.emit("transpose", node.reshape(x, split), perm=perm)
    return node.reshape(moved, (n, inner, h * block, w * block))


def _space_to_depth(node: Node) -> Var:
    x = node.arg(0)
    block = int(node.attr("blocksize"))
    n, c, h, w = x.type.shape
    split = (n, c, h // block, Dim.of(block), w // block, Dim.of(block))
    moved = node.emit("transpose", node.reshape(x, split), perm=(0, 3, 5, 1, 2, 4))
    return node.reshape(moved, (n, c * block * block, h // block, w // block))


HANDLERS: dict[str, Handler] = {
    "Constant": _constant,
    "Shape": _shape,
    "Size": _size,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Pad": _pad,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
