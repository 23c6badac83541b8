"""What becomes of a sum, where that is a byte and channels lie side by side: each channel has a
multiplier and a shift of its own, which micro-kernels take from a table."""

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
)
from relax_aot.ir.parameters import Parameter, surely, whole
from relax_aot.ir.rewrite import map_expr, map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.integer_match import BYTES, Contraction, gathered, number_of, stride
from relax_aot.scheduling.integer_parts import Arrays, extent
from relax_aot.scheduling.integer_requantize import STAGED, UNSIGNED, uses, wide_number

GREATEST = 62


@dataclass(frozen=True, slots=True)
class Rescaled:
    """The sum times `scale`, as a byte of `low..high`. `form`: that of raot_last_; `down`:
    how many places the upper half of the product moves to the right, less `less`."""

    form: str
    scale: Expr
    down: Expr | None
    less: int
    zero: int
    low: int
    high: int
    dtype: DType = DType.I8

    @property
    def suffix(self) -> str:
        """What is behind the name of a micro-kernel for such bytes."""
        return "_u8" if self.dtype is DType.U8 else ""

    @property
    def staged(self) -> Local:
        return UNSIGNED if self.dtype is DType.U8 else STAGED

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.scale,) if self.down is None else (self.scale, self.down)


def rescaled(what: Contraction, constants: frozenset[str]) -> tuple[Rescaled, Contraction] | None:
    """What makes a byte of the sum, and what becomes of that byte, called `staged`; None where
    the sum is used otherwise."""
    after = _inlined(what.after)
    if after is None:
        return None
    found: list[Rescaled] = []

    def rule(expr: Expr) -> Expr:
        one = _byte_of(expr, what.sum)
        if one is None:
            return expr
        found.append(one)
        return one.staged

    (store,) = map_exprs((after,), rule)
    assert isinstance(store, Store)
    if not found or any(one != found[0] for one in found) or uses((store,), what.sum):
        return None
    one = found[0]
    if not all(_known(part, what, constants) for part in one.parts):
        return None
    value, low, high = _limited(store.value, one.dtype)
    if value == one.staged:
        store = replace(store, value=value)
        one = replace(one, low=_inner(one.low, low, max), high=_inner(one.high, high, min))
    if one.form == "twice" and surely(lambda: one.low >= one.zero):
        one = replace(one, form="above")
    return one, replace(what, sum=one.staged, after=(store,))


def _inlined(after: Sequence[Stmt]) -> Store | None:
    """The one store, with the value of each local in its place."""
    inlined: dict[Local, Expr] = {}

    def rule(expr: Expr) -> Expr:
        return inlined.get(expr, expr) if isinstance(expr, Local) else expr

    *declared, store = after
    for stmt in declared:
        if not isinstance(stmt, Declare):
            return None
        inlined[stmt.local] = map_expr(stmt.value, rule)
    if not isinstance(store, Store):
        return None
    return replace(store, value=map_expr(store.value, rule))


def _limited(value: Expr, dtype: DType) -> tuple[Expr, int, int]:
    low, high = dtype.limits
    while isinstance(value, Apply) and value.function in ("min", "max"):
        inner, limit = value.args
        if not isinstance(limit, Lit) or value.dtype is not dtype:
            break
        if value.function == "min":
            high = _inner(high, whole(limit.value), min)
        else:
            low = _inner(low, whole(limit.value), max)
        value = inner
    return value, low, high


def _inner(outer: int, inner: int, which: Callable[[int, int], int]) -> int:
    """The tighter of two limits; one that is a parameter lies within what the type holds."""
    return inner if isinstance(inner, Parameter) else which(outer, inner)


def _byte_of(expr: Expr, total: Local) -> Rescaled | None:
    if not isinstance(expr, Cast) or expr.dtype not in BYTES or expr.mode != "saturate":
        return None
    value, zero = expr.value, 0
    match value:
        case Binary("+", inner, literal) if (number := number_of(literal)) is not None:
            value, zero = inner, number
    found = _float(value, total) or _twice(value, total)
    if found is None:
        found, zero = _nearest(expr.value, total), 0
    if found is None or not -(1 << 14) < zero + found.zero < 1 << 14:
        return None
    low, high = expr.dtype.limits
    return replace(found, zero=found.zero + zero, low=low, high=high, dtype=expr.dtype)


