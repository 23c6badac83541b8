# SPDX-License-Identifier: Apache-2.0
"""Expressions of the loop IR as C.

Half-precision values and narrower floats are computed in float and rounded when stored; integers
of less than a byte are int32_t. Integer arithmetic that may wrap goes through the helpers of
raot/integer.h; what cannot wrap is plain C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from relax_aot.emit.c_dims import (
    AND,
    ATOM,
    EQUALITY,
    OR,
    PRODUCT,
    RELATION,
    SUM,
    TERNARY,
    UNARY,
    linear_c,
    sum_c,
    within,
)
from relax_aot.ir.dims import Bounds, Dim, interval, row_major
from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
    COMPARISONS,
    LOGICAL,
    PLAIN,
    Apply,
    Binary,
    Buffer,
    Cast,
    Expr,
    For,
    Index,
    Let,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Unary,
)
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.ir.value_ranges import EXACT, Known, exact

_INTEGER_HELPERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod",
    "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr",
}  # fmt: skip
_CLIPS = {"max": "at_least", "min": "at_most"}
_INTEGER_FUNCTIONS = {"max": "larger", "min": "smaller"}
_PRECEDENCE = {
    "*": PRODUCT, "/": PRODUCT, "+": SUM, "-": SUM, "<": RELATION, "<=": RELATION,
    "==": EQUALITY, "!=": EQUALITY, "&&": AND, "||": OR,
}  # fmt: skip
_PLAIN = (DType.I32, DType.I64)
"""Types whose arithmetic is plain C where it cannot wrap: C promotes narrower ones."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one point of a kernel."""

    names: Mapping[str, str]
    known: Known
    buffers: Mapping[str, str]
    numbers: frozenset[str] = frozenset()
    """Scalars that take the place of numbers."""
    fixed: bool = False
    """The kernel has no symbolic size."""
    plain_shifts: bool = False
    """Shifts by fewer bits than a type has are those of C: all to the right, and of 32 bits to the
    left."""
    quotients: bool = False
    """Floats are divided by raot_quotientf, which calls no function."""
    lets: Mapping[Dim, str] = field(default_factory=dict)
    """C names of the values that have one, so that an index is checked and used by one name."""

    @property
    def bounds(self) -> Bounds:
        return self.known.bounds

    @property
    def values(self) -> dict[str, Dim]:
        """What the indices that have names stand for."""
        values = {c_name: dim for dim, c_name in self.lets.items()}
        return {name: values[c] for name, c in self.names.items() if c in values}

    def inside(self, loop: For, c_name: str) -> Scope:
        known = self.known.inside(loop)
        return replace(self, names={**self.names, loop.variable: c_name}, known=known)

    def after(self, stmt: Stmt, name: str, c_name: str) -> Scope:
        """Behind the definition of `name`."""
        names, lets = {**self.names, name: c_name}, self.lets
        if isinstance(stmt, Let) and not stmt.value.is_constant:
            lets = {**lets, stmt.value: c_name}
        return replace(self, names=names, known=self.known.after(stmt), lets=lets)

    def dim(self, dim: Dim) -> str:
        return self.bound_dim(dim)[0]

    def bound_dim(self, dim: Dim) -> tuple[str, int]:
        named = self.lets.get(dim)
        return (named, ATOM) if named else sum_c(dim.terms, self.names, self.bounds)

    def _from_outside(self, dim: Dim) -> str:
        """The sum with the terms in the order of the loops."""
        order = {name: position for position, name in enumerate(self.names)}
        terms = sorted(
            dim.terms, key=lambda term: max(map(order.__getitem__, Dim((term,)).symbols), default=0)
        )
        return sum_c(tuple(terms), self.names, self.bounds)[0]

    def element(self, buffer: Buffer, index: tuple[Dim, ...]) -> str:
        # With `column = i - row * columns`, `row * columns + column` is i. Where other parts need
        # the row, as in clipped windows, it also serves here: that leaves more registers.
        values = self.values
        sums = {name: dim for name, dim in values.items() if dim.is_polynomial}
        whole = row_major(index, buffer.shape)
        shorter = whole.substitute(sums)
        if len(shorter.symbols) < len(whole.symbols) and shorter.symbols.isdisjoint(values):
            whole, index = shorter, (shorter,)
        if len(index) == 1:
            return f"{self.buffers[buffer.name]}[{self._from_outside(whole)}]"
        # By measure: in kernels with symbolic sizes, products within sums leave more registers.
        flat = self.fixed or not all(size.is_constant for size in buffer.shape[:1])
        at = linear_c(index, buffer.shape, self.names, self.bounds, flat=flat)
        return f"{self.buffers[buffer.name]}[{at}]"


