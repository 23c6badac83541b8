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

from relax_aot.ir.dims import ONE, ZERO, Dim
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
from relax_aot.scheduling.nest import free_nest, greatest, nested
from relax_aot.scheduling.packing import Packed
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

LEAST = 4
"""Contiguous elements; of fewer, a vector would be empty for the most part."""
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
        why="four sums of a row",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @mean(%x: i8[20, n]) -> (%y: f32[20]) {
              for c in 0..20 {
                local lane0: f32 = 0.0:f32
                local lane1: f32 = 0.0:f32
                local lane2: f32 = 0.0:f32
                local lane3: f32 = 0.0:f32
                for i in 0..n // 4 {
                  local a: f32 = (cast((cast(%x[c, 4*i], i32, wrap) - 3:i32), f32, wrap)
                    * 0.5:f32)
                  lane0 = (lane0 + a)
                  local b: f32 = (cast((cast(%x[c, 4*i + 1], i32, wrap) - 3:i32), f32, wrap)
                    * 0.5:f32)
                  lane1 = (lane1 + b)
                  local d: f32 = (cast((cast(%x[c, 4*i + 2], i32, wrap) - 3:i32), f32, wrap)
                    * 0.5:f32)
                  lane2 = (lane2 + d)
                  local e: f32 = (cast((cast(%x[c, 4*i + 3], i32, wrap) - 3:i32), f32, wrap)
                    * 0.5:f32)
                  lane3 = (lane3 + e)
                }
                local total: f32 = ((lane0 + lane2) + (lane1 + lane3))
                for i in 4*(n // 4)..n {
                  local f: f32 = (cast((cast(%x[c, i], i32, wrap) - 3:i32), f32, wrap) * 0.5:f32)
                  total = (total + f)
                }
                %y[c] = (total * 0.25:f32)
              }
            }""",
        after="""
            ...
              micro raot_sum_lanes_f32_s8(%sums[0], %x[0, 0], ...) [20, n, n, 3]
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
    nest = free_nest(stmt, w.bounds)
    if nest is None or context.lean:
        return None
    found = _rows(nest.leaf) or _columns(nest.leaf) or _lanes(nest.leaf)
    if found is None:
        return None
    load, places = found.value.load, (*nest.loops, *found.loops)
    if any(loop.start != 0 or stride(load, loop.variable) is None for loop in places):
        return None
    lanes = found.order == "lanes"
    elements = [loop for loop in (found.loops if lanes else nest.loops)
                if stride(load, loop.variable) == 1]  # fmt: skip
    if not elements or greatest(elements[-1].stop, w.bounds) < LEAST:
        return None
    channel = nest.loops[-1] if lanes else elements[-1]
    if symbols_of(*found.loops) & {loop.variable for loop in places}:
        return None
    if greatest(channel.stop, w.bounds) > MOST_SUMS:
        return None
    outer = [loop for loop in nest.loops if loop != channel]
    return lambda: _emit(outer, channel, found, w)


def _emit(outer: Sequence[For], channel: For, found: _Sums, w: Writer) -> None:
    """The loops are free, so that the one over channels may be the innermost."""
    value, load, c = found.value, found.value.load, channel.variable
    sums = w.buffer("sums", DType.F32, channel.stop)
    scales = Buffer(w.fresh("sum_scale"), DType.F32, (ONE,))
    w.constant(Packed(scales, lambda _: np.array([value.scale], np.float32)))
    pairs = [(loop.extent, step_of(load, loop.variable)) for loop in found.loops]
    sizes: dict[str, Dim]
    if found.order == "lanes":
        sizes = {"channel_step": step_of(load, c), "count": pairs[0][0]}
    else:
        ((count0, step0), (count1, step1)) = [*pairs, (ONE, ZERO)][:2]
        sizes = {"count0": count0, "step0": step0, "count1": count1, "step1": step1}
    with w.nest(outer):
        first = {loop.variable: loop.start for loop in (*found.loops, channel)}
        w.micro(
            f"raot_sum_{found.order}_f32_{suffix_of(load.dtype)}", sums=sums,
            image=moved(load, first), scale=scales, channels=channel.stop, zero=value.zero,
            **sizes,
        )  # fmt: skip
        with w.range(c, channel.stop) as at:
            w.place(found.after, {found.total: Load(sums, (at,))}, {c: at})


def _rows(leaf: Sequence[Stmt]) -> _Sums | None:
    begun, rest = _begun(leaf)
    if begun is None or not rest:
        return None
    loops, body = nested(rest[0])
    value = _added(body, begun)
    if value is None or not 1 <= len(loops) <= 2 or not _plain(rest[1:]):
        return None
    return _Sums("rows", begun, value, tuple(loops), tuple(rest[1:]))


def _columns(leaf: Sequence[Stmt]) -> _Sums | None:
    total, rest = _begun(leaf)
    if total is None or not rest or not isinstance(rest[0], For):
        return None
    across = rest[0]
    column, inside = _begun(across.body)
    if column is None or len(inside) != 2 or not _plain(rest[1:]):
        return None
    loops, body = nested(inside[0])
    value, last = _added(body, column), Assign(total, Binary("+", total, column))
    if value is None or len(loops) != 1 or inside[1] != last:
        return None
    return _Sums("columns", total, value, (*loops, across), tuple(rest[1:]))


def _lanes(leaf: Sequence[Stmt]) -> _Sums | None:
    """Sums of every fourth element, and of what is left over."""
    lanes: list[Local] = []
    rest = leaf
    while len(lanes) < 4:
        lane, rest = _begun(rest)
        if lane is None:
            return None
        lanes.append(lane)
    if len(rest) < 3 or not isinstance(rest[0], For) or not isinstance(rest[1], Declare):
        return None
    blocks, joined, *after = rest
    assert isinstance(blocks, For) and isinstance(joined, Declare)
    pairs = [Binary("+", lanes[a], lanes[b]) for a, b in ((0, 2), (1, 3))]
    if joined.value != Binary("+", pairs[0], pairs[1]) or len(blocks.body) != 8:
        return None
    values = [_added(blocks.body[2 * k : 2 * k + 2], lane) for k, lane in enumerate(lanes)]
    first = values[0]
    if first is None or blocks.start != 0:
        return None
    start = first.load.index[-1] - 4 * Dim.of(blocks.variable)
    if any(value != _moved(first, first.load.index[-1] + k) for k, value in enumerate(values)):
        return None
    match after:
        case (For() as loop, *after):
            end, place, left = loop.stop, start + Dim.of(loop.variable), loop.body
            if loop.start != 4 * blocks.stop:
                return None
        case (Declare() as named, Assign() as added, *after):
            end, place, left = 4 * blocks.stop + 1, start + 4 * blocks.stop, (named, added)
        case _:
            return None
    fits = _added(left, joined.local) == _moved(first, place) and blocks.stop == end // 4
    if not fits or start.symbols & {blocks.variable} or not _plain(after):
        return None
    one = For(blocks.variable, ZERO, end, ())
    value = _moved(first, start + Dim.of(one.variable))
    return _Sums("lanes", joined.local, value, (one,), tuple(after))


def _moved(value: _Value, last: Dim) -> _Value:
    """The value at another place of the last axis."""
    load = value.load
    return replace(value, load=Load(load.buffer, (*load.index[:-1], last)))


def _begun(body: Sequence[Stmt]) -> tuple[Local | None, Sequence[Stmt]]:
    """A float that begins as 0, and the statements behind it."""
    match body:
        case (Declare(Local(dtype=DType.F32) as local, Lit(0.0)), *rest):
            return local, rest
    return None, body


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
