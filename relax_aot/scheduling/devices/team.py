# SPDX-License-Identifier: Apache-2.0
"""Statements that the lanes of a warp, or of all warps of a block, compute together: a team.

Loops of independent iterations are shared by all lanes, and reductions become a partial result of
each lane. Everything else is done by each lane alike where it changes no memory, or by the first
one. In a team of several warps, a barrier stands between accesses of the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from relax_aot import microkernels
from relax_aot.ir.axes import LANE, LANES, REGISTER, SHARED
from relax_aot.ir.dims import ONE, ZERO, Bounds, Dim, dim_max
from relax_aot.ir.loops import (
    Assign,
    Barrier,
    Binary,
    Buffer,
    Declare,
    For,
    If,
    Index,
    Lit,
    Load,
    Local,
    Reserve,
    Stmt,
    Store,
    walk,
)
from relax_aot.ir.rewrite import map_exprs, map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.choices import NOWHERE, Choice, choice_of
from relax_aot.scheduling.devices.nests import (
    LEAST,
    Nest,
    bounds_after,
    bounds_inside,
    gains_rows,
    nest_of,
    part,
    shared_inside,
)
from relax_aot.scheduling.devices.proofs import Proofs, Reduced, accessed, cast, outer_scalars
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.writer import Writer

COLLECTIVES = {"+": "sum", "max": "max", "min": "min"}
REDUCED = 8
"""Iterations of a reduction that are worth a collective."""
COLLECTED = (DType.F32, DType.F64, DType.I32, DType.I64)
"""Reductions and types that warps have instructions for."""


@contextmanager
def parallel(w: Writer, name: str, count: Dim | int, axis: str) -> Iterator[Dim]:
    """A parallel loop with a fresh variable."""
    variable, count = w.fresh(name), Dim.of(count)
    with w.block() as body:
        yield Dim.of(variable)
    w.add(For(variable, ZERO, count, tuple(body), axis))


def below(index: Dim, limit: Dim) -> Binary:
    return Binary("<", Index(index), Index(limit))


@dataclass
class Team:
    """`warps` warps, of which this code is that of number `warp`; the block has `others` of
    them. `memory`: what is to be reserved in shared memory of the block."""

    w: Writer
    proofs: Proofs
    bounds: Bounds
    warps: int
    warp: Dim
    others: int
    memory: list[Buffer] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    """What was accessed since the last barrier."""

    def block(self, body: Iterable[Stmt]) -> None:
        """Statements in their order."""
        before, first = self.bounds, list[Stmt]()
        for stmt in body:
            if isinstance(stmt, Store) or (isinstance(stmt, For) and self.is_single(stmt)):
                first.append(stmt)
                continue
            if first:
                self.by_first(*first)
                first = []
            match stmt:
                case For():
                    self.loop(stmt)
                case If():
                    self.condition(stmt)
                case _:
                    self.add(stmt)
            self.bounds = bounds_after(stmt, self.bounds)
        if first:
            self.by_first(*first)
        self.bounds = before

    # Order

    def add(self, *body: Stmt) -> None:
        """Statements without a barrier between them."""
        self.arrive(body)
        self.w.add(*body)

    def arrive(self, body: Iterable[Stmt]) -> None:
        """A barrier, where what follows needs one."""
        if self.warps == 1:
            return
        read, written = self.touched(body)
        if written & (self.read | self.written) or read & self.written:
            self.w.add(Barrier("warp"))
            self.read, self.written = set(), set()
        self.read |= read
        self.written |= written

    def touched(self, body: Iterable[Stmt]) -> tuple[set[str], set[str]]:
        """Memory that is read and written, by one name for all that may be the same."""
        read, written, same = set[str](), set[str](), self.proofs.kernel.same_memory
        for load, stored in accessed(body):
            name = load.buffer.name
            if load.buffer.scope not in (LANE, REGISTER):
                (written if stored else read).add(same.get(name, name))
        return read, written

    def lanes(self, body: Callable[[Dim], None]) -> None:
        """Statements of each lane of the team, given its number."""
        with self.w.block() as made, parallel(self.w, "l", LANES, "lane") as lane:
            body(lane if self.warps == 1 else self.warp * LANES + lane)
        self.add(*made)

    def by_first(self, *body: Stmt) -> None:
        """Statements of one lane."""
        self.lanes(lambda at: self.w.add(If(Binary("==", Index(at), Index(ZERO)), body)))

    # Control

    def condition(self, stmt: If) -> None:
        """A condition that is the same for all lanes."""
        if not any(isinstance(inner, For | Store) for inner in walk((stmt,))):
            self.add(stmt)
            return
        self.arrive((If(stmt.condition, ()),))
        sides, states = [], []
        before = set(self.read), set(self.written)
        for side in (stmt.then, stmt.otherwise):
            self.read, self.written = set(before[0]), set(before[1])
            with self.w.block() as body:
                self.block(side)
            sides.append(tuple(body))
            states.append((self.read, self.written))
        self.read, self.written = (one | other for one, other in zip(*states, strict=True))
        self.w.add(If(stmt.condition, *sides))

    def is_single(self, loop: For) -> bool:
        """Whether one lane runs a loop: it has nothing to share, and changes no scalar."""
        if outer_scalars((loop,)) or self.shareable(loop) is not None:
            return False
        return not shared_inside((loop,), self.proofs, self.bounds)

    def shareable(self, loop: For) -> Nest | None:
        """The independent iterations that begin with a loop, where they are not too few."""
        nest = nest_of(loop, self.bounds, self.proofs.independent)
        fits = nest is not None and nest.greatest >= min(LEAST, self.warps * LANES)
        return nest if fits else None

    def loop(self, loop: For) -> None:
        inside = shared_inside(loop.body, self.proofs, bounds_inside(loop, self.bounds))
        nest = self.shareable(loop)
        if nest is not None:
            if self.warps > 1 and gains_rows(nest, self.proofs, self.bounds):
                self.rows(nest)
                return
            if nest.greatest >= min(self.warps * LANES, inside):
                self.shared(nest)
                return
        sums = self.proofs.reduced(loop) or ()
        nest = nest_of(loop, self.bounds, lambda one: self.proofs.reduced(one) == sums)
        choice = choice_of(loop)
        if sums and nest is not None and nest.greatest >= REDUCED:
            self.reduce(nest, sums)
        elif choice is not None and greatest(loop.extent, self.bounds) >= REDUCED:
            self.choose(loop, choice)
        elif inside or any(isinstance(stmt, Store) for stmt in walk((loop,))):
            self.serial(loop)
        else:
            self.add(loop)

    def serial(self, loop: For) -> None:
        """Iterations one after the other, each by the team."""
        around, before = self.bounds, (set(self.read), set(self.written))
        self.bounds = bounds_inside(loop, self.bounds)
        with self.w.block() as body:
            self.block(loop.body)
            if self.warps > 1:
                read, written = self.touched(body)
                if self.written & (read | written) or self.read & written:
                    self.w.add(Barrier("warp"))
                    self.read, self.written = set(), set()
        self.bounds = around
        self.read |= before[0]
        self.written |= before[1]
        self.w.add(For(loop.variable, loop.start, loop.stop, tuple(body)))

    # Sharing

    def shared(self, nest: Nest) -> None:
        """A nest of independent iterations, one lane for each."""
        self.lanes(lambda at: self.iterations(nest, at, self.warps * LANES, nest.body))

    def iterations(self, nest: Nest, first: Dim, step: int, body: tuple[Stmt, ...]) -> None:
        """Every `step`-th iteration of a nest."""
        turn = self.w.fresh("at")
        lets = tuple(nest.variables(first + Dim.of(turn) * step))
        self.w.add(For(turn, ZERO, part(nest.count, first, step), (*lets, *body)))

    def rows(self, nest: Nest) -> None:
        """A nest of independent iterations, one warp for each."""
        turn = self.w.fresh("row")
        at = self.warp + Dim.of(turn) * self.warps
        with self.w.block() as body:
            one = Team(self.w, self.proofs, self.bounds, 1, self.warp, self.others, self.memory)
            one.block((*nest.variables(at), *nest.body))
        self.add(For(turn, ZERO, part(nest.count, self.warp, self.warps), tuple(body)))

    def reduce(self, nest: Nest, sums: tuple[Reduced, ...]) -> None:
        """A nest of reductions: partial results of lanes, then of warps."""
        w = self.w
        locals_ = {s.local: Local(w.fresh(f"{s.local.name}_part"), s.local.dtype) for s in sums}
        parts = [self.partial(one) for one in sums]

        def of_lane(at: Dim) -> None:
            w.add(*(Declare(locals_[one.local], one.neutral) for one in sums))
            body = map_exprs(nest.body, lambda e: locals_.get(e, e) if isinstance(e, Local) else e)
            body = map_statements(body, lambda stmt: _assigning(stmt, locals_))
            self.iterations(nest, at, self.warps * LANES, body)
            lane = at if self.warps == 1 else at - self.warp * LANES
            for one, buffer in zip(sums, parts, strict=True):
                value = cast(locals_[one.local], buffer.dtype)
                w.add(Store(buffer, self.place(buffer, lane), value))

        self.lanes(of_lane)
        for one, buffer in zip(sums, parts, strict=True):
            self.combine(one, buffer)

    def partial(self, one: Reduced) -> Buffer:
        """A value of each lane: in registers, where the warp has an instruction that combines
        them."""
        name, dtype = self.w.fresh(f"{one.local.name}_lanes"), one.kept
        if one.kind in COLLECTIVES and dtype in COLLECTED:
            buffer = Buffer(name, dtype, (Dim.of(LANES),), LANE)
            self.w.add(Reserve(buffer))
        else:
            buffer = Buffer(name, dtype, (Dim.of(self.others), Dim.of(LANES)), SHARED)
            self.memory.append(buffer)
        return buffer

    def place(self, buffer: Buffer, lane: Dim) -> tuple[Dim, ...]:
        return (lane,) if buffer.scope == LANE else (self.warp, lane)

    def combine(self, one: Reduced, buffer: Buffer) -> None:
        """The values of lanes, by halves, and then those of the warps in their order."""
        w = self.w
        if buffer.scope == LANE:
            name = f"raot_warp_{COLLECTIVES[one.kind]}_{buffer.dtype.value}"
            self.add(microkernels.call(name, x=buffer))
        else:
            for step in range(1, LANES.bit_length()):
                self.halve(one, buffer, LANES >> step)
        whole = Load(buffer, self.place(buffer, ZERO))
        total = one.total(w)
        self.add(*one.before(total))
        if self.warps == 1:
            self.add(Assign(total, one.combined(total, whole)))
        else:
            self.of_warps(one, buffer, total)
        self.add(*one.after(total))

    def of_warps(self, one: Reduced, buffer: Buffer, total: Local) -> None:
        """The first lane of each warp gives its value."""
        w = self.w
        name = w.fresh(f"{one.local.name}_warps")
        cells = Buffer(name, buffer.dtype, (Dim.of(self.warps),), SHARED)
        self.memory.append(cells)
        with w.block() as made, parallel(w, "l", LANES, "lane") as lane:
            value = Load(buffer, self.place(buffer, lane))
            first = Binary("==", Index(lane), Index(ZERO))
            w.add(If(first, (Store(cells, (self.warp,), value),)))
        self.add(*made)
        turn = w.fresh("part")
        each = one.combined(total, Load(cells, (Dim.of(turn),)))
        self.add(For(turn, ZERO, Dim.of(self.warps), (Assign(total, each),)))

    def choose(self, loop: For, choice: Choice) -> None:
        """A choice of each lane, then one of all."""
        w, kinds = self.w, (choice.best.dtype, choice.place.dtype)
        names = (choice.best.name, choice.place.name)
        shape = (Dim.of(self.others), Dim.of(LANES))
        cells = [
            Buffer(w.fresh(f"{name}_lanes"), kind, shape, SHARED)
            for name, kind in zip(names, kinds, strict=True)
        ]
        self.memory += cells
        own = [Local(w.fresh(name), kind) for name, kind in zip(names, kinds, strict=True)]

        def of_lane(at: Dim) -> None:
            empty = Lit(0.0 if kinds[0].is_float else 0, kinds[0])
            w.add(Declare(own[0], empty), Declare(own[1], NOWHERE))
            taken = (Assign(own[0], choice.value), Assign(own[1], Index(Dim.of(loop.variable))))
            body = (If(choice.first(own[0], own[1]), taken, ()),)
            nest = Nest((loop,), body, dim_max(loop.extent, 0), 1)
            self.iterations(nest, at, self.warps * LANES, body)
            lane = at if self.warps == 1 else at - self.warp * LANES
            w.add(*(Store(cell, (self.warp, lane), local)
                    for cell, local in zip(cells, own, strict=True)))  # fmt: skip

        self.lanes(of_lane)
        for step in range(1, LANES.bit_length()):
            self.choose_half(choice, cells, LANES >> step)
        self.add(*(Declare(local, Load(cell, (ZERO if self.warps > 1 else self.warp, ZERO)))
                   for cell, local in zip(cells, own, strict=True)))  # fmt: skip
        if self.warps > 1:
            turn = w.fresh("part")
            other = [Load(cell, (Dim.of(turn), ZERO)) for cell in cells]
            taken = tuple(Assign(*pair) for pair in zip(own, other, strict=True))
            merged = If(choice.replaces((other[0], other[1]), (own[0], own[1])), taken, ())
            self.add(For(turn, ONE, Dim.of(self.warps), (merged,)))
        found = Binary("<=", Lit(0, DType.I64), own[1])
        better = Binary("&&", found, choice.beats(own[0], choice.best))
        self.add(If(better, (Assign(choice.best, own[0]), Assign(choice.place, own[1])), ()))

    def choose_half(self, choice: Choice, cells: Sequence[Buffer], half: int) -> None:
        """Of two choices, the lower lane keeps the one that the plain loop would."""
        w = self.w
        with w.block() as made, parallel(w, "l", LANES, "lane") as lane:
            own, other = (
                [Load(cell, (self.warp, at)) for cell in cells] for at in (lane, lane + half)
            )
            stores = tuple(
                Store(one.buffer, one.index, two) for one, two in zip(own, other, strict=True)
            )
            taken = choice.replaces((other[0], other[1]), (own[0], own[1]))
            w.add(If(below(lane, ONE * half), (If(taken, stores, ()),), ()))
        w.add(*made)

    def halve(self, one: Reduced, buffer: Buffer, half: int) -> None:
        with self.w.block() as made, parallel(self.w, "l", LANES, "lane") as lane:
            low, high = (Load(buffer, (self.warp, at)) for at in (lane, lane + half))
            store = Store(buffer, low.index, one.combined(low, high))
            self.w.add(If(below(lane, ONE * half), (store,)))
        self.w.add(*made)


def _assigning(stmt: Stmt, locals_: dict[Local, Local]) -> Stmt:
    return (
        Assign(locals_.get(stmt.local, stmt.local), stmt.value)
        if isinstance(stmt, Assign)
        else stmt
    )
