# SPDX-License-Identifier: Apache-2.0
"""Calls that an extern stands for become `call_extern`.

Rules are tried in order at every call; what one has taken, no other takes. A match must
agree with the declared types for every size, keep nothing that others still need, and
give each C parameter a value that its type holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.externs._error import ExternError
from relax_aot.externs.pattern import Graph, Match, matches
from relax_aot.externs.rule import Argument, Axis, ExternTable, Kind, Rule, TypeRule
from relax_aot.externs.toml import value_problem
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    Relation,
    interval,
    prove,
    simplify,
    solve_for,
)
from relax_aot.ir.extern import FLOATS, INTEGER_RANGES, Extern, Role
from relax_aot.ir.graph import (
    FORMS,
    Attr,
    Call,
    Condition,
    Function,
    Module,
    Var,
    assumption_conditions,
    attrs_of,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.text import call_text
from relax_aot.ir.types import Ref, TensorType


class _Unfit(Exception):
    """Why a rule does not take some calls, in words for its author."""


@dataclass
class _Placing:
    module: Module
    rule: Rule
    taken: int = 0
    refused: list[str] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    assumptions: list[Relation] = field(default_factory=list)
    """What the match at hand took from highs that may be raised."""

    @property
    def bounds(self) -> Bounds:
        return self.module.bounds

    def proves(self, left: Dim, relation: str, right: Dim | int) -> bool:
        proof = prove(left, relation, right, self.bounds)
        self.assumptions += proof.assumptions
        return bool(proof)

    def keep_assumptions(self, origin: str) -> None:
        """What has to be checked for the match at hand."""
        self.conditions += assumption_conditions(self.assumptions, self.module.symbols, origin)


def place(module: Module, table: ExternTable) -> Module:
    """The module with externs in it. A rule of the user's that takes nothing is an error."""
    _check_given(module, table)
    externs: list[Extern] = list(module.externs)
    for rule in table.rules:
        extern = replace(rule.extern, name=unused_name(rule.extern.name, {e.name for e in externs}))
        placing = _Placing(module, rule)
        functions = tuple(_function(f, extern, placing) for f in module.functions)
        if placing.taken:
            externs.append(extern)
            conditions = tuple(dict.fromkeys((*module.conditions, *placing.conditions)))
            module = replace(module, functions=functions, conditions=conditions)
        elif rule.expected and not _already_there(module, rule):
            raise ExternError(_nothing_taken(placing))
    return replace(module, externs=tuple(externs))


def _check_given(module: Module, table: ExternTable) -> None:
    """Calls that the module came with (from its text form) are whole, and have their files."""
    for function in module.functions:
        for call in function.body:
            if call.op != "call_extern":
                continue
            extern = module.extern_table.get(call.ref("extern"))
            names = {name for name, _ in call.attrs} - {"extern"}
            if extern is None:
                problems = ["the module has no such extern"]
            else:
                writes = len(call.outs)
                problems = list(extern.problems(len(call.inputs), writes, names))
                problems += problems or [*_table_problems(extern, call, table)]
            if problems:
                raise ExternError(f"call_extern @{call.ref('extern')}: {problems[0]}")


def _table_problems(extern: Extern, call: Call, table: ExternTable) -> Iterator[str]:
    """The record must be the one that a table and its C header give."""
    known = {replace(rule.extern, name="") for rule in table.rules}
    if extern.header not in {one.header for one in table.tables}:
        yield f"no table describes {extern.header}; give it with --extern"
    elif replace(extern, name="") not in known:
        yield f"its record differs from the table of {extern.header} for {extern.function}"
    pairs = [*zip(extern.read, call.inputs, strict=True)]
    pairs += zip(extern.written, call.outs, strict=True)
    for param, var in pairs:
        if param.type is not None and param.type.dtype is not var.type.dtype:
            yield f"{param.name} is {param.type.dtype.value}, %{var.name} is {var.type}"
    for param in extern.of_role(Role.VALUE):
        value = call.attr(param.name)
        if isinstance(value, Dim):
            if param.c_type in FLOATS:
                yield f"{param.name}: {value} is an integer, not a {param.c_type}"
        elif not isinstance(value, bool | int | float):
            yield f"{param.name} is not a number, but {value!r}"
        elif value_problem(value, param.c_type):
            yield f"{param.name}: {value_problem(value, param.c_type)}"


