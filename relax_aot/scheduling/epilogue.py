# SPDX-License-Identifier: Apache-2.0
"""Requantization epilogues: how an 8-bit value is computed from an integer accumulator.

The forms are those of ops/requantize.py: a float multiplier, a 64-bit product with one shift,
and the upper half of a product with a shift per channel (`nearest`; `twice` and `above` round
as TensorFlow Lite does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

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
    binary,
    expressions,
    parts,
)
from relax_aot.ir.parameters import Parameter, surely, whole
from relax_aot.ir.rewrite import map_expr, map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import BYTES, Weighted, number_of
from relax_aot.scheduling.packing import Arrays, elements

STAGED = {dtype: Local("staged", dtype) for dtype in BYTES}
"""The name of the 8-bit value in the statements that follow."""
GREATEST_SHIFT = 62
GREATEST_ZERO = 1 << 14


@dataclass(frozen=True, slots=True)
class Requantization:
    """The accumulator times `scale` as an 8-bit value of `low..high`. `form`: f32, nearest, twice
    or above. `down`: the shift of the upper half of a product, without the last position."""

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
    def numbers(self) -> list[Expr]:
        """The multiplier, and the shift of a product."""
        return [self.scale] if self.down is None else [self.scale, self.down]

    @property
    def loads(self) -> list[Load]:
        """What they read, the multiplier first."""
        found = (part for number in self.numbers for part in parts(number))
        return [part for part in found if isinstance(part, Load)]

    @property
    def table_type(self) -> DType:
        return DType.F32 if self.form == "f32" else DType.I32

    @property
    def shift(self) -> int | Load | None:
        """The whole shift of a product, 0 for a float one; None where it is no literal and no
        load. Shifts that are read are 33 to 62 (ops/requantize.py)."""
        if self.down is None:
            return 0
        number = number_of(self.down)
        if number is not None:
            return number + 33 if 0 <= number <= GREATEST_SHIFT - 33 else None
        match self.down:
            case Binary("-", Load() as shift, taken) if shift.dtype is DType.I32:
                return shift if number_of(taken) == 33 else None
        return None


def requantized(found: Weighted) -> tuple[Requantization, Weighted] | None:
    """The epilogue of an accumulator by one multiplier and shift, both literals or loads, and
    the contraction with the 8-bit value as its sum; None where the sum is used otherwise."""
    result = _split(found, found.after)
    one = result[0] if result else None
    fits = one and one.form != "twice" and isinstance(one.scale, Load) and one.shift is not None
    return result if fits else None


def by_channel(
    found: Weighted, constants: frozenset[str]
) -> tuple[Requantization, Weighted] | None:
    """The epilogue of an accumulator by multipliers and shifts that are known while compiling
    and differ by channel alone, clipping included."""
    after = inlined(found.after)
    result = _split(found, (after,)) if after is not None else None
    if result is None:
        return None
    one, rest = result
    if not all(found.known_by_channel(number, constants) for number in one.numbers):
        return None
    assert rest.store is not None
    value, clipped = _clipped(rest.store.value, one)
    if value == one.staged:
        one, rest = clipped, replace(rest, after=(replace(rest.store, value=value),))
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
    uses = any(expr == found.sum for stmt in after for expr in expressions(stmt))
    if not results or any(one != results[0] for one in results) or uses:
        return None
    return results[0], replace(found, sum=results[0].staged, after=after)


def inlined(after: Sequence[Stmt]) -> Store | None:
    """The one store, with the value of each local in its place."""
    values: dict[Expr, Expr] = {}

    def rule(expr: Expr) -> Expr:
        return values.get(expr, expr) if isinstance(expr, Local) else expr

    *declared, store = after
    for stmt in declared:
        if not isinstance(stmt, Declare):
            return None
        values[stmt.local] = map_expr(stmt.value, rule)
    return replace(store, value=map_expr(store.value, rule)) if isinstance(store, Store) else None


def _clipped(value: Expr, one: Requantization) -> tuple[Expr, Requantization]:
    """A value before it is clipped to literals, and the epilogue clipped to them. A literal that
    is a parameter lies within the range of the type."""
    while isinstance(value, Apply) and value.function in ("min", "max"):
        function, (inner, limit) = value.function, value.args
        if not isinstance(limit, Lit) or value.dtype is not one.dtype:
            break
        value, bound = inner, whole(limit.value)
        free = isinstance(bound, Parameter)
        if function == "min":
            one = replace(one, high=bound if free else min(one.high, bound))
        else:
            one = replace(one, low=bound if free else max(one.low, bound))
    return value, one


# The forms


SUM, SCALE, SHIFT, ODD = (Local(name, DType.I32) for name in ("sum", "scale", "shift", "odd"))


def _forms() -> dict[str, Expr]:
    product = Cast(SUM, DType.I64) * Cast(SCALE, DType.I64)
    doubled = Cast(binary(">>", product + (1 << 30), 31), DType.I32)
    lower = binary(">>", doubled + binary(">>", doubled, 31), SHIFT)
    upper = binary(">>", Cast(binary(">>", product, 32), DType.I32), SHIFT)
    rounded = Apply("rint", (Cast(SUM, DType.F32) * Local("scale", DType.F32),))
    return {
        "f32": Cast(rounded, DType.I32, "saturate"),
        "twice": binary(">>", lower + 1, 1),
        "nearest": binary(">>", upper + ODD, 1),
    }


FORMS = _forms()
"""The patterns of accumulators times a scale. The zero point follows, but for `nearest`: there the
odd number is twice the zero point and one, which rounds the product half up."""


def matched(pattern: Expr, expr: Expr, holes: Mapping[str, Expr]) -> Mapping[str, Expr] | None:
    """What stands in `expr` for each local of the pattern, added to `holes`; None where they
    differ. Numbers may be written in any way, and operands of sums and products exchanged."""
    while isinstance(expr, Cast) and expr.dtype is expr.value.dtype:
        expr = expr.value
    match pattern, expr:
        case Local(name), _:
            same = expr.dtype is pattern.dtype and holes.get(name, expr) == expr
            return {**holes, name: expr} if same else None
        case Lit(), _:
            same = expr == pattern or number_of(expr) == pattern.value
            return holes if same else None
        case Cast(), Cast() if (pattern.dtype, pattern.mode) == (expr.dtype, expr.mode):
            return matched(pattern.value, expr.value, holes)
        case Apply(name, args), Apply(other, values) if (name, len(args)) == (other, len(values)):
            found: Mapping[str, Expr] | None = holes
            for inner, value in zip(args, values, strict=True):
                found = None if found is None else matched(inner, value, found)
            return found
        case Binary(op, left, right), Binary(other) if op == other:
            orders = ((expr.left, expr.right), (expr.right, expr.left))
            for a, b in orders if op in "+*" else orders[:1]:
                first = matched(left, a, holes)
                both = None if first is None else matched(right, b, first)
                if both is not None:
                    return both
    return None


def _byte_of(expr: Expr, total: Local) -> Requantization | None:
    if not isinstance(expr, Cast) or expr.dtype not in BYTES or expr.mode != "saturate":
        return None
    choices = [(expr.value, 0)]
    match expr.value:
        case Binary("+", inner, literal) if (number := number_of(literal)) is not None:
            choices.append((inner, number))
    for (form, pattern), (value, zero) in product(FORMS.items(), choices):
        found = matched(pattern, value, {"sum": total})
        if found is None:
            continue
        if form == "nearest":
            odd = number_of(found["odd"])
            if value is not expr.value or odd is None or odd % 2 == 0:
                continue
            zero = odd // 2
        if -GREATEST_ZERO < zero < GREATEST_ZERO:
            scale, down = found["scale"], found.get("shift")
            return Requantization(form, scale, down, zero, *expr.dtype.limits, expr.dtype)
    return None


# The statements after the 8-bit value


def direct_store(rest: Weighted) -> Store | None:
    """The store of a contraction whose 8-bit value is the result itself."""
    store = rest.store
    return store if store and rest.sum in STAGED.values() and store.value == rest.sum else None


@dataclass(frozen=True, slots=True)
class QuantizedAdd:
    """(staged * a_factor + other * b_factor + offset) >> shift, saturated to int8. Numbers of the
    form `wide` have 16 bits more: (staged * a_low + other * b_low + offset_low) >> 16 is added
    before the shift."""

    store: Store
    other: Load
    numbers: Mapping[str, int]

    @property
    def kernel(self) -> str:
        return "raot_qadd_wide_s8" if "a_low" in self.numbers else "raot_qadd_s8"


def quantized_add(rest: Weighted) -> QuantizedAdd | None:
    """The addition of another quantized value to the 8-bit value."""
    own, other = (Cast(Local(name, DType.I8), DType.I32) for name in ("own", "other"))

    def total(*names: str) -> Expr:
        a, b, offset = (Local(name, DType.I32) for name in names)
        return own * a + other * b + offset

    narrow = total("a_factor", "b_factor", "offset")
    lower = binary(">>", total("a_low", "b_low", "offset_low"), 16)
    store, staged = rest.store, {"own": STAGED[DType.I8]}
    for sums in (narrow, binary("+", narrow, lower)):
        pattern = Cast(binary(">>", sums, SHIFT), DType.I8, "saturate")
        found = matched(pattern, store.value, staged) if store else None
        if store is None or found is None or not isinstance(found["other"], Load):
            continue
        numbers = {name: number_of(x) for name, x in found.items() if name not in ("own", "other")}
        known = {name: number for name, number in numbers.items() if number is not None}
        fits = len(known) == len(numbers) and 0 < known["shift"] < 32
        return QuantizedAdd(store, found["other"], known) if fits else None
    return None


# Tables of multipliers and shifts


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
    table = [values_of(found.scale, loops, data).astype(kind)]
    if found.down is not None:
        table.append((-1 - values_of(found.down, loops, data).astype(np.int64)).astype(kind))
    return np.stack(table, axis=-1)


MOST_DOWN = 30
"""A shift that a word of both may have at most."""


def words_of(found: Requantization, loops: Sequence[For], data: Arrays) -> Array | None:
    """The greatest shift, and for each channel a word: 30 bits of the multiplier, whose next bit is
    set, and above them two bits of how far its shift is below the greatest one. None where they do
    not fit."""
    if found.down is None:
        return None
    table = scale_table(found, loops, data).astype(np.int64).reshape(-1, 2)
    scales, shifts = table[:, 0], table[:, 1]
    if found.form == "nearest":  # rounded once, so that both may be doubled
        for _ in range(MOST_DOWN):
            small = (scales > 0) & (scales < 1 << 30)
            scales, shifts = np.where(small, 2 * scales, scales), shifts - small
    base = int(shifts.max(initial=-MOST_DOWN))
    fits = (scales >= 1 << 30) & (base - shifts < 4) & (shifts >= -MOST_DOWN)
    if not fits.all():
        return None
    words = (scales - (1 << 30)) | (base - shifts) << 30
    return np.asarray(np.concatenate([[base], words]).astype(np.uint32).view(np.int32))
