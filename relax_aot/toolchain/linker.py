# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a Cortex-M image lie: the linker script, and what does not fit its place.

Code, constants and data go to the first flash and the first RAM. Where these are too small,
the largest constants and the largest buffers go to the next memories that have room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.render import environment
from relax_aot.project.board import Board, Memory
from relax_aot.resources import data_dir

HANDLER_STACK_BYTES = 256
FENCE_BYTES_MAX = 16 << 20
FENCE_BYTES_MIN = 1 << 10
"""Smaller regions make the emulator check every access of the page that they lie in."""
LIBRARY_RESERVE = 48 << 10
"""Flash left for start-up code and the C library when constants are placed."""
RAM_RESERVE = 1 << 10
SPILL_BYTES_MIN = 4 << 10


@dataclass(frozen=True, slots=True)
class InputSection:
    """A section of an object file, before linking."""

    object: str
    name: str
    size: int

    @property
    def is_constant(self) -> bool:
        return self.name.startswith(".rodata")

    @property
    def is_buffer(self) -> bool:
        return self.name.startswith(".bss.")

    @property
    def in_ram(self) -> bool:
        return self.name.startswith((".bss", ".data"))

    @property
    def in_flash(self) -> bool:
        return self.name.startswith((".text", ".rodata", ".data"))


@dataclass(frozen=True, slots=True)
class MemoryView:
    name: str
    access: str
    origin: str
    size: str


@dataclass(frozen=True, slots=True)
class Spilled:
    memory: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """What `linker.ld.j2` sees."""

    board: str
    memories: tuple[MemoryView, ...]
    flash: str
    ram: str
    code_alignment: int
    stack_bytes: int
    handler_stack_bytes: int
    spilled_constants: tuple[Spilled, ...]
    spilled_buffers: tuple[Spilled, ...]
    fence_below_bytes: int
    fence_above_bytes: int


def linker_script(board: Board, sections: Sequence[InputSection], stack_bytes: int) -> str:
    """The script for an image of these sections; the C library's are not among them."""
    path = data_dir("boards") / "families" / board.family / "linker.ld.j2"
    template = environment().from_string(path.read_text(encoding="utf-8"))
    return template.render(map=memory_map(board, sections, stack_bytes)).strip("\n") + "\n"


def memory_map(board: Board, sections: Sequence[InputSection], stack_bytes: int) -> MemoryMap:
    flash, ram = board.first_memory("flash"), board.first_memory("ram")
    flash_need = LIBRARY_RESERVE + sum(s.size for s in sections if s.in_flash)
    ram_need = RAM_RESERVE + stack_bytes + sum(s.size for s in sections if s.in_ram)
    room = {m.name: m.size for m in board.memories if m not in (flash, ram)}
    room[ram.name] = ram.size - ram_need
    constants = _spill(
        [s for s in sections if s.is_constant], flash_need - flash.size, board, room, constant=True
    )
    buffers = _spill(
        [s for s in sections if s.is_buffer], ram_need - ram.size, board, room, constant=False
    )
    return MemoryMap(
        board=board.name,
        memories=tuple(
            MemoryView(
                memory.name,
                "rx" if memory.kind == "flash" else "rwx",
                f"{memory.origin:#x}",
                f"{memory.size:#x}",
            )
            for memory in board.memories
        ),
        flash=flash.name,
        ram=ram.name,
        # The MPU keeps the first 1 KB of the address space out of bounds: vectors alone.
        code_alignment=1024 if flash.origin == 0 and "mpu" in board.features else 64,
        stack_bytes=stack_bytes,
        handler_stack_bytes=HANDLER_STACK_BYTES,
        spilled_constants=constants,
        spilled_buffers=buffers,
        fence_below_bytes=_fence(board, ram, above=False),
        fence_above_bytes=_fence(board, ram, above=True),
    )


def _spill(
    candidates: list[InputSection], excess: int, board: Board, room: dict[str, int], constant: bool
) -> tuple[Spilled, ...]:
    """Moves the largest sections until the excess is gone; changes `room`.

    What finds no room stays, and the linker says by how much it is too large.
    """
    ram = board.first_memory("ram")
    moved: dict[str, list[str]] = {}
    for section in sorted(candidates, key=lambda s: (-s.size, s.object, s.name)):
        if excess <= 0 or section.size < SPILL_BYTES_MIN:
            break
        for memory in board.memories:
            usable = memory.preloaded if constant else memory.kind == "ram" and memory != ram
            if usable and room.get(memory.name, 0) >= section.size + 64:
                room[memory.name] -= section.size + 64
                excess -= section.size
                moved.setdefault(memory.name, []).append(f"*{section.object}({section.name})")
                break
    return tuple(Spilled(name, tuple(patterns)) for name, patterns in moved.items())


def _fence(board: Board, ram: Memory, above: bool) -> int:
    """The largest power of two outside the RAM, aligned to itself, without memory."""
    edge = ram.end if above else ram.origin
    size = min(edge & -edge, FENCE_BYTES_MAX)
    while size >= FENCE_BYTES_MIN:
        start = edge if above else edge - size
        if all(m.end <= start or start + size <= m.origin for m in board.memories):
            return size
        size //= 2
    return 0
