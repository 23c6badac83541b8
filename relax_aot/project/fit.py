# SPDX-License-Identifier: Apache-2.0
"""Whether a model fits the memories of its board: an error when it is compiled, not on the desk.

What is known then is what the model needs: its arenas, its state, inputs and outputs, the
stack that the board sets aside, and the constants. Code and whatever else a firmware has come
on top; the linker has the last word about those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relax_aot.emit.interface import Interface
from relax_aot.emit.weights import LINKED_BYTES, Weights
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import interval
from relax_aot.planning import Plan, at_most, inner_sizes
from relax_aot.project.board import Board, Memory


class DoesNotFit(RelaxAotError):
    """More is needed than a memory of the board has."""

    def __init__(
        self, message: str, memory: str, over_bytes: int, *, constants: bool = False
    ) -> None:
        self.memory = memory
        self.over_bytes = over_bytes
        self.constants = constants
        """Whether constants alone have no room."""
        super().__init__(message)


WAYS_OUT = {
    False: "use a smaller bound (--bound), --optimize memory, or another board",
    True: "quantize a float model (--quantize), use fewer bits for its weights (--quantize int4w), "
    "store the weights separately (--weights blob), or use another board",
}
"""By whether constants are what has no room."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that have to lie somewhere; `memory` names the one place where that is settled."""

    what: str
    bytes: int
    memory: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One memory that is too small by so many bytes."""

    message: str
    memory: str
    over_bytes: int
    constants: bool


def state_bytes(plan: Plan, interface: Interface) -> int:
    """The state block at the declared bounds."""
    if interface.common is not None:
        return interface.common.state_bytes
    parts = interface.states
    if not parts:
        return 0
    unit = plan.alignment
    sizes = (interval(part.type.bytes, plan.module.bounds)[1] for part in parts)
    return interface.header_bytes(unit) + sum(-(-n // unit) * unit for n in sizes)


def needs_of(
    board: Board, entries: Sequence[tuple[Plan, Interface]], const_bytes: int
) -> tuple[Need, ...]:
    """All that a model needs, constants last. Of several entries one runs at a time, so that the
    greatest arena counts, and the inputs and outputs of the entry that has most of them."""
    own = [
        {need.what: need for need in _ram_needs(board, plan, interface)}
        for plan, interface in entries
    ]
    ports = [
        {what: need for what, need in needs.items() if what.startswith(("input ", "output "))}
        for needs in own
    ]
    kept: dict[str, Need] = {}
    for needs, io in zip(own, ports, strict=True):
        for what in needs.keys() - io.keys():
            known = kept.get(what)
            if known is None or known.bytes < needs[what].bytes:
                kept[what] = needs[what]
    order = {what: None for needs in own for what in needs}
    most = max(ports, key=lambda io: sum(need.bytes for need in io.values()))
    chosen = kept | most
    return (*(chosen[what] for what in order if what in chosen), Need("constants", const_bytes))


@dataclass(frozen=True, slots=True)
class Room:
    """What lies in one memory of a board, as far as it is known when a model is compiled."""

    memory: str
    size: int
    needs: tuple[Need, ...]

    @property
    def taken(self) -> int:
        return sum(need.bytes for need in self.needs)


def rooms_of(board: Board, needs: Sequence[Need], *, weights_apart: bool) -> tuple[Room, ...]:
    """One row for each memory of the board, with what was placed there."""
    placed: dict[str, list[Need]] = {memory.name: [] for memory in board.memories}
    for memories, there in _kinds(board, needs, weights_apart):
        for name, own in place(memories, there).placed.items():
            placed[name] += own
    return tuple(Room(m.name, m.size, tuple(placed[m.name])) for m in board.memories)


def _kinds(
    board: Board, needs: Sequence[Need], weights_apart: bool
) -> Iterator[tuple[list[Memory], Sequence[Need]]]:
    """Memories with what may lie in them: those that are written, then those that are not."""
    *in_ram, constants = needs
    in_flash = [] if weights_apart else [constants]
    for kind, there in (("ram", in_ram), ("flash", in_flash)):
        memories = [m for m in board.memories if m.kind == kind]
        if kind == "flash":
            memories += [m for m in board.memories if m.preloaded]
        if memories:
            yield memories, there


def require_wide_addresses(board: Board, weights: Weights) -> None:
    """Blocks of weights of 2 GiB or more need 64-bit addresses."""
    if not weights.linked and not board.has_wide_addresses:
        raise DoesNotFit(
            f"weights of {weights.block_bytes} bytes need 64-bit addresses, but {board.name} has"
            " 32 bits; quantize the model (--quantize), or use another board",
            "addresses",
            weights.block_bytes - LINKED_BYTES,
            constants=True,
        )


def require_fit(board: Board, needs: Sequence[Need], *, weights_apart: bool) -> None:
    """Raises `DoesNotFit`, with the map. Weights that the program gives are its own matter."""
    if not board.memories:
        return
    problems = [
        problem
        for memories, there in _kinds(board, needs, weights_apart)
        for problem in _problems(board, memories, there)
    ]
    if problems:
        first = problems[0]
        text = "\n".join(problem.message for problem in problems)
        constants = all(problem.constants for problem in problems)
        raise DoesNotFit(text, first.memory, first.over_bytes, constants=constants)


def _ram_needs(board: Board, plan: Plan, interface: Interface) -> Iterator[Need]:
    names = {memory.name for memory in board.memories}
    stack = next((m.name for m in board.memories if m.kind == "ram"), None)
    yield Need("stack", board.stack_bytes, stack)
    if interface.device:
        yield Need("arena", plan.arena_bytes)
    for arena, named in zip(plan.arenas, interface.arenas, strict=not interface.device):
        region = arena.region.name
        yield Need(named.member, arena.bytes, region if region in names else None)
    if interface.has_state:
        yield Need("state", state_bytes(plan, interface))
    bounds = plan.module.bounds
    inner = inner_sizes(plan.program, bounds)
    for side, ports in (("input", interface.inputs), ("output", interface.outputs)):
        for port in ports:
            greatest = interval(at_most(port.type.bytes, inner, bounds), bounds)[1]
            yield Need(f"{side} {port.c_name}", greatest)


@dataclass(frozen=True, slots=True)
class Places:
    placed: dict[str, list[Need]]
    room: dict[str, int]
    """Bytes that are left."""
    homeless: list[Need]


def place(memories: Sequence[Memory], needs: Sequence[Need]) -> Places:
    """The settled ones first, then the largest into the first memory that has room."""
    room = {memory.name: memory.size for memory in memories}
    placed: dict[str, list[Need]] = {memory.name: [] for memory in memories}
    settled = [n for n in needs if n.memory is not None]
    others = sorted((n for n in needs if n.memory is None), key=lambda n: -n.bytes)
    homeless: list[Need] = []
    for need in (*settled, *others):
        home = need.memory or next((m for m in room if room[m] >= need.bytes), None)
        if home is None or room[home] < need.bytes:
            homeless.append(need)
            continue
        room[home] -= need.bytes
        placed[home].append(need)
    return Places(placed, room, homeless)


def _problems(board: Board, memories: Sequence[Memory], needs: Sequence[Need]) -> Iterator[Problem]:
    found = place(memories, needs)
    room, homeless = found.room, found.homeless
    if not homeless:
        return
    worst = max(homeless, key=lambda n: n.bytes)
    name = worst.memory or max(room, key=lambda m: room[m])
    over = sum(n.bytes for n in homeless if (n.memory or name) == name) - room[name]
    size = next(m.size for m in memories if m.name == name)
    lines = [
        f"the model does not fit {board.name}: {name} has {size} bytes, {over} too few",
        *_map_lines(memories, found),
        WAYS_OUT[worst.what == "constants"],
    ]
    yield Problem("\n  ".join(lines), name, over, all(n.what == "constants" for n in homeless))


def _map_lines(memories: Sequence[Memory], found: Places) -> Iterator[str]:
    for memory in memories:
        needs = found.placed[memory.name]
        parts = ", ".join(f"{need.what} {need.bytes}" for need in needs) or "nothing"
        yield f"{memory.name}: {memory.size} bytes: {parts}; {found.room[memory.name]} free"
    yield "not placed: " + ", ".join(f"{need.what} {need.bytes}" for need in found.homeless)
