# SPDX-License-Identifier: Apache-2.0
"""The part of the warps of a multiprocessor that a launch fills (CUDA C++ Programming Guide,
compute capabilities, and the CUDA occupancy calculator)."""

from __future__ import annotations

from relax_aot.binaries.cubin import DeviceFunction

RESIDENT, BLOCKS = {87: 48, 90: 64}, {87: 16, 90: 32}
"""Warps and blocks that a multiprocessor holds."""
REGISTERS, SHARED = 65536, {87: 164 << 10, 90: 228 << 10}
"""Of a multiprocessor."""
RESERVED = 1 << 10
"""Bytes of shared memory of each block that the system keeps."""


def occupancy(function: DeviceFunction, threads: int, dynamic_bytes: int, chip: int) -> float:
    """Registers are given to warps in units of 256; a quarter of them is for a quarter of the
    warps."""
    warps, registers = threads // 32, -(-function.registers * 32 // 256) * 256
    shared = function.shared_bytes + dynamic_bytes + RESERVED
    limits = SHARED[chip] // shared, RESIDENT[chip] // warps, BLOCKS[chip]
    return min(REGISTERS // 4 // registers * 4 // warps, *limits) * warps / RESIDENT[chip]
