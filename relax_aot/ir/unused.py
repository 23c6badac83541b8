# SPDX-License-Identifier: Apache-2.0
"""Removes unused values of a kernel.

Fused and specialized kernels leave values behind: an index along an axis of size 1, the place
of an extremum that is only compared with itself, scratch memory whose readers are gone. C
compilers warn of them. Removed are scalars, index names, stores to memory of the kernel's own
and the loops and branches around them, as long as no result depends on them. Every expression
is free of side effects, so what stays computes the same. A `Bind` that can fail stays, and so
does what decides whether it is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Bind,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Multiply,
    Reserve,
    Select,
    Stmt,
    Store,
    Unary,
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims, map_statements
from relax_aot.ir.types import DType
from relax_aot.ir.value_ranges import compared


def without_unused_module(module: Module) -> Module:
    """Every kernel without unused values; calls no longer provide scratch that is gone."""
    kernels = {kernel.name: without_unused(kernel) for kernel in module.kernels}
    functions = tuple(
        replace(f, body=tuple(_call(call, module, kernels) for call in f.body))
        for f in module.functions
    )
    return replace(module, functions=functions, kernels=tuple(kernels.values()))


def _call(call: Call, module: Module, kernels: Mapping[str, Kernel]) -> Call:
    if call.op != "call_kernel":
        return call
    name = call.ref("kernel")
    before, after = module.kernel_table[name].scratch, kernels[name].scratch
    if len(before) == len(after):
        return call
    results = len(call.outs) - len(before)
    kept = {buffer.name for buffer in after}
    provided = zip(call.outs[results:], before, strict=True)
    scratch = (out for out, buffer in provided if buffer.name in kept)
    return replace(call, outs=(*call.outs[:results], *scratch))


def without_unused(kernel: Kernel) -> Kernel:
    """The same results from what they need alone."""
    body = swept(_settled(kernel.body), [buffer.name for buffer in kernel.scratch])
    touched = {name for stmt in walk(body) for name in _buffers(stmt)}
    kept = tuple(buffer for buffer in kernel.scratch if buffer.name in touched)
    if body == kernel.body and kept == kernel.scratch:
        return kernel
    return replace(kernel, body=body, scratch=kept)


def swept(body: tuple[Stmt, ...], scratch: Sequence[str] = ()) -> tuple[Stmt, ...]:
    """Without definitions that nothing asks for, and without stores to `scratch` that nothing
    reads."""
    while True:
        smaller = _Sweep(live=_live(body, scratch)).body(body, _outermost(scratch))
        if smaller == body:
            return body
        body = smaller


def _settled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Decided comparisons and loops of one iteration ask for no names."""

    def on_expr(expr: Expr) -> Expr:
        match expr:
            case Binary():
                known = compared(expr)
                return expr if known is None else Lit(known, DType.BOOL)
            case Select(condition=Lit() as condition):
                return expr.then if condition.value else expr.otherwise
            case _:
                return expr

    def on_stmt(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.stop - stmt.start != 1:
            return stmt
        only = {stmt.variable: stmt.start}
        inner = map_index_dims(stmt.body, lambda dim: dim.substitute(only))
        return For(stmt.variable, Dim.of(0), Dim.of(1), inner)

    return map_statements(map_exprs(body, on_expr), on_stmt)


def _buffers(stmt: Stmt) -> Iterator[str]:
    """The buffers that a statement itself reads or writes."""
    yield from (expr.buffer.name for expr in expressions(stmt) if isinstance(expr, Load))
    if isinstance(stmt, Store | Multiply):
        yield (stmt.buffer if isinstance(stmt, Store) else stmt.sums).name


# A definition is the number of the statement that makes a name, in the order of a walk, so that
# names which are used again in another block stay apart. Scratch has its name in its place.
_LOCAL, _INDEX, _BUFFER = "local", "index", "buffer"
Scope = Mapping[tuple[str, str], int | str]


def _defined(stmt: Stmt) -> tuple[str, str] | None:
    """Kind and name of what a statement defines for those after it."""
    match stmt:
        case Declare():
            return _LOCAL, stmt.local.name
        case Let() | Bind():
            return _INDEX, stmt.name
        case Reserve():
            return _BUFFER, stmt.buffer.name
        case _:
            return None


def _made(stmt: Stmt, scope: Scope) -> int | str | None:
    """The definition whose value or memory a statement sets; None for what stays in any case:
    memory that is not the kernel's own is a result."""
    match stmt:
        case Assign():
            key: tuple[str, str] | None = (_LOCAL, stmt.local.name)
        case Store():
            key = (_BUFFER, stmt.buffer.name)
        case Bind() if not stmt.trusted:
            key = None
        case _:
            key = _defined(stmt)
    return None if key is None else scope.get(key)


@dataclass
class _Walk:
    """Numbers definitions in the order in which they come."""

    count: int = 0

    def define(self, stmt: Stmt, scope: Scope) -> Scope:
        """The scope for the statements after this one."""
        key = _defined(stmt)
        if key is None:
            return scope
        self.count += 1
        return {**scope, key: self.count}


def _inside(loop: For, scope: Scope) -> Scope:
    """The variable of a loop hides a definition of that name."""
    return {key: made for key, made in scope.items() if key != (_INDEX, loop.variable)}


def _names(stmt: Stmt, scope: Scope) -> frozenset[int | str]:
    """The definitions that a statement itself reads."""
    keys = {(_INDEX, symbol) for dim in index_dims(stmt) for symbol in dim.symbols}
    for expr in expressions(stmt):
        if isinstance(expr, Local):
            keys.add((_LOCAL, expr.name))
        elif isinstance(expr, Load):
            keys.add((_BUFFER, expr.buffer.name))
    if isinstance(stmt, Multiply):
        keys.add((_BUFFER, stmt.sums.name))
    return frozenset(scope[key] for key in keys if key in scope)


@dataclass
class _Needs(_Walk):
    """What results need, and what each definition needs once it is needed."""

    roots: set[int | str] = field(default_factory=set)
    edges: dict[int | str, set[int | str]] = field(default_factory=dict)

    def body(self, body: tuple[Stmt, ...], scope: Scope, around: frozenset[int | str]) -> None:
        """`around`: what decides whether the statements are reached."""
        for stmt in body:
            needed = _names(stmt, scope) | around
            scope = self.define(stmt, scope)
            made = _made(stmt, scope)
            if isinstance(stmt, For):
                self.body(stmt.body, _inside(stmt, scope), needed)
            elif isinstance(stmt, If):
                self.body(stmt.then, scope, needed)
                self.body(stmt.otherwise, scope, needed)
            elif made is None:
                self.roots |= needed
            else:
                self.edges.setdefault(made, set()).update(needed)


def _live(body: tuple[Stmt, ...], scratch: Iterable[str]) -> frozenset[int | str]:
    needs = _Needs()
    needs.body(body, _outermost(scratch), frozenset())
    live: set[int | str] = set()
    ahead = [*needs.roots]
    while ahead:
        made = ahead.pop()
        if made not in live:
            live.add(made)
            ahead += needs.edges.get(made, ())
    return frozenset(live)


def _outermost(scratch: Iterable[str]) -> Scope:
    return {(_BUFFER, name): name for name in scratch}


@dataclass
class _Sweep(_Walk):
    """Rebuilds a body without definitions that are not live."""

    live: frozenset[int | str] = frozenset()

    def body(self, body: tuple[Stmt, ...], scope: Scope) -> tuple[Stmt, ...]:
        kept: list[Stmt] = []
        for stmt in body:
            scope = self.define(stmt, scope)
            made = _made(stmt, scope)
            if isinstance(stmt, For):
                inner = self.body(stmt.body, _inside(stmt, scope))
                kept += [replace(stmt, body=inner)] if inner else []
            elif isinstance(stmt, If):
                then = self.body(stmt.then, scope)
                kept += _branches(stmt.condition, then, self.body(stmt.otherwise, scope))
            elif made is None or made in self.live:
                kept.append(stmt)
        return tuple(kept)


def _branches(condition: Expr, then: tuple[Stmt, ...], other: tuple[Stmt, ...]) -> list[Stmt]:
    if not then and not other:
        return []
    if not then:
        return [If(Unary("!", condition), other)]
    return [If(condition, then, other)]
