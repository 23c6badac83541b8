# SPDX-License-Identifier: Apache-2.0
"""What handlers of every format work with: operands that are known, and calls that they emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.refusals import Refused
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.half_precision import working_type
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition, Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array, must_equal, must_not_exceed


class Building(ABC):
    """A node, and the function under construction."""

    builder: FunctionBuilder

    @property
    @abstractmethod
    def origin(self) -> str:
        """How a person finds the node in the model."""

    @property
    @abstractmethod
    def operator_name(self) -> str:
        """The operator as its format names it."""

    @property
    @abstractmethod
    def result_name(self) -> str:
        """The name of the first result; empty where it has none."""

    @abstractmethod
    def arg(self, index: int) -> Var:
        """An input that has to be there."""

    @abstractmethod
    def _input(self, index: int) -> str:
        """An input as a message names it."""

    def fixable(self, index: int) -> str:
        """The option that fixes an input, if there is one."""
        return ""

    # Operands that are known

    def array(self, index: int) -> Array:
        """The value of an input that has to be a constant."""
        value = self.builder.numeric(self.arg(index))
        if value is None:
            raise Refused(f"{self._input(index)} must be a constant here{self.fixable(index)}")
        return value

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The sizes that an input holds; dynamic ones are refused."""
        found = self.builder.dims(self.arg(index))
        if found is None:
            raise Refused(
                f"{self._input(index)} holds dynamic sizes; make it a constant"
                f"{self.fixable(index)}, or derive it from shapes"
            )
        return found

    def dim(self, index: int) -> Dim:
        """One size from an input."""
        found = self.dims(index)
        if len(found) != 1:
            raise ModelError(f"its input {index} must hold one number")
        return found[0]

    def constants(self, index: int) -> list[int]:
        """The integers that an input holds; sizes that are not constant are refused."""
        found = self.dims(index)
        if not all(d.is_constant for d in found):
            raise Refused(f"{self._input(index)} depends on sizes; here it must be constant")
        return [d.constant for d in found]

    # Calls

    def emit(self, op: str, *args: Var | None, **attrs: Any) -> Var:
        return self.emit_all(op, *args, **attrs)[0]

    def emit_all(self, op: str, *args: Var | None, **attrs: Any) -> tuple[Var, ...]:
        name = self.result_name or op
        self.builder.shared.operators[self.origin] = self.operator_name
        return self.builder.call(op, *args, name=name, origin=self.origin, **attrs)

    def reshape(self, x: Var, shape: Sequence[Dim | int]) -> Var:
        requested = tuple(Dim.of(n) for n in shape)
        return x if x.type.shape == requested else self.emit("reshape", x, shape=requested)

    def cast(self, x: Var, to: DType) -> Var:
        to = working_type(self.builder, to)
        return x if x.type.dtype is to else self.emit("cast", x, to=to, saturate=False)

    def part(self, x: Var, axis: int, start: Dim | int, length: Dim | int, *, step: int = 1) -> Var:
        """So many elements of one axis."""
        where = {"starts": (start,), "lengths": (length,), "axes": (axis,), "steps": (step,)}
        return self.emit("slice", x, **where)

    def parts(self, x: Var, axis: int, lengths: Sequence[Dim], why: str = "") -> Iterator[Var]:
        """Parts of one axis, one behind the other. With `why`, none has a negative length."""
        start = Dim.of(0)
        for length in lengths:
            if why:
                self.require_at_most(0, length, why)
            yield x if length == x.type.shape[axis] else self.part(x, axis, start, length)
            start = start + length

    # Conditions

    def require_equal(self, left: Dim | int, right: Dim | int, why: str) -> None:
        self._require(must_equal(left, right, why))

    def require_at_most(self, left: Dim | int, right: Dim | int, why: str) -> None:
        self._require(must_not_exceed(left, right, why))

    def _require(self, condition: Condition) -> None:
        self.builder.require(condition, self.origin)
