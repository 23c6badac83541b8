# SPDX-License-Identifier: Apache-2.0
"""Each rule of the folding pass keeps the value, for every content of the buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.fold import RULES, fold_expr, fold_kernel
from relax_aot.ir.loops import (
    Apply,
    Binary,
    Buffer,
    Cast,
    Expr,
    Index,
    Lit,
    Load,
    Select,
    Unary,
    index_dims,
    walk,
)
from relax_aot.ir.parse import parse
from relax_aot.ir.text import kernel_text
from relax_aot.ir.types import DType
from relax_aot.ir.value_ranges import Known, value_range

Values = NDArray[Any]
INTEGERS = tuple(dtype for dtype in DType if dtype.is_int)
OPERATORS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
SOME = 7
"""Of the samples, one in so many is followed through all rules."""
NUMBERS = (0, 1, 2, 3, 5, 7, 8, -1, -2, -3)
KNOWN = Known(Bounds.of({"n": (1, 4)}))


def buffer(dtype: DType) -> Load:
    return Load(Buffer("x", dtype, (Dim.of(1),)), (Dim.of(0),))


def values(dtype: DType) -> Values:
    return np.array(numbers_of(dtype), dtype=object)


def numbers_of(dtype: DType) -> list[int]:
    """All values of eight bits; of wider types those at the ends, around 0 and around powers."""
    if dtype is DType.BOOL:
        return [0, 1]
    low, high = dtype.limits
    if dtype.bits <= 8:
        return list(range(low, high + 1))
    near = {base + step for base in (low, 0, high) for step in range(-3, 4)}
    near |= {sign * (1 << bit) + step for sign in (1, -1) for bit in (7, 8, 15, 16, 31, 32, 62)
             for step in (-1, 0, 1)}  # fmt: skip
    return sorted(value for value in near if low <= value <= high)


def evaluated(expr: Expr, x: Values) -> Values:
    """As raot/integer.h and raot/convert.h have it, in integers without end."""
    match expr:
        case Lit():
            return np.full_like(x, float(expr.value) if expr.dtype.is_float else int(expr.value))
        case Load():
            return x
        case Index():
            return np.full_like(x, expr.dim.evaluate({"n": 4}))
        case Unary("-", value):
            return low_bits(-evaluated(value, x), expr.dtype)
        case Unary(_, value):
            return truth(evaluated(value, x) == 0)
        case Select():
            sides = evaluated(expr.then, x), evaluated(expr.otherwise, x)
            return np.where(evaluated(expr.condition, x) != 0, *sides)
        case Apply(function, (a, b)):
            best = np.maximum if function == "max" else np.minimum
            return np.asarray(best(evaluated(a, x), evaluated(b, x)))
        case Cast():
            return converted(evaluated(expr.value, x), expr)
        case Binary():
            return combined(expr, evaluated(expr.left, x), evaluated(expr.right, x))
        case _:
            raise AssertionError(expr)


def truth(condition: Values) -> Values:
    return condition.astype(int).astype(object)


def low_bits(value: Values, dtype: DType) -> Values:
    low, _ = dtype.limits
    return (value - low) % (1 << dtype.bits) + low


def converted(value: Values, cast: Cast) -> Values:
    if cast.dtype.is_float:
        return value.astype(cast.dtype.numpy).astype(float).astype(object)
    if cast.dtype is DType.BOOL:
        return truth(value != 0)
    low, high = cast.dtype.limits
    if cast.mode == "saturate":
        return np.minimum(np.maximum(value, low), high)
    return low_bits(value, cast.dtype)


def combined(expr: Binary, a: Values, b: Values) -> Values:
    match expr.op:
        case "<" | "<=" | "==" | "!=":
            compared = {"<": a < b, "<=": a <= b, "==": a == b, "!=": a != b}
            return truth(compared[expr.op])
        case "&&":
            return truth((a != 0) & (b != 0))
        case "||":
            return truth((a != 0) | (b != 0))
        case "+" | "-" | "*":
            exact = {"+": a + b, "-": a - b, "*": a * b}[expr.op]
            return exact if expr.dtype.is_float else low_bits(exact, expr.dtype)
        case "&" | "|" | "^":
            return low_bits({"&": a & b, "|": a | b, "^": a ^ b}[expr.op], expr.dtype)
        case "/" | "%":
            some = np.where(b == 0, 1, b)
            if expr.dtype.is_float:
                return a / some
            size = np.abs(a) // np.abs(some)
            quotient = np.where((a < 0) == (some < 0), size, -size)
            result = quotient if expr.op == "/" else a - some * (a // some)
            return low_bits(np.where(b == 0, 0, result), expr.dtype)
        case _:
            bits = expr.dtype.bits
            by = np.minimum(b % (1 << bits), bits)
            return low_bits(a << by if expr.op == "<<" else a >> by, expr.dtype)


def literals(dtype: DType) -> list[Lit]:
    low, high = dtype.limits
    ends = (low, low + 1, high - 1, high, dtype.bits - 1, dtype.bits)
    return [Lit(number, dtype) for number in sorted({*NUMBERS, *ends}) if low <= number <= high]


def arithmetic(dtype: DType) -> Iterator[Expr]:
    """A value with one number and with two, on either side."""
    x, numbers = buffer(dtype), literals(dtype)
    few = [lit for lit in numbers if lit.value in (0, 1, 3, -1, dtype.limits[0], dtype.limits[1])]
    yield from (Binary(op, a, b) for op in OPERATORS for a in numbers for b in numbers)
    yield from (Unary("-", lit) for lit in numbers)
    for op, lit in product((*OPERATORS, "<", "<=", "==", "!="), numbers):
        yield from (Binary(op, x, lit), Binary(op, lit, x), Binary(op, x, x))
    for one, two, a, b in product(OPERATORS, ("+", "-", "*", ">>", "<="), few, few):
        yield Binary(two, Binary(one, x, a), b)
        yield Binary(two, a, Binary(one, x, b))
    for op, a, b in product("+-", few, few):
        yield Binary(op, Binary("+", Binary("*", x, a), x), b)
    for function, a, b in product(("max", "min"), numbers, numbers):
        clamped = Apply(function, (x, a))
        yield from (clamped, Apply("max", (clamped, b)), Apply("min", (b, clamped)))
        yield Binary("<", clamped, b)


def conversions() -> Iterator[Expr]:
    """Two casts one after the other, of values and of literals, in both modes."""
    modes = ("wrap", "saturate")
    for source in (*INTEGERS, DType.BOOL):
        inner: list[Expr] = [buffer(source)]
        inner += [Lit(v, source) for v in numbers_of(source)[::23]]
        if source is DType.I8:
            inner.append(Apply("max", (buffer(source), Lit(0, source))))
        for value, middle, target in product(inner, INTEGERS, (*INTEGERS, DType.F32, DType.F64)):
            for one, two in product(modes, modes):
                yield Cast(Cast(value, middle, one), target, two)
    yield from (Cast(Index(Dim.of(size)), dtype) for size in (0, 3) for dtype in INTEGERS)


def conditions() -> Iterator[Expr]:
    x = buffer(DType.I8)
    small, true, false = (
        Binary("<", x, Lit(3, DType.I8)), Lit(True, DType.BOOL), Lit(False, DType.BOOL),
    )  # fmt: skip
    sides: tuple[Expr, ...] = (small, true, false, Unary("!", small))
    for op, a, b in product(("&&", "||"), sides, sides):
        yield Binary(op, a, b)
    values: tuple[Expr, ...] = (x, Lit(0, DType.I8))
    for condition, a, b in product(sides, values, values):
        yield Select(condition, a, b)
    yield from (Unary("!", side) for side in sides)
    sizes: list[Expr] = [Index(Dim.of(size)) for size in ("n", 0, 2, 5)]
    yield from (Binary("<=", a, b) for a, b in product(sizes, sizes))


def floats() -> Iterator[Expr]:
    x = Cast(buffer(DType.I8), DType.F32)
    for op, number in product("*/", (1.0, 2.0)):
        yield Binary(op, x, Lit(number, DType.F32))


def samples(dtypes: Sequence[DType]) -> Iterator[tuple[DType, Expr]]:
    yield from ((dtype, expr) for dtype in dtypes for expr in arithmetic(dtype))
    for expr in (*conversions(), *conditions(), *floats()):
        yield source_of(expr), expr


def source_of(expr: Expr) -> DType:
    match expr:
        case Load():
            return expr.dtype
        case Unary() | Cast():
            return source_of(expr.value)
        case Binary():
            return source_of(expr.left if not isinstance(expr.left, Lit) else expr.right)
        case Apply():
            return source_of(expr.args[0] if not isinstance(expr.args[0], Lit) else expr.args[1])
        case Select():
            return source_of(expr.condition)
        case _:
            return DType.I8


TYPES = [
    pytest.param((DType.I8,), id="i8"),
    pytest.param((DType.U8, DType.I32), id="u8 and i32", marks=pytest.mark.long),
    pytest.param(
        tuple(d for d in INTEGERS if d.bits in (16, 64)), id="others", marks=pytest.mark.long
    ),
    pytest.param((DType.U32,), id="u32", marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", TYPES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule_keeps_every_value(
    rule: Callable[[Expr, Known], Expr | None], dtypes: Sequence[DType]
) -> None:
    fired = 0
    for dtype, expr in samples(dtypes):
        after = rule(expr, KNOWN)
        if after is None or after == expr:
            continue
        fired += 1
        x = values(dtype)
        assert (evaluated(after, x) == evaluated(expr, x)).all(), (expr, after)
        assert after.dtype is expr.dtype
    assert fired


@pytest.mark.parametrize("dtypes", TYPES)
def test_ranges_hold_every_value_and_folding_ends(dtypes: Sequence[DType]) -> None:
    for dtype, expr in islice(samples(dtypes), 0, None, SOME):
        found, after = value_range(expr, KNOWN), fold_expr(expr, KNOWN)
        assert fold_expr(after, KNOWN) == after
        value = evaluated(expr, x := values(dtype))
        assert (evaluated(after, x) == value).all(), (expr, after)
        assert found is None or found[0] <= value.min() <= value.max() <= found[1], expr


SHIFTED = """\
symbol n in 1..8

