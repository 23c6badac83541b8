# SPDX-License-Identifier: Apache-2.0
"""A Loop that carries sequences, as a Loop that carries tensors.

Scripted PyTorch code collects results in a list: the Loop carries a sequence, and its body ends
with a SequenceInsert at the end. What an iteration appends is a row of a scan output. A sequence
that iterations read, or change otherwise, is a carried tensor of which its tensors are the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from onnx import GraphProto, NodeProto, helper

from relax_aot.frontends.onnx.context import Listed, Node, Result, Scope, Stacked
from relax_aot.frontends.onnx.lists import appended, stacked
from relax_aot.frontends.onnx.prepare import free_names
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var

FIRST = 2
"""Inputs of a Loop, and of its body, before those that it carries."""


@dataclass(frozen=True)
class _Collected:
    """A carried sequence: its place among the carried values, and what an iteration appends."""

    place: int
    items: tuple[str, ...]


def accumulated(node: Node, run: Callable[[Node], tuple[Var, ...]]) -> tuple[Result, ...]:
    """The results of a Loop that carries sequences; `run` imports one that carries tensors."""
    graph = _with_chosen_items(node.required("body"))
    carried = node.count - FIRST
    sequences = [i for i in range(carried) if node.is_list(node.proto.input[FIRST + i])]
    found_items = {i: _appended(graph, i) for i in sequences}
    if others := [i for i, items in found_items.items() if items is None]:
        return _carried_as_rows(node, graph, others, run)
    collected = [_Collected(i, items) for i, items in found_items.items() if items is not None]
    inner = replace(node, proto=_with_rows(node.proto, graph, collected, carried))
    found = iter(run(inner))
    results: list[Result] = [None if i in sequences else next(found) for i in range(carried)]
    results += [next(found) for _ in range(len(graph.output) - 1 - carried)]
    for one in collected:
        before = node.listed(FIRST + one.place)
        rows = [next(found) for _ in one.items]
        results[one.place] = appended(node, before, _alternating(node, rows)) if rows else before
    return tuple(results)


def _with_chosen_items(graph: GraphProto) -> GraphProto:
    """The body in which an If whose branches both append to a sequence chooses what is appended."""
    nodes: list[NodeProto] = []
    for proto in graph.node:
        nodes += _chosen_items(proto) if proto.op_type == "If" else [proto]
    return helper.make_graph(
        nodes, graph.name, graph.input, graph.output, graph.initializer,
        value_info=graph.value_info,
    )  # fmt: skip


def _chosen_items(proto: NodeProto) -> list[NodeProto]:
    chosen, inserts = NodeProto(), []
    chosen.CopyFrom(proto)
    branches = [attribute.g for attribute in chosen.attribute]
    for place, name in enumerate(proto.output):
        makers = [_insert(branch, place) for branch in branches]
        first = makers[0]
        if first is None or any(one is None or one.input[0] != first.input[0] for one in makers):
            continue
        chosen.output[place] = f"{name}.item"
        inserts.append(helper.make_node("SequenceInsert", [first.input[0], f"{name}.item"], [name]))
        for branch, one in zip(branches, makers, strict=True):
            assert one is not None
            item = f"{one.output[0]}.item"
            branch.node.remove(one)
            branch.node.append(helper.make_node("Identity", [one.input[1]], [item]))
            branch.output[place].CopyFrom(helper.make_empty_tensor_value_info(item))
    return [chosen, *inserts]


def _insert(branch: GraphProto, place: int) -> NodeProto | None:
    """What appends a tensor to a sequence from outside, as this result of a branch alone."""
    name = branch.output[place].name
    maker = next((one for one in branch.node if name in one.output), None)
    if maker is None or maker.op_type != "SequenceInsert" or any(maker.input[2:]):
        return None
    inside = {output for one in branch.node for output in one.output}
    alone = sum(read == name for read in _reads(branch)) == 1
    return maker if alone and maker.input[0] not in inside else None


def _appended(graph: GraphProto, place: int) -> tuple[str, ...] | None:
    """What an iteration appends to a carried sequence, in order; None where it does more with it
    than append to it."""
    begun, name = graph.input[FIRST + place].name, graph.output[1 + place].name
    makers = {output: proto for proto in graph.node for output in proto.output}
    items: list[str] = []
    chain = [name]
    while name != begun:
        maker = makers.get(name)
        if maker is None or maker.op_type not in ("Identity", "SequenceInsert"):
            return None
        if maker.op_type == "SequenceInsert":
            if len(maker.input) > 2 and maker.input[2]:
                raise Refused(f"an iteration inserts into the sequence {begun!r} at an index")
            items.append(maker.input[1])
        name = maker.input[0]
        chain.append(name)
    if any(sum(read == link for read in _reads(graph)) > 1 for link in chain):
        return None
    return tuple(reversed(items))


def _carried_as_rows(
    node: Node, graph: GraphProto, places: list[int], run: Callable[[Node], tuple[Var, ...]]
) -> tuple[Result, ...]:
    """The results of a Loop where the sequences at these places are carried as rows of a tensor."""
    scope = Scope({}, node.scope, node.scope.declared)
    given, inputs, outputs = list(node.proto.input), list(graph.input), list(graph.output)
    before, behind = [], []
    for place in places:
        begun, ended = graph.input[FIRST + place].name, graph.output[1 + place].name
        sequence = node.listed(FIRST + place)
        if sequence == Listed(()):
            raise Refused(
                f"an iteration reads the sequence {begun!r}, which begins empty, or appends to it"
                " in one branch of an If only; append in both branches and choose rows afterwards"
            )
        given[FIRST + place] = f"{node.proto.input[FIRST + place]}.rows"
        scope.values[given[FIRST + place]] = stacked(node, sequence)
        rows, last = f"{begun}.rows", f"{ended}.rows_{place}"
        before.append(helper.make_node("SplitToSequence", [rows], [begun], axis=0, keepdims=0))
        behind.append(helper.make_node("ConcatFromSequence", [ended], [last], axis=0, new_axis=1))
        inputs[FIRST + place] = helper.make_empty_tensor_value_info(rows)
        outputs[1 + place] = helper.make_empty_tensor_value_info(last)
    body = helper.make_graph(
        [*before, *graph.node, *behind], graph.name, inputs, outputs, graph.initializer,
        value_info=graph.value_info,
    )  # fmt: skip
    proto = helper.make_node("Loop", given, node.proto.output, node.proto.name, body=body)
    found = list(accumulated(replace(node, proto=proto, scope=scope), run))
    for place in places:
        last_rows = found[place]
        assert isinstance(last_rows, Var)
        found[place] = Stacked(last_rows)
    return tuple(found)


def _reads(graph: GraphProto) -> Iterator[str]:
    """The names that nodes and outputs of a graph read, once for each reader."""
    for proto in graph.node:
        yield from free_names(proto)
    yield from (output.name for output in graph.output)


def _with_rows(
    proto: NodeProto, graph: GraphProto, collected: list[_Collected], carried: int
) -> NodeProto:
    """The Loop without its sequences, and with a scan output for each appended tensor."""
    dropped = {one.place for one in collected}
    kept = [i for i in range(carried) if i not in dropped]
    outer = [*proto.output, *[""] * (len(graph.output) - 1 - len(proto.output))]
    items = [
        (f"{outer[one.place] or proto.name}.{number}", item)
        for one in collected
        for number, item in enumerate(one.items)
    ]
    body = helper.make_graph(
        graph.node,
        graph.name,
        [*graph.input[:FIRST], *(graph.input[FIRST + i] for i in kept)],
        [
            graph.output[0],
            *(graph.output[1 + i] for i in kept),
            *graph.output[1 + carried :],
            *(helper.make_empty_tensor_value_info(item) for _, item in items),
        ],
        graph.initializer,
        value_info=graph.value_info,
    )
    return helper.make_node(
        "Loop",
        [*proto.input[:FIRST], *(proto.input[FIRST + i] for i in kept)],
        [*(outer[i] for i in kept), *outer[carried:], *(name for name, _ in items)],
        proto.name,
        body=body,
    )


def _alternating(node: Node, rows: list[Var]) -> Var:
    """Rows of which each iteration appended one of each tensor, in the order of the sequence."""
    if len(rows) == 1:
        return rows[0]
    count, *rest = rows[0].type.shape
    for other in rows[1:]:
        if other.type.shape != rows[0].type.shape:
            raise Refused(f"an iteration appends {rows[0].type} and {other.type} to a sequence")
    pairs = [node.reshape(value, (count, 1, *rest)) for value in rows]
    joined = node.emit("concat", *pairs, axis=1)
    return node.reshape(joined, (count * Dim.of(len(rows)), *rest))
