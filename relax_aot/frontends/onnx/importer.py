# SPDX-License-Identifier: Apache-2.0
"""GraphProto -> Module, node by node.

A node that cannot be compiled is noted and its results are lost; nodes that need these are
passed over, so that one run finds every reason. Only what an output needs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from relax_aot.frontends import ImportOptions, ModelError, UnsupportedError
from relax_aot.frontends.bounds import MissingBound, printable
from relax_aot.frontends.fixing import fixed_value
from relax_aot.frontends.interface import (
    alias_of,
    check_bounds,
    check_names,
    concerning,
    declare,
    finished,
    fixed_input,
    own_results,
    states_of,
    value_name,
)
from relax_aot.frontends.onnx.context import Listed, Node, Results, Scope, dtype_of
from relax_aot.frontends.onnx.contract import breach
from relax_aot.frontends.onnx.prepare import needed, opset_of, prepare, qualified, subgraphs
from relax_aot.frontends.onnx.table import handlers, reason_against
from relax_aot.frontends.refusals import Lost, Refusals, Refused
from relax_aot.frontends.symbols import Sizes, input_sizes
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.half_precision import expanded
from relax_aot.inference.sizes import Shared
from relax_aot.ir.graph import Alias, Module, Var
from relax_aot.ir.types import DType, TensorType


def import_model(
    model: ModelProto, folder: Path | None, name: str, options: ImportOptions
) -> Module:
    """The model as a module, with what the user said of its inputs applied."""
    prepared = prepare(model, name, handlers().keys())
    return _Import(prepared, folder, name, options).run()


class _Interface:
    """The inputs of a model: their names, types and sizes."""

    def __init__(
        self, model: ModelProto, folder: Path | None, name: str, options: ImportOptions
    ) -> None:
        self.model = model
        self.graph = model.graph
        self.folder = folder
        self.name = name
        self.options = options
        self.refusals = Refusals(name, "relax-aot ops")
        self.builder = FunctionBuilder("main", Shared(replaceable=options.replaceable))
        self.aliases: list[Alias] = []

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
        opset = opset_of(self.model, proto.domain)
        return reason_against(proto, opset)

    def _sizes(self, given: dict[str, tuple[int, ...]]) -> Sizes:
        taken = {*self.inputs, *(output.name for output in self.graph.output)}
        try:
            shapes = {value.name: _axes_of(value) for value in self.declared}
            return input_sizes(shapes, given, self.options, taken)
        except MissingBound:
            # A bound does not help a model with unsupported operators.
            for node in needed(self.graph):
                reason = self._reason_against(node)
                if reason:
                    self.refusals.add(self._label(node), reason)
            self.refusals.stop_all()
            raise

    def _inputs(self, scope: Scope) -> None:
        dtypes = {value.name: self._dtype(value) for value in self.declared}
        fixed = {
            name: fixed_value(name, _sizes_of(self.inputs[name]), dtypes[name], value)
            for name, value in self.options.fix.items()
        }
        sizes = self._sizes({n: f.array.shape for n, f in fixed.items() if not f.splat})
        self.aliases += sizes.aliases
        names = declare(self.builder, sizes)
        self.reserved = {v.name: value_name(self.builder, v.name, names) for v in self.declared}
        # An output may be called as an input is: it is the input, copied.
        self.result_names = {
            v.name: value_name(self.builder, v.name, names) for v in self.graph.output
        }
        for value in self.declared:
            shape, dtype = sizes.shapes[value.name], dtypes[value.name]
            if value.name in fixed:
                found = fixed_input(self.builder, fixed[value.name], shape, value.name)
                scope.values[value.name] = found
                continue
            param = Var(self.reserved[value.name], TensorType(dtype, shape))
            self.builder.params.append(param)
            self.aliases += alias_of(param.name, value.name)
            scope.values[value.name] = param

    def _check_names(self) -> None:
        initial = {tensor.name for tensor in self.graph.initializer}
        self.declared = [i for i in self.graph.input if i.name not in initial]
        self.inputs = {value.name: value for value in self.declared}
        outputs = [output.name for output in self.graph.output]
        for kind, names in (("inputs", [i.name for i in self.declared]), ("outputs", outputs)):
            twice = {name for name in names if names.count(name) > 1}
            if twice or "" in names:
                raise ModelError(f"{self.name}: its {kind} are not unique: {names}")
        self.options = concerning(self.options, self.inputs)
        check_names(self.options, self.inputs, outputs)


class _Import(_Interface):
    """A model being imported, node by node."""

    def run(self) -> Module:
        self._check_names()
        scope = _scope(self.graph, None)
        self._inputs(scope)
        self._nodes(self.graph, self.builder, scope)
        results = self._results(scope)
        check_bounds(self.builder, self.options)
        names = self.result_names
        states = states_of(self.builder, self.options, scope.values, results, names)
        for name in results:
            self.aliases += alias_of(names[name], name)
        return finished(self.builder, self.name, results, names, states, self.aliases)

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
            if isinstance(results, Listed):
                scope.lists[proto.output[0]] = results
                continue
            for name, value in zip(proto.output, results, strict=False):
                if name and value is not None:
                    scope.values[name] = value

    def _results_of(
        self, proto: NodeProto, builder: FunctionBuilder, scope: Scope
    ) -> Listed | tuple[Var | None, ...]:
        """The node's values; raises Lost with every refusal behind it."""
        domain = proto.domain
        opset = opset_of(self.model, domain)
        node = Node(proto, opset, builder, scope, self.folder, self._branch, self._body)
        reason = self._reason_against(proto)
        lost = self._lost_arguments(node)
        if reason:
            lost |= self.refusals.add(self._label(proto), reason)
        if lost:
            raise Lost(lost)
        with self.refusals.located(self._label(proto), lambda: breach(node)):
            try:
                results = self._expanded(node)
            except Refused as error:
                raise Lost(self.refusals.add(self._label(proto), str(error))) from None
        return (results,) if isinstance(results, Var) else results

    def _expanded(self, node: Node) -> Results:
        """What the handler makes of the node; in float32 where it would round on the way."""
        handler = handlers()[qualified(node.proto)]
        if subgraphs(node.proto):
            return handler(node)  # each node inside is an operator of its own
        args = [node.value(name) for name in node.proto.input if name and not node.is_list(name)]
        tables = [scope.values for scope in _around(node.scope)]
        return expanded(node.builder, args, tables, lambda: handler(node), _mapped)

    def _lost_arguments(self, node: Node) -> frozenset[int]:
        lost: frozenset[int] = frozenset()
        for name in node.proto.input:
            try:
                with self.refusals.located(self._label(node.proto)):
                    if name and node.scope.listed(name) is None:
                        node.value(name)
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                lost |= self.refusals.add(self._label(node.proto), str(error))
        return lost

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

    def _results(self, scope: Scope) -> dict[str, Var]:
        results: dict[str, Var] = {}
        lost: set[int] = set()
        for output in self.graph.output:
            try:
                results[output.name] = self._output(output.name, scope)
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                raise UnsupportedError(f"{self.name}: {error}") from None
        self.refusals.stop(lost)
        return own_results(self.builder, results)


def _around(scope: Scope | None) -> Iterator[Scope]:
    while scope is not None:
        yield scope
        scope = scope.outer


def _mapped(results: Results, change: Callable[[Var], Var]) -> Results:
    """A function applied to each value of the results."""
    if isinstance(results, Var):
        return change(results)
    if isinstance(results, Listed):
        return Listed(tuple(map(change, results.items)))
    return tuple(None if value is None else change(value) for value in results)


def _sizes_of(value: ValueInfoProto) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]


def _axes_of(value: ValueInfoProto) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in dims]


def _scope(graph: GraphProto, outer: Scope | None) -> Scope:
    declared = {
        value.name: tuple(size if isinstance(size, int) else None for size in _axes_of(value))
        for value in (*graph.value_info, *graph.output)
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape")
    }
    return Scope({tensor.name: tensor for tensor in graph.initializer}, outer, declared)
