# SPDX-License-Identifier: Apache-2.0
"""Where every value lives: the caller's buffers, constants, state, or a slot of the arena.

The plan is symbolic: each slot lists those directly below it, and its offset follows from
their sizes (see orientation.py). It holds for every size within the bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, interval, maximize
from relax_aot.ir.graph import Module, Var
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import TensorType
from relax_aot.planning import check
from relax_aot.planning.allowed import most_allowed, most_by_relations
from relax_aot.planning.conflicts import (
    Conflicts,
    HappensBefore,
    conflicts_of_lifetimes,
    conflicts_of_touches,
)
from relax_aot.planning.in_place import share_memory_in
from relax_aot.planning.lifetimes import Lifetime, lifetimes, touches
from relax_aot.planning.orientation import Block, lower_bound, offsets_at, orient
from relax_aot.planning.packing import pack_by_conflicts
from relax_aot.planning.regions import ANYWHERE, Region, assign, place_constants
from relax_aot.planning.states import program_in_place
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    End,
    Node,
    Program,
    Repeat,
    Step,
    program_of,
    touched,
    walk_steps,
    written_by,
)

Edges = tuple[tuple[int, int], ...]

GREATEST_BYTES = 2**31 - 1
"""Sizes and indices are int32_t in the generated C."""


class TooLarge(RelaxAotError):
    """A value that does not fit the index type of the generated C."""


class Home(Enum):
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    STATE = "state"
    SLOT = "slot"


@dataclass(frozen=True, slots=True)
class Slot:
    """A value's place in the arena. `below` are the slots directly under it."""

    var: Var
    lifetime: Lifetime
    bytes: Dim
    """What the value needs, rounded up to the alignment; inner symbols are gone."""
    greatest_bytes: int
    offset: int
    """At the declared bounds."""
    below: tuple[str, ...]
    region: int = 0
    """Which arena: 0 is the first and, on most boards, the only one."""


@dataclass(frozen=True, slots=True)
class Arena:
    """What one region must give, at the declared bounds."""

    region: Region
    bytes: int
    lower_bound_bytes: int
    """The greatest sum of bytes alive at one time, for this order of calls."""


@dataclass(frozen=True, slots=True)
class Commit:
    """At the end, the bytes of slot `source` go to result or state parameter `target`."""

    source: str
    target: str
    why: str = ""
    """Why it is not written to its place at once, in words for the report."""


