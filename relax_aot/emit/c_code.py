"""Loop IR -> C statements.

Half-precision values and narrower floats are computed in float and rounded when stored;
integers of less than a byte are int32_t. Integer arithmetic
goes through the helpers of raot/integer.h, which wrap and never trap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from relax_aot.emit.c_lines import Lines
from relax_aot.emit.c_micro import micro_call
from relax_aot.emit.c_names import Names
from relax_aot.emit.c_numbers import Numbers, Plain
from relax_aot.emit.c_proof import MOST_TURNS, Turns, reserved_names
from relax_aot.emit.c_reach import NONE, Apart
from relax_aot.emit.c_windows import Window, window_of
from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.folded_comparison import folded_comparison
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
    COMPARISONS,
    LOGICAL,
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
)
from relax_aot.ir.rewrite import map_index_dims
from relax_aot.ir.types import C_TYPES, DType

HALF = (DType.F16, DType.BF16)
_INTEGER_HELPERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod",
    "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr",
}  # fmt: skip

_CLIPS = {"max": "at_least", "min": "at_most"}
_INTEGER_FUNCTIONS = {"max": "larger", "min": "smaller"}


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one place of a kernel."""

    names: Mapping[str, str]
    bounds: Bounds
    buffers: Mapping[str, str]
    numbers: Numbers = field(default_factory=Plain)
    lets: Mapping[Dim, str] = field(default_factory=dict)
    """C names of the values that have one, so that an index is checked and used by one name."""

    def with_let(self, let: Let, c_name: str) -> Scope:
        scope = self.with_index(let.name, c_name, *interval(let.value, self.bounds))
        # Where kernels are shared, numbers that are equal in one may differ in another.
        named = isinstance(self.numbers, Plain) and not let.value.is_constant
        return replace(scope, lets={**self.lets, let.value: c_name}) if named else scope

    def with_index(self, name: str, c_name: str, low: int, high: int) -> Scope:
        bounds = self.bounds.with_range(name, low, max(low, high))
        return replace(self, names={**self.names, name: c_name}, bounds=bounds)

    def dim(self, dim: Dim) -> str:
        return self.lets.get(dim) or self.numbers.dim(dim, self.names, self.bounds)

    def place(self, index: tuple[Dim, ...], buffer: Buffer) -> str:
        return self.numbers.linear(index, buffer.shape, self.names, self.bounds)