def _already_there(module: Module, rule: Rule) -> bool:
    """The module came with calls of this function: the table only brings its files."""
    wanted = (rule.extern.function, rule.extern.header)
    return any((extern.function, extern.header) == wanted for extern in module.externs)


def _function(function: Function, extern: Extern, placing: _Placing) -> Function:
    """Every call is asked once, in order; values keep their names, so what an earlier match
    takes does not hide anything from a later one."""
    graph = Graph(function, placing.module.constant_table)
    gone: set[int] = set()
    made: dict[int, Call] = {}
    for at, root in enumerate(function.body):
        found = _first_fit(graph, root, extern, placing, gone)
        if found is not None:
            match, call = found
            gone |= {graph.place(taken) for taken in match.calls}
            made[at] = call
            placing.taken += 1
    body = (made.get(at, call) for at, call in enumerate(function.body))
    kept = tuple(call for at, call in enumerate(body) if at in made or at not in gone)
    return replace(function, body=kept)


def _first_fit(
    graph: Graph, root: Call, extern: Extern, placing: _Placing, gone: set[int]
) -> tuple[Match, Call] | None:
    for match in _candidates(placing.rule, graph, root):
        if gone & {graph.place(call) for call in match.calls}:
            continue
        placing.assumptions.clear()
        try:
            call = _extern_call(graph, match, extern, placing)
            placing.keep_assumptions(f"{_rule_name(placing.rule)} for {call.origin}")
            return match, call
        except _Unfit as problem:
            outs = ", ".join(f"%{out.name}" for out in root.outs)
            refusal = f"{outs} = {root.op}(...) from {root.origin or 'the compiler'}: {problem}"
            if placing.rule.nodes:
                raise ExternError(f"{placing.rule.where}: {refusal}") from None
            placing.refused.append(refusal)
    return None


def _rule_name(rule: Rule) -> str:
    return f"{rule.prototype.name} of {rule.extern.header}"


def _candidates(rule: Rule, graph: Graph, root: Call) -> Iterator[Match]:
    if root.op in FORMS or (rule.nodes and root.origin not in rule.nodes):
        return
    if rule.pattern is not None:
        yield from matches(rule.pattern, graph, root)
        return
    calls = tuple(call for call in graph.function.body if call.origin == root.origin)
    if root is calls[-1] and all(call.op not in FORMS for call in calls):
        yield _whole_node(graph, calls, rule)


def _whole_node(graph: Graph, calls: tuple[Call, ...], rule: Rule) -> Match:
    """All calls of one node: what they read from outside in order, and what leaves them,
    stand for the inputs and outputs of the C function in its order."""
    made = {out.name: out for call in calls for out in call.outs}
    read = dict.fromkeys(v for call in calls for v in call.inputs if v.name not in made)
    used = _read_outside(graph, calls)
    left = [out for name, out in made.items() if name in used]
    where = f"{rule.where}: node {calls[0].origin!r}"
    values: dict[str, Var] = {}
    ends = (
        ("inputs", [a.name for a in rule.reading], list(read)),
        ("outputs", [a.made for a in rule.writing], left),
    )
    for what, names, found in ends:
        if len(names) != len(found):
            shown = ", ".join(f"%{v.name}: {v.type}" for v in found) or "nothing"
            ops = ", ".join(call.op for call in calls)
            raise ExternError(
                f"{where} ({ops}) has {len(found)} {what} ({shown}), the C function"
                f" {len(names)}\n  C: {rule.prototype}"
            )
        values |= dict(zip(names, found, strict=True))
    attrs: dict[str, Attr] = {}
    for call in calls:
        attrs |= dict(call.attrs)
    return Match(calls, values, attrs)


def _read_outside(graph: Graph, calls: tuple[Call, ...]) -> dict[str, int]:
    """What the calls make and others read, and the first position where it is read."""
    inside = {graph.place(call) for call in calls}
    found = {}
    for call in calls:
        for out in call.outs:
            others = [at for at in graph.readers.get(out.name, ()) if at not in inside]
            if others:
                found[out.name] = min(others)
    return found


# One match


