# SPDX-License-Identifier: Apache-2.0
"""The table `[timing]` of a board file: the clock, and how the core reads its flash."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.project.board_table import Table

READ_BITS = (32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Timing:
    """Figures of the chip's reference manual at `clock_mhz`. Flash is read in lines of
    `flash_read_bits`; a line that no buffer holds takes `flash_wait_states` cycles more."""

    clock_mhz: int
    flash_wait_states: int
    flash_read_bits: int
    flash_prefetch: bool
    """The line behind the one that is executed is read ahead."""
    flash_instruction_bytes: int
    """What the buffers, or a cache, hold of instructions; at least one line."""
    flash_data_bytes: int
    """The same of data; 0 where each load from flash waits."""

    @property
    def line_bytes(self) -> int:
        return self.flash_read_bits // 8

    @property
    def instruction_lines(self) -> int:
        return max(self.flash_instruction_bytes // self.line_bytes, 1)

    @property
    def data_lines(self) -> int:
        return self.flash_data_bytes // self.line_bytes


def read_timing(top: Table, family: str) -> Timing | None:
    """The table `[timing]`, which boards of the family `cortex_m` may have."""
    if "timing" not in top.data:
        return None
    if family != "cortex_m":
        raise top.fail("timing", "no such table: it is for boards of family cortex_m")
    table = top.table("timing")
    table.only(
        "clock_mhz", "flash_wait_states", "flash_read_bits", "flash_prefetch",
        "flash_instruction_buffer", "flash_data_buffer",
    )  # fmt: skip
    bits = table.count("flash_read_bits")
    if bits not in READ_BITS:
        raise table.fail("flash_read_bits", f"one of {', '.join(map(str, READ_BITS))}")
    return Timing(
        table.count("clock_mhz"),
        table.number("flash_wait_states"),
        bits,
        table.flag("flash_prefetch"),
        *(
            table.size(key) if key in table.data else 0
            for key in ("flash_instruction_buffer", "flash_data_buffer")
        ),
    )
