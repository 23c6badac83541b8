"""Register blocking: output loops in tiles whose sums all stay in registers.

A loop becomes a loop over full tiles and what is left over, exactly, whether its size is a
number or known at run time only. Places where a padded window is cut off are apart from the
interior, which has no bounds to look at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from relax_aot.ir.dims import Bounds, Dim, dim_max, dim_min, interval, simplify
from relax_aot.ir.loops import For, Kernel, Let, Stmt
from relax_aot.scheduling.choice import Blocking, choose, turns
from relax_aot.scheduling.jam import CannotJam, Lane, Plan, jam, named, over
from relax_aot.scheduling.nest import Nest, bounds_known, names_in, nest_of
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.windows import Interior, interior
from relax_aot.scheduling.writer import Names


def block_kernel(kernel: Kernel, target: Target, bounds: Bounds, work: int = 0) -> Kernel:
    """The same results to the bit, from blocks of several results at once. `work`: what the
    whole model does, in turns of innermost loops; 0 where this kernel is all of it."""
    names = Names(names_in(kernel))
    total = max(work or work_of(kernel, bounds), 1)

    def blocked(body: tuple[Stmt, ...], bounds: Bounds, raised: Bounds, times: int) -> list[Stmt]:
        result: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
                bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
                raised = raised.with_value(stmt.name, stmt.value, stmt.value)
            nest = nest_of(stmt, raised)
            if nest is not None:
                blocking = choose(nest, raised, target, times * turns(nest, bounds) / total)
                made = (
                    _Blocks(nest, blocking, names).loops(0, {}, {}, {}, raised)
                    if blocking
                    else [stmt]
                )
                result += made
            elif isinstance(stmt, For) and bounds_known(stmt, raised):
                more = times * _most_turns(stmt, bounds)
                inside = _around(stmt, bounds), _around(stmt, raised)
                result.append(replace(stmt, body=tuple(blocked(stmt.body, *inside, more))))
            else:
                result.append(stmt)
        return result

    return replace(kernel, body=tuple(blocked(kernel.body, bounds, bounds.open, 1)))


def work_of(kernel: Kernel, bounds: Bounds) -> int:
    """Turns of the innermost loops of all nests."""
    return _work(kernel.body, bounds)


def _work(body: tuple[Stmt, ...], bounds: Bounds) -> int:
    total = 0
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        nest = nest_of(stmt, bounds)
        if nest is not None:
            total += turns(nest, bounds)
        elif isinstance(stmt, For) and bounds_known(stmt, bounds):
            total += _most_turns(stmt, bounds) * _work(stmt.body, _around(stmt, bounds))
    return total


def _around(loop: For, bounds: Bounds) -> Bounds:
    return over(bounds, loop.variable, loop.start, loop.stop)


def _most_turns(loop: For, bounds: Bounds) -> int:
    return max(interval(loop.stop - loop.start, bounds)[1], 1)


Ends = tuple[Dim, Dim]
Places = dict[str, Dim]


@dataclass
class _Blocks:
    """Writes the loops of one nest. `at`: where each outer loop stands; `lanes`: how many turns
    of it a block holds; `full`: bounds of inner loops that hold there."""

    nest: Nest
    blocking: Blocking
    names: Names

    def loops(
        self, depth: int, at: Places, lanes: dict[str, int], full: dict[str, Ends], bounds: Bounds
    ) -> list[Stmt]:
        if depth == len(self.nest.loops):
            return list(self._leaf(at, lanes, full, bounds))
        loop = self.nest.loops[depth]
        loop = For(loop.variable, loop.start.substitute(at), loop.stop.substitute(at), ())
        size = dict(self.blocking.tiles).get(loop.variable, 1)
        result: list[Stmt] = []
        whole = interior(loop, self.nest.reductions)
        if whole is None or not self._apart(loop, whole, size, bounds):
            inner = _Run(self, depth, at, lanes, full)
            inner.cover(loop.variable, (loop.start, loop.stop), size, bounds, result)
            return result
        low, high = simplify(whole.start, bounds), simplify(whole.stop, bounds)
        low, bounds = named(f"{loop.variable}_low", low, self.names, bounds, result)
        high, bounds = named(f"{loop.variable}_high", high, self.names, bounds, result)
        middle = _Run(self, depth, at, lanes, {**full, **dict(whole.full)})
        middle.cover(loop.variable, (low, high), size, bounds, result)
        borders = _Run(self, depth, at, lanes, full)
        borders.around(loop, (low, high), bounds, result)
        return result

    def _apart(self, loop: For, whole: Interior, size: int, bounds: Bounds) -> bool:
        """Borders and interior are blocks of their own."""
        if not whole.full:
            return False
        unrolled = {name for name, steps in self.blocking.steps if steps == 0}
        written_out = {name for name, _ in whole.full} <= unrolled
        extent = simplify(loop.stop - loop.start, bounds)
        one_tile = extent.is_constant and extent.constant <= size
        return not (written_out and one_tile) and (size > 1 or written_out)

    def _leaf(
        self, at: Places, lanes: dict[str, int], full: dict[str, Ends], bounds: Bounds
    ) -> tuple[Stmt, ...]:
        plan = Plan(full, dict(self.blocking.steps))
        offsets = product(*(range(count) for count in lanes.values()))
        turns = [
            Lane(
                {**at, **{n: at[n] + i for n, i in zip(lanes, offset, strict=True)}},
                {},
            )
            for offset in offsets
        ]
        return jam(self.nest.leaf, turns, plan, self.names, bounds)


@dataclass
class _Run:
    """Covers one region of one loop by blocks."""

    blocks: _Blocks
    depth: int
    at: Places
    lanes: dict[str, int]
    full: dict[str, Ends]

    def cover(
        self, variable: str, ends: Ends, size: int, bounds: Bounds, result: list[Stmt]
    ) -> None:
        start, stop = ends
        extent = simplify(stop - start, bounds)
        if extent.is_constant and extent.constant <= 0:
            return
        turns = simplify(extent // size, bounds)
        if size > 1 and turns != 0:
            try:
                self._tiles(variable, start, turns, size, bounds, result)
                start = start + turns * size
            except CannotJam:
                pass
        left = simplify(stop - start, bounds)
        if left == 0:
            return
        if left.is_constant and 1 < left.constant < size:
            try:
                result += self._inside(variable, start, left.constant, bounds)
                return
            except CannotJam:
                pass
        self._singles(variable, start, stop, bounds, result)

    def around(self, loop: For, hole: Ends, bounds: Bounds, result: list[Stmt]) -> None:
        """What lies before and after the hole, one place at a time, in one loop."""
        before = simplify(hole[0] - loop.start, bounds)
        after = simplify(loop.stop - hole[1], bounds)
        for start, stop, other in (
            (loop.start, hole[0], after),
            (hole[1], loop.stop, before),
        ):
            if other == 0:
                self._singles(loop.variable, start, stop, bounds, result)
                return
        counter = self.blocks.names.fresh(f"{loop.variable}_border")
        turns = before + after
        inner = over(bounds, counter, Dim.of(0), turns)
        # 0 up to the hole, 1 beyond it.
        beyond = dim_min(dim_max(Dim.of(counter) - before + 1, 0), 1)
        place = loop.start + Dim.of(counter) + beyond * (hole[1] - hole[0])
        body: list[Stmt] = []
        name = self.blocks.names.fresh(loop.variable)
        body.append(Let(name, place))
        inner = inner.with_value(name, place, place)
        body += self._inside(loop.variable, Dim.of(name), 1, inner)
        result.append(For(counter, Dim.of(0), turns, tuple(body)))

    def _tiles(
        self,
        variable: str,
        start: Dim,
        turns: Dim,
        size: int,
        bounds: Bounds,
        result: list[Stmt],
    ) -> None:
        if turns == 1:
            result += self._inside(variable, start, size, bounds)
            return
        counter = self.blocks.names.fresh(f"{variable}_tile")
        inner = over(bounds, counter, Dim.of(0), turns)
        body = self._inside(variable, start + Dim.of(counter) * size, size, inner)
        result.append(For(counter, Dim.of(0), turns, tuple(body)))

    def _singles(
        self, variable: str, start: Dim, stop: Dim, bounds: Bounds, result: list[Stmt]
    ) -> None:
        if stop - start == 1:
            result += self._inside(variable, start, 1, bounds)
            return
        fresh = self.blocks.names.fresh(variable)
        inner = over(bounds, fresh, start, stop)
        result.append(
            For(fresh, start, stop, tuple(self._inside(variable, Dim.of(fresh), 1, inner)))
        )

    def _inside(self, variable: str, place: Dim, lanes: int, bounds: Bounds) -> list[Stmt]:
        at = {**self.at, variable: place}
        return self.blocks.loops(
            self.depth + 1, at, {**self.lanes, variable: lanes}, self.full, bounds
        )
