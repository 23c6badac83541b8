"""One kernel as the source of a Python function, which runs it as the loop level declares it.

Buffers are flat lists of numbers, in which None is an element that was never written. The
source checks what C does not: an access outside its buffer and a read of what was never
written are assertion failures. A check that cannot fail is left out: a loop variable that
runs up to the extent of an axis stays inside it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation import scalars
from relax_aot.ir.dims import Dim, FloorDiv, Max, Min, Mod
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
    free_symbols,
)
from relax_aot.ir.types import DType

ZERO = Dim.of(0)


class IndexFault(RelaxAotError):
    """An index read from data is out of range: RAOT_ERR_INDEX in C."""


@dataclass
class Memory:
    """The elements of a buffer in row-major order. `array` is the same where nothing writes
    them."""

    data: list[Any]
    shape: tuple[int, ...]
    dtype: DType
    array: scalars.Array | None = None


@dataclass(frozen=True)
class Compiled:
    """`run` takes the values of `symbols` and then the memory of each buffer."""

    symbols: tuple[str, ...]
    run: Callable[..., None]


@lru_cache(maxsize=1024)
def compiled(kernel: Kernel) -> Compiled:
    """The kernel as a Python function."""
    writer = _Writer(kernel, free_symbols(kernel))
    source = writer.source()
    code: dict[str, Any] = writer.constants
    exec(compile(source, f"<kernel {kernel.name}>", "exec"), code)  # noqa: S102  # our own text
    return Compiled(writer.symbols, code["run"])


def source_of(kernel: Kernel) -> str:
    """The Python source, to read."""
    return _Writer(kernel, free_symbols(kernel)).source()


# What the source calls


def _outside(name: str, index: int, axis: int, shape: Sequence[int]) -> NoReturn:
    raise AssertionError(f"{name}: {index} on axis {axis} is outside {list(shape)}")


def _undefined(name: str, at: int, shape: Sequence[int]) -> NoReturn:
    index = [int(i) for i in np.unravel_index(at, shape)]
    raise AssertionError(f"{name}{index} is read before it is written")


def _fault(name: str, value: int, low: int, high: int) -> NoReturn:
    raise IndexFault(f"{name} is {value}, outside {low}..{high}")


_BUILT_IN = {
    "outside": _outside,
    "undefined": _undefined,
    "fault": _fault,
    "quotient": scalars.quotient,
    "remainder": scalars.remainder,
    "truncated_remainder": scalars.truncated_remainder,
    "shifted_left": scalars.shifted_left,
    "shifted_right": scalars.shifted_right,
    "maximum": scalars.maximum,
    "minimum": scalars.minimum,
    "fused": scalars.fused,
    "fused_double": scalars.fused_double,
    "f32": np.float32,
    "f64": np.float64,
    "Memory": Memory,
}


@dataclass
class _Scope:
    """Names that a block may use; what a block defines ends with it."""

    indices: dict[str, str]
    locals: dict[str, str]
    below: dict[str, Dim]
    """Loop variables from 0 on, and where each stops."""
    buffers: dict[str, _Held]

    def inner(self) -> _Scope:
        return _Scope(dict(self.indices), dict(self.locals), dict(self.below), dict(self.buffers))


@dataclass(frozen=True)
class _Held:
    """The variables of a buffer: its memory, its elements, and the extent of each axis."""

    buffer: Buffer
    memory: str
    data: str
    extents: tuple[str, ...]
    complete: bool
    """Whether every element is defined from the start."""


@dataclass
class _Writer:
    kernel: Kernel
    symbols: tuple[str, ...]
    constants: dict[str, Any] = field(default_factory=lambda: dict(_BUILT_IN))
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def source(self) -> str:
        from relax_aot.evaluation.tile_code import run_micro, run_multiply

        kernel = self.kernel
        self.constants |= {"run_multiply": run_multiply, "run_micro": run_micro}
        names = [buffer.name for buffer in kernel.buffers]
        for name in names:
            assert names.count(name) == 1, f"two buffers are called {name}"
        scope = _Scope({s: self.unique(s) for s in self.symbols}, {}, {}, {})
        memories = [self.unique(f"memory_{name}") for name in names]
        self.put(0, f"def run({', '.join([*scope.indices.values(), *memories])}):")
        self.put(1, "pass")
        readonly = {buffer.name for buffer in kernel.inputs}
        for buffer, memory in zip(kernel.buffers, memories, strict=True):
            self.hold(buffer, memory, scope, 1, complete=buffer.name in readonly)
        self.block(kernel.body, scope, 1)
        return "\n".join(self.lines) + "\n"

    def hold(
        self, buffer: Buffer, memory: str, scope: _Scope, depth: int, *, complete: bool
    ) -> None:
        data = self.unique(buffer.name)
        self.put(depth, f"{data} = {memory}.data")
        extents = []
        for axis, size in enumerate(buffer.shape):
            if size.is_constant:
                extents.append(str(size.constant))
            else:
                extents.append(self.unique(f"{buffer.name}_{axis}"))
                self.put(depth, f"{extents[-1]} = {memory}.shape[{axis}]")
        scope.buffers[buffer.name] = _Held(buffer, memory, data, tuple(extents), complete)

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def unique(self, requested: str) -> str:
        self.count += 1
        word = re.sub(r"[^A-Za-z0-9_]", "_", requested)
        return f"{word}_{self.count}" if word and not word[0].isdigit() else f"v_{self.count}"

    def constant(self, requested: str, value: object) -> str:
        name = self.unique(requested)
        assert not keyword.iskeyword(name)
        self.constants[name] = value
        return name

    # Statements

    def block(self, body: tuple[Stmt, ...], scope: _Scope, depth: int) -> None:
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
                case Multiply():
                    self.multiply(stmt, scope, depth)
                case Micro():
                    self.micro(stmt, scope, depth)

    def branch(self, body: tuple[Stmt, ...], scope: _Scope, depth: int) -> None:
        self.put(depth + 1, "pass")
        self.block(body, scope, depth + 1)

    def loop(self, stmt: For, scope: _Scope, depth: int) -> None:
        start, stop = self.dim(stmt.start, scope), self.dim(stmt.stop, scope)
        inner = scope.inner()
        variable = self.define(stmt.variable, inner)
        inner.below.pop(stmt.variable, None)
        if stmt.start == ZERO:
            inner.below[stmt.variable] = stmt.stop
        self.put(depth, f"for {variable} in range({start}, {stop}):")
        self.branch(stmt.body, inner, depth)

    def define(self, name: str, scope: _Scope) -> str:
        assert name not in scope.indices, f"{name} is defined twice"
        scope.indices[name] = self.unique(name)
        return scope.indices[name]

    def local(self, name: str, scope: _Scope) -> str:
        assert name in scope.locals, f"{name} is not declared"
        return scope.locals[name]

    def bind(self, stmt: Bind, scope: _Scope, depth: int) -> None:
        value = self.expr(stmt.value, scope)
        low, high = self.dim(stmt.low, scope), self.dim(stmt.high, scope)
        name = self.define(stmt.name, scope)
        self.put(depth, f"{name} = {value}")
        self.put(depth, f"if not {low} <= {name} <= {high}:")
        self.put(depth + 1, f"fault({stmt.name!r}, {name}, {low}, {high})")

    def reserve(self, stmt: Reserve, scope: _Scope, depth: int) -> None:
        buffer = stmt.buffer
        assert buffer.name not in scope.buffers, f"{buffer.name} is there twice"
        memory = self.unique(f"memory_{buffer.name}")
        dtype = self.constant("dtype", buffer.dtype)
        shape = "".join(f"{self.dim(size, scope)}, " for size in buffer.shape)
        count = self.dim(buffer.type.elements, scope)
        self.put(depth, f"{memory} = Memory([None] * {count}, ({shape}), {dtype})")
        self.hold(buffer, memory, scope, depth, complete=False)

    def store(self, stmt: Store, scope: _Scope, depth: int) -> None:
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

    def held(self, buffer: Buffer, scope: _Scope) -> _Held:
        assert buffer.name in scope.buffers, f"{buffer.name} is no buffer of the kernel"
        return scope.buffers[buffer.name]

    def multiply(self, stmt: Multiply, scope: _Scope, depth: int) -> None:
        sums = self.held(stmt.sums, scope)
        levels = "".join(
            f"({', '.join(self.dim(part, scope) for part in level)}), " for level in stmt.levels
        )
        left, right = (self.beginning(load, scope) for load in (stmt.left, stmt.right))
        numbers = [self.dim(d, scope) for d in (stmt.rows, stmt.columns, stmt.left_row)]
        self.put(
            depth,
            f"run_multiply({sums.memory}, {', '.join(numbers)}, ({levels}), {left}, {right})",
        )

    def micro(self, stmt: Micro, scope: _Scope, depth: int) -> None:
        for load in stmt.written:
            assert not self.held(load.buffer, scope).complete, f"{load.buffer.name} is an input"
        operands = "".join(f"({self.beginning(o, scope)}), " for o in stmt.operands)
        sizes = "".join(f"{self.dim(size, scope)}, " for size in stmt.sizes)
        kernel = self.constant("micro", stmt.kernel)
        self.put(depth, f"run_micro({kernel}, ({operands}), ({sizes}))")

    def beginning(self, load: Load, scope: _Scope) -> str:
        """Memory and position of the first element of an operand, which may lie outside where
        the operand has no elements."""
        held = self.held(load.buffer, scope)
        return f"{held.memory}, {self.flat(held, [self.dim(d, scope) for d in load.index])}"

    # Places

    def place(self, held: _Held, index: tuple[Dim, ...], scope: _Scope) -> str:
        """The position of an element, each index checked against the extent of its axis."""
        buffer = held.buffer
        assert len(index) == len(buffer.shape), f"{buffer.name}: {len(index)} indices"
        checked = []
        for axis, (dim, size) in enumerate(zip(index, buffer.shape, strict=True)):
            text = self.dim(dim, scope)
            if self.stays_inside(dim, size, scope):
                checked.append(text)
                continue
            name = text
            test = text
            if not text.isidentifier():
                name = self.unique("at")
                test = f"({name} := {text})"
            failure = f"outside({buffer.name!r}, {name}, {axis}, {held.memory}.shape)"
            extent = held.extents[axis]
            checked.append(f"({name} if 0 <= {test} < {extent} else {failure})")
        return self.flat(held, checked)

    def stays_inside(self, dim: Dim, size: Dim, scope: _Scope) -> bool:
        if dim.is_constant and size.is_constant:
            return 0 <= dim.constant < size.constant
        stop = scope.below.get(str(dim))
        if stop is None:
            return False
        return stop == size or (
            stop.is_constant and size.is_constant and stop.constant <= size.constant
        )

    def flat(self, held: _Held, index: Sequence[str]) -> str:
        if not index:
            return "0"
        text, *rest = index
        for part, extent in zip(rest, held.extents[1:], strict=True):
            text = f"({text}) * {extent} + {part}"
        return text

    def dim(self, dim: Dim, scope: _Scope) -> str:
        """A size or index as an expression that may stand anywhere."""
        if dim.is_constant:
            return str(dim.constant) if dim.constant >= 0 else f"({dim.constant})"
        terms = []
        for coefficient, monomial in dim.terms:
            factors = [str(coefficient)] if coefficient != 1 or not monomial else []
            for atom, exponent in monomial:
                text = self.atom(atom, scope)
                factors.append(text if exponent == 1 else f"{text}**{exponent}")
            terms.append(" * ".join(factors))
        text = " + ".join(terms)
        return text if text.isidentifier() else f"({text})"

    def atom(self, atom: str | FloorDiv | Mod | Min | Max, scope: _Scope) -> str:
        match atom:
            case str():
                assert atom in scope.indices, f"no size is called {atom} here"
                return scope.indices[atom]
            case FloorDiv():
                parts = (self.dim(d, scope) for d in (atom.numerator, atom.denominator))
                return f"({' // '.join(parts)})"
            case Mod():
                parts = (self.dim(d, scope) for d in (atom.numerator, atom.denominator))
                return f"({' % '.join(parts)})"
            case Min():
                return f"min({', '.join(self.dim(d, scope) for d in atom.args)})"
            case Max():
                return f"max({', '.join(self.dim(d, scope) for d in atom.args)})"

    # Expressions

    def expr(self, expr: Expr, scope: _Scope) -> str:
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

    def literal(self, expr: Lit) -> str:
        value = scalars.number(expr.value, expr.dtype)
        if isinstance(value, bool):
            return str(value)
        if isinstance(value, int):
            return str(value) if value >= 0 else f"({value})"
        return self.constant("number", value)

    def load(self, expr: Load, scope: _Scope) -> str:
        held = self.held(expr.buffer, scope)
        place = self.place(held, expr.index, scope)
        if held.complete:
            return f"{held.data}[{place}]"
        at, value = self.unique("at"), self.unique("element")
        failure = f"undefined({expr.buffer.name!r}, {at}, {held.memory}.shape)"
        element = f"{held.data}[({at} := {place})]"
        return f"({value} if ({value} := {element}) is not None else {failure})"

    def binary(self, expr: Binary, scope: _Scope) -> str:
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

    def apply(self, expr: Apply, scope: _Scope) -> str:
        dtype = expr.args[0].dtype
        values = ", ".join(self.expr(arg, scope) for arg in expr.args)
        if dtype.is_float:
            match expr.function:
                case "max":
                    return f"maximum({values})"
                case "min":
                    return f"minimum({values})"
                case "abs":
                    return f"abs({values})"
                case "fma":
                    return f"{'fused_double' if dtype is DType.F64 else 'fused'}({values})"
                case _:
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
        raise AssertionError(f"{expr.function} of {dtype.value}")

    def cast(self, expr: Cast, scope: _Scope) -> str:
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
            if source is DType.F32 and target is DType.F64:
                return f"f64({value})"
            if source is DType.F64 and target is DType.F32:
                return f"f32({value})"
        mode = expr.mode
        convert = self.constant(
            "converted", lambda found: scalars.converted(found, source, target, mode)
        )
        return f"{convert}({value})"


def wrapped(text: str, dtype: DType) -> str:
    """An integer expression modulo the width of its type."""
    mask = (1 << dtype.bits) - 1
    if not dtype.is_signed:
        return f"(({text}) & {mask})"
    half = 1 << (dtype.bits - 1)
    return f"((({text}) + {half} & {mask}) - {half})"
