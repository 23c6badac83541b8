# SPDX-License-Identifier: Apache-2.0
"""Loops whose condition compares a counter with a limit: `while i < n: ...; i += 2`.

The iterations of such a Loop follow from where its counter begins, its step and its limit, if these
are constants or sizes. In the body, the counter is an expression of the number of the iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, helper, numpy_helper

from relax_aot.frontends.onnx.context import Node
from relax_aot.frontends.onnx.protobuf import array_of
from relax_aot.ir.dims import Dim, dim_max, dim_min, simplify
from relax_aot.ir.graph import Var
from relax_aot.ops._op import Array

FIRST = 2
"""Inputs of a Loop, and of its body, before those that it carries."""

_UPWARDS = ("Less", "LessOrEqual")
_INCLUSIVE = ("LessOrEqual", "GreaterOrEqual")
_MIRRORED = {
    "Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
}  # fmt: skip
_SAME = ("Identity", "CastLike", "Unsqueeze", "Squeeze", "Reshape")
"""Operators that keep the value of a single integer."""


@dataclass(frozen=True)
class Counted:
    """The body with its counters as expressions, and how often it runs if it runs at all."""

    graph: GraphProto
    trips: Dim
    exact: bool
    """No other condition ends the loop before."""


def counted(node: Node, graph: GraphProto, carried: Sequence[Var]) -> Counted | None:
    """What is known of a Loop whose condition compares a counter; None for any other."""
    return _Body(node, graph).counted(carried)


@dataclass(frozen=True)
class _Counter:
    """A carried integer to which each iteration adds a constant."""

    begin: Dim
    step: int


class _Body:
    def __init__(self, node: Node, graph: GraphProto) -> None:
        self.node, self.graph = node, graph
        self.makers = {name: proto for proto in graph.node for name in proto.output if name}
        self.tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = {value.name for value in graph.input}

    def counted(self, carried: Sequence[Var]) -> Counted | None:
        counters = {
            place: counter
            for place, value in enumerate(carried)
            if (counter := self._counter(place, value)) is not None
        }
        by_name = {self._after(place): counter for place, counter in counters.items()}
        conditions = [*self._conditions(self.graph.output[0].name)]
        found = [self._trips(condition, by_name) for condition in conditions]
        known = [trips for trips in found if trips is not None]
        if not known:
            return None
        least = dim_max(dim_min(*known), 1)
        return Counted(
            self._with_expressions(counters, carried),
            simplify(least, self.node.builder.bounds),
            len(known) == len(found),
        )

    def _conditions(self, name: str) -> Iterator[str]:
        """What has to hold for another iteration."""
        name = self._plain(name)
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "And":
            yield name
            return
        for part in maker.input:
            yield from self._conditions(part)

    def _trips(self, condition: str, counters: Mapping[str, _Counter]) -> Dim | None:
        """How often a comparison of a counter with a limit is made until it is false."""
        maker = self.makers.get(condition)
        if maker is None or maker.op_type not in _MIRRORED:
            return None
        left, right = map(self._plain, maker.input)
        op = maker.op_type
        if left not in counters:
            op, left, right = _MIRRORED[op], right, left
        limit = self._size(right)
        if left not in counters or limit is None:
            return None
        counter = counters[left]
        if (counter.step > 0) is not (op in _UPWARDS):
            return None
        way = limit - counter.begin if counter.step > 0 else counter.begin - limit
        step = abs(counter.step)
        return (way + (op in _INCLUSIVE) + step - 1) // step

    def _counter(self, place: int, value: Var) -> _Counter | None:
        begin, step = self.node.builder.dims(value), self._step(place)
        return _Counter(begin[0], step) if step and begin is not None and len(begin) == 1 else None

    def _after(self, place: int) -> str:
        return self._plain(self.graph.output[1 + place].name)

    def _plain(self, name: str) -> str:
        """The value that operators which keep it took."""
        while name in self.makers and self.makers[name].op_type in _SAME:
            name = self.makers[name].input[0]
        return name

    def _step(self, place: int) -> int | None:
        """What an iteration adds to a carried value, where it is a constant."""
        maker = self.makers.get(self._after(place))
        if maker is None or maker.op_type not in ("Add", "Sub"):
            return None
        names = [self._plain(name) for name in maker.input]
        begun = self.graph.input[FIRST + place].name
        if names[1] == begun and maker.op_type == "Add":
            names.reverse()
        step = self._size(names[1]) if names[0] == begun else None
        if step is None or not step.is_constant:
            return None
        return step.constant if maker.op_type == "Add" else -step.constant

    def _size(self, name: str) -> Dim | None:
        """A single integer that is the same in every iteration, as a size."""
        name = self._plain(name)
        if name in self.inputs:
            return None
        if name in self.tensors or name in self.makers:
            data = self._constant(name)
            single = data is not None and data.size == 1 and data.dtype.kind in "iu"
            return Dim.of(int(data.reshape(-1)[0])) if data is not None and single else None
        around = self.node.scope.find(name, self.node.tensor)
        known = None if around is None else self.node.builder.dims(around)
        return known[0] if known is not None and len(known) == 1 else None

    def _constant(self, name: str) -> Array | None:
        if name in self.tensors:
            return array_of(self.tensors[name], self.node.folder)
        maker = self.makers[name]
        for attribute in maker.attribute if maker.op_type == "Constant" else ():
            if attribute.name == "value":
                return array_of(attribute.t, self.node.folder)
            if attribute.name in ("value_int", "value_ints"):
                return np.array(helper.get_attribute_value(attribute), np.int64)
        return None

    def _with_expressions(
        self, counters: Mapping[int, _Counter], carried: Sequence[Var]
    ) -> GraphProto:
        """The body in which a counter is where it begins, and a step for each iteration."""
        graph = GraphProto()
        graph.CopyFrom(self.graph)
        del graph.node[:]
        for place, counter in counters.items():
            name = graph.input[FIRST + place].name
            graph.input[FIRST + place].name = f"{name}.before"
            step = np.array(counter.step, carried[place].type.dtype.numpy)
            tensor = numpy_helper.from_array(step, f"{name}.step")
            kind = int(helper.np_dtype_to_tensor_dtype(step.dtype))
            begin = self.node.proto.input[FIRST + place]
            graph.node.extend(
                (
                    helper.make_node("Constant", [], [tensor.name], value=tensor),
                    helper.make_node("Cast", [graph.input[0].name], [f"{name}.number"], to=kind),
                    helper.make_node("Mul", [f"{name}.number", tensor.name], [f"{name}.steps"]),
                    helper.make_node("Add", [f"{name}.steps", begin], [name]),
                )
            )
        graph.node.extend(self.graph.node)
        return graph
