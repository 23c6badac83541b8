# SPDX-License-Identifier: Apache-2.0
"""One kernel as the source of a Python function, which runs it as the loop level declares it.

Buffers are flat lists of numbers, in which None is an element that was never written. The
source checks what C does not: an access outside its buffer and a read of what was never
written are assertion failures. A check that cannot fail is left out: a loop variable that
runs up to the extent of an axis stays inside it. The body of a parallel loop is a function, whose
accesses of shared memory are recorded (races.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from relax_aot.evaluation import scalars
from relax_aot.evaluation.kernel_values import Compiled, Held, Memory, Scope, ValueWriter, wrapped
from relax_aot.evaluation.races import Races, finished
from relax_aot.evaluation.tile_code import run_micro, run_multiply
from relax_aot.ir.axes import CORE
from relax_aot.ir.dims import ZERO
from relax_aot.ir.loops import (
    PLAIN,
    Apply,
    Assign,
    Barrier,
    Binary,
    Bind,
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
)
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.types import DType


@lru_cache(maxsize=1024)
def compiled(kernel: Kernel) -> Compiled:
    """The kernel as a Python function."""
    writer = _Writer(kernel, kernel.free_symbols)
    source = writer.source()
    code: dict[str, Any] = writer.constants
    exec(compile(source, f"<kernel {kernel.name}>", "exec"), code)  # noqa: S102  # our own text
    return Compiled(writer.symbols, code["run"])


def source_of(kernel: Kernel) -> str:
    """The Python source, to read."""
    return _Writer(kernel, kernel.free_symbols).source()


def _run_micro(
    races: Races,
    kernel: MicroKernel,
    operands: Sequence[tuple[Memory, int]],
    sizes: tuple[int, ...],
) -> None:
    run_micro(kernel, compiled(kernel.meaning), operands, sizes, races)


class _Expressions(ValueWriter):
    """Expressions of kernels as Python expressions."""

    def cast(self, expr: Cast, scope: Scope) -> str:
        value, source, target = self.expr(expr.value, scope), expr.value.dtype, expr.dtype
        if expr.mode != "bits":
            if target is DType.BOOL:
                return f"({value} != 0)"
            whole = source.is_int or source.is_stored_int
            if whole and (target.is_int or target.is_stored_int):
                if expr.mode == "saturate":
                    low, high = target.limits
                    return f"max({low}, min({value}, {high}))"
                return wrapped(value, target)
            if source.is_narrow and target is DType.F32:
                return value
            if source is DType.F32 and target is DType.F64:
                return f"f64({value})"
            if source is DType.F64 and target is DType.F32:
                return f"f32({value})"
        mode = expr.mode
        convert = self.constant(
            "converted", lambda found: scalars.converted(found, source, target, mode)
        )
        return f"{convert}({value})"

    def apply(self, expr: Apply, scope: Scope) -> str:
        dtype = expr.args[0].dtype
        if expr.function in PLAIN:
            return self.expr(PLAIN[expr.function](*expr.args), scope)
        values = ", ".join(self.expr(arg, scope) for arg in expr.args)
        if dtype.is_float:
            fused = "fused_double" if dtype is DType.F64 else "fused"
            names = {"max": "maximum", "min": "minimum", "abs": "abs", "fma": fused}
            if expr.function in names:
                return f"{names[expr.function]}({values})"
            function = scalars.float_function(expr.function, dtype)
            return f"{self.constant(expr.function, function)}({values})"
        match expr.function:
            case "abs":
                return wrapped(f"abs({values})", dtype)
            case "max" | "min":
                return f"{expr.function}({values})"
            case "fmod":
                return f"truncated_remainder({values})"
            case "pow":
                power = self.constant("power", lambda a, b: scalars.power(a, b, dtype))
                return f"{power}({values})"
            case "fixed_sigmoid" | "fixed_tanh":
                fixed = scalars.FIXED_FUNCTIONS[expr.function]
                return f"{self.constant(expr.function, fixed)}({values})"
        raise AssertionError(f"{expr.function} of {dtype.value}")

    def binary(self, expr: Binary, scope: Scope) -> str:
        left, right = self.expr(expr.left, scope), self.expr(expr.right, scope)
        dtype = expr.left.dtype
        match expr.op:
            case "&&":
                return f"({left} and {right})"
            case "||":
                return f"({left} or {right})"
            case "<" | "<=" | "==" | "!=":
                return f"({left} {expr.op} {right})"
            case _ if dtype.is_float:
                assert expr.op in "+-*/", f"{expr.op} of {dtype.value}"
                return f"({left} {expr.op} {right})"
            case "+" | "-" | "*":
                assert dtype.is_int, f"{expr.op} of {dtype.value}"
                return wrapped(f"{left} {expr.op} {right}", dtype)
            case "/":
                return wrapped(f"quotient({left}, {right})", dtype)
            case "%":
                return f"remainder({left}, {right})"
            case "&" | "|" | "^":
                return f"({left} {expr.op} {right})"
            case "<<":
                return wrapped(f"shifted_left({left}, {right}, {8 * dtype.bytes})", dtype)
            case ">>":
                return f"shifted_right({left}, {right}, {8 * dtype.bytes})"
        raise AssertionError(f"unknown operator {expr.op}")

    def expr(self, expr: Expr, scope: Scope) -> str:
        match expr:
            case Lit():
                return self.literal(expr)
            case Local():
                return self.local(expr.name, scope)
            case Index():
                return self.dim(expr.dim, scope)
            case Load():
                return self.load(expr, scope)
            case Unary():
                value = self.expr(expr.value, scope)
                if expr.op == "!":
                    return f"(not {value})"
                return f"(-{value})" if expr.dtype.is_float else wrapped(f"-{value}", expr.dtype)
            case Binary():
                return self.binary(expr, scope)
            case Apply():
                return self.apply(expr, scope)
            case Cast():
                return self.cast(expr, scope)
            case Select():
                parts = (expr.then, expr.condition, expr.otherwise)
                then, condition, otherwise = (self.expr(part, scope) for part in parts)
                return f"({then} if {condition} else {otherwise})"


class _Writer(_Expressions):
    """Statements of kernels as Python statements."""

    def source(self) -> str:
        kernel = self.kernel
        self.constants |= {"run_multiply": run_multiply, "run_micro": _run_micro}
        self.constants["finished"] = finished
        names = [buffer.name for buffer in kernel.buffers]
        for name in names:
            assert names.count(name) == 1, f"two buffers are called {name}"
        scope = Scope({s: self.unique(s) for s in self.symbols}, {}, {}, {})
        memories = [self.unique(f"memory_{name}") for name in names]
        arguments = ["races", *scope.indices.values(), *memories]
        self.put(0, f"def run({', '.join(arguments)}):")
        self.put(1, "pass")
        readonly = {buffer.name for buffer in kernel.inputs}
        for buffer, memory in zip(kernel.buffers, memories, strict=True):
            self.hold(buffer, memory, scope, 1, complete=buffer.name in readonly)
        self.block(kernel.body, scope, 1)
        return "\n".join(self.lines) + "\n"

    def block(self, body: tuple[Stmt, ...], scope: Scope, depth: int) -> None:
        scope = scope.inner()
        for stmt in body:
            match stmt:
                case For():
                    self.loop(stmt, scope, depth)
                case Store():
                    self.store(stmt, scope, depth)
                case Declare():
                    name = stmt.local.name
                    assert name not in scope.locals, f"{name} is declared twice"
                    value = self.expr(stmt.value, scope)
                    scope.locals[name] = self.unique(name)
                    self.put(depth, f"{scope.locals[name]} = {value}")
                case Assign():
                    name = stmt.local.name
                    assert name not in (scope.outside or ()), f"{name} is of all iterations"
                    local = self.local(stmt.local.name, scope)
                    self.put(depth, f"{local} = {self.expr(stmt.value, scope)}")
                case Let():
                    value = self.dim(stmt.value, scope)
                    self.put(depth, f"{self.define(stmt.name, scope)} = {value}")
                case Bind():
                    self.bind(stmt, scope, depth)
                case If():
                    self.put(depth, f"if {self.expr(stmt.condition, scope)}:")
                    self.branch(stmt.then, scope, depth)
                    if stmt.otherwise:
                        self.put(depth, "else:")
                        self.branch(stmt.otherwise, scope, depth)
                case Reserve():
                    self.reserve(stmt, scope, depth)
                case Barrier():
                    assert scope.outside is not None, "a barrier is in a parallel loop"
                    self.put(depth, f"yield {stmt.axis!r}")
                case Multiply():
                    self.multiply(stmt, scope, depth)
                case Micro():
                    self.micro(stmt, scope, depth)

    def branch(self, body: tuple[Stmt, ...], scope: Scope, depth: int) -> None:
        self.put(depth + 1, "pass")
        self.block(body, scope, depth + 1)

    def loop(self, stmt: For, scope: Scope, depth: int) -> None:
        if stmt.axis:
            self.parallel(stmt, scope, depth)
            return
        start, stop = self.dim(stmt.start, scope), self.dim(stmt.stop, scope)
        inner = scope.inner()
        variable = self.define(stmt.variable, inner)
        inner.below.pop(stmt.variable, None)
        if stmt.start == ZERO:
            inner.below[stmt.variable] = stmt.stop
        self.put(depth, f"for {variable} in range({start}, {stop}):")
        self.branch(stmt.body, inner, depth)

    def parallel(self, stmt: For, scope: Scope, depth: int) -> None:
        """The body as a generator function of the loop variable, which yields at barriers."""
        iterations = f"range({self.dim(stmt.start, scope)}, {self.dim(stmt.stop, scope)})"
        inner, body = scope.inner(), self.unique("iteration")
        inner.outside = frozenset(scope.locals)
        variable = self.define(stmt.variable, inner)
        inner.below.pop(stmt.variable, None)
        if stmt.start == ZERO:
            inner.below[stmt.variable] = stmt.stop
        self.put(depth, f"def {body}({variable}):")
        self.put(depth + 1, "yield from ()")
        overwritten = {read for read, _ in self.kernel.in_place}
        for held in scope.buffers.values():
            if not held.complete or held.buffer.name in overwritten:
                self.share(held, inner, depth + 1, own=scope.outside is None)
        self.block(stmt.body, inner, depth + 1)
        title = f"the loop parallel({stmt.axis}) over {stmt.variable} in {self.kernel.name}"
        loop = f"races.run({title!r}, {stmt.axis!r}, {iterations}, {body})"
        run = f"finished({loop})" if scope.outside is None else f"yield from {loop}"
        self.put(depth, run)

    def share(self, held: Held, scope: Scope, depth: int, *, own: bool) -> None:
        """A buffer inside a parallel loop: recorded, or in scope `core` a new one."""
        buffer, memory = held.buffer, self.unique(f"memory_{held.buffer.name}")
        made = f"races.tracked({buffer.name!r}, {held.memory})"
        if own and buffer.scope == CORE:
            dtype = self.constant("dtype", buffer.dtype)
            made = f"Memory([None] * len({held.data}), {held.memory}.shape, {dtype})"
        self.put(depth, f"{memory} = {made}")
        self.hold(buffer, memory, scope, depth, complete=held.complete)

    def bind(self, stmt: Bind, scope: Scope, depth: int) -> None:
        value = self.expr(stmt.value, scope)
        low, high = self.dim(stmt.low, scope), self.dim(stmt.high, scope)
        name = self.define(stmt.name, scope)
        self.put(depth, f"{name} = {value}")
        self.put(depth, f"if not {low} <= {name} <= {high}:")
        self.put(depth + 1, f"fault({stmt.name!r}, {name}, {low}, {high})")

    def reserve(self, stmt: Reserve, scope: Scope, depth: int) -> None:
        buffer = stmt.buffer
        assert buffer.name not in scope.buffers, f"{buffer.name} is there twice"
        memory = self.unique(f"memory_{buffer.name}")
        dtype = self.constant("dtype", buffer.dtype)
        shape = "".join(f"{self.dim(size, scope)}, " for size in buffer.shape)
        count = self.dim(buffer.type.elements, scope)
        self.put(depth, f"{memory} = Memory([None] * {count}, ({shape}), {dtype})")
        self.hold(buffer, memory, scope, depth, complete=False)

    def store(self, stmt: Store, scope: Scope, depth: int) -> None:
        held = self.held(stmt.buffer, scope)
        assert not held.complete, f"{stmt.buffer.name} is an input"
        value = self.expr(stmt.value, scope)
        rounding = scalars.stored(stmt.buffer.dtype)
        if rounding is not None:
            value = f"{self.constant('stored', rounding)}({value})"
        # The value is computed first: it may fault, and C computes it first.
        temporary = self.unique("value")
        self.put(depth, f"{temporary} = {value}")
        self.put(depth, f"{held.data}[{self.place(held, stmt.index, scope)}] = {temporary}")

    def multiply(self, stmt: Multiply, scope: Scope, depth: int) -> None:
        sums = self.held(stmt.sums, scope)
        levels = "".join(
            f"({', '.join(self.dim(part, scope) for part in level)}), " for level in stmt.levels
        )
        left, right = (self.beginning(load, scope) for load in (stmt.left, stmt.right))
        numbers = [self.dim(d, scope) for d in (stmt.rows, stmt.columns, stmt.left_row)]
        self.put(
            depth,
            f"run_multiply({sums.memory}, {', '.join(numbers)}, ({levels}), {left}, {right},"
            f" separate={stmt.separate})",
        )

    def micro(self, stmt: Micro, scope: Scope, depth: int) -> None:
        for load in stmt.written:
            assert not self.held(load.buffer, scope).complete, f"{load.buffer.name} is an input"
        operands = "".join(f"({self.beginning(o, scope)}), " for o in stmt.operands)
        sizes = "".join(f"{self.dim(size, scope)}, " for size in stmt.sizes)
        kernel = self.constant("micro", stmt.kernel)
        self.put(depth, f"run_micro(races, {kernel}, ({operands}), ({sizes}))")

    def beginning(self, load: Load, scope: Scope) -> str:
        """Memory and position of the first element of an operand, which may lie outside where
        the operand has no elements."""
        held = self.held(load.buffer, scope)
        return f"{held.memory}, {self.flat(held, [self.dim(d, scope) for d in load.index])}"
