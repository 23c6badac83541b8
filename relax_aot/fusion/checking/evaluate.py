# SPDX-License-Identifier: Apache-2.0
"""Expressions of a kernel as terms, in the state between two statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.fusion.checking.arrays import Array, Arrays
from relax_aot.fusion.checking.terms import Term, World, cast
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Buffer,
    Cast,
    Expr,
    Index,
    Lit,
    Load,
    Local,
    Select,
    Unary,
)
from relax_aot.ir.types import Shape


@dataclass
class State:
    dims: dict[str, Dim]
    locals: dict[str, Term]
    arrays: dict[str, Array]

    def copy(self) -> State:
        return State(dict(self.dims), dict(self.locals), dict(self.arrays))


class Evaluation:
    """`names` are the values that the kernel's buffers hold."""

    def __init__(self, world: World, names: Mapping[str, str]) -> None:
        self._world = world
        self._names = names
        self._arrays = Arrays(world)
        self._single: set[tuple[object, ...]] = set()
        """A value, an axis, and the index there without the names in it."""
        self._loads: dict[tuple[str, At], tuple[Term, Shape]] = {}

    def _at(self, index: At, state: State) -> At:
        """The index over the loops of the world."""
        return tuple(self._world.of_digits(dim.substitute(state.dims)) for dim in index)

    def _value(self, expr: Expr, state: State) -> Term:
        world = self._world
        match expr:
            case Lit():
                return world.term("literal", (repr(expr.value), expr.dtype))
            case Local():
                return state.locals[expr.name]
            case Index():
                return world.term("index", expr.dtype, self._at((expr.dim,), state))
            case Load():
                return self._load(expr.buffer, expr.index, state)
            case Unary():
                return self._operation(expr.op, expr.dtype, state, expr.value)
            case Binary():
                return self._operation(expr.op, expr.left.dtype, state, expr.left, expr.right)
            case Apply():
                return self._operation(expr.function, expr.args[0].dtype, state, *expr.args)
            case Cast():
                value = self._value(expr.value, state)
                return cast(world, value, expr.value.dtype, expr.dtype, expr.mode)
            case Select():
                condition = self._value(expr.condition, state)
                then = self._value(expr.then, state)
                return select(world, condition, then, self._value(expr.otherwise, state))

    def _operation(self, name: str, dtype: object, state: State, *args: Expr) -> Term:
        values = tuple(self._value(arg, state) for arg in args)
        return self._world.term("op", (name, dtype, len(args)), (), values)

    def _load(self, buffer: Buffer, index: At, state: State) -> Term:
        at = self._at(index, state)
        array = state.arrays.get(buffer.name)
        if array is not None:
            for axis, (dim, size) in enumerate(zip(at, array.shape, strict=True)):
                if size == ONE and dim != ZERO:
                    shown = tuple((factor, len(atoms)) for factor, atoms in dim.terms)
                    self._single.add((self._names[buffer.name], axis, shown))
            value = self._arrays.read(array, self._arrays.valid(at, array.shape))
        else:
            value = self._world.term("leaf", (self._names[buffer.name], buffer.dtype), at)
        self._loads[buffer.name, at] = value, buffer.shape
        return value


def select(world: World, condition: Term, then: Term, other: Term) -> Term:
    if then is other:
        return then
    return world.term("select", None, (), (condition, then, other))
