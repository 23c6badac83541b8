# SPDX-License-Identifier: Apache-2.0
"""Rows of an image that are read at places of a table, expanded once for all lines of the result.

`resize` reads a line of its result at the same places of every row, which lie anywhere in a row, so
that loads are single. A row is read by several lines where an image becomes larger. Its elements at
the places of a line are copied first, one copy for each table: all other loads are then contiguous.
Loads move, and no number changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from relax_aot.ir.dims import ZERO, Bounds, Dim, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Bind,
    Buffer,
    Expr,
    For,
    Kernel,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    index_dims,
    parts,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_index_dims
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import indexed_by
from relax_aot.scheduling.nest import chain_of, greatest, names_in
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

GAIN = 2
"""So many times fewer single loads are worth the copies."""

EXAMPLES = (
    Example(
        why="two places of each of three rows, for eight lines",
        target="host",
        before="""
            kernel @resize(%x: f32[3, 5], %at: i32[2, 9], %row: i32[8]) -> (%y: f32[8, 9]) {
              for i in 0..8 {
                for j in 0..9 {
                  clamped near in 0..2 = cast(%row[i], i64, wrap)
                  clamped left in 0..4 = cast(%at[0, j], i64, wrap)
                  clamped right in 0..4 = cast(%at[1, j], i64, wrap)
                  %y[i, j] = (%x[near, left] + %x[near, right])
                }
              }
            }""",
        after="""
            kernel @resize(...) -> (%y: f32[8, 9]) scratch (%rows: f32[2, 3, 9]) {
              for row_0 in 0..3 {
                for at_0 in 0..9 {
                  clamped left_0 in 0..4 = cast(%at[0, at_0], i64, wrap)
                  %rows[0, row_0, at_0] = %x[row_0, left_0]
                  clamped right_0 in 0..4 = cast(%at[1, at_0], i64, wrap)
                  %rows[1, row_0, at_0] = %x[row_0, right_0]
                }
              }
              for i in 0..8 {
                for j in 0..9 {
                  clamped near in 0..2 = cast(%row[i], i64, wrap)
                  %y[i, j] = (%rows[0, near, j] + %rows[1, near, j])
                }
              }
            }""",
    ),
    Example(
        why="as many rows as lines: as many copies as loads",
        target="host",
        before="""
            kernel @resize(%x: f32[8, 5], %at: i32[9], %row: i32[8]) -> (%y: f32[8, 9]) {
              for i in 0..8 {
                for j in 0..9 {
                  clamped near in 0..7 = cast(%row[i], i64, wrap)
                  clamped left in 0..4 = cast(%at[j], i64, wrap)
                  %y[i, j] = %x[near, left]
                }
              }
            }""",
    ),
)


@dataclass(frozen=True, slots=True)
class _Image:
    """Loads of one plane: `axis` of the index counts rows, the last one is a place of a table."""

    loads: tuple[Load, ...]
    axis: int
    places: tuple[Bind, ...]

    @property
    def rows(self) -> Dim:
        return self.loads[0].buffer.shape[self.axis]


def run(module: Module, target: Target) -> Module:
    """Every such image whose copies fit."""
    if not target.expands:
        return module
    kernels = {
        kernel.name: expanded
        for kernel in module.kernels
        if (expanded := _expanded(kernel, module.bounds, target.expands)) != kernel
    }
    return with_kernels(module, kernels) if kernels else module


def _expanded(kernel: Kernel, bounds: Bounds, room: int) -> Kernel:
    w = Writer(names_in(kernel), bounds)
    with w.block() as body:
        for stmt in kernel.body:
            if not (isinstance(stmt, For) and _emit(stmt, kernel, w, room)):
                w.add(stmt)
    if not w.scratch:
        return kernel
    return replace(kernel, scratch=(*kernel.scratch, *w.scratch), body=tuple(body))


def _emit(stmt: For, kernel: Kernel, w: Writer, room: int) -> bool:
    nest = chain_of(stmt, w.bounds)
    if nest is None or len(nest.loops) < 2 or any(isinstance(s, For) for s in nest.leaf):
        return False
    *outer, lines, line = nest.loops
    free = {lines.variable, line.variable} <= nest.free and lines.start == line.start == ZERO
    written = {s.buffer.name for s in walk(kernel.body) if isinstance(s, Store)}
    image = _image(nest.leaf, outer, line, written) if free else None
    if image is None or not _gains(image, lines, line, w.bounds, room):
        return False
    load = image.loads[0]
    rows = w.buffer("rows", load.dtype, len(image.places), image.rows, line.extent)
    with w.nest(outer):
        with w.range("row", image.rows) as row, w.range("at", line.extent) as at:
            for number, place in enumerate(image.places):
                name = w.fresh(place.name)
                (named,) = map_index_dims((place,), partial(_moved, to={line.variable: at}))
                assert isinstance(named, Bind)
                index = list(load.index)
                index[image.axis], index[-1] = row, Dim.of(name)
                w.add(replace(named, name=name))
                w.add(Store(rows, (Dim.of(number), row, at), Load(load.buffer, tuple(index))))
        with w.nest([lines, line]):
            w.add(*_contiguous(nest.leaf, image, rows, Dim.of(line.variable)))
    return True


def _moved(dim: Dim, to: Mapping[str, Dim]) -> Dim:
    return dim.substitute(to)


def _image(
    leaf: Sequence[Stmt], outer: Sequence[For], line: For, written: set[str]
) -> _Image | None:
    """The plane whose rows are read at places of tables along `line`; None where there are
    several."""
    binds = {stmt.name: stmt for stmt in leaf if isinstance(stmt, Bind)}
    used = {name: indexed_by(bind.value) for name, bind in binds.items()}
    places = {name for name in binds if used[name] == {line.variable}}
    places -= {n for n in places if any(isinstance(e, Local) for e in parts(binds[n].value))}
    rows = {Dim.of(name) for name in binds if line.variable not in used[name]}
    inner = {*binds, line.variable}
    known = {loop.variable for loop in outer}
    loads: list[Load] = []
    planes: set[tuple[Buffer, int, tuple[Dim, ...]]] = set()
    for load in {e: None for stmt in leaf for e in expressions(stmt) if isinstance(e, Load)}:
        *lead, last = load.index or (ZERO,)
        if last.symbols & places:
            axes = [at for at, dim in enumerate(lead) if dim in rows]
            rest = [dim for dim in lead if dim not in rows]
            others = {name for dim in rest for name in dim.symbols}
            if len(axes) != 1 or last not in map(Dim.of, places) or load.dtype is not DType.F32:
                return None
            if others & inner or others - known - load.buffer.type.symbols:
                return None
            loads.append(load)
            planes.add((load.buffer, axes[0], tuple(rest)))
    if len(planes) != 1 or loads[0].buffer.name in written:
        return None
    ((_, axis, _),) = planes
    read = {str(load.index[-1]) for load in loads}
    return _Image(tuple(loads), axis, tuple(binds[name] for name in binds if name in read))


def _gains(image: _Image, lines: For, line: For, bounds: Bounds, room: int) -> bool:
    """Whether copies are fewer than loads, and fit."""
    copies = image.rows * len(image.places)
    size = greatest(copies * line.extent, bounds) * DType.F32.bytes
    return size <= room and prove_le(copies * GAIN, lines.extent * len(image.loads), bounds)


def _contiguous(leaf: Sequence[Stmt], image: _Image, rows: Buffer, at: Dim) -> Iterator[Stmt]:
    """The statements of an element of the result, without places that nothing reads."""
    numbers = {Dim.of(place.name): Dim.of(n) for n, place in enumerate(image.places)}

    def rule(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr in image.loads:
            return Load(rows, (numbers[expr.index[-1]], expr.index[image.axis], at))
        return expr

    body = map_exprs(tuple(leaf), rule)
    read = {name for stmt in body for dim in index_dims(stmt) for name in dim.symbols}
    idle = {place.name for place in image.places} - read
    yield from (stmt for stmt in body if not (isinstance(stmt, Bind) and stmt.name in idle))
