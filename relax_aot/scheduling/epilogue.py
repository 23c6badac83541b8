"""Requantization epilogues: how an 8-bit value is computed from an integer accumulator.

The forms are those of ops/requantize.py: a float multiplier, a 64-bit product with one shift,
and the upper half of a product with a shift per channel (`nearest`; `twice` and `above` round
as TensorFlow Lite does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.graph import Array
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
)
from relax_aot.ir.parameters import Parameter, surely, whole
from relax_aot.ir.rewrite import map_expr, map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import BYTES, Weighted, number_of, stride
from relax_aot.scheduling.packing import Arrays, elements

STAGED = {dtype: Local("staged", dtype) for dtype in BYTES}
"""The name of the 8-bit value in the statements that follow."""
GREATEST_SHIFT = 62
GREATEST_ZERO = 1 << 14


@dataclass(frozen=True, slots=True)
class Requantization:
    """The accumulator times `scale` as an 8-bit value of `low..high`. `form`: f32, fixed,
    nearest, twice or above. `down`: the shift of a fixed product; else the shift of its upper
    half, without the last position."""

    form: str
    scale: Expr
    down: Expr | None = None
    zero: int = 0
    low: int = 0
    high: int = 0
    dtype: DType = DType.I8

    @property
    def staged(self) -> Local:
        return STAGED[self.dtype]

    @property
    def suffix(self) -> str:
        """Of micro-kernels that write such values."""
        return "_u8" if self.dtype is DType.U8 else ""

    @property
    def loads(self) -> list[Load]:
        parts = (self.scale, *(() if self.down is None else (self.down,)))
        return [load for part in parts for load in loads_of(part)]

    @property
    def parts(self) -> int:
        """Numbers per channel in the table of a micro-kernel."""
        return 1 if self.down is None else 2

    @property
    def table_type(self) -> DType:
        return DType.F32 if self.form == "f32" else DType.I32

    @property
    def shift(self) -> int | Load | None:
        """The whole shift of a product, 0 for a float one; None where it is no literal and no
        load. Shifts that are read are 33 to 62 (ops/requantize.py)."""
        if self.down is None:
            return 0
        number, more = wide_number(self.down), 0 if self.form == "fixed" else 33
        if number is not None:
            return number + more if 32 < number + more <= GREATEST_SHIFT else None
        match self.down:
            case Binary("-", Load() as shift, taken) if shift.dtype is DType.I32:
                return shift if wide_number(taken) == more == 33 else None
        return None

    @property
    def scale_load(self) -> Load:
        assert isinstance(self.scale, Load)
        return self.scale


def requantized(found: Weighted) -> tuple[Requantization, Weighted] | None:
    """The epilogue of an accumulator by one multiplier and shift, both literals or loads, and
    the contraction with the 8-bit value as its sum; None where the sum is used otherwise."""
    result = _split(found, found.after)
    if result is None or result[0].form == "twice" or not isinstance(result[0].scale, Load):
        return None
    if result[0].shift is None:
        return None
    return result


def by_channel(
    found: Weighted, constants: frozenset[str]
) -> tuple[Requantization, Weighted] | None:
    """The epilogue of an accumulator by multipliers and shifts that are known while compiling
    and differ by channel alone, clipping included."""
    after = _inlined(found.after)
    result = _split(found, (after,)) if after is not None else None
    if result is None or result[0].form == "fixed":
        return None
    one, rest = result
    parts = (one.scale, *(() if one.down is None else (one.down,)))
    if not all(known_by_channel(part, found, constants) for part in parts):
        return None
    value, low, high = _limits(rest.store.value, one.dtype)
    if value == one.staged:
        rest = replace(rest, after=(replace(rest.store, value=value),))
        one = replace(one, low=_tighter(one.low, low, max), high=_tighter(one.high, high, min))
    if one.form == "twice" and surely(lambda: one.low >= one.zero):
        one = replace(one, form="above")
    return one, rest


def _split(found: Weighted, after: tuple[Stmt, ...]) -> tuple[Requantization, Weighted] | None:
    results: list[Requantization] = []

    def rule(expr: Expr) -> Expr:
        one = _byte_of(expr, found.sum)
        if one is None:
            return expr
        results.append(one)
        return one.staged

    after = map_exprs(after, rule)
    if not results or any(one != results[0] for one in results) or _uses(after, found.sum):
        return None
    return results[0], replace(found, sum=results[0].staged, after=after)


def _uses(body: tuple[Stmt, ...], local: Local) -> bool:
    return any(expr == local for stmt in body for expr in expressions(stmt))


def _inlined(after: Sequence[Stmt]) -> Store | None:
    """The one store, with the value of each local in its place."""
    inlined: dict[Expr, Expr] = {}

    def rule(expr: Expr) -> Expr:
        return inlined.get(expr, expr) if isinstance(expr, Local) else expr

    *declared, store = after
    for stmt in declared:
        if not isinstance(stmt, Declare):
            return None
        inlined[stmt.local] = map_expr(stmt.value, rule)
    return replace(store, value=map_expr(store.value, rule)) if isinstance(store, Store) else None


def _limits(value: Expr, dtype: DType) -> tuple[Expr, int, int]:
    low, high = dtype.limits
    while isinstance(value, Apply) and value.function in ("min", "max"):
        inner, limit = value.args
        if not isinstance(limit, Lit) or value.dtype is not dtype:
            break
        if value.function == "min":
            high = _tighter(high, whole(limit.value), min)
        else:
            low = _tighter(low, whole(limit.value), max)
        value = inner
    return value, low, high


def _tighter(outer: int, inner: int, which: Callable[[int, int], int]) -> int:
    """The tighter of two limits; one that is a parameter lies within the range of the type."""
    return inner if isinstance(inner, Parameter) else which(outer, inner)


# The forms


def _byte_of(expr: Expr, total: Local) -> Requantization | None:
    if not isinstance(expr, Cast) or expr.dtype not in BYTES or expr.mode != "saturate":
        return None
    value, zero = expr.value, 0
    match value:
        case Binary("+", inner, literal) if (number := number_of(literal)) is not None:
            value, zero = inner, number
    found = _float(value, total) or _fixed(value, total) or _twice(value, total)
    found = replace(found, zero=zero) if found else _nearest(expr.value, total)
    if found is None or not -GREATEST_ZERO < found.zero < GREATEST_ZERO:
        return None
    low, high = expr.dtype.limits
    return replace(found, low=low, high=high, dtype=expr.dtype)


def _float(expr: Expr, total: Local) -> Requantization | None:
    """rint(float(sum) * scale) as an integer; neither NaN nor overflow is possible."""
    match expr:
        case Cast(Cast(Apply("rint", (Binary("*", left, right),)), DType.I32, "saturate"), _):
            for a, b in ((left, right), (right, left)):
                if a == Cast(total, DType.F32) and b.dtype is DType.F32:
                    return Requantization("f32", b)
    return None


def _product(expr: Expr, total: Local) -> Expr | None:
    """The multiplier of the sum, in 64 bits."""
    match expr:
        case Binary("*", left, right):
            for a, b in ((left, right), (right, left)):
                if a == Cast(total, DType.I64) and isinstance(b, Cast) and b.dtype is DType.I64:
                    return b.value if b.value.dtype is DType.I32 else None
    return None


def _fixed(expr: Expr, total: Local) -> Requantization | None:
    """(sum * scale + half) >> shift in 64 bits."""
    match expr:
        case Cast(Binary(">>", Binary("+", product, half), by), DType.I32, "wrap"):
            factor, shift = _product(product, total), wide_number(by)
            if factor is None or shift is None or not 32 < shift <= GREATEST_SHIFT:
                return None
            return (
                Requantization("fixed", factor, by)
                if wide_number(half) == 1 << (shift - 1)
                else None
            )
    return None


def _nearest(expr: Expr, total: Local) -> Requantization | None:
    """((high >> (shift - 33)) + (2 * zero + 1)) >> 1 is high / 2^(shift - 32), rounded half up,
    plus zero; high is the upper half of the product."""
    match expr:
        case Binary(
            ">>",
            Binary(
                "+",
                Binary(">>", Cast(Binary(">>", product, by), DType.I32, "wrap"), down),
                twice,
            ),
            one,
        ):
            factor, odd = _product(product, total), wide_number(twice)
            known = wide_number(by) == 32 and wide_number(one) == 1
            if factor is None or odd is None or odd % 2 == 0 or not known:
                return None
            return Requantization("nearest", factor, down, odd // 2)
    return None


def _twice(expr: Expr, total: Local) -> Requantization | None:
    """((lower >> shift) + 1) >> 1, where lower is the doubled upper half, rounded, minus one
    where it is negative."""
    match expr:
        case Binary(">>", Binary("+", Binary(">>", lower, down), first), second):
            pass
        case _:
            return None
    match lower:
        case Binary("+", whole, Binary(">>", again, sign)) if whole == again:
            pass
        case _:
            return None
    match whole:
        case Cast(Binary(">>", Binary("+", product, half), by), DType.I32, "wrap"):
            factor = _product(product, total)
            numbers = [wide_number(part) for part in (first, second, sign, half, by)]
            if factor is not None and numbers == [1, 1, 31, 1 << 30, 31]:
                return Requantization("twice", factor, down)
    return None


def wide_number(expr: Expr) -> int | None:
    """The value of an integer that is written in the code, where nothing wraps."""
    match expr:
        case Lit(value, dtype) if dtype.is_int:
            return whole(value)
        case Cast(value) if expr.dtype.is_int and expr.mode == "wrap":
            return wide_number(value)
        case Binary(op, left, right) if op in ("<<", "+", "-", "*") and expr.dtype.is_int:
            a, b = wide_number(left), wide_number(right)
            if a is None or b is None or (op == "<<" and not 0 <= b < 63):
                return None
            if op == "<<":
                found = a << b
            else:
                found = a + b if op == "+" else a - b if op == "-" else a * b
            low, high = expr.dtype.limits
            return found if low <= found <= high else None
    return None


# The statements after the 8-bit value


def direct_store(rest: Weighted) -> Store | None:
    """The store of a contraction whose 8-bit value is the result itself."""
    if len(rest.after) != 1 or not isinstance(rest.after[0], Store):
        return None
    store = rest.after[0]
    same = store.value == rest.sum and store.buffer.dtype is rest.sum.dtype
    return store if rest.sum in STAGED.values() and same else None


@dataclass(frozen=True, slots=True)
class QuantizedAdd:
    """(staged * by + other * by_other + more) >> shift, saturated to int8, is the result."""

    store: Store
    other: Load
    by: int
    by_other: int
    more: int
    shift: int


def quantized_add(rest: Weighted) -> QuantizedAdd | None:
    """The addition of another quantized value to the 8-bit value."""
    if len(rest.after) != 1 or not isinstance(rest.after[0], Store):
        return None
    store = rest.after[0]
    match store.value:
        case Cast(Cast(shifted, DType.I32, "saturate"), DType.I8, "saturate"):
            pass
        case Cast(shifted, DType.I8, "saturate"):
            pass
        case _:
            return None
    match shifted:
        case Binary(">>", Binary("+", Binary("+", first, second), constant), by):
            left, right = _scaled(first), _scaled(second)
        case _:
            return None
    more, shift = number_of(constant), number_of(by)
    if left is None or right is None or more is None or shift is None or not 0 < shift < 32:
        return None
    own, other = (left, right) if left[0] == STAGED[DType.I8] else (right, left)
    if own[0] != STAGED[DType.I8] or not isinstance(other[0], Load):
        return None
    return QuantizedAdd(store, other[0], own[1], other[1], more, shift)


def _scaled(expr: Expr) -> tuple[Expr, int] | None:
    """A signed byte times a literal, in 32 bits."""
    match expr:
        case Binary("*", value, factor) if expr.dtype is DType.I32:
            number = number_of(factor)
            while isinstance(value, Cast) and value.dtype is DType.I32 and value.mode == "wrap":
                value = value.value
            return (value, number) if number is not None and value.dtype is DType.I8 else None
    return None


# Tables of multipliers and shifts


def known_by_channel(expr: Expr, found: Weighted, constants: frozenset[str]) -> bool:
    """Whether a value is known while compiling and differs by channel and group alone."""
    match expr:
        case Lit():
            return True
        case Cast(value):
            return expr.mode == "wrap" and known_by_channel(value, found, constants)
        case Binary("-" | "+", left, right):
            return all(known_by_channel(part, found, constants) for part in (left, right))
        case Load():
            loops = (*found.shared, *((found.channel,) if found.channel is not None else ()))
            used = frozenset[str]().union(*(dim.symbols for dim in expr.index))
            steady = all(stride(expr, name) is not None for name in used)
            inside = used <= {loop.variable for loop in loops}
            return expr.buffer.name in constants and inside and steady
    return False


def loads_of(expr: Expr) -> list[Load]:
    parts = expressions(Declare(Local("_", expr.dtype), expr))
    return [part for part in parts if isinstance(part, Load)]


def values_of(expr: Expr, loops: Sequence[For], data: Arrays) -> Array:
    """The values of a known expression, one axis per loop."""
    extents = [loop.stop.constant for loop in loops]
    match expr:
        case Lit(value):
            return np.full(extents, value)
        case Cast(value):
            return values_of(value, loops, data)
        case Binary(op, left, right):
            a, b = values_of(left, loops, data), values_of(right, loops, data)
            return np.asarray(np.subtract(a, b) if op == "-" else np.add(a, b))
        case Load():
            names = [loop.variable for loop in loops]
            return elements(expr, data[expr.buffer.name], names, extents)
    raise AssertionError(expr)


def scale_table(found: Requantization, loops: Sequence[For], data: Arrays) -> Array:
    """Multipliers and, where shifts are needed, negated whole shifts: one axis per loop and a
    last one of both."""
    kind = np.float32 if found.form == "f32" else np.int32
    parts = [values_of(found.scale, loops, data).astype(kind)]
    if found.down is not None:
        parts.append((-1 - values_of(found.down, loops, data).astype(np.int64)).astype(kind))
    return np.stack(parts, axis=-1)
