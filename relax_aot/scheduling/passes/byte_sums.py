# SPDX-License-Identifier: Apache-2.0
"""Sums of bytes, as average pools and means of quantized values add them, by a micro-kernel.

A scalar that only adds bytes, less a literal, in loops that nothing cuts off is read from a buffer
of sums of the innermost axis of the result. What follows each sum stays as it is, but for
divisions by a number: where the range of the sums allows it, they are multiplications and shifts of
32 bits, of which compilers make vectors (Granlund and Montgomery, Division by invariant integers
using multiplication, 1994).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    For,
    Index,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    binary,
)
from relax_aot.ir.parameters import Parameter
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import (
    BYTES,
    moved,
    number_of,
    step_of,
    stride,
    suffix_of,
    symbols_of,
)
from relax_aot.scheduling.nest import Nest, free_nest, greatest, nested
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

LEAST = 8
"""Bytes of a sum; shorter ones are not worth a call."""
MOST_SUMS = 512
EXAMPLES = (
    Example(
        why="the mean of each channel",
        target="mve",
        before="""
            symbol n in 9..99
            kernel @mean(%x: i8[n, 6]) -> (%y: i8[6]) {
              for c in 0..6 {
                local total: i32 = 0:i32
                for i in 0..n {
                  total = (total + (cast(%x[i, c], i32, wrap) - 3:i32))
                }
                %y[c] = cast((total / cast(index(n), i32, wrap)), i8, saturate)
              }
            }""",
        after="""
            kernel @mean(%x: i8[n, 6]) -> (%y: i8[6]) scratch (%sums: i32[6]) {
              micro raot_sum_bytes_s8(%sums[0], %x[0, 0]) [6, 1, 1, 0, n, 6]
              for c_0 in 0..6 {
                local total_0: i32 = ...
                %y[c_0] = cast((total_0 / cast(index(n), i32, wrap)), i8, saturate)
              }
            }""",
    ),
    Example(
        why="contiguous bytes on a Cortex-M4",
        target="dsp",
        before="""
            symbol n in 9..99
            kernel @mean(%x: i8[6, n]) -> (%y: i32[6]) {
              for c in 0..6 {
                local total: i32 = 0:i32
                for i in 0..n {
                  total = (total + cast(%x[c, i], i32, wrap))
                }
                %y[c] = total
              }
            }""",
        after="""
            kernel @mean(%x: i8[6, n]) -> (%y: i32[6]) scratch (%sums: i32[6]) {
              micro raot_sum_bytes_s8(%sums[0], %x[0, 0]) [6, n, 1, 0, n, 1]
            ...""",
    ),
    Example(
        why="a mean of integers",
        target="mve",
        before="""
            kernel @mean(%x: i8[125, 6]) -> (%y: i8[6]) {
              for c in 0..6 {
                local total: i32 = 0:i32
                for i in 0..125 {
                  total = (total + cast(%x[i, c], i32, wrap))
                }
                %y[c] = cast((total / 125:i32), i8, wrap)
              }
            }""",
        after="""
            ...
                local total_0: i32 = ...
                %y[c_0] = cast((((total_0 * 8389:i32) >> 20:i32) - (total_0 >> 31:i32)), i8, wrap)
              }
            }""",
    ),
    Example(
        why="windows that a border cuts off",
        target="mve",
        before="""
            kernel @pool(%x: i8[20]) -> (%y: i32[20]) {
              for i in 0..20 {
                local total: i32 = 0:i32
                for k in max(-i + 5, 0)..min(-i + 25, 10) {
                  total = (total + cast(%x[i + k - 5], i32, wrap))
                }
                %y[i] = total
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets that add several bytes at once."""
    return apply_module(module, target, match) if target.has_byte_lines else module


@dataclass(frozen=True, slots=True)
class _Sum:
    """`total` begins as `start` and adds `load` less `zero` in each iteration of `reductions`;
    `counted` are locals that add a literal there."""

    nest: Nest
    reductions: tuple[For, ...]
    total: Declare
    load: Load
    zero: int
    counted: tuple[tuple[Declare, int], ...]
    after: tuple[Stmt, ...]


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    found = _sum_of(stmt, w.bounds)
    if found is None or context.lean:
        return None
    *_, channel = found.nest.loops
    steps = [stride(found.load, lp.variable) for lp in (*found.nest.loops, *found.reductions)]
    if None in steps:
        return None
    inner = stride(found.load, channel.variable)
    assert inner is not None
    contiguous = inner == 1
    for loop in () if contiguous else found.reductions[-1:]:
        step = step_of(found.load, loop.variable)
        if not step.is_constant or not 0 < step.constant <= MOST_APART:
            return None
    extents = [greatest(loop.extent, w.bounds) for loop in found.reductions]
    if prod(extents) < LEAST or greatest(channel.stop, w.bounds) > MOST_SUMS:
        return None
    return lambda: _emit(found, w)


def _emit(found: _Sum, w: Writer) -> None:
    *outer, channel = found.nest.loops
    sums = w.buffer("sums", DType.I32, channel.stop)
    with w.nest(outer):
        begin = {loop.variable: loop.start for loop in found.reductions}
        first = moved(found.load, {**begin, channel.variable: ZERO})
        pairs = [(lp.extent, step_of(found.load, lp.variable)) for lp in found.reductions]
        ((count0, step0), (count1, step1)) = [(ONE, ZERO)] * (2 - len(pairs)) + pairs
        w.micro(
            f"raot_sum_bytes_{suffix_of(found.load.dtype)}", sums=sums, image=first,
            channels=channel.stop, channel_step=step_of(found.load, channel.variable),
            count0=count0, step0=step0, count1=count1, step1=step1,
        )  # fmt: skip
        count = prod((loop.extent for loop in found.reductions), start=ONE)
        with w.range(channel.variable, channel.stop) as c:
            value: Expr = Load(sums, (c,))
            if found.zero:
                value = Binary("-", value, _number(count * found.zero))
            value = Binary("+", found.total.value, value)
            declared = [Declare(found.total.local, value)]
            known: dict[Expr, tuple[int, int]] = {}
            if count.is_constant and (begun := _number_range(found.total.value)) is not None:
                (low, high), ends = _ends(found.zero), found.load.dtype.limits
                known[found.total.local] = (
                    begun[0] + count.constant * (ends[0] - high),
                    begun[1] + count.constant * (ends[1] - low),
                )
            for one, step in found.counted:
                added = Binary("+", one.value, _number(count * step))
                if (range_ := _number_range(added)) is not None:
                    known[one.local] = range_
                declared.append(Declare(one.local, added))
            after = map_exprs(found.after, lambda expr: _multiplied(expr, known))
            w.place((*declared, *after), {}, {channel.variable: c})


def _multiplied(expr: Expr, known: Mapping[Expr, tuple[int, int]]) -> Expr:
    """A division of integers of known range by a number, which truncates, without the division."""
    if not isinstance(expr, Binary) or expr.op != "/" or expr.dtype is not DType.I32:
        return expr
    by, range_ = _range(expr.right, known), _range(expr.left, known)
    if by is None or range_ is None or by[0] != by[1] or by[0] < 1 or range_[0] == range_[1]:
        return expr
    divisor, most = by[0], max(abs(end) for end in range_)
    for shift in range(31):
        factor = 2**shift // divisor + 1
        if most * factor >= 2**31:
            return expr
        if most * (factor * divisor - 2**shift) < 2**shift:
            floor = binary(">>", binary("*", expr.left, factor), shift)
            return binary("-", floor, binary(">>", expr.left, 31))
    return expr


def _ends(number: int) -> tuple[int, int]:
    """The range of a number, of which a parameter is any."""
    return number.range if isinstance(number, Parameter) else (number, number)


def _number_range(expr: Expr) -> tuple[int, int] | None:
    number = number_of(expr)
    return None if number is None else _ends(number)


def _range(expr: Expr, known: Mapping[Expr, tuple[int, int]]) -> tuple[int, int] | None:
    """The lowest and the highest value of an integer; None where these are not known, or may
    wrap."""
    if (found := _number_range(expr)) is not None:
        return found
    match expr:
        case Local():
            return known.get(expr)
        case Select(_, left, right):
            pass
        case Binary("+" | "-" | "/", left, right):
            pass
        case _:
            return None
    a, b = _range(left, known), _range(right, known)
    if a is None or b is None:
        return None
    match expr:
        case Select():
            found = (min(*a, *b), max(*a, *b))
        case Binary("+"):
            found = (a[0] + b[0], a[1] + b[1])
        case Binary("-"):
            found = (a[0] - b[1], a[1] - b[0])
        case _ if min(*a, *b) > 0:  # halves of counts
            found = (a[0] // b[1], a[1] // b[0])
        case _:
            return None
    low, high = DType.I32.limits
    return found if low <= found[0] and found[1] <= high else None


def _number(dim: Dim) -> Expr:
    if dim.is_constant:
        return Lit(dim.constant, DType.I32)
    return Cast(Index(dim), DType.I32)


def _sum_of(stmt: For, bounds: Bounds) -> _Sum | None:
    nest = free_nest(stmt, bounds)
    if nest is None:
        return None
    declared = [one for one in nest.leaf if isinstance(one, Declare)]
    at = next((n for n, one in enumerate(nest.leaf) if isinstance(one, For)), len(nest.leaf))
    before, after = nest.leaf[:at], nest.leaf[at + 1 :]
    if at == len(nest.leaf) or not all(isinstance(one, Declare) for one in before):
        return None
    if not all(isinstance(one, Declare | Store) for one in after):
        return None
    reductions, body = nested(nest.leaf[at])
    variables = {lp.variable for lp in (*nest.loops, *reductions)}
    if len(reductions) > 2 or symbols_of(*reductions) & variables:
        return None
    starts = {one.local: one for one in declared[: len(before)]}
    totals: list[tuple[Declare, Load, int]] = []
    counted: list[tuple[Declare, int]] = []
    for one in body:
        added = _added(one)
        if added is None or not isinstance(one, Assign) or one.local not in starts:
            return None
        begin, number = starts.pop(one.local), number_of(added)
        if number is not None:
            counted.append((begin, number))
        elif (byte := _byte(added)) is not None:
            totals.append((begin, *byte))
        else:
            return None
    if len(totals) != 1 or starts:
        return None
    ((total, load, zero),) = totals
    return _Sum(nest, tuple(reductions), total, load, zero, tuple(counted), after)


def _added(stmt: Stmt) -> Expr | None:
    """What a 32-bit scalar grows by."""
    match stmt:
        case Assign(Local(dtype=DType.I32) as local, Binary("+", left, right)) if left == local:
            return right
    return None


def _byte(expr: Expr) -> tuple[Load, int] | None:
    """A byte, and the literal that is subtracted from it."""
    match expr:
        case Cast(Load() as load, DType.I32, "wrap") if load.dtype in BYTES:
            return load, 0
        case Binary("-", Cast(Load() as load, DType.I32, "wrap"), less) if load.dtype in BYTES:
            number = number_of(less)
            return None if number is None else (load, number)
    return None
