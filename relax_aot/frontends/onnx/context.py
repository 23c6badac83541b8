# SPDX-License-Identifier: Apache-2.0
"""What a handler of one ONNX operator works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from relax_aot.frontends import ModelError
from relax_aot.frontends.node import Building
from relax_aot.frontends.onnx.protobuf import array_of
from relax_aot.frontends.refusals import Lost, Refused
from relax_aot.inference.broadcasting import stretched_sizes
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.half_precision import working_type
from relax_aot.inference.sizes import UnboundedSize
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array, broadcast, must_stretch

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence of tensors, known when compiling."""

    items: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Stacked:
    """A sequence of tensors of one shape, as many as a size says: the rows of one tensor."""

    rows: Var


Sequenced = Listed | Stacked
Result = Var | Sequenced | None
Results = Var | Sequenced | tuple[Result, ...]


@dataclass
class Scope:
    """The values that the nodes of one graph see: its own, then those around it.

    Initializers become constants when they are first used; unused ones cost nothing.
    """

    tensors: dict[str, TensorProto]
    outer: Scope | None = None
    declared: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """What the graph says of the sizes of its values."""
    values: dict[str, Var] = field(default_factory=dict)
    lists: dict[str, Sequenced] = field(default_factory=dict)
    lost: dict[str, frozenset[int]] = field(default_factory=dict)

    def find(self, name: str, constant: Callable[[TensorProto], Var]) -> Var | None:
        """The value, or None where nothing has this name; raises Lost."""
        if name in self.values:
            return self.values[name]
        if name in self.lost:
            raise Lost(self.lost[name])
        if name in self.tensors:
            self.values[name] = constant(self.tensors[name])
            return self.values[name]
        return None if self.outer is None else self.outer.find(name, constant)

    def listed(self, name: str) -> Sequenced | None:
        """The sequence of this name."""
        if name in self.lists or self.outer is None:
            return self.lists.get(name)
        return self.outer.listed(name)


@dataclass
class Arguments(Building):
    """A node's arguments and attributes."""

    proto: NodeProto
    opset: int
    """The version of the operator set that the node's domain has in this model."""
    builder: FunctionBuilder
    scope: Scope
    folder: Path | None
    import_graph: Callable[[GraphProto, FunctionBuilder, Scope], tuple[Var, ...]]
    import_body: Callable[[GraphProto, FunctionBuilder, Scope, Mapping[str, Var]], tuple[Var, ...]]
    """The nodes of a subgraph with these values as its inputs."""

    @property
    def origin(self) -> str:
        return self.proto.name or self.result_name

    @property
    def operator_name(self) -> str:
        return self.proto.op_type

    @property
    def result_name(self) -> str:
        return next((name for name in self.proto.output if name), "")

    @property
    def count(self) -> int:
        return len(self.proto.input)

    @property
    def requested(self) -> list[bool]:
        """For each output whether it may be used."""
        return [bool(name) for name in self.proto.output]

    def arg(self, index: int) -> Var:
        value = self.optional(index)
        if value is None:
            raise ModelError(f"its input {index} is missing")
        return value

    def optional(self, index: int) -> Var | None:
        name = self.proto.input[index] if index < self.count else ""
        return self.value(name) if name else None

    def args(self) -> list[Var]:
        return [self.arg(i) for i in range(self.count)]

    def value(self, name: str) -> Var:
        found = self.scope.find(name, self.tensor)
        if found is not None:
            return found
        if self.scope.listed(name) is not None:
            raise Refused(f"its input {name!r} is a sequence, which is not supported here")
        raise ModelError(f"its input {name!r} is not defined before its use")

    def is_list(self, name: str) -> bool:
        return self.scope.listed(name) is not None

    def listed(self, index: int) -> Sequenced:
        """An input that is a sequence."""
        found = self.scope.listed(self.proto.input[index])
        if found is None:
            raise ModelError(f"its input {self.proto.input[index]!r} is not a sequence")
        return found

    def tensor(self, tensor: TensorProto) -> Var:
        dtype_of(tensor.data_type, f"initializer {tensor.name!r}")
        return self.builder.constant(tensor.name or "constant", array_of(tensor, self.folder))

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute as a plain value, of the kind that its default has."""
        return _like(default, self._attribute(name, default), name)

    def _attribute(self, name: str, default: Any) -> Any:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                if attribute.type == AttributeProto.TENSOR:
                    dtype_of(attribute.t.data_type, f"attribute {name!r}")
                    return array_of(attribute.t, self.folder)
                value = helper.get_attribute_value(attribute)
                return value.decode(errors="replace") if isinstance(value, bytes) else value
        return default

    def numbers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """The integers of an attribute; the default where it is absent or empty."""
        return tuple(int(number) for number in self.attr(name) or default)

    def require_numbers(self, least: int, **attributes: Sequence[int]) -> None:
        """Values of attributes, none of which may be less."""
        for name, values in attributes.items():
            if any(value < least for value in values):
                shown = ", ".join(map(str, values))
                raise ModelError(f"its attribute {name!r} is {shown}; at least {least} is needed")

    def has(self, name: str) -> bool:
        return any(a.name == name for a in self.proto.attribute)

    def required(self, name: str) -> Any:
        if not self.has(name):
            raise ModelError(f"its attribute {name!r} is missing")
        return self.attr(name)


class Constants(Arguments):
    """What is known of a node's arguments at compile time."""

    def ints(self, index: int, attribute: str = "") -> list[int] | None:
        """An integer list from an attribute (older opsets) or a constant input; or None."""
        if attribute and self.has(attribute):
            value = self.attr(attribute)
            return [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)]
        return None if self.optional(index) is None else self.constants(index)

    def integer(self, index: int, default: int | None = None) -> int:
        """One constant integer from an input."""
        found = self.ints(index)
        if found is None and default is None:
            raise ModelError(f"its input {index} is missing")
        if found is not None and len(found) != 1:
            raise ModelError(f"its input {index} must hold one number")
        return default if found is None else found[0]  # type: ignore[return-value]  # not both None

    def number(self, index: int) -> float | None:
        """The value of a scalar input, where it is a constant."""
        var = self.optional(index)
        value = None if var is None else self.builder.numeric(var)
        return None if value is None or value.size != 1 else float(value.reshape(-1)[0])

    def _input(self, index: int) -> str:
        return f"input {self.proto.input[index]!r}"

    def fixable(self, index: int) -> str:
        """The option that fixes it, where it is an input of the model itself."""
        name = self.proto.input[index]
        var = self.arg(index)
        is_input = self.scope.outer is None and any(p == var for p in self.builder.params)
        return f" (--fix {name}=...)" if is_input else ""


