# SPDX-License-Identifier: Apache-2.0
"""What a user says about a loaded module: bounds, fixed inputs, states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.bounds import (
    GREATEST,
    WrongBound,
    missing_bounds,
    no_such_symbol,
)
from relax_aot.frontends.fixing import fixed_value
from relax_aot.ir.dims import Dim, parse_relation, solve_for
from relax_aot.ir.graph import (
    ASSUMED,
    Call,
    Condition,
    Constant,
    Function,
    Module,
    State,
    Symbol,
    Var,
    attrs_of,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.rewrite import substitute_dims
from relax_aot.ir.types import Annotation, CoarseType, TensorType
from relax_aot.ops import all_ops


def apply(module: Module, options: ImportOptions) -> Module:
    """The module with these options. Names may be those of the module or of its source."""
    names = {alias.source: alias.name for alias in module.aliases}
    options = _concerning(module, options, names)
    module = _with_bounds(module, options, names)
    for name, value in options.fix.items():
        module = _with_fixed(module, names.get(name, name), value)
    missing = _undeclared(module)
    if missing:
        raise missing_bounds(missing)
    for before, after in options.state.items():
        module = _with_state(module, names.get(before, before), names.get(after, after))
    for text in options.assume:
        module = _with_relation(module, text, names)
    return module


def _concerning(module: Module, options: ImportOptions, names: Mapping[str, str]) -> ImportOptions:
    """Of options that are those of several entries, what this module has."""
    if options.used is None:
        return options
    inputs = {var.name for var in module.main.params}
    sizes = {symbol.name for symbol in module.symbols} | _undeclared(module).keys()

    def known(name: str) -> bool:
        return names.get(name, name) in sizes

    own = replace(
        options,
        fix={n: v for n, v in options.fix.items() if names.get(n, n) in inputs},
        bounds={n: v for n, v in options.bounds.items() if known(n)},
        assume=tuple(t for t in options.assume if all(map(known, parse_relation(t)[1].symbols))),
    )
    options.used.update(own.fix, own.bounds, own.assume)
    return own


def named_axes(module: Module) -> Module:
    """Axes of inputs that say nothing are symbols of their own: `x_1` for axis 1 of `%x`."""
    taken = {symbol.name for symbol in module.symbols if symbol.inner}
    for var in module.main.params:
        taken |= known_symbols(var.type)

    def named(var: Var) -> Var:
        said: Annotation = var.type
        if not isinstance(said, CoarseType) or said.dtype is None or said.shape is None:
            return var
        shape = tuple(
            Dim.of(_axis_name(var.name, axis, taken)) if size is None else size
            for axis, size in enumerate(said.shape)
        )
        return replace(var, type=TensorType(said.dtype, shape))

    params = tuple(named(var) for var in module.main.params)
    main = _with_values(replace(module.main, params=params), {p.name: p for p in params})
    return replace(module, functions=(main, *module.functions[1:]))


def known_symbols(said: Annotation) -> frozenset[str]:
    if not isinstance(said, TensorType | CoarseType):
        return frozenset()
    return frozenset[str]().union(*(s.symbols for s in said.shape or () if s is not None))


def _axis_name(name: str, axis: int, taken: set[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9_]+", "_", f"{name}_{axis}").strip("_")
    base = base if base[0].isalpha() else f"n_{base}"
    requested = unused_name(base, taken)
    taken.add(requested)
    return requested


# Bounds


def _undeclared(module: Module) -> dict[str, str]:
    """Symbols of inputs without bounds, with where they come from."""
    declared = {symbol.name for symbol in module.symbols}
    origins: dict[str, str] = {}
    for var in module.main.params:
        said: Annotation = var.type
        for axis, size in enumerate(said.shape if isinstance(said, TensorType) else ()):
            for name in sorted(size.symbols - declared):
                origins.setdefault(name, f"input {module.source_name(var.name)}, axis {axis}")
    return origins


def _with_bounds(module: Module, options: ImportOptions, names: Mapping[str, str]) -> Module:
    """Declared symbols keep their order; those that only inputs name come behind them."""
    sources = {names.get(source, source): source for source in options.bounds}
    bounds = {name: options.bounds[source] for name, source in sources.items()}
    declared = {s.name: s for s in module.symbols if not s.inner}
    origins = _undeclared(module)
    for name, (low, high) in bounds.items():
        said = options.said(sources[name], ends=True)
        if name not in declared | origins:
            raise WrongBound(
                no_such_symbol(options.said(sources[name]), name, [*declared, *origins])
            )
        if not 0 <= low <= high <= GREATEST:
            raise WrongBound(f"{said} contains no size")
        symbol = declared.get(name)
        if module.kernels and symbol and symbol.growth and high != symbol.growth.capacity:
            raise WrongBound(
                f"{said}: the kernels of this text are compiled for the"
                f" capacity {symbol.growth.capacity}"
            )
        narrower = symbol and (symbol.growth or (symbol.low <= low and high <= symbol.high))
        if module.kernels and symbol and not narrower:
            raise WrongBound(
                f"{said}: the kernels of this text are compiled for"
                f" {symbol.low}..{symbol.high}; a bound can only be narrower"
            )
    symbols = [_bounded(s, *bounds[s.name]) if s.name in bounds else s for s in module.symbols]
    symbols += [Symbol(n, *bounds[n], origin) for n, origin in origins.items() if n in bounds]
    return replace(module, symbols=tuple(symbols))


def _bounded(symbol: Symbol, low: int, high: int) -> Symbol:
    """The bound of a length is its capacity; a length starts at 0."""
    if symbol.growth is not None and low <= 1:
        return replace(symbol, low=0, high=high, growth=replace(symbol.growth, capacity=high))
    divided = symbol.division
    if divided is not None:
        divided = replace(divided, whole=high) if divided.part < high else None
    return replace(symbol, low=low, high=high, division=divided)


# Inputs


def _param(module: Module, name: str, option: str) -> Var:
    for var in module.main.params:
        if var.name == name:
            return var
    listed = ", ".join(module.source_name(var.name) for var in module.main.params)
    raise ModelError(f"{option} {name}: the module has no such input, its inputs are {listed}")


def _with_fixed(module: Module, name: str, value: object) -> Module:
    """The input as a constant; what its shape says of symbols is put in their place."""
    param = _param(module, name, "--fix")
    said: Annotation = param.type
    if not isinstance(said, TensorType):
        raise ModelError(f"--fix {name}: {said} is not a tensor of known type and rank")
    if any(state.input == name for state in module.states):
        raise ModelError(f"--fix {name}: a state cannot be fixed")
    shape = [s.constant if s.is_constant else str(s) for s in param.type.shape]
    fixed = fixed_value(module.source_name(name), shape, param.type.dtype, value)
    main = module.main
    main = replace(main, params=tuple(p for p in main.params if p.name != name))
    main = replace(main, body=tuple(_said_less(call) for call in main.body))
    if fixed.splat:
        attrs = attrs_of(
            {
                "shape": tuple(param.type.shape),
                "value": fixed.array.item(),
                "dtype": param.type.dtype,
            }
        )
        main = replace(main, body=(Call((param,), "fill", (), attrs, f"--fix {name}"), *main.body))
        module = replace(module, functions=(main, *module.functions[1:]))
    else:
        sizes = _solved(param, fixed.array.shape)
        type_ = TensorType(param.type.dtype, tuple(map(Dim.of, fixed.array.shape)))
        constant = Constant(name, type_, fixed.array)
        module = replace(
            module,
            functions=(main, *module.functions[1:]),
            constants=(*module.constants, constant),
            symbols=tuple(_pinned(symbol, sizes) for symbol in module.symbols),
        )
        module = substitute_dims(module, {n: Dim.of(size) for n, size in sizes.items()})
    return replace(module, aliases=tuple(a for a in module.aliases if a.name != name))


def _said_less(call: Call) -> Call:
    """What ops make of their arguments is deduced again, since these are known better."""
    if call.op not in all_ops():
        return call
    unsaid = cast(TensorType, CoarseType())
    return replace(call, outs=tuple(replace(out, type=unsaid) for out in call.outs))


def _solved(param: Var, shape: tuple[int, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for size, actual in zip(param.type.shape, shape, strict=True):
        size = size.substitute(sizes)
        for symbol in sorted(size.symbols):
            solution = solve_for(size, symbol, Dim.of(actual))
            if solution is not None and solution[0].is_constant and solution[1] == 0:
                sizes[symbol] = solution[0].constant
                break
    left = [size.substitute(sizes) for size in param.type.shape]
    if left != list(shape):
        raise ModelError(f"--fix {param.name}: no sizes make {param.type} of shape {list(shape)}")
    return sizes


def _pinned(symbol: Symbol, sizes: Mapping[str, int]) -> Symbol:
    if symbol.name not in sizes:
        return symbol
    size = sizes[symbol.name]
    if not symbol.low <= size <= symbol.high:
        raise WrongBound(
            f"{symbol.name} is {size} in a fixed input, outside its bound"
            f" {symbol.low}..{symbol.high}"
        )
    return replace(symbol, low=size, high=size)


def _with_state(module: Module, before: str, after: str) -> Module:
    _param(module, before, "--state")
    results = [result.name for result in module.main.results]
    if after not in results:
        raise ModelError(
            f"--state {before}={after}: the module has no such result, its results are"
            f" {', '.join(results)}"
        )
    if any(before == s.input or after == s.output for s in module.states):
        raise ModelError(f"--state {before}={after}: one of them is already a state")
    return replace(module, states=(*module.states, State(before, after)))


def _with_relation(module: Module, text: str, names: Mapping[str, str]) -> Module:
    relation, apart = parse_relation(text)
    apart = apart.substitute({source: Dim.of(name) for source, name in names.items()})
    known = {symbol.name for symbol in module.symbols if not symbol.inner}
    for name in sorted(apart.symbols - known):
        raise WrongBound(no_such_symbol(f"--assume {text!r}, {name}", name, known))
    why = ASSUMED + text
    found = (
        Condition("==", apart, Dim.of(0), why)
        if relation == "==0"
        else Condition("<=", Dim.of(0), apart, why)
    )
    return replace(module, conditions=(*module.conditions, found))


def _with_values(function: Function, values: Mapping[str, Var]) -> Function:
    """The same with other values in the place of those of these names."""

    def call(line: Call) -> Call:
        args = tuple(None if arg is None else values.get(arg.name, arg) for arg in line.args)
        return replace(line, args=args)

    return replace(
        function,
        body=tuple(map(call, function.body)),
        results=tuple(values.get(result.name, result) for result in function.results),
    )
