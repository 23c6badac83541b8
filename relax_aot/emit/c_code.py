# SPDX-License-Identifier: Apache-2.0
"""Loop IR -> C statements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from relax_aot.emit.c_dims import UNARY
from relax_aot.emit.c_expr import (
    Scope,
    address,
    computed,
    condition_c,
    expr_c,
    kept,
    operand,
    stored,
)
from relax_aot.emit.c_lines import Lines
from relax_aot.emit.c_names import Names
from relax_aot.emit.c_outline import (
    flattened,
    outlined_loops,
    role_of,
)
from relax_aot.emit.c_parallel import TEAM, Used, chunk_c, functions, part_name, used_in
from relax_aot.emit.c_proof import Hints, admitted
from relax_aot.emit.c_windows import Window, clamped, window_of
from relax_aot.ir.axes import CORE
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.fold import fold_expr
from relax_aot.ir.loops import (
    LOGICAL,
    Apply,
    Assign,
    Barrier,
    Binary,
    Bind,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Local,
    Micro,
    Multiply,
    Reserve,
    Stmt,
    Store,
    Unary,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.ir.value_ranges import Known, Range
from relax_aot.scheduling.threads import Chunk, chunks


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The body of a kernel's C function, and before it the functions that are parts of it."""

    parts: str
    body: str
    functions: tuple[str, ...] = ()
    """Names of the parts."""

    @property
    def text(self) -> str:
        return self.parts + self.body


