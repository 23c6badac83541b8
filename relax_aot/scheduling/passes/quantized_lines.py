# SPDX-License-Identifier: Apache-2.0
"""Quantization of floats to bytes by a micro-kernel, on targets whose compilers make no vectors of
the division.

A loop nest that divides each element of an array by a scale, rounds, adds a zero point and
saturates becomes lines of contiguous elements. Scales and zero points are literals, or known while
the model runs. Results keep their bits (`quantize_lines.h`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Binary, Buffer, Cast, Expr, For, Lit, Load, Local, Store
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import (
    BYTES,
    follow,
    indexed_by,
    moved,
    number_of,
    step_of,
    stride,
    suffix_of,
)
from relax_aot.scheduling.nest import counted_loops
from relax_aot.scheduling.packing import Packed
from relax_aot.scheduling.scaled import in_memory
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
        why="a scale and a zero point that are known while the model runs",
        target="mve",
        before="""
            kernel @quantize(%x: f32[9], %s: f32[1], %z: u8[1]) -> (%y: u8[9]) {
              for i in 0..9 {
                %y[i] = cast((rint((%x[i] / %s[0])) + cast(%z[0], f32, wrap)), u8, saturate)
              }
            }""",
        after="""
            kernel @quantize(...
              micro raot_quantize_lines_from_u8(%y[0], %x[0], %s[0], %z[0]) [1, 9, 0, 0, 1]
            }""",
    ),
    Example(
        why="a scale of each element",
        target="mve",
        before="""
            kernel @quantize(%x: f32[9], %s: f32[9]) -> (%y: i8[9]) {
              for i in 0..9 {
                %y[i] = cast((rint((%x[i] / %s[i])) + cast(3:i8, f32, wrap)), i8, saturate)
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets with vectors of bytes, and where loops divide more slowly."""
    return apply_module(module, target, match) if target.has_byte_lines else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    counted = counted_loops(stmt, w.bounds)
    if counted is None:
        return None
    loops, body = counted
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store):
        return None
    found = quantized(store.value, {loop.variable for loop in loops})
    if found is None:
        return None
    line, load = loops[-1], found.x
    step = stride(store, line.variable)
    if not isinstance(load, Load) or stride(load, line.variable) != 1:
        return None
    if step is None or not step.is_constant:
        return None
    if not 0 < step.constant <= MOST_APART or load.buffer.name == store.buffer.name:
        return None
    return lambda: _emit(w, loops, store, found, load)


def _emit(w: Writer, loops: list[For], store: Store, found: Quantized, load: Load) -> None:
    *outer, line = loops
    inside, count = [line], line.stop
    while outer and follow(load, outer[-1], inside[0]) and follow(store, outer[-1], inside[0]):
        inside.insert(0, outer.pop())
        count = count * inside[0].stop
    step = stride(store, line.variable)
    assert step is not None
    lines, line_step, x_step = ONE, ZERO, ZERO
    if outer and all(stride(place, outer[-1].variable) is not None for place in (store, load)):
        around = outer.pop()
        lines = around.stop
        line_step, x_step = (step_of(place, around.variable) for place in (store, load))
        inside.append(around)
    first: dict[str, Dim] = {loop.variable: ZERO for loop in inside}
    name, given = operands(w, found, store.buffer.dtype)
    with w.nest(outer):
        w.micro(
            name, out=moved(store, first), x=moved(load, first), lines=lines, count=count,
            line_step=line_step, x_step=x_step, step=step, **given,
        )  # fmt: skip


def operands(w: Writer, found: Quantized, dtype: DType) -> tuple[str, dict[str, Load | int]]:
    """The micro-kernel for lines of bytes, and its scale and zero point, in memory from here on."""
    scale, (name, zero) = _scale(w, found.scale), _zero(w, found.zero, dtype)
    return f"raot_quantize_lines{name}_{suffix_of(dtype)}", {"scale": scale, "zero": zero}


def _scale(w: Writer, scale: Expr) -> Load:
    if not isinstance(scale, Lit):
        return in_memory(w, scale, "scale")
    values = np.array([scale.value], np.float32)
    buffer = Buffer(w.fresh("quantized_scale"), DType.F32, (ONE,))
    w.constant(Packed(buffer, lambda _: values))
    return buffer[(ZERO,)]


def _zero(w: Writer, zero: Expr, dtype: DType) -> tuple[str, Load | int]:
    """The form of the micro-kernel, and the zero point that it reads or takes as a number."""
    number = number_of(zero)
    if number is not None:
        return "", number
    if isinstance(zero, Load):
        return "_from", zero
    buffer = w.buffer("zero", dtype, 1)
    w.add(Store(buffer, (ZERO,), zero))
    return "_from", buffer[(ZERO,)]


@dataclass(frozen=True, slots=True)
class Quantized:
    """(x / scale, rounded) + zero, saturated."""

    x: Expr
    scale: Expr
    zero: Expr


def quantized(value: Expr, names: set[str]) -> Quantized | None:
    """The operands of a quantized float. Scale and zero point depend on none of these names."""
    if not isinstance(value, Cast) or value.mode != "saturate" or value.dtype not in BYTES:
        return None
    inner = value.value
    if isinstance(inner, Cast) and inner.dtype is DType.I32 and inner.mode == "saturate":
        inner = inner.value  # which changes nothing: bytes saturate earlier
    match inner:
        case Binary("+", Apply("rint", (Binary("/", x, scale),)), Cast(zero)):
            pass
        case _:
            return None
    known = number_of(zero) is not None or (zero.dtype is value.dtype and is_steady(zero, names))
    if not known or x.dtype is not DType.F32 or scale.dtype is not DType.F32:
        return None
    if isinstance(scale, Lit) and not scale.value > 0:
        return None
    return None if indexed_by(scale) & names else Quantized(x, scale, zero)


def is_steady(expr: Expr, names: set[str]) -> bool:
    """Whether a scalar is the same in all iterations of loops over these names."""
    return isinstance(expr, Lit | Load | Local) and not indexed_by(expr) & names
