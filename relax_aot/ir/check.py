# SPDX-License-Identifier: Apache-2.0
"""The invariants of a module, each with its own message.

What is checked holds after every stage: names, types, symbols, kernels, states. What an op
makes of its arguments is asked of `deduce`, since this level knows no op.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from relax_aot.errors import RelaxAotError
from relax_aot.ir.axes import CORE
from relax_aot.ir.bounds import GREATEST
from relax_aot.ir.check_kernel import kernel_problems
from relax_aot.ir.dims import Bounds, Dim, Relation, assume, prove_eq
from relax_aot.ir.graph import CONTROL, Attr, Call, Function, Loop, Module, State, Symbol, Var
from relax_aot.ir.lexer import WORD
from relax_aot.ir.loops import Buffer
from relax_aot.ir.text import call_text
from relax_aot.ir.types import Ref, TensorType

Deduce = Callable[
    [str, Sequence[TensorType | None], Mapping[str, Attr]], tuple[TensorType, ...] | None
]
"""Result types of an op; None for an op that is unknown. Raises what the op's rule raises."""


RULE_ERRORS = (
    TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError, ZeroDivisionError,
)  # fmt: skip
"""What a rule raises where arguments or attributes are of a kind that it does not know."""


STATE_TYPES = "a state keeps its type, or grows on one axis whose size is a symbol of its own"
"""What the types of a state may be before and after a call, in messages."""


class CheckError(RelaxAotError):
    """A module that breaks its own rules: every breach, each with its place."""


def check(module: Module, deduce: Deduce) -> None:
    found = list(dict.fromkeys(problems(module, deduce)))
    if found:
        name = f"{json.dumps(module.source)}: " if module.source else ""
        raise CheckError(f"{name}the program is not sound:\n  " + "\n  ".join(found))


def problems(module: Module, deduce: Deduce) -> Iterator[str]:
    """Every breach of an invariant, in the order of the text."""
    yield from _names(module)
    yield from _symbols(module)
    for function in module.functions:
        for problem in _function(module, function, deduce):
            yield f"func @{function.name}: {problem}"
    yield from _definitions(module, module.main, frozenset())
    # A branch may run for some sizes only, and its kernels with it.
    always = {_target(call, "kernel", module.kernel_table) for call in module.main.body}
    for kernel in module.kernels:
        for problem in kernel_problems(module, kernel, runs=kernel.name in always):
            yield f"kernel @{kernel.name}: {problem}"
    yield from _states(module)


def _names(module: Module) -> Iterator[str]:
    kinds: dict[str, list[str]] = {
        "functions": [f.name for f in module.functions],
        "kernels": [k.name for k in module.kernels],
        "externs": [e.name for e in module.externs],
        "constants": [c.name for c in module.constants],
        "symbols": [s.name for s in module.symbols],
    }
    for kind, names in kinds.items():
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"two {kind} are called {name}"
    for constant in module.constants:
        if constant.type.symbols:
            yield f"constant %{constant.name}: {constant.type} depends on sizes"
            continue
        data, shape = constant.data, tuple(size.constant for size in constant.type.shape)
        if data.dtype != constant.type.dtype.numpy or data.shape != shape:
            came = f"{data.dtype}{list(data.shape)}"
            yield f"constant %{constant.name}: {constant.type} contains {came}"


def _divided(module: Module, symbol: Symbol) -> Iterator[str]:
    """Parts of a call take rows of inputs, and the last one returns results without rows: a call
    that fails has then changed none. Sizes from data would be those of one part."""
    division, rows = symbol.division, Dim.of(symbol.name)
    if division is None or not 1 <= division.part < division.whole:
        yield f"symbol {symbol.name}: parts are smaller than the whole"
    states = {name for state in module.states for name in (state.input, state.output)}
    for var in (*module.main.params, *module.main.results):
        is_given = var in module.main.params
        others = [size for size in var.type.shape[:is_given] if size != rows]
        others += var.type.shape[is_given:]
        used = frozenset[str]().union(*(size.symbols for size in others))
        if var.name not in states and used & {symbol.name, *module.inner}:
            yield f"%{var.name}: {var.type} can not be divided by its rows {symbol.name}"


