# SPDX-License-Identifier: Apache-2.0
"""Several models -> the entries of one: each is read by itself, then sizes and states of one
name are seen to agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ImportOptions, ModelError, load
from relax_aot.frontends.bounds import WrongBound, no_such_symbol, printable
from relax_aot.frontends.growth import (
    check_windows,
    growing_axis,
    in_other_entries,
    lengths_above_zero,
    rows_of,
    with_common_places,
    with_growth,
    with_lengths_from_zero,
    with_window_bounds,
)
from relax_aot.frontends.interface import no_such
from relax_aot.frontends.text import read
from relax_aot.frontends.text.parts import parts_of
from relax_aot.ir.check import STATE_TYPES
from relax_aot.ir.dims import Dim, prove_eq
from relax_aot.ir.entries import Entries
from relax_aot.ir.graph import Alias, Array, Module, State, Var
from relax_aot.ir.names import unused_name
from relax_aot.ir.types import TensorType

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
GREATEST_NAME = 32
TAKEN = (
    "alignment", "arena", "bind", "config", "dims", "end", "h", "in", "init", "inputs",
    "memory", "named", "need", "offset", "outputs", "plan", "size", "state", "under", "weights",
)  # fmt: skip
"""First words of names that all entries share in C."""


class EntryError(RelaxAotError):
    """Entries that cannot be one model: their names, or sizes and states that disagree."""


def load_entries(sources: Mapping[str, Any], options: ImportOptions) -> Entries:
    """Each source as the entry of that name. Options are those of all entries: one that no
    entry has a use for is an error."""
    return _loaded({name: partial(load, source) for name, source in sources.items()}, options)


def read_entries(text: str, constants: Mapping[str, Array], options: ImportOptions) -> Entries:
    """The entries that a text spells, each behind its line `entry NAME`."""
    parts = parts_of(text)
    return _loaded({name: partial(read, part, constants) for name, part in parts.items()}, options)


def _loaded(
    sources: Mapping[str, Callable[[ImportOptions], Module]], options: ImportOptions
) -> Entries:
    check_entry_names(list(sources))
    options = with_window_bounds(options)
    used: set[str] = set()
    modules: dict[str, Module] = {}
    for name, source in sources.items():
        try:
            own = replace(options, state={}, used=used)
            modules[name] = _named(source(own), name)
        except RelaxAotError as error:
            error.add_note(f"in the entry {name}")
            raise
    _check_used(options, used, modules)
    for before, after in options.state.items():
        modules = _with_state(modules, before, after)
    modules = _with_growth(modules, options.window)
    check_windows(options, modules.values())
    late = {p: n for module in modules.values() for p, n in lengths_above_zero(module).items()}
    if late:
        return _loaded(sources, with_lengths_from_zero(options, late))
    return joined(modules)


def _with_growth(modules: Mapping[str, Module], windows: Mapping[str, int]) -> dict[str, Module]:
    """The entries with their growing states, also where an entry only reads or replaces one."""
    grown = {name: with_growth(module, windows) for name, module in modules.items()}
    growing = {name: rows for one in grown.values() for name, rows in rows_of(one).items()}
    return with_common_places(
        {name: in_other_entries(module, growing) for name, module in grown.items()}
    )


def joined(modules: Mapping[str, Module]) -> Entries:
    """These modules as entries, whose sizes and states are seen to agree."""
    check_entry_names(list(modules))
    _check_sizes(modules)
    _check_states(modules)
    return Entries(tuple(modules.items()))


def check_entry_names(names: list[str]) -> None:
    """Names from which C names are made: `<model>_<entry>_run` is unique."""
    if not names:
        raise EntryError("expected at least one entry, such as decode=decode.onnx")
    for name in names:
        if not NAME.fullmatch(name) or len(name) > GREATEST_NAME:
            raise EntryError(
                f"{printable(name)!r} is not a valid name of an entry: at most"
                f" {GREATEST_NAME} lower-case letters, digits and single underscores beginning "
                "with a letter; choose another name"
            )
        if name.partition("_")[0] in TAKEN:
            raise EntryError(
                f"an entry cannot be called {name!r}: the generated C uses this prefix for names "
                "that all entries share; choose another name"
            )
        for other in names:
            if name.startswith(f"{other}_"):
                raise EntryError(
                    f"the name of the entry {name!r} begins with {other!r}, so their C names"
                    " could be equal; rename one of them"
                )


def _named(module: Module, name: str) -> Module:
    """The entry function bears the entry's name, where no other function does."""
    if name in module.function_table:
        return module
    return replace(module, functions=(replace(module.main, name=name), *module.functions[1:]))


