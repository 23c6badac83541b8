# SPDX-License-Identifier: Apache-2.0
"""Machine code of Arm cores as text, by the disassembler of the GNU tools."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from relax_aot.errors import RelaxAotError
from relax_aot.toolchain import tools

_LINE = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f ]+?)\s*\t(\S+)\s*([^;@\n]*)")


HELIUM = "armv8.1-m.main"
"""The machine without whose name GNU's disassembler reads vectors as those of a coprocessor."""


class DisassemblyError(RelaxAotError):
    """The disassembler does not read a program."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name` is the mnemonic with its suffixes, without that of its length."""

    address: int
    name: str
    operands: str
    narrow: bool
    """It has 16 bits."""


@lru_cache(maxsize=2)
def instructions(
    elf: Path, _changed: int, prefix: str, start: int, stop: int, machine: str = ""
) -> tuple[Instruction, ...]:
    """Those from address `start` to `stop`, in order. `machine`: the name of GNU's disassembler
    for an architecture that it does not read from the file."""
    program = tools.find(f"{prefix}objdump")
    named = ["-m", machine] if machine else []
    done = subprocess.run(
        [program, "-d", *named, f"--start-address={start:#x}", f"--stop-address={stop:#x}", elf],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DisassemblyError(f"{program.name}: {done.stderr.strip()}")
    found = (_LINE.match(line) for line in done.stdout.splitlines())
    return tuple(
        Instruction(int(m[1], 16), re.sub(r"\.[nw]$", "", m[3]), m[4].strip(), len(m[2]) == 4)
        for m in found
        if m and not m[3].startswith(".")
    )
