# SPDX-License-Identifier: Apache-2.0
"""Operators about shapes: those that ask for sizes, change them, or make values of a size."""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results, direct, dtype_of
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import (
    ONE,
    Dim,
    ceildiv,
    dim_max,
    interval,
    simplify,
)
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import normal_axis

LIMITS = {
    "Constant": "no strings",
}

# What may hold a Constant's value, and its element type.
VALUES = {
    "value_float": np.float32, "value_floats": np.float32,
    "value_int": np.int64, "value_ints": np.int64,
}  # fmt: skip


def _constant(node: Node) -> Results:
    if node.has("value"):
        return node.constant(node.attr("value"))
    for name, dtype in VALUES.items():
        if node.has(name):
            return node.constant(np.array(node.attr(name), dtype))
    given = ", ".join(attribute.name for attribute in node.proto.attribute)
    raise Refused(f"constants given by {given or 'nothing'} are not supported")


def _shape(node: Node) -> Results:
    x = node.arg(0)
    rank = x.type.rank
    start, end = _clamped(node.attr("start", 0), rank), _clamped(node.attr("end", rank), rank)
    shape = node.emit("shape_of", x)
    if (start, end) == (0, rank):
        return shape
    return node.part(shape, 0, start, max(end - start, 0))


def _clamped(axis: int, rank: int) -> int:
    return min(max(axis + rank if axis < 0 else axis, 0), rank)


def _reshape(node: Node) -> Results:
    x = node.arg(0)
    keep_zero = bool(node.attr("allowzero", 0))
    if node.builder.dims(node.arg(1)) is None:
        return _reshape_at_run_time(node, x, keep_zero)
    shape: list[Dim | None] = []
    given = node.dims(1) if node.opset >= 5 else [Dim.of(int(n)) for n in node.required("shape")]
    for axis, size in enumerate(given):
        if size == -1:
            shape.append(None)
        elif size == 0 and not keep_zero:
            shape.append(_copied(node, x, axis))
        else:
            _require_a_size(node, x, axis, size, keep_zero)
            shape.append(size)
    return node.reshape(x, _inferred(node, x, shape))


def _reshape_at_run_time(node: Node, x: Var, keep_zero: bool) -> Results:
    """No size is greater than the number of elements, if there are any."""
    rank = node.result_rank(1)
    places = node.emit("reshape_sizes", node.arg(1), sizes=x.type.shape, allow_zero=keep_zero)
    elements = x.type.elements
    some = node.builder.proves(1, "<=", elements)
    most = elements if some else None
    return node.reshape(x, [node.size_of(places, axis, axis, most) for axis in range(rank)])


def _copied(node: Node, x: Var, axis: int) -> Dim:
    if axis >= x.type.rank:
        raise ModelError(f"a Reshape copies size {axis} of {x.type}")
    return x.type.shape[axis]


def _require_a_size(node: Node, x: Var, axis: int, size: Dim, keep_zero: bool) -> None:
    """A size that is computed must not turn into the special values 0 (copy) and -1 (infer)."""
    least = 0 if keep_zero else 1
    if node.builder.proves(least, "<=", size):
        return
    if not keep_zero and axis < x.type.rank and node.builder.proves(0, "<=", size):
        # 0 means "as it was", which is right where it was 0 as well.
        symbols = [symbol for symbol in size.symbols if size == Dim.of(symbol)]
        before = x.type.shape[axis]
        if size == before or any(_vanishes_with(before, symbol) for symbol in symbols):
            return
    node.require_at_most(least, size, "a size in a Reshape")


def _vanishes_with(size: Dim, symbol: str) -> bool:
    """Whether a size is 0 where a symbol is 0."""
    try:
        return size.substitute({symbol: Dim.of(0)}) == 0
    except ZeroDivisionError:
        return False


def _inferred(node: Node, x: Var, shape: list[Dim | None]) -> list[Dim]:
    known = [size for size in shape if size is not None]
    if len(known) == len(shape):
        return known
    if len(shape) - len(known) > 1:
        raise ModelError("a Reshape has -1 twice")
    # Sizes on both sides cancel, so that [n, 4, 8] -> [n, -1] divides nothing.
    left, right = list(x.type.shape), list(known)
    for size in known:
        if size in left:
            left.remove(size)
            right.remove(size)
    numerator, denominator = prod(left, start=ONE), prod(right, start=ONE)
    if denominator == 0:
        raise ModelError("a Reshape has -1 together with a size of 0")
    rest = _exact(numerator, denominator, node)
    return [rest if size is None else size for size in shape]


