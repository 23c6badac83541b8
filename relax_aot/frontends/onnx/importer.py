"""GraphProto -> Module, node by node.

A node that cannot be compiled is noted and its results are lost; nodes that need these are
passed over, so that one run finds every reason. Only what an output needs counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ImportOptions, ModelError, UnsupportedError
from relax_aot.frontends.bounds import MissingBound, WrongBound, no_such_symbol, printable
from relax_aot.frontends.fixing import Fixed, fixed_value
from relax_aot.frontends.interface import no_such, renamed
from relax_aot.frontends.onnx.context import Listed, Lost, Node, Refused, Scope, dtype_of
from relax_aot.frontends.onnx.prepare import needed, opset_of, prepare, qualified
from relax_aot.frontends.onnx.table import handlers, reason_against
from relax_aot.frontends.symbols import Sizes, input_sizes
from relax_aot.ir.dims import Dim, prove_eq
from relax_aot.ir.graph import Alias, Module, State, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops.build import FunctionBuilder


def import_model(
    model: ModelProto, folder: Path | None, name: str, options: ImportOptions
) -> Module:
    """The model as a module, with what the user said of its inputs applied."""
    prepared = prepare(model, name, handlers().keys())
    return _Import(prepared, folder, name, options).run()


class _Import:
    """One import: where refusals are gathered and names are given out."""

    def __init__(
        self, model: ModelProto, folder: Path | None, name: str, options: ImportOptions
    ) -> None:
        self.model = model
        self.graph = model.graph
        self.folder = folder
        self.name = name
        self.options = options
        self.refusals: list[str] = []
        self.builder = FunctionBuilder("main")
        self.aliases: list[Alias] = []

    def run(self) -> Module:
        self._check_names()
        scope = _scope(self.graph, None)
        self._inputs(scope)
        self._nodes(self.graph, self.builder, scope)
        results = self._results(scope)
        self._check_bounds()
        states = self._states(scope, results)
        return self._module(results, states)

    # Names

    def _check_names(self) -> None:
        initial = {tensor.name for tensor in self.graph.initializer}
        self.declared = [i for i in self.graph.input if i.name not in initial]
        self.inputs = {value.name: value for value in self.declared}
        outputs = [output.name for output in self.graph.output]
        for kind, names in (("inputs", [i.name for i in self.declared]), ("outputs", outputs)):
            twice = {name for name in names if names.count(name) > 1}
            if twice or "" in names:
                raise ModelError(f"{self.name}: its {kind} are not told apart: {names}")
        for option, chosen in (("--fix", self.options.fix), ("--state", self.options.state)):
            for name in chosen:
                if name not in self.inputs:
                    raise ModelError(f"{option} {name}: {no_such('input', name, self.inputs)}")
        for name, output in self.options.state.items():
            if name in self.options.fix:
                raise ModelError(f"input {name!r} cannot be both fixed and a state")
            if output not in outputs:
                problem = no_such("output", output, outputs)
                raise ModelError(f"--state {name}={output}: {problem}")
        if len(set(self.options.state.values())) < len(self.options.state):
            raise ModelError("one output cannot be the new value of two states")

    def _label(self, node: NodeProto) -> str:
        name = node.name or next((n for n in node.output if n), "without a name")
        return f"{printable(name)} ({printable(qualified(node))})"

    # Inputs

    def _inputs(self, scope: Scope) -> None:
        dtypes = {value.name: self._dtype(value) for value in self.declared}
        fixed = {
            name: fixed_value(name, _sizes_of(self.inputs[name]), dtypes[name], value)
            for name, value in self.options.fix.items()
        }
        sizes = self._sizes({n: f.array.shape for n, f in fixed.items() if not f.splat})
        self.builder.shared.wanted = sizes.other_bounds
        for symbol in sizes.symbols:
            self.builder.symbol(symbol)
        self.aliases += sizes.aliases
        self.builder.assume(sizes.conditions)
        names = {s.name for s in self.builder.shared.symbols}
        self.reserved = {v.name: self._value_name(v.name, names) for v in self.declared}
        # An output may be called as an input is: it is the input, copied.
        self.result_names = {v.name: self._value_name(v.name, names) for v in self.graph.output}
        for value in self.declared:
            shape, dtype = sizes.shapes[value.name], dtypes[value.name]
            if value.name in fixed:
                scope.values[value.name] = self._fixed(fixed[value.name], shape, value.name)
                continue
            param = Var(self.reserved[value.name], TensorType(dtype, shape))
            self.builder.params.append(param)
            self._alias(param.name, value.name)
            scope.values[value.name] = param

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

    def _sizes(self, given: dict[str, tuple[int, ...]]) -> Sizes:
        taken = {*self.inputs, *(output.name for output in self.graph.output)}
        try:
            shapes = {value.name: _axes_of(value) for value in self.declared}
            return input_sizes(shapes, given, self.options, taken)
        except MissingBound:
            # A bound does not help a model with operators that nobody reads.
            for node in needed(self.graph):
                reason = self._reason_against(node)
                if reason:
                    self.refusals.append(f"{self._label(node)}: {reason}")
            self._raise_refusals(range(len(self.refusals)))
            raise

    def _value_name(self, source: str, symbols: Collection[str]) -> str:
        """An identifier; one that is not the source's own belongs to no symbol either."""
        name = self.builder.unique(source)
        while name != source and name in symbols:
            name = self.builder.unique(source)
        return name

    def _alias(self, name: str, source: str) -> None:
        if name != source:
            self.aliases.append(Alias(name, source))

    def _fixed(self, fixed: Fixed, shape: tuple[Dim, ...], name: str) -> Var:
        if not fixed.splat:
            return self.builder.constant(name, fixed.array)
        value, dtype = fixed.array.item(), DType.of(fixed.array.dtype)
        return self.builder.call("fill", name=name, shape=shape, value=value, dtype=dtype)[0]

    # Nodes

    def _nodes(self, graph: GraphProto, builder: FunctionBuilder, scope: Scope) -> None:
        for proto in needed(graph):
            for name in proto.output:
                if name and any(
                    name in known for known in (scope.values, scope.lists, scope.tensors)
                ):
                    raise ModelError(f"{self.name}: {printable(name)!r} is made twice")
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
            lost |= self._refuse(proto, reason)
        if lost:
            raise Lost(lost)
        with self._located(proto):
            try:
                results = handlers()[qualified(proto)](node)
            except Refused as error:
                raise Lost(self._refuse(proto, str(error))) from None
        return (results,) if isinstance(results, Var) else results

    def _reason_against(self, proto: NodeProto) -> str:
        opset = opset_of(self.model, proto.domain)
        return reason_against(proto, opset)

    def _refuse(self, proto: NodeProto, reason: str) -> frozenset[int]:
        line = f"{self._label(proto)}: {reason}"
        if line not in self.refusals:
            self.refusals.append(line)
        return frozenset({self.refusals.index(line)})

    def _lost_arguments(self, node: Node) -> frozenset[int]:
        lost: frozenset[int] = frozenset()
        for name in node.proto.input:
            try:
                with self._located(node.proto):
                    if name and node.scope.listed(name) is None:
                        node.value(name)
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                lost |= self._refuse(node.proto, str(error))
        return lost

    @contextmanager
    def _located(self, proto: NodeProto) -> Iterator[None]:
        """Errors that pass say in which node they arose."""
        where = f"in node {self._label(proto)} of {self.name}"
        try:
            yield
        except RelaxAotError as error:
            if not any(note.startswith("in node") for note in getattr(error, "__notes__", ())):
                error.add_note(where)
            raise
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            ZeroDivisionError,
        ) as e:
            # The node breaks its operator's contract: wrong counts, ranks, kinds of attributes.
            found = ModelError(f"a node breaks the rules of its operator ({type(e).__name__}: {e})")
            found.add_note(where)
            raise found from e

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
            raise ModelError(f"{self.name}: output {printable(name)!r} is made by nothing")
        return found

    def _check_bounds(self) -> None:
        """Every bound is of a symbol that the model has."""
        shared = self.builder.shared
        for name in shared.wanted.keys() - shared.heard:
            raise WrongBound(no_such_symbol(name, [s.name for s in shared.symbols]))

    # Results

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
        self._raise_refusals(lost)
        made = {out.name for call in self.builder.body for out in call.outs}
        for name, value in results.items():
            taken = [v for other, v in results.items() if other != name]
            if value.name not in made or value in taken:
                # A parameter, a constant or a duplicate: the caller gets bytes of its own.
                results[name] = self.builder.own(value, f"{value.name}.copy")
        return results

    def _raise_refusals(self, numbers: Iterable[int]) -> None:
        lines = "".join(f"\n  {self.refusals[number]}" for number in sorted(numbers))
        if lines:
            raise UnsupportedError(
                f"{self.name} cannot be compiled:{lines}\n"
                "`relax-aot ops` lists the operators that can, with their limits."
            )

    def _states(self, scope: Scope, results: dict[str, Var]) -> list[State]:
        states = []
        for name, output in self.options.state.items():
            before, after = scope.values[name].type, results[output].type
            same = before.dtype is after.dtype and before.rank == after.rank
            bounds = self.builder.bounds
            pairs = zip(before.shape, after.shape, strict=False)
            if not same or not all(prove_eq(a, b, bounds) for a, b in pairs):
                raise ModelError(
                    f"--state {name}={output}: a state keeps its type, but {name} is {before} and"
                    f" {output} is {after}"
                )
            states.append(State(self.reserved[name], self.result_names[output]))
        return states

    def _module(self, results: dict[str, Var], states: list[State]) -> Module:
        for name in results:
            self._alias(self.result_names[name], name)
        names = {value.name: self.result_names[name] for name, value in results.items()}
        module = self.builder.module(results.values(), states, self.aliases, self.name)
        return replace(module, functions=tuple(renamed(f, names) for f in module.functions))


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
