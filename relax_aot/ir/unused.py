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
from relax_aot.ir.folded_comparison import folded_comparison
from relax_aot.ir.graph import Call, Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Bind,
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
    expressions,
    index_dims,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims, map_statements
from relax_aot.ir.types import DType


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
        smaller = _Sweep(_live(body, scratch), scratch).body(body)
        if smaller == body:
            return body
        body = smaller


def _settled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Decided comparisons and loops of one iteration ask for no names."""

    def on_expr(expr: Expr) -> Expr:
        match expr:
            case Binary():
                known = folded_comparison(expr)
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
    for expr in expressions(stmt):
        if isinstance(expr, Load):
            yield expr.buffer.name
    if isinstance(stmt, Store):
        yield stmt.buffer.name
    if isinstance(stmt, Multiply):
        yield stmt.sums.name


# A definition is the number of the statement that makes a name, in the order of a walk, so that
# names which are used again in another block stay apart. Scratch has its name in its place.
Definition = int | str
_LOCAL, _INDEX, _BUFFER = "local", "index", "buffer"
Scope = Mapping[tuple[str, str], Definition]


@dataclass
class _Walk:
    """Numbers definitions in the order in which they come."""

    count: int = 0

    def define(self, stmt: Stmt, scope: Scope) -> Scope:
        """The scope for the statements after this one."""
        match stmt:
            case Declare():
                key = (_LOCAL, stmt.local.name)
            case Let() | Bind():
                key = (_INDEX, stmt.name)
            case Reserve():
                key = (_BUFFER, stmt.buffer.name)
            case _:
                return scope
        self.count += 1
        return {**scope, key: self.count}


def _inside(loop: For, scope: Scope) -> Scope:
    """The variable of a loop hides a definition of that name."""
    return {key: made for key, made in scope.items() if key != (_INDEX, loop.variable)}


def _names(stmt: Stmt, scope: Scope) -> frozenset[Definition]:
    """The definitions that a statement itself reads."""
    return _used(expressions(stmt), index_dims(stmt), scope)


def _used(exprs: Iterable[Expr], dims: Iterable[Dim], scope: Scope) -> frozenset[Definition]:
    keys = {(_INDEX, symbol) for dim in dims for symbol in dim.symbols}
    for expr in exprs:
        match expr:
            case Local():
                keys.add((_LOCAL, expr.name))
            case Load():
                keys.add((_BUFFER, expr.buffer.name))
            case Index():
                keys |= {(_INDEX, symbol) for symbol in expr.dim.symbols}
            case _:
                pass
    return frozenset(scope[key] for key in keys if key in scope)


@dataclass
class _Needs(_Walk):
    """What results need, and what each definition needs once it is needed."""

    roots: set[Definition] = field(default_factory=set)
    edges: dict[Definition, set[Definition]] = field(default_factory=dict)

    def body(self, body: tuple[Stmt, ...], scope: Scope, around: frozenset[Definition]) -> None:
        """`around`: what decides whether the statements are reached."""
        for stmt in body:
            needed = _names(stmt, scope) | around
            before, scope = scope, self.define(stmt, scope)
            match stmt:
                case For():
                    self.body(stmt.body, _inside(stmt, scope), needed)
                case If():
                    self.body(stmt.then, scope, needed)
                    self.body(stmt.otherwise, scope, needed)
                case Declare():
                    self._edge(scope[_LOCAL, stmt.local.name], needed)
                case Let():
                    self._edge(scope[_INDEX, stmt.name], needed)
                case Assign():
                    self._edge(before[_LOCAL, stmt.local.name], needed)
                case Bind() if stmt.trusted:
                    self._edge(scope[_INDEX, stmt.name], needed)
                case Store() if (_BUFFER, stmt.buffer.name) in scope:
                    self._edge(scope[_BUFFER, stmt.buffer.name], needed)
                case Reserve():
                    pass
                case Multiply():
                    self.roots |= needed | _written(stmt, scope)
                case Store() | Bind() | Micro():
                    self.roots |= needed

    def _edge(self, made: Definition, needed: frozenset[Definition]) -> None:
        self.edges.setdefault(made, set()).update(needed)


def _written(stmt: Multiply, scope: Scope) -> frozenset[Definition]:
    key = (_BUFFER, stmt.sums.name)
    return frozenset([scope[key]]) if key in scope else frozenset()


def _live(body: tuple[Stmt, ...], scratch: Iterable[str]) -> frozenset[Definition]:
    needs = _Needs()
    needs.body(body, _outermost(scratch), frozenset())
    live: set[Definition] = set()
    ahead = [*needs.roots]
    while ahead:
        made = ahead.pop()
        if made not in live:
            live.add(made)
            ahead += needs.edges.get(made, ())
    return frozenset(live)


def _outermost(scratch: Iterable[str]) -> Scope:
    return {(_BUFFER, name): name for name in scratch}


class _Sweep:
    """Rebuilds a body without definitions that are not live."""

    def __init__(self, live: frozenset[Definition], scratch: Iterable[str]) -> None:
        self._live = live
        self._outermost = _outermost(scratch)
        self._walk = _Walk()

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return self._body(body, self._outermost)

    def _body(self, body: tuple[Stmt, ...], scope: Scope) -> tuple[Stmt, ...]:
        kept: list[Stmt] = []
        for stmt in body:
            scope = self._walk.define(stmt, scope)
            match stmt:
                case For():
                    inner = self._body(stmt.body, _inside(stmt, scope))
                    kept += [replace(stmt, body=inner)] if inner else []
                case If():
                    then = self._body(stmt.then, scope)
                    kept += _branches(stmt.condition, then, self._body(stmt.otherwise, scope))
                case Declare() | Assign() if scope[_LOCAL, stmt.local.name] not in self._live:
                    pass
                case Let() if scope[_INDEX, stmt.name] not in self._live:
                    pass
                case Bind(trusted=True) if scope[_INDEX, stmt.name] not in self._live:
                    pass
                case Reserve() | Store() if not self._asked(stmt.buffer.name, scope):
                    pass
                case _:
                    kept.append(stmt)
        return tuple(kept)

    def _asked(self, buffer: str, scope: Scope) -> bool:
        """Memory that is not the kernel's own is a result."""
        key = (_BUFFER, buffer)
        return key not in scope or scope[key] in self._live


def _branches(condition: Expr, then: tuple[Stmt, ...], other: tuple[Stmt, ...]) -> list[Stmt]:
    if not then and not other:
        return []
    if not then:
        return [If(Unary("!", condition), other)]
    return [If(condition, then, other)]
