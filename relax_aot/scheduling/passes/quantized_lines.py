# SPDX-License-Identifier: Apache-2.0
"""Quantization of floats to bytes by a micro-kernel, on targets whose compilers make no vectors of
the division.

A loop nest that divides each element of an array by a literal, rounds, adds a zero point and
saturates becomes lines of contiguous elements. Results keep their bits (`quantize_lines.h`).
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Binary, Buffer, Cast, Expr, For, Lit, Load, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import (
    BYTES,
    follow,
    moved,
    number_of,
    step_of,
    stride,
    suffix_of,
)
from relax_aot.scheduling.nest import counted_loops
from relax_aot.scheduling.packing import Packed
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="lines on a Cortex-M4",
        target="dsp",
        before="""
            kernel @quantize(%x: f32[9]) -> (%y: i8[9]) {
              for i in 0..9 {
                %y[i] = cast((rint((%x[i] / 0.5:f32)) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
        after="""
            kernel @quantize(...
              micro raot_quantize_lines_s8(%y[0], %x[0], ...) [1, 9, 0, 0, 1, 3]
            }""",
    ),
    Example(
        why="rows of a matrix that are stored as columns",
        target="mve",
        before="""
        symbol n in 1..99
        kernel @quantize(%x: f32[6, n]) -> (%y: i8[n, 6]) {
          for c in 0..6 {
            for i in 0..n {
              %y[i, c] = cast((rint((%x[c, i] / 2.0:f32)) + cast(3:i8, f32, wrap)), i8, saturate)
            }
          }
        }""",
        after="""
            kernel @quantize(%x: f32[6, n], %quantized_scale: f32[1]) -> (%y: i8[n, 6]) {
              micro raot_quantize_lines_s8(%y[0, 0], %x[0, 0], ...) [6, n, 1, n, 6, 3]
            }""",
    ),
    Example(
        why="a scale that is not known",
        target="mve",
        before="""
            kernel @quantize(%x: f32[9], %s: f32[1]) -> (%y: i8[9]) {
              for i in 0..9 {
                %y[i] = cast((rint((%x[i] / %s[0])) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets with vectors of bytes, and where loops divide more slowly."""
    fast = target.channels_last or (target.dots == "_s16" and not target.compact)
    return apply_module(module, target, match) if fast else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    counted = counted_loops(stmt, w.bounds)
    if counted is None:
        return None
    loops, body = counted
    store = body[0] if len(body) == 1 else None
    found = _quantized(store.value) if isinstance(store, Store) else None
    if found is None or not isinstance(store, Store):
        return None
    load, scale, zero = found
    line = loops[-1]
    step = stride(store, line.variable)
    if stride(load, line.variable) != 1 or step is None or not step.is_constant:
        return None
    if not 0 < step.constant <= MOST_APART or load.buffer.name == store.buffer.name:
        return None
    return lambda: _emit(w, loops, load, store, scale, zero)


def _emit(w: Writer, loops: list[For], load: Load, store: Store, scale: float, zero: int) -> None:
    *outer, line = loops
    inside, count = [line], line.stop
    while outer and follow(load, outer[-1], inside[0]) and follow(store, outer[-1], inside[0]):
        inside.insert(0, outer.pop())
        count = count * inside[0].stop
    step = stride(store, line.variable)
    assert step is not None
    values = np.array([scale], np.float32)
    buffer = Buffer(w.fresh("quantized_scale"), DType.F32, (ONE,))
    w.constant(Packed(buffer, lambda _: values))
    lines, line_step, x_step = ONE, ZERO, ZERO
    if outer and all(stride(place, outer[-1].variable) is not None for place in (store, load)):
        around = outer.pop()
        lines = around.stop
        line_step, x_step = (step_of(place, around.variable) for place in (store, load))
        inside.append(around)
    first: dict[str, Dim] = {loop.variable: ZERO for loop in inside}
    with w.nest(outer):
        w.micro(
            f"raot_quantize_lines_{suffix_of(store.buffer.dtype)}", out=moved(store, first),
            x=moved(load, first), scale=buffer, lines=lines, count=count, line_step=line_step,
            x_step=x_step, step=step, zero=zero,
        )  # fmt: skip


def _quantized(value: Expr) -> tuple[Load, float, int] | None:
    """The float, the scale and the zero point of a quantized value."""
    if not isinstance(value, Cast) or value.mode != "saturate" or value.dtype not in BYTES:
        return None
    match value.value:
        case Binary("+", Apply("rint", (Binary("/", Load() as load, Lit(scale)),)), Cast(zero)):
            number = number_of(zero)
            if number is None or load.dtype is not DType.F32 or not isinstance(scale, float):
                return None
            return (load, scale, number) if scale > 0 else None
    return None