def _symbols(module: Module) -> Iterator[str]:
    for symbol in module.symbols:
        if not (WORD.fullmatch(symbol.name) and "." not in symbol.name):
            yield f"symbol {symbol.name!r} is not an identifier; use an alias for its source name"
        if not 0 <= symbol.low <= symbol.high <= GREATEST:
            yield f"symbol {symbol.name} in {symbol.low}..{symbol.high} contains no size"
        if symbol.division is not None:
            yield from _divided(module, symbol)
    for condition in module.conditions:
        yield from _declared(module, condition.left.symbols | condition.right.symbols, condition)
        for name in sorted((condition.left.symbols | condition.right.symbols) & module.inner):
            yield f"require {condition}: {name} is not known on entry"
    main = module.main
    for var in main.params:
        for name in sorted(var.type.symbols & module.inner):
            yield f"input %{var.name}: {var.type}: {name} is an inner symbol, not known on entry"


def _declared(module: Module, symbols: frozenset[str], what: object) -> Iterator[str]:
    for name in sorted(symbols - {symbol.name for symbol in module.symbols}):
        yield f"{what}: {name} has no bounds (symbol {name} in 1..128)"


# Functions


def _function(module: Module, function: Function, deduce: Deduce) -> Iterator[str]:
    """Names and types; functions that are called before or after it are checked alone."""
    values = {c.name: c.var for c in module.constants}
    for var in function.params:
        if var.name in values:
            yield f"parameter %{var.name} has the name of another value"
        values[var.name] = var
        yield from _declared(module, var.type.symbols, f"parameter %{var.name}: {var.type}")
    checked: list[Relation] = []
    for call in function.body:
        origin = f"      from {call.origin}" if call.origin else ""
        for problem in _call(module, call, values, deduce, checked):
            yield f"{problem}\n    in {call_text(call)}{origin}"
        values |= {out.name: out for out in call.outs}
        checked += checked_relations(call)
    names = [result.name for result in function.results]
    for result in function.results:
        if values.get(result.name) != result:
            yield f"result %{result.name}: {result.type} is not defined"
        if names.count(result.name) > 1:
            yield f"%{result.name} is two results; insert a copy"


def checked_relations(call: Call) -> Iterator[Relation]:
    """What holds after a `check` that the run passed."""
    attrs = dict(call.attrs)
    match attrs.get("relation"), attrs.get("left"), attrs.get("right"):
        case str(relation), (int() | Dim()) as left, (int() | Dim()) as right:
            if call.op == "check":
                yield relation, Dim.of(left), Dim.of(right)


def _call(
    module: Module,
    call: Call,
    values: Mapping[str, Var],
    deduce: Deduce,
    checked: Sequence[Relation],
) -> Iterator[str]:
    for arg in call.inputs:
        if arg.name not in values:
            yield f"%{arg.name} is not defined above"
        elif values[arg.name].type != arg.type:
            yield f"%{arg.name} is {values[arg.name].type} above and {arg.type} here"
    for out in call.outs:
        if out.name in values:
            yield f"%{out.name} is defined twice"
        yield from _declared(module, out.type.symbols, f"%{out.name}: {out.type}")
    for _, value in call.attrs:
        for dim in _dims_of(value):
            yield from _declared(module, dim.symbols, dim)
    match call.op:
        case "call_kernel":
            yield from _call_kernel(module, call)
        case "call_extern":
            yield from _call_extern(module, call)
        case "if":
            yield from _if(module, call)
        case "guard":
            yield from _guard(module, call)
        case "view":
            yield from _view(call, assume(module.bounds, checked))
        case "define":
            yield from _define(module, call)
        case "check":
            if {"left", "relation", "right"} - dict(call.attrs).keys() or call.outs:
                yield "a check has a relation between left and right, and no result"
        case "loop":
            yield from _loop(module, call)
        case _:
            yield from _op(module, call, deduce)


def _definitions(module: Module, function: Function, known: frozenset[str]) -> Iterator[str]:
    """Inner symbols are defined, by a call above, before anything has a size of them."""
    for call in function.body:
        known = known.union(call.defines)
        found = [target for name in CONTROL.get(call.op, ()) if (target := _ref(call, name))]
        for target in found:
            if target in module.function_table and target != function.name:
                yield from _definitions(module, module.function_table[target], known)
        used = {name for out in call.outs for name in out.type.symbols}
        if not found:
            used |= {name for _, value in call.attrs for d in _dims_of(value) for name in d.symbols}
        for name in sorted(used & module.inner - known):
            early = f"{name} is used before it is defined"
            yield f"func @{function.name}: {early}\n    in {call_text(call)}"


