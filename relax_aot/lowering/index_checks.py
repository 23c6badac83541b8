# SPDX-License-Identifier: Apache-2.0
"""Indices from data are checked before the calls that read at them.

A kernel that checks an index while it writes can fail with half of its output written: the output
is staged, and the kernel neither fuses nor runs in place. So each check that needs only inputs of
its call becomes a kernel of its own, which a `guard` runs as early as its operands allow; what
reads at the indices takes the result of the guard, and cannot fail. Where the range of the values
is known (`index_ranges`), no check is needed at all. A check that needs what its own kernel wrote
stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Function, Module, Var, attrs_of
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Cast,
    Declare,
    For,
    If,
    Index,
    Kernel,
    Lit,
    Local,
    Micro,
    Multiply,
    Stmt,
    Store,
    index_dims,
    walk,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType, Ref
from relax_aot.ir.unused import swept
from relax_aot.lowering.index_ranges import Range, of_kernel, typical
from relax_aot.lowering.moved_indices import read_at_source


def check_then_trust(module: Module) -> Module:
    """A lowered module -> the same with checks of indices before the calls that use them."""
    module = read_at_source(module)
    state = _State(module, _constants(module))
    functions = tuple(state.function(function) for function in module.functions)
    kernels = (state.kernels.get(k.name, k) for k in (*module.kernels, *state.checks))
    return replace(module, functions=functions, kernels=tuple(kernels))


def _constants(module: Module) -> dict[str, Range]:
    """Ranges of integer constants; none of those that another training may replace."""
    if module.replaceable:
        return {}
    return {
        c.name: (Dim.of(int(c.data.min())), Dim.of(int(c.data.max())))
        for c in module.constants
        if typical(c.type.dtype) is not None and c.data.size and not c.absent
    }


@dataclass
class _State:
    """What is known of the values so far, and the kernels that have changed."""

    module: Module
    ranges: dict[str, Range]
    kernels: dict[str, Kernel] = field(default_factory=dict)
    checks: list[Kernel] = field(default_factory=list)

    def __post_init__(self) -> None:
        functions = self.module.functions
        values = {out.name for f in functions for call in f.body for out in call.outs}
        values |= {param.name for f in functions for param in f.params}
        self.values = values | {constant.name for constant in self.module.constants}

    def function(self, function: Function) -> Function:
        body: list[Call] = []
        guards: dict[tuple[object, ...], Var] = {}
        for call in function.body:
            if call.op == "view" and call.inputs[0].name in self.ranges:
                self.ranges[call.out.name] = self.ranges[call.inputs[0].name]
            if call.op == "call_kernel":
                call = self._call(call, body, guards)
            body.append(call)
        return replace(function, body=tuple(body))

    def _call(self, call: Call, body: list[Call], guards: dict[tuple[object, ...], Var]) -> Call:
        """The call without checks that stand before it now."""
        kernel = self.module.kernel_table[call.ref("kernel")]
        bounds = self.module.bounds.open
        given = dict(zip((b.name for b in kernel.inputs), call.inputs, strict=True))
        known = {name: r for name, var in given.items() if (r := self.ranges.get(var.name))}
        if not kernel.fallible and not any(typical(b.dtype) for b in kernel.outputs):
            return call
        found = of_kernel(kernel, known, bounds)
        self.ranges |= {
            out.name: found.outputs[buffer.name]
            for buffer, out in zip(kernel.outputs, call.outs, strict=False)
            if buffer.name in found.outputs
        }
        shared = len(self.module.kernel_calls[kernel.name]) > 1
        if not kernel.fallible or kernel.parallel or shared:
            return call
        kernel = replace(kernel, body=_trusted(kernel.body, found.proven))
        check = _check_of(kernel)
        if check is not None:
            kernel = replace(kernel, body=_trusted(kernel.body))
            call = self._guarded(call, check, given, body, guards)
        self.kernels[kernel.name] = kernel
        return call

    def _guarded(
        self,
        call: Call,
        check: Kernel,
        given: Mapping[str, Var],
        body: list[Call],
        guards: dict[tuple[object, ...], Var],
    ) -> Call:
        """The call with the result of a guard in place of an operand."""
        args = tuple(given[buffer.name] for buffer in check.inputs)
        key = (args, check.body)
        if key not in guards:
            taken = self.module.kernel_table.keys() | {one.name for one in self.checks}
            name = unused_name(f"check_{call.outs[0].name}", taken)
            self.checks.append(replace(check, name=name))
            guarded = Var(unused_name(f"{args[0].name}.checked", self.values), args[0].type)
            self.values.add(guarded.name)
            made = Call((guarded,), "guard", args, attrs_of({"kernel": Ref(name)}), call.origin)
            body.insert(self._earliest(made, body), made)
            guards[key] = guarded
        mine, checked = args[0], guards[key]
        return replace(call, args=tuple(checked if arg == mine else arg for arg in call.args))

    def _earliest(self, guard: Call, body: list[Call]) -> int:
        """Behind what makes its operands and sizes, and behind all that can fail: which failure
        is reported does not depend on this pass."""
        values = {var.name for var in guard.inputs}
        position = len(body)
        while position and not self._before(body[position - 1], values):
            position -= 1
        return position

    def _before(self, call: Call, values: set[str]) -> bool:
        if any(out.name in values for out in call.outs):
            return True
        if call.op == "call_kernel":
            name = call.ref("kernel")
            return self.kernels.get(name, self.module.kernel_table[name]).fallible
        return call.op != "view"


def _trusted(body: tuple[Stmt, ...], proven: frozenset[int] | None = None) -> tuple[Stmt, ...]:
    """With indices that need no check: those in `proven`, or all."""

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Bind) or stmt.trusted:
            return stmt
        return replace(stmt, trust="checked") if proven is None or id(stmt) in proven else stmt

    return map_statements(body, rule)


def _check_of(kernel: Kernel) -> Kernel | None:
    """A kernel that fails as this one does and stores nothing; None where that needs what this
    one stores."""
    if any(isinstance(stmt, Micro | Multiply) for stmt in walk(kernel.body)):
        return None
    body = swept(_without_stores(kernel.body))
    check = Kernel("", kernel.inputs, (), (), body)
    read = check.read
    inputs = tuple(buffer for buffer in kernel.inputs if buffer.name in read)
    if not inputs or read - {buffer.name for buffer in inputs}:
        return None
    return replace(check, inputs=inputs, body=_scan(body) or body)


def _without_stores(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    kept: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                kept.append(replace(stmt, body=_without_stores(stmt.body)))
            case If():
                then, otherwise = _without_stores(stmt.then), _without_stores(stmt.otherwise)
                kept.append(replace(stmt, then=then, otherwise=otherwise))
            case Store():
                pass
            case _:
                kept.append(stmt)
    return tuple(kept)


def _scan(body: tuple[Stmt, ...]) -> tuple[Stmt, ...] | None:
    """All indices compared without leaving the loops, and one check after them: compilers make
    vector instructions of that. None where an index is used, as what is read at it depends on
    the check, or where a check stands below a condition or is the only one."""
    binds = [stmt for stmt in walk(body) if isinstance(stmt, Bind)]
    names = {bind.name for bind in binds}
    used = {name for stmt in walk(body) for dim in index_dims(stmt) for name in dim.symbols}
    if used & names or not all(isinstance(stmt, For | Declare | Bind) for stmt in walk(body)):
        return None
    if not any(isinstance(stmt, For) for stmt in body):
        return None
    taken = {stmt.local.name for stmt in walk(body) if isinstance(stmt, Declare)} | used
    outside = Local(unused_name("outside", taken), DType.I32)
    none = Bind(unused_name("none", names | taken), outside, Dim.of(0), Dim.of(0))
    return (Declare(outside, Lit(0, DType.I32)), *_compared(body, outside, taken), none)


def _compared(body: tuple[Stmt, ...], outside: Local, taken: set[str]) -> tuple[Stmt, ...]:
    """With comparisons in place of checks; `outside` is 1 after one that fails."""
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For):
            made.append(replace(stmt, body=_compared(stmt.body, outside, taken)))
        elif isinstance(stmt, Bind):
            at = Local(unused_name(stmt.name, taken | {outside.name}), DType.I64)
            made.append(Declare(at, Cast(stmt.value, DType.I64)))
            failed = (at < Index(stmt.low)) | (at > Index(stmt.high))
            made.append(If(failed, (Assign(outside, Lit(1, DType.I32)),)))
        else:
            made.append(stmt)
    return tuple(made)
