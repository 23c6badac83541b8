# SPDX-License-Identifier: Apache-2.0
"""Graph -> Module, operator by operator.

As for ONNX: an operator that cannot be compiled is noted and its results are lost, so that one
run finds every reason. Only what an output needs counts.
"""

from __future__ import annotations

from collections.abc import Callable

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
from relax_aot.frontends.refusals import Lost, Refusals, Refused
from relax_aot.frontends.symbols import Sizes, input_sizes
from relax_aot.frontends.tflite.context import Node, Results, Scope, label_of
from relax_aot.frontends.tflite.model import Graph, Operator, Tensor
from relax_aot.frontends.tflite.table import handlers, reason_against
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.half_precision import expanded
from relax_aot.inference.sizes import Shared
from relax_aot.ir.graph import Alias, Module, State, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.progress import note


def import_graph(graph: Graph, name: str, options: ImportOptions) -> Module:
    """The graph as a module, with what the user said of its inputs applied."""
    return _Import(graph, name, options).run()


class _Interface:
    """The inputs of a model: their names, types and sizes."""

    def __init__(self, graph: Graph, name: str, options: ImportOptions) -> None:
        self.graph = graph
        self.name = name
        self.options = options
        self.refusals = Refusals(name, "relax-aot ops --format tflite")
        self.builder = FunctionBuilder("main", Shared(replaceable=options.replaceable))
        self.scope = Scope(graph, self.builder)
        self.aliases: list[Alias] = []

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

    def _check_names(self) -> None:
        graph = self.graph
        if -1 in graph.inputs or -1 in graph.outputs or not graph.outputs:
            raise ModelError(f"{self.name}: its inputs or outputs are not tensors")
        self.inputs = {self._public(i): graph.tensors[i] for i in graph.inputs}
        self.outputs = {self._public(i): graph.tensors[i] for i in graph.outputs}
        for kind, found, names in (
            ("inputs", self.inputs, graph.inputs),
            ("outputs", self.outputs, graph.outputs),
        ):
            if len(found) != len(names):
                told = [printable(self._public(i)) for i in names]
                raise ModelError(f"{self.name}: its {kind} are not unique: {told}")
        self.options = concerning(self.options, self.inputs)
        check_names(self.options, self.inputs, self.outputs)

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

    def _sizes(self, axes: dict[str, list[int | str]], given: dict[str, tuple[int, ...]]) -> Sizes:
        try:
            return input_sizes(axes, given, self.options, {*self.inputs, *self.outputs})
        except MissingBound:
            # A bound does not help a model with unsupported operators.
            for operator in self._needed():
                reason = reason_against(operator)
                if reason:
                    self.refusals.add(self._label(operator), reason)
            self.refusals.stop_all()
            raise

    def _inputs(self) -> None:
        dtypes = {name: self._dtype(name, tensor) for name, tensor in self.inputs.items()}
        axes = {name: self._axes(name, tensor) for name, tensor in self.inputs.items()}
        fixed = {
            name: fixed_value(name, [n or "?" for n in axes[name]], dtypes[name], value)
            for name, value in self.options.fix.items()
        }
        sizes = self._sizes(axes, {n: f.array.shape for n, f in fixed.items() if not f.splat})
        self.aliases += sizes.aliases
        names = declare(self.builder, sizes)
        self.reserved: dict[str, str] = {}
        for name in (*self.inputs, *self.outputs):
            self.reserved[name] = value_name(self.builder, name, names)
        for name, tensor in self.inputs.items():
            shape, dtype = sizes.shapes[name], dtypes[name]
            if name in fixed:
                self.scope.values[tensor.number] = fixed_input(
                    self.builder, fixed[name], shape, name
                )
                continue
            param = Var(self.reserved[name], TensorType(dtype, shape))
            self.builder.params.append(param)
            self.aliases += alias_of(param.name, name)
            self.scope.values[tensor.number] = param

    def _states(self, results: dict[str, Var]) -> list[State]:
        inputs = {name: self.scope.values[self.inputs[name].number] for name in self.options.state}
        states = states_of(self.builder, self.options, inputs, results, self.reserved)
        for kept in self.scope.states.values():
            states.append(State(kept.name, self.reserved[f"{kept.name}.next"]))
        return states


class _Import(_Interface):
    """A model being imported, operator by operator."""

    def run(self) -> Module:
        self._check_names()
        self._inputs()
        for operator in self._needed():
            self._operator(operator)
        results = self._results()
        check_bounds(self.builder, self.options)
        states = self._states(results)
        for name in self.outputs:
            self.aliases += alias_of(self.reserved[name], name)
        names = self.reserved
        return finished(self.builder, self.name, results, names, states, self.aliases)

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
        reason = reason_against(operator)
        lost = self._lost_arguments(node)
        if reason:
            lost |= self.refusals.add(self._label(operator), reason)
        if lost:
            raise Lost(lost)
        with self.refusals.located(self._label(operator)):
            try:
                found = self._expanded(node)
            except Refused as error:
                raise Lost(self.refusals.add(self._label(operator), str(error))) from None
            results = found if isinstance(found, tuple) else (found,)
            for index, value in enumerate(results):
                self._check_result(node, index, value)
        return results

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

    def _lost_arguments(self, node: Node) -> frozenset[int]:
        lost: frozenset[int] = frozenset()
        for index in range(node.count):
            try:
                with self.refusals.located(self._label(node.operator)):
                    node.optional(index)
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                lost |= self.refusals.add(self._label(node.operator), str(error))
        return lost

    def _results(self) -> dict[str, Var]:
        results: dict[str, Var] = {}
        lost: set[int] = set()
        for name, tensor in self.outputs.items():
            try:
                results[name] = self.scope.find(tensor.number)
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                raise UnsupportedError(f"{self.name}: {error}") from None
        self.refusals.stop(lost)
        for number, before in self.scope.states.items():
            name = f"{before.name}.next"
            self.reserved[name] = self.builder.unique(name)
            results[name] = self.scope.kept.get(number, before)
        return own_results(self.builder, results)


def _mapped(results: Results, change: Callable[[Var], Var]) -> Results:
    """A function applied to each value of the results."""
    return tuple(map(change, results)) if isinstance(results, tuple) else change(results)
