"""The few ways to walk and rebuild a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import is_

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Function, Module, Var, attr_value
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Micro,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
    walk,
)
from relax_aot.ir.types import Annotation, TensorType

Rewritten = Call | Var

CAPTURING = ("if", "loop")
"""Calls whose last arguments are values that what they run names, each once: those behind the
condition of an `if`, or behind the carried values of a loop."""


def rewrite_module(module: Module, rule: Callable[[Function, Call], Rewritten]) -> Module:
    """`rewrite_calls` in every function; branches and bodies of loops, which name values from
    around them, follow what was replaced."""
    replaced: dict[Var, Var] = {}
    functions = [_rewritten(f, partial(rule, f), replaced) for f in module.functions]
    return replace(module, functions=tuple(_following(f, replaced) for f in functions))


def rewrite_calls(function: Function, rule: Callable[[Call], Rewritten]) -> Function:
    """Apply `rule` to each call in order; a `Var` in return replaces the call's result.

    The rule sees arguments that earlier replacements have already changed. A value that a
    branch or the body of a loop names may not be replaced here: see `rewrite_module`.
    """
    return _rewritten(function, rule, {})


def _rewritten(
    function: Function, rule: Callable[[Call], Rewritten], replaced: dict[Var, Var]
) -> Function:
    body = []
    for call in function.body:
        result = rule(substitute(call, replaced))
        if isinstance(result, Var):
            replaced[call.out] = result
        else:
            body.append(result)
    results = tuple(replaced.get(v, v) for v in function.results)
    return replace(function, body=tuple(body), results=results)


def _following(function: Function, replaced: Mapping[Var, Var]) -> Function:
    def var(value: Var) -> Var:
        while value in replaced:
            value = replaced[value]
        return value

    def call(line: Call) -> Call:
        args = tuple(None if arg is None else var(arg) for arg in line.args)
        if line.op in CAPTURING:
            given = line.attr("carried") if line.op == "loop" else 1
            assert isinstance(given, int)
            args = (*args[:given], *dict.fromkeys(args[given:]))
        return replace(line, args=args)

    return Function(
        function.name,
        tuple(dict.fromkeys(map(var, function.params))),
        tuple(map(call, function.body)),
        tuple(map(var, function.results)),
    )


def substitute(call: Call, values: Mapping[Var, Var]) -> Call:
    args = tuple(arg if arg is None else values.get(arg, arg) for arg in call.args)
    return call if args == call.args else replace(call, args=args)


def map_exprs(body: tuple[Stmt, ...], rule: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    """Rebuild every expression bottom-up; statements keep their structure."""
    return tuple(_map_stmt(stmt, rule) for stmt in body)


def _map_stmt(stmt: Stmt, rule: Callable[[Expr], Expr]) -> Stmt:
    match stmt:
        case For():
            body = map_exprs(stmt.body, rule)
            return stmt if _same(body, stmt.body) else replace(stmt, body=body)
        case If():
            return If(
                map_expr(stmt.condition, rule),
                map_exprs(stmt.then, rule),
                map_exprs(stmt.otherwise, rule),
            )
        case Store() | Declare() | Assign() | Bind():
            value = map_expr(stmt.value, rule)
            return stmt if value is stmt.value else replace(stmt, value=value)
        case Multiply():
            left, right = map_expr(stmt.left, rule), map_expr(stmt.right, rule)
            assert isinstance(left, Load) and isinstance(right, Load)
            return replace(stmt, left=left, right=right)
        case Micro():
            operands = tuple(map_expr(operand, rule) for operand in stmt.operands)
            return replace(stmt, operands=tuple(o for o in operands if isinstance(o, Load)))
        case Let() | Reserve():
            return stmt


def map_expr(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Bottom-up; what the rule leaves as it is stays the same object."""
    match expr:
        case Unary() | Cast():
            value = map_expr(expr.value, rule)
            if value is not expr.value:
                expr = replace(expr, value=value)
        case Binary():
            left, right = map_expr(expr.left, rule), map_expr(expr.right, rule)
            if left is not expr.left or right is not expr.right:
                expr = replace(expr, left=left, right=right)
        case Apply():
            args = tuple(map_expr(arg, rule) for arg in expr.args)
            if not _same(args, expr.args):
                expr = replace(expr, args=args)
        case Select():
            condition, then = map_expr(expr.condition, rule), map_expr(expr.then, rule)
            expr = Select(condition, then, map_expr(expr.otherwise, rule))
        case Lit() | Local() | Index() | Load():
            pass
    return rule(expr)