@dataclass
class Printer:
    """Prints one kernel. C names of one kernel share a scope, so nothing is shadowed."""

    claimed: Names
    lines: Lines = field(default_factory=Lines)
    loop_names: dict[str, str] = field(default_factory=dict)
    turns: Turns = field(default_factory=lambda: Turns(()))
    alone: Apart = NONE

    def body(self, stmts: tuple[Stmt, ...], scope: Scope, depth: int) -> None:
        for stmt in stmts:
            scope = self.statement(stmt, scope, depth)

    def statement(self, stmt: Stmt, scope: Scope, depth: int) -> Scope:
        """Prints one statement; returns the scope for those after it."""
        match stmt:
            case For():
                self._for(stmt, scope, depth)
            case Store():
                at = scope.place(stmt.index, stmt.buffer)
                target = f"{scope.buffers[stmt.buffer.name]}[{at}]"
                self.lines.add(depth, f"{target} = {stored(stmt.value, stmt.buffer.dtype, scope)};")
            case Declare():
                name = self.claimed.claim(stmt.local.name)
                c_type = _compute_type(stmt.local.dtype)
                self.lines.define(depth, name, f"{c_type} {name} = {_kept(stmt.value, scope)};")
                return replace(scope, names={**scope.names, stmt.local.name: name})
            case Assign():
                target = scope.names[stmt.local.name]
                self.lines.define(depth, target, f"{target} = {_kept(stmt.value, scope)};")
            case Let():
                name = self.claimed.claim(stmt.name)
                value = scope.dim(stmt.value)
                self.lines.define(depth, name, f"const int32_t {name} = {value};")
                return scope.with_let(stmt, name)
            case Bind():
                return self._bind(stmt, scope, depth)
            case If():
                condition = _told(stmt.condition, scope)
                if self.turns.filled_in(stmt):
                    self.lines.add(depth, f"/*@ split {condition}; */")
                self.lines.add(depth, f"if ({condition}) {{")
                self.body(stmt.then, scope, depth + 1)
                if stmt.otherwise:
                    self.lines.add(depth, "} else {")
                    self.body(stmt.otherwise, scope, depth + 1)
                self.lines.add(depth, "}")
            case Reserve():
                name = self.claimed.claim(stmt.buffer.name)
                size = math.prod(dim.constant for dim in stmt.buffer.shape)
                self.lines.add(depth, f"{C_TYPES[stmt.buffer.dtype]} {name}[{size}];")
                return replace(scope, buffers={**scope.buffers, stmt.buffer.name: name})
            case Multiply():
                self._multiply(stmt, scope, depth)
            case Micro():
                self._micro(stmt, scope, depth)
        return scope

    def _multiply(self, stmt: Multiply, scope: Scope, depth: int) -> None:
        """Levels that the micro-kernel has and the statement lacks take one step."""
        one = Dim.of(1), Dim.of(0), Dim.of(0)
        levels = (one,) * (3 - len(stmt.levels)) + stmt.levels
        texts = ["{" + ", ".join(scope.dim(d) for d in level) + "}" for level in levels]
        name = self.claimed.claim("levels")
        pad = "    "
        self.lines.add(depth, f"const struct raot_level {name}[3] = {{{', '.join(texts)}}};")
        rows, columns, row = (scope.dim(dim) for dim in (stmt.rows, stmt.columns, stmt.left_row))
        left, right = (_address(load, scope) for load in (stmt.left, stmt.right))
        sums = scope.buffers[stmt.sums.name]
        self.lines.add(depth, "raot_multiply_f32(")
        self.lines.add(depth, f"{pad}{rows}, {columns}, {name}, {left}, {row}, {right}, {sums});")

    def _micro(self, stmt: Micro, scope: Scope, depth: int) -> None:
        operands = [_address(load, scope) for load in stmt.operands]
        for line in micro_call(stmt, operands, scope.dim, scope.numbers, self.claimed):
            self.lines.add(depth, line)

    def _window(self, window: Window, scope: Scope, depth: int) -> None:
        count, first, last, step = (
            scope.dim(dim) for dim in (window.count, window.first, window.last, window.step)
        )
        source = window.source
        offset = scope.place(source.index, source.buffer)
        self.lines.add(depth, "raot_window_f32(")
        self.lines.add(
            depth + 1,
            f"{_address(window.to, scope)}, {count}, {first}, {last},"
            f" {scope.buffers[source.buffer.name]}, {offset}, {step});",
        )

    def _for(self, loop: For, scope: Scope, depth: int) -> None:
        window = window_of(loop)
        if window is not None:
            self._window(window, scope, depth)
            return
        if loop.stop - loop.start == 1:
            only = {loop.variable: loop.start}
            self.body(map_index_dims(loop.body, lambda dim: dim.substitute(only)), scope, depth)
            return
        if self.turns.one_by_one(loop) or loop.variable in self.alone.loops:
            self.lines.add(depth, f"/*@ loop unroll {MOST_TURNS}; */")
        name = self._loop_name(loop.variable)
        start, stop = (scope.dim(d) for d in (loop.start, loop.stop))
        low = interval(loop.start, scope.bounds)[0]
        high = interval(loop.stop, scope.bounds)[1] - 1
        inner = scope.with_index(loop.variable, name, low, high)
        self.lines.add(depth, f"for (int32_t {name} = {start}; {name} < {stop}; {name}++) {{")
        self.body(loop.body, inner, depth + 1)
        self.lines.add(depth, "}")

    def _loop_name(self, variable: str) -> str:
        """Loops one after another may share a name: a loop's variable is scoped to it."""
        if variable not in self.loop_names:
            self.loop_names[variable] = self.claimed.claim(variable)
        return self.loop_names[variable]

    def _bind(self, bind: Bind, scope: Scope, depth: int) -> Scope:
        """Checked in 64 bits, so that no value wraps into range."""
        if bind.trusted:
            return self._trusted(bind, scope, depth)
        wide = self.claimed.claim(f"{bind.name}_wide")
        name = self.claimed.claim(bind.name)
        low, high = (scope.dim(d) for d in (bind.low, bind.high))
        value = _operand(bind.value, scope, UNARY)
        self.lines.add(depth, f"const int64_t {wide} = (int64_t){value};")
        self.lines.add(depth, f"if ({wide} < {low} || {wide} > {high}) {{")
        self.lines.add(depth + 1, "return RAOT_ERR_INDEX;")
        self.lines.add(depth, "}")
        # Where nothing is read at the index, that it is right stays checked.
        self.lines.define(depth, name, f"const int32_t {name} = (int32_t){wide};")
        lowest = interval(bind.low, scope.bounds)[0]
        return scope.with_index(bind.name, name, lowest, interval(bind.high, scope.bounds)[1])

    def _trusted(self, bind: Bind, scope: Scope, depth: int) -> Scope:
        name = self.claimed.claim(bind.name)
        value = _operand(bind.value, scope, UNARY)
        self.lines.define(depth, name, f"const int32_t {name} = (int32_t){value};")
        lowest = interval(bind.low, scope.bounds)[0]
        return scope.with_index(bind.name, name, lowest, interval(bind.high, scope.bounds)[1])


