# SPDX-License-Identifier: Apache-2.0
"""Sums of dequantized bytes in an order that decides their bits, as average pools and means of
quantized values with ties add them, by a micro-kernel on Helium (`ordered_sums.h`): four contiguous
channels at a time, each in the order of its loops.

Windows that a border cuts off stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relax_aot.ir.dims import ONE, ZERO
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Assign,
    Binary,
    Buffer,
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
from relax_aot.scheduling.nest import greatest, nest_of
from relax_aot.scheduling.packing import Packed
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

LEAST = 4
"""Channels; of fewer, a vector would be empty for the most part."""
MOST_SUMS = 512
EXAMPLES = (
    Example(
        why="element by element",
        target="mve",
        before="""
            kernel @pool(%x: i8[9, 20]) -> (%y: f32[20]) {
              for c in 0..20 {
                local total: f32 = 0.0:f32
                for i in 0..9 {
                  local value: f32 = (cast((cast(%x[i, c], i32, wrap) - 3:i32), f32, wrap)
                    * 0.5:f32)
                  total = (total + value)
                }
                %y[c] = (total / 9.0:f32)
              }
            }""",
        after="""
            kernel @pool(%x: i8[9, 20], %sum_scale: f32[1]) -> (%y: f32[20]) scratch (...) {
              micro raot_sum_rows_f32_s8(...) [20, 9, 20, 1, 0, 3]
              for c_0 in 0..20 {
                %y[c_0] = (%sums[c_0] / 9.0:f32)
              }
            }""",
    ),
    Example(
        why="columns of a window",
        target="mve",
        before="""
            kernel @pool(%x: u8[3, 2, 20]) -> (%y: f32[20]) {
              for c in 0..20 {
                local total: f32 = 0.0:f32
                for j in 0..2 {
                  local column: f32 = 0.0:f32
                  for i in 0..3 {
                    local value: f32 = (cast(cast(%x[i, j, c], i32, wrap), f32, wrap) * 0.5:f32)
                    column = (column + value)
                  }
                  total = (total + column)
                }
                %y[c] = (total / 6.0:f32)
              }
            }""",
        after="""
            ...
              micro raot_sum_columns_f32_u8(%sums[0], ...) [20, 3, 40, 2, 20, 0]
            ...""",
    ),
    Example(
        why="channels that are not contiguous",
        target="mve",
        before="""
            kernel @pool(%x: i8[20, 9]) -> (%y: f32[20]) {
              for c in 0..20 {
                local total: f32 = 0.0:f32
                for i in 0..9 {
                  local value: f32 = (cast(cast(%x[c, i], i32, wrap), f32, wrap) * 0.5:f32)
                  total = (total + value)
                }
                %y[c] = (total / 9.0:f32)
              }
            }""",
    ),
)  # fmt: skip


def run(module: Module, target: Target) -> Module:
    return apply_module(module, target, match) if target.channels_last else module


@dataclass(frozen=True, slots=True)
class _Value:
    """(load - zero) * scale."""

    load: Load
    zero: int
    scale: float


@dataclass(frozen=True, slots=True)
class _Sums:
    """`total` begins as 0 and adds the values of `loops`, the rows first; `after` follows."""

    order: str
    total: Local
    value: _Value
    loops: tuple[For, ...]
    after: tuple[Stmt, ...]


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    nest = nest_of(stmt, w.bounds)
    if nest is None or not nest.loops or len(nest.free) < len(nest.loops):
        return None
    found = _rows(nest.leaf) or _columns(nest.leaf)
    if found is None or context.lean:
        return None
    load, places = found.value.load, (*nest.loops, *found.loops)
    contiguous = [loop for loop in nest.loops if stride(load, loop.variable) == 1]
    if not contiguous or any(stride(load, loop.variable) is None for loop in places):
        return None
    channel, inner = contiguous[-1], {loop.variable for loop in places}
    if any(loop.start != 0 for loop in places) or symbols_of(*found.loops) & inner:
        return None
    if not LEAST <= greatest(channel.stop, w.bounds) <= MOST_SUMS:
        return None
    if symbols_of(*nest.loops) - set(w.bounds):
        return None  # also where the extent of one depends on another
    outer = [loop for loop in nest.loops if loop != channel]
    return lambda: _emit(outer, channel, found, w)


def _emit(outer: Sequence[For], channel: For, found: _Sums, w: Writer) -> None:
    """The loops are free, so that the one over channels may be the innermost."""
    value, load = found.value, found.value.load
    sums = w.buffer("sums", DType.F32, channel.stop)
    scales = Buffer(w.fresh("sum_scale"), DType.F32, (ONE,))
    w.constant(Packed(scales, lambda _: np.array([value.scale], np.float32)))
    pairs = [(loop.extent, step_of(load, loop.variable)) for loop in found.loops]
    ((count0, step0), (count1, step1)) = [*pairs, (ONE, ZERO)][:2]
    with w.nest(outer):
        begin = {loop.variable: loop.start for loop in found.loops}
        w.micro(
            f"raot_sum_{found.order}_f32_{suffix_of(load.dtype)}", sums=sums,
            image=moved(load, {**begin, channel.variable: ZERO}), scale=scales,
            channels=channel.stop, count0=count0, step0=step0, count1=count1, step1=step1,
            zero=value.zero,
        )  # fmt: skip
        with w.range(channel.variable, channel.stop) as c:
            w.place(found.after, {found.total: Load(sums, (c,))}, {channel.variable: c})


def _rows(leaf: Sequence[Stmt]) -> _Sums | None:
    begun, rest = _begun(leaf)
    if begun is None or not rest:
        return None
    loops, body = _nested(rest[0])
    value = _added(body, begun)
    if value is None or not 1 <= len(loops) <= 2 or not _plain(rest[1:]):
        return None
    return _Sums("rows", begun, value, loops, tuple(rest[1:]))


def _columns(leaf: Sequence[Stmt]) -> _Sums | None:
    total, rest = _begun(leaf)
    if total is None or not rest or not isinstance(rest[0], For):
        return None
    across = rest[0]
    column, inside = _begun(across.body)
    if column is None or len(inside) != 2 or not _plain(rest[1:]):
        return None
    loops, body = _nested(inside[0])
    value, last = _added(body, column), Assign(total, Binary("+", total, column))
    if value is None or len(loops) != 1 or inside[1] != last:
        return None
    return _Sums("columns", total, value, (*loops, across), tuple(rest[1:]))


def _begun(body: Sequence[Stmt]) -> tuple[Local | None, Sequence[Stmt]]:
    """A float that begins as 0, and the statements behind it."""
    match body:
        case (Declare(Local(dtype=DType.F32) as local, Lit(0.0)), *rest):
            return local, rest
    return None, body


def _nested(stmt: Stmt) -> tuple[tuple[For, ...], Sequence[Stmt]]:
    """Loops one in the other, and what the inner one does."""
    loops: list[For] = []
    body: Sequence[Stmt] = (stmt,)
    while len(body) == 1 and isinstance(body[0], For):
        loops.append(replace(body[0], body=()))
        body = body[0].body
    return tuple(loops), body


def _added(body: Sequence[Stmt], local: Local) -> _Value | None:
    """The dequantized byte that is added to a local."""
    match body:
        case (Declare(value, of), Assign(total, Binary("+", left, right))) if (
            total == left == local and right == value
        ):
            return _value(of)
    return None


def _value(expr: Expr) -> _Value | None:
    match expr:
        case Binary("*", Cast(whole, DType.F32, "wrap"), Lit(float() as scale)):
            pass
        case _:
            return None
    zero: int | None = 0
    match whole:
        case Binary("-", left, less):
            whole, zero = left, number_of(less)
    match whole:
        case Cast(Load() as load, DType.I32, "wrap") if load.dtype in BYTES and zero is not None:
            return _Value(load, zero, scale)
    return None


def _plain(body: Sequence[Stmt]) -> bool:
    return all(isinstance(one, Declare | Store) for one in body)