@dataclass
class PrintedFunction:
    """The C function of a kernel and its parts."""

    name: str
    claimed: Names
    """Of functions."""
    taken: tuple[str, ...]
    """Names that no variable may have."""
    outlined: frozenset[int]
    """Loops whose body is a part."""
    declarations: dict[str, str]
    """C types of scalars that are not int32_t, or their declarations as parameters."""
    types: dict[str, DType]
    """Element types of buffers, by their names in the kernel."""
    parts: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Of the parts."""
    chunks: Mapping[int, Chunk] = field(default_factory=dict)
    """By the identity of each loop that threads share."""
    copies: Mapping[str, Buffer] = field(default_factory=dict)
    """Core-local buffers, by their names in the kernel."""


@dataclass
class Printer:
    """Prints one C function. Its C names share a scope, so nothing is shadowed."""

    function: PrintedFunction
    claimed: Names
    hints: Hints | None
    lines: Lines = field(default_factory=Lines)
    loop_names: dict[str, dict[str, None]] = field(default_factory=dict)
    failure: tuple[str, ...] = ("return RAOT_ERR_INDEX;",)
    """The end of a function that an index out of range causes."""

    def body(self, stmts: tuple[Stmt, ...], scope: Scope, depth: int) -> None:
        for stmt in stmts:
            scope = self.statement(stmt, scope, depth)

    def statement(self, stmt: Stmt, scope: Scope, depth: int) -> Scope:
        """Prints one statement; returns the scope for those after it."""
        match stmt:
            case For():
                self.loop(stmt, scope, depth)
            case Store():
                target = scope.element(stmt.buffer, stmt.index)
                shallow, inner = self._shallow(stmt.value, scope, depth)
                self.lines.add(depth, f"{target} = {stored(shallow, stmt.buffer.dtype, inner)};")
            case Declare():
                shallow, inner = self._shallow(stmt.value, scope, depth)
                name = self.claimed.claim(stem(stmt.local.name))
                changes = stmt.local.name in scope.known.assigned
                declared = f"{C_TYPES[computed(stmt.local.dtype)]} {name}"
                self.function.declarations[name] = declared
                text = f"{'' if changes else 'const '}{declared} = {kept(shallow, inner)};"
                self.lines.define(depth, name, text)
                return scope.after(stmt, stmt.local.name, name)
            case Assign():
                target = scope.names[stmt.local.name]
                shallow, inner = self._shallow(stmt.value, scope, depth)
                self.lines.define(depth, target, f"{target} = {kept(shallow, inner)};")
            case Let():
                name = self.claimed.claim(stem(stmt.name))
                value = scope.dim(stmt.value)
                self.lines.define(depth, name, f"const int32_t {name} = {value};")
                return scope.after(stmt, stmt.name, name)
            case Bind():
                return self.bind(stmt, scope, depth)
            case If():
                self._if(stmt, scope, depth)
            case Reserve():
                return self.reserve(stmt.buffer, scope, depth)
            case Multiply():
                self._multiply(stmt, scope, depth)
            case Micro():
                _micro(self, stmt, scope, depth)
            case Barrier():
                self.barrier(stmt, depth)
        return scope

    def reserve(self, buffer: Buffer, scope: Scope, depth: int, storage: str = "") -> Scope:
        """Declares an array of the function, with its storage class."""
        name = self.claimed.claim(buffer.name)
        size = math.prod(dim.constant for dim in buffer.shape)
        self.function.types[buffer.name] = buffer.dtype
        self.lines.add(depth, f"{storage}{C_TYPES[buffer.dtype]} {name}[{size}];")
        return replace(scope, buffers={**scope.buffers, buffer.name: name})

    def barrier(self, barrier: Barrier, depth: int) -> None:
        raise AssertionError("scheduling splits parallel loops at barriers")

    def _shallow(self, value: Expr, scope: Scope, depth: int) -> tuple[Expr, Scope]:
        """The value with names for what is nested deeper than a reader follows."""
        while nesting(expr_c(value, scope)) > DEEPEST:
            part = _inner_part(value, scope)
            if part is None:
                break
            name = self.claimed.claim(_PARTS.get(getattr(part, "op", "+"), "value"))
            local = Local(f"${name}", part.dtype)
            text = kept(part, scope)
            self.lines.define(
                depth, name, f"const {C_TYPES[computed(part.dtype)]} {name} = {text};"
            )
            scope = scope.after(Declare(local, part), local.name, name)
            value = map_expr(value, partial(_replaced, part, local))
        return value, scope

    def _if(self, stmt: If, scope: Scope, depth: int) -> None:
        condition = condition_c(stmt.condition, scope)
        if self.hints and self.hints.filled_in(stmt):
            self.lines.add(depth, f"/*@ split {condition}; */")
        self.sides(condition, stmt, scope, depth)

    def sides(self, condition: str, stmt: If, scope: Scope, depth: int) -> None:
        self.lines.add(depth, f"if ({condition}) {{")
        self.body(stmt.then, scope, depth + 1)
        if stmt.otherwise:
            self.lines.add(depth, "} else {")
            self.body(stmt.otherwise, scope, depth + 1)
        self.lines.add(depth, "}")

    def _multiply(self, stmt: Multiply, scope: Scope, depth: int) -> None:
        """Levels that the micro-kernel has and the statement lacks take one step."""
        one = Dim.of(1), Dim.of(0), Dim.of(0)
        levels = (one,) * (3 - len(stmt.levels)) + stmt.levels
        texts = ["{" + ", ".join(scope.dim(d) for d in level) + "}" for level in levels]
        name = self.claimed.claim("levels")
        self.lines.add(depth, f"const struct raot_level {name}[3] = {{")
        for text in texts:
            self.lines.add(depth + 1, f"{text},")
        self.lines.add(depth, "};")
        rows, columns, row = (scope.dim(dim) for dim in (stmt.rows, stmt.columns, stmt.left_row))
        left, right = (address(load, scope) for load in (stmt.left, stmt.right))
        sums = scope.buffers[stmt.sums.name]
        arguments = (rows, columns, name, left, row, right, sums)
        kind = stmt.right.dtype.value
        if stmt.left.dtype.is_half:
            kind = f"left_{stmt.left.dtype.value}"
        self.lines.add(depth, f"raot_multiply_{kind}({', '.join(arguments)});")

    def loop(self, loop: For, scope: Scope, depth: int) -> None:
        window = window_of(loop)
        if window is not None:
            self.lines.add(depth, _window_call(clamped(window, scope.bounds, scope.values), scope))
            return
        if loop.extent == 1:
            self.body(loop.body, scope, depth)
            return
        if loop.axis:
            _parallel(self, loop, scope, depth)
            return
        if self.hints:
            for hint in self.hints.of_loop(loop, scope.dim(loop.stop)):
                self.lines.add(depth, f"/*@ {hint}; */")
        self.serial_loop(loop, scope, depth)

    def serial_loop(self, loop: For, scope: Scope, depth: int) -> None:
        name = self._loop_name(loop.variable, scope)
        start, stop = (scope.dim(d) for d in (loop.start, loop.stop))
        self.lines.add(depth, f"for (int32_t {name} = {start}; {name} < {stop}; {name}++) {{")
        if id(loop) in self.function.outlined:
            self.lines.add(depth + 1, _part(self, loop, name, scope.inside(loop, name)))
        else:
            self.body(loop.body, scope.inside(loop, name), depth + 1)
        self.lines.add(depth, "}")

    def _loop_name(self, variable: str, scope: Scope) -> str:
        """Loops one after another may share a name: a loop's variable is scoped to it."""
        wanted = stem(variable)
        active = set(scope.names.values())
        free = (name for name in self.loop_names.get(wanted, ()) if name not in active)
        name = next(free, "") or self.claimed.claim(wanted)
        self.loop_names.setdefault(wanted, {})[name] = None
        return name

    def bind(self, bind: Bind, scope: Scope, depth: int) -> Scope:
        """Checked in 64 bits, so that no value wraps into range."""
        if bind.trusted:
            name = self.claimed.claim(stem(bind.name))
            narrow = kept(fold_expr(Cast(bind.value, DType.I32), scope.known), scope)
            self.lines.define(depth, name, f"const int32_t {name} = {narrow};")
            if self.hints and bind.trust == "checked":
                hint = admitted(name, bind.low, bind.high, scope.names, scope.bounds)
                self.lines.define(depth, name, hint)  # gone where the index is
            return scope.after(bind, bind.name, name)
        value = operand(bind.value, scope, UNARY)
        name = self.claimed.claim(stem(bind.name))
        low, high = (scope.dim(d) for d in (bind.low, bind.high))
        if isinstance(bind.value, Local):
            wide = value
        else:
            wide = self.claimed.claim(f"{stem(bind.name)}_wide")
            self.lines.add(depth, f"const int64_t {wide} = (int64_t){value};")
        outside = f"{wide} != {low}" if low == high else f"{wide} < {low} || {wide} > {high}"
        self.lines.add(depth, f"if ({outside}) {{")
        for line in self.failure:
            self.lines.add(depth + 1, line)
        self.lines.add(depth, "}")
        # Where nothing is read at the index, it is still checked.
        self.lines.define(depth, name, f"const int32_t {name} = (int32_t){wide};")
        return scope.after(bind, bind.name, name)


