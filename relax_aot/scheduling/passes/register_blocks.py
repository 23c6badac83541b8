# SPDX-License-Identifier: Apache-2.0
"""Register blocking: output loops in tiles whose sums all stay in registers.

A loop becomes a loop over full tiles and a remainder, exactly, whether its size is a number or
dynamic. Positions where a padded window is clipped are separate from the interior, which has
no bounds to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

from relax_aot.ir.dims import Bounds, Dim, dim_max, dim_min, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Kernel
from relax_aot.scheduling.apply import rewrite_nests
from relax_aot.scheduling.cost import Blocking, choose, work_of
from relax_aot.scheduling.nest import Nest, greatest, names_in, nest_of
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.unroll_and_jam import CannotJam, Lane, Plan, unroll_and_jam
from relax_aot.scheduling.windows import Interior, interior
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="two sums stay in registers",
        before="""
            kernel @product(%x: f32[2], %w: f32[2, 2]) -> (%y: f32[2]) {
              for j in 0..2 {
                local sum: f32 = 0.0:f32
                for k in 0..2 {
                  sum = fma(%x[k], %w[k, j], sum)
                }
                %y[j] = sum
              }
            }""",
        after="""
            kernel @product(%x: f32[2], %w: f32[2, 2]) -> (%y: f32[2]) {
              local sum_0: f32 = 0.0:f32
              local sum_1: f32 = 0.0:f32
              local x_at: f32 = %x[0]
              sum_0 = fma(x_at, %w[0, 0], sum_0)
              sum_1 = fma(x_at, %w[0, 1], sum_1)
              local x_at_0: f32 = %x[1]
              sum_0 = fma(x_at_0, %w[1, 0], sum_0)
              sum_1 = fma(x_at_0, %w[1, 1], sum_1)
              %y[0] = sum_0
              %y[1] = sum_1
            }""",
        target="fpu",
    ),
    Example(
        why="nothing is read again",
        before="""
            symbol n in 1..64
            kernel @add(%x: f32[n]) -> (%y: f32[n]) {
              for i in 0..n {
                %y[i] = (%x[i] + 1.0:f32)
              }
            }""",
        target="fpu",
    ),
)


def run(module: Module, target: Target, work: int = 0) -> Module:
    """The same results to the bit, from blocks of several results at once. `work`: of the whole
    model, where this is a part of it."""
    bounds = module.bounds
    work = work or sum(work_of(kernel.body, bounds) for kernel in module.kernels)
    kernels = (block_kernel(kernel, target, bounds, work) for kernel in module.kernels)
    return replace(module, kernels=tuple(kernels))


def block_kernel(kernel: Kernel, target: Target, bounds: Bounds, work: int) -> Kernel:
    w = Writer(names_in(kernel), bounds)

    def match(stmt: For, around: tuple[For, ...]) -> Emit | None:
        bounds = w.bounds.open
        nest = nest_of(stmt, bounds)
        if nest is None:
            return None
        times = prod(greatest(loop.extent, w.bounds) for loop in around)
        share = times * work_of((stmt,), w.bounds) / max(work, 1)
        blocking = choose(nest, bounds, target, share)
        return partial(w.add, stmt) if blocking is None else _Blocks(nest, blocking, w).emit

    with w.block() as body:
        rewrite_nests(kernel.body, w, match)
    return replace(kernel, body=tuple(body))


Ends = tuple[Dim, Dim]
Inside = Callable[[Dim, int], None]
"""Writes the loops inside an iteration, or a block of some."""


@dataclass(frozen=True, slots=True)
class _State:
    """`at`: the value of each outer loop; `lanes`: how many of its iterations a block holds;
    `full`: bounds of inner loops that hold there."""

    at: Mapping[str, Dim]
    lanes: Mapping[str, int]
    full: Mapping[str, Ends]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The loops of one nest."""

    nest: Nest
    blocking: Blocking
    w: Writer

    def emit(self) -> None:
        """Highs may be raised when the project is compiled: blocks are right for them too."""
        with self.w.block() as body:
            self.w.bounds = self.w.bounds.open
            self.loops(0, _State({}, {}, {}))
        self.w.add(*body)

    def loops(self, depth: int, state: _State) -> None:
        if depth == len(self.nest.loops):
            self._leaf(state)
            return
        loop = self.nest.loops[depth]
        at = state.at
        loop = For(loop.variable, loop.start.substitute(at), loop.stop.substitute(at), ())
        size = dict(self.blocking.tiles).get(loop.variable, 1)
        hole = interior(loop, self.nest)
        if hole is None or not self._separate(loop, hole, size):
            self._cover(loop, size, partial(self._inside, depth, state, loop.variable))
            return
        low = self.w.short(f"{loop.variable}_low", hole.start)
        high = self.w.short(f"{loop.variable}_high", hole.stop)
        full = replace(state, full={**state.full, **dict(hole.full)})
        inner = replace(loop, start=low, stop=high)
        self._cover(inner, size, partial(self._inside, depth, full, loop.variable))
        self._borders(loop, (low, high), partial(self._inside, depth, state, loop.variable))

    def _separate(self, loop: For, inside: Interior, size: int) -> bool:
        """Whether borders and interior are blocks of their own."""
        if not inside.full:
            return False
        unrolled = {name for name, steps in self.blocking.steps if steps == 0}
        written_out = {name for name, _ in inside.full} <= unrolled
        extent = simplify(loop.extent, self.w.bounds)
        one_tile = extent.is_constant and extent.constant <= size
        return not (written_out and one_tile) and (size > 1 or written_out)

    def _leaf(self, state: _State) -> None:
        plan = Plan(state.full, dict(self.blocking.steps))
        offsets = product(*(range(count) for count in state.lanes.values()))
        moves = (dict(zip(state.lanes, offset, strict=True)) for offset in offsets)
        lanes = [
            Lane({**state.at, **{name: state.at[name] + i for name, i in move.items()}}, {})
            for move in moves
        ]
        unroll_and_jam(self.nest.leaf, lanes, plan, self.w)

    def _cover(self, loop: For, size: int, inside: Inside) -> None:
        """Covers one loop by blocks."""
        start, stop, w = loop.start, loop.stop, self.w
        extent = simplify(stop - start, w.bounds)
        if extent.is_constant and extent.constant <= 0:
            return
        count = simplify(extent // size, w.bounds)
        if size > 1 and count != 0:
            with suppress(CannotJam):
                name = f"{loop.variable}_tile"
                w.each(name, 0, count, lambda tile: inside(loop.start + tile * size, size))
                start = start + count * size
        left = simplify(stop - start, w.bounds)
        if left == 0:
            return
        if left.is_constant and 1 < left.constant < size:
            with suppress(CannotJam):
                inside(start, left.constant)
                return
        w.each(loop.variable, start, stop, lambda at: inside(at, 1))

    def _borders(self, loop: For, hole: Ends, inside: Inside) -> None:
        """The positions before and after the hole, one at a time, in one loop."""
        w = self.w
        before = simplify(hole[0] - loop.start, w.bounds)
        after = simplify(loop.stop - hole[1], w.bounds)
        for start, stop, other in ((loop.start, hole[0], after), (hole[1], loop.stop, before)):
            if other == 0:
                w.each(loop.variable, start, stop, lambda at: inside(at, 1))
                return
        with w.range(f"{loop.variable}_border", before + after) as counter:
            # 0 up to the hole, 1 beyond it.
            beyond = dim_min(dim_max(counter - before + 1, 0), 1)
            at = loop.start + counter + beyond * (hole[1] - hole[0])
            inside(w.let(loop.variable, at, at, at), 1)

    def _inside(self, depth: int, state: _State, variable: str, at: Dim, lanes: int) -> None:
        """The loops inside an iteration, or a block of some. Adds nothing where lanes cannot be
        jammed."""
        place, count = {**state.at, variable: at}, {**state.lanes, variable: lanes}
        with self.w.block() as body:
            self.loops(depth + 1, _State(place, count, state.full))
        self.w.add(*body)
