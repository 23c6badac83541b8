# SPDX-License-Identifier: Apache-2.0
"""What a handler of one TensorFlow Lite operator works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.node import Building
from relax_aot.frontends.refusals import Lost, Refused
from relax_aot.frontends.tflite.model import Array, Graph, Operator, Quantization, Tensor
from relax_aot.frontends.tflite.schema import ACTIVATIONS, TYPES
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.half_precision import narrowed, working_type
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType, TensorType

Results = Var | tuple[Var, ...]

QUANTIZED_TYPES = (DType.I8, DType.U8, DType.I16)
"""Element types of quantized values."""


@dataclass
class Scope:
    """The values by number of their tensor; constants are made when they are first used."""

    graph: Graph
    builder: FunctionBuilder
    values: dict[int, Var] = field(default_factory=dict)
    lost: dict[int, frozenset[int]] = field(default_factory=dict)
    states: dict[int, Var] = field(default_factory=dict)
    """Tensors that outlive a call, as they are when it begins."""
    kept: dict[int, Var] = field(default_factory=dict)
    """What they are when it ends."""
    opened: frozenset[str] = frozenset()
    """Symbols of sizes that the file fixes, in an input or in a constant shape, and the user made
    dynamic."""

    def find(self, index: int) -> Var:
        if index in self.lost:
            raise Lost(self.lost[index])
        if index not in self.values:
            tensor = self.graph.tensors[index]
            if tensor.problem:
                raise Refused(tensor.problem)
            array = tensor.array()
            if tensor.variable and array is None:
                self.states[index] = self.values[index] = self._state(tensor)
                return self.values[index]
            if array is None:
                raise ModelError(f"tensor {tensor.name!r} is not defined before its use")
            self.values[index] = self.builder.constant(tensor.name, array)
        return self.values[index]

    def _state(self, tensor: Tensor) -> Var:
        assert tensor.dtype is not None
        shape = tuple(map(Dim.of, tensor.shape))
        return self.builder.param(tensor.name, TensorType(tensor.dtype, shape))


@dataclass
class Arguments(Building):
    """An operator's arguments, results, options and quantization."""

    operator: Operator
    scope: Scope

    def __post_init__(self) -> None:
        self.builder = self.scope.builder

    @property
    def graph(self) -> Graph:
        return self.scope.graph

    @property
    def replaceable(self) -> bool:
        """Whether the code is to fit other weights and scales of this graph."""
        return self.builder.shared.replaceable

    @property
    def origin(self) -> str:
        return label_of(self.graph, self.operator)

    @property
    def operator_name(self) -> str:
        return self.operator.name

    @property
    def result_name(self) -> str:
        return short(self.result().name) if self.operator.outputs else ""

    @property
    def count(self) -> int:
        return len(self.operator.inputs)

    def _input(self, index: int) -> str:
        return f"input {self.tensor(index).name!r}"

    def has(self, index: int) -> bool:
        return index < self.count and self.operator.inputs[index] >= 0

    def tensor(self, index: int) -> Tensor:
        if not self.has(index):
            raise ModelError(f"its input {index} is missing")
        return self.graph.tensors[self.operator.inputs[index]]

    def arg(self, index: int) -> Var:
        self.tensor(index)
        return self.scope.find(self.operator.inputs[index])

    def optional(self, index: int) -> Var | None:
        return self.arg(index) if self.has(index) else None

    def result(self, index: int = 0) -> Tensor:
        """The tensor of a result, as the file has it."""
        if index >= len(self.operator.outputs):
            raise ModelError(f"its output {index} is missing")
        return self.graph.tensors[self.operator.outputs[index]]

    def result_type(self, index: int = 0) -> DType:
        tensor = self.result(index)
        if tensor.problem:
            raise Refused(tensor.problem)
        assert tensor.dtype is not None
        return tensor.dtype

    def option(self, name: str) -> Any:
        return self.operator.option(name)

    def number(self, name: str) -> int:
        return int(self.operator.option(name))

    def activation(self) -> str:
        code = self.number("activation")
        if not 0 <= code < len(ACTIVATIONS):
            raise ModelError(f"its activation has the number {code}")
        return ACTIVATIONS[code]

    def type_option(self, name: str) -> DType:
        code = self.number(name)
        if not 0 <= code < len(TYPES) or TYPES[code] not in {d.value for d in DType}:
            raise Refused(f"its {name} has the number {code}, which is not supported")
        return DType(TYPES[code])

    def single(self, tensor: Tensor) -> tuple[float, int]:
        """Scale and zero point of a value that has one of each."""
        found = self.quantization(tensor)
        if not found.is_single:
            raise Refused(f"tensor {tensor.name!r} has several scales, which is not supported here")
        return float(found.scales[0]), int(found.zeros[0])

    def singles(self, *indices: int) -> list[tuple[float, int]]:
        """Scales and zero points of some inputs, then of the result."""
        return [*(self.single(self.tensor(i)) for i in indices), self.single(self.result())]

    def quantization(self, tensor: Tensor) -> Quantization:
        found = tensor.quantization
        if found is None:
            raise Refused(f"tensor {tensor.name!r} of {tensor.kind} has no scale")
        if not np.all(found.scales > 0):
            raise ModelError(f"the scale of tensor {tensor.name!r} is 0")
        low, high = tensor.dtype.limits if tensor.dtype is not None else (0, 0)
        if np.any(found.zeros < low) or np.any(found.zeros > high):
            raise ModelError(f"the zero point of tensor {tensor.name!r} is no {tensor.kind}")
        return found


class Node(Arguments):
    """An operator with its arguments, and the function under construction."""

    def keep(self, index: int, value: Var) -> None:
        """What the variable at an input is after this call."""
        number = self.operator.inputs[index]
        if number not in self.scope.states:
            raise Refused(f"tensor {self.tensor(index).name!r} must be a variable")
        for new, old in zip(value.type.shape, self.arg(index).type.shape, strict=True):
            self.require_equal(new, old, "a state that keeps its sizes")
        value = narrowed(self.builder, value, self.arg(index).type.dtype)
        if value.type.dtype is not self.arg(index).type.dtype:
            raise ModelError(f"its state {index} is {self.arg(index).type}, not {value.type}")
        self.scope.kept[number] = value

    def constant(self, value: Array, what: str = "value") -> Var:
        name = f"{what}_{value}" if value.ndim == 0 else f"{self.operator.name.lower()}_{what}"
        return self.builder.constant(name.replace("-", "minus_"), value)

    def scalar(self, value: float, dtype: DType) -> Var:
        return self.constant(np.array(value, working_type(self.builder, dtype).numpy))

    def integer(self, index: int) -> int:
        found = self.constants(index)
        if len(found) != 1:
            raise ModelError(f"its input {index} must hold one number")
        return found[0]


Handler = Callable[[Node], Results]
"""One operator: arguments in, values out; raises Refused where it cannot."""


def short(name: str) -> str:
    """Converters join the names of all that they fused; the last one says what it is."""
    return name.split(";")[-1][:60] if len(name) > 60 else name


def label_of(graph: Graph, operator: Operator) -> str:
    """What a person finds the node by: converters name results, not nodes."""
    if operator.outputs:
        return short(graph.tensors[operator.outputs[0]].name)
    return f"operator {operator.number}"