def _part(printer: Printer, loop: For, variable: str, scope: Scope) -> str:
    """Makes a function of the body of a loop; returns its call."""
    function = printer.function
    active = [*scope.names.values(), *scope.buffers.values()]
    part = Printer(function, Names([*active, *function.taken]), printer.hints)
    part.body(loop.body, scope, 1)
    body = part.lines.text()
    used = _used_in(function, body, loop, scope)
    # It is named by what the variable counts, if that has a name.
    counted = stem(loop.variable)
    role = role_of(counted)
    name = function.claimed.claim(f"{function.name}_{'loop_body' if role == counted else role}")
    function.names.append(name)
    function.parts.append(
        f"/* One iteration of the loop over {variable} in {function.name}. */\n"
        f"RAOT_INLINE static inline void {name}({', '.join(used.declarations)})\n"
        f"{{\n{body}\n}}\n\n"
    )
    return f"{name}({', '.join(used.names)});"


def _used_in(function: PrintedFunction, body: str, loop: For, scope: Scope) -> Used:
    types = {name: C_TYPES[dtype] for name, dtype in function.types.items()}
    return used_in(body, loop.body, scope, function.declarations, types)


def _parallel(printer: Printer, loop: For, scope: Scope, depth: int) -> None:
    """A loop that threads share: its iterations as a function, and what that uses as a struct."""
    function = printer.function
    active = [*scope.names.values(), *scope.buffers.values()]
    part = Printer(function, Names([*active, *function.taken]), None)
    variable = part._loop_name(loop.variable, scope)
    part.lines.add(1, f"for (int32_t {variable} = first; {variable} < last; {variable}++) {{")
    part.body(loop.body, scope.inside(loop, variable), 2)
    part.lines.add(1, "}")
    body = part.lines.text()
    used = _used_in(function, body, loop, scope)
    copies = {c: function.copies[name] for name, c in used.buffers if name in function.copies}
    name = part_name(function.name, loop, function.claimed)
    function.names.append(name)
    function.parts.append(functions(name, variable, function.name, used, body, copies))
    start, stop = (scope.dim(end) for end in (loop.start, loop.stop))
    elements = (f"(size_t)({scope.dim(b.type.elements)})" for b in copies.values())
    shared = printer.claimed.claim("shared")
    add = printer.lines.add
    add(depth, f"const struct {name}_loop {shared} = {{{', '.join([*used.names, *elements])}}};")
    chunk = chunk_c(function.chunks[id(loop)], scope)
    add(depth, f"raot_parallel({TEAM}, {name}_chunk, &{shared}, {start}, {stop}, {chunk});")