def _extern_call(graph: Graph, match: Match, extern: Extern, placing: _Placing) -> Call:
    rule = placing.rule
    _check_region(graph, match, rule)
    attrs = dict(match.attrs)
    if rule.pattern is not None and len(match.calls) == 1:
        attrs = dict(match.last.attrs) | attrs
    sizes = _sizes(rule, match, placing)
    given: dict[str, Attr] = {"extern": Ref(extern.name)}
    args, outs, scratch = [], [], []
    for argument in rule.arguments:
        match argument.kind:
            case Kind.INPUT:
                args.append(match.values[argument.name])
            case Kind.OUTPUT:
                outs.append(match.values[argument.made])
            case Kind.UPDATE:
                args.append(match.values[argument.name])
                outs.append(match.values[argument.made])
            case Kind.SCRATCH:
                scratch.append(argument)
            case _:
                given[argument.param] = _value(argument, attrs, sizes, match, placing)
    lead = match.values[rule.writing[0].made].name
    made = tuple(Var(f"{lead}.{a.param}", _scratch(a, sizes, placing)) for a in scratch)
    origin = " + ".join(dict.fromkeys(call.origin for call in match.calls if call.origin))
    return Call((*outs, *made), "call_extern", tuple(args), attrs_of(given), origin)


def _check_region(graph: Graph, match: Match, rule: Rule) -> None:
    """The calls can go: what they make and do not give out, no other call reads; what they
    give out, no call reads before the last of them."""
    given = {match.values[a.made].name for a in rule.writing}
    for name, first in _read_outside(graph, match.calls).items():
        if name not in given:
            raise _Unfit(f"%{name} is used elsewhere too, and is no output of the extern")
        if first < graph.place(match.last):
            raise _Unfit(f"%{name} is used before the last of the calls")


def _sizes(rule: Rule, match: Match, placing: _Placing) -> dict[str, Dim]:
    """What the extern's symbols are worth in this call."""
    values = match.values
    named = rule.pattern.attr_names if rule.pattern else ()
    sizes = {
        name: Dim.of(value)
        for name in named
        if isinstance(value := match.attrs[name], int | Dim) and not isinstance(value, bool)
    }
    later: list[tuple[Argument, TensorType, Axis, Dim]] = []
    ends = [(a, a.name) for a in rule.reading] + [(a, a.made) for a in rule.writing]
    for argument, end in ends:
        assert argument.type is not None
        actual = values[end].type
        for axis, size in _axes(argument.type, actual, argument):
            name = str(axis.size)
            if name in axis.size.symbols and name not in sizes:
                sizes[name] = size
            else:
                later.append((argument, actual, axis, size))
    for argument, actual, axis, size in later:
        _solve(axis, size, sizes)
        declared = axis.size.substitute(sizes)
        if axis.size.symbols - sizes.keys() or not placing.proves(declared, "==", size):
            assert argument.type is not None
            raise _Unfit(
                f"{argument.param} is {actual}, declared as {argument.type.text}:"
                f" {axis.size} is {declared} here, not {size}"
            )
    for name in named:
        if name not in sizes and any(name in a.size.symbols for a in rule.arguments):
            raise _Unfit(f"${name} is not a size, but {match.attrs[name]!r}")
    for requirement in rule.requires:
        difference = requirement.difference.substitute(sizes)
        if requirement.relation == "==0":
            holds = placing.proves(difference, "==", 0)
        else:
            holds = placing.proves(Dim.of(0), "<=", difference)
        if not holds:
            known = ", ".join(f"{k} = {v}" for k, v in sorted(sizes.items()))
            raise _Unfit(f"{requirement.text!r} is not proven for every size ({known})")
    return sizes


def _solve(axis: Axis, size: Dim, sizes: dict[str, Dim]) -> None:
    """Where one symbol of an expression is open and the size decides it, it is known."""
    unknown = axis.size.symbols - sizes.keys()
    if len(unknown) == 1:
        (name,) = unknown
        solved = solve_for(axis.size.substitute(sizes), name, size)
        if solved is not None and solved[1] == Dim.of(0):
            sizes[name] = solved[0]


def _axes(rule: TypeRule, actual: TensorType, argument: Argument) -> list[tuple[Axis, Dim]]:
    leading = actual.rank - len(rule.axes)
    many = bool(rule.axes) and rule.axes[0].many
    if rule.dtype is not actual.dtype or (leading != 0 and not many) or leading < -1:
        raise _Unfit(f"{argument.param} is {actual}, declared as {rule.text}")
    if not many:
        return list(zip(rule.axes, actual.shape, strict=True))
    first = actual.shape[: leading + 1]
    product = Dim.of(1)
    for size in first:
        product = product * size
    rest = zip(rule.axes[1:], actual.shape[leading + 1 :], strict=True)
    return [(rule.axes[0], product), *rest]