def _address(load: Load, scope: Scope) -> str:
    at = scope.place(load.index, load.buffer)
    return f"&{scope.buffers[load.buffer.name]}[{at}]"


def _compute_type(dtype: DType) -> str:
    return C_TYPES[_computed(dtype)]


def _computed(dtype: DType) -> DType:
    """The element type whose C type holds a value of `dtype` between load and store."""
    if dtype in HALF or dtype.is_stored_float:
        return DType.F32
    return DType.I32 if dtype.is_stored_int else dtype


def _coded(dtype: DType) -> bool:
    """Whether memory holds a code that is not the value itself."""
    return dtype in HALF or dtype.is_storage


# How tightly the outermost operator of a C expression binds.
ATOM, UNARY, PRODUCT, SUM, RELATION, EQUALITY, AND, OR, TERNARY = range(9, 0, -1)
_PRECEDENCE = {
    "*": PRODUCT, "/": PRODUCT, "+": SUM, "-": SUM, "<": RELATION, "<=": RELATION,
    "==": EQUALITY, "!=": EQUALITY, "&&": AND, "||": OR,
}  # fmt: skip


def stored(value: Expr, dtype: DType, scope: Scope) -> str:
    """A value as it is written to memory of `dtype`."""
    if _coded(dtype) and value.dtype is dtype:
        # What is moved as it stands keeps its bits.
        if isinstance(value, Load):
            return _element(value, scope)
        if isinstance(value, Cast) and value.mode == "bits":
            return _bits_stored(value, scope)
        if isinstance(value, Cast) and dtype.is_stored_float:
            return _narrow_code(value, scope)
    if _coded(dtype):
        return f"raot_{_computed(dtype).value}_to_{dtype.value}({expr_c(value, scope)})"
    text, binds = _expr(value, scope)
    byte = isinstance(value, Load | Local | Cast | Lit)
    return text if dtype is not DType.BOOL or byte else f"(uint8_t){_within(text, binds, UNARY)}"


def expr_c(expr: Expr, scope: Scope) -> str:
    """An expression of the C type of its element type."""
    return _expr(expr, scope)[0]


def _kept(value: Expr, scope: Scope) -> str:
    """A value as a scalar keeps it: functions that tell yes from no give an int."""
    told = value.dtype is DType.BOOL and isinstance(value, Apply | Select)
    return stored(value, DType.BOOL, scope) if told else expr_c(value, scope)


def _told(condition: Expr, scope: Scope) -> str:
    """What decides an `if`: a comparison; bytes and what functions give are none by themselves."""
    if isinstance(condition, Binary | Unary):
        return expr_c(condition, scope)
    return f"{_operand(condition, scope, SUM)} != 0"


def _within(text: str, binds: int, least: int) -> str:
    return text if binds >= least else f"({text})"


def _operand(expr: Expr, scope: Scope, least: int) -> str:
    return _within(*_expr(expr, scope), least)


