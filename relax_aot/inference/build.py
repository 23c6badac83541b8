# SPDX-License-Identifier: Apache-2.0
"""Builds functions call by call: deduces types, folds what is known, collects conditions.

Frontends and the text parser build through here, so that a program is well-typed from its
first line. Shape arithmetic (`Shape -> Gather -> Concat -> Reshape`) is evaluated while
building: a small integer value may be known as an array of `Dim`s (see `known`), and the
calls that made it are dead as soon as no call needs its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relax_aot.inference import value_ranges
from relax_aot.inference.broadcasting import stretched_shapes
from relax_aot.inference.folding import Values
from relax_aot.inference.sizes import Shared, SizeError, UnboundedSize
from relax_aot.ir.dims import (
    Dim,
    interval,
)
from relax_aot.ir.graph import (
    Alias,
    Attr,
    Call,
    Function,
    Module,
    State,
    Symbol,
    Var,
    attr_value,
    attrs_of,
)
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops

Args = tuple[Var | None, ...]
Widen = Callable[[str, Args, dict[str, Any]], tuple[Args, dict[str, Any]]]


class FunctionBuilder(Values):
    """One function under construction; `branch` opens another in the same module."""

    def __init__(self, name: str = "main", shared: Shared | None = None) -> None:
        super().__init__(name, shared)
        self.widen: Widen | None = None
        """Changes the operands of calls of half precision (half_precision.py)."""

    # Calls

    def call(
        self, op: str, *args: Var | None, name: str = "", origin: str = "", **attrs: Any
    ) -> tuple[Var, ...]:
        """Append a call, or fold it; returns its results."""
        record = all_ops()[op]
        if self.widen is not None:
            args, attrs = self.widen(op, args, attrs)
        args = self._stretched(op, args, name, origin, attrs)
        attrs = {key: attr_value(value) for key, value in attrs.items()}
        types = record.result_types([a.type if a is not None else None for a in args], attrs)
        for result in types:
            if any(size.is_constant and size.constant < 0 for size in result.shape):
                raise SizeError(f"{op} needs sizes of 0 or more, its result would be {result}")
        for condition in record.conditions(
            *(a.type if a is not None else None for a in args), **attrs
        ):
            self.require(condition, origin)
        folded = self._fold(op, args, attrs, types, name or op)
        if folded is not None:
            return folded
        outs = tuple(Var(self.unique(name or op), t) for t in types)
        self.body.append(Call(outs, op, args, attrs_of(attrs), origin))
        self.learn(op, args, attrs, outs)
        return outs

    def _stretched(
        self, op: str, args: Args, name: str, origin: str, attrs: Mapping[str, Any]
    ) -> Args:
        """The arguments after the dynamic sizes among them are stretched that may be 1."""
        made = list(args)
        for i, shape in stretched_shapes(self, all_ops()[op], args, attrs).items():
            (made[i],) = self.call("expand", args[i], name=name, origin=origin, shape=shape)
        return tuple(made)

    def define(
        self, var: Var, element: int, name: str, most: Dim | None, origin: str, least: int = 0
    ) -> Dim:
        """A size that is an element of an integer value. `most` bounds it where something is
        known; what the user says of the symbol bounds it in any case."""
        symbol = self.inner_name(name)
        if var.type.dtype in (DType.F16, DType.BF16):
            # Memory holds its bits; sizes are read from numbers.
            (var,) = self.call("cast", var, name=symbol, origin=origin, to=DType.I64)
        if most is None:
            calls = {out.name: call for call in self.body for out in call.outs}
            found = value_ranges.greatest(var, calls, self.known, self.bounds)
            most = None if found is None else Dim.of(found)
        given = self.shared.requested.get(symbol)
        if given is not None:
            self.shared.used.add(symbol)
            least = max(least, given[0])
            above = most is None or not self.proves(most, "<=", given[1])
            most = Dim.of(given[1]) if above or most is None else most
        if most is None:
            raise UnboundedSize(symbol, origin)
        high = max(interval(most, self.bounds)[1], least)
        size = self.symbol(Symbol(symbol, least, high, origin, inner=True))
        attrs: dict[str, Attr] = {
            "defines": (symbol,), "element": element, "low": least, "most": most,
        }  # fmt: skip
        self.body.append(Call((), "define", (var,), attrs_of(attrs), origin))
        return size

    def own(self, var: Var, name: str) -> Var:
        """A copy of `var` that is a value of its own, whatever is known of `var`."""
        out = Var(self.unique(name), var.type)
        self.body.append(Call((out,), "copy", (var,), (), "result"))
        return out

    def own_results(self, results: Iterable[Var]) -> tuple[Var, ...]:
        """Results with a copy for each that is made elsewhere, constant, or a duplicate."""
        made = {o.name for c in self.body for o in c.outs}
        owned: list[Var] = []
        for result in results:
            foreign = result.name not in made or result in owned
            owned.append(self.own(result, f"{result.name}.copy") if foreign else result)
        return tuple(owned)

    # Results

    def branch(self, name: str) -> FunctionBuilder:
        """A function that may use the values of this one; see `conditional`."""
        return FunctionBuilder(name, self.shared)

    def free(self, results: Iterable[Var]) -> list[Var]:
        """Values used here but made elsewhere, in order of use; constants are global."""
        made = {v.name for v in self.params} | {o.name for c in self.body for o in c.outs}
        used = [v for c in self.body for v in c.inputs] + list(results)
        constants = self.shared.constants
        return list(
            dict.fromkeys(v for v in used if v.name not in made and v.name not in constants)
        )

    def finish(self, results: Iterable[Var]) -> Function:
        return Function(self.name, tuple(self.params), tuple(self.body), tuple(results))

    def module(
        self,
        results: Iterable[Var],
        states: Iterable[State] = (),
        aliases: Iterable[Alias] = (),
        source: str = "",
    ) -> Module:
        """The module with this function as its entry. Every result must be a value of its
        own: neither a parameter, nor a constant, nor twice the same (insert `copy`)."""
        shared = self.shared
        self.keep_assumptions()
        return Module(
            functions=(self.finish(results), *shared.functions),
            constants=tuple(shared.constants.values()),
            symbols=tuple(shared.symbols),
            conditions=tuple(shared.conditions),
            states=tuple(states),
            aliases=tuple(aliases),
            source=source,
            replaceable=shared.replaceable,
            keeps_half=shared.keeps_half,
            operators=tuple(shared.operators.items()),
        )
