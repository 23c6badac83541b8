"""What a handler of one ONNX operator works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from relax_aot.errors import RelaxAotError
from relax_aot.frontends.onnx.protobuf import array_of
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array
from relax_aot.ops.build import FunctionBuilder

Values = dict[str, Var]


class Unsupported(RelaxAotError):
    """One node that cannot be compiled, and why; collected into UnsupportedError."""


@dataclass
class Node:
    """A node with its arguments, its attributes, and the function under construction."""

    proto: NodeProto
    opset: int
    builder: FunctionBuilder
    values: Values
    folder: Path | None
    import_graph: Callable[[GraphProto, FunctionBuilder, Values], tuple[Var, ...]]

    @property
    def origin(self) -> str:
        return self.proto.name or (self.proto.output[0] if self.proto.output else "")

    @property
    def count(self) -> int:
        return len(self.proto.input)

    def arg(self, index: int) -> Var:
        value = self.optional(index)
        if value is None:
            raise Unsupported(f"input {index} is missing")
        return value

    def optional(self, index: int) -> Var | None:
        name = self.proto.input[index] if index < len(self.proto.input) else ""
        if not name:
            return None
        if name not in self.values:
            raise Unsupported(f"its input {name!r} comes from nowhere")
        return self.values[name]

    def args(self) -> list[Var]:
        return [self.arg(i) for i in range(self.count)]

    # Attributes

    def attr(self, name: str, default: Any = None) -> Any:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                if attribute.type == AttributeProto.TENSOR:
                    return array_of(attribute.t, self.folder)
                value = helper.get_attribute_value(attribute)
                return value.decode(errors="replace") if isinstance(value, bytes) else value
        return default

    def has(self, name: str) -> bool:
        return any(a.name == name for a in self.proto.attribute)

    # Calls

    def emit(self, op: str, *args: Var | None, **attrs: Any) -> Var:
        return self.emit_all(op, *args, **attrs)[0]

    def emit_all(self, op: str, *args: Var | None, **attrs: Any) -> tuple[Var, ...]:
        name = self.proto.output[0] if self.proto.output else op
        return self.builder.call(op, *args, name=name, origin=self.origin, **attrs)

    def constant(self, value: Array) -> Var:
        return self.builder.constant(self.proto.output[0], value)

    def scalar(self, value: float, like: Var) -> Var:
        return self.constant(np.array(value, like.type.dtype.numpy))

    def reshape(self, x: Var, shape: tuple[Dim, ...] | list[Dim]) -> Var:
        return self.emit("reshape", x, shape=tuple(shape))

    def to_shape(self, x: Var, other: Var) -> Var:
        return self.reshape(x, other.type.shape)

    # What is known at compile time

    def ints(self, index: int, attribute: str | None = None) -> list[int] | None:
        """An integer list from an attribute (older opsets) or a constant input."""
        if attribute is not None and self.has(attribute):
            value = self.attr(attribute)
            return [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)]
        if self.optional(index) is None:
            return None
        dims = self.dims(index)
        if not all(d.is_constant for d in dims):
            raise Unsupported(f"input {index} must be constant here, it depends on sizes")
        return [d.constant for d in dims]

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The sizes that an input holds; refused where only run time knows them."""
        found = self.builder.dims(self.arg(index))
        if found is None:
            raise Unsupported(
                f"input {index} ({self.proto.input[index]!r}) is a size that only run time"
                " knows; give it as a constant or derive it from shapes"
            )
        return found

    def number(self, index: int) -> float | None:
        """A constant scalar input."""
        var = self.optional(index)
        value = None if var is None else self.builder.numeric(var)
        return None if value is None else float(value.reshape(-1)[0])


def dtype_of(elem_type: int) -> DType:
    """Our element type of an ONNX one."""
    try:
        return DType.of(helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, TypeError, ValueError):
        try:
            name = TensorProto.DataType.Name(elem_type)
        except ValueError:
            name = str(elem_type)
        raise Unsupported(f"element type {name} is not supported") from None
