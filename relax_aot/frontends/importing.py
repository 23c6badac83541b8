# SPDX-License-Identifier: Apache-2.0
"""The import of a model, as far as it is that of all formats: from inputs to results.

A node that cannot be compiled is noted and its results are lost; nodes that need these are
passed over, so that one run finds every reason. Only what an output needs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

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
        return finished(self.builder, self.name, results, names, states, self.aliases)
