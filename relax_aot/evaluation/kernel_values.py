# SPDX-License-Identifier: Apache-2.0
"""Indices, literals and memory of a kernel as Python expressions."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation import scalars
from relax_aot.ir.dims import Dim, FloorDiv, Max, Min, Mod
from relax_aot.ir.loops import (
    Buffer,
    Kernel,
    Lit,
    Load,
)
from relax_aot.ir.types import DType


class IndexFault(RelaxAotError):
    """An index read from data is out of range: RAOT_ERR_INDEX in C."""


@dataclass
class Memory:
    """The elements of a buffer in row-major order. `array` is the same where nothing writes
    them."""

    data: MutableSequence[Any]
    shape: tuple[int, ...]
    dtype: DType
    array: scalars.Array | None = None


# What the source calls


@dataclass(frozen=True)
class Compiled:
    """`run` takes the state of parallel loops, the values of `symbols`, and the memory of each
    buffer."""

    symbols: tuple[str, ...]
    run: Callable[..., None]


def _outside(name: str, index: int, axis: int, shape: Sequence[int]) -> NoReturn:
    raise AssertionError(f"{name}: {index} on axis {axis} is outside {list(shape)}")


def _undefined(name: str, at: int, shape: Sequence[int]) -> NoReturn:
    index = [int(i) for i in np.unravel_index(at, shape)]
    raise AssertionError(f"{name}{index} is read before it is written")


def _fault(name: str, value: int, low: int, high: int) -> NoReturn:
    raise IndexFault(f"{name} is {value}, outside {low}..{high}")


FUNCTIONS = (
    scalars.quotient, scalars.remainder, scalars.truncated_remainder, scalars.shifted_left,
    scalars.shifted_right, scalars.maximum, scalars.minimum, scalars.fused, scalars.fused_double,
)  # fmt: skip
BUILT_IN = {
    **{function.__name__: function for function in FUNCTIONS},
    "outside": _outside, "undefined": _undefined, "fault": _fault,
    "f32": np.float32, "f64": np.float64, "Memory": Memory,
}  # fmt: skip


@dataclass
class Scope:
    """Names that a block may use; what a block defines ends with it."""

    indices: dict[str, str]
    locals: dict[str, str]
    below: dict[str, Dim]
    """Loop variables from 0 on, and where each stops."""
    buffers: dict[str, Held]
    outside: frozenset[str] | None = None
    """The scalars from outside the innermost parallel loop; None outside of all."""

    def inner(self) -> Scope:
        names = (dict(self.indices), dict(self.locals), dict(self.below), dict(self.buffers))
        return Scope(*names, self.outside)


@dataclass(frozen=True)
class Held:
    """The variables of a buffer: its memory, its elements, and the extent of each axis."""

    buffer: Buffer
    memory: str
    data: str
    extents: tuple[str, ...]
    complete: bool
    """Whether every element is defined from the start."""


@dataclass
class ValueWriter:
    """Indices, literals and memory as Python expressions."""

    kernel: Kernel
    symbols: tuple[str, ...]
    constants: dict[str, Any] = field(default_factory=lambda: dict(BUILT_IN))
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def unique(self, requested: str) -> str:
        self.count += 1
        word = re.sub(r"[^A-Za-z0-9_]", "_", requested)
        return f"{word}_{self.count}" if word and not word[0].isdigit() else f"v_{self.count}"

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def hold(
        self, buffer: Buffer, memory: str, scope: Scope, depth: int, *, complete: bool
    ) -> None:
        data = self.unique(buffer.name)
        self.put(depth, f"{data} = {memory}.data")
        extents = []
        for axis, size in enumerate(buffer.shape):
            if size.is_constant:
                extents.append(str(size.constant))
            else:
                extents.append(self.unique(f"{buffer.name}_{axis}"))
                self.put(depth, f"{extents[-1]} = {memory}.shape[{axis}]")
        scope.buffers[buffer.name] = Held(buffer, memory, data, tuple(extents), complete)

    def atom(self, atom: str | FloorDiv | Mod | Min | Max, scope: Scope) -> str:
        match atom:
            case str():
                assert atom in scope.indices, f"no size is called {atom} here"
                return scope.indices[atom]
            case FloorDiv() | Mod():
                parts = (self.dim(d, scope) for d in (atom.numerator, atom.denominator))
                return f"({(' // ' if isinstance(atom, FloorDiv) else ' % ').join(parts)})"
            case Min() | Max():
                function = "min" if isinstance(atom, Min) else "max"
                return f"{function}({', '.join(self.dim(d, scope) for d in atom.args)})"

    def dim(self, dim: Dim, scope: Scope) -> str:
        """A size or index as an expression that may stand anywhere."""
        if dim.is_constant:
            return str(dim.constant) if dim.constant >= 0 else f"({dim.constant})"
        terms = []
        for coefficient, monomial in dim.terms:
            factors = [str(coefficient)] if coefficient != 1 or not monomial else []
            for atom, exponent in monomial:
                text = self.atom(atom, scope)
                factors.append(text if exponent == 1 else f"{text}**{exponent}")
            terms.append(" * ".join(factors))
        text = " + ".join(terms)
        return text if text.isidentifier() else f"({text})"

    def define(self, name: str, scope: Scope) -> str:
        assert name not in scope.indices, f"{name} is defined twice"
        scope.indices[name] = self.unique(name)
        return scope.indices[name]

    def constant(self, requested: str, value: object) -> str:
        name = self.unique(requested)
        assert not keyword.iskeyword(name)
        self.constants[name] = value
        return name

    def local(self, name: str, scope: Scope) -> str:
        assert name in scope.locals, f"{name} is not declared"
        return scope.locals[name]

    def literal(self, expr: Lit) -> str:
        value = scalars.number(expr.value, expr.dtype)
        if isinstance(value, bool):
            return str(value)
        if isinstance(value, int):
            return str(value) if value >= 0 else f"({value})"
        return self.constant("number", value)

    def held(self, buffer: Buffer, scope: Scope) -> Held:
        assert buffer.name in scope.buffers, f"{buffer.name} is no buffer of the kernel"
        return scope.buffers[buffer.name]

    def flat(self, held: Held, index: Sequence[str]) -> str:
        if not index:
            return "0"
        text, *rest = index
        for part, extent in zip(rest, held.extents[1:], strict=True):
            text = f"({text}) * {extent} + {part}"
        return text

    def stays_inside(self, dim: Dim, size: Dim, scope: Scope) -> bool:
        if dim.is_constant and size.is_constant:
            return 0 <= dim.constant < size.constant
        stop = scope.below.get(str(dim))
        if stop is None:
            return False
        return stop == size or (
            stop.is_constant and size.is_constant and stop.constant <= size.constant
        )

    def place(self, held: Held, index: tuple[Dim, ...], scope: Scope) -> str:
        """The position of an element, each index checked against the extent of its axis."""
        buffer = held.buffer
        assert len(index) == len(buffer.shape), f"{buffer.name}: {len(index)} indices"
        checked = []
        for axis, (dim, size) in enumerate(zip(index, buffer.shape, strict=True)):
            text = self.dim(dim, scope)
            if self.stays_inside(dim, size, scope):
                checked.append(text)
                continue
            name = text
            test = text
            if not text.isidentifier():
                name = self.unique("at")
                test = f"({name} := {text})"
            failure = f"outside({buffer.name!r}, {name}, {axis}, {held.memory}.shape)"
            extent = held.extents[axis]
            checked.append(f"({name} if 0 <= {test} < {extent} else {failure})")
        return self.flat(held, checked)

    def load(self, expr: Load, scope: Scope) -> str:
        held = self.held(expr.buffer, scope)
        place = self.place(held, expr.index, scope)
        if held.complete:
            return f"{held.data}[{place}]"
        at, value = self.unique("at"), self.unique("element")
        failure = f"undefined({expr.buffer.name!r}, {at}, {held.memory}.shape)"
        element = f"{held.data}[({at} := {place})]"
        return f"({value} if ({value} := {element}) is not None else {failure})"


def wrapped(text: str, dtype: DType) -> str:
    """An integer expression modulo the width of its type."""
    mask = (1 << dtype.bits) - 1
    if not dtype.is_signed:
        return f"(({text}) & {mask})"
    half = 1 << (dtype.bits - 1)
    return f"((({text}) + {half} & {mask}) - {half})"