kernel @shift(%x: i32[n, 4]) -> (%y: i32[n, 4]) {
  for i in 0..n {
    let row = i
    for j in 0..4 {
      %y[row, j] = BEFORE
    }
  }
}

func @main(%x: i32[n, 4]) {
  %y: i32[n, 4] = call_kernel(%x) {kernel=@shift}
  return %y
}
"""

EXPRESSIONS = [
    ("((%x[row, j] >> 1:i32) + ((-128:i32 * 2:i32) + 1:i32))", "((%x[i, j] >> 1:i32) - 255:i32)"),
    (
        "(((%x[row, j] * 3:i32) + (%x[row, j] * 5:i32)) - 7:i32)",
        "(((%x[i, j] * 3:i32) - 7:i32) + (%x[i, j] * 5:i32))",
    ),
    ("(%x[row, j] >> (37:i32 - 33:i32))", "(%x[i, j] >> 4:i32)"),
    ("select((index(n) < index(1)), 0:i32, %x[row, max(j - 4, 0)])", "%x[i, 0]"),
    (
        "cast(cast(index(((n + 3) // 4)), i64, wrap), i32, wrap)",
        "cast(index(((n + 3) // 4)), i32, wrap)",
    ),
]
"""Highs may be raised when a project is built, so `n < 9` is not decided."""


@pytest.mark.parametrize(("before", "after"), EXPRESSIONS)
def test_a_kernel_is_folded(before: str, after: str) -> None:
    module = parse(SHIFTED.replace("BEFORE", before))
    (folded,) = (fold_kernel(kernel, module.bounds) for kernel in module.kernels)
    expected = parse(
        SHIFTED.replace("BEFORE", after).replace("    let row = i\n", "").replace("row", "i")
    )
    assert kernel_text(folded) == kernel_text(*expected.kernels)
    assert fold_kernel(folded, module.bounds) == folded


SINGLE = """\
symbol n in 1..8

kernel @copies(%x: i32[n, 4]) -> (%y: i32[n, 4]) {
  for i in 0..n {
    for one in i..i + 1 {
      for j in 0..2 {
        %y[one, j] = %x[one, j]
      }
    }
    for other in i..i + 1 {
      for j in 2..4 {
        %y[other, j] = %x[other, j]
      }
    }
  }
}

func @main(%x: i32[n, 4]) {
  %y: i32[n, 4] = call_kernel(%x) {kernel=@copies}
  return %y
}
"""


def test_a_single_iteration_needs_no_variable() -> None:
    """Also where the loop stays, since its body defines a name that others define. The C of a
    loop of one iteration is its body."""
    module = parse(SINGLE)
    (folded,) = (fold_kernel(kernel, module.bounds) for kernel in module.kernels)
    used = {name for stmt in walk(folded.body) for dim in index_dims(stmt) for name in dim.symbols}
    assert used == {"i", "j", "n"}