def _expr(expr: Expr, scope: Scope) -> tuple[str, int]:
    match expr:
        case Lit():
            text = _literal(expr, scope)
            return text, UNARY if text.startswith("-") else ATOM
        case Local():
            return scope.names[expr.name], ATOM
        case Index():
            text = scope.dim(expr.dim)
            if text.isdigit():
                return text, ATOM
            return f"(int64_t){text if text.isidentifier() else f'({text})'}", UNARY
        case Load():
            text = _element(expr, scope)
            if _coded(expr.dtype):
                text = f"raot_{expr.dtype.value}_to_{_computed(expr.dtype).value}({text})"
            return text, ATOM
        case Unary():
            return _unary(expr, scope)
        case Binary():
            return _binary(expr, scope)
        case Apply():
            expr = _clipped(expr)
            args = ", ".join(expr_c(arg, scope) for arg in expr.args)
            return f"{function_name(expr.function, expr.args[0].dtype)}({args})", ATOM
        case Cast():
            return _cast(expr, scope)
        case Select():
            return _select(expr, scope)


def _element(load: Load, scope: Scope) -> str:
    at = scope.place(load.index, load.buffer)
    return f"{scope.buffers[load.buffer.name]}[{at}]"


def _clipped(expr: Apply) -> Apply:
    """The larger or smaller of a float and a number that is no NaN needs one comparison."""
    known = [a for a in expr.args if isinstance(a, Lit) and not math.isnan(a.value)]
    if expr.function not in _CLIPS or not expr.args[0].dtype.is_float or len(known) != 1:
        return expr
    (other,) = (a for a in expr.args if a is not known[0])
    return Apply(_CLIPS[expr.function], (other, known[0]))


def _select(expr: Select, scope: Scope) -> tuple[str, int]:
    condition, then = (_operand(e, scope, OR) for e in (expr.condition, expr.then))
    text = f"{condition} ? {then} : {_operand(expr.otherwise, scope, OR)}"
    if expr.dtype.bytes < 4 and not _coded(expr.dtype):
        return f"({C_TYPES[expr.dtype]})({text})", UNARY
    return text, TERNARY


def _literal(lit: Lit, scope: Scope) -> str:
    """Numbers that a parameter can be: those of int32_t and floats."""
    computed = _computed(lit.dtype)
    text = literal(lit)
    if computed is DType.F32 and not math.isnan(lit.value):
        return scope.numbers.literal("float", text)
    small = computed.is_int and computed.is_signed and computed.bytes <= 4
    return scope.numbers.literal("int32_t", text) if small and text[-1].isdigit() else text


def literal(lit: Lit) -> str:
    match _computed(lit.dtype):
        case DType.BOOL:
            return str(int(bool(lit.value)))
        case DType.F64:
            return _float_text(float(lit.value), "", repr(float(lit.value)))
        case DType.F32:
            return _single_text(lit)
        case computed:
            return _integer_text(int(lit.value), computed)


@lru_cache(maxsize=1 << 12)
def _single_text(lit: Lit) -> str:
    with np.errstate(over="ignore"):
        (text,) = single_texts(np.asarray([lit.value], dtype=np.float32))
    return text


def single_texts(values: Array) -> list[str]:
    """Numbers of 32 bits as C writes them."""
    return [_float_text(float(value), "f", str(value)) for value in values]


def _float_text(value: float, suffix: str, text: str) -> str:
    wide = "" if suffix else "(double)"
    if math.isnan(value):
        return f"{wide}RAOT_NAN"
    if math.isinf(value):
        return f"{wide}RAOT_INFINITY" if value > 0 else f"-{wide}RAOT_INFINITY"
    text = text if "." in text or "e" in text else f"{text}.0"
    return f"{text}{suffix}"


def _integer_text(value: int, dtype: DType) -> str:
    if dtype is DType.I64:
        if value == -(2**63):
            return "INT64_MIN"
        return f"INT64_C({value})" if value >= 0 else f"-INT64_C({-value})"
    if dtype is DType.U64:
        return f"UINT64_C({value})"
    if dtype is DType.U32:
        return f"{value}u"
    return "INT32_MIN" if value == -(2**31) else str(value)


