# SPDX-License-Identifier: Apache-2.0
"""Graph -> Module, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from relax_aot.frontends import ImportOptions, ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.importing import Import
from relax_aot.frontends.interface import check_bounds, own_results, states_of
from relax_aot.frontends.refusals import Lost
from relax_aot.frontends.tflite.context import Node, Results, Scope, label_of
from relax_aot.frontends.tflite.model import Graph, Operator, Tensor
from relax_aot.frontends.tflite.table import handlers, reason_against
from relax_aot.inference.half_precision import expanded
from relax_aot.ir.graph import Module, State, Var
from relax_aot.ir.types import DType
from relax_aot.progress import note


def import_graph(graph: Graph, name: str, options: ImportOptions) -> Module:
    """The graph as a module, with what the user said of its inputs applied."""
    return _Import(graph, name, options).run()


class _Import(Import):
    """A model being imported, operator by operator."""

    def __init__(self, graph: Graph, name: str, options: ImportOptions) -> None:
        super().__init__(name, options, "relax-aot ops --format tflite")
        self.graph = graph
        self.scope = Scope(graph, self.builder)

    def run(self) -> Module:
        graph, scope = self.graph, self.scope
        if -1 in graph.inputs or -1 in graph.outputs or not graph.outputs:
            raise ModelError(f"{self.name}: its inputs or outputs are not tensors")
        inputs, outputs = ([*map(self._public, part)] for part in (graph.inputs, graph.outputs))
        self._check_names(inputs, outputs)
        self.inputs = {name: graph.tensors[i] for name, i in zip(inputs, graph.inputs, strict=True)}
        types = {name: self._dtype(name, tensor) for name, tensor in self.inputs.items()}
        axes = {name: self._axes(name, tensor) for name, tensor in self.inputs.items()}
        reasons = ((self._label(o), reason_against(o)) for o in self._needed())
        values = self._inputs(types, axes, outputs, reasons)
        scope.opened = self._opened(values)
        scope.values |= {self.inputs[name].number: value for name, value in values.items()}
        for operator in self._needed():
            self._operator(operator)
        made = {n: partial(scope.find, i) for n, i in zip(outputs, graph.outputs, strict=True)}
        results = self._results(made)
        for number, before in scope.states.items():
            name = f"{before.name}.next"
            self.result_names[name] = self.builder.unique(name)
            results[name] = scope.kept.get(number, before)
        results = own_results(self.builder, results)
        check_bounds(self.builder, self.options)
        states = states_of(self.builder, self.options, values, results, self.result_names)
        for kept in scope.states.values():
            states.append(State(kept.name, self.result_names[f"{kept.name}.next"]))
        return self._finished(results, outputs, states)

    def _label(self, operator: Operator) -> str:
        kind = f"custom {operator.name}" if operator.custom else operator.name
        return f"{printable(label_of(self.graph, operator))} ({printable(kind)})"

    def _needed(self) -> list[Operator]:
        """What an output depends on, in order; and what writes into state."""
        requested = set(self.graph.outputs)
        kept = []
        for operator in reversed(self.graph.operators):
            if requested.intersection(operator.outputs):
                kept.append(operator)
                requested.update(operator.inputs)
        return kept[::-1]

    def _public(self, index: int) -> str:
        """The name that users know a tensor by: that of the signature, where there is one."""
        return self.graph.names.get(index) or self.graph.tensors[index].name

    def _dtype(self, name: str, tensor: Tensor) -> DType:
        if tensor.dtype is None:
            raise UnsupportedError(f"{self.name}: input {printable(name)!r}: {tensor.problem}")
        return tensor.dtype

    def _axes(self, name: str, tensor: Tensor) -> list[int | str]:
        """Sizes that the exporter left open are symbols, and those that the user bounds. An open
        batch is 1 where no batch has a bound."""
        open_ = list(tensor.signature or tensor.shape)
        requested = self.options.bounds
        if open_ and open_[0] < 0 and not any(f"{other}_0" in requested for other in self.inputs):
            open_[0] = 1
            note(
                f"the batch of input {printable(name)!r} is dynamic in {self.name} and is set to 1;"
                f" --bound {printable(name)}_0=8 makes it 1..8"
            )
        return [
            "" if n < 0 or f"{name}_{axis}" in requested else n for axis, n in enumerate(open_)
        ]  # fmt: skip

    def _opened(self, values: Mapping[str, Var]) -> frozenset[str]:
        fixed, open_ = set[str](), set[str]()
        for name, value in values.items():
            tensor = self.inputs[name]
            for n, size in zip(tensor.signature or tensor.shape, value.type.shape, strict=True):
                (open_ if n < 0 else fixed).update(size.symbols)
        return frozenset(fixed - open_)

    def _operator(self, operator: Operator) -> None:
        for index in operator.outputs:
            if index in self.scope.values or index in self.scope.lost:
                name = printable(self.graph.tensors[index].name)
                raise ModelError(f"{self.name}: {name!r} is defined twice")
        try:
            results = self._results_of(operator)
        except Lost as lost:
            for index in operator.outputs:
                self.scope.lost[index] = lost.refusals
            return
        for index, value in zip(operator.outputs, results, strict=True):
            self.scope.values[index] = value

    def _results_of(self, operator: Operator) -> tuple[Var, ...]:
        node = Node(operator, self.scope)
        arguments = (partial(node.optional, index) for index in range(node.count))

        def handle() -> tuple[Var, ...]:
            found = self._expanded(node)
            results = found if isinstance(found, tuple) else (found,)
            for index, value in enumerate(results):
                self._check_result(node, index, value)
            return results

        return self._handled(self._label(operator), reason_against(operator), arguments, handle)

    def _expanded(self, node: Node) -> Results:
        """What the handler makes of the operator; in float32 where it would round on the way."""
        handler = handlers()[node.operator.name]
        args = [node.arg(index) for index in range(node.count) if node.has(index)]
        tables = [self.scope.values, self.scope.states, self.scope.kept]
        return expanded(self.builder, args, tables, lambda: handler(node), _mapped)

    def _check_result(self, node: Node, index: int, value: Var) -> None:
        """The file says what each tensor is; a result of another type was misread by one side."""
        tensor = node.result(index)
        if tensor.dtype is not value.type.dtype:
            raise ModelError(f"its output {index} is {value.type}, the file has {tensor.kind}")


def _mapped(results: Results, change: Callable[[Var], Var]) -> Results:
    """A function applied to each value of the results."""
    return tuple(map(change, results)) if isinstance(results, tuple) else change(results)
