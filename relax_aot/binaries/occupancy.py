# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU the blocks of a kernel fill.

The figures of multiprocessors are those of the CUDA C++ Programming Guide, technical
specifications per compute capability; the rules are those of NVIDIA's occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass

_REGISTERS = 1 << 16
_REGISTER_UNIT = 256
"""Registers are given to warps in this unit."""
_WARP = 32


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one holds at a time."""

    warps: int
    blocks: int
    shared_bytes: int


_MULTIPROCESSORS = {
    53: Multiprocessor(64, 32, 64 << 10), 62: Multiprocessor(64, 32, 64 << 10),
    72: Multiprocessor(64, 32, 96 << 10), 75: Multiprocessor(32, 16, 64 << 10),
    80: Multiprocessor(64, 32, 164 << 10), 86: Multiprocessor(48, 16, 100 << 10),
    87: Multiprocessor(48, 16, 164 << 10), 89: Multiprocessor(48, 24, 100 << 10),
    90: Multiprocessor(64, 32, 228 << 10), 100: Multiprocessor(64, 32, 228 << 10),
    103: Multiprocessor(64, 32, 228 << 10), 110: Multiprocessor(48, 24, 228 << 10),
    120: Multiprocessor(48, 24, 100 << 10), 121: Multiprocessor(48, 24, 100 << 10),
}  # fmt: skip


def occupancy(sm: int, threads: int, registers: int, shared_bytes: int) -> float:
    """The part of the warps of a multiprocessor that blocks of `threads` threads take, 0 to 1.

    `sm` is ten times the compute capability, `registers` those of a thread, `shared_bytes` those
    of a block.
    """
    holds = _MULTIPROCESSORS[sm]
    warps = -(-threads // _WARP)
    unit = -(-max(registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    blocks = min(
        holds.blocks,
        holds.warps // warps,
        _REGISTERS // (unit * warps),
        holds.shared_bytes // max(shared_bytes, 1),
    )
    return blocks * warps / holds.warps