def function_name(function: str, dtype: DType) -> str:
    """The runtime's scalar function for an element type."""
    if dtype.is_float:
        return f"raot_{function}{'' if dtype is DType.F64 else 'f'}"
    return f"raot_{_INTEGER_FUNCTIONS.get(function, function)}_{dtype.value}"


def _unary(expr: Unary, scope: Scope) -> tuple[str, int]:
    if expr.op == "!":
        return f"!{_operand(expr.value, scope, ATOM)}", UNARY
    if expr.dtype.is_float:
        return f"-{_operand(expr.value, scope, ATOM)}", UNARY
    return f"raot_neg_{expr.dtype.value}({expr_c(expr.value, scope)})", ATOM


def _binary(expr: Binary, scope: Scope) -> tuple[str, int]:
    op = expr.op
    if op in COMPARISONS and isinstance(expr.left, Index) and isinstance(expr.right, Index):
        sides = [scope.dim(e.dim) for e in (expr.left, expr.right)]
        return f"{sides[0]} {op} {sides[1]}", _PRECEDENCE[op]
    if (known := folded_comparison(expr)) is not None:
        return str(int(known)), ATOM
    if expr.left.dtype.is_float or op in COMPARISONS + LOGICAL:
        binds = _PRECEDENCE[op]
        # Mixed && and || always get parentheses, and so does a chain of comparisons.
        least = binds if op in "+*" else binds + 1
        left = _operand(expr.left, scope, SUM if op in COMPARISONS + LOGICAL else least)
        right = _operand(expr.right, scope, SUM if op in COMPARISONS + LOGICAL else binds + 1)
        return f"{left} {op} {right}", binds
    left, right = expr_c(expr.left, scope), expr_c(expr.right, scope)
    return f"raot_{_INTEGER_HELPERS[op]}_{expr.left.dtype.value}({left}, {right})", ATOM


def _cast(cast: Cast, scope: Scope) -> tuple[str, int]:
    source, target = _computed(cast.value.dtype), cast.dtype
    value, binds = _expr(cast.value, scope)
    tight = _within(value, binds, UNARY)
    if cast.value.dtype is target:
        return value, binds
    if target is DType.BOOL:
        zero = literal(Lit(0.0 if source.is_float else 0, source))
        return f"(uint8_t)({_within(value, binds, SUM)} != {zero})", UNARY
    if cast.mode == "bits":
        return _bits(cast, scope)
    if target in HALF:
        single = value if source is DType.F32 else f"(float){tight}"
        return f"raot_{target.value}_round({single})", ATOM
    if target.is_stored_float:
        return f"raot_{target.value}_to_f32({_narrow_code(cast, scope)})", ATOM
    if target.is_stored_int:
        return _narrow_int(cast, scope), ATOM
    if source is DType.F32 and cast.mode == "saturate" and target.is_int:
        rounded = _rounded(cast, scope)
        if rounded:
            return rounded, ATOM
    if source.is_float and target.is_int:
        from_ = "f64" if source is DType.F64 else "f32"
        how = "sat" if cast.mode == "saturate" else "wrap"
        return f"raot_{from_}_to_{target.value}_{how}({value})", ATOM
    if source is target:
        return value, binds
    if _clamps(source, cast):
        return f"raot_clamp_{target.value}({value})", ATOM
    if source is DType.U64 and target.is_int and cast.mode == "saturate":
        return f"raot_satu_{target.value}({value})", ATOM
    if source.is_int and target.is_int and cast.mode == "saturate":
        wide = value if source is DType.I64 else f"(int64_t){tight}"
        return f"raot_sat_{target.value}({wide})", ATOM
    return f"({C_TYPES[target]}){tight}", UNARY


def _clamps(source: DType, cast: Cast) -> bool:
    """An integer that an int32_t holds becomes a narrower one."""
    held = source.is_int and (source.bytes < 4 or source is DType.I32)
    return held and cast.mode == "saturate" and cast.dtype.is_int and cast.dtype.bytes < 4


def _rounded(cast: Cast, scope: Scope) -> str:
    """`rint(x)`, or a small integer more, as an integer; empty where it is neither."""
    target = cast.dtype
    match cast.value:
        case Apply("rint", (x,)):
            return f"raot_f32_to_{target.value}_nearest({expr_c(x, scope)})"
        case Binary("+", Apply("rint", (x,)), Cast(Lit() as zero)):
            small = zero.dtype in (DType.I8, DType.U8) and target in (DType.I8, DType.U8)
            if small:
                return f"raot_quantize_{target.value}({expr_c(x, scope)}, {_literal(zero, scope)})"
    return ""


