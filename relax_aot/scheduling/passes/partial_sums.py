# SPDX-License-Identifier: Apache-2.0
"""Partial sums: a reduction along contiguous memory in a fixed number of lanes and a fixed tree.

Lane l of L takes the elements l, l + L, l + 2 L, ... in their order. Then the upper half of the
lanes is added to the lower one until one lane is left, which is added to the start of the sum. So
the order depends on nothing but the number of elements: elements behind the last one add zeros,
and fewer lanes than L for a shorter row give the same bits. Error bounds of such blocked sums:
Blanchard, Higham, Mary, "A class of fast and accurate summation algorithms", 2020.

Maxima and minima are split alike. Sums of integer elements that are converted, as averages of
quantized values, keep the order of the plain loops: a sum that lies on a middle between two
quantized results would round to the other one, and references sum in order. Sums of products of
two operands are contractions, which have tiles of their own; they keep the order of the plain
loops on every target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ZERO, Bounds, Dim, dim_max, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Lit,
    Load,
    Local,
    Reserve,
    Stmt,
    Store,
    apply,
    expressions,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import stride
from relax_aot.scheduling.nest import bounds_known, greatest, names_in, ranges, without_lets
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="one element to each lane at a time, then those that are left",
        before="""
            symbol n in 1..999
            kernel @sum(%x: f32[n]) -> (%y: f32[]) {
              local total: f32 = 0.0:f32
              for i in 0..n {
                total = (total + %x[i])
              }
              %y[] = total
            }""",
        after="""
            kernel @sum(%x: f32[n]) -> (%y: f32[]) {
              local total: f32 = 0.0:f32
              reserve %total_lanes: f32[32]
              for lane in 0..32 {
                %total_lanes[lane] = -0.0:f32
              }
              let i_count = n // 32
              for i_block in 0..i_count {
                for lane_0 in 0..32 {
                  %total_lanes[lane_0] = (%total_lanes[lane_0] + %x[32*i_block + lane_0])
                }
              }
              for lane_1 in 0..-32*i_count + n {
                %total_lanes[lane_1] = (%total_lanes[lane_1] + %x[32*i_count + lane_1])
              }
              micro raot_add_lanes_f32(...) [32]
              total = (total + %total_lanes[0])
              %y[] = total
            }""",
        target="host",
    ),
    Example(
        why="a short row needs fewer lanes",
        before="""
            kernel @peak(%x: f32[5]) -> (%y: f32[]) {
              local peak: f32 = -inf:f32
              for i in 0..5 {
                peak = max(peak, %x[i])
              }
              %y[] = peak
            }""",
        after="""
            kernel @peak(%x: f32[5]) -> (%y: f32[]) {
              local peak: f32 = -inf:f32
              reserve %peak_lanes: f32[8]
              for lane in 0..8 {
                %peak_lanes[lane] = -inf:f32
              }
              for lane_0 in 0..5 {
                %peak_lanes[lane_0] = max(%peak_lanes[lane_0], %x[lane_0])
              }
              micro raot_max_lanes_f32(...) [8]
              peak = max(peak, %peak_lanes[0])
              %y[] = peak
            }""",
        target="host",
    ),
    Example(
        why="elements of a column are apart in memory",
        before="""
            symbol n in 1..999
            kernel @columns(%x: f32[n, 8]) -> (%y: f32[8]) {
              for j in 0..8 {
                local total: f32 = 0.0:f32
                for i in 0..n {
                  total = (total + %x[i, j])
                }
                %y[j] = total
              }
            }""",
        target="host",
    ),
    Example(
        why="sums of quantized values keep their order",
        before="""
            symbol n in 1..999
            kernel @sum(%x: i8[n]) -> (%y: f32[]) {
              local total: f32 = 0.0:f32
              for i in 0..n {
                total = (total + cast(%x[i], f32, wrap))
              }
              %y[] = total
            }""",
        target="host",
    ),
    Example(
        why="the ends of a window are names for a few elements next to a position",
        before="""
            symbol n in 1..999
            kernel @pool(%x: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                local total: f32 = 0.0:f32
                let first = max(-i + 1, 0)
                let last = min(-i + n + 1, 3)
                for k in first..last {
                  total = (total + %x[i + k - 1])
                }
                %y[i] = total
              }
            }""",
        target="host",
    ),
    Example(
        why="products of two operands are a contraction",
        before="""
            symbol n in 1..999
            kernel @dot(%x: f32[n], %w: f32[n]) -> (%y: f32[]) {
              local total: f32 = 0.0:f32
              for i in 0..n {
                total = fma(%x[i], %w[i], total)
              }
              %y[] = total
            }""",
        target="host",
    ),
)

_NEUTRAL = {"add": -0.0, "max": float("-inf"), "min": float("inf")}
"""What changes no number, -0 included."""
_SHORT = 8
"""Iterations of an inner loop that are too few for lanes of their own."""


def run(module: Module, target: Target) -> Module:
    """Reductions in the lanes of the target, where it has some."""
    if target.partial_sums < 2:
        return module
    kernels = (split_kernel(k, module.bounds, target.partial_sums) for k in module.kernels)
    return replace(module, kernels=tuple(kernels))


def split_kernel(kernel: Kernel, bounds: Bounds, lanes: int) -> Kernel:
    """The kernel in lanes. One with parallel loops is scheduled already."""
    if kernel.parallel:
        return kernel
    w = Writer(names_in(kernel), bounds)
    with w.block() as body:
        _Splitter(w, lanes).block(kernel.body, ())
    return replace(kernel, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _Sum:
    """A scalar that each iteration of `loop` changes by `kind`, in `width` lanes."""

    loop: For
    local: Local
    kind: str
    width: int

    @property
    def micro_kernel(self) -> str:
        return f"raot_{self.kind}_lanes_{self.local.dtype.value}"

    def combined(self, other: Expr) -> Expr:
        return self.local + other if self.kind == "add" else apply(self.kind, self.local, other)


@dataclass(frozen=True, slots=True)
class _Splitter:
    w: Writer
    lanes: int
    split: dict[int, list[tuple[_Sum, Buffer]]] = field(default_factory=dict)
    """The sums of each loop that is split, by its identity."""

    def block(self, body: tuple[Stmt, ...], around: tuple[str, ...]) -> None:
        declared: set[Local] = set()
        for stmt in body:
            match stmt:
                case For():
                    self.outermost(stmt, declared, around)
                case If():
                    parts = (self.nested(part, around) for part in (stmt.then, stmt.otherwise))
                    self.w.add(If(stmt.condition, *parts))
                case _:
                    self.w.add(stmt)
            if isinstance(stmt, Declare):
                declared.add(stmt.local)
            elif isinstance(stmt, Let):
                around = _with_let(around, stmt)
                if stmt.value.symbols <= set(self.w.bounds):
                    self.w.bounds = self.w.bounds.with_value(stmt.name, stmt.value, stmt.value)

    def nested(
        self, body: tuple[Stmt, ...], around: tuple[str, ...], bounds: Bounds | None = None
    ) -> tuple[Stmt, ...]:
        with self.w.block() as found:
            self.w.bounds = self.w.bounds if bounds is None else bounds
            self.block(body, around)
        return tuple(found)

    def outermost(self, loop: For, declared: set[Local], around: tuple[str, ...]) -> None:
        """A loop, with the lanes of the sums that are declared next to it."""
        sums = [(one, self.begin(one)) for one in self.sums(loop, declared, around)]
        for one, lanes in sums:
            self.split.setdefault(id(one.loop), []).append((one, lanes))
        self.loop(loop, around)
        for one, lanes in sums:
            self.w.micro(one.micro_kernel, lanes=lanes, count=one.width)
            self.w.add(Assign(one.local, one.combined(Load(lanes, (ZERO,)))))

    def begin(self, one: _Sum) -> Buffer:
        w, dtype = self.w, one.local.dtype
        lanes = Buffer(w.fresh(f"{one.local.name}_lanes"), dtype, (Dim.of(one.width),), REGISTER)
        w.add(Reserve(lanes))
        with w.range("lane", one.width) as lane:
            w.add(Store(lanes, (lane,), Lit(_NEUTRAL[one.kind], dtype)))
        return lanes

    def loop(self, loop: For, around: tuple[str, ...]) -> None:
        w, inside = self.w, (*around, loop.variable)
        if id(loop) in self.split:
            self.lane_loops(loop, self.split[id(loop)])
        else:
            bounds = ranges((loop,), w.bounds) if bounds_known(loop, w.bounds) else w.bounds
            w.add(replace(loop, body=self.nested(loop.body, inside, bounds)))

    def lane_loops(self, loop: For, sums: list[tuple[_Sum, Buffer]]) -> None:
        """Blocks of one iteration for each lane, and the iterations that are left."""
        w, width = self.w, sums[0][0].width
        extent = dim_max(loop.extent, 0)
        if bounds_known(loop, w.bounds):
            extent = simplify(extent, w.bounds)
        count = w.named(f"{loop.variable}_count", extent // width)

        def run(name: str, blocks: Dim, of: Dim, first: Callable[[Dim], Dim]) -> None:
            def lanes(block: Dim) -> None:
                with w.range("lane", of) as lane:
                    self.iteration(loop, sums, first(block) + lane, lane)

            w.each(name, 0, blocks, lanes)

        if count != 0:
            run(f"{loop.variable}_block", count, Dim.of(width), lambda at: loop.start + at * width)
        if extent != count * width:
            end = loop.start + count * width
            run("", Dim.of(1), extent - count * width, lambda _: end)

    def iteration(self, loop: For, sums: list[tuple[_Sum, Buffer]], at: Dim, lane: Dim) -> None:
        """One iteration, whose sums are those of a lane."""
        lanes = {one.local: Load(buffer, (lane,)) for one, buffer in sums}
        body = [
            Store(lanes[stmt.local].buffer, (lane,), stmt.value)
            if isinstance(stmt, Assign)
            else stmt
            for stmt in without_lets(loop.body)
        ]
        self.w.place(body, {**lanes}, {loop.variable: at})

    # What can be split

    def sums(self, loop: For, declared: set[Local], around: tuple[str, ...]) -> list[_Sum]:
        """The scalars of `declared` that the loop changes in one place only and does not read, in
        the innermost loops with contiguous accesses."""
        uses = Counter(
            expr for stmt in walk((loop,)) for expr in expressions(stmt) if isinstance(expr, Local)
        )
        found: list[_Sum] = []
        for inner, inside in _innermost(loop, around):
            changed = [stmt for stmt in inner.body if isinstance(stmt, Assign)]
            kinds = {stmt.local: _kind(stmt) for stmt in changed}
            names = [stmt.local for stmt in changed]
            fits = all(
                names.count(local) == uses[local] == 1 and local in declared and kinds[local]
                for local in names
            )
            width = self.width(inner, loop, inside)
            splits = _is_contiguous(inner) and not _reads_integers(inner)
            if changed and fits and width > 1 and splits:
                found += [_Sum(inner, local, kinds[local], width) for local in names]
        return found

    def width(self, inner: For, outer: For, around: tuple[str, ...]) -> int:
        """The lanes of a loop: as many as a short row has elements, in powers of two; 1 for
        windows and other loops that are too short."""
        extent = inner.extent
        if not extent.is_constant:
            clipped = not extent.symbols.isdisjoint(around)
            short = clipped and greatest(extent, self.w.bounds.open) < self.lanes
            return 1 if short else self.lanes
        if extent.constant < (3 if inner is outer else _SHORT):
            return 1
        if extent.constant < self.lanes and _is_window(inner, around):
            return 1
        return min(self.lanes, 1 << (extent.constant - 1).bit_length())


def _innermost(loop: For, around: tuple[str, ...]) -> Iterator[tuple[For, tuple[str, ...]]]:
    """The loops in `loop` that hold scalar statements alone, and the variables around each."""
    if all(isinstance(stmt, Declare | Assign | Store | Let) for stmt in loop.body):
        yield loop, around
    inside = (*around, loop.variable)
    for stmt in loop.body:
        if isinstance(stmt, For):
            yield from _innermost(stmt, inside)
        elif isinstance(stmt, Let):
            inside = _with_let(inside, stmt)


def _with_let(around: tuple[str, ...], let: Let) -> tuple[str, ...]:
    """The variables around what follows a name, which changes with those that its value has."""
    return around if let.value.symbols.isdisjoint(around) else (*around, let.name)


def _kind(stmt: Assign) -> str:
    """How a scalar changes; empty where its lanes cannot be combined."""
    total = stmt.local
    if total.dtype not in (DType.F32, DType.F64):
        return ""
    match stmt.value:
        case Binary("+", left, right) if total in (left, right):
            return "add"
        case Apply("fma", (left, right, other)) if other == total and left == right:
            return "add"
        case Apply("max" | "min" as kind, args) if total in args:
            return kind
        case _:
            return ""


def _accesses(loop: For) -> Iterator[Load | Store]:
    for stmt in without_lets(loop.body):
        yield from (expr for expr in expressions(stmt) if isinstance(expr, Load))
        if isinstance(stmt, Store):
            yield stmt


def _is_contiguous(loop: For) -> bool:
    """Whether loads move by one element or stay, and stores move by one."""
    steps = [(stride(one, loop.variable), one) for one in _accesses(loop)]
    moves = [step for step, one in steps if isinstance(one, Load)]
    return 1 in moves and all(
        step is not None and (step == 1 or (step == 0 and isinstance(one, Load)))
        for step, one in steps
    )


def _reads_integers(loop: For) -> bool:
    """Whether it reads integer elements, in most models quantized values."""
    return any(one.buffer.dtype.is_int or one.buffer.dtype.is_stored_int for one in _accesses(loop))


def _is_window(loop: For, around: tuple[str, ...]) -> bool:
    """Whether it counts from a position of the output, as sums of pooling do."""
    return any(
        loop.variable in dim.symbols and not dim.symbols.isdisjoint(around)
        for one in _accesses(loop)
        for dim in one.index
    )
