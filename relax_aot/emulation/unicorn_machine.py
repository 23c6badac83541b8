# SPDX-License-Identifier: Apache-2.0
"""A Cortex-M board in a process of its own, by the emulator Unicorn.

Run as a script in a folder that holds `machine.json` (see `emulation/unicorn.py`) and the harness's
files; it knows nothing of the rest of the package, so that it starts quickly. It has what a
harness needs: the core, the board's memories, and semihosting. What lies outside the memories is
a fault, and a write to flash is one. There are no interrupts, timers and MPU. A fault is written
down as boards/families/cortex_m/fault.c does.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import struct
import sys
from pathlib import Path
from typing import IO, Any

# Their types are incomplete.
unicorn: Any = importlib.import_module("unicorn")
arm: Any = importlib.import_module("unicorn.arm_const")

PAGE = 4096
SYSTEM_SPACE = (0xE0000000, 0x100000)
"""System registers: what is written is read back, and nothing else happens."""
BKPT_SEMIHOSTING = 0xBEAB
SYS_OPEN, SYS_CLOSE, SYS_WRITE, SYS_READ, SYS_EXIT_EXTENDED = 0x01, 0x02, 0x05, 0x06, 0x20
MODES = {1: "rb", 5: "wb"}
FAILED = 0xFFFF_FFFF
MEM_MANAGE, BUS_FAULT, USAGE_FAULT, HARD_FAULT = 4, 5, 6, 3
DACCVIOL, PRECISERR, IBUSERR, UNDEFINSTR = 1 << 1, 1 << 9, 1 << 8, 1 << 16
MMARVALID, BFARVALID = 1 << 7, 1 << 15
INVSTATE, NOCP, STKOF = 1 << 17, 1 << 19, 1 << 20
CAUSES = {17: NOCP, 18: INVSTATE, 19: STKOF}
"""By QEMU's number of an exception, which the emulator gives to its hook."""
EXIT_FAULT = 99
FAULT_MAGIC = 0x43464152
FRAME_BYTES = 32
STACK_BYTES_SHOWN = 1024
BLOCKS = 1 << 16
FRAME_REGISTERS = (
    arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2, arm.UC_ARM_REG_R3,
    arm.UC_ARM_REG_R12, arm.UC_ARM_REG_LR, arm.UC_ARM_REG_PC, arm.UC_ARM_REG_CPSR,
)  # fmt: skip


