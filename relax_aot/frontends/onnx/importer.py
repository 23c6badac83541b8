"""GraphProto -> Module, node by node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.onnx.context import Node, Unsupported, Values, dtype_of
from relax_aot.frontends.onnx.protobuf import array_of
from relax_aot.frontends.onnx.symbols import input_sizes
from relax_aot.frontends.onnx.table import handlers
from relax_aot.ir.graph import Alias, Module, State, Var
from relax_aot.ir.types import TensorType
from relax_aot.ops.build import FunctionBuilder

DOMAINS = ("", "ai.onnx")


class UnsupportedError(RelaxAotError):
    """Everything in a model that cannot be compiled, all at once."""


def import_model(
    model: ModelProto, folder: Path | None, name: str, options: ImportOptions
) -> Module:
    """The model as a module, with what the user said of its inputs applied."""
    return _Import(model, folder, name, options).run()


class _Import:
    def __init__(
        self, model: ModelProto, folder: Path | None, name: str, options: ImportOptions
    ) -> None:
        self.graph = model.graph
        self.folder = folder
        self.name = name
        self.options = options
        self.opset = max((o.version for o in model.opset_import if o.domain in DOMAINS), default=1)
        self.refusals: list[str] = []

    def run(self) -> Module:
        if self.options.assume:
            raise UnsupportedError("--assume is not built yet; state the relation as bounds")
        self._refuse_unknown(self.graph)
        builder = FunctionBuilder("main")
        constants = {t.name for t in self.graph.initializer}
        inputs = [i for i in self.graph.input if i.name not in constants]
        values, aliases = self._inputs(builder, inputs)
        for tensor in self.graph.initializer:
            values[tensor.name] = builder.constant(tensor.name, array_of(tensor, self.folder))
        self._nodes(self._needed(self.graph), builder, values)
        if self.refusals:
            raise UnsupportedError(_listed(self.name, self.refusals))
        results = self._results(builder, values, aliases)
        states = self._states(values, results)
        return builder.module(results.values(), states, aliases, self.name)

    # Inputs and outputs

    def _inputs(
        self, builder: FunctionBuilder, inputs: list[ValueInfoProto]
    ) -> tuple[Values, list[Alias]]:
        for known in (*self.options.fix, *self.options.state):
            if known not in {i.name for i in inputs}:
                names = sorted(i.name for i in inputs)
                raise ModelError(f"{self.name} has no input {known!r}; its inputs are {names}")
        free = [i for i in inputs if i.name not in self.options.fix]
        for value in inputs:
            if not value.type.HasField("tensor_type"):
                raise UnsupportedError(f"{self.name}: input {value.name!r} is not a tensor")
            if not value.type.tensor_type.HasField("shape"):
                raise UnsupportedError(
                    f"{self.name}: input {value.name!r} has no shape; a rank that only run time"
                    " knows cannot be compiled"
                )
        sizes = input_sizes(free, self.options)
        for symbol in sizes.symbols:
            builder.symbol(symbol)
        values: Values = {}
        aliases = list(sizes.aliases)
        for value in inputs:
            dtype = self._dtype(value)
            if value.name in self.options.fix:
                data = self._fixed(value, dtype.numpy)
                values[value.name] = builder.constant(value.name, data)
                continue
            param = builder.param(value.name, TensorType(dtype, sizes.shapes[value.name]))
            aliases += [Alias(param.name, value.name)] if param.name != value.name else []
            values[value.name] = param
        return values, aliases

    def _dtype(self, value: ValueInfoProto) -> Any:
        try:
            return dtype_of(value.type.tensor_type.elem_type)
        except Unsupported as error:
            raise UnsupportedError(f"{self.name}: input {value.name!r}: {error}") from None

    def _fixed(self, value: ValueInfoProto, dtype: np.dtype[Any]) -> Any:
        given = self.options.fix[value.name]
        try:
            array = np.asarray(float(given) if isinstance(given, str) else given).astype(dtype)
        except ValueError:
            raise ModelError(f"--fix {value.name}={given}: not a number") from None
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if array.size == 1 and all(n > 0 for n in shape):
            return np.broadcast_to(array.reshape(()), shape).copy()
        if array.shape != tuple(shape):
            raise ModelError(f"--fix {value.name}: expected shape {shape}, got {list(array.shape)}")
        return array

    def _results(
        self, builder: FunctionBuilder, values: Values, aliases: list[Alias]
    ) -> dict[str, Var]:
        """Outputs under their own names: a parameter, constant or duplicate is copied, and a
        value that carries another name is too (the copy is merged away where it can be)."""
        results: dict[str, Var] = {}
        for output in self.graph.output:
            if output.name not in values:
                raise ModelError(f"{self.name}: output {output.name!r} comes from nowhere")
            value = values[output.name]
            made = {o.name for call in builder.body for o in call.outs}
            if value.name not in made or value in results.values():
                value = builder.own(value, output.name)
            results[output.name] = value
            if value.name != output.name:
                aliases.append(Alias(value.name, output.name))
        return results

    def _states(self, values: Values, results: dict[str, Var]) -> list[State]:
        states = []
        for input_, output in self.options.state.items():
            if output not in results:
                raise ModelError(
                    f"{self.name} has no output {output!r}; its outputs are {sorted(results)}"
                )
            before, after = values[input_], results[output]
            if before.type != after.type:
                raise ModelError(
                    f"--state {input_}={output}: {input_} is {before.type} but {output} is"
                    f" {after.type}; a state keeps its shape"
                )
            states.append(State(before.name, after.name))
        return states

    # Nodes

    def _refuse_unknown(self, graph: GraphProto) -> None:
        """Every operator that no handler reads, in all subgraphs, before any work."""
        missing = [
            f"{_label(node)}: operator {_operator(node)} is not supported"
            for node in _all_nodes(self._needed(graph))
            if node.domain not in DOMAINS or node.op_type not in handlers()
        ]
        if missing:
            raise UnsupportedError(_listed(self.name, missing))

    def _needed(self, graph: GraphProto) -> list[NodeProto]:
        """The nodes that an output depends on, in order."""
        wanted = {o.name for o in graph.output}
        needed = []
        for node in reversed(graph.node):
            if wanted & set(node.output):
                needed.append(node)
                wanted |= set(_reads(node))
        return needed[::-1]

    def _nodes(self, nodes: list[NodeProto], builder: FunctionBuilder, values: Values) -> None:
        for proto in nodes:
            node = Node(proto, self.opset, builder, values, self.folder, self._branch)
            try:
                results = handlers()[proto.op_type](node)
            except Unsupported as error:
                if not str(error).startswith("its input"):
                    self.refusals.append(f"{_label(proto)}: {proto.op_type}: {error}")
                continue
            except RelaxAotError as error:
                error.add_note(f"in node {_label(proto)} ({proto.op_type}) of {self.name}")
                raise
            except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
                # A node that breaks its operator's contract: wrong counts, ranks, attributes.
                raise ModelError(
                    f"{self.name}: node {_label(proto)} ({proto.op_type}) is malformed:"
                    f" {type(error).__name__}: {error}"
                ) from error
            results = results if isinstance(results, tuple) else (results,)
            for name, value in zip(proto.output, results, strict=False):
                if name:
                    values[name] = value

    def _branch(
        self, graph: GraphProto, builder: FunctionBuilder, values: Values
    ) -> tuple[Var, ...]:
        """The nodes of a subgraph into `builder`; it sees the values around it."""
        inner = dict(values)
        for tensor in graph.initializer:
            inner[tensor.name] = builder.constant(tensor.name, array_of(tensor, self.folder))
        self._nodes(self._needed(graph), builder, inner)
        missing = [o.name for o in graph.output if o.name not in inner]
        if missing:
            raise Unsupported(f"its input {missing[0]!r} was refused")
        return tuple(inner[o.name] for o in graph.output)


def _reads(node: NodeProto) -> Iterable[str]:
    yield from node.input
    for graph in _subgraphs(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (o.name for o in graph.output)


def _subgraphs(node: NodeProto) -> list[GraphProto]:
    return [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _all_nodes(graph.node)


def _label(node: NodeProto) -> str:
    name = node.name or (node.output[0] if node.output else "?")
    return "".join(c if c.isprintable() else "?" for c in name)[:120]


def _operator(node: NodeProto) -> str:
    domain = f"{node.domain}." if node.domain not in DOMAINS else ""
    return f"{domain}{node.op_type}"


def _listed(name: str, refusals: list[str]) -> str:
    shown = "\n".join(f"  {line}" for line in dict.fromkeys(refusals))
    return f"{name} cannot be compiled:\n{shown}\nSee `relax-aot ops` for what is supported."
