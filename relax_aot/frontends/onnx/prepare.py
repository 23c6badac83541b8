# SPDX-License-Identifier: Apache-2.0
"""ModelProto -> ModelProto: only operators with a handler are left, as far as ONNX helps.

Functions of the model are inlined; operators without a handler that ONNX itself defines
by others are replaced by their definition.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from relax_aot.frontends import ModelError

DOMAINS = ("", "ai.onnx")
"""Both spellings of the default domain."""

OLDEST, NEWEST = 1, 28
"""The operator sets that the handlers were written for."""

ROUNDS = 4
"""Definitions may use operators that have definitions; none go deeper than this."""

DEEPEST = 100
"""Functions that call functions: ONNX inlines no deeper chains."""
MOST_NODES = 200_000

HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
FAILURES = (RuntimeError, ValueError, ValidationError, InferenceError)
"""What ONNX's C++ side raises where a model is odd."""


def prepare(model: ModelProto, name: str, handled: Collection[str]) -> ModelProto:
    """`handled` are the operators with a handler, by `qualified` name."""
    model = _in_order(model)
    if model.functions:
        _require_few(model, name)
        model = _with_defaults(model)
        try:
            # A function has operator sets of its own.
            model = inliner.inline_local_functions(model, convert_version=True)
        except FAILURES as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{name}: its functions cannot be inlined: {reason}") from None
    return _defined(model, handled)


def _require_few(model: ModelProto, name: str) -> None:
    """A function that calls another twice, which calls another twice, makes a file of a few bytes
    a graph that fills the memory."""
    calls = {
        (f.domain, f.name, f.overload): [_called(node) for node in all_nodes(f.node)]
        for f in model.functions
    }
    counts = dict.fromkeys(calls, 1)
    for _ in range(DEEPEST):
        more = {
            key: min(sum(counts.get(called, 1) for called in inner), MOST_NODES + 1)
            for key, inner in calls.items()
        }
        if more == counts:
            break
        counts = more
    if sum(counts.get(_called(node), 1) for node in all_nodes(model.graph.node)) > MOST_NODES:
        raise ModelError(
            f"{name}: its functions are more than {MOST_NODES} nodes where they are called"
        )


def _with_defaults(model: ModelProto) -> ModelProto:
    """Calls of functions with every attribute, since the inliner knows no default."""
    copy = ModelProto()
    copy.CopyFrom(model)
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in model.functions}
    for nodes in (copy.graph.node, *(f.node for f in copy.functions)):
        for node in all_nodes(nodes):
            given = {attribute.name for attribute in node.attribute}
            missing = (a for a in defaults.get(_called(node), ()) if a.name not in given)
            node.attribute.extend(missing)
    return copy