def _exact(numerator: Dim, denominator: Dim, node: Node) -> Dim:
    """numerator / denominator; that it divides becomes a condition of the reshape."""
    bounds = node.builder.bounds
    quotient = simplify(numerator // denominator, bounds)
    positive = interval(denominator, bounds)[0] > 0
    if positive and node.builder.proves(quotient * denominator, "==", numerator):
        return quotient
    for symbol in sorted(numerator.symbols & denominator.symbols):
        less = _without(numerator, symbol), _without(denominator, symbol)
        if less[0] is not None and less[1] is not None:
            return _exact(less[0], less[1], node)
    if positive:
        return quotient
    # Nothing divides by 0, also while sizes are looked at that a run refuses.
    node.require_at_most(1, denominator, "the sizes of a Reshape that a -1 depends on")
    return simplify(numerator // dim_max(denominator, 1), bounds)


def _without(dim: Dim, symbol: str) -> Dim | None:
    """dim / symbol where every term has the symbol as a factor."""
    terms = []
    for coefficient, monomial in dim.terms:
        powers = dict(monomial)
        if symbol not in powers:
            return None
        powers[symbol] -= 1
        kept = tuple((atom, power) for atom, power in powers.items() if power)
        terms.append(Dim(((coefficient, kept),)))
    return sum(terms, Dim.of(0))


def _flatten(node: Node) -> Results:
    x = node.arg(0)
    axis = int(node.attr("axis", 1))
    at = axis if axis == x.type.rank else normal_axis(axis, x.type.rank)
    shape = x.type.shape
    return node.reshape(x, (prod(shape[:at], start=ONE), prod(shape[at:], start=ONE)))


def _squeeze(node: Node) -> Results:
    x = node.arg(0)
    if _axes_from_data(node):
        return _squeeze_at_run_time(node, x)
    axes = node.ints(1, "axes")
    if axes is None:
        gone = {axis for axis, size in enumerate(x.type.shape) if size == ONE}
        for size in x.type.shape:
            if size != ONE and not node.builder.proves(2, "<=", size):
                raise Refused(
                    f"it removes every axis of size 1, so its rank depends on {size}; set its "
                    "bound to 1..1 or to a range from 2, or give the axes"
                )
    else:
        gone = {normal_axis(axis, x.type.rank) for axis in axes}
        for axis in gone:
            node.require_equal(x.type.shape[axis], 1, "a squeezed axis")
    return node.reshape(x, [size for axis, size in enumerate(x.type.shape) if axis not in gone])


def _axes_from_data(node: Node) -> bool:
    given = None if node.has("axes") else node.optional(1)
    if given is None or node.builder.dims(given) is not None:
        return False
    if not given.type.elements.is_constant:
        if node.declared_rank is None:
            raise Refused("its number of axes is data-dependent")
        node.as_long(1, abs(node.declared_rank - node.arg(0).type.rank))
    return True


def _squeeze_at_run_time(node: Node, x: Var) -> Results:
    """What is left has all elements, so the sizes that are gone were 1."""
    rank, shape = x.type.rank, x.type.shape
    count = node.arg(1).type.elements.constant
    places = node.emit("reduce_sizes", node.arg(1), sizes=shape)
    left = [
        node.size_of(places, rank + j, j, dim_max(*shape[j : j + count + 1], 1))
        for j in range(rank - count)
    ]
    return node.reshape(x, left)


def _unsqueeze_at_run_time(node: Node, x: Var) -> Results:
    count = node.arg(1).type.elements.constant
    places = node.emit("unsqueeze_sizes", node.arg(1), sizes=x.type.shape)
    sizes = [
        node.size_of(places, i, i, dim_max(*x.type.shape[max(i - count, 0) : i + 1], 1))
        for i in range(x.type.rank + count)
    ]
    return node.reshape(x, sizes)


def _unsqueeze(node: Node) -> Results:
    x = node.arg(0)
    if _axes_from_data(node):
        return _unsqueeze_at_run_time(node, x)
    axes = node.ints(1, "axes") or []
    rank = x.type.rank + len(axes)
    places = {normal_axis(axis, rank) for axis in axes}
    if len(places) < len(axes):
        raise ModelError(f"axes {axes} name one axis twice")
    rest = iter(x.type.shape)
    return node.reshape(x, [ONE if axis in places else next(rest) for axis in range(rank)])


def _expand(node: Node) -> Results:
    x = node.arg(0)
    if node.builder.dims(node.arg(1)) is None:
        return _expand_at_run_time(node, x)
    return node.broadcast(x, node.dims(1))


def _expand_at_run_time(node: Node, x: Var) -> Results:
    """A size of 1 becomes what the shape says; others stay, and the shape must agree."""
    shorter = not node.arg(1).type.elements.is_constant and node.declared_rank == x.type.rank
    count = x.type.rank if shorter else node.result_rank(1)
    rank = max(x.type.rank, count)
    places = node.emit("expand_sizes", node.arg(1), sizes=x.type.shape)
    own = (ONE,) * (rank - x.type.rank) + x.type.shape
    shape = []
    for axis, size in enumerate(own):
        if axis < rank - count:
            shape.append(size)
        elif node.builder.proves(2, "<=", size):
            found = node.named_size(places, axis, f"size_{axis}", size)
            node.require_equal(found, size, "a size in an Expand")
            shape.append(size)
        else:
            shape.append(node.size_of(places, axis, axis))
    return node.emit("expand", x, shape=tuple(shape))


def _constant_of_shape(node: Node) -> Results:
    value = node.attr("value") if node.has("value") else np.zeros(1, np.float32)
    shape = node.sizes(0, range(node.result_rank(0)))
    number = value.reshape(-1)[0].item()
    return node.emit("fill", shape=shape, value=number, dtype=DType.of(value.dtype))


def _unknown(node: Node, index: int) -> bool:
    """Neither a number nor derived from sizes; the sign of a step has to be known."""
    dims = node.builder.dims(node.arg(index))
    if dims is None or index != 2 or dims[0].is_constant:
        return dims is None
    proves = node.builder.proves
    return not proves(0, "<", dims[0]) and not proves(dims[0], "<", 0)


def _range(node: Node) -> Results:
    dtype = node.arg(0).type.dtype
    if dtype.is_float:
        return _float_range(node)
    if any(_unknown(node, index) for index in range(3)):
        return _range_of_data(node)
    first, last, stride = (node.dim(index) for index in range(3))
    if stride == 0:
        raise ModelError("a Range has delta 0")
    if not stride.is_constant:
        return _strided_range(node, last - first, stride)
    step_size = stride.constant
    apart = last - first if step_size > 0 else first - last
    count = _count(node, ceildiv(apart, abs(step_size)))
    return node.emit("range", start=first, step=step_size, length=count, dtype=dtype)


def _range_of_data(node: Node) -> Var:
    ends = [node.arg(index) for index in range(3)]
    count = node.size_of(node.emit("range_size", *ends), 0, 0)
    return node.emit("range_from", ends[0], ends[2], length=count)


def _count(node: Node, count: Dim) -> Dim:
    """A number of steps, which is not below zero."""
    count = simplify(count, node.builder.bounds)
    if node.builder.proves(0, "<=", count):
        return count
    return Dim.of(0) if node.builder.proves(count, "<", 0) else dim_max(count, 0)


def _float_range(node: Node) -> Var:
    """Ends that are numbers, or follow from sizes."""
    ends = [node.number(index) for index in range(3)]
    dtype = node.arg(0).type.dtype
    if ends[2] == 0:
        raise ModelError("a Range has delta 0")
    if None not in ends:
        start, limit, step = (float(end) for end in ends if end is not None)
        length = max(ceil((limit - start) / step), 0)
        return node.emit("range", start=start, step=step, length=length, dtype=dtype)
    measured = [node.builder.measured(node.arg(index)) for index in range(3)]
    if ends[2] is None or any(value is None for value in measured):
        return _range_of_data(node)
    first, last, stride = (value.reshape(-1)[0] for value in measured if value is not None)
    if not (first.exact and last.exact):
        return _range_of_data(node)
    # (last - first) / stride, of integers
    apart = (last.over * first.under - first.over * last.under) * stride.under
    below = last.under * first.under * stride.over.constant
    count = _count(node, ceildiv(apart if below > 0 else -apart, abs(below)))
    if first.under == stride.under == 1:
        step_size = stride.over.constant
        return node.emit("range", start=first.over, step=step_size, length=count, dtype=dtype)
    steps = node.emit("range", start=0.0, step=float(ends[2]), length=count, dtype=dtype)
    return node.emit("add", steps, node.reshape(node.arg(0), []))


def _strided_range(node: Node, apart: Dim, stride: Dim) -> Results:
    """Steps as wide as a size, whose sign is known."""
    if node.builder.proves(stride, "<", 0):
        apart, stride = -apart, -stride
    if not node.builder.proves(0, "<=", apart):
        apart = dim_max(apart, 0)
    count = simplify(ceildiv(apart, stride), node.builder.bounds)
    steps = node.emit("range", start=0, step=1, length=count, dtype=node.arg(0).type.dtype)
    return node.emit("add", node.emit("mul", steps, node.arg(2)), node.arg(0))


def _eye_like(node: Node) -> Results:
    x = node.arg(0)
    if x.type.rank != 2:
        raise ModelError(f"EyeLike needs a matrix, got {x.type}")
    dtype = dtype_of(node.attr("dtype")) if node.has("dtype") else x.type.dtype
    rows, columns = x.type.shape
    return node.emit("eye", rows=rows, columns=columns, k=int(node.attr("k", 0)), dtype=dtype)


HANDLERS: dict[str, Handler] = {
    "Constant": _constant,
    "Shape": _shape,
    "Size": direct("size_of"),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": _eye_like,
}
