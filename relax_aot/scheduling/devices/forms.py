# SPDX-License-Identifier: Apache-2.0
"""The launches of one kernel: by a strategy of the target, by one thread for each element, by one
warp or block for each row, or by one block for all.

Scratch that each iteration needs for itself is memory of its thread where it is tiny, else shared
memory of its block where it fits, else memory of the device with a copy for each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

from relax_aot.ir.axes import CORE, LANES, REGISTER, SHARED
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, ceildiv, dim_min, simplify
from relax_aot.ir.loops import (
    Buffer,
    For,
    If,
    Kernel,
    Let,
    Reserve,
    Stmt,
)
from relax_aot.ir.rewrite import map_accesses, map_buffers
from relax_aot.scheduling.apply import names_read
from relax_aot.scheduling.devices.groups import Group, connect, groups_of, joined
from relax_aot.scheduling.devices.nests import (
    FEW,
    Nest,
    bounds_after,
    bounds_inside,
    gains_rows,
    nest_of,
    part,
    shared_inside,
)
from relax_aot.scheduling.devices.proofs import Proofs
from relax_aot.scheduling.devices.strips import strips_of
from relax_aot.scheduling.devices.team import Team, below, parallel
from relax_aot.scheduling.nest import greatest, names_in
from relax_aot.scheduling.targets import Context, Target
from relax_aot.scheduling.writer import Writer

TINY = 64
"""Bytes of scratch that one thread holds."""
LONG = 2048
"""Iterations of a row that a block shares rather than a warp."""
ROW = 6 << 10
"""Bytes of scratch of a warp, with which the shared memory of a processor is enough for half of its
warps."""
COPIES = 64
"""Blocks at most where each has a copy of scratch in memory of the device."""
CELLS = 4096
"""Bytes of shared memory that are left to reductions."""


@dataclass
class Form:
    """One kernel in its device form. `taken`: names that it leaves to others; `copies`: of scratch
    buffers in scope `core`, by name."""

    kernel: Kernel
    bounds: Bounds
    context: Context
    taken: Set[str] = frozenset()
    w: Writer = field(init=False)
    proofs: Proofs = field(init=False)
    lets: list[Let] = field(default_factory=list)
    copies: dict[str, int] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    """Scratch that is not of the kernel any more."""

    def __post_init__(self) -> None:
        self.proofs = Proofs(self.kernel, self.bounds, ordered=self.target.partial_sums < 2)
        self.w = Writer({*names_in(self.kernel), *self.taken}, self.bounds)

    @property
    def target(self) -> Target:
        return self.context.target

    def made(self) -> Kernel:
        kernel, body = self.kernel, list[Stmt]()
        if kernel.parallel:
            return kernel
        symbols = {name for b in kernel.buffers for name in b.type.symbols} | set(self.bounds)
        for stmt in kernel.body:
            if isinstance(stmt, Let) and stmt.value.symbols <= symbols:
                self.lets.append(stmt)
                symbols.add(stmt.name)
                self.w.bounds = bounds_after(stmt, self.w.bounds)
            else:
                body.append(stmt)
        groups = self.merged(groups_of(body))
        connect(groups, kernel, self.w)
        with self.w.block() as launches:
            for group in groups:
                self.launch(group, sum(isinstance(stmt, For) for stmt in launches))

        def scope(buffer: Buffer) -> Buffer:
            return replace(buffer, scope=CORE) if buffer.name in self.copies else buffer

        scratch = (*kernel.scratch, *self.w.scratch)
        gone = names_read(kernel.body) - names_read(launches)
        inputs = (*kernel.inputs, *(one.buffer for one in self.w.packed))
        return replace(
            kernel,
            inputs=tuple(buffer for buffer in inputs if buffer.name not in gone),
            in_place=tuple(pair for pair in kernel.in_place if pair[0] not in gone),
            scratch=tuple(scope(buffer) for buffer in scratch if buffer.name not in self.own),
            body=(*self.lets, *map_buffers(tuple(launches), scope)),
        )

    # Groups

    def merged(self, groups: Sequence[Group]) -> list[Group]:
        """Neighbors that are work for one block are one group."""
        found: list[Group] = []
        for group in groups:
            if found and not self.spreads(found[-1]) and not self.spreads(group):
                found[-1] = joined((found[-1], group))
            else:
                found.append(group)
        return found

    def spreads(self, group: Group) -> bool:
        """Whether a group is more than one block."""
        return self.nest(group) is not None

    def nest(self, group: Group) -> Nest | None:
        """The independent iterations of a group; None where one block does all."""
        if not isinstance(group.work, For) or not group.alone:
            return None
        bounds = self.bounds_of(group.scalars)
        return nest_of(group.work, bounds, lambda loop: self.proofs.private(loop) is not None)

    def bounds_of(self, stmts: Iterable[Stmt]) -> Bounds:
        bounds = self.w.bounds
        for stmt in stmts:
            bounds = bounds_after(stmt, bounds)
        return bounds

    def bounds_in(self, group: Group, nest: Nest) -> Bounds:
        """What holds in an iteration of a nest."""
        bounds = self.bounds_of(group.scalars)
        for loop in nest.loops:
            bounds = bounds_inside(loop, bounds)
        return bounds

    def launch(self, group: Group, number: int) -> None:
        """`number`: of launches before."""
        taken = set(self.w.taken)
        nest = self.nest(group)
        if nest is None:
            self.one_block(group)
        elif not self.by_strategy(group, number):
            own = self.private(nest)
            bounds = self.bounds_in(group, nest)
            tiny = all(_bytes(buffer, bounds) <= TINY for buffer in own)
            fixed = all(buffer.type.elements.is_constant for buffer in own)
            if tiny and fixed and not gains_rows(nest, self.proofs, bounds):
                self.elements(group, nest, own)
            else:
                self.rows(group, nest, own, bounds)
        kept = (*self.w.scratch, *(one.buffer for one in self.w.packed))
        self.w.taken = taken | {buffer.name for buffer in kept}

    def by_strategy(self, group: Group, number: int) -> bool:
        if group.scalars or not isinstance(group.work, For):
            return False
        reduced = tuple(one - number for one in self.context.reduced if one >= number)
        context = replace(self.context, reduced=reduced)
        for strategy in self.target.nests:
            loops = strategy(self.kernel, group.work, self.w, context)
            if loops is not None:
                self.w.add(*loops)
                return True
        return False

    def private(self, nest: Nest) -> list[Buffer]:
        names = frozenset[str]().union(*(self.proofs.private(loop) or () for loop in nest.loops))
        return [buffer for buffer in self.kernel.scratch if buffer.name in names]

    # One thread for each iteration

    def elements(self, group: Group, nest: Nest, own: Sequence[Buffer]) -> None:
        w, threads = self.w, self.target.threads
        strips = strips_of(nest, self.bounds_of(group.scalars))
        if strips is not None and nest.greatest >= threads * strips.width:
            with (
                parallel(w, "b", self.blocks(nest, threads * strips.width), "block") as block,
                parallel(w, "t", threads, "thread") as thread,
            ):
                w.add(*group.scalars)
                strips.write(w, block * threads + thread)
            return
        registers = {buffer.name: replace(buffer, scope=REGISTER) for buffer in own}
        self.own |= registers.keys()
        with (
            parallel(w, "b", self.blocks(nest, threads), "block") as block,
            parallel(w, "t", threads, "thread") as thread,
        ):
            w.add(*group.scalars)
            at = block * threads + thread
            w.add(If(below(at, nest.count), (
                *nest.variables(at),
                *map(Reserve, registers.values()),
                *map_buffers(nest.body, lambda b: registers.get(b.name, b)),
            )))  # fmt: skip

    def blocks(self, nest: Nest, each: int) -> Dim:
        """Blocks of so many iterations; at the greatest count, where it depends on data."""
        known = nest.count.symbols <= set(self.w.bounds)
        return simplify(ceildiv(nest.count if known else nest.greatest, each), self.w.bounds)

    # One warp or block for each iteration

    def rows(self, group: Group, nest: Nest, own: Sequence[Buffer], bounds: Bounds) -> None:
        inside = shared_inside(nest.body, self.proofs, bounds)
        size = sum(_bytes(buffer, bounds) for buffer in own)
        room, warps = self.target.shared - CELLS, self.target.team
        crowded = size > ROW and inside >= warps * LANES
        if not crowded and (inside < LONG or nest.greatest >= FEW):
            while warps > 1 and warps * size > room:
                warps //= 2
            if warps * size <= room:
                self.by_warps(group, nest, own, warps)
                return
        self.by_blocks(group, nest, own, copied=size > room)

    def by_warps(self, group: Group, nest: Nest, own: Sequence[Buffer], warps: int) -> None:
        w, memory = self.w, list[Buffer]()
        with parallel(w, "b", self.blocks(nest, warps), "block") as block:
            with w.block() as made, parallel(w, "w", warps, "warp") as warp:
                team = Team(w, self.proofs, w.bounds, 1, warp, warps, memory)
                team.block(group.scalars)
                team.bounds = self.bounds_in(group, nest)
                at = block * warps + warp
                with w.block() as row:
                    team.block((*nest.variables(at), *nest.body))
                w.add(If(below(at, nest.count), tuple(row)))
            shared = {buffer.name: self.in_shared(buffer, warps) for buffer in own}
            w.add(*map(Reserve, (*shared.values(), *memory)))
            w.add(*map_accesses(tuple(made), lambda buffer, at: (
                (shared[buffer.name], (warp, *at)) if buffer.name in shared else (buffer, at)
            )))  # fmt: skip

    def by_blocks(self, group: Group, nest: Nest, own: Sequence[Buffer], *, copied: bool) -> None:
        w, memory, warps = self.w, list[Buffer](), self.target.team
        blocks = self.blocks(nest, 1)
        if copied:
            blocks = simplify(dim_min(blocks, COPIES), w.bounds)
            self.copies |= dict.fromkeys((buffer.name for buffer in own), COPIES)
        with parallel(w, "b", blocks, "block") as block:
            with w.block() as made, parallel(w, "w", warps, "warp") as warp:
                team = Team(w, self.proofs, w.bounds, warps, warp, warps, memory)
                team.block(group.scalars)
                team.bounds = self.bounds_in(group, nest)
                if copied:
                    turn = w.fresh("turn")
                    one = nest.variables(block + Dim.of(turn) * COPIES)
                    stop = part(nest.count, block, COPIES)
                    team.serial(For(turn, ZERO, stop, (*one, *nest.body)))
                else:
                    with w.block() as row:
                        team.block((*nest.variables(block), *nest.body))
                    w.add(If(below(block, nest.count), tuple(row)))
            shared = {} if copied else {b.name: self.in_shared(b) for b in own}
            w.add(*map(Reserve, (*shared.values(), *memory)))
            w.add(*map_buffers(tuple(made), lambda b: shared.get(b.name, b)))

    def in_shared(self, buffer: Buffer, *copies: int) -> Buffer:
        """Scratch as shared memory of a block, for the greatest sizes."""
        self.own.add(buffer.name)
        sizes = (*copies, *(greatest(size, self.w.bounds) for size in buffer.shape))
        return replace(buffer, shape=tuple(map(Dim.of, sizes)), scope=SHARED)

    def one_block(self, group: Group) -> None:
        w, memory = self.w, list[Buffer]()
        inside = shared_inside(group.statements, self.proofs, w.bounds)
        warps = self.target.team if inside > LANES else 1
        with parallel(w, "b", ONE, "block"):
            with w.block() as made, parallel(w, "w", warps, "warp") as warp:
                Team(w, self.proofs, w.bounds, warps, warp, warps, memory).block(group.statements)
            w.add(*map(Reserve, memory), *made)


def _bytes(buffer: Buffer, bounds: Bounds) -> int:
    return prod(greatest(size, bounds) for size in buffer.shape) * buffer.dtype.bytes