def address(load: Load, scope: Scope) -> str:
    element = scope.element(load.buffer, load.index)
    return element.removesuffix("[0]") if element.endswith("[0]") else f"&{element}"


def computed(dtype: DType) -> DType:
    """The element type whose C type holds a value of `dtype` between load and store."""
    if dtype.is_narrow:
        return DType.F32
    return DType.I32 if dtype.is_stored_int else dtype


def _encoded(dtype: DType) -> bool:
    """Memory holds an encoding of the value."""
    return dtype.is_half or dtype.is_storage


def stored(value: Expr, dtype: DType, scope: Scope) -> str:
    """A value as it is written to memory of `dtype`."""
    if _encoded(dtype) and value.dtype is dtype:
        # What is moved unchanged keeps its bits.
        if isinstance(value, Load):
            return scope.element(value.buffer, value.index)
        if isinstance(value, Cast) and value.mode == "bits":
            return _bits_stored(value, scope)
        if isinstance(value, Cast) and dtype.is_stored_float:
            return _narrow_code(value, scope)
    if _encoded(dtype):
        return f"raot_{computed(dtype).value}_to_{dtype.value}({_unrounded(value, dtype, scope)})"
    text, binds = _expr(_unwidened(value), scope)
    byte = isinstance(value, Load | Local | Cast | Lit)
    return text if dtype is not DType.BOOL or byte else f"(uint8_t){within(text, binds, UNARY)}"


def _unrounded(value: Expr, dtype: DType, scope: Scope) -> str:
    """A value without the rounding that memory of `dtype` does anyway."""
    rounds = dtype.is_half and isinstance(value, Cast) and value.dtype is dtype
    if rounds and isinstance(value, Cast) and computed(value.value.dtype) is DType.F32:
        return expr_c(value.value, scope)
    return expr_c(value, scope)


def expr_c(expr: Expr, scope: Scope) -> str:
    """An expression of the C type of its element type."""
    return _expr(expr, scope)[0]


def kept(value: Expr, scope: Scope) -> str:
    """A value as a scalar holds it: predicates give an int."""
    if value.dtype is DType.BOOL and isinstance(value, Apply | Select):
        return stored(value, DType.BOOL, scope)
    return expr_c(_unwidened(value), scope)


def condition_c(condition: Expr, scope: Scope) -> str:
    """The condition of an `if`: a comparison; bytes and results of functions are compared."""
    if isinstance(condition, Binary | Unary):
        return expr_c(condition, scope)
    return f"{operand(condition, scope, SUM)} != 0"


def operand(expr: Expr, scope: Scope, least: int) -> str:
    return within(*_expr(expr, scope), least)


def _unwidened(expr: Expr) -> Expr:
    """Without a cast that assigning or passing the value implies: to a wider type of the same
    sign."""
    if not isinstance(expr, Cast) or expr.mode != "wrap":
        return expr
    inner, target = expr.value, expr.dtype
    if not isinstance(inner, Load | Local) or not (inner.dtype.is_int and target.is_int):
        return expr
    same = inner.dtype.is_signed == target.is_signed
    return inner if same and inner.dtype.bytes < target.bytes else expr


