# SPDX-License-Identifier: Apache-2.0
"""What a fault on the target was, and where: from the record that the program left.

`boards/families/cortex_m/fault.c` and `boards/families/linux/platform.c` write the records.
"""

from __future__ import annotations

import re
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relax_aot.binaries.elf import Program
from relax_aot.emulation.harness import HarnessResult
from relax_aot.errors import RelaxAotError

EXCEPTIONS = {
    2: "NMI", 3: "HardFault", 4: "MemManage", 5: "BusFault", 6: "UsageFault", 7: "SecureFault",
}  # fmt: skip
CFSR_BITS = {
    0: ("IACCVIOL", "instruction fetch from protected memory"),
    1: ("DACCVIOL", "access to protected memory"),
    3: ("MUNSTKERR", "protected memory on return from an exception"),
    4: ("MSTKERR", "protected memory below the stack"),
    5: ("MLSPERR", "protected memory while saving floating-point registers"),
    8: ("IBUSERR", "instruction fetch from an unmapped address"),
    9: ("PRECISERR", "access to an unmapped address"),
    10: ("IMPRECISERR", "an earlier access to an unmapped address"),
    11: ("UNSTKERR", "bus error on return from an exception"),
    12: ("STKERR", "bus error below the stack"),
    13: ("LSPERR", "bus error while saving floating-point registers"),
    16: ("UNDEFINSTR", "undefined instruction"),
    17: ("INVSTATE", "jump to an address that is not Thumb code"),
    18: ("INVPC", "wrong return from an exception"),
    19: ("NOCP", "floating-point or vector instruction, but the unit is disabled or missing"),
    20: ("STKOF", "stack limit passed"),
    24: ("UNALIGNED", "unaligned access"),
    25: ("DIVBYZERO", "division by zero"),
}
SFSR_BITS = {
    0: ("INVEP", "wrong entry to Secure code"),
    1: ("INVIS", "damaged integrity signature"),
    2: ("INVER", "wrong return between Secure and Non-secure"),
    3: ("AUVIOL", "access to memory of the other security state"),
    4: ("INVTRAN", "wrong jump out of Secure code"),
}
STACK_ERRORS = 1 << 4 | 1 << 12 | 1 << 20
STKOF = 1 << 20
MMARVALID, BFARVALID = 1 << 7, 1 << 15
LINUX_FENCE_BYTES = 1 << 20
PUSH_BYTES_MAX = 256
RETURNS_SHOWN = 3
OTHER_MAP = (
    "the program did not start: does the emulated machine have the memories of the board file, at"
    " the same addresses? Without [emulator], Unicorn emulates exactly these memories"
)

_CORTEX_M = struct.Struct("<4s20I")
_LINUX = struct.Struct("<4s3I6Q")


class TargetFault(RelaxAotError):
    """The program on the target was stopped by its processor.

    `completed` are the results of the calls before; `pc`, `address`, `function` and `line`
    are None where they cannot be known.
    """

    def __init__(self, board: str, fault: Fault, completed: tuple[HarnessResult, ...]) -> None:
        self.board = board
        self.kind = fault.kind
        self.stack_overflow = fault.stack_overflow
        self.pc = fault.pc
        self.address = fault.address
        self.function = fault.function
        self.line = fault.line
        self.completed = completed
        super().__init__(_message(board, fault, len(completed)))


@dataclass(frozen=True, slots=True)
class Fault:
    """`returns`: functions whose return addresses lie next on the stack, innermost first."""

    kind: str
    stack_overflow: bool
    pc: int | None
    address: int | None
    function: str | None
    line: str | None
    returns: tuple[str, ...]


def fault_of_record(
    board: str, program: Program, record: bytes, completed: tuple[HarnessResult, ...]
) -> TargetFault:
    if record.startswith(b"RAFC") and len(record) >= _CORTEX_M.size:
        return TargetFault(board, _cortex_m(program, record), completed)
    if record.startswith(b"RAFL") and len(record) >= _LINUX.size:
        return TargetFault(board, _linux(program, record), completed)
    nothing = Fault("fault (its record is damaged)", False, None, None, None, None, ())
    return TargetFault(board, nothing, completed)


def fault_of_lockup(
    board: str, program: Program, messages: str, completed: tuple[HarnessResult, ...]
) -> TargetFault:
    """A fault while another is being handled: the emulator stops and prints the registers."""
    registers = {
        int(n): int(value, 16) for n, value in re.findall(r"R(\d\d)=([0-9a-f]{8})", messages)
    }
    first = next((line for line in messages.splitlines() if "Lockup" in line), "Lockup")
    kind = f"lockup: the core faulted while it handled a fault ({first.strip()})"
    fault = _located(program, kind, registers.get(15), None, registers.get(14), b"")
    if not completed and fault.function is None:
        fault = replace(fault, kind=f"{kind}\n  {OTHER_MAP}")
    return TargetFault(board, fault, completed)


# Cortex-M