def _ref(call: Call, attr: str) -> str:
    value = dict(call.attrs).get(attr)
    return value.name if isinstance(value, Ref) else ""


def _dims_of(value: Attr) -> Iterator[Dim]:
    if isinstance(value, tuple):
        for part in value:
            yield from _dims_of(part)
    elif isinstance(value, Dim):
        yield value


def same_type(a: TensorType, b: TensorType, bounds: Bounds) -> bool:
    """Equal for all sizes, as far as can be proved."""
    return (
        a.dtype is b.dtype
        and a.rank == b.rank
        and all(x == y or prove_eq(x, y, bounds) for x, y in zip(a.shape, b.shape, strict=True))
    )


def _types(values: Sequence[Var | TensorType]) -> str:
    return ", ".join(str(v.type if isinstance(v, Var) else v) for v in values) or "nothing"


def _op(module: Module, call: Call, deduce: Deduce) -> Iterator[str]:
    try:
        types = deduce(
            call.op, [None if a is None else a.type for a in call.args], dict(call.attrs)
        )
    except RelaxAotError as error:
        yield str(error)
        return
    except RULE_ERRORS as error:
        yield f"wrong arguments or attributes for {call.op} ({error})"
        return
    if types is None:
        yield f"unknown op {call.op}"
    elif not _same_types(types, [o.type for o in call.outs], module.bounds):
        yield f"{call.op} gives {_types(types)}, not {_types(call.outs)}"


def _same_types(a: Sequence[TensorType], b: Sequence[TensorType], bounds: Bounds) -> bool:
    return len(a) == len(b) and all(map(same_type, a, b, [bounds] * len(a)))


def _target(call: Call, attr: str, table: Mapping[str, object]) -> str | None:
    """The name that an attribute refers to, where it exists."""
    name = _ref(call, attr)
    return name if name in table else None


def _call_kernel(module: Module, call: Call) -> Iterator[str]:
    name = _target(call, "kernel", module.kernel_table)
    if name is None:
        yield "kernel= names no kernel of the module"
        return
    kernel = module.kernel_table[name]
    for what, values, buffers in (
        ("reads", call.inputs, kernel.inputs),
        ("writes", call.outs, kernel.outputs + kernel.scratch),
    ):
        wanted = [
            with_copies(buffer, value) for buffer, value in zip(buffers, values, strict=False)
        ] + [buffer.type for buffer in buffers[len(values) :]]
        if not _same_types(wanted, [v.type for v in values], module.bounds):
            yield f"kernel @{name} {what} {_types(wanted)}, not {_types(values)}"


def with_copies(buffer: Buffer, value: Var) -> TensorType:
    """The type of a kernel's argument: scratch of scope `core` has a leading axis of copies, one
    for each iteration that runs at a time."""
    copies = value.type.shape[:1]
    if buffer.scope != CORE or not copies or not copies[0].is_constant:
        return buffer.type
    return TensorType(buffer.dtype, (*copies, *buffer.shape))


def _guard(module: Module, call: Call) -> Iterator[str]:
    if len(call.outs) != 1 or not call.inputs or call.out.type != call.inputs[0].type:
        yield "a guard gives its first operand"
    else:
        yield from _call_kernel(module, replace(call, outs=()))


def _call_extern(module: Module, call: Call) -> Iterator[str]:
    name = _target(call, "extern", module.extern_table)
    if name is None:
        yield "extern= names no extern of the module"
        return
    values = {key for key, _ in call.attrs if key != "extern"}
    yield from module.extern_table[name].problems(len(call.inputs), len(call.outs), values)


def _view(call: Call, bounds: Bounds) -> Iterator[str]:
    if len(call.inputs) != 1 or len(call.outs) != 1:
        yield "view takes one value and gives one"
        return
    before, after = call.inputs[0].type, call.out.type
    if not prove_eq(before.bytes, after.bytes, bounds):
        yield f"a view keeps the bytes: {before} is not proven to have the same size as {after}"


def _inner(module: Module, call: Call) -> Iterator[str]:
    """What a call defines are inner symbols."""
    if not isinstance(dict(call.attrs).get("defines"), tuple):
        yield f"{call.op} lists the sizes that it defines"
    for name in call.defines:
        if name not in module.inner:
            yield f"{name} is defined here, but is not an inner symbol"


