# SPDX-License-Identifier: Apache-2.0
"""Steps with bodies of their own, and those whose results have data-dependent sizes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.values import Graph, Rejected, Value


def not_empty(g: Graph, made: list[Value]) -> None:
    """Values without elements are let through, but rarely built upon."""
    for value in made:
        if any(a.size == 0 for a in value.arrays) and g.random.random() < 0.8:
            g.pool.remove(value)


def branched(g: Graph) -> None:
    """The condition is known at run time alone; both sides read from around."""
    flag = g.input([], "bool")
    x = g.floating()
    y = g.some(lambda v: v.dtype == x.dtype and v.shapes == x.shapes)

    def side(kinds: tuple[str, ...], *names: str) -> object:
        nodes, name = [], names[0]
        for kind in kinds:
            made = g.name("b")
            inputs = [name] if kind in ("Relu", "Neg", "Abs", "Tanh") else [name, names[-1]]
            nodes.append(helper.make_node(kind, inputs, [made]))
            name = made
        if not nodes:
            name = g.name("b")
            nodes = [helper.make_node("Identity", [names[0]], [name])]
        return helper.make_graph(nodes, "side", [], [helper.make_empty_tensor_value_info(name)])

    kinds = ("Relu", "Neg", "Add", "Mul", "Abs", "Sub")
    sides = [
        side(
            tuple(g.random.sample(kinds, g.random.randint(0, 3))),
            *g.random.sample((x.name, y.name), 2),
        )
        for _ in range(2)
    ]
    g.step("If", flag, then_branch=sides[0], else_branch=sides[1], exact=True)


def looped(g: Graph) -> None:
    """A state goes round a few times, with a value from outside."""
    x = g.floating()
    y = g.some(lambda v: v.dtype == x.dtype and v.shapes == x.shapes)
    n, go, state, more, made, half, still = (g.name("l") for _ in range(7))
    factor = g.constant(np.array(0.5, x.dtype))
    nodes = [
        helper.make_node("Mul", [state, factor], [half]),
        helper.make_node("Add", [half, y.name], [made]),
        helper.make_node("Identity", [go], [still]),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in (still, made)]
    outs = 1
    if g.random.random() < 0.5:
        nodes.append(helper.make_node("Sub", [made, x.name], [more]))
        outputs.append(helper.make_empty_tensor_value_info(more))
        outs = 2
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, []),
        helper.make_tensor_value_info(go, TensorProto.BOOL, []),
        helper.make_tensor_value_info(
            state, helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.rank
        ),
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    trips = g.constant(np.array(g.random.randint(1, 3), np.int64))
    g.step("Loop", trips, "", x, body=body, outs=outs, exact=True)


def scanned(g: Graph) -> None:
    """Along the first axis, with a running sum."""
    x = g.floating(2)
    row = x.arrays
    state = g.floating(0)
    if [a.shape for a in state.arrays] != [a.shape[1:] for a in row] or state.dtype != x.dtype:
        state = g.input([g.dim(x.axis(a)) for a in range(1, x.rank)], str(x.dtype))
    before, at, after, seen = (g.name("s") for _ in range(4))
    nodes = [
        helper.make_node("Add", [before, at], [after]),
        helper.make_node(g.random.choice(("Neg", "Tanh", "Identity")), [after], [seen]),
    ]
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs = [
        helper.make_tensor_value_info(name, dtype, [None] * (x.rank - 1)) for name in (before, at)
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in (after, seen)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    g.step("Scan", state, x, body=body, num_scan_inputs=1, outs=2, exact=True,
           scan_input_directions=[g.random.randint(0, 1)])  # fmt: skip


def compressed(g: Graph) -> None:
    """How many are left depends on data."""
    x = g.floating(1)
    axis = g.axis(x) % x.rank
    flags = g.input([g.dim(x.axis(axis))], "bool")
    not_empty(g, g.step("Compress", x, flags, axis=axis, exact=True))


def found_places(g: Graph) -> None:
    x = g.some(lambda v: v.exact and v.rank > 0)
    made = g.step("NonZero", x, exact=True)
    (turned,) = g.step("Transpose", *made, perm=[1, 0], exact=True)
    g.step("GatherND", x, turned, exact=True)


def recurrent(g: Graph) -> None:
    x = g.floating(3, 3)
    width = g.dim(x.axis(2))
    if not isinstance(width, int) or min(min(s) for s in x.shapes) < 1:
        raise Rejected
    w = g.known((g.draw([1, 6, width], "float32") / 4).astype(x.dtype))
    r = g.known((g.draw([1, 6, 2], "float32") / 4).astype(x.dtype))
    direction = g.random.choice(("forward", "reverse"))
    g.step("GRU", x, w, r, hidden_size=2, outs=2, direction=direction)
