# SPDX-License-Identifier: Apache-2.0
"""The target of a board, with the choices that depend on the times of its instructions."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.emulation.core_times import core_times
from relax_aot.project.board import Board
from relax_aot.scheduling.targets import Target, find

SHARE = 32
"""Part of the RAM of a board that scratch may take in addition."""


def target_of(board: Board) -> Target:
    """By the features of the board. A board that states its timing runs in few cycles, others in
    few instructions."""
    target = find(board.family, board.features)
    times = core_times(board.cpu) if board.timing is not None else None
    memory = sum(one.size for one in board.memories if one.kind == "ram")
    return replace(
        target,
        scratch=min(memory // SHARE, target.scratch),
        separate=times is not None and times.multiplies_before_it_adds,
        waits=board.timing is not None and board.timing.flash_wait_states > 0,
    )
