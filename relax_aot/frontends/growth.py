# SPDX-License-Identifier: Apache-2.0
"""Growing states: `past[m]` becomes `present[m + s]`.

The upper bound of `m` is the capacity: the greatest length that a call may leave. The length is
kept in the state and starts at 0, so the lower bound of `m` is 0. A window keeps the last rows, up
to its capacity; it has memory for a call of the greatest sizes behind them, and for a slack, so
that rows are moved rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.bounds import GREATEST, WrongBound
from relax_aot.ir.dims import Bounds, Dim, interval, prove_eq, prove_le
from relax_aot.ir.graph import (
    CAPACITY,
    WINDOW,
    Alias,
    Growth,
    Module,
    State,
    Symbol,
    Var,
    slack_of,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.types import TensorType


def growing_axis(before: TensorType, after: TensorType, bounds: Bounds) -> int | None:
    """The one axis on which a state grows: a symbol, which becomes larger by a size that does not
    depend on it. None where the types differ in another way."""
    if before.dtype is not after.dtype or before.rank != after.rank:
        return None
    pairs = enumerate(zip(before.shape, after.shape, strict=True))
    axes = [axis for axis, (old, new) in pairs if not prove_eq(old, new, bounds)]
    if len(axes) != 1 or not _is_length(before, axes[0]):
        return None
    (axis,) = axes
    old, new = before.shape[axis], after.shape[axis]
    fits = not (new - old).symbols & old.symbols and prove_le(old, new, bounds)
    return axis if fits else None


def _is_length(type_: TensorType, axis: int) -> bool:
    """The size of an axis is a symbol, and no other axis depends on it."""
    size = type_.shape[axis]
    if len(size.symbols) != 1 or size != Dim.of(next(iter(size.symbols))):
        return False
    others = (other for number, other in enumerate(type_.shape) if number != axis)
    return not any(size.symbols & other.symbols for other in others)


def with_growth(module: Module, windows: Mapping[str, int] | None = None) -> Module:
    """The module, whose growing states and their lengths are marked. `windows` are the rows that
    some lengths keep, by their names in the source."""
    params = {v.name: v.type for v in module.main.params}
    results = {v.name: v.type for v in module.main.results}
    after: dict[str, Dim] = {}
    states: list[State] = []
    for state in module.states:
        if state.input not in params or state.output not in {*params, *results}:
            return module  # an error of its own
        before, new = params[state.input], results.get(state.output, params[state.input])
        axis = growing_axis(before, new, module.bounds)
        if axis is None and _is_marked(module, state, before, new):
            after[state.length] = module.lengths[state.length].after
            states.append(state)
            continue
        if axis is None:
            states.append(replace(state, length="", axis=0))
            continue
        (name,) = before.shape[axis].symbols
        _check(module, state, name, new.shape[axis], after)
        after[name] = new.shape[axis]
        states.append(replace(state, length=name, axis=axis))
    return _with_lengths(replace(module, states=tuple(states)), after, windows or {})


def _is_marked(module: Module, state: State, before: TensorType, new: TensorType) -> bool:
    """The state was marked before: it has rows at the stride of its capacity, as after lowering,
    or all of its rows are replaced."""
    growth = module.lengths.get(state.length)
    if growth is None or not state.axis < min(before.rank, new.rank):
        return False
    sizes = before.shape[state.axis], new.shape[state.axis]
    lowered = (Dim.of(growth.rows),) * 2
    return sizes in (lowered, (Dim.of(state.length), growth.after))


@dataclass(frozen=True, slots=True)
class Rows:
    """A state that grows in some entry: its length, by the symbol's name in the source."""

    length: str
    axis: int
    capacity: int
    places: int


def rows_of(module: Module) -> dict[str, Rows]:
    """The growing states by their names in the source."""
    growths = module.lengths
    return {
        module.source_name(state.input): Rows(
            module.source_name(state.length),
            state.axis,
            growths[state.length].capacity,
            growths[state.length].places,
        )
        for state in module.states
        if state.length
    }


