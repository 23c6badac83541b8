# SPDX-License-Identifier: Apache-2.0
"""Cortex-M boards by the emulator Unicorn, a wheel, where QEMU is not installed.

It knows the cores and nothing of boards: the memories are those of the board's file, so boards
that QEMU does not know run too. `emulation/unicorn_machine.py` is the process that does it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from elftools.elf.elffile import ELFFile

from relax_aot.binaries.elf import Program
from relax_aot.cache import cached_folder, digest_of
from relax_aot.emulation.counter import Window
from relax_aot.project.board import Board
from relax_aot.resources import data_dir
from relax_aot.toolchain import tools
from relax_aot.toolchain.compilers import host_compiler, host_flags, run

CORES = {
    "cortex-m0": "UC_CPU_ARM_CORTEX_M0",
    # The same instructions; what it has beyond is not for programs like these.
    "cortex-m0plus": "UC_CPU_ARM_CORTEX_M0",
    "cortex-m3": "UC_CPU_ARM_CORTEX_M3",
    "cortex-m4": "UC_CPU_ARM_CORTEX_M4",
    "cortex-m7": "UC_CPU_ARM_CORTEX_M7",
    "cortex-m33": "UC_CPU_ARM_CORTEX_M33",
}
LIBRARY = "block_counter.so"


def can_emulate(board: Board) -> bool:
    return board.family == "cortex_m" and board.cpu in CORES


def command() -> list[str]:
    """Apart from the files that `machine_files` gives, this is all it needs."""
    return [sys.executable, "-P", str(Path(__file__).with_name("unicorn_machine.py"))]


def machine_files(
    board: Board, program: Program, window: Window, functions: bool, cycles: bool = False
) -> dict[str, bytes]:
    """What the machine is made of, as files for its folder. `cycles`: blocks with what an estimate
    needs. Reads of flash are not counted, so that a board that waits for them has no estimate."""
    waits = board.timing is not None and board.timing.flash_wait_states > 0
    segments, image = _segments(program.path)
    limit, top = program.symbol("__stack_limit"), program.symbol("__stack_top")
    vectors = next(s.address for s in program.sections if s.name == ".text")
    counter = _counter()
    code = next(s for s in segments if s[0] <= window.start < s[0] + s[2])
    settings = {
        "cpu": CORES[board.cpu],
        "has_faults": not board.cpu.startswith("cortex-m0"),
        "memories": [[m.origin, m.size, m.kind == "ram"] for m in board.memories],
        "segments": segments,
        "vectors": vectors,
        "stack": [limit, top],
        "count": {
            "library": str(counter / LIBRARY),
            "start": window.start,
            "stop": [window.stop.start, window.stop.end],
            "code": code,
            "blocks": functions or cycles,
            "jumps": cycles and not waits,
        }
        if counter is not None
        else None,
    }
    return {"machine.json": json.dumps(settings).encode(), "image.bin": image}


def _segments(elf: Path) -> tuple[list[tuple[int, int, int]], bytes]:
    """Load address, place in the bytes, and length of what is loaded; and the bytes."""
    segments, image = [], b""
    with elf.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            data = segment.data()
            if data:
                segments.append((segment["p_paddr"], len(image), len(data)))
                image += data
    return segments, image


def _counter() -> Path | None:
    """The folder with the hook, compiled for this machine; None where nothing compiles."""
    source = data_dir("boards") / "families" / "common" / "block_counter.c"
    try:
        compiler = host_compiler()
    except tools.ToolMissing:
        return None
    flags = [*host_flags(compiler), "-std=c11", "-O2", "-fPIC", "-shared", "-nostdlib"]

    def make(folder: Path) -> None:
        done = run(compiler, [*flags, source, "-o", folder / LIBRARY], folder)
        if done.returncode:
            raise CounterError(done.stderr)

    try:
        digest = digest_of([source.read_bytes(), repr(compiler), repr(flags)])
        return cached_folder("counter", digest, make)
    except CounterError:
        return None


class CounterError(Exception):
    """The hook cannot be made here; counts are then not available."""