class Machine:
    """The core and its memories. `code` is the exit code once the program ended."""

    def __init__(self, settings: dict[str, Any], image: bytes) -> None:
        self.settings = settings
        self.code: int | None = None
        self._files: dict[int, IO[bytes]] = {}
        self._system: dict[int, int] = {}
        self.engine = unicorn.Uc(
            unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS
        )
        self.engine.ctl_set_cpu_model(getattr(arm, settings["cpu"]))
        for start, end, writable in _pages(settings["memories"]):
            access = unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC
            access |= unicorn.UC_PROT_WRITE if writable else 0
            self.engine.mem_map(start, end - start, access)
        self.engine.mmio_map(*SYSTEM_SPACE, self._read_system, None, self._write_system, None)
        for address, offset, size in settings["segments"]:
            self.engine.mem_write(address, image[offset : offset + size])
        self.engine.hook_add(unicorn.UC_HOOK_INTR, self._interrupt)
        self.engine.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._bad_access)
        self.engine.hook_add(unicorn.UC_HOOK_INSN_INVALID, self._bad_instruction)

    def run(self) -> int:
        vectors = bytes(self.engine.mem_read(self.settings["vectors"], 8))
        stack, entry = struct.unpack("<2I", vectors)
        self.engine.reg_write(arm.UC_ARM_REG_SP, stack)
        try:
            self.engine.emu_start(entry | 1, 0xFFFF_FFFE)
        except unicorn.UcError as error:
            if self.code is None:
                sys.stderr.write(f"the emulator stopped: {error}\n")
        for file in self._files.values():
            file.close()
        return EXIT_FAULT if self.code is None else self.code

    def _read_system(self, _engine: object, offset: int, _size: int, _user: object) -> int:
        return self._system.get(offset, 0)

    def _write_system(
        self, _engine: object, offset: int, _size: int, value: int, _user: object
    ) -> None:
        self._system[offset] = value if _holds(offset) else 0

    # Semihosting

    def _interrupt(self, engine: Any, number: int, _user: object) -> None:
        pc = engine.reg_read(arm.UC_ARM_REG_PC)
        try:
            (instruction,) = struct.unpack("<H", bytes(engine.mem_read(pc, 2)))
        except unicorn.UcError:
            instruction = 0
        if instruction != BKPT_SEMIHOSTING:
            self._fault(USAGE_FAULT, CAUSES.get(number, UNDEFINSTR), 0)
            return
        operation = engine.reg_read(arm.UC_ARM_REG_R0)
        answer = self._semihosting(operation, engine.reg_read(arm.UC_ARM_REG_R1))
        engine.reg_write(arm.UC_ARM_REG_R0, answer & FAILED)
        engine.reg_write(arm.UC_ARM_REG_PC, (pc + 2) | 1)

    def _semihosting(self, operation: int, place: int) -> int:
        """Reads and writes answer how many bytes were not transferred."""
        match operation:
            case 0x01:  # SYS_OPEN
                name, mode, length = self._words(place, 3)
                return self._open(bytes(self.engine.mem_read(name, length)).decode(), mode)
            case 0x02:  # SYS_CLOSE
                self._files.pop(self._words(place, 1)[0]).close()
                return 0
            case 0x05:  # SYS_WRITE
                handle, at, size = self._words(place, 3)
                self._files[handle].write(bytes(self.engine.mem_read(at, size)))
                return 0
            case 0x06:  # SYS_READ
                handle, at, size = self._words(place, 3)
                data = self._files[handle].read(size)
                self.engine.mem_write(at, data)
                return size - len(data)
            case 0x20:  # SYS_EXIT_EXTENDED
                self.code = self._words(place, 2)[1]
                self.engine.emu_stop()
                return 0
        return FAILED

    def _open(self, name: str, mode: int) -> int:
        if mode not in MODES or "/" in name:
            return FAILED
        try:
            file = Path(name).open(MODES[mode])  # noqa: SIM115  open until the program closes it
        except OSError:
            return FAILED
        handle = max(self._files, default=0) + 1
        self._files[handle] = file
        return handle

    def _words(self, place: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", bytes(self.engine.mem_read(place, 4 * count)))

    # Faults

    def _bad_access(
        self, _engine: object, access: int, address: int, _size: int, _value: int, _user: object
    ) -> bool:
        if access in (unicorn.UC_MEM_FETCH_UNMAPPED, unicorn.UC_MEM_FETCH_PROT):
            self._fault(BUS_FAULT, IBUSERR, address)
        elif access in (unicorn.UC_MEM_WRITE_PROT, unicorn.UC_MEM_READ_PROT):
            self._fault(MEM_MANAGE, DACCVIOL | MMARVALID, address)
        else:
            self._fault(BUS_FAULT, PRECISERR | BFARVALID, address)
        return False

    def _bad_instruction(self, _engine: object, _user: object) -> bool:
        self._fault(USAGE_FAULT, UNDEFINSTR, 0)
        return False

    def _fault(self, exception: int, status: int, address: int) -> None:
        """As if the core had pushed its registers and fault.c had written them."""
        limit, top = self.settings["stack"]
        sp = self.engine.reg_read(arm.UC_ARM_REG_SP)
        frame = [self.engine.reg_read(register) for register in FRAME_REGISTERS]
        pushed = max(sp - FRAME_BYTES, limit + 4) if sp > limit else sp
        record = struct.pack(
            "<13I", FAULT_MAGIC, exception if self.settings["has_faults"] else HARD_FAULT, 0,
            status, 0, address, address, 0, 0, pushed, limit, top, 1,
        )  # fmt: skip
        words = struct.pack("<8I", *(value & FAILED for value in frame))
        shown = min(max(top - max(sp, limit), 0), STACK_BYTES_SHOWN - FRAME_BYTES)
        stack = bytes(self.engine.mem_read(max(sp, limit), shown)) if shown else b""
        Path("fault.bin").write_bytes(record + words + words + stack)
        self.code = EXIT_FAULT
        self.engine.emu_stop()


def _holds(offset: int) -> bool:
    """Whether a register keeps what is written: floating-point access does, those of the MPU
    and of faults are as if absent."""
    return offset == 0xED88


def _pages(memories: list[list[int]]) -> list[tuple[int, int, bool]]:
    """Whole pages, joined where they touch: memory is mapped in units of them."""
    found: list[tuple[int, int, bool]] = []
    for origin, size, writable in sorted(memories):
        start, end = origin & -PAGE, (origin + size + PAGE - 1) & -PAGE
        if found and start < found[-1][1]:
            start = found[-1][1]
        if start < end:
            found.append((start, end, bool(writable)))
    return found


# Counting


class Block(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint32), ("length", ctypes.c_uint32),
        ("runs", ctypes.c_uint64), ("jumps", ctypes.c_uint64),
    )  # fmt: skip