class Node(Constants):
    """A node with its arguments, its attributes, and the function under construction."""

    def constant(self, value: Array) -> Var:
        return self.builder.constant(f"{self.proto.output[0]}_{value.dtype}", value)

    def scalar(self, value: float, like: Var) -> Var:
        return self.constant_scalar(value, like.type.dtype)

    def constant_scalar(self, value: float, dtype: DType) -> Var:
        name = f"value_{value}".replace("-", "minus_")
        kind = working_type(self.builder, dtype)
        return self.builder.constant(name, np.array(value, kind.numpy))

    def size_value(self, size: Dim, dtype: DType) -> Var:
        """A size as a number that the model computes with."""
        found = self.emit("range", start=size, step=1, length=1, dtype=dtype)
        return self.reshape(found, ())

    def broadcast(self, x: Var, requested: Sequence[Dim]) -> Var:
        """x broadcast with a shape. Each of both may have sizes that stretch."""
        rank = max(x.type.rank, len(requested))
        own = (ONE,) * (rank - x.type.rank) + x.type.shape
        asked = (ONE,) * (rank - len(requested)) + tuple(requested)
        shape = list(broadcast(own, asked))
        for axis, pair in enumerate(zip(own, asked, strict=True)):
            stretch = stretched_sizes(self.builder, pair)
            shape[axis] = next(iter(stretch.values()), shape[axis])
            for size in pair:
                if size not in stretch and size not in (ONE, shape[axis]):
                    self.require_equal(size, shape[axis], "broadcasting to a shape")
            if pair[1] in stretch:
                self.builder.require(must_stretch(pair[1], shape[axis]), self.origin)
        return x if x.type.shape == tuple(shape) else self.emit("expand", x, shape=tuple(shape))

    def size_of(
        self, value: Var, element: int, axis: int, most: Dim | None = None, least: int = 0
    ) -> Dim:
        """A data-dependent size of this node's first result: an element of `value`.
        Where `most` says nothing the model may, as a declared size; else the user has to
        bound it."""
        result = self.result_name
        if most is None:
            most = self.declared_size(result, axis)
        try:
            return self.builder.define(
                value, element, f"{result}_{axis}", most, f"axis {axis} of {result}", least
            )
        except UnboundedSize as error:
            raise Refused(str(error)) from None

    def declared_size(self, result: str, axis: int) -> Dim | None:
        """What the model says of a size, unless the user says something."""
        told = self.scope.declared.get(result, ())
        size = told[axis] if axis < len(told) else None
        if self.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
            # What such a Resize is asked for is not what comes out.
            return None
        asked = self.builder.inner_name(f"{result}_{axis}") in self.builder.shared.requested
        return None if size is None or asked else Dim.of(size)

    @property
    def declared_rank(self) -> int | None:
        """What the model says of the rank of the first result."""
        told = self.scope.declared.get(self.result_name)
        return None if told is None else len(told)

    def result_rank(self, index: int, beside: int = 0) -> int:
        """How many sizes an input lists. Where no type says it, the rank that the model declares
        of the result does, less the axes `beside`; it is checked on entry."""
        elements = self.arg(index).type.elements
        if elements.is_constant:
            return elements.constant
        told = self.declared_rank
        if told is None:
            raise Refused("its result has a dynamic rank")
        rank = told - beside
        self.as_long(index, rank)
        return rank

    def as_long(self, index: int, count: int) -> Var:
        """An input that lists so many numbers; where no type says so, it is checked on entry."""
        value = self.arg(index)
        if value.type.rank != 1 or value.type.elements.is_constant or count < 0:
            raise Refused(f"{self._input(index)} lists {value.type.elements} numbers, not {count}")
        long = self.emit("match_cast", value, shape=(count,))
        self.scope.values[self.proto.input[index]] = long
        return long

    def named_size(self, value: Var, element: int, name: str, most: Dim, least: int = 0) -> Dim:
        """An element of `value` as a size of which the bound is known."""
        label = f"{self.origin}_{name}" if self.origin else name
        return self.builder.define(value, element, label, most, f"{name} of {self.origin}", least)

    def sizes(self, index: int, axes: Sequence[int], most: Sequence[Dim] = ()) -> tuple[Dim, ...]:
        """The sizes that an input holds, known or not: those of axes `axes` of the result.
        Each data-dependent size becomes a symbol, at most as great as `most` says."""
        var = self.arg(index)
        known = self.builder.dims(var)
        if known is not None:
            if len(known) != len(axes):
                raise ModelError(
                    f"its input {index} holds {len(known)} sizes, not one for each of {len(axes)}"
                )
            return known
        if var.type.elements != Dim.of(len(axes)):
            var = self.as_long(index, len(axes))
        return tuple(
            self._element(var, i, axis, most[i] if most else None) for i, axis in enumerate(axes)
        )

    def _element(self, var: Var, i: int, axis: int, most: Dim | None) -> Dim:
        """One element of a list of sizes; parts of a list may be known."""
        for part, at in self.origins(var, i):
            known = self.builder.dims(part)
            if known is not None:
                return known[at]
        return self.size_of(var, i, axis, most)

    def origins(self, var: Var, i: int) -> Iterator[tuple[Var, int]]:
        """The values from which element `i` of a list was joined, with its place in each."""
        while True:
            made = next((c for c in self.builder.body if var in c.outs), None)
            if made is None or made.op not in ("concat", "reshape"):
                return
            for var in made.inputs:
                count = var.type.elements
                if not count.is_constant:
                    return
                if made.op == "reshape" or i < count.constant:
                    break
                i -= count.constant
            yield var, i


