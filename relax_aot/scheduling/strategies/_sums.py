# SPDX-License-Identifier: Apache-2.0
"""One tile of sums: they begin, `raot_multiply_f32` adds the products, and the leaf stores each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np

from relax_aot.fusion.nest import substitute_in
from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Dim, interval, prove_le
from relax_aot.ir.loops import (
    Apply,
    Buffer,
    For,
    If,
    Lit,
    Load,
    Multiply,
    Reserve,
    Store,
    binary,
    expressions,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.microkernels.integers import words
from relax_aot.scheduling.contraction import (
    Contraction,
    indexed_by,
    moved,
    step_of,
    stride,
    unclipped,
)
from relax_aot.scheduling.packing import round_up
from relax_aot.scheduling.strategies._ends import End, end_of, upper_half
from relax_aot.scheduling.strategies._panels import (
    Operand,
    Rows,
    Span,
    compute_columns,
    compute_rows,
)
from relax_aot.scheduling.targets import Context
from relax_aot.scheduling.writer import Ends, Writer

LANES = 4
"""Columns that begin at once."""
LEVELS = 3
"""Loops over reductions in a micro-kernel."""
LEAST_STEPS = 3
"""Products of a sum for which it is worth to round them to integers."""
Levels = tuple[tuple[Dim, Dim, Dim], ...]
"""How many iterations each of them has, and the steps of both factors."""
Full = Mapping[str, Ends]
"""Bounds of reductions that hold in a region."""
Spans = tuple[Span, Span, Span]
"""Rows, lines of columns, and columns of a line."""


def emit_tile(
    found: Contraction,
    w: Writer,
    spans: Spans,
    most: int,
    full: Full,
    operand: Operand | None,
    left: Rows | None = None,
    part: int = 0,
    unroll: int = 1,
    *,
    rows_inner: bool = False,
    stored: bool = False,
    integers: bool = False,
) -> None:
    """Results that are summed at once: rows, `most` at most, of the left operand and columns of
    the right one. `part`: steps for which computed operands are computed at a time. `unroll`:
    columns in an iteration that begins sums or stores results. `rows_inner`: results of a column
    are stored one after another. `stored`: a micro-kernel may begin and store the results.
    `integers`: one multiplies integers, in memory of the arena."""
    end = stored_end(found, w, spans) if stored and not part else None
    if end is not None:
        place = _operands(found, spans, *_reductions(found, w, spans, full), operand, left)
        if all(prove_le(ZERO, step, w.bounds) for level in place[0] for step in level[1:]):
            _store(found, w, spans, end, *place)
            return
    sums = Buffer(w.fresh("sums"), DType.F32, (Dim.of(most), Dim.of(COLUMNS)), REGISTER)
    if integers:
        sums = w.buffer("sums", DType.F32, most, COLUMNS)
    else:
        w.add(Reserve(sums))
    _begin(found, w, spans, sums, unroll)
    counts, starts = _reductions(found, w, spans, full)
    if part:
        ((name, start),), (count,) = starts.items(), counts
        with w.tiles((f"{name}_part", "steps"), count, part) as (first, steps):
            some = [For(name, start + first, start + first + steps, ())]
            if found.computed_at(found.right):
                panel = w.buffer("panel", DType.F32, part, COLUMNS)
                operand = compute_columns(found, w, panel, spans[-1], some).at
            if found.computed_at(found.left):
                panel = w.buffer("rows", DType.F32, most, part)
                left = compute_rows(found, w, panel, spans[0], some)
            starts = {name: some[0].start}
            _multiply(found, w, spans, sums, [steps], starts, operand, left, integers=integers)
    else:
        _multiply(found, w, spans, sums, counts, starts, operand, left, integers=integers)
    index, at, loops = _results(w, spans)
    if rows_inner and spans[0].count != 1:
        loops = [*loops[1:], loops[0]]
    with _unrolled(w, loops, unroll if _is_short(found) else 1) as offsets:
        for offset in offsets:
            here = {variable: place.substitute(offset) for variable, place in at.items()}
            sum_at = Load(sums, tuple(place.substitute(offset) for place in index))
            w.finish(found.after, found.sum, sum_at, here)


def _reductions(
    found: Contraction, w: Writer, spans: Spans, full: Full
) -> tuple[list[Dim], dict[str, Dim]]:
    """How many steps each reduction has, and where it begins."""
    origin = {span.variable: span.first for span in spans}
    counts, starts = [], {}
    for loop in found.reductions:
        start, stop = full.get(loop.variable, (loop.start, loop.stop))
        start = w.short(f"{loop.variable}_first", start.substitute(origin))
        stop = w.short(f"{loop.variable}_last", stop.substitute(origin))
        counts.append(stop - start)
        starts[loop.variable] = start
    return counts, starts


def stores_rows(found: Contraction, rows: For, columns: For) -> bool:
    """Whether adjacent results are rows of a tile."""
    stores = [stmt for stmt in found.after if isinstance(stmt, Store)]
    near = {stride(store, rows.variable) for store in stores}
    return near == {1} and any(stride(store, columns.variable) != 1 for store in stores)


def _is_short(found: Contraction) -> bool:
    """Whether no function of the C library or of raot/math.h follows the sum."""
    parts = (part for stmt in walk(found.after) for part in expressions(stmt))
    calls = {part.function for part in parts if isinstance(part, Apply)}
    return calls <= {"max", "min", "abs", "fma"}


@contextmanager
def _unrolled(w: Writer, loops: Sequence[For], times: int) -> Iterator[list[dict[str, Dim]]]:
    """The loops from 0. Yields values of the innermost variable: `times` of them in an iteration,
    if they divide its constant extent, else the variable."""
    *outer, inner = loops or [For("", ZERO, ONE, ())]
    count = inner.stop.constant if inner.stop.is_constant else 0
    if not loops or count < times or count % times:
        with w.nest(loops):
            yield [{}]
        return
    with w.nest([*outer, replace(inner, stop=Dim.of(count // times))]):
        at = Dim.of(inner.variable) * times
        yield [{inner.variable: at + n} for n in range(times)]


def _multiply(
    found: Contraction,
    w: Writer,
    spans: Spans,
    sums: Buffer,
    counts: Sequence[Dim],
    starts: Mapping[str, Dim],
    operand: Operand | None,
    left: Rows | None,
    *,
    integers: bool,
) -> None:
    """So many steps of the sums from `starts` on."""
    levels, first, row, second = _operands(found, spans, counts, starts, operand, left)
    rows, *columns = spans
    width = prod((span.count for span in columns), start=ONE)
    steps = [row, *(step for level in levels for step in level[1:])]
    if integers and all(prove_le(ZERO, step, w.bounds) for step in steps):
        parts = w.buffer("parts", DType.I32, words(sums.shape[0].constant))
        w.micro(
            "raot_multiply_integers_f32", sums=sums[ZERO, ZERO], left=first, right=second,
            parts=parts, rows=rows.count, columns=width,
            left_row=ZERO if rows.count == 1 else row, **_levels(levels),
        )  # fmt: skip
        return
    w.add(Multiply(sums, rows.count, width, levels, first, row, second))


def _operands(
    found: Contraction,
    spans: Spans,
    counts: Sequence[Dim],
    starts: Mapping[str, Dim],
    operand: Operand | None,
    left: Rows | None,
) -> tuple[Levels, Load, Dim, Load]:
    """The loops over the reductions, where the factors begin, and the step of a row."""
    at = {**{span.variable: span.first for span in spans}, **starts}
    steps = [(step_of(found.left, name), step_of(found.right, name)) for name in starts]
    first, second = (moved(load, at) for load in (found.left, found.right))
    row = step_of(found.left, spans[0].variable)
    if operand is not None:
        second, copied = operand(list(starts.values()))
        steps = [(far, step) for (far, _), step in zip(steps, copied, strict=True)]
    if left is not None:
        first, copied = left.rows_at(list(starts.values()))
        row, steps = left.row, [(f, step) for (_, step), f in zip(steps, copied, strict=True)]
    levels = _merged([(n, *far) for n, far in zip(counts, steps, strict=True)])
    return levels, first, row, second


def stored_end(found: Contraction, w: Writer, spans: Spans) -> End | None:
    """The end of sums that begin with zero, or with rows, and whose results are rows."""
    rows, lines, columns = spans
    end = end_of(found)
    if end is None or lines.count != 1 or len(found.reductions) > LEVELS:
        return None
    match found.start:
        case Lit(value) if value == 0 and not np.signbit(value):
            begun = True
        case Load() as load:
            begun = load.dtype is DType.F32 and _is_row(load, columns)
        case _:
            begun = False
    read = {
        load.buffer for load in (found.left, found.right, found.start) if isinstance(load, Load)
    }
    floats = {found.left.dtype, found.right.dtype, end.store.buffer.dtype} == {DType.F32}
    if not begun or not floats or end.store.buffer in read or not _is_row(end.store, columns):
        return None
    if end.other is not None and not _is_row(end.other, columns):
        return None
    if end.row is not None:
        known = isinstance(found.start, Lit) and _is_row(end.row, columns)
        known = known and end.row.buffer != end.store.buffer
        if not known or stride(end.row, rows.variable) != ZERO:
            return None
    far = stride(end.store, rows.variable)
    steps = [far, stride(found.left, rows.variable)]
    more = [load for load in (end.other, found.start) if isinstance(load, Load)]
    steps += [stride(load, rows.variable) for load in more]
    apart = rows.count == 1 or (far is not None and prove_le(columns.count, far, w.bounds))
    known = all(step is not None and prove_le(ZERO, step, w.bounds) for step in steps)
    return end if apart and known else None


def _is_row(place: Load | Store, columns: Span) -> bool:
    return stride(place, columns.variable) == ONE


def _store(
    found: Contraction,
    w: Writer,
    spans: Spans,
    end: End,
    levels: Levels,
    first: Load,
    row: Dim,
    second: Load,
) -> None:
    """One call of the micro-kernel that begins and stores sums. An absent operand is the result,
    which is not read."""
    rows, _, columns = spans
    at = {span.variable: span.first for span in spans}
    to = moved(end.store, at)
    begin = found.start if isinstance(found.start, Load) else end.row
    start = moved(begin, at) if begin is not None else None
    other = moved(end.other, at) if end.other is not None else None
    sizes: dict[str, Dim | int] = {"rows": rows.count, "columns": columns.count}
    sizes |= {
        "starts": int(start is not None) + int(end.row is not None),
        "adds": int(other is not None),
    }
    sizes |= {"low": upper_half(end.low) or 0, "high": upper_half(end.high) or 0}
    sizes |= _levels(levels)
    alone = rows.count == 1
    sizes |= {
        "left_row": ZERO if alone else row,
        "to_row": columns.count if alone else step_of(end.store, rows.variable),
        "start_row": ZERO if alone or begin is None else step_of(begin, rows.variable),
        "other_row": ZERO if alone or end.other is None else step_of(end.other, rows.variable),
    }
    w.micro(
        "raot_multiply_store_f32", to=to, left=first, right=second, start=start or to,
        other=other or to, **sizes,
    )  # fmt: skip


def no_integers(found: Contraction, w: Writer, context: Context) -> bool:
    """Whether tiles multiply integers and this is none: memory or code is too small, sums are, or
    the left factor steps back."""
    if not context.target.integers:
        return False
    counts = [unclipped(loop) or LEAST_STEPS for loop in found.reductions]
    steps = [step_of(found.left, loop.variable) for loop in found.reductions]
    back = not all(prove_le(ZERO, step, w.bounds) for step in steps)
    return context.lean or context.target.compact or prod(counts) < LEAST_STEPS or back


def _levels(levels: Levels) -> dict[str, Dim]:
    """The sizes of a micro-kernel that tell of the loops over reductions."""
    sizes: dict[str, Dim] = {}
    names = (("lines", "line"), ("taps", "tap"), ("depth", "step"))
    known = (*((ONE, ZERO, ZERO),) * (LEVELS - len(levels)), *levels)
    for (many, name), level in zip(names, known, strict=True):
        sizes |= {many: level[0], f"left_{name}": level[1], f"right_{name}": level[2]}
    return sizes


def _results(w: Writer, spans: Spans) -> tuple[tuple[Dim, Dim], dict[str, Dim], list[For]]:
    """Row and column of a result, the variables there, and the loops over all results."""
    place, at, loops = [ZERO, ZERO], {}, []
    for axis, span in zip((0, 1, 1), spans, strict=True):
        offset = ZERO
        if span.count != 1:
            name = w.fresh(span.name)
            loops.append(For(name, ZERO, span.count, ()))
            offset = Dim.of(name)
        place[axis] = place[axis] * span.count + offset
        at[span.variable] = span.first + offset
    return (place[0], place[1]), at, loops


def _begin(found: Contraction, w: Writer, spans: Spans, sums: Buffer, unroll: int) -> None:
    """Sums whose starts do not depend on their position are begun in parts of a fixed size:
    few rows for few, and columns together. An analysis that cannot tell one height from
    another sees that what is read has begun."""
    rows, lines, pixels = spans
    (row, column), at, loops = _results(w, spans)
    depends = indexed_by(found.start)
    across = loops[rows.count != 1 :]
    if not depends & {lines.variable, pixels.variable}:  # whole vectors, with constant bounds
        columns = lines.count * pixels.count
        exact = columns.is_constant and (rows.count.is_constant or not lines.variable)
        width = round_up(columns.constant, LANES) if exact else COLUMNS
        column = Dim.of(w.fresh("c"))
        across = [For(str(column), ZERO, Dim.of(width), ())]
    ends = [ZERO, rows.count]
    if rows.variable not in depends and not rows.count.is_constant:
        least = max(interval(rows.count, w.bounds)[0], 1)
        parts = _parts(sums.shape[0].constant)
        ends = [ZERO, *(Dim.of(end) for end in parts if end >= least)]
    for first, last in pairwise(ends):
        down = [replace(loop, start=first, stop=last) for loop in loops[: rows.count != 1]]
        with w.block() as body, _unrolled(w, [*down, *across], unroll) as offsets:
            for offset in offsets:
                here = {variable: place.substitute(offset) for variable, place in at.items()}
                index = (row.substitute(offset), column.substitute(offset))
                w.add(Store(sums, index, substitute_in(found.start, here)))
        w.add(*body if first == 0 else [If(binary("<", first, rows.count), tuple(body))])


def _parts(rows: int) -> tuple[int, ...]:
    """Where the parts of a tile end that sums start in one after another."""
    return (1, rows // 4, rows // 2, rows) if rows >= 12 else (1, rows)


def is_contiguous(load: Load, loops: Sequence[For]) -> bool:
    """Whether loops read neighbors, as one loop does."""
    steps = [prod((inner.extent for inner in loops[n + 1 :]), start=ONE) for n in range(len(loops))]
    return all(stride(load, lp.variable) == step for lp, step in zip(loops, steps, strict=True))


def _merged(levels: Sequence[tuple[Dim, Dim, Dim]]) -> Levels:
    """Reductions of (count, left, right), as few as they can be: one of a single step is
    dropped, and one that goes on where the next inner one ends is the same loop."""
    result: list[tuple[Dim, Dim, Dim]] = []
    for count, left, right in levels:
        if count == 1:
            continue
        if result and result[-1][1:] == (count * left, count * right):
            result[-1] = (result[-1][0] * count, left, right)
        else:
            result.append((count, left, right))
    return tuple(result) or tuple(levels[-1:])
