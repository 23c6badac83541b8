# SPDX-License-Identifier: Apache-2.0
"""Names of inputs and outputs, for all formats."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.bounds import WrongBound, no_such_symbol, printable
from relax_aot.frontends.fixing import Fixed
from relax_aot.frontends.growth import growing_axis, with_growth
from relax_aot.frontends.symbols import Sizes
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.check import STATE_TYPES
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Alias, Call, Function, Module, State, Var
from relax_aot.ir.types import DType


def renamed(function: Function, names: Mapping[str, str]) -> Function:
    """The function with some values under other names."""

    def var(value: Var) -> Var:
        return replace(value, name=names[value.name]) if value.name in names else value

    def call(line: Call) -> Call:
        args = tuple(None if arg is None else var(arg) for arg in line.args)
        return replace(line, outs=tuple(map(var, line.outs)), args=args)

    return Function(
        function.name,
        tuple(map(var, function.params)),
        tuple(map(call, function.body)),
        tuple(map(var, function.results)),
    )


def no_such(kind: str, name: str, names: Collection[str]) -> str:
    """That a name is unknown, and which are known."""
    close = difflib.get_close_matches(name, list(names), 1)
    hint = f"; did you mean {printable(close[0])!r}?" if close else ""
    listed = ", ".join(printable(n) for n in names)
    return f"the model has no {kind} {printable(name)!r}, its {kind}s are {listed}{hint}"


def concerning(options: ImportOptions, inputs: Collection[str]) -> ImportOptions:
    """Of options that are those of several entries, what these inputs are fixed to."""
    if options.used is None:
        return options
    own = {name: value for name, value in options.fix.items() if name in inputs}
    options.used.update(own)
    return replace(options, fix=own)


def check_names(options: ImportOptions, inputs: Collection[str], outputs: Collection[str]) -> None:
    """What the user fixes is an input, and a state is an input and an output of its own."""
    for option, chosen in (("--fix", options.fix), ("--state", options.state)):
        for name in chosen:
            if name not in inputs:
                also = f"; --bound {name}=8..8 fixes a size to 8" if option == "--fix" else ""
                raise ModelError(f"{option} {name}: {no_such('input', name, inputs)}{also}")
    for name, output in options.state.items():
        if name in options.fix:
            raise ModelError(f"input {name!r} cannot be both fixed and a state")
        if output not in outputs:
            raise ModelError(f"--state {name}={output}: {no_such('output', output, outputs)}")
    if len(set(options.state.values())) < len(options.state):
        raise ModelError("one output cannot be the new value of two states")


def declare(builder: FunctionBuilder, sizes: Sizes) -> set[str]:
    """The symbols of the inputs' shapes and what is assumed of them; the symbols' names."""
    builder.shared.requested = sizes.other_bounds
    for symbol in sizes.symbols:
        builder.symbol(symbol)
    builder.assume(sizes.conditions)
    return {symbol.name for symbol in builder.shared.symbols}


def check_bounds(builder: FunctionBuilder, options: ImportOptions) -> None:
    """Every bound is of a symbol that the model has, or else that another entry has."""
    shared = builder.shared
    if options.used is not None:
        options.used.update(options.bounds.keys() - (shared.requested.keys() - shared.used))
        return
    for name in shared.requested.keys() - shared.used:
        known = [symbol.name for symbol in shared.symbols]
        raise WrongBound(no_such_symbol(options.said(name), name, known))


def value_name(builder: FunctionBuilder, source: str, symbols: Collection[str]) -> str:
    """An identifier; one that is not the source's own belongs to no symbol either."""
    name = builder.unique(source)
    while name != source and name in symbols:
        name = builder.unique(source)
    return name


def alias_of(name: str, source: str) -> tuple[Alias, ...]:
    """How a value is called in the source, where that is another name."""
    return (Alias(name, source),) if name != source else ()


def fixed_input(builder: FunctionBuilder, fixed: Fixed, shape: tuple[Dim, ...], name: str) -> Var:
    if not fixed.splat:
        return builder.constant(name, fixed.array)
    value, dtype = fixed.array.item(), DType.of(fixed.array.dtype)
    return builder.call("fill", name=name, shape=shape, value=value, dtype=dtype)[0]


def own_results(builder: FunctionBuilder, results: dict[str, Var]) -> dict[str, Var]:
    """The results, where a parameter, a constant or a duplicate is copied: the caller gets
    bytes of its own."""
    made = {out.name for call in builder.body for out in call.outs}
    owned = dict(results)
    for name, value in results.items():
        taken = [v for other, v in owned.items() if other != name]
        if value.name not in made or value in taken:
            owned[name] = builder.own(value, f"{value.name}.copy")
    return owned


def states_of(
    builder: FunctionBuilder,
    options: ImportOptions,
    inputs: Mapping[str, Var],
    results: Mapping[str, Var],
    names: Mapping[str, str],
) -> list[State]:
    """The states that the user named, which keep their type or grow; `names` are those that the
    results will bear."""
    states = []
    for name, output in options.state.items():
        before, after = inputs[name].type, results[output].type
        same = before.dtype is after.dtype and builder.same_sizes(before.shape, after.shape)
        if not same and growing_axis(before, after, builder.bounds) is None:
            raise ModelError(
                f"--state {name}={output}: {STATE_TYPES}, but {name} is {before} and"
                f" {output} is {after}"
            )
        states.append(State(inputs[name].name, names[output]))
    return states


def finished(
    builder: FunctionBuilder,
    name: str,
    results: Mapping[str, Var],
    names: Mapping[str, str],
    states: list[State],
    aliases: list[Alias],
    windows: Mapping[str, int],
) -> Module:
    """The module of what was built, its results under the names that were kept for them."""
    module = builder.module(results.values(), states, aliases, name)
    chosen = {value.name: names[output] for output, value in results.items()}
    functions = tuple(renamed(f, chosen) for f in module.functions)
    return with_growth(replace(module, functions=functions), windows)