FINISHED = ctypes.CFUNCTYPE(None)


class Counter(ctypes.Structure):
    """`struct counter` of boards/families/common/block_counter.c."""

    _fields_ = (
        ("start", ctypes.c_uint64), ("stop_low", ctypes.c_uint64), ("stop_high", ctypes.c_uint64),
        ("code_start", ctypes.c_uint64), ("code_bytes", ctypes.c_uint64),
        ("code", ctypes.c_char_p), ("blocks", ctypes.POINTER(Block)),
        ("block_mask", ctypes.c_uint64), ("lost", ctypes.c_uint64), ("total", ctypes.c_uint64),
        ("counting", ctypes.c_uint64), ("previous", ctypes.c_void_p), ("finished", FINISHED),
    )  # fmt: skip


class Counting:
    """The hook in compiled C, and the lines of `counts.txt` that it leads to."""

    def __init__(self, machine: Machine, settings: dict[str, Any], image: bytes) -> None:
        uclib: Any = importlib.import_module("unicorn.unicorn_py3.unicorn").uclib
        self.lines: list[str] = []
        self._with_blocks, self._with_jumps = settings["blocks"], settings["jumps"]
        start, offset, size = settings["code"]
        self._blocks = (Block * BLOCKS)()
        self._finished = FINISHED(self._finish)
        self.counter = Counter(
            start=settings["start"],
            stop_low=settings["stop"][0],
            stop_high=settings["stop"][1],
            code_start=start,
            code_bytes=size,
            code=image[offset : offset + size],
            blocks=self._blocks,
            block_mask=BLOCKS - 1,
            finished=self._finished,
        )
        self._library = ctypes.CDLL(settings["library"])
        hook = ctypes.c_size_t()
        status = uclib.uc_hook_add(
            machine.engine._uch,
            ctypes.byref(hook),
            ctypes.c_int(unicorn.UC_HOOK_BLOCK),
            ctypes.cast(self._library.raot_on_block, ctypes.c_void_p),
            ctypes.byref(self.counter),
            ctypes.c_uint64(1),
            ctypes.c_uint64(0),
        )
        if status:
            raise unicorn.UcError(status)

    def _finish(self) -> None:
        if self._with_blocks:
            for block in self._blocks:
                if block.runs:
                    line = f"block {block.address:#x} {block.runs * block.length}"
                    if self._with_jumps:
                        line += f" {block.length} {block.jumps} 0 0 0"
                    self.lines.append(line)
                    block.runs = block.jumps = 0
        self.lines.append(f"call {self.counter.total}")


def main() -> int:
    settings = json.loads(Path("machine.json").read_text(encoding="utf-8"))
    image = Path("image.bin").read_bytes()
    machine = Machine(settings, image)
    counting = Counting(machine, settings["count"], image) if settings["count"] else None
    code = machine.run()
    if counting is not None and not counting.counter.lost:
        Path("counts.txt").write_text("".join(f"{line}\n" for line in counting.lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