def _called(node: NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _in_order(model: ModelProto) -> ModelProto:
    """Every node after those that it reads. ONNX asks for this, but ONNX Runtime does not, and
    its quantizer forgets what branches read."""
    if not any(_misplaced(graph) for graph in _graphs(model.graph)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy.graph):
        if _misplaced(graph):
            nodes = _sorted(graph)
            del graph.node[:]
            graph.node.extend(nodes)
    return copy


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _needs(graph: GraphProto) -> list[set[int]]:
    """For each node the places of those in the same graph that it reads."""
    maker = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    return [{maker[n] for n in free_names(node) if n in maker} for node in graph.node]


def _misplaced(graph: GraphProto) -> bool:
    return any(max(needs, default=-1) >= place for place, needs in enumerate(_needs(graph)))


def _sorted(graph: GraphProto) -> list[NodeProto]:
    """In order, and else as they are; nodes that wait for each other come last."""
    needs = _needs(graph)
    readers: list[list[int]] = [[] for _ in needs]
    for place, sources in enumerate(needs):
        for source in sources:
            readers[source].append(place)
    ready = [place for place, sources in enumerate(needs) if not sources]
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for reader in readers[place]:
            needs[reader].discard(place)
            if not needs[reader]:
                heapq.heappush(ready, reader)
    order += sorted(set(range(len(needs))) - set(order))
    nodes = []
    for place in order:
        nodes.append(NodeProto())
        nodes[-1].CopyFrom(graph.node[place])
    return nodes


def free_names(node: NodeProto) -> set[str]:
    """What a node reads, with what its branches and bodies read around them."""
    found = {name for name in node.input if name}
    for graph in subgraphs(node):
        own = {t.name for t in graph.initializer} | {value.name for value in graph.input}
        own |= {name for inner in graph.node for name in inner.output}
        read = {output.name for output in graph.output}
        for inner in graph.node:
            read |= free_names(inner)
        found |= read - own
    return found


def opset_of(model: ModelProto, domain: str = "") -> int:
    """The version of the operator set; 1 where the file does not say."""
    domains = DOMAINS if domain in DOMAINS else (domain,)
    return max((o.version for o in model.opset_import if o.domain in domains), default=1)


def _defined(model: ModelProto, handled: Collection[str]) -> ModelProto:
    for _ in range(ROUNDS):
        nodes = [
            node
            for node in all_nodes(model.graph.node)
            if qualified(node) not in handled and _has_definition(model, node)
        ]
        if not nodes:
            break
        copy = ModelProto()
        copy.CopyFrom(model)
        for node in all_nodes(copy.graph.node):
            if qualified(node) not in handled and _has_definition(copy, node):
                _state_defaults(copy, node)
        _in_float32(copy, handled)
        operators = {("" if n.domain in DOMAINS else n.domain, n.op_type) for n in nodes}
        model = _each_defined(copy, sorted(operators))
    return model


def _in_float32(model: ModelProto, handled: Collection[str]) -> None:
    """Nodes that are replaced by their definition compute in float32: operands of half precision
    are cast before, and results back."""
    half: dict[str, int] = {}
    for name, kind in _element_types(model).items():
        if kind in HALF:
            half[name] = kind
    for graph in _graphs(model.graph) if half else ():
        nodes: list[NodeProto] = []
        for node in graph.node:
            narrow = [name for name in node.input if name in half]
            schema = schema_of(model, node)
            if qualified(node) in handled or not narrow or not _has_definition(model, node):
                nodes.append(node)
                continue
            assert schema is not None
            nodes += _cast_around(node, schema, half)
        del graph.node[:]
        graph.node.extend(nodes)


def _cast_around(
    node: NodeProto, schema: onnx.defs.OpSchema, half: dict[str, int]
) -> list[NodeProto]:
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    variables: dict[str, int] = {}
    for place, name in enumerate(node.input):
        if name in half:
            formal = schema.inputs[min(place, len(schema.inputs) - 1)]
            variables[formal.type_str] = half[name]
            node.input[place] = f"{node.output[0]}/{name}/float32"
            if all(cast.output[0] != node.input[place] for cast in before):
                before.append(
                    helper.make_node("Cast", [name], [node.input[place]], to=TensorProto.FLOAT)
                )
    for place, name in enumerate(node.output):
        formal = schema.outputs[min(place, len(schema.outputs) - 1)]
        if name and formal.type_str in variables:
            node.output[place] = f"{name}/float32"
            back = variables[formal.type_str]
            after.append(helper.make_node("Cast", [node.output[place]], [name], to=back))
    return [*before, node, *after]


def _element_types(model: ModelProto) -> dict[str, int]:
    """Of the values by name, as far as ONNX infers them."""
    try:
        known = onnx.shape_inference.infer_shapes(model).graph
    except FAILURES:
        known = model.graph
    values = (*known.input, *known.value_info, *known.output)
    return {tensor.name: tensor.data_type for tensor in known.initializer} | {
        value.name: value.type.tensor_type.elem_type for value in values
    }


def _each_defined(model: ModelProto, operators: Iterable[tuple[str, str]]) -> ModelProto:
    """One by one, so that a definition that needs unknown types spoils no other."""
    for operator in operators:
        try:
            model = inliner.inline_selected_functions(
                model, [operator], exclude=False, inline_schema_functions=True
            )
        except FAILURES:
            continue
    return model


def schema_of(model: ModelProto, node: NodeProto) -> onnx.defs.OpSchema | None:
    domain = "" if node.domain in DOMAINS else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, opset_of(model, domain), domain)
    except (onnx.defs.SchemaError, TypeError):  # a name that is no text comes as bytes
        return None


def _has_definition(model: ModelProto, node: NodeProto) -> bool:
    schema: Any = schema_of(model, node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _state_defaults(model: ModelProto, node: NodeProto) -> None:
    """Definitions refer to attributes, and the inliner knows no default of theirs."""
    schema = schema_of(model, node)
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items() if schema is not None else ():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def qualified(node: NodeProto) -> str:
    """`Relu`, or `com.microsoft.FusedMatMul` where the domain is not the default one."""
    return node.op_type if node.domain in DOMAINS else f"{node.domain}.{node.op_type}"


def subgraphs(node: NodeProto) -> list[GraphProto]:
    return [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those inside their branches and bodies."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def needed(graph: GraphProto) -> list[NodeProto]:
    """The nodes that an output depends on, in order."""
    requested = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if requested.intersection(name for name in node.output if name):
            kept.append(node)
            requested.update(_reads(node))
    return kept[::-1]


def _reads(node: NodeProto) -> Iterator[str]:
    yield from node.input
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (output.name for output in graph.output)
