# SPDX-License-Identifier: Apache-2.0
"""The few ways to walk and rebuild a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import CONTROL, Attr, Call, Function, Module, Var, attr_value
from relax_aot.ir.loops import (
    BODIES,
    DIMS,
    PARTS,
    Buffer,
    Expr,
    Kernel,
    Load,
    Multiply,
    Reserve,
    Stmt,
    Store,
    mapped,
)
from relax_aot.ir.types import Annotation, TensorType


def rewrite_calls(function: Function, rule: Callable[[Call], Call | Var]) -> Function:
    """`rewrite_module` for one function, as passes of plugins use it (docs/how-to/extend.md). The
    rule may not replace a value that a branch or the body of a loop names."""
    return _rewritten(function, rule, {})


def rewrite_module(module: Module, rule: Callable[[Function, Call], Call | Var]) -> Module:
    """Apply `rule` to each call in order; a `Var` in return replaces the call's result.

    The rule sees arguments that earlier replacements have already changed. Branches and bodies
    of loops, which name values from around them, follow what was replaced."""
    replaced: dict[Var, Var] = {}
    functions = [_rewritten(f, partial(rule, f), replaced) for f in module.functions]
    return replace(module, functions=tuple(_following(f, replaced) for f in functions))


def _rewritten(
    function: Function, rule: Callable[[Call], Call | Var], replaced: dict[Var, Var]
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
        if line.op in CONTROL:
            # Its last arguments are values that what it runs names, each once: those behind the
            # condition of an `if`, or behind the carried values of a loop.
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

    def rebuilt(expr: Expr) -> Expr:
        return rule(mapped(expr, PARTS, rebuilt))

    return map_statements(body, lambda stmt: mapped(stmt, PARTS, rebuilt))


def map_expr(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Bottom-up; what the rule leaves as it is stays the same object."""

    def rebuilt(part: Expr) -> Expr:
        return rule(mapped(part, PARTS, rebuilt))

    return rebuilt(expr)


def map_statements(body: tuple[Stmt, ...], rule: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
    """Rebuild every statement, inner ones first."""

    def rebuilt(stmt: Stmt) -> Stmt:
        return rule(mapped(stmt, BODIES, rebuilt))

    return tuple(map(rebuilt, body))


def map_index_dims(body: tuple[Stmt, ...], rule: Callable[[Dim], Dim]) -> tuple[Stmt, ...]:
    """Rebuild every index expression, those inside loads included."""

    def on_expr(expr: Expr) -> Expr:
        return mapped(mapped(expr, PARTS, on_expr), DIMS, rule)

    def on_stmt(stmt: Stmt) -> Stmt:
        return mapped(mapped(stmt, PARTS, on_expr), DIMS, rule)

    return map_statements(body, on_stmt)


_At = tuple[Dim, ...]


def map_accesses(
    body: tuple[Stmt, ...], rule: Callable[[Buffer, _At], tuple[Buffer, _At]]
) -> tuple[Stmt, ...]:
    """The same with another buffer and index in each load and store."""

    def on_expr(expr: Expr) -> Expr:
        return Load(*rule(expr.buffer, expr.index)) if isinstance(expr, Load) else expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Store):
            return stmt
        return Store(*rule(stmt.buffer, stmt.index), stmt.value)

    return map_statements(map_exprs(body, on_expr), on_stmt)


_BUFFERS: Mapping[type, tuple[str, ...]] = {
    Load: ("buffer",), Store: ("buffer",), Reserve: ("buffer",), Multiply: ("sums",),
}  # fmt: skip


def map_buffers(body: tuple[Stmt, ...], rule: Callable[[Buffer], Buffer]) -> tuple[Stmt, ...]:
    """Rebuild every buffer that is read, written or reserved."""
    inner = map_exprs(body, lambda expr: mapped(expr, _BUFFERS, rule))
    return map_statements(inner, lambda stmt: mapped(stmt, _BUFFERS, rule))


def substitute_dims(module: Module, values: Mapping[str, Dim]) -> Module:
    """Sizes in the place of symbols, everywhere but in the names of the list of symbols."""

    def dim(size: Dim) -> Dim:
        return size.substitute(values)

    def var(value: Var) -> Var:
        said: Annotation = value.type
        if not isinstance(said, TensorType):
            return value  # a draft: what it says is made exact later
        return replace(value, type=replace(said, shape=tuple(map(dim, said.shape))))

    def attr(value: Attr) -> Attr:
        if isinstance(value, tuple):
            return tuple(attr(part) for part in value)
        return attr_value(dim(value)) if isinstance(value, Dim) else value

    def call(line: Call) -> Call:
        return replace(
            line,
            outs=tuple(map(var, line.outs)),
            args=tuple(None if arg is None else var(arg) for arg in line.args),
            attrs=tuple((name, attr(value)) for name, value in line.attrs),
        )

    functions = tuple(
        Function(
            f.name, tuple(map(var, f.params)), tuple(map(call, f.body)), tuple(map(var, f.results))
        )
        for f in module.functions
    )
    return replace(
        module,
        functions=functions,
        symbols=tuple(
            replace(s, growth=s.growth and replace(s.growth, after=dim(s.growth.after)))
            for s in module.symbols
        ),
        kernels=tuple(map_kernel_dims(kernel, dim) for kernel in module.kernels),
        conditions=tuple(
            replace(c, left=dim(c.left), right=dim(c.right)) for c in module.conditions
        ),
    )


def map_kernel_dims(kernel: Kernel, rule: Callable[[Dim], Dim]) -> Kernel:
    """Rebuild every size of a kernel: in its buffers, index expressions and loops."""

    def buffer(old: Buffer) -> Buffer:
        return replace(old, shape=tuple(rule(size) for size in old.shape))

    return replace(
        kernel,
        inputs=tuple(map(buffer, kernel.inputs)),
        outputs=tuple(map(buffer, kernel.outputs)),
        scratch=tuple(map(buffer, kernel.scratch)),
        body=map_buffers(map_index_dims(kernel.body, rule), buffer),
    )
