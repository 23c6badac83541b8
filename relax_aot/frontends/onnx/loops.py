# SPDX-License-Identifier: Apache-2.0
"""Loop and Scan: a body that runs once an iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.accumulated import accumulated
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.counted import counted
from relax_aot.frontends.onnx.protobuf import array_of
from relax_aot.frontends.refusals import Refused
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.loops import (
    FARTHEST,
    Grown,
    Iterations,
    close_loop,
    differing,
    number_of,
    open_iteration,
)
from relax_aot.ir.dims import Dim, dim_max, dim_min, interval, simplify
from relax_aot.ir.graph import Symbol, Var
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import normal_axis

LIMITS = {
    "Loop": "scan outputs have the same size in every iteration",
    "Scan": "no sequence_lens (operator set 8)",
}

Inputs = Callable[[FunctionBuilder, Dim], Sequence[Var]]
"""What a body reads in addition to its carried values, for one iteration."""


@dataclass
class _Repetition:
    """A loop that is being imported: its carried values may turn out to grow."""

    node: Node
    graph: GraphProto
    trips: Dim
    initial: list[Var]
    names: list[str]
    """Of all results: carried values, then rows."""
    condition: Var | None = None
    capped: bool = False
    offset: int = 0
    """Results of the body before the carried values."""
    steady: bool = False
    """Whether the operator requires that carried values keep their sizes."""
    grown: list[Grown] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.symbols_before = len(self.node.builder.shared.symbols)

    @property
    def base(self) -> str:
        return self.node.origin or "loop"

    def run(self, before: Inputs, after: Inputs) -> tuple[Var, ...]:
        """Import the body until its carried values have the sizes that they begin with;
        `before` and `after` give the inputs around the carried ones."""
        for _ in range(1 + sum(value.type.rank for value in self.initial)):
            kept = self._kept()
            iteration = open_iteration(self.node.builder, self.base, self.trips)
            body = self.node.builder.branch(self.node.builder.unique(f"{self.base}_body"))
            params = [self._param(number) for number in range(len(self.initial))]
            values = [*before(body, iteration), *params, *after(body, iteration)]
            with body.during(("<=", iteration, self.trips - 1)):
                found = self._imported(body, values)
            changed = self._differing(params, found)
            checked = [p for p in changed if self.steady and self._may_stay(p, params, found)]
            if changed == checked:
                found = self._as_begun(body, params, found, checked)
                return self._closed(body, iteration, params, found)
            growing = [place for place in changed if place not in checked]
            most = [self._most(place, params, found) for place in growing]
            self._restore(kept)
            self._grow(growing, most)
        raise Refused("the sizes of its carried values do not converge")

    def _imported(self, body: FunctionBuilder, values: Sequence[Var]) -> list[Var]:
        names = [value.name for value in self.graph.input]
        if len(names) != len(values):
            raise ModelError(f"a body takes {len(names)} values, got {len(values)}")
        given = dict(zip(names, values, strict=True))
        found = list(self.node.import_body(self.graph, body, self.node.scope, given))
        if self.condition is not None and found[0].type.rank:
            (found[0],) = body.call("reshape", found[0], origin=self.node.origin, shape=())
        declared = [_declared(value) for value in self.graph.output]
        return [self._as_declared(body, *pair) for pair in zip(found, declared, strict=True)]

    def _as_declared(
        self, body: FunctionBuilder, value: Var, declared: Sequence[int | None]
    ) -> Var:
        """Of a data-dependent size, a body may say more than follows from its nodes; run time
        checks it. What follows from the sizes of inputs needs no such help, and may be newer."""
        inner = {symbol.name for symbol in self.node.builder.shared.symbols if symbol.inner}
        shape = [
            size if told is None or not size.symbols & inner else Dim.of(told)
            for size, told in zip(value.type.shape, declared, strict=False)
        ]
        if len(declared) != value.type.rank or tuple(shape) == value.type.shape:
            return value
        return body.call(
            "match_cast", value, name=value.name, origin=self.node.origin, shape=tuple(shape)
        )[0]

    def _param(self, number: int) -> Var:
        value = self.initial[number]
        shape = list(value.type.shape)
        for grown in self.grown:
            if grown.carried == number:
                shape[grown.axis] = Dim.of(grown.symbol)
        name = self.node.builder.unique(f"{self.names[number]}.carried")
        return Var(name, TensorType(value.type.dtype, tuple(shape)))

    def _differing(self, params: Sequence[Var], found: Sequence[Var]) -> list[tuple[int, int]]:
        results = found[self.offset : self.offset + len(params)]
        for param, result in zip(params, results, strict=True):
            same = param.type.dtype is result.type.dtype and param.type.rank == result.type.rank
            if not same:
                raise Refused(f"an iteration changes {param.type} to {result.type}")
        grown = {(g.carried, g.axis) for g in self.grown}
        changed = differing(params, results, self.node.builder)
        return [place for place in changed if place not in grown]

    def _may_stay(
        self, place: tuple[int, int], params: Sequence[Var], found: Sequence[Var]
    ) -> bool:
        """Run time may find that a size is the one that the iteration began with: of the operands
        of a sum, either may have the size 1."""
        number, axis = place
        begun = params[number].type.shape[axis]
        change = found[self.offset + number].type.shape[axis] - begun
        low, high = interval(change, self.node.builder.bounds)
        return low <= 0 <= high

    def _as_begun(
        self,
        body: FunctionBuilder,
        params: Sequence[Var],
        found: Sequence[Var],
        places: Sequence[tuple[int, int]],
    ) -> list[Var]:
        """Results of the body; at these places they have the sizes that an iteration begins with.
        Run time checks it."""
        results, cast = list(found), dict[str, Var]()
        for number in dict.fromkeys(number for number, _ in places):
            value = found[self.offset + number]
            shape = tuple(
                params[number].type.shape[axis] if (number, axis) in places else size
                for axis, size in enumerate(value.type.shape)
            )
            (kept,) = body.call(
                "match_cast", value, name=value.name, origin=self.node.origin, shape=shape
            )
            results[self.offset + number] = cast[value.name] = kept
        rows = self.offset + len(params)
        results[rows:] = [cast.get(value.name, value) for value in results[rows:]]
        return results

    def _most(
        self, place: tuple[int, int], params: Sequence[Var], found: Sequence[Var]
    ) -> int | None:
        """The greatest size after all iterations, where each of them adds a constant."""
        number, axis = place
        begun = params[number].type.shape[axis]
        bounds = self.node.builder.bounds
        added = simplify(found[self.offset + number].type.shape[axis] - begun, bounds)
        most = interval(begun, bounds)[1]
        trips = interval(self.trips, bounds)[1]
        most += max(interval(added, bounds)[1], 0) * trips
        return most if added.is_constant and most < FARTHEST else None

    def _grow(self, changed: list[tuple[int, int]], most: list[int | None]) -> None:
        """Sizes that an iteration changes become symbols. The user bounds those that nothing else
        bounds."""
        for (number, axis), known in zip(changed, most, strict=True):
            name = self.node.builder.inner_name(f"{self.names[number]}_{axis}")
            given = self.node.builder.shared.requested.get(name)
            if given is None and known is not None:
                given = (0, known)
            if given is None:
                raise Refused(
                    f"iterations change axis {axis} of {self.names[number]}; give --bound"
                    f" {name}=... for the maximum"
                )
            self.node.builder.shared.used.add(name)
            first = interval(self.initial[number].type.shape[axis], self.node.builder.bounds)
            symbol = Symbol(
                name, 0, max(given[1], first[1]), f"axis {axis} of {self.base}", inner=True
            )
            self.node.builder.symbol(symbol)
            self.grown.append(Grown(number, axis, name, Dim.of(given[1])))

    def _kept(self) -> tuple[int, int, int]:
        shared = self.node.builder.shared
        return len(shared.symbols), len(shared.conditions), len(shared.functions)

    def _restore(self, kept: tuple[int, int, int]) -> None:
        """Forget what an import that is repeated left behind."""
        shared = self.node.builder.shared
        del shared.symbols[kept[0] :]
        del shared.conditions[kept[1] :]
        del shared.functions[kept[2] :]
        shared.set_bounds()

    def _closed(
        self, body: FunctionBuilder, iteration: Dim, params: Sequence[Var], found: Sequence[Var]
    ) -> tuple[Var, ...]:
        rows = found[self.offset + len(params) :]
        inside = {s.name for s in self.node.builder.shared.symbols[self.symbols_before :]}
        for row in rows:
            if row.type.symbols & (inside | {g.symbol for g in self.grown}):
                raise Refused(
                    f"an iteration gives {row.type}, whose size changes between iterations"
                )
        iterations = Iterations(str(iteration), self.trips, self.condition is not None, self.capped)
        return close_loop(
            self.node.builder, body, iterations, self.initial, params,
            found[self.offset :], self.grown, self.names, self.node.origin,
        )  # fmt: skip


def _declared(value: ValueInfoProto) -> list[int | None]:
    shape = value.type.tensor_type.shape
    known = [dim.HasField("dim_value") and dim.dim_value != -1 for dim in shape.dim]
    return [d.dim_value if k else None for d, k in zip(shape.dim, known, strict=True)]


def _loop(node: Node) -> Results:
    if any(node.is_list(name) for name in node.proto.input[2:]):
        return accumulated(node, _repeated)
    return _repeated(node)


def _repeated(node: Node) -> tuple[Var, ...]:
    graph: GraphProto = node.required("body")
    builder = node.builder
    carried = [node.arg(index) for index in range(2, node.count)]
    base = node.origin or "loop"
    rows = len(graph.output) - 1 - len(carried)
    if rows < 0 or len(graph.input) != len(carried) + 2:
        raise ModelError("the body of a Loop does not fit its inputs")
    names = _names(node, base, len(carried) + rows)
    condition = node.optional(1)
    start = _truth(builder, condition)
    going = condition if condition is not None else node.constant(np.array(True))
    always = _always(node, graph) and start is True
    most = None
    limited = node.optional(0)
    countable = limited is None or builder.dims(limited) is not None
    if countable and not always and (counter := counted(node, graph, carried)) is not None:
        graph, most = counter.graph, counter.trips
        always = counter.exact and start is True
    trips, capped = _trips(node, names[len(carried) :], always, most)
    if always:
        repetition = _Repetition(node, graph, trips, carried, names, offset=1)

        def numbers(body: FunctionBuilder, iteration: Dim) -> Sequence[Var]:
            return (number_of(body, iteration, node.origin), going)

        return repetition.run(numbers, lambda body, iteration: ())
    if going.type.rank:
        going = node.reshape(going, ())
    repetition = _Repetition(
        node, graph, trips, [going, *carried], [f"{base}_going", *names], going, capped
    )
    results = repetition.run(
        lambda body, iteration: (number_of(body, iteration, node.origin),),
        lambda body, iteration: (),
    )
    return results[1:]


def _names(node: Node, base: str, count: int) -> list[str]:
    """Names of so many results, those without one in the model included."""
    given = [*node.proto.output, *[""] * (count - len(node.proto.output))]
    return [name or f"{base}_{i}" for i, name in enumerate(given)]


def _truth(builder: FunctionBuilder, condition: Var | None) -> object:
    """The value of the condition before the first iteration, where it is known."""
    if condition is None:
        return True
    known = builder.known(condition)
    value = None if known is None else known.reshape(-1)[0]
    return bool(value) if isinstance(value, bool | int) else None


def _always(node: Node, graph: GraphProto) -> bool:
    """The body passes its condition on, or gives true: its own, or one from around the loop."""
    going, given = graph.output[0].name, graph.input[1].name
    makers = {name: proto for proto in graph.node for name in proto.output}
    while going in makers and makers[going].op_type == "Identity":
        going = makers[going].input[0]
    if going == given:
        return True
    if going in makers and makers[going].op_type == "Constant":
        maker = makers[going]
        return all(
            bool(np.all(array_of(a.t, node.folder))) for a in maker.attribute if a.name == "value"
        )
    for tensor in graph.initializer:
        if tensor.name == going:
            return bool(np.all(array_of(tensor, node.folder)))
    inside = going in makers or any(value.name == going for value in graph.input)
    around = None if inside else node.scope.find(going, node.tensor)
    return around is not None and _truth(node.builder, around) is True


def _trips(node: Node, rows: Sequence[str], always: bool, counted: Dim | None) -> tuple[Dim, bool]:
    """The largest number of iterations, and whether more of them are an error: where it bounds
    memory, or is the most that can be counted. `counted` is how many a counter allows."""
    builder = node.builder
    given, bound = node.optional(0), FARTHEST
    if rows:
        bound = builder.shared.requested.get(f"{rows[0]}_0", (0, 0))[1]
        builder.shared.used.add(f"{rows[0]}_0")
        told = node.declared_size(rows[0], 0)
        bound = told.constant if told is not None else bound
    known = None if given is None else builder.dims(given)
    if counted is not None:
        known = (counted if known is None else dim_min(known[0], counted),)
    if known is not None:
        trips = simplify(dim_max(known[0], 0), builder.bounds)
        if interval(trips, builder.bounds)[1] <= (bound or 1 << 24):
            return trips, False
    if not bound:
        raise Refused(
            f"its number of iterations depends on data; give its maximum: --bound {rows[0]}_0=..."
        )
    if known is not None:
        if trips.is_constant and not always:
            return Dim.of(bound), True
        node.require_at_most(trips, bound, "the iterations of a Loop")
        return trips, False
    if given is None:
        return Dim.of(bound), True
    # More iterations than the bound are an error at once, whenever a condition may end them.
    kind = given.type.dtype.numpy
    ends = [node.constant(np.array(end, kind)) for end in (0, bound + 1)]
    clipped = node.emit("clip", given, *ends)
    return node.named_size(clipped, 0, "trips", Dim.of(bound)), False


WITHIN_BATCH = "relax_aot_within_batch"
"""Marks the Scan of one element of a batch, which operator set 8 has no name for."""


def _scan(node: Node) -> Results:
    if node.opset < 9 and not node.has(WITHIN_BATCH):
        return _scanned(replace(node, proto=_over_batch(node)))
    return _scanned(node)


def _over_batch(node: Node) -> NodeProto:
    """Operator set 8 scans each element of a batch: a Scan over the batch, of which the body
    is the Scan that newer sets have."""
    if node.optional(0) is not None:
        raise Refused("sequence_lens of a Scan are not supported; export with operator set 9")
    body, given = node.required("body"), node.proto.input[1:]
    count = int(node.required("num_scan_inputs"))
    base = node.origin or "scan"
    ins = [f"{base}.of.{i}" for i in range(len(given))]
    outs = [f"{base}.made.{i}" for i in range(len(body.output))]
    within = helper.make_node("Scan", ins, outs, f"{base}.row", body=body, num_scan_inputs=count)
    within.attribute.append(helper.make_attribute(WITHIN_BATCH, 1))
    if node.has("directions"):
        ways = helper.make_attribute("scan_input_directions", node.attr("directions"))
        within.attribute.append(ways)
    graph = helper.make_graph(
        [within],
        f"{base}.batch",
        [helper.make_empty_tensor_value_info(name) for name in ins],
        [helper.make_empty_tensor_value_info(name) for name in outs],
    )
    return helper.make_node(
        "Scan", given, node.proto.output, node.proto.name, body=graph, num_scan_inputs=len(ins)
    )


def _scanned(node: Node) -> Results:
    graph: GraphProto = node.required("body")
    count = int(node.required("num_scan_inputs"))
    states = [node.arg(i) for i in range(node.count - count)]
    scanned = [node.arg(i) for i in range(node.count - count, node.count)]
    axes = [
        normal_axis(int(axis), value.type.rank)
        for axis, value in zip(node.attr("scan_input_axes") or [0] * count, scanned, strict=True)
    ]
    backwards = [bool(d) for d in node.attr("scan_input_directions") or [0] * count]
    if not scanned:
        raise ModelError("a Scan has no input to scan")
    trips = scanned[0].type.shape[axes[0]]
    for value, axis in zip(scanned, axes, strict=True):
        node.require_equal(value.type.shape[axis], trips, "the lengths of a Scan's inputs")

    def slices(body: FunctionBuilder, iteration: Dim) -> Sequence[Var]:
        return [
            _row(node, body, value, axis, trips - 1 - iteration if back else iteration)
            for value, axis, back in zip(scanned, axes, backwards, strict=True)
        ]

    names = _names(node, node.origin or "scan", len(graph.output))
    repetition = _Repetition(node, graph, trips, states, names, steady=True)
    results = list(repetition.run(lambda body, iteration: (), slices))
    rows = len(results) - len(states)
    ways = node.attr("scan_output_directions") or [0] * rows
    places = node.attr("scan_output_axes") or [0] * rows
    for i, (way, place) in enumerate(zip(ways, places, strict=True), len(states)):
        results[i] = _arranged(node, results[i], bool(way), int(place))
    return tuple(results)


def _row(node: Node, body: FunctionBuilder, value: Var, axis: int, place: Dim) -> Var:
    attrs = {"starts": (place,), "lengths": (1,), "axes": (axis,), "steps": (1,)}
    (row,) = body.call("slice", value, name="row", origin=node.origin, **attrs)
    shape = tuple(size for i, size in enumerate(value.type.shape) if i != axis)
    return body.call("reshape", row, name="row", origin=node.origin, shape=shape)[0]


def _arranged(node: Node, value: Var, backwards: bool, axis: int) -> Var:
    """Rows one above the other, as ONNX wants them: the other way round, along another axis."""
    if backwards:
        size = value.type.shape[0]
        value = node.part(value, 0, size - 1, size, step=-1)
    place = normal_axis(axis, value.type.rank)
    if place:
        perm = list(range(1, value.type.rank))
        perm.insert(place, 0)
        value = node.emit("transpose", value, perm=tuple(perm))
    return value


HANDLERS: dict[str, Handler] = {"Loop": _loop, "Scan": _scan}
