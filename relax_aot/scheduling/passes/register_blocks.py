# SPDX-License-Identifier: Apache-2.0
"""Register blocking: output loops in tiles whose sums all stay in registers.

A loop becomes a loop over full tiles and a remainder, exactly, whether its size is a number or
dynamic. Positions where a padded window is clipped are separate from the interior, which has
no bounds to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from relax_aot.ir.dims import Bounds, Dim, dim_max, dim_min, simplify
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Kernel
from relax_aot.scheduling.apply import rewrite_nests
from relax_aot.scheduling.cost import Blocking, choose, work_of
from relax_aot.scheduling.nest import Nest, greatest, names_in, nest_of
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.unroll_and_jam import unroll_and_jam
from relax_aot.scheduling.windows import Interior, interior
from relax_aot.scheduling.writer import Ends, Writer

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
    if kernel.parallel:
        return kernel
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
            self.loops(self.nest.loops, [{}], {})
        self.w.add(*body)

    def loops(
        self, loops: tuple[For, ...], lanes: Sequence[Mapping[str, Dim]], full: Mapping[str, Ends]
    ) -> None:
        """These loops for all lanes at once, which have their values of outer ones; `full`: bounds
        of inner loops that hold there."""
        if not loops:
            steps = dict(self.blocking.steps)
            unroll_and_jam(self.nest.leaf, lanes, full, steps, self.w)
            return

        def inside(full: Mapping[str, Ends], at: Dim, count: int) -> None:
            inner = [{**lane, name: at + i} for lane in lanes for i in range(count)]
            self.loops(loops[1:], inner, full)

        name, start, stop = loops[0].variable, loops[0].start, loops[0].stop
        loop = For(name, start.substitute(lanes[0]), stop.substitute(lanes[0]), ())
        size = dict(self.blocking.tiles).get(name, 1)
        hole = interior(loop, self.nest)
        if hole is None or not self._separate(loop, hole, size):
            self._cover(loop, size, partial(inside, full))
            return
        low = self.w.short(f"{name}_low", hole.start)
        high = self.w.short(f"{name}_high", hole.stop)
        self._cover(For(name, low, high, ()), size, partial(inside, {**full, **dict(hole.full)}))
        self._borders(loop, (low, high), partial(inside, full))

    def _separate(self, loop: For, inside: Interior, size: int) -> bool:
        """Whether borders and interior are blocks of their own."""
        if not inside.full:
            return False
        unrolled = {name for name, steps in self.blocking.steps if steps == 0}
        written_out = {name for name, _ in inside.full} <= unrolled
        extent = simplify(loop.extent, self.w.bounds)
        one_tile = extent.is_constant and extent.constant <= size
        return not (written_out and one_tile) and (size > 1 or written_out)

    def _cover(self, loop: For, size: int, inside: Callable[[Dim, int], None]) -> None:
        """Covers one loop by blocks; `inside` writes the loops inside a block."""
        start, stop, w = loop.start, loop.stop, self.w
        extent = simplify(stop - start, w.bounds)
        if extent.is_constant and extent.constant <= 0:
            return
        count = simplify(extent // size, w.bounds)
        if size > 1 and count != 0:
            name = f"{loop.variable}_tile"
            w.each(name, 0, count, lambda tile: inside(loop.start + tile * size, size))
            start = start + count * size
        left = simplify(stop - start, w.bounds)
        if left.is_constant and 1 < left.constant < size:
            inside(start, left.constant)
        elif left != 0:
            w.each(loop.variable, start, stop, lambda at: inside(at, 1))

    def _borders(self, loop: For, hole: Ends, inside: Callable[[Dim, int], None]) -> None:
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