def _micro(printer: Printer, stmt: Micro, scope: Scope, depth: int) -> None:
    """Sizes beyond eight arguments are one struct, by name. Where kernels share a function, a
    table in flash is one parameter."""
    kernel, sizes = stmt.kernel, [scope.dim(size) for size in stmt.sizes]
    if kernel.struct and not (kernel.in_flash and len(sizes) == 1):
        name = printer.claimed.claim("sizes")
        head = f"{'static ' * kernel.in_flash}const struct {kernel.struct} {name}"
        members = (f"    .{m} = {s}," for m, s in zip(kernel.sizes, sizes, strict=True))
        for line in (f"{head} = {{", *members, "};"):
            printer.lines.add(depth, line)
        sizes = [f"&{name}"]
    arguments = [*(address(load, scope) for load in stmt.operands), *sizes]
    printer.lines.add(depth, f"{stmt.name}({', '.join(arguments)});")


def _window_call(window: Window, scope: Scope) -> str:
    count, first, last, step = (
        scope.dim(dim) for dim in (window.count, window.first, window.last, window.step)
    )
    source = window.source
    element = scope.element(source.buffer, source.index)
    buffer = scope.buffers[source.buffer.name]
    offset = element.removeprefix(f"{buffer}[").removesuffix("]")
    arguments = (address(window.to, scope), count, first, last, buffer, offset, step)
    return f"raot_window_f32({', '.join(arguments)});"


DEEPEST = 4
"""Brackets within brackets in one expression."""
_PARTS = {"*": "product", "+": "sum", "-": "difference", ">>": "shifted"}


def nesting(text: str) -> int:
    depth = deepest = 0
    for mark in text:
        depth += (mark in "([") - (mark in ")]")
        deepest = max(deepest, depth)
    return deepest


def _replaced(part: Expr, local: Local, expr: Expr) -> Expr:
    return local if expr == part else expr


def _inner_part(expr: Expr, scope: Scope) -> Expr | None:
    """A large part that is always evaluated and shallow itself; None where none exists."""
    match expr:
        case Cast() | Unary():
            parts: tuple[Expr, ...] = (expr.value,)
        case Binary(op, left, right):
            parts = (left,) if op in LOGICAL else (left, right)
        case Apply():
            parts = expr.args
        case _:
            return None
    deep = max(parts, key=lambda part: nesting(expr_c(part, scope)))
    if isinstance(deep, Apply):
        is_named = deep.function == "fma"
    else:
        is_named = isinstance(deep, Binary) and deep.dtype.is_int
    if is_named and nesting(expr_c(deep, scope)) < DEEPEST - 1:
        return deep
    return _inner_part(deep, scope)


def stem(name: str) -> str:
    """Without the numbers that passes add to tell names apart: C scopes need fewer."""
    return re.sub(r"(_\d+)+$", "", name) or name


def print_kernel(
    kernel: Kernel,
    buffers: Mapping[str, str],
    symbols: Mapping[str, str],
    bounds: Bounds,
    taken: Iterable[str] = (),
    functions: Iterable[str] = (),
    given: Mapping[str, Range | None] | None = None,
    declarations: Mapping[str, str] | None = None,
    hints: Hints | None = None,
    threads: Bounds | None = None,
) -> KernelCode:
    """The C of a kernel, whose function has its name. `taken`: names that it may not use besides;
    `functions`: those that no part of it may have; `given`: parameters that take the place of
    numbers, with their ranges and `declarations`; `hints`: for a value analysis, in the C that
    it is given; `threads`: the bounds by which threads share parallel loops, which otherwise have
    no axis."""
    given = given or {}
    stmts = flattened(kernel.body)
    own = PrintedFunction(
        kernel.name, Names([kernel.name, *functions, *taken]), tuple(taken), outlined_loops(stmts),
        dict(declarations or {}), {b.name: b.dtype for b in kernel.buffers},
        chunks=chunks(replace(kernel, body=stmts), threads) if threads is not None else {},
        copies={b.name: b for b in kernel.scratch if b.scope == CORE},
    )  # fmt: skip
    printer = Printer(own, Names([*buffers.values(), *symbols.values(), *given, *taken]), hints)
    names = {**symbols, **{name: name for name in given}}
    known = Known.at_start(kernel, bounds, given)
    scope = Scope(names, known, buffers, frozenset(given), fixed=not symbols)
    printer.body(stmts, scope, 1)
    if kernel.fallible:
        printer.lines.add(1, "return RAOT_OK;")
    text = printer.lines.text()
    words = set(re.findall(r"\w+", text))
    idle = [c for c in (*symbols.values(), *buffers.values()) if c not in words]
    first = [f"    (void){c};\n" for c in idle]
    if hints:
        sizes = [c for name, c in symbols.items() if name in hints.sizes and c in words]
        # Frama-C refuses an annotation of a declaration.
        first += [f"    /*@ split {c}; */ (void){c};\n" for c in sizes]
    return KernelCode("".join(own.parts), "".join(first) + text, tuple(own.names))
