# SPDX-License-Identifier: Apache-2.0
"""GraphProto -> Module, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from relax_aot.frontends import ImportOptions, ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.importing import Import
from relax_aot.frontends.interface import check_bounds, own_results, states_of
from relax_aot.frontends.onnx.context import (
    Listed,
    Node,
    Result,
    Results,
    Scope,
    Stacked,
    dtype_of,
)
from relax_aot.frontends.onnx.contract import breach
from relax_aot.frontends.onnx.prepare import needed, opset_of, prepare, qualified, subgraphs
from relax_aot.frontends.onnx.sparse import with_dense
from relax_aot.frontends.onnx.table import handlers, reason_against
from relax_aot.frontends.refusals import Lost, Refused
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.half_precision import expanded
from relax_aot.ir.graph import Module, Var
from relax_aot.ir.types import DType


def import_model(
    model: ModelProto, folder: Path | None, name: str, options: ImportOptions
) -> Module:
    """The model as a module, with what the user said of its inputs applied."""
    prepared = prepare(with_dense(model, folder), name, handlers().keys())
    return _Import(prepared, folder, name, options).run()


class _Import(Import):
    """A model being imported, node by node."""

    def __init__(
        self, model: ModelProto, folder: Path | None, name: str, options: ImportOptions
    ) -> None:
        super().__init__(name, options, "relax-aot ops")
        self.model = model
        self.graph = model.graph
        self.folder = folder

    def run(self) -> Module:
        initial = {tensor.name for tensor in self.graph.initializer}
        declared = [value for value in self.graph.input if value.name not in initial]
        outputs = [output.name for output in self.graph.output]
        self._check_names([value.name for value in declared], outputs)
        scope = _scope(self.graph, None)
        types = {value.name: self._dtype(value) for value in declared}
        axes = {value.name: _axes_of(value) for value in declared}
        reasons = ((self._label(n), self._reason_against(n)) for n in needed(self.graph))
        scope.values |= self._inputs(types, axes, outputs, reasons)
        self._nodes(self.graph, self.builder, scope)
        found = self._results({name: partial(self._output, name, scope) for name in outputs})
        results = own_results(self.builder, found)
        check_bounds(self.builder, self.options)
        names = self.result_names
        states = states_of(self.builder, self.options, scope.values, results, names)
        return self._finished(results, results, states)

    def _dtype(self, value: ValueInfoProto) -> DType:
        what = f"{self.name}: input {printable(value.name)!r}"
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"{what} is not a tensor")
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise UnsupportedError(
                f"{what} has no shape; its rank must be known, so declare it in the model"
            )
        try:
            return dtype_of(tensor.elem_type)
        except Refused as error:
            raise UnsupportedError(f"{what}: {error}") from None

    def _label(self, node: NodeProto) -> str:
        name = node.name or next((n for n in node.output if n), "without a name")
        return f"{printable(name)} ({printable(qualified(node))})"

    def _reason_against(self, proto: NodeProto) -> str:
        return reason_against(proto, opset_of(self.model, proto.domain))

    def _nodes(self, graph: GraphProto, builder: FunctionBuilder, scope: Scope) -> None:
        for proto in needed(graph):
            for name in proto.output:
                if name and any(
                    name in known for known in (scope.values, scope.lists, scope.tensors)
                ):
                    raise ModelError(f"{self.name}: {printable(name)!r} is defined twice")
            try:
                results = self._results_of(proto, builder, scope)
            except Lost as lost:
                for name in proto.output:
                    scope.lost[name] = lost.refusals
                continue
            for name, value in zip(proto.output, results, strict=False):
                if isinstance(value, Listed | Stacked):
                    scope.lists[name] = value
                elif name and value is not None:
                    scope.values[name] = value

    def _results_of(
        self, proto: NodeProto, builder: FunctionBuilder, scope: Scope
    ) -> tuple[Result, ...]:
        """The node's values; raises Lost with every refusal behind it."""
        opset = opset_of(self.model, proto.domain)
        node = Node(proto, opset, builder, scope, self.folder, self._branch, self._body)
        read = (name for name in proto.input if name and not node.is_list(name))
        results = self._handled(
            self._label(proto), self._reason_against(proto),
            (partial(node.value, name) for name in read), lambda: self._expanded(node),
            lambda: breach(node),
        )  # fmt: skip
        return results if isinstance(results, tuple) else (results,)

    def _expanded(self, node: Node) -> Results:
        """What the handler makes of the node; in float32 where it would round on the way."""
        handler = handlers()[qualified(node.proto)]
        if subgraphs(node.proto):
            return handler(node)  # each node inside is an operator of its own
        args = [node.value(name) for name in node.proto.input if name and not node.is_list(name)]
        tables = [scope.values for scope in _around(node.scope)]
        return expanded(node.builder, args, tables, lambda: handler(node), _mapped)

    def _branch(self, graph: GraphProto, builder: FunctionBuilder, outer: Scope) -> tuple[Var, ...]:
        """The nodes of a subgraph into `builder`; it sees the values around it."""
        return self._body(graph, builder, outer, {})

    def _body(
        self,
        graph: GraphProto,
        builder: FunctionBuilder,
        outer: Scope,
        inputs: Mapping[str, Var],
    ) -> tuple[Var, ...]:
        """The same of a subgraph with inputs."""
        scope = _scope(graph, outer)
        scope.values |= inputs
        self._nodes(graph, builder, scope)
        return tuple(self._output(output.name, scope) for output in graph.output)

    def _output(self, name: str, scope: Scope) -> Var:
        node = Node(NodeProto(), 0, self.builder, scope, self.folder, self._branch, self._body)
        found = scope.find(name, node.tensor)
        if found is None and scope.listed(name) is not None:
            raise Refused(f"output {printable(name)!r} is a sequence; make its tensors outputs")
        if found is None:
            raise ModelError(f"{self.name}: output {printable(name)!r} is not defined")
        return found


def _around(scope: Scope | None) -> Iterator[Scope]:
    while scope is not None:
        yield scope
        scope = scope.outer


def _mapped(results: Results, change: Callable[[Var], Var]) -> Results:
    """A function applied to each value of the results."""
    if isinstance(results, tuple):
        return tuple(_changed(value, change) for value in results)
    changed = _changed(results, change)
    assert changed is not None
    return changed


def _changed(value: Result, change: Callable[[Var], Var]) -> Result:
    match value:
        case Listed(items):
            return Listed(tuple(map(change, items)))
        case Stacked(rows):
            return Stacked(change(rows))
        case None:
            return None
    return change(value)


def _axes_of(value: ValueInfoProto) -> list[int | str]:
    """Each axis as the file has it: -1 is a dynamic one without a name, as Paddle2ONNX writes."""
    dims = value.type.tensor_type.shape.dim
    fixed = [d.HasField("dim_value") and d.dim_value != -1 for d in dims]
    return [d.dim_value if known else d.dim_param for d, known in zip(dims, fixed, strict=True)]


def _scope(graph: GraphProto, outer: Scope | None) -> Scope:
    declared = {
        value.name: tuple(size if isinstance(size, int) else None for size in _axes_of(value))
        for value in (*graph.value_info, *graph.output)
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape")
    }
    return Scope({tensor.name: tensor for tensor in graph.initializer}, outer, declared)
