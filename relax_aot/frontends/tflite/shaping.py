# SPDX-License-Identifier: Apache-2.0
"""Operators that change shapes and make values of them."""

from __future__ import annotations

from math import prod

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.frontends.tflite.context import Handler, Node, Results
from relax_aot.ir.dims import ONE, Dim, simplify
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import broadcast, normal_axis

LIMITS: dict[str, str] = {
    "BROADCAST_TO": "shape constant or derived from sizes",
    "FILL": "shape constant or derived from sizes, value constant",
    "RANGE": "constants or sizes",
    "RESHAPE": "shape constant or derived from sizes",
}


def _reshape(node: Node) -> Results:
    x = node.arg(0)
    if node.has(1):
        requested = node.dims(1)
    else:
        given = node.option("new_shape")
        if given is None:
            raise ModelError("its new shape is missing")
        requested = tuple(map(Dim.of, given))
    return node.reshape(x, _shape(node, x, requested))


def _shape(node: Node, x: Var, requested: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """-1 stands for what is left. Where a size that the file fixes was opened (a batch), the
    constant shape is meant for the file's own sizes: the first axis takes what was opened."""
    open_ = [i for i, n in enumerate(requested) if n == Dim.of(-1)]
    if len(open_) > 1:
        raise ModelError(
            f"its new shape {list(map(str, requested))} leaves more than one size open"
        )
    rest = prod((n for n in requested if n != Dim.of(-1)), start=ONE)
    bounds = node.builder.bounds
    if open_:
        if rest == Dim.of(0):
            raise ModelError("its new shape divides by 0")
        left = simplify(x.type.elements // rest, bounds)
        return tuple(left if n == Dim.of(-1) else n for n in requested)
    before = prod(node.tensor(0).shape)
    fixed = rest.is_constant and rest.constant == before
    if fixed and requested and before > 0 and not x.type.elements.is_constant:
        node.scope.opened |= x.type.elements.symbols
        return (simplify(requested[0] * x.type.elements // before, bounds), *requested[1:])
    return requested


def _squeeze(node: Node) -> Results:
    x = node.arg(0)
    dims = node.option("dims") or []
    gone = {normal_axis(axis, x.type.rank) for axis in dims}
    if not dims:
        gone = {axis for axis, n in enumerate(node.tensor(0).shape) if n == 1}
    for axis in gone:
        node.require_equal(x.type.shape[axis], 1, "a squeezed axis")
    return node.reshape(x, [n for axis, n in enumerate(x.type.shape) if axis not in gone])


def _expand_dims(node: Node) -> Results:
    x = node.arg(0)
    axis = normal_axis(node.integer(1), x.type.rank + 1)
    return node.reshape(x, (*x.type.shape[:axis], ONE, *x.type.shape[axis:]))


def _sizes_of(node: Node) -> Results:
    to = node.type_option("out_type")
    shape = node.arg(0).type.shape
    numbers = {"step": 1, "length": 1, "dtype": to}
    parts = [node.emit("range", start=size, **numbers) for size in shape]
    return node.emit("concat", *parts, axis=0) if len(parts) > 1 else parts[0]


def _broadcast_to(node: Node) -> Results:
    x, requested = node.arg(0), node.dims(1)
    if broadcast(requested, x.type.shape) != requested:
        raise ModelError(f"{x.type} does not broadcast to {list(map(str, requested))}")
    return x if requested == x.type.shape else node.emit("expand", x, shape=requested)


def _fill(node: Node) -> Results:
    value = node.array(1)
    if value.size != 1:
        raise ModelError("its value is not a single number")
    dtype = node.result_type()
    return node.emit("fill", shape=node.dims(0), value=value.item(), dtype=dtype)


def _zeros_like(node: Node) -> Results:
    x = node.arg(0).type
    return node.emit("fill", shape=x.shape, value=0.0 if x.dtype.is_float else 0, dtype=x.dtype)


def _range(node: Node) -> Results:
    dtype = node.result_type()
    if dtype.is_float:
        raise Refused("a RANGE of floats is not supported; make it a constant")
    start, limit, step = (node.dim(i) for i in range(3))
    if not step.is_constant or step.constant == 0:
        raise Refused("its step must be a constant other than 0")
    apart = limit - start if step.constant > 0 else start - limit
    count = simplify((apart + abs(step.constant) - 1) // abs(step.constant), node.builder.bounds)
    return node.emit("range", start=start, step=step.constant, length=count, dtype=dtype)


HANDLERS: dict[str, Handler] = {
    "BROADCAST_TO": _broadcast_to,
    "EXPAND_DIMS": _expand_dims,
    "FILL": _fill,
    "RANGE": _range,
    "RANK": lambda node: node.scalar(node.arg(0).type.rank, DType.I32),
    "RESHAPE": _reshape,
    "SHAPE": _sizes_of,
    "SQUEEZE": _squeeze,
    "ZEROS_LIKE": _zeros_like,
}