def with_common_places(modules: Mapping[str, Module]) -> dict[str, Module]:
    """Entries whose windows have memory for the call of the entry that needs most."""
    most: dict[str, int] = {}
    for module in modules.values():
        for name, growth in module.lengths.items():
            source = module.source_name(name)
            most[source] = max(most.get(source, 0), growth.places)

    def common(module: Module) -> Module:
        symbols = tuple(
            replace(s, growth=replace(s.growth, places=most[module.source_name(s.name)]))
            if s.growth is not None and s.growth.is_window
            else s
            for s in module.symbols
        )
        return with_growth(replace(module, symbols=symbols))

    return {name: common(module) for name, module in modules.items()}


def in_other_entries(module: Module, growing: Mapping[str, Rows]) -> Module:
    """An entry with states that grow in other entries, where it reads their rows or replaces all
    of them."""
    after = {name: growth.after for name, growth in module.lengths.items()}
    for state in module.states:
        rows = growing.get(module.source_name(state.input))
        if rows is None or state.length:
            continue
        (param,) = (v for v in module.main.params if v.name == state.input)
        if not rows.axis < param.type.rank:
            continue
        size, read = param.type.shape[rows.axis], state.input == state.output
        used = any(
            state.input == v.name for f in module.functions for c in f.body for v in c.inputs
        )
        if read or used:
            name = next(iter(size.symbols), "")
            if size != Dim.of(name or 0) or module.source_name(name) != rows.length:
                continue  # of another type: an error of entries
            after.setdefault(name, size)
        else:
            module, name = _with_length(module, param, rows)
            _check(module, state, name, size, after)
            after[name] = size
        marked = replace(state, length=name, axis=rows.axis)
        states = tuple(marked if one == state else one for one in module.states)
        module = replace(module, states=states)
    return _with_lengths(module, after)


def _with_length(module: Module, param: Var, rows: Rows) -> tuple[Module, str]:
    """The state before a call that replaces its rows has the length of the other entries."""
    known = [s.name for s in module.symbols if module.source_name(s.name) == rows.length]
    taken = {v.name for f in module.functions for c in f.body for v in (*c.inputs, *c.outs)}
    taken |= {symbol.name for symbol in module.symbols}
    name = known[0] if known else unused_name(rows.length, taken)
    if not known:
        growth = Growth(Dim.of(name), rows.capacity, rows.places) if rows.places else None
        origin = f"state {param.name}, axis {rows.axis}"
        symbol = Symbol(name, 0, rows.capacity, origin, growth=growth)
        aliases = (Alias(name, rows.length),) if name != rows.length else ()
        module = replace(
            module,
            symbols=(*module.symbols, symbol),
            aliases=(*module.aliases, *aliases),
        )
    shape = list(param.type.shape)
    shape[rows.axis] = Dim.of(name)
    changed = replace(param, type=TensorType(param.type.dtype, tuple(shape)))
    params = tuple(changed if one == param else one for one in module.main.params)
    main = replace(module.main, params=params)
    return replace(module, functions=(main, *module.functions[1:])), name


def _check(module: Module, state: State, name: str, grown: Dim, after: Mapping[str, Dim]) -> None:
    pair = f"{module.source_name(state.input)}={module.source_name(state.output)}"
    if (grown - Dim.of(name)).symbols & module.inner:
        raise ModelError(
            f"--state {pair}: the model computes the number of rows ({grown}), but the capacity is"
            " checked before a call, so sizes of inputs must determine it"
        )
    if name in after and not prove_eq(after[name], grown, module.bounds):
        raise ModelError(
            f"--state {pair}: the length {name} becomes {grown} here and {after[name]} in another"
            " state; states with one length grow by the same number of rows"
        )


def _with_lengths(
    module: Module, after: Mapping[str, Dim], windows: Mapping[str, int] | None = None
) -> Module:
    """Each length with its capacity; states that do not grow must not have it."""
    params = {v.name: v.type for v in module.main.params}
    for state in module.states:
        shared = params[state.input].symbols & after.keys() - {state.length}
        for name in sorted(shared):
            if after[name] != Dim.of(name):
                raise ModelError(
                    f"--state {module.source_name(state.input)}: its size {name} is the length of a"
                    " growing state, but it does not grow; give its axis another name"
                )
    kept = {s.name: (windows or {}).get(module.source_name(s.name), 0) for s in module.symbols}
    symbols = tuple(
        _length(s, after[s.name], module, kept[s.name])
        if s.name in after
        else replace(s, growth=None)
        for s in module.symbols
    )
    others = tuple(c for c in module.conditions if c.origin not in (CAPACITY, WINDOW))
    module = replace(module, symbols=symbols, conditions=others)
    new = (
        growth.condition
        for growth in module.lengths.values()
        if growth.is_window
        or not prove_le(growth.condition.left, growth.condition.right, module.bounds)
    )
    return replace(module, conditions=(*others, *new))


