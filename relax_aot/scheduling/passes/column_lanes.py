# SPDX-License-Identifier: Apache-2.0
"""Reductions of contiguous columns, several columns at a time: softmax and sums along an axis that
is not the last one, and windows of pools that move by one element.

The loop over columns becomes the innermost one, so that compilers make vectors of it, and each
scalar of a column an element of a small array (scalar expansion and loop interchange). Scalars that
are the same for all columns stay scalars. Where windows are clipped, columns stay as they are.
Every column keeps its order, and so its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import Bounds, Dim, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Buffer,
    Declare,
    Expr,
    For,
    Kernel,
    Load,
    Local,
    Stmt,
    Store,
    expressions,
    index_dims,
    walk,
)
from relax_aot.microkernels.functions import FUNCTIONS
from relax_aot.scheduling.apply import rewrite_nests
from relax_aot.scheduling.contraction import contraction_of, stride
from relax_aot.scheduling.nest import Nest, greatest, names_in, nest_of
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.windows import Interior, interior
from relax_aot.scheduling.writer import Ends, Writer

EXAMPLES = (
    Example(
        why="the maxima of columns",
        before="""
            kernel @peaks(%x: f32[9, 20]) -> (%y: f32[20]) {
              for j in 0..20 {
                local peak: f32 = -inf:f32
                for i in 0..9 {
                  peak = max(peak, %x[i, j])
                }
                %y[j] = peak
              }
            }""",
        after="""
            kernel @peaks(%x: f32[9, 20]) -> (%y: f32[20]) {
              reserve %peak_lanes: f32[20]
              for lane in 0..20 {
                %peak_lanes[lane] = -inf:f32
              }
              for i_0 in 0..9 {
                for lane_0 in 0..20 {
                  %peak_lanes[lane_0] = max(%peak_lanes[lane_0], %x[i_0, lane_0])
                }
              }
              for lane_1 in 0..20 {
                %y[lane_1] = %peak_lanes[lane_1]
              }
            }""",
        target="host",
    ),
    Example(
        why="windows that nothing cuts off; how many elements they have is one number",
        before="""
            kernel @mean(%x: f32[20]) -> (%y: f32[20]) {
              for i in 0..20 {
                local total: f32 = 0.0:f32
                local count: f32 = 0.0:f32
                for k in max(-i + 1, 0)..min(-i + 21, 2) {
                  total = (total + %x[i + k - 1])
                  count = (count + 1.0:f32)
                }
                %y[i] = (total / count)
              }
            }""",
        after="""
            ...
              for lane_0 in 0..19 {
                %total_lanes[lane_0] = (%total_lanes[lane_0] + %x[lane_0])
              }
              count_0 = (count_0 + 1.0:f32)
              for lane_1 in 0..19 {
                %total_lanes[lane_1] = (%total_lanes[lane_1] + %x[lane_1 + 1])
              }
              count_0 = (count_0 + 1.0:f32)
              for lane_2 in 0..19 {
                %y[lane_2 + 1] = (%total_lanes[lane_2] / count_0)
              }
            ...""",
        target="host",
    ),
    Example(
        why="every second column",
        before="""
            kernel @peaks(%x: f32[9, 32]) -> (%y: f32[16]) {
              for j in 0..16 {
                local peak: f32 = -inf:f32
                for i in 0..9 {
                  peak = max(peak, %x[i, 2*j])
                }
                %y[j] = peak
              }
            }""",
        target="host",
    ),
)
WIDTH = 32
"""Columns at a time."""
LONG = 64
"""The same where functions are computed, which vectors of several registers compute faster."""
LEAST = 17
"""Fewer columns stay as they are: GCC unrolls loops of up to 16 iterations, and makes no vectors of
comparisons then."""
WRITTEN_OUT = 8
"""Iterations of a loop at most that are written out. GCC may exchange short loops with those over
columns."""


def run(module: Module, target: Target) -> Module:
    """Every kernel, for targets whose compilers make vectors of loops."""
    if target.partial_sums < 2:
        return module
    kernels = (_by_columns(kernel, module) for kernel in module.kernels)
    return replace(module, kernels=tuple(kernels))


def _by_columns(kernel: Kernel, module: Module) -> Kernel:
    if kernel.parallel:
        return kernel
    w, nests = Writer(names_in(kernel), module.bounds), list[Nest]()

    def match(stmt: For, _: tuple[For, ...]) -> Emit | None:
        found = _columns_of(stmt, w, kernel)
        if found is None:
            return None
        nests.append(found.nest)
        return found.emit

    with w.block() as body:
        rewrite_nests(kernel.body, w, match)
    if not nests:
        return kernel
    pairs = tuple(pair for pair in kernel.in_place if all(_steady(n, pair) for n in nests))
    return replace(kernel, body=tuple(body), in_place=pairs)


def _steady(nest: Nest, pair: tuple[str, str]) -> bool:
    """Whether a column reads no other elements of the operand than it writes in its place."""
    read, written = pair
    loaded = {one.index for one in _accesses(nest.leaf) if one.buffer.name == read}
    stored = {one.index for one in _accesses(nest.leaf) if one.buffer.name == written}
    return not loaded or not stored or loaded == stored


def _accesses(leaf: Sequence[Stmt]) -> Iterator[Load | Store]:
    for stmt in walk(leaf):
        yield from (expr for expr in expressions(stmt) if isinstance(expr, Load))
        if isinstance(stmt, Store):
            yield stmt


def _columns_of(stmt: For, w: Writer, kernel: Kernel) -> _Columns | None:
    nest = nest_of(stmt, w.bounds.open)
    if nest is None or contraction_of(stmt, w.bounds) is not None:
        return None
    *_, inner = nest.loops
    name = inner.variable
    if name not in nest.free or not _contiguous(nest.leaf, name):
        return None
    if not all(isinstance(one, Declare | Assign | Store | For) for one in walk(nest.leaf)):
        return None
    hole = interior(inner, nest)
    if hole is None:
        return None
    if greatest(simplify(hole.stop - hole.start, w.bounds.open), w.bounds) < LEAST:
        return None
    read = {one.buffer.name for one in _accesses(nest.leaf) if isinstance(one, Load)}
    written = {one.buffer.name for one in _accesses(nest.leaf) if isinstance(one, Store)}
    return _Columns(nest, hole, w, not read & written and not kernel.in_place)


def _contiguous(leaf: Sequence[Stmt], name: str) -> bool:
    """Whether columns are next to each other wherever they are accessed."""
    steps = [(stride(one, name), isinstance(one, Store)) for one in _accesses(leaf)]
    if not all(step == 1 or (step == 0 and not stores) for step, stores in steps):
        return False
    return any(step == 1 and not stores for step, stores in steps)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The loops of a nest. `hole`: columns whose windows are complete."""

    nest: Nest
    hole: Interior
    w: Writer
    again: bool
    """Whether columns may be computed twice."""

    def emit(self) -> None:
        """Highs may be raised when the project is compiled: tiles are right for them too."""
        with self.w.block() as body:
            self.w.bounds = self.w.bounds.open
            with self.w.nest(self.nest.loops[:-1]):
                self.columns()
        self.w.add(*body)

    def columns(self) -> None:
        w, inner, hole = self.w, self.nest.loops[-1], self.hole
        name, whole = inner.variable, not hole.full
        low = inner.start if whole else w.short(f"{name}_low", hole.start)
        high = inner.stop if whole else w.short(f"{name}_high", hole.stop)
        self.cover(low, high)
        for start, stop in () if whole else ((inner.start, low), (high, inner.stop)):
            if simplify(stop - start, w.bounds) != 0:
                w.each(name, start, stop, self.single)

    def cover(self, start: Dim, stop: Dim) -> None:
        """The columns between these, in tiles. The last tile covers columns of the one before again
        if it may; else what is left is a tile of fewer columns."""
        w, name = self.w, self.nest.loops[-1].variable
        functions = any(
            isinstance(e, Apply) and e.function in FUNCTIONS
            for s in walk(self.nest.leaf)
            for e in expressions(s)
        )
        extent = simplify(stop - start, w.bounds)
        width = LONG if functions else WIDTH
        if extent.is_constant and extent.constant < width:
            width = extent.constant
        count = simplify(extent // width, w.bounds)
        if count != 0:
            whole = Dim.of(width)
            w.each(
                f"{name}_tile", 0, count, lambda at: self.lanes(start + at * width, whole, width)
            )
        rest = simplify(extent - count * width, w.bounds)
        if rest == 0:
            return
        if rest.is_constant:
            again = self.again and count != 0
            most = width if again else rest.constant
            self.lanes(stop - most, Dim.of(most), most)
            return
        left = w.short(f"{name}_left", rest)
        with w.range(f"{name}_last", simplify((left + width - 1) // width, w.bounds)):
            self.lanes(stop - left, left, width)

    def single(self, at: Dim) -> None:
        """One column, as it was."""
        _Body(self.w, {self.nest.loops[-1].variable: at}, {}).plain(self.nest.leaf)

    def lanes(self, first: Dim, count: Dim, width: int) -> None:
        """`count` columns, at most `width`."""
        name, w = self.nest.loops[-1].variable, self.w
        known = w.bounds.with_value(name, self.hole.start, self.hole.stop - 1)
        body = _Body(w, {}, dict(self.hole.full), name, first, count, width, known)
        body.find(self.nest.leaf)
        body.block(self.nest.leaf)


@dataclass(slots=True)
class _Body:
    """The leaf of a nest, for one column or for `count` of them from `first` on."""

    w: Writer
    at: Mapping[str, Dim]
    full: Mapping[str, Ends]
    column: str = ""
    first: Dim = field(default_factory=lambda: Dim.of(0))
    count: Dim = field(default_factory=lambda: Dim.of(0))
    width: int = 0
    known: Bounds = field(default_factory=lambda: Bounds(()))
    """With the range of the columns."""
    varying: set[Local] = field(default_factory=set)
    arrays: dict[Local, Buffer] = field(default_factory=dict)
    values: dict[Local, Expr] = field(default_factory=dict)

    def loop(self, loop: For, inside: Callable[[Sequence[Stmt]], None]) -> None:
        start, stop = self.full.get(loop.variable, (loop.start, loop.stop))
        start, stop = start.substitute(self.at), stop.substitute(self.at)
        outer, extent = self.at, simplify(stop - start, self.w.bounds)
        if self.width and extent.is_constant and extent.constant <= WRITTEN_OUT:
            for step in range(extent.constant):
                self.at = {**outer, loop.variable: start + step}
                inside(loop.body)
        else:
            with self.w.range(loop.variable, stop, start) as at:
                self.at = {**outer, loop.variable: at}
                inside(loop.body)
        self.at = outer

    def plain(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                self.loop(stmt, self.plain)
            else:
                self.w.place((stmt,), self.values, self.at)

    # Several columns

    def find(self, leaf: Sequence[Stmt]) -> None:
        """Which scalars differ from column to column."""
        known = -1
        while known < len(self.varying):
            known = len(self.varying)
            for stmt in walk(leaf):
                if isinstance(stmt, Declare | Assign) and self.differs(stmt):
                    self.varying.add(stmt.local)

    def differs(self, stmt: Stmt) -> bool:
        if isinstance(stmt, Store):
            return True
        if isinstance(stmt, Declare | Assign) and stmt.local in self.varying:
            return True
        moved = any(map(self.moves, index_dims(stmt)))
        return moved or any(expr in self.varying for expr in expressions(stmt))

    def moves(self, dim: Dim) -> bool:
        """Whether an index differs from column to column."""
        if self.column not in dim.symbols or not dim.symbols <= set(self.known):
            return self.column in dim.symbols
        return self.column in simplify(dim, self.known).symbols

    def block(self, body: Sequence[Stmt]) -> None:
        def kind(stmt: Stmt) -> int:
            return 2 if isinstance(stmt, For) else int(self.differs(stmt))

        for which, group in groupby(body, kind):
            if which == 0:
                at = {**self.at, self.column: self.first}
                self.w.place(group, self.values, at)
            elif which == 1:
                self.lane_loop(tuple(group))
            else:
                for stmt in group:
                    assert isinstance(stmt, For)
                    self.loop(stmt, self.block)

    def lane_loop(self, statements: Sequence[Stmt]) -> None:
        w = self.w
        for stmt in statements:
            if isinstance(stmt, Declare):
                array = w.reserve(
                    f"{stmt.local.name}_lanes", stmt.local.dtype, REGISTER, self.width
                )
                self.arrays[stmt.local] = array
        with w.range("lane", self.count) as lane:
            elements = {local: Load(array, (lane,)) for local, array in self.arrays.items()}
            placed: list[Stmt] = []
            for stmt in statements:
                if isinstance(stmt, Declare | Assign):
                    element = elements[stmt.local]
                    stmt = Store(element.buffer, element.index, stmt.value)
                placed.append(stmt)
            at = {**self.at, self.column: self.first + lane}
            w.place(placed, {**self.values, **elements}, at)
