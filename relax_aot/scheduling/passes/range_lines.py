# SPDX-License-Identifier: Apache-2.0
"""Ranges of floats, and the quantization of floats to bytes by them, by micro-kernels.

Loops that find the largest magnitude of an array, its greatest value, or its greatest and its
lowest one, as bits of floats, read lines of contiguous elements. So do loops that multiply each
element by a factor, add an offset, round halves away from 0 and limit the result to the range of a
byte. Where compilers make no vectors, loops do so, too, that divide each element and take the
lowest byte of a sum whose lowest bits are the nearest integer. Borders of such bytes are filled
with one that is computed while the model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Cast,
    Expr,
    For,
    Lit,
    Load,
    Local,
    Store,
    apply,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import BYTES, follow, moved, stride, suffix_of
from relax_aot.scheduling.nest import counted_loops
from relax_aot.scheduling.passes.quantized_lines import is_steady
from relax_aot.scheduling.strategies.mve import MOST_APART
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

MAGNITUDE = 0x7FFFFFFF
ROUNDER = 1.5 * 2**23
"""In a sum with it, the lowest bits are the nearest integer."""
ROW_STEPS = {DType.I8: "/", DType.I16: "*"}
"""How a float of a row becomes steps, by the type of the result."""
EXAMPLES = (
    Example(
        why="the largest magnitude, and bytes by a factor and an offset",
        target="dsp",
        before="""
            kernel @quantize(%x: f32[5, 9], %f: f32[1]) -> (%y: i8[5, 9], %s: f32[1]) {
              local bits: i32 = 0:i32
              for i in 0..5 {
                for j in 0..9 {
                  bits = max(bits, (cast(%x[i, j], i32, bits) & 2147483647:i32))
                }
              }
              local factor: f32 = (%f[0] / cast(bits, f32, bits))
              %s[0] = factor
              for i in 0..5 {
                for j in 0..9 {
                  %y[i, j] = cast(min(max(round(((%x[i, j] * factor) + -128.0:f32)), -128.0:f32),
                    127.0:f32), i8, wrap)
                }
              }
            }""",
        after="""
            kernel @quantize(...) scratch (%peak: i32[1], %by: f32[2]) {
              local bits: i32 = 0:i32
              micro raot_peak_f32(%peak[0], %x[0, 0]) [45]
              bits = max(bits, %peak[0])
              local factor: f32 = (%f[0] / cast(bits, f32, bits))
              %s[0] = factor
              %by[0] = factor
              %by[1] = -128.0:f32
              micro raot_quantize_by_s8(%y[0, 0], %x[0, 0], %by[0]) [45, 1]
            }""",
    ),
    Example(
        why="the range of each row, whose elements are not contiguous with those of the next",
        target="mve",
        before="""
            symbol n in 1..99
            kernel @range(%x: f32[n, 6, 9]) -> (%y: i32[1], %z: u32[1]) {
              local high: i32 = 0:i32
              local low: u32 = 0:u32
              for i in 0..n {
                for j in 0..9 {
                  high = max(high, cast(%x[i, 2, j], i32, bits))
                  low = max(low, cast(%x[i, 2, j], u32, bits))
                }
              }
              %y[0] = high
              %z[0] = low
            }""",
        after="""
            kernel @range(...) scratch (%range: i32[2]) {
              local high: i32 = 0:i32
              local low: u32 = 0:u32
              for i in 0..n {
                micro raot_range_f32(%range[0], %x[i, 2, 0]) [9]
                high = max(high, %range[0])
                low = max(low, cast(%range[1], u32, bits))
              }
            ...""",
    ),
    Example(
        why="bytes by a division",
        target="dsp",
        before="""
            kernel @quantize(%x: f32[5, 9], %f: f32[5]) -> (%y: i8[5, 9]) {
              for i in 0..5 {
                local used: f32 = %f[i]
                for j in 0..9 {
                  %y[i, j] = cast((cast(((%x[i, j] / used) + 12582912.0:f32), i32, bits)
                    & -1:i32), i8, wrap)
                }
              }
            }""",
        after="""
            kernel @quantize(...) scratch (%by: f32[1], %kept: i32[1]) {
              for i in 0..5 {
                local used: f32 = %f[i]
                %by[0] = used
                %kept[0] = -1:i32
                micro raot_quantize_row_s8(%y[i, 0], %x[i, 0], %by[0], %kept[0]) [9]
              }
            }""",
    ),
    Example(
        why="products that are quantized to 16 bits",
        target="dsp",
        before="""
            kernel @quantize(%x: f32[9], %y: f32[9], %f: f32[1]) -> (%z: i16[9], %staged: f32[9]) {
              local bits: i32 = 0:i32
              for j in 0..9 {
                %staged[j] = (%x[j] * %y[j])
                bits = max(bits, (cast(%staged[j], i32, bits) & 2147483647:i32))
              }
              local factor: f32 = (%f[0] / cast(bits, f32, bits))
              for j in 0..9 {
                %z[j] = cast((cast(((%staged[j] * factor) + 12582912.0:f32), i32, bits)
                  & -1:i32), i16, wrap)
              }
            }""",
        after="""
            kernel @quantize(...) scratch (%peak: i32[1], %by: f32[1], %kept: i32[1]) {
              local bits: i32 = 0:i32
              micro raot_product_peak_f32(%staged[0], %peak[0], %x[0], %y[0]) [9]
              bits = max(bits, %peak[0])
              local factor: f32 = (%f[0] / cast(bits, f32, bits))
              %by[0] = factor
              %kept[0] = -1:i32
              micro raot_quantize_row_s16(%z[0], %staged[0], %by[0], %kept[0]) [9]
            }""",
    ),
    Example(
        why="a border of a byte that is computed while the model runs",
        target="mve",
        before="""
            kernel @fill(%z: f32[1]) -> (%y: i8[5, 9, 4]) {
              local zero: f32 = %z[0]
              for i in 0..5 {
                for j in 0..9 {
                  for k in 0..3 {
                    %y[i, j, k] = cast(zero, i8, wrap)
                  }
                }
              }
            }""",
        after="""
            kernel @fill(...) scratch (%fill: i8[1]) {
              local zero: f32 = %z[0]
              %fill[0] = cast(zero, i8, wrap)
              for i in 0..5 {
                for j in 0..9 {
                  micro raot_fill_bytes_s8(%y[i, j, 0], %fill[0]) [3]
                }
              }
            }""",
    ),
    Example(
        why="halves to even",
        target="dsp",
        before="""
            kernel @quantize(%x: f32[9], %f: f32[1]) -> (%y: i8[9]) {
              for j in 0..9 {
                %y[j] = cast(min(max(rint((%x[j] * %f[0])), -128.0:f32), 127.0:f32), i8, wrap)
              }
            }""",
    ),
)  # fmt: skip


def run(module: Module, target: Target) -> Module:
    return module if target.compact else apply_module(module, target, match)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Contiguous lines of an array: loops over them, and what runs along each."""

    outer: tuple[For, ...]
    inside: tuple[For, ...]

    @property
    def count(self) -> Dim:
        count = ONE
        for loop in self.inside:
            count = count * loop.stop
        return count

    @property
    def start(self) -> dict[str, Dim]:
        return {loop.variable: ZERO for loop in self.inside}


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    counted = counted_loops(stmt, w.bounds)
    if counted is None:
        return None
    loops, body = counted
    match body:
        case (Store() as store,):
            return (
                _quantized(loops, store, w)
                or _divided(loops, store, w, context.target)
                or _filled(loops, store, w)
            )
        case (Assign() as one,):
            for name, magnitude in (("peak", True), ("greatest", False)):
                load = _compared(one, DType.I32, magnitude=magnitude)
                if load is not None:
                    return _ranged(loops, [one], name, load, w)
        case (Store() as staged, Assign() as peak):
            return _staged(loops, staged, peak, w, context.target)
        case (Assign() as high, Assign() as low):
            load = _compared(high, DType.I32)
            both = load is not None and load == _compared(low, DType.U32)
            if load is None or not both:
                return None
            return _ranged(loops, [high, low], "range", load, w)
    return None


def _lines(loops: Sequence[For], x: Load | Store, store: Store | None = None) -> _Lines | None:
    *outer, line = loops
    places = [x] if store is None else [x, store]
    if stride(x, line.variable) != 1 or any(
        stride(p, lp.variable) is None for p in places for lp in loops
    ):
        return None
    inside = [line]
    while outer and all(follow(place, outer[-1], inside[0]) for place in places):
        inside.insert(0, outer.pop())
    return _Lines(tuple(outer), tuple(inside))


# Ranges


def _compared(stmt: Assign, dtype: DType, *, magnitude: bool = False) -> Load | None:
    """The float whose bits are compared with a scalar."""
    value = stmt.value
    if not isinstance(value, Apply) or value.function != "max" or value.args[0] != stmt.local:
        return None
    other = value.args[1]
    if magnitude:
        if not isinstance(other, Binary) or other.op != "&" or not isinstance(other.right, Lit):
            return None
        if other.right.value != MAGNITUDE:
            return None
        other = other.left
    match other:
        case Cast(Load() as load, to, "bits") if load.dtype is DType.F32 and to is dtype:
            return load
    return None


def _ranged(
    loops: Sequence[For], compared: Sequence[Assign], name: str, load: Load, w: Writer
) -> Emit | None:
    lines = _lines(loops, load)
    if lines is None:
        return None

    def emit() -> None:
        bits = w.buffer(name, DType.I32, len(compared))
        with w.nest(lines.outer):
            line = moved(load, lines.start)
            w.micro(f"raot_{name}_f32", bits=bits, x=line, count=lines.count)
            for n, stmt in enumerate(compared):
                found: Expr = bits[(Dim.of(n),)]
                if stmt.local.dtype is not DType.I32:
                    found = Cast(found, stmt.local.dtype, "bits")
                w.add(Assign(stmt.local, apply("max", stmt.local, found)))

    return emit


def _staged(
    loops: Sequence[For], staged: Store, peak: Assign, w: Writer, target: Target
) -> Emit | None:
    """Products that are stored, and their largest magnitude."""
    match staged.value:
        case Binary("*", Load() as x, Load() as factors) if staged.buffer.dtype is DType.F32:
            pass
        case _:
            return None
    place = Load(staged.buffer, staged.index)
    line = loops[-1].variable
    dense = all(stride(p, line) == 1 for p in (place, x, factors))
    if len(loops) > 1 or not dense or not target.quotients:
        return None
    if _compared(peak, DType.I32, magnitude=True) != place:
        return None
    if staged.buffer.name in (x.buffer.name, factors.buffer.name):
        return None

    def emit() -> None:
        bits, first = w.buffer("peak", DType.I32, 1), {line: ZERO}
        w.micro(
            "raot_product_peak_f32", products=moved(place, first), bits=bits, x=moved(x, first),
            factors=moved(factors, first), count=loops[-1].stop,
        )  # fmt: skip
        w.add(Assign(peak.local, apply("max", peak.local, bits[(ZERO,)])))

    return emit


# Quantization


def _quantized(loops: Sequence[For], store: Store, w: Writer) -> Emit | None:
    found = _steps(store)
    if found is None:
        return None
    x, factor, offset = found
    step = stride(store, loops[-1].variable)
    lines = _lines(loops, x, store)
    names = {loop.variable for loop in loops}
    if lines is None or step is None or not step.is_constant:
        return None
    if not 0 < step.constant <= MOST_APART or x.buffer.name == store.buffer.name:
        return None
    if not (is_steady(factor, names) and is_steady(offset, names)):
        return None

    def emit() -> None:
        by = w.buffer("by", DType.F32, 2)
        w.add(*(Store(by, (Dim.of(n),), part) for n, part in enumerate((factor, offset))))
        with w.nest(lines.outer):
            out, line = moved(store, lines.start), moved(x, lines.start)
            w.micro("raot_quantize_by_s8", out=out, x=line, by=by, count=lines.count, step=step)

    return emit


def _divided(loops: Sequence[For], store: Store, w: Writer, target: Target) -> Emit | None:
    match store.value:
        case Cast(Binary("&", Cast(rounded, DType.I32, "bits"), kept), to, "wrap"):
            op = ROW_STEPS.get(to)
        case _:
            return None
    match rounded:
        case Binary(way, Binary(found, Load() as x, by), Lit(number)) if (way, found, number) == (
            "+",
            op,
            ROUNDER,
        ):
            lines = _lines(loops, x, store)
        case _:
            return None
    names = {loop.variable for loop in loops}
    if lines is None or not target.quotients or stride(store, loops[-1].variable) != 1:
        return None
    if not (is_steady(by, names) and is_steady(kept, names)):
        return None

    def emit() -> None:
        divisor, mask = w.buffer("by", DType.F32, 1), w.buffer("kept", DType.I32, 1)
        w.add(Store(divisor, (ZERO,), by), Store(mask, (ZERO,), kept))
        with w.nest(lines.outer):
            out, line = moved(store, lines.start), moved(x, lines.start)
            w.micro(
                f"raot_quantize_row_{'s8' if out.dtype is DType.I8 else 's16'}", out=out, x=line,
                by=divisor, kept=mask, count=lines.count,
            )  # fmt: skip

    return emit


def _filled(loops: Sequence[For], store: Store, w: Writer) -> Emit | None:
    """A byte that is known while the model runs, in all places."""
    dtype, source = store.buffer.dtype, store.value
    source = source.value if isinstance(source, Cast) else source
    lines = _lines(loops, store) if dtype in BYTES else None
    names = {loop.variable for loop in loops}
    if lines is None or not isinstance(source, Load | Local) or not is_steady(source, names):
        return None
    if isinstance(source, Load) and source.buffer.name == store.buffer.name:
        return None

    def emit() -> None:
        value = w.buffer("fill", dtype, 1)
        w.add(Store(value, (ZERO,), store.value))
        out = moved(store, lines.start)
        with w.nest(lines.outer):
            w.micro(f"raot_fill_bytes_{suffix_of(dtype)}", out=out, value=value, count=lines.count)

    return emit


def _steps(store: Store) -> tuple[Load, Expr, Expr] | None:
    """The float, the factor and the offset of a byte."""
    match store.value:
        case Cast(Apply("min", (Apply("max", (Apply("round", (steps,)), low)), high)), DType.I8):
            limits = tuple(end.value for end in (low, high) if isinstance(end, Lit))
            if limits != DType.I8.limits:
                return None
        case _:
            return None
    match steps:
        case Binary("+", Binary("*", Load() as x, factor), offset) if x.dtype is DType.F32:
            return x, factor, offset
        case Binary("*", Load() as x, factor) if x.dtype is DType.F32:
            return x, factor, Lit(0.0, DType.F32)
    return None