Handler = Callable[[Node], Results]
"""One operator: arguments in, values out; raises Refused where it cannot."""


def direct(op: str, args: str = "x", /, **attributes: Any) -> Handler:
    """A handler of an operator that is one op: `args` has an x for each input, or ? for one that
    may be absent. Each attribute has ONNX's default, or its name in ONNX and the default."""

    def handle(node: Node) -> Results:
        given = [node.arg(i) if c == "x" else node.optional(i) for i, c in enumerate(args)]
        named = {n: d if isinstance(d, tuple) else (n, d) for n, d in attributes.items()}
        return node.emit(op, *given, **{n: node.attr(*theirs) for n, theirs in named.items()})

    return handle


def _like(default: Any, given: Any, name: str) -> Any:
    """What is given, of the default's kind; old operators have whole numbers as floats.

    A float attribute is a float32, its default as well: 1e-5 is 9.99999975e-06 in a double model.
    """
    if isinstance(default, float) and isinstance(given, int | float):
        with np.errstate(over="ignore"):
            return float(np.float32(given))
    if isinstance(default, bool):
        return bool(_like(0, given, name))
    whole = isinstance(given, float) and given.is_integer()
    if isinstance(default, int) and (isinstance(given, int) or whole):
        return int(given)
    if isinstance(default, list | tuple) and isinstance(given, list | tuple):
        return given
    if default is not None and type(given) is not type(default):
        raise ModelError(f"its attribute {name!r} must be {_KINDS[type(default)]}, not {given!r}")
    return given


_KINDS = {float: "a number", int: "a whole number", str: "text", list: "a list", tuple: "a list"}


def dtype_of(elem_type: int, what: str = "") -> DType:
    """Our element type of an ONNX one."""
    try:
        return DType.of(helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, TypeError, ValueError):
        prefix = f"{what} has " if what else ""
        raise Refused(
            f"{prefix}element type {_type_name(elem_type)}, which is not supported"
        ) from None


def _type_name(elem_type: int) -> str:
    try:
        return str(TensorProto.DataType.Name(elem_type))
    except ValueError:
        return str(elem_type)