def _expr(expr: Expr, scope: Scope) -> tuple[str, int]:
    match expr:
        case Lit():
            text = literal(expr)
            return text, UNARY if text.startswith("-") else ATOM
        case Local():
            return scope.names[expr.name], ATOM
        case Index():
            text, binds = scope.bound_dim(expr.dim)
            return (text, ATOM) if text.isdigit() else (_cast_c(DType.I64, text, binds), UNARY)
        case Load():
            text = scope.element(expr.buffer, expr.index)
            if _encoded(expr.dtype):
                text = f"raot_{expr.dtype.value}_to_{computed(expr.dtype).value}({text})"
            return text, ATOM
        case Unary("-", value) if not expr.dtype.is_float:
            return f"raot_neg_{expr.dtype.value}({expr_c(_unwidened(value), scope)})", ATOM
        case Unary(op, value):
            return f"{op}{operand(value, scope, ATOM)}", UNARY
        case Binary():
            return _binary(expr, scope)
        case Apply("fraction"):
            return _expr(PLAIN["fraction"](*expr.args), scope)
        case Apply("exp_below") if expr.dtype is not DType.F32:
            return _expr(PLAIN["exp_below"](*expr.args), scope)
        case Apply():
            expr = _clipped(expr, scope)
            args = ", ".join(expr_c(_unwidened(arg), scope) for arg in expr.args)
            function, dtype = expr.function, expr.args[0].dtype
            if dtype.is_float:
                return f"raot_{function}{'' if dtype is DType.F64 else 'f'}({args})", ATOM
            function = _INTEGER_FUNCTIONS.get(function, function)
            return f"raot_{function}_{dtype.value}({args})", ATOM
        case Cast():
            return _cast(expr, scope)
        case Select():
            return _select(expr, scope)


def _cast_c(dtype: DType, text: str, binds: int) -> str:
    return f"({C_TYPES[dtype]}){within(text, binds, UNARY)}"


def _clipped(expr: Apply, scope: Scope) -> Apply:
    """The larger or smaller of a float and a number that is no NaN needs one comparison."""
    numbers = [  # literals, and what takes the place of one, that are no NaN
        arg
        for arg in expr.args
        if (isinstance(arg, Local) and arg.name in scope.numbers)
        or (isinstance(arg, Lit) and not math.isnan(arg.value))
    ]
    if expr.function not in _CLIPS or not expr.args[0].dtype.is_float or len(numbers) != 1:
        return expr
    (other,) = (a for a in expr.args if a is not numbers[0])
    return Apply(_CLIPS[expr.function], (other, numbers[0]))


def _select(expr: Select, scope: Scope) -> tuple[str, int]:
    condition, then = (operand(e, scope, OR) for e in (expr.condition, expr.then))
    text = f"{condition} ? {then} : {operand(expr.otherwise, scope, OR)}"
    if expr.dtype.bytes < 4 and not _encoded(expr.dtype):
        return f"({C_TYPES[expr.dtype]})({text})", UNARY
    return text, TERNARY


def literal(lit: Lit) -> str:
    match computed(lit.dtype):
        case DType.BOOL:
            return str(int(bool(lit.value)))
        case DType.F64:
            return _float_text(float(lit.value), "", repr(float(lit.value)))
        case DType.F32:
            with np.errstate(over="ignore"):
                return single_texts(np.asarray([lit.value], dtype=np.float32))[0]
        case whole:
            return _integer_text(int(lit.value), whole)


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