def _narrow_code(cast: Cast, scope: Scope) -> str:
    """A number in the code of a storage type of floats."""
    value, binds = _expr(cast.value, scope)
    single = _computed(cast.value.dtype) is DType.F32
    value = value if single else f"(float){_within(value, binds, UNARY)}"
    saturating, _, rounding = cast.mode.partition("_")
    saturates = saturating == "saturate"
    if cast.dtype is DType.F8E8M0:
        way = f"RAOT_ROUND_{(rounding or 'up').upper()}"
        return f"raot_f32_to_f8e8m0_by({value}, {way}, {int(saturates)})"
    return f"raot_f32_to_{cast.dtype.value}{'_sat' if saturates else ''}({value})"


def _narrow_int(cast: Cast, scope: Scope) -> str:
    """A number as an integer of less than a byte, in an int32_t."""
    whole = expr_c(Cast(cast.value, DType.I32, cast.mode), scope)
    if cast.mode == "saturate":
        low, high = cast.dtype.limits
        return f"raot_clamp_i32({whole}, {low}, {high})"
    return f"raot_{cast.dtype.value}_to_i32(raot_i32_to_{cast.dtype.value}({whole}))"


_BITS_OF = {DType.F32: ("raot_bitsf", "uint32_t"), DType.F64: ("raot_bits", "uint64_t")}
_OF_BITS = {DType.F32: ("raot_of_bitsf", "uint32_t"), DType.F64: ("raot_of_bits", "uint64_t")}


def _bits(cast: Cast, scope: Scope) -> tuple[str, int]:
    """The same bits as another type of the same width, by way of unsigned integers."""
    target = cast.dtype
    if target in HALF:
        return f"raot_{target.value}_to_f32({_bits_stored(cast, scope)})", ATOM
    source = cast.value.dtype
    if source in HALF:
        whole = f"({C_TYPES[source]}){_within(stored(cast.value, source, scope), SUM, ATOM)}"
    elif source in _BITS_OF:
        whole = f"{_BITS_OF[source][0]}({expr_c(cast.value, scope)})"
    else:
        whole = _operand(cast.value, scope, UNARY)
    if target in _OF_BITS:
        function, wanted = _OF_BITS[target]
        return f"{function}(({wanted}){whole})", ATOM
    return f"({C_TYPES[target]}){whole}", UNARY


def _bits_stored(cast: Cast, scope: Scope) -> str:
    """Bits of a half-precision type, as they lie in memory."""
    source = cast.value.dtype
    whole = stored(cast.value, source, scope) if source in HALF else expr_c(cast.value, scope)
    return f"(uint16_t)({whole})"


def print_kernel(
    kernel: Kernel,
    buffers: Mapping[str, str],
    symbols: Mapping[str, str],
    bounds: Bounds,
    numbers: Numbers | None = None,
    taken: Iterable[str] = (),
    alone: Apart = NONE,
) -> str:
    """The body of a kernel's C function, indented by one level. `taken`: names of its
    parameters beside buffers and symbols; `alone`: what a value analysis looks at one by one."""
    printer = Printer(Names([*buffers.values(), *symbols.values(), *taken]))
    printer.turns, printer.alone = Turns(reserved_names(kernel.body)), alone
    printer.body(kernel.body, Scope(dict(symbols), bounds, buffers, numbers or Plain()), 1)
    if kernel.fallible:
        printer.lines.add(1, "return RAOT_OK;")
    text = printer.lines.text()
    sizes = [c for name, c in symbols.items() if name in alone.sizes]
    used = [c for c in sizes if re.search(rf"\b{c}\b", text)]
    words = set(re.findall(r"\w+", text))
    idle = [buffers[b.name] for b in kernel.inputs if buffers[b.name] not in words]
    first = [f"    (void){c};\n" for c in idle] + [f"    /*@ split {c}; */\n" for c in used]
    return "".join(first) + text
