# SPDX-License-Identifier: Apache-2.0
"""Rows of sums that are rescaled by one number and added to rows of 16 bits, by micro-kernels
(`rescale_rows.h`), where vectors have the product that compilers do not find.

A loop matches by its statements: each is the sum of an element and of a product, rounded twice, as
gates of integer LSTMs have it. Results keep their bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from relax_aot.ir.dims import ZERO
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Cast, Declare, Expr, For, Load, Local, Store, binary
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import apply_module
from relax_aot.scheduling.contraction import moved, number_of, stride
from relax_aot.scheduling.epilogue import matched
from relax_aot.scheduling.nest import without_lets
from relax_aot.scheduling.strips import written_out
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.writer import Writer

_ROW = """
    kernel @sums(%s: i32[n], %x: i16[n]) -> (%y: i16[n]) {
      for i in 0..n {
        local high: i32 = cast((((cast(%s[i], i64, wrap) * 1500000000:i64) + 1073741824:i64) >> 31:i64), i32, wrap)
        local low: i32 = (high + (high >> 31:i32))
        %y[i] = cast((cast(%x[i], i32, wrap) + ((low >> 3:i32) + ((low >> SHIFT:i32) & 1:i32))), i16, saturate)
      }
    }"""  # noqa: E501
EXAMPLES = (
    Example(
        why="sums of gates",
        target="mve",
        before="symbol n in 1..99" + _ROW.replace("SHIFT", "2"),
        after="""
            symbol n in 1..99
            kernel @sums(%s: i32[n], %x: i16[n]) -> (%y: i16[n]) {
              micro raot_rescale_add_s16(%y[0], %s[0], %x[0]) [n, 1500000000, 3]
            }""",
    ),
    Example(
        why="another rounding",
        target="mve",
        before="symbol n in 1..99" + _ROW.replace("SHIFT", "1"),
    ),
)
LEAST, MOST = 1 << 30, (1 << 31) - 1
MOST_SHIFT = 20


def _pattern() -> Expr:
    product = Cast(Local("sum", DType.I32), DType.I64) * Local("factor", DType.I64)
    high = Cast(binary(">>", product + (1 << 30), 31), DType.I32)
    lower = high + binary(">>", high, 31)
    last = binary("&", binary(">>", lower, Local("before", DType.I32)), 1)
    scaled = binary("+", binary(">>", lower, Local("shift", DType.I32)), last)
    added = Cast(Local("added", DType.I16), DType.I32)
    return Cast(added + scaled, DType.I16, "saturate")


PATTERN = _pattern()


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets with vectors of such products."""
    return apply_module(module, target, match) if target.rescales else module


def match(stmt: For, w: Writer, context: Context) -> Emit | None:
    (loop,) = without_lets((stmt,))
    if not isinstance(loop, For) or loop.axis:
        return None
    stores = [one for one in loop.body if isinstance(one, Store)]
    if not stores or any(not isinstance(one, Declare | Store) for one in loop.body):
        return None
    rows = [_row(store, loop) for store in stores]
    found = [row for row in rows if row is not None]
    read = {load.buffer for row in found for load in (row.sums, row.added)}
    written = {store.buffer for store in stores}
    if len(found) < len(rows) or read & written or len(written) < len(stores):
        return None
    return partial(_emit, w, found, loop)


@dataclass(frozen=True, slots=True)
class _Row:
    out: Load
    sums: Load
    added: Load
    factor: int
    shift: int


def _row(store: Store, loop: For) -> _Row | None:
    value = written_out(store.value, loop.body)
    holes = matched(PATTERN, value, {}) if value is not None else None
    if holes is None:
        return None
    sums, added, out = holes["sum"], holes["added"], Load(store.buffer, store.index)
    if not isinstance(sums, Load) or not isinstance(added, Load):
        return None
    numbers = [number_of(holes[name]) for name in ("factor", "before", "shift")]
    if any(number is None for number in numbers):
        return None
    factor, before, shift = (number for number in numbers if number is not None)
    fits = LEAST <= factor <= MOST and 1 <= shift <= MOST_SHIFT and before == shift - 1
    if not fits or any(stride(place, loop.variable) != 1 for place in (sums, added, out)):
        return None
    return _Row(out, sums, added, factor, shift)


def _emit(w: Writer, rows: list[_Row], loop: For) -> None:
    start = {loop.variable: loop.start if loop.start != 0 else ZERO}
    for row in rows:
        w.micro(
            "raot_rescale_add_s16", out=moved(row.out, start), sums=moved(row.sums, start),
            added=moved(row.added, start), count=loop.extent, factor=row.factor, shift=row.shift,
        )  # fmt: skip