def _binary(expr: Binary, scope: Scope) -> tuple[str, int]:
    op = expr.op
    if op in LOGICAL:
        # A chain of one operator needs no parentheses; && within || has them.
        texts = []
        for side in (expr.left, expr.right):
            chained = isinstance(side, Binary) and side.op == op
            texts.append(operand(side, scope, _PRECEDENCE[op] if chained else EQUALITY))
        return f"{texts[0]} {op} {texts[1]}", _PRECEDENCE[op]
    if op in COMPARISONS:
        sides = [_index(side) for side in (expr.left, expr.right)]
        if sides[0] is not None and sides[1] is not None:
            texts = [within(*scope.bound_dim(side), SUM) for side in sides if side is not None]
        else:
            texts = [operand(side, scope, SUM) for side in (expr.left, expr.right)]
        return f"{texts[0]} {op} {texts[1]}", _PRECEDENCE[op]
    dtype = expr.left.dtype
    if dtype.is_float or (op in EXACT and dtype in _PLAIN and exact(expr, scope.known)):
        if (
            op == "/"
            and scope.quotients
            and computed(dtype) is DType.F32
            and not _is_power(expr.right)
        ):
            return f"raot_quotientf({expr_c(expr.left, scope)}, {expr_c(expr.right, scope)})", ATOM
        binds = _PRECEDENCE[op]
        left = operand(expr.left, scope, binds)
        return f"{left} {op} {operand(expr.right, scope, binds + 1)}", binds
    left, right = (expr_c(_unwidened(side), scope) for side in (expr.left, expr.right))
    if op == ">>" and scope.plain_shifts and (bits := _bits_shifted(expr, scope)) is not None:
        shifted = f"{within(*_expr(_unwidened(expr.left), scope), UNARY)} >> {bits}"
        return f"({C_TYPES[dtype]})({shifted})", UNARY
    if op == "<<" and scope.plain_shifts and dtype is DType.I32:
        bits = _short_bits(expr.right, 8 * dtype.bytes, scope)
        if bits is not None:
            shifted = within(*_expr(_unwidened(expr.left), scope), UNARY)
            return f"(int32_t)((uint32_t){shifted} << {bits})", UNARY
    return f"raot_{_INTEGER_HELPERS[op]}_{dtype.value}({left}, {right})", ATOM


def _is_power(expr: Expr) -> bool:
    """A power of two, by which compilers multiply."""
    return isinstance(expr, Lit) and abs(math.frexp(expr.value)[0]) == 0.5


def _bits_shifted(expr: Binary, scope: Scope) -> str | None:
    """The size by which an unsigned number is shifted, if it is less than the bits of its type."""
    dtype = expr.left.dtype
    return None if dtype.is_signed else _short_bits(expr.right, 8 * dtype.bytes, scope)


def _short_bits(expr: Expr, most: int, scope: Scope) -> str | None:
    """A size that is known to be less than `most`."""
    match expr:
        case Cast(Index() as size):
            low, high = interval(size.dim, scope.bounds)
            known = low >= 0 and high < most
            return within(*scope.bound_dim(size.dim), PRODUCT) if known else None
        case _:
            return None


def _index(expr: Expr) -> Dim | None:
    """A size, or a literal that is compared with one: both are int32_t in C."""
    if isinstance(expr, Index):
        return expr.dim
    if isinstance(expr, Lit) and expr.dtype is DType.I64 and abs(int(expr.value)) < 2**31:
        return Dim.of(int(expr.value))
    return None


def _cast(cast: Cast, scope: Scope) -> tuple[str, int]:
    source, target = computed(cast.value.dtype), cast.dtype
    # Sizes are int32_t in C: no conversion by way of int64_t changes them.
    holds_size = target in (DType.I32, DType.I64, DType.F32, DType.F64)
    if isinstance(cast.value, Index) and cast.mode != "bits" and holds_size:
        text, binds = scope.bound_dim(cast.value.dim)
        return (text, binds) if target is DType.I32 else (_cast_c(target, text, binds), UNARY)
    value, binds = _expr(cast.value, scope)
    if cast.value.dtype is target:
        return value, binds
    if target is DType.BOOL:
        zero = literal(Lit(0.0 if source.is_float else 0, source))
        return f"(uint8_t)({within(value, binds, SUM)} != {zero})", UNARY
    if cast.mode == "bits":
        return _bits(cast, scope)
    if target.is_half:
        single = value if source is DType.F32 else _cast_c(DType.F32, value, binds)
        if cast.value.dtype.is_int and cast.value.dtype.bytes == 1:  # it has these values
            return single, ATOM if source is DType.F32 else UNARY
        return f"raot_{target.value}_round({single})", ATOM
    if target.is_stored_float:
        return f"raot_{target.value}_to_f32({_narrow_code(cast, scope)})", ATOM
    if target.is_stored_int:
        return _narrow_int(cast, scope), ATOM
    if source.is_float and target.is_int:
        return _integer_of_float(cast, source, value, scope), ATOM
    if source is target:
        return value, binds
    if cast.mode == "saturate" and source.is_int and target.is_int:
        return _saturated(source, target, value, binds), ATOM
    return _cast_c(target, value, binds), UNARY