def _define(module: Module, call: Call) -> Iterator[str]:
    yield from _inner(module, call)
    if len(call.inputs) != 1 or call.outs or not call.inputs[0].type.dtype.is_int:
        yield "define reads one integer value and has no result"


def _loop(module: Module, call: Call) -> Iterator[str]:
    """A body uses values around it by their names; carried values are its first parameters."""
    yield from _inner(module, call)
    if _target(call, "body", module.function_table) is None:
        yield "body= names no function of the module"
        return
    loop = Loop.of(call)
    body, count = module.function_table[loop.body], loop.carried
    if body.params[count:] != call.inputs[count:]:
        yield f"the last parameters of @{body.name} are not the arguments of the loop"
    if len(body.results) != len(call.outs) or len(body.params) != len(call.inputs):
        yield f"@{body.name} has other parameters or results than the loop"
        return
    later = {name: later for name, _, later, _ in loop.sizes}
    for param, result in zip(body.params[:count], body.results[:count], strict=True):
        shape = tuple(size.substitute(later) for size in param.type.shape)
        if not same_type(TensorType(param.type.dtype, shape), result.type, module.bounds):
            yield f"@{body.name} changes %{param.name}: {param.type} to {result.type}"


def _if(module: Module, call: Call) -> Iterator[str]:
    """A branch uses values around it by their names, so its parameters are the arguments."""
    attrs = dict(call.attrs)
    tables = [attrs.get(key) for key in ("defines", "then_sizes", "else_sizes")]
    if not call.inputs or call.inputs[0].type.elements != Dim.of(1):
        yield "the first argument of an if must be a scalar, its condition"
        return
    lengths = {len(table) for table in tables if isinstance(table, tuple)}
    if len(lengths) != 1 or not all(isinstance(table, tuple) for table in tables):
        yield "an if lists the sizes that it defines: defines, then_sizes and else_sizes"
        return
    names, *sides = tables
    for side, sizes in zip(("then", "else"), sides, strict=True):
        name = _target(call, side, module.function_table)
        if name is None:
            yield f"{side}= names no function of the module"
            continue
        branch = module.function_table[name]
        if branch.params != call.inputs[1:]:
            yield f"the parameters of @{name} are not the arguments of the if"
        defined = {str(k): Dim.of(v) for k, v in zip(names, sizes, strict=True)}  # type: ignore[arg-type]  # lengths and kinds are those of tables
        given = [
            TensorType(out.type.dtype, tuple(size.substitute(defined) for size in out.type.shape))
            for out in call.outs
        ]
        if not _same_types([r.type for r in branch.results], given, module.bounds):
            yield f"@{name} gives {_types(branch.results)}, not {_types(given)}"


# States


def _states(module: Module) -> Iterator[str]:
    params = {var.name: var for var in module.main.params}
    results = {var.name: var for var in module.main.results}
    for state in module.states:
        if state.input not in params:
            yield f"state %{state.input}: the entry has no such parameter"
        elif state.output == state.input:
            continue  # it is read alone
        elif state.output not in results:
            yield f"state %{state.input} = %{state.output}: the entry has no such result"
        else:
            before, after = params[state.input].type, results[state.output].type
            grown = _grown(module, state, before)
            if not same_type(before, after, module.bounds) and (
                grown is None or not same_type(grown, after, module.bounds)
            ):
                yield (
                    f"state %{state.input} = %{state.output}: {STATE_TYPES}, but it is"
                    f" {before} and becomes {after}"
                )
    for symbol in module.symbols:
        for size in (symbol.growth.after,) if symbol.growth else ():
            yield from _declared(module, size.symbols, f"symbol {symbol.name}")
    known = {*params, *results, *(symbol.name for symbol in module.symbols)}
    for alias in module.aliases:
        if alias.name not in known:
            yield f"alias {alias.name}: no parameter, result or symbol has this name"


def _grown(module: Module, state: State, before: TensorType) -> TensorType | None:
    """The type of a growing state after a call, before rows lie at the stride of the capacity."""
    growth = module.lengths.get(state.length)
    if growth is None or not state.axis < before.rank:
        return None
    if before.shape[state.axis] != Dim.of(state.length):
        return None
    shape = list(before.shape)
    shape[state.axis] = growth.after
    return TensorType(before.dtype, tuple(shape))
