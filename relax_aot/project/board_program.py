# SPDX-License-Identifier: Apache-2.0
"""A complete program of a language model for a Cortex-M without an operating system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.emit.generate import GenerateView
from relax_aot.emit.render import render
from relax_aot.project.board import Board
from relax_aot.project.entries import EntriesProject

FOLDER = "board"


@dataclass(frozen=True, slots=True)
class PlaceView:
    """What the templates llm/board* see of a board."""

    title: str
    memories: tuple[str, ...]
    """Lines of a linker script."""
    flash: str
    ram: str
    buffers: str
    """The largest RAM."""
    stack_bytes: int
    compiler: str
    flags: str
    link_flags: str
    units: str
    run: str
    """The beginning of the command that emulates a program; nothing without an emulator."""

    @property
    def phony(self) -> str:
        return "run clean" if self.run else "clean"


@dataclass(frozen=True, slots=True)
class BoardProgram:
    files: dict[str, str]
    readme: str


def has_board_program(project: EntriesProject) -> bool:
    """A board whose memories are known, and a model whose arena and weights may lie anywhere."""
    board = project.board
    return (
        board.family == "cortex_m"
        and bool(board.prefix)
        and {"flash", "ram"} <= {memory.kind for memory in board.memories}
        and len(project.shared.arenas) == 1
        and not board.regions
    )


def board_program(
    project: EntriesProject, generate: GenerateView, units: Sequence[str]
) -> BoardProgram:
    """`units` are the C files of the project."""
    place = _place(project.board, units)
    view = {"generate": generate, "place": place}
    files = {
        "main.c": render("llm/board_main.c.j2", **view),
        "board.c": render("llm/board.c.j2", **view),
        "board.ld": render("llm/board.ld.j2", **view),
        "Makefile": render("llm/board_makefile.j2", **view),
    }
    readme = "\n" + render("llm/board.md.j2", **view)
    return BoardProgram({f"{FOLDER}/{name}": text for name, text in files.items()}, readme)


def _place(board: Board, units: Sequence[str]) -> PlaceView:
    rams = [memory for memory in board.memories if memory.kind == "ram"]
    lines = tuple(
        f"{memory.name} ({'rx' if memory.kind == 'flash' else 'rwx'}) :"
        f" ORIGIN = {memory.origin:#x}, LENGTH = {memory.size:#x}"
        for memory in board.memories
    )
    emulator = board.emulator
    run = ""
    if emulator is not None and emulator.machine is not None:
        text = "-display none -chardev stdio,id=text -semihosting-config enable=on,chardev=text"
        run = f"{emulator.program} -M {emulator.machine} {text} -kernel"
    return PlaceView(
        title=board.title,
        memories=lines,
        flash=board.first_memory("flash").name,
        ram=rams[0].name,
        buffers=max(rams, key=lambda memory: memory.size).name,
        stack_bytes=board.stack_bytes,
        compiler=f"{board.prefix}gcc",
        flags=" ".join(board.flags),
        link_flags=" ".join(board.link_flags),
        units=" ".join(f"../{unit}" for unit in units),
        run=run,
    )