def _integer_of_float(cast: Cast, source: DType, value: str, scope: Scope) -> str:
    rounded = _rounded(cast, scope) if source is DType.F32 and cast.mode == "saturate" else ""
    if rounded:
        return rounded
    kind = "f64" if source is DType.F64 else "f32"
    how = "sat" if cast.mode == "saturate" else "wrap"
    return f"raot_{kind}_to_{cast.dtype.value}_{how}({value})"


def _saturated(source: DType, target: DType, value: str, binds: int) -> str:
    if target.bytes < 4 and (source.bytes < 4 or source is DType.I32):
        return f"raot_clamp_{target.value}({value})"
    if source is DType.U64:
        return f"raot_satu_{target.value}({value})"
    wide = value if source is DType.I64 else _cast_c(DType.I64, value, binds)
    return f"raot_sat_{target.value}({wide})"


def _rounded(cast: Cast, scope: Scope) -> str:
    """`rint(x)`, or a small integer more, as an integer; empty where it is neither."""
    target = cast.dtype
    match cast.value:
        case Apply("rint", (x,)):
            return f"raot_f32_to_{target.value}_nearest({expr_c(x, scope)})"
        case Binary("+", Apply("rint", (x,)), shift) if target in (DType.I8, DType.U8):
            zero_point = _zero_point(shift, scope)
            if zero_point:
                return f"raot_quantize_{target.value}({expr_c(x, scope)}, {zero_point})"
    return ""


def _zero_point(shift: Expr, scope: Scope) -> str:
    """A float that is an 8-bit integer, as an integer; empty for others."""
    if isinstance(shift, Cast) and shift.value.dtype in (DType.I8, DType.U8):
        return expr_c(shift.value, scope) if isinstance(shift.value, Lit | Local) else ""
    whole = isinstance(shift, Lit) and float(shift.value).is_integer()
    if isinstance(shift, Lit) and whole and -128 <= shift.value <= 255:
        return str(int(shift.value))
    return ""


def _narrow_code(cast: Cast, scope: Scope) -> str:
    """A number in the code of a storage type of floats."""
    value, binds = _expr(cast.value, scope)
    if computed(cast.value.dtype) is not DType.F32:
        value = _cast_c(DType.F32, value, binds)
    saturating, _, rounding = cast.mode.partition("_")
    saturates = saturating == "saturate"
    if cast.dtype is DType.F8E8M0:
        how = f"RAOT_ROUND_{(rounding or 'up').upper()}"
        return f"raot_f32_to_f8e8m0_by({value}, {how}, {int(saturates)})"
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
    if target.is_half:
        return f"raot_{target.value}_to_f32({_bits_stored(cast, scope)})", ATOM
    source = cast.value.dtype
    if source.is_half:
        whole = f"({C_TYPES[source]})({stored(cast.value, source, scope)})"
    elif source in _BITS_OF:
        whole = f"{_BITS_OF[source][0]}({expr_c(cast.value, scope)})"
    else:
        whole = operand(cast.value, scope, UNARY)
    if target in _OF_BITS:
        function, unsigned = _OF_BITS[target]
        return f"{function}(({unsigned}){whole})", ATOM
    return f"({C_TYPES[target]}){whole}", UNARY


def _bits_stored(cast: Cast, scope: Scope) -> str:
    """Bits of a half-precision type, as they lie in memory."""
    source = cast.value.dtype
    whole = stored(cast.value, source, scope) if source.is_half else expr_c(cast.value, scope)
    return f"(uint16_t)({whole})"