def _made(form: str, scale: Expr, down: Expr | None, less: int = 0, zero: int = 0) -> Rescaled:
    return Rescaled(form, scale, down, less, zero, *DType.I8.limits)


def _float(expr: Expr, total: Local) -> Rescaled | None:
    """rint(float(sum) * scale) as an integer, which NaN and overflow are ruled out for."""
    match expr:
        case Cast(Cast(Apply("rint", (Binary("*", left, right),)), DType.I32, "saturate"), _):
            for a, b in ((left, right), (right, left)):
                if a == Cast(total, DType.F32) and b.dtype is DType.F32:
                    return _made("f32", b, None)
    return None


def _product(expr: Expr, total: Local) -> Expr | None:
    """What the sum is multiplied by, in 64 bits."""
    match expr:
        case Binary("*", left, right):
            for a, b in ((left, right), (right, left)):
                if a == Cast(total, DType.I64) and isinstance(b, Cast) and b.dtype is DType.I64:
                    return b.value if b.value.dtype is DType.I32 else None
    return None


def _nearest(expr: Expr, total: Local) -> Rescaled | None:
    """((high >> (shift - 33)) + (2 * zero + 1)) >> 1 is high / 2^(shift - 32), halves up, plus
    zero."""
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
            return _made("nearest", factor, down, -1, odd // 2)
    return None


def _twice(expr: Expr, total: Local) -> Rescaled | None:
    """((lower >> shift) + 1) >> 1, where lower is the doubled upper half, rounded, and less
    by one where it is negative."""
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
            if factor is None or numbers != [1, 1, 31, 1 << 30, 31]:
                return None
            return _made("twice", factor, down, -1)
    return None


# The table


def _known(expr: Expr, what: Contraction, constants: frozenset[str]) -> bool:
    """Whether it is known while compiling and differs by channel and group alone."""
    match expr:
        case Lit():
            return True
        case Cast(value):
            return expr.mode == "wrap" and _known(value, what, constants)
        case Binary("-" | "+", left, right):
            return all(_known(part, what, constants) for part in (left, right))
        case Load():
            names = {loop.variable for loop in what.shared}
            names |= {what.channel.variable} if what.channel is not None else set()
            used = frozenset[str]().union(*(dim.symbols for dim in expr.index))
            steady = all(stride(expr, name) is not None for name in used)
            return expr.buffer.name in constants and used <= names and steady
    return False


def loads_of(expr: Expr | None) -> list[Load]:
    found: list[Load] = []

    def note(part: Expr) -> Expr:
        if isinstance(part, Load):
            found.append(part)
        return part

    if expr is not None:
        map_expr(expr, note)
    return found


def values(expr: Expr, loops: Sequence[For], data: Arrays) -> Array:
    """A part of what is rescaled by, one axis per loop."""
    extents = [extent(loop) for loop in loops]
    match expr:
        case Lit(value):
            return np.full(extents, value)
        case Cast(value):
            return values(value, loops, data)
        case Binary(op, left, right):
            a, b = values(left, loops, data), values(right, loops, data)
            return np.asarray(np.subtract(a, b) if op == "-" else np.add(a, b))
        case Load():
            names = [loop.variable for loop in loops]
            return gathered(expr, data[expr.buffer.name], names, extents)
    raise AssertionError(expr)


def table(found: Rescaled, loops: Sequence[For], order: Sequence[int], data: Arrays) -> Array:
    """Multipliers and shifts as micro-kernels read them: four of each in turn. The last of the
    loops is the channel; `order` says which channel stands at each place."""
    lanes = np.array([max(channel, 0) for channel in order])
    absent = np.array([channel < 0 for channel in order])
    kind = np.float32 if found.form == "f32" else np.int32
    scale = values(found.scale, loops, data)[..., lanes].astype(kind)
    scale[..., absent] = 0
    parts = [scale.reshape(*scale.shape[:-1], -1, 1, 4)]
    if found.down is not None:
        down = values(found.down, loops, data).astype(np.int64)[..., lanes]
        shift = (found.less - down).astype(kind)
        shift[..., absent] = 0
        parts.append(shift.reshape(*shift.shape[:-1], -1, 1, 4))
    joined = np.concatenate(parts, axis=-2)
    return np.ascontiguousarray(joined.reshape(*joined.shape[:-3], -1))
