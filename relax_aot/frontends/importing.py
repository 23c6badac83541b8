# SPDX-License-Identifier: Apache-2.0
"""The import of a model, as far as it is that of all formats: from inputs to results.

A node that cannot be compiled is noted and its results are lost; nodes that need these are
passed over, so that one run finds every reason. Only what an output needs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from relax_aot.frontends import ImportOptions, ModelError, UnsupportedError
from relax_aot.frontends.bounds import MissingBound, printable
from relax_aot.frontends.fixing import fixed_value
from relax_aot.frontends.interface import (
    alias_of,
    check_names,
    concerning,
    declare,
    finished,
    fixed_input,
    value_name,
)
from relax_aot.frontends.refusals import Lost, Refusals, Refused
from relax_aot.frontends.symbols import input_sizes
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.sizes import Shared
from relax_aot.ir.graph import Alias, Module, State, Var
from relax_aot.ir.types import DType, TensorType

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Operators:
    """Handlers and limits in words, by operator."""

    handlers: Mapping[str, Callable[..., Any]]
    limits: Mapping[str, str]

    @classmethod
    def joined(cls, parts: Iterable[Operators]) -> Operators:
        """All of them, sorted; an operator of two parts is refused."""
        handlers: dict[str, Callable[..., Any]] = {}
        limits: dict[str, str] = {}
        for part in parts:
            twice = handlers.keys() & part.handlers.keys()
            assert not twice, f"operators with two handlers: {sorted(twice)}"
            handlers |= part.handlers
            limits |= part.limits
        return cls(dict(sorted(handlers.items())), limits)


@cache
def operators_of(package: str) -> Operators:
    """Those of the files of a package that define HANDLERS, and LIMITS if there are some."""
    names = (file.name for file in iter_modules(import_module(package).__path__))
    files = (import_module(f"{package}.{name}") for name in names)
    own = (file for file in files if hasattr(file, "HANDLERS"))
    return Operators.joined(Operators(o.HANDLERS, getattr(o, "LIMITS", {})) for o in own)


class Import:
    """A model on its way to a module."""

    def __init__(self, name: str, options: ImportOptions, verb: str) -> None:
        """`verb` is the command that lists what can be compiled."""
        self.name = name
        self.options = options
        self.refusals = Refusals(name, verb)
        self.builder = FunctionBuilder("main", Shared(replaceable=options.replaceable))
        self.aliases: list[Alias] = []

    def _check_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        for kind, names in (("inputs", inputs), ("outputs", outputs)):
            if len(set(names)) < len(names) or "" in names:
                shown = list(map(printable, names))
                raise ModelError(f"{self.name}: its {kind} are not unique: {shown}")
        self.options = concerning(self.options, inputs)
        check_names(self.options, inputs, outputs)

    def _inputs(
        self,
        types: Mapping[str, DType],
        axes: Mapping[str, Sequence[int | str]],
        outputs: Sequence[str],
        reasons: Iterable[tuple[str, str]],
    ) -> dict[str, Var]:
        """The values of the inputs. `axes` are as `input_sizes` takes them, and `reasons` tell
        of each node why it cannot be compiled: a bound does not help such a model."""
        fixed = {
            name: fixed_value(name, [n if n != "" else "?" for n in axes[name]], types[name], value)
            for name, value in self.options.fix.items()
        }
        given = {name: found.array.shape for name, found in fixed.items() if not found.splat}
        try:
            sizes = input_sizes(axes, given, self.options, {*types, *outputs})
        except MissingBound:
            for label, reason in reasons:
                if reason:
                    self.refusals.add(label, reason)
            self.refusals.stop_all()
            raise
        self.aliases += sizes.aliases
        symbols = declare(self.builder, sizes)
        own = {name: value_name(self.builder, name, symbols) for name in types}
        # An output may be called as an input is: it is the input, copied.
        self.result_names = {name: value_name(self.builder, name, symbols) for name in outputs}
        values = {}
        for name, dtype in types.items():
            shape = sizes.shapes[name]
            if name in fixed:
                values[name] = fixed_input(self.builder, fixed[name], shape, name)
                continue
            values[name] = Var(own[name], TensorType(dtype, shape))
            self.builder.params.append(values[name])
            self.aliases += alias_of(own[name], name)
        return values

    def _handled(
        self,
        label: str,
        reason: str,
        arguments: Iterable[Callable[[], object]],
        handle: Callable[[], Found],
        breach: Callable[[], str | None] = lambda: None,
    ) -> Found:
        """What a handler makes of a node; raises Lost with every refusal behind it."""
        lost: frozenset[int] = frozenset()
        for argument in arguments:
            try:
                with self.refusals.located(label):
                    argument()
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                lost |= self.refusals.add(label, str(error))
        if reason:
            lost |= self.refusals.add(label, reason)
        if lost:
            raise Lost(lost)
        with self.refusals.located(label, breach):
            try:
                return handle()
            except Refused as error:
                raise Lost(self.refusals.add(label, str(error))) from None

    def _results(self, outputs: Mapping[str, Callable[[], Var]]) -> dict[str, Var]:
        results: dict[str, Var] = {}
        lost: set[int] = set()
        for name, output in outputs.items():
            try:
                results[name] = output()
            except Lost as error:
                lost |= error.refusals
            except Refused as error:
                raise UnsupportedError(f"{self.name}: {error}") from None
        self.refusals.stop(lost)
        return results

    def _finished(
        self, results: Mapping[str, Var], outputs: Iterable[str], states: list[State]
    ) -> Module:
        names = self.result_names
        for name in outputs:
            self.aliases += alias_of(names[name], name)
        return finished(
            self.builder, self.name, results, names, states, self.aliases, self.options.window
        )