def _scratch(argument: Argument, sizes: Mapping[str, Dim], placing: _Placing) -> TensorType:
    assert argument.type is not None
    shape = tuple(simplify(a.size.substitute(sizes), placing.bounds) for a in argument.type.axes)
    for size in shape:
        if not placing.proves(Dim.of(0), "<=", size):
            raise _Unfit(f"{argument.param}: the size {size} can be negative")
    return TensorType(argument.type.dtype, shape)


def _value(
    argument: Argument,
    attrs: Mapping[str, Attr],
    sizes: Mapping[str, Dim],
    match: Match,
    placing: _Placing,
) -> Attr:
    if argument.kind is Kind.SIZE:
        return _held(argument, simplify(argument.size.substitute(sizes), placing.bounds), placing)
    if argument.kind is Kind.VALUE:
        return _typed(argument.literal, argument.c_type)
    if argument.kind is Kind.CONSTANT:
        return _constant(argument, match, placing)
    name, index = argument.attribute
    if name not in attrs:
        known = ", ".join(sorted(attrs)) or "none"
        raise _Unfit(f"{argument.param}: unknown attribute {name!r}; known are: {known}")
    value = attrs[name]
    if index is not None:
        if not isinstance(value, tuple) or index >= len(value):
            raise _Unfit(f"{argument.param}: attribute {name!r} has no element {index}")
        value = value[index]
    if isinstance(value, Dim):
        return _held(argument, value, placing)
    if not isinstance(value, bool | int | float):
        raise _Unfit(f"{argument.param}: attribute {name!r} is not a number, but {value!r}")
    return _number(argument, value)


def _held(argument: Argument, size: Dim, placing: _Placing) -> Attr:
    """A size, if the C type holds it at every size within the bounds."""
    if argument.c_type not in INTEGER_RANGES:
        raise _Unfit(f"{argument.param}: {size} is an integer, not a {argument.c_type}")
    low, high = interval(size, placing.bounds)
    least, greatest = INTEGER_RANGES[argument.c_type]
    least, greatest = max(least, -(2**31)), min(greatest, 2**31 - 1)
    if low < least or high > greatest:
        raise _Unfit(
            f"{argument.param}: {size} is {low}..{high}, {argument.c_type} holds"
            f" {least}..{greatest}"
        )
    if greatest < interval(size, placing.bounds.open)[1] and greatest < 2**31 - 1:
        placing.assumptions.append(("<=", size, Dim.of(greatest)))
    return size.constant if size.is_constant else size


def _number(argument: Argument, value: int | float | bool) -> Attr:
    problem = value_problem(value, argument.c_type)
    if problem:
        raise _Unfit(f"{argument.param}: {problem}")
    return _typed(value, argument.c_type)


def _typed(value: int | float | bool, c_type: str) -> Attr:
    return float(value) if c_type in FLOATS else int(value)


def _constant(argument: Argument, match: Match, placing: _Placing) -> Attr:
    var = match.values[argument.name]
    constant = placing.module.constant_table.get(var.name)
    if constant is None or constant.data.size != 1:
        raise _Unfit(f"{argument.param}: %{var.name}: {var.type} is not a constant of one element")
    value = constant.data.reshape(()).astype(constant.type.dtype.numpy)[()]
    return _number(argument, float(value) if constant.type.dtype.is_float else int(value))


def _nothing_taken(placing: _Placing) -> str:
    rule, module = placing.rule, placing.module
    text = f"{rule.where}: function {rule.prototype.name} matches no call of the model"
    if placing.refused:
        return "; nearly:".join([text, ""]) + "".join(f"\n  {r}" for r in placing.refused[:5])
    calls = [call for function in module.functions for call in function.body]
    named = [call for call in calls if call.origin in rule.nodes]
    if named:
        lines = "".join(f"\n  {call_text(call)}" for call in named[:5])
        return f"{text}; its pattern does not match, node {named[0].origin!r} is:{lines}"
    if rule.nodes:
        names = sorted({call.origin for call in calls if call.origin})
        return f"{text}; unknown node {rule.nodes[0]!r}, nodes are: {', '.join(names[:20])}"
    assert rule.pattern is not None
    present = ", ".join(sorted({call.op for call in calls}))
    wanted = ", ".join(line.op for line in rule.pattern.lines)
    said = f"{text}; its pattern is {wanted}; ops in the model are: {present}"
    last = [call for call in calls if call.op == rule.pattern.lines[-1].op]
    lines = "".join(f"\n  {call_text(call)}" for call in last[:3])
    return said + (f"; where {last[0].op} is, they are:{lines}" if last else "")