def _cortex_m(program: Program, record: bytes) -> Fault:
    (
        _, exception, _, cfsr, hfsr, mmfar, bfar, sfsr, sfar, sp, limit, _, frame_in_ram,
        *frame
    ) = _CORTEX_M.unpack_from(record)  # fmt: skip
    # A core that passes its stack limit leaves the stack pointer there, without registers.
    frame_lost = bool(not frame_in_ram or cfsr & STACK_ERRORS & ~STKOF or sp <= limit)
    pc = None if frame_lost else frame[6]
    lr = None if frame_lost else frame[5]
    address = mmfar if cfsr & MMARVALID else bfar if cfsr & BFARVALID else None
    address = sfar if sfsr & 1 << 6 else address
    overflow = bool(
        sp < limit
        or cfsr & STACK_ERRORS
        or (address is not None and max(sp - PUSH_BYTES_MAX, 0) <= address < limit)
        or (pc is not None and _push_below(program, pc, sp + 32, limit))
    )
    causes = [text for bit, text in CFSR_BITS.items() if cfsr >> bit & 1]
    causes += [text for bit, text in SFSR_BITS.items() if sfsr >> bit & 1]
    if hfsr >> 1 & 1:
        causes.append(("VECTTBL", "the vector table could not be read"))
    name = EXCEPTIONS.get(exception, f"exception {exception}")
    kind = f"{name}: {', '.join(f'{text} ({bit})' for bit, text in causes)}" if causes else name
    if overflow:
        kind = f"stack overflow ({kind})"
    # The words above a frame that was pushed are what the program itself had on its stack.
    stack = record[_CORTEX_M.size + (0 if frame_lost else 32) :]
    return _located(program, kind, pc, address, lr, stack, overflow)


def _push_below(program: Program, pc: int, sp: int, limit: int) -> bool:
    """Is the instruction a push that leaves the stack? Small cores do not say what faulted."""
    code = program.read(pc, 2)
    if code is None:
        return False
    opcode = int.from_bytes(code, "little")
    registers = (opcode & 0x1FF).bit_count()
    return opcode & 0xFE00 == 0xB400 and sp - 4 * registers < limit


# Linux


def _linux(program: Program, record: bytes) -> Fault:
    _, number, _, word_bytes, address, pc, lr, _, limit, _ = _LINUX.unpack_from(record)
    addressed = number in (signal.SIGSEGV, signal.SIGBUS)
    overflow = addressed and limit - LINUX_FENCE_BYTES <= address < limit
    name = signal.Signals(number).name
    meanings = {
        signal.SIGSEGV: "access to memory outside the program",
        signal.SIGBUS: "unaligned access, or one past the end of a file",
        signal.SIGILL: "instruction that this core does not support",
        signal.SIGTRAP: "trap instruction",
        signal.SIGABRT: "abort was called",
        signal.SIGFPE: "arithmetic error",
    }
    kind = f"{name}: {meanings.get(signal.Signals(number), 'signal')}"
    if overflow:
        kind = f"stack overflow ({kind})"
    where = address if addressed else None
    del word_bytes
    return _located(program, kind, pc, where, lr, record[_LINUX.size :], overflow)


# Where


def _located(
    program: Program,
    kind: str,
    pc: int | None,
    address: int | None,
    lr: int | None,
    stack: bytes,
    stack_overflow: bool = False,
) -> Fault:
    here = program.function_at(pc) if pc is not None else None
    calls = _return_addresses(program, lr, stack)
    if here is None and calls:
        # The place itself was lost, or is no code: the innermost call is the nearest known.
        here = program.function_at(calls[0])
    line = None
    if here is not None:
        at = pc if pc is not None and pc in here else calls[0] - 2
        line = program.line_at(at)
    names: list[str] = []
    for call in calls:
        function = program.function_at(call)
        if function is not None and (not names or names[-1] != function.name):
            names.append(function.name)
    own = here.name if here is not None else None
    returns = tuple(name for name in names if name != own)[:RETURNS_SHOWN]
    return Fault(kind, stack_overflow, pc, address, own, line, returns)


def _return_addresses(program: Program, lr: int | None, stack: bytes) -> list[int]:
    """Words that point behind a call instruction, innermost first; some may be left-overs."""
    letter = "Q" if program.word_bytes == 8 else "I"
    count = len(stack) // program.word_bytes
    words: Sequence[int] = struct.unpack_from(f"<{count}{letter}", stack)
    candidates = [lr, *words] if lr is not None else [*words]
    return [
        word & ~1 if program.thumb else word for word in candidates if _follows_call(program, word)
    ]


def _follows_call(program: Program, word: int) -> bool:
    if program.word_bytes == 8:
        code = program.read(word - 4, 4) if program.function_at(word) else None
        opcode = struct.unpack("<I", code)[0] if code else 0
        return opcode >> 26 == 0b100101 or opcode & 0xFFFFFC1F == 0xD63F0000
    address = word & ~1
    if not program.function_at(address):
        return False
    if not word & 1:
        code = program.read(address - 4, 4)
        opcode = struct.unpack("<I", code)[0] if code else 0
        return opcode >> 24 & 0xF == 0xB or opcode & 0x0FFFFFF0 == 0x012FFF30
    code = program.read(address - 4, 4)
    if code is None:
        return False
    first, second = (int.from_bytes(code[i : i + 2], "little") for i in (0, 2))
    long_call = first & 0xF800 == 0xF000 and second & 0xC000 == 0xC000
    return long_call or second & 0xFF87 == 0x4780


def _message(board: str, fault: Fault, call: int) -> str:
    lines = [f"{fault.kind}", f"  on {board}, in call {call}"]
    if fault.address is not None:
        lines.append(f"  at data address {fault.address:#010x}")
    where = fault.function or "no known function"
    where += f", {fault.line}" if fault.line else ""
    if fault.pc is not None:
        lines.append(f"  in {where} (pc {fault.pc:#010x})")
    else:
        lines.append(
            f"  in {where}, or in a function that it called (the stack had no room for the pc)"
        )
    if fault.returns:
        lines.append(f"  called from {', from '.join(fault.returns)}")
    return "\n".join(lines)