def _check_used(options: ImportOptions, used: set[str], modules: Mapping[str, Module]) -> None:
    symbols = {m.source_name(s.name) for m in modules.values() for s in m.symbols}
    for name in options.bounds:
        if name not in used:
            raise WrongBound(no_such_symbol(options.said(name), name, symbols))
    for text in options.assume:
        if text not in used:
            raise WrongBound(f"--assume {text!r}: no entry has all of these sizes")
    inputs = dict.fromkeys(m.source_name(p.name) for m in modules.values() for p in m.main.params)
    for name in options.fix:
        if name not in used:
            raise ModelError(f"--fix {name}: {no_such('input', name, list(inputs))}")


# States


def _with_state(modules: Mapping[str, Module], before: str, after: str) -> dict[str, Module]:
    """The state in every entry that reads it, writes it, or both."""
    option = f"--state {before}={after}"
    result: dict[str, Module] = {}
    inputs: list[str] = []
    outputs: list[str] = []
    reads = writes = False
    for name, module in modules.items():
        params = {module.source_name(p.name): p for p in module.main.params}
        results = {module.source_name(r.name): r for r in module.main.results}
        inputs += params
        outputs += results
        reads, writes = reads or before in params, writes or after in results
        try:
            result[name] = _in_entry(module, params.get(before), results.get(after), before)
        except EntryError as error:
            raise EntryError(f"{option}, in the entry {name}: {error}") from None
    if not reads:
        raise ModelError(f"{option}: {no_such('input', before, list(dict.fromkeys(inputs)))}")
    if not writes:
        raise ModelError(f"{option}: {no_such('output', after, list(dict.fromkeys(outputs)))}")
    return result


def _in_entry(module: Module, param: Var | None, result: Var | None, source: str) -> Module:
    if param is None and result is None:
        return module
    held = {s.input for s in module.states} | {s.output for s in module.states}
    if {v.name for v in (param, result) if v is not None} & held:
        raise EntryError("one of them is already a state")
    if param is None:
        assert result is not None
        inner = {s.name for s in module.symbols if s.inner}
        if result.type.symbols & inner:
            raise EntryError(f"its type {result.type} has a size that the model computes")
        param = Var(_unused(module, source), result.type)
        main = replace(module.main, params=(*module.main.params, param))
        module = replace(module, functions=(main, *module.functions[1:]))
        if param.name != source:
            module = replace(module, aliases=(*module.aliases, Alias(param.name, source)))
    elif result is not None and not _keeps_or_grows(module, param.type, result.type):
        raise EntryError(f"{STATE_TYPES}, but it is {param.type} and becomes {result.type}")
    state = State(param.name, param.name if result is None else result.name)
    return replace(module, states=(*module.states, state))


def _keeps_or_grows(module: Module, one: TensorType, other: TensorType) -> bool:
    if growing_axis(one, other, module.bounds) is not None:
        return True
    return (
        one.dtype is other.dtype
        and one.rank == other.rank
        and all(prove_eq(a, b, module.bounds) for a, b in zip(one.shape, other.shape, strict=True))
    )


def _unused(module: Module, requested: str) -> str:
    taken = {c.name for c in module.constants} | {s.name for s in module.symbols}
    for function in module.functions:
        taken |= {v.name for v in (*function.params, *function.results)}
        taken |= {v.name for call in function.body for v in call.outs}
    return unused_name(requested, taken)


# What must agree


def _check_sizes(modules: Mapping[str, Module]) -> None:
    found: dict[str, tuple[str, int, int]] = {}
    for entry, module in modules.items():
        for symbol in module.symbols:
            if symbol.inner:
                continue
            source = module.source_name(symbol.name)
            most = symbol.growth.capacity if symbol.growth else symbol.high
            known, low, high = found.setdefault(source, (entry, symbol.low, most))
            if (low, high) != (symbol.low, most):
                raise EntryError(
                    f"the size {source} is {low}..{high} in the entry {known} and"
                    f" {symbol.low}..{most} in {entry}; sizes with the same name need the "
                    f"same bound: set it "
                    f"with --bound {source}=..., or rename one of them in its model"
                )


def _check_states(modules: Mapping[str, Module]) -> None:
    found: dict[str, tuple[str, TensorType]] = {}
    for entry, module in modules.items():
        params = {p.name: p for p in module.main.params}
        by_source = {s.name: Dim.of(module.source_name(s.name)) for s in module.symbols}
        for state in module.states:
            own = params[state.input].type
            type_ = TensorType(own.dtype, tuple(size.substitute(by_source) for size in own.shape))
            source = module.source_name(state.input)
            known, other = found.setdefault(source, (entry, type_))
            if other != type_:
                raise EntryError(
                    f"the state {source} is {other} in the entry {known} and {type_} in {entry};"
                    " a state has one type in all entries"
                )