def _same(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    """One by one the same objects: what is rebuilt of them would be what it was."""
    return all(map(is_, new, old))


def map_statements(body: tuple[Stmt, ...], rule: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
    """Rebuild every statement, inner ones first."""
    result = []
    for stmt in body:
        match stmt:
            case For():
                inner = map_statements(stmt.body, rule)
                stmt = stmt if _same(inner, stmt.body) else replace(stmt, body=inner)
            case If():
                then = map_statements(stmt.then, rule)
                stmt = If(stmt.condition, then, map_statements(stmt.otherwise, rule))
            case _:
                pass
        result.append(rule(stmt))
    return tuple(result)


def map_index_dims(body: tuple[Stmt, ...], rule: Callable[[Dim], Dim]) -> tuple[Stmt, ...]:
    """Rebuild every index expression, those inside loads included."""

    def on_expr(expr: Expr) -> Expr:
        match expr:
            case Load():
                index = tuple(map(rule, expr.index))
                return expr if _same(index, expr.index) else replace(expr, index=index)
            case Index():
                dim = rule(expr.dim)
                return expr if dim is expr.dim else replace(expr, dim=dim)
            case _:
                return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                start, stop = rule(stmt.start), rule(stmt.stop)
                same = start is stmt.start and stop is stmt.stop
                return stmt if same else replace(stmt, start=start, stop=stop)
            case Store():
                index = tuple(map(rule, stmt.index))
                return stmt if _same(index, stmt.index) else replace(stmt, index=index)
            case Let():
                return replace(stmt, value=rule(stmt.value))
            case Bind():
                return replace(stmt, low=rule(stmt.low), high=rule(stmt.high))
            case Multiply():
                rows, columns, left_row = map(rule, (stmt.rows, stmt.columns, stmt.left_row))
                levels = tuple((rule(n), rule(a), rule(b)) for n, a, b in stmt.levels)
                return replace(stmt, rows=rows, columns=columns, left_row=left_row, levels=levels)
            case Micro():
                return replace(stmt, sizes=tuple(map(rule, stmt.sizes)))
            case Declare() | Assign() | If() | Reserve():
                return stmt

    return map_statements(map_exprs(body, on_expr), on_stmt)


def rewrite_values(function: Function, values: Mapping[str, Var]) -> Function:
    """The same with other values in the place of those of these names."""

    def call(line: Call) -> Call:
        args = tuple(None if arg is None else values.get(arg.name, arg) for arg in line.args)
        return replace(line, args=args)

    return replace(
        function,
        body=tuple(map(call, function.body)),
        results=tuple(values.get(result.name, result) for result in function.results),
    )


def substitute_dims(module: Module, values: Mapping[str, Dim]) -> Module:
    """Sizes in the place of symbols, everywhere but in the list of symbols."""

    def dim(size: Dim) -> Dim:
        return size.substitute(values)

    return replace(
        module,
        functions=tuple(map_function_dims(function, dim) for function in module.functions),
        kernels=tuple(map_kernel_dims(kernel, dim) for kernel in module.kernels),
        conditions=tuple(
            replace(c, left=dim(c.left), right=dim(c.right)) for c in module.conditions
        ),
    )


def map_function_dims(function: Function, rule: Callable[[Dim], Dim]) -> Function:
    """Rebuild every size of a function: in types and in attributes."""

    def var(value: Var) -> Var:
        said: Annotation = value.type
        if not isinstance(said, TensorType):
            return value  # a draft: what it says is made exact later
        return replace(value, type=replace(said, shape=tuple(map(rule, said.shape))))

    def attr(value: Attr) -> Attr:
        if isinstance(value, tuple):
            return tuple(attr(part) for part in value)
        return attr_value(rule(value)) if isinstance(value, Dim) else value

    def call(line: Call) -> Call:
        return replace(
            line,
            outs=tuple(map(var, line.outs)),
            args=tuple(None if arg is None else var(arg) for arg in line.args),
            attrs=tuple((name, attr(value)) for name, value in line.attrs),
        )

    return Function(
        function.name,
        tuple(map(var, function.params)),
        tuple(map(call, function.body)),
        tuple(map(var, function.results)),
    )


def map_kernel_dims(kernel: Kernel, rule: Callable[[Dim], Dim]) -> Kernel:
    """Rebuild every size of a kernel: in its buffers, index expressions and loops."""

    def buffer(old: Buffer) -> Buffer:
        return replace(old, shape=tuple(rule(size) for size in old.shape))

    def on_expr(expr: Expr) -> Expr:
        return replace(expr, buffer=buffer(expr.buffer)) if isinstance(expr, Load) else expr

    def on_stmt(stmt: Stmt) -> Stmt:
        return replace(stmt, buffer=buffer(stmt.buffer)) if isinstance(stmt, Store) else stmt

    body = map_statements(map_exprs(map_index_dims(kernel.body, rule), on_expr), on_stmt)
    return replace(
        kernel,
        inputs=tuple(map(buffer, kernel.inputs)),
        outputs=tuple(map(buffer, kernel.outputs)),
        scratch=tuple(map(buffer, kernel.scratch)),
        body=body,
    )


def rename_indices(kernel: Kernel, taken: frozenset[str]) -> Kernel:
    """The kernel with other names for loop variables and bound indices that are `taken`."""
    names = {
        stmt.variable if isinstance(stmt, For) else stmt.name
        for stmt in walk(kernel.body)
        if isinstance(stmt, For | Let | Bind)
    }
    renamed: dict[str, str] = {}
    for name in sorted(names & taken):
        count = 2
        while f"{name}_{count}" in names | taken | set(renamed.values()):
            count += 1
        renamed[name] = f"{name}_{count}"
    if not renamed:
        return kernel
    dims = {old: Dim.of(new) for old, new in renamed.items()}

    def rule(stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                return replace(stmt, variable=renamed.get(stmt.variable, stmt.variable))
            case Let() | Bind():
                return replace(stmt, name=renamed.get(stmt.name, stmt.name))
            case _:
                return stmt

    body = map_index_dims(kernel.body, lambda size: size.substitute(dims))
    return replace(kernel, body=map_statements(body, rule))
