# SPDX-License-Identifier: Apache-2.0
"""Maxima of windows of bytes by a micro-kernel (`byte_peaks.h`), on Cortex-M with the DSP extension
or Helium, whose compilers make no vectors of them.

Windows of contiguous channels are found for all channels of a pixel together; borders may cut off
rows and columns of pixels. Else the windows of a row of pixels are found together, which share the
maxima of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.ir.dims import ONE, ZERO, Dim, dim_max, dim_min, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Apply, Assign, Declare, For, Lit, Load, Local, Store
from relax_aot.microkernels.byte_peaks import MOST_TAPS
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import BYTES, moved, step_of, stride, suffix_of
from relax_aot.scheduling.nest import Nest, free_nest, greatest, nested, ranges
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.windows import whole
from relax_aot.scheduling.writer import Writer

LEAST_CHANNELS, LEAST_PIXELS, LEAST_TAPS = 4, 8, 3
"""Fewer are as fast one by one."""
EXAMPLES = (
    Example(
        why="channels that are contiguous",
        target="dsp",
        before="""
            kernel @pool(%x: i8[9, 20]) -> (%y: i8[9, 20]) {
              for i in 0..9 {
                for c in 0..20 {
                  local peak: i8 = -128:i8
                  for k in max(-i + 1, 0)..min(-i + 10, 3) {
                    peak = max(peak, %x[i + k - 1, c])
                  }
                  %y[i, c] = peak
                }
              }
            }""",
        after="""
            ...
              for i in 0..9 {
                let count = -max(-i + 1, 0) + min(-i + 10, 3)
                micro raot_peak_channels_s8(%y[i, 0], ...) [20, count, 20, 1, 0]
              }
            }""",
    ),
    Example(
        why="rows that borders cut off",
        target="mve",
        before="""
            symbol n in 8..99
            kernel @pool(%x: u8[4, n]) -> (%y: u8[4, n]) {
              for c in 0..4 {
                for i in 0..n {
                  local peak: u8 = 0:u8
                  for k in max(-i + 1, 0)..min(-i + n + 1, 3) {
                    peak = max(peak, %x[c, i + k - 1])
                  }
                  %y[c, i] = peak
                }
              }
            }""",
        after="""
            ...
              for c in 0..4 {
                micro raot_peak_rows_u8(%y[c, 0], %x[c, 0]) [n, 1, 1, 0, 3, 1, -1, n]
              }
            }""",
    ),
    Example(
        why="a maximum of which something is computed",
        target="dsp",
        before="""
            kernel @pool(%x: i8[9, 20]) -> (%y: i32[20]) {
              for c in 0..20 {
                local peak: i8 = -128:i8
                for k in 0..9 {
                  peak = max(peak, %x[k, c])
                }
                %y[c] = cast(peak, i32, wrap)
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets that compare several bytes at once."""
    return apply_module(module, target, match) if target.has_byte_lines else module


@dataclass(frozen=True, slots=True)
class _Peaks:
    """The greatest `load` of `windows`, which is stored."""

    nest: Nest
    windows: tuple[For, ...]
    load: Load
    store: Store

    @property
    def suffix(self) -> str:
        return suffix_of(self.load.dtype)


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    nest = free_nest(stmt, w.bounds)
    found = _peaks(nest) if nest is not None else None
    return None if found is None else _channels(found, w) or _rows(found, w)


def _peaks(nest: Nest) -> _Peaks | None:
    match nest.leaf:
        case (Declare(Local() as peak, Lit(least)), For() as first, Store() as store):
            pass
        case _:
            return None
    if peak.dtype not in BYTES or least != peak.dtype.limits[0] or store.value != peak:
        return None
    windows, body = nested(first)
    match body:
        case (Assign(local, Apply("max", (left, Load() as load))),) if local == left == peak:
            pass
        case _:
            return None
    places = {loop.variable for loop in (*nest.loops, *windows)}
    if len(windows) > 2 or load.dtype is not peak.dtype or load.buffer.name == store.buffer.name:
        return None
    if any(stride(load, name) is None for name in places):
        return None
    inner = {window.variable for window in windows}
    if any((window.start.symbols | window.stop.symbols) & inner for window in windows):
        return None
    return _Peaks(nest, tuple(windows), load, store)


def _within(windows: Sequence[For], nest: Nest, w: Writer) -> bool:
    """Whether no window lies beyond a border, where nothing may be read."""
    known = ranges(nest.loops, w.bounds)
    return all(prove_le(window.start, window.stop, known) for window in windows)


def _channels(found: _Peaks, w: Writer) -> Emit | None:
    """All contiguous channels of a pixel."""
    load, store, loops = found.load, found.store, found.nest.loops
    near = [lp for lp in loops if stride(load, lp.variable) == stride(store, lp.variable) == ONE]
    used = {name for one in found.windows for name in one.start.symbols | one.stop.symbols}
    if not near or near[-1].variable in used or not _within(found.windows, found.nest, w):
        return None
    channel = near[-1]
    if greatest(channel.stop, w.bounds) < LEAST_CHANNELS:
        return None
    outer = [loop for loop in loops if loop != channel]

    def emit() -> None:
        with w.nest(outer):
            counts = [w.short("count", window.extent) for window in found.windows]
            steps = [step_of(load, window.variable) for window in found.windows]
            ((count0, step0), (count1, step1)) = [
                *zip(counts, steps, strict=True), (ONE, ZERO),
            ][:2]  # fmt: skip
            first = {window.variable: window.start for window in found.windows}
            w.micro(
                f"raot_peak_channels_{found.suffix}", out=moved(store, {channel.variable: ZERO}),
                image=moved(load, {**first, channel.variable: ZERO}), channels=channel.stop,
                count0=count0, step0=step0, count1=count1, step1=step1,
            )  # fmt: skip

    return emit


def _rows(found: _Peaks, w: Writer) -> Emit | None:
    """The windows of a row of pixels."""
    load, store = found.load, found.store
    *outer, pixel = found.nest.loops
    *down, tap = found.windows
    near, out = stride(load, pixel.variable), stride(store, pixel.variable)
    if near is None or out is None or not near.is_constant or not out.is_constant:
        return None
    if stride(load, tap.variable) != 1 or near.constant < 1 or out.constant < 1:
        return None
    if greatest(pixel.stop, w.bounds) < LEAST_PIXELS:
        return None
    if any(pixel.variable in one.start.symbols | one.stop.symbols for one in down):
        return None
    if not _within(down, found.nest, w):
        return None
    column, full, j = load.index[-1], whole(tap, found.nest), Dim.of(pixel.variable)
    first = column.substitute({pixel.variable: ZERO, tap.variable: ZERO})
    if column != near * j + Dim.of(tap.variable) + first or full is None or full.start != 0:
        return None
    width, taps = load.buffer.shape[-1], full.stop
    if not taps.is_constant or not LEAST_TAPS <= taps.constant <= MOST_TAPS:
        return None
    if any({pixel.variable, tap.variable} & dim.symbols for dim in load.index[:-1]):
        return None
    if tap.start != 0 and tap.start != dim_max(-near * j - first, 0):
        return None
    if tap.stop != taps and tap.stop != dim_min(width - near * j - first, taps):
        return None

    def emit() -> None:
        with w.nest(outer):
            begin = {window.variable: window.start for window in down}
            row = moved(load, {**begin, pixel.variable: ZERO, tap.variable: ZERO})
            rows, row_step = ONE, ZERO
            if down:
                rows = w.short("rows", down[0].extent)
                row_step = step_of(load, down[0].variable)
            w.micro(
                f"raot_peak_rows_{found.suffix}", out=moved(store, {pixel.variable: ZERO}),
                image=Load(row.buffer, (*row.index[:-1], ZERO)), count=pixel.stop, step=out,
                rows=rows, row_step=row_step, taps=taps, stride=near, first=first, width=width,
            )  # fmt: skip

    return emit