@dataclass(frozen=True, slots=True)
class Plan:
    module: Module
    program: Program
    homes: dict[str, Home]
    """For every storage root."""
    slots: tuple[Slot, ...]
    """Bottom-up: a slot comes after all those below it."""
    commits: tuple[Commit, ...]
    alignment: int
    arenas: tuple[Arena, ...]
    """One for each region, the main one first."""
    constant_regions: Mapping[str, Region] = field(default_factory=dict)
    """Where constants lie, on boards that say so."""
    happens_before: Edges | None = None
    """By position in `walk_steps`. None: steps run one after the other."""
    dynamic: bool = False
    """A run computes the offsets for its sizes, in regions with values of varying size."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those of the module, with one buffer where an operand and a result share memory."""
        steps = (node for node in walk_steps(self.program.nodes) if isinstance(node, Step))
        called = {s.callee.name: s.callee for s in steps if isinstance(s.callee, Kernel)}
        return tuple(called.get(kernel.name, kernel) for kernel in self.module.kernels)

    @property
    def arena_bytes(self) -> int:
        """Of all regions together."""
        return sum(arena.bytes for arena in self.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        return sum(arena.lower_bound_bytes for arena in self.arenas)


def plan(
    module: Module,
    alignment: int = 16,
    regions: Sequence[Region] = (),
    happens_before: Edges | None = None,
    *,
    keep_states: bool = False,
    dynamic: bool = False,
) -> Plan:
    """Place every value of a lowered module in the regions, the preferred one first; in one
    arena without regions. With `keep_states` the old states stay as they are until the end. With
    `dynamic` a run computes the offsets, so an arena is as large as allowed sizes need at once.

    `happens_before` is for an executor that runs steps at the same time: the pairs of steps
    (by their place in `walk_steps`) of which one ends before the other begins.
    """
    constants = place_constants(module.constants, [r for r in regions if r.constants], alignment)
    regions = [r for r in regions if not r.constants] or [ANYWHERE]
    program, order = _program(module, happens_before, keep_states=keep_states)
    homes, commits = homes_of(module, program, order)
    staged = frozenset(commit.source for commit in commits)
    lives = lifetimes(program, staged)
    inner = inner_sizes(program, module.bounds)
    sizes = {
        name: slot_bytes(program.values[name].type, inner, module.bounds, alignment)
        for name in lives
        if homes[name] is Home.SLOT
    }
    blocks = [Block(n, lives[n], greatest_bytes(size, module)) for n, size in sizes.items()]
    _check_sizes(module, program, inner)
    uses = Counter(name for node in walk_steps(program.nodes) for name in touched(node))
    slots: list[Slot] = []
    arenas: list[Arena] = []
    for number, chosen in enumerate(assign(blocks, uses, regions)):
        if order is None:
            conflicts = conflicts_of_lifetimes([block.lifetime for block in chosen])
        else:
            conflicts = _conflicts(program, staged, chosen, order)
        packing = pack_by_conflicts(chosen, conflicts).packing
        below = orient(chosen, packing, conflicts)
        greatest = {block.name: block.size for block in chosen}
        offsets = offsets_at(below, greatest)
        for name, supports in below.items():
            value, most, offset = program.values[name], greatest[name], offsets[name]
            slots.append(Slot(value, lives[name], sizes[name], most, offset, supports, number))
        height = max((offsets[b.name] + b.size for b in chosen), default=0)
        least = lower_bound(chosen)
        if dynamic:
            height = _greatest_need(below, sizes, module, height)
            least = _greatest_sum(chosen, sizes, module, least)
        arenas.append(Arena(regions[number], _addressable(height), least))
    used = max((slot.region for slot in slots), default=0) + 1
    result = Plan(
        module, program, homes, tuple(slots), commits, alignment, tuple(arenas[:used]),
        constants, None if order is None else order.edges, dynamic,
    )  # fmt: skip
    check.check(result)
    return result


def _program(
    module: Module, edges: Edges | None, *, keep_states: bool
) -> tuple[Program, HappensBefore | None]:
    """The steps, where values share memory that may, and their order if it is a partial one."""
    if edges is None:
        return program_in_place(module, keep_states=keep_states), None
    program = program_of(module)
    order = HappensBefore(sum(1 for _ in walk_steps(program.nodes)), edges)
    return share_memory_in(module, program, order)


def _greatest_need(
    below: dict[str, tuple[str, ...]], sizes: dict[str, Dim], module: Module, height: int
) -> int:
    """The longest path over the slots, where the conditions on sizes hold."""

    def top(values: Sequence[Any]) -> Any:
        ends: dict[str, Any] = {}
        for (name, under), size in zip(below.items(), values, strict=True):
            ends[name] = reduce(np.maximum, (ends[u] for u in under), 0) + np.maximum(size, 0)
        return reduce(np.maximum, ends.values(), 0)

    found = most_allowed([sizes[name] for name in below], top, module)
    return height if found is None else min(found, height)


def _greatest_sum(
    blocks: Sequence[Block], sizes: dict[str, Dim], module: Module, least: int
) -> int:
    """The same of the bytes that are alive at one time."""
    starts = {block.lifetime.start for block in blocks}
    alive = [
        [n for n, b in enumerate(blocks) if b.lifetime.start <= step < b.lifetime.stop]
        for step in starts
    ]

    def live(values: Sequence[Any]) -> Any:
        return reduce(np.maximum, (sum(np.maximum(values[n], 0) for n in row) for row in alive), 0)

    found = most_allowed([sizes[block.name] for block in blocks], live, module)
    return least if found is None else min(found, least)


def _addressable(height: int) -> int:
    require_addressable(height, "the arena")
    return height


def require_addressable(size: int, what: str) -> None:
    if size > GREATEST_BYTES:
        raise TooLarge(
            f"{what} needs {size} bytes; at most {GREATEST_BYTES} can be addressed. Use a smaller"
            " bound (--bound)"
        )


def _conflicts(
    program: Program, staged: frozenset[str], blocks: list[Block], order: HappensBefore
) -> Conflicts:
    """The end of the program, where results are copied out, is one step more."""
    end = order.count
    order = HappensBefore(end + 1, (*order.edges, *((step, end) for step in range(end))))
    used = touches(program, staged)
    return conflicts_of_touches([used[block.name] for block in blocks], order)


def inner_sizes(program: Program, bounds: Bounds) -> dict[str, Dim]:
    """For each inner symbol, an upper bound of its value over the entry's symbols."""
    inner: dict[str, Dim] = {}
    _collect(program.nodes, bounds, inner)
    return inner


def _collect(nodes: tuple[Node, ...], bounds: Bounds, inner: dict[str, Dim]) -> None:
    """In the order in which the sizes become known."""
    for node in nodes:
        match node:
            case Branch():
                _collect(node.then, bounds, inner)
                _collect(node.otherwise, bounds, inner)
                for size in node.sizes:
                    both = (at_most(d, inner, bounds) for d in (size.then, size.otherwise))
                    inner[size.symbol] = dim_max(*both)
            case Define():
                inner[node.symbol] = at_most(node.most, inner, bounds)
            case Repeat():
                trips = at_most(node.loop.trips, inner, bounds)
                inner[node.loop.turn] = dim_max(trips - 1, 0)
                for name, _, _, most in node.loop.sizes:
                    inner[name] = at_most(most, inner, bounds)
                _collect(node.nodes, bounds, inner)
                if node.loop.count:
                    inner[node.loop.count] = dim_max(trips, 0)
            case Step() | Check():
                pass


def at_most(dim: Dim, inner: dict[str, Dim], bounds: Bounds) -> Dim:
    """An upper bound of a size over the entry's symbols; itself where it has no others."""
    if not dim.symbols & inner.keys():
        return dim
    return maximize(dim, bounds).substitute(inner)


def slot_bytes(type_: TensorType, inner: dict[str, Dim], bounds: Bounds, alignment: int) -> Dim:
    return ceildiv(at_most(type_.bytes, inner, bounds), alignment) * alignment


def greatest_bytes(size: Dim, module: Module) -> int:
    """At the upper bounds, as the generated C works it out: that formula holds for raised
    bounds too, so it may be above the greatest value within these. Relations may allow less."""
    related = most_by_relations(size, module)
    highs = {s.name: s.high for s in module.symbols}
    most = related[0] if related else maximize(size, module.bounds).evaluate(highs)
    return max(most, 0)


def _check_sizes(module: Module, program: Program, inner: dict[str, Dim]) -> None:
    windows = any(growth.is_window for growth in module.lengths.values())
    window = " or window (--window)" if windows else ""
    for var in (*module.main.params, *program.values.values()):
        greatest = interval(at_most(var.type.bytes, inner, module.bounds), module.bounds)[1]
        if greatest > GREATEST_BYTES:
            raise TooLarge(
                f"%{var.name}: {var.type} can take {greatest} bytes; at most {GREATEST_BYTES} can"
                f" be addressed. Use a smaller bound (--bound){window}."
            )


def homes_of(
    module: Module, program: Program, order: HappensBefore | None = None
) -> tuple[dict[str, Home], tuple[Commit, ...]]:
    """Who lives where, and which results are staged in the arena until nothing can fail. Without
    an order, steps run one after the other."""
    homes = dict.fromkeys(program.values, Home.SLOT)
    homes |= dict.fromkeys((c.name for c in module.constants), Home.CONSTANT)
    homes |= {p.name: Home.INPUT for p in module.main.params}
    state_of = {state.output: state.input for state in module.states}
    homes |= dict.fromkeys(state_of.values(), Home.STATE)

    writes, failures = _writes_and_failures(program)
    precedes = int.__lt__ if order is None else order.precedes
    commits = []
    for result in module.main.results:
        home = program.root(result.name)
        if home == state_of.get(result.name):
            continue  # updated where it lies
        late = (
            what
            for position, what in reversed(failures)
            if not all(precedes(position, write) for write in writes.get(home, ()))
        )
        what = next(late, "")
        why = f"{what} can fail after it is written"
        if result.name in state_of:
            why = why if what else "the old value is needed when it is written"
            commits.append(Commit(result.name, state_of[result.name], why))
        elif what:
            commits.append(Commit(result.name, result.name, why))
        else:
            homes[result.name] = Home.OUTPUT
    return homes, tuple(commits)


def _writes_and_failures(program: Program) -> tuple[dict[str, list[int]], list[tuple[int, str]]]:
    """The writes of each value, and the positions and names of the steps that can fail."""
    writes: dict[str, list[int]] = {}
    failures: list[tuple[int, str]] = []
    for position, node in enumerate(walk_steps(program.nodes)):
        match node:
            case Step():
                for out in node.outs:
                    writes.setdefault(out, []).append(position)
                if node.callee.fallible:
                    failures.append((position, node.callee.name))
            case Define():
                failures.append((position, f"the definition of the size {node.symbol}"))
            case Check():
                failures.append((position, f"the check of sizes for {node.call.origin}"))
            case Repeat():
                for name in written_by(node):
                    writes.setdefault(name, []).append(position)
            case End():
                if node.repeat.fallible:
                    failures.append((position, f"the loop {node.repeat.call.origin}"))
            case Branch():
                pass
    return writes, failures
