# SPDX-License-Identifier: Apache-2.0
"""Estimates of cycles: runs of each block, times what the core takes for its instructions, and
what the core waits for flash. Docs: docs/explanation/cycles.md.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relax_aot.emulation.core_times import Core, core_times, known_cores
from relax_aot.errors import RelaxAotError
from relax_aot.project.board import Board
from relax_aot.project.timing import Timing
from relax_aot.toolchain import tools
from relax_aot.toolchain.disassembly import HELIUM, Instruction, instructions

HALFWORDS_PER_CYCLE = 1.0
"""What a core takes of its instructions while the line behind them is read ahead."""


class NoEstimate(RelaxAotError):
    """The cycles of a core or a board cannot be estimated."""


@dataclass(frozen=True, slots=True)
class BlockRuns:
    """A line of `counts.txt`: see boards/families/common/instruction_counter.c."""

    address: int
    instructions: int
    length: int
    jumps: int
    fetches: int
    following: int
    reads: int

    @property
    def runs(self) -> int:
        return self.instructions // self.length


def can_estimate(board: Board) -> bool:
    """Whether the times of the core and a disassembler are here."""
    known = core_times(board.cpu) is not None
    return known and tools.installed(f"{board.prefix}objdump") is not None


def require_times(board: Board) -> Core:
    """The times of the board's core."""
    core = core_times(board.cpu)
    if core is None:
        raise NoEstimate(
            f"cycles of {board.name} cannot be estimated: there are no instruction times of"
            f" {board.cpu}; known cores: {', '.join(known_cores())}"
        )
    return core


class Estimator:
    """Cycles of blocks of one program on one board."""

    def __init__(self, elf: Path, board: Board) -> None:
        self._core = require_times(board)
        self._timing = board.timing
        self._elf = elf
        self._prefix = board.prefix
        self._machine = HELIUM if "mve" in board.features else ""

    def cycles(self, blocks: Sequence[BlockRuns]) -> list[float]:
        """One figure for each block, with the core's factor."""
        if not blocks:
            return []
        start = min(block.address for block in blocks)
        stop = max(block.address + 4 * block.length for block in blocks)
        changed = self._elf.stat().st_mtime_ns
        code = instructions(self._elf, changed, self._prefix, start, stop, self._machine)
        places = [instruction.address for instruction in code]
        found = []
        for block in blocks:
            first = bisect.bisect_left(places, block.address)
            own = code[first : first + block.length]
            found.append(self._core.factor * self._of_block(own, block))
        return found

    def _of_block(self, code: Sequence[Instruction], block: BlockRuns) -> float:
        if not code:
            return block.instructions
        cycles = block.runs * self._core.block_cycles(code)
        cycles += block.jumps * self._core.taken_cycles(code[-1])
        return cycles + (0 if self._timing is None else flash_waits(self._timing, block))


def flash_waits(timing: Timing, block: BlockRuns) -> float:
    """Cycles of all runs of a block in which the core waits for flash."""
    waits = timing.flash_wait_states
    hidden = timing.line_bytes / 2 / HALFWORDS_PER_CYCLE if timing.flash_prefetch else 0.0
    behind = max(waits - hidden, 0.0)
    lines = block.fetches - block.following + block.reads
    return waits * lines + behind * block.following