def _length(symbol: Symbol, after: Dim, module: Module, window: int) -> Symbol:
    if window or (symbol.growth and symbol.growth.is_window):
        return _window(symbol, after, module, window)
    capacity = symbol.growth.capacity if symbol.growth else symbol.high
    appends = symbol.name in after.symbols
    least = interval(after - Dim.of(symbol.name) if appends else after, module.bounds)[0]
    if symbol.low > 1:
        raise WrongBound(
            f"the bound {module.source_name(symbol.name)}={symbol.low}..{symbol.high}: this is the"
            f" length of a growing state, which starts at 0; write"
            f" --bound {module.source_name(symbol.name)}={capacity}"
        )
    if least > capacity:
        raise WrongBound(
            f"a call stores at least {least} rows, but the capacity"
            f" {module.source_name(symbol.name)} is {capacity}; use a greater bound (--bound)"
        )
    high = max(capacity - least, symbol.low) if appends else capacity
    return replace(symbol, high=high, growth=Growth(after, capacity))


def _window(symbol: Symbol, after: Dim, module: Module, window: int) -> Symbol:
    """The length of a window, with memory for the greatest call behind its rows."""
    known = symbol.growth.places if symbol.growth else 0
    window = window or (symbol.growth.capacity if symbol.growth else 0)
    longest = after.substitute({symbol.name: Dim.of(window)})
    needed = max(interval(longest, module.bounds)[1], window) + slack_of(window)
    growth = Growth(after, window, max(known, needed))
    return replace(symbol, low=0, high=window, growth=growth)


# Windows


def with_window_bounds(options: ImportOptions) -> ImportOptions:
    """The bound of a window's length is the window."""
    bounds = dict(options.bounds)
    for name, rows in options.window.items():
        if not 1 <= rows <= GREATEST:
            raise WrongBound(
                f"--window {name}={rows}: a window keeps at least 1 row and at most {GREATEST}"
            )
        low, high = bounds.get(name, (0, rows))
        if low > 1 or high != rows:
            raise WrongBound(
                f"--window {name}={rows}: the window determines the bound of {name}, 0..{rows};"
                f" remove --bound {name}={low}..{high}"
            )
        bounds[name] = (0, rows)
    return replace(options, bounds=bounds)


def check_windows(options: ImportOptions, modules: Iterable[Module]) -> None:
    """Windows are of lengths."""
    modules = tuple(modules)
    lengths = {module.source_name(name) for module in modules for name in module.lengths}
    for name, rows in options.window.items():
        if name not in lengths:
            listed = (
                f"lengths are {', '.join(sorted(lengths))}"
                if lengths
                else "the model has no lengths"
            )
            raise ModelError(
                f"--window {name}={rows}: {name} is not the length of a growing state ({listed});"
                " join the input and the output of a cache with --state past=present"
            )


# Lengths start at 0


def from_zero(load: Callable[[ImportOptions], Module], options: ImportOptions) -> Module:
    """The module that `load` makes, once more where a length did not start at 0."""
    module = load(options)
    late = lengths_above_zero(module)
    return load(with_lengths_from_zero(options, late)) if late else module


def lengths_above_zero(module: Module) -> dict[tuple[str, str], int]:
    """The capacities of lengths that start at 1, by their names in the module and in its source."""
    return {
        (s.name, module.source_name(s.name)): s.growth.capacity
        for s in module.symbols
        if s.growth is not None and s.low > 0
    }


def with_lengths_from_zero(
    options: ImportOptions, late: Mapping[tuple[str, str], int]
) -> ImportOptions:
    names = {name for pair in late for name in pair}
    bounds = {name: value for name, value in options.bounds.items() if name not in names}
    bounds |= {source: (0, capacity) for (_, source), capacity in late.items()}
    return replace(options, bounds=bounds)
