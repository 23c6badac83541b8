# SPDX-License-Identifier: Apache-2.0
"""How deep functions of a linked image go that come without figures, from their machine code.

Libraries are not compiled here, so no compiler reports their frames. Each instruction that
lowers the stack pointer is counted once, on whatever way it lies: a bound. A frame ends before a
last call if the instructions before the jump release all of it. Arm Architecture
Reference Manual, ARMv7-M and ARMv8-M, chapter "Instruction details".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from relax_aot.binaries.elf import Function, Program

SP, LR = 13, 14
_PUSHED_WIDE = 0xE92D
_STORED_BELOW = 0xF84D
_PAIR_STORED_BELOW = 0xE96D
_FLOATS_PUSHED = 0xED2D
_POPPED_WIDE = 0xE8BD
_LOADED_ABOVE = 0xF85D
_FLOATS_POPPED = 0xECBD


@dataclass
class _Frame:
    bytes: int = 0
    calls: set[int] = field(default_factory=set)
    jumps: set[int] = field(default_factory=set)
    """Targets outside the function that are reached without a way back."""
    released: int = 0
    """Bytes that the instructions before the current one gave back, one after the other."""
    left: dict[int, int] = field(default_factory=dict)
    """The fewest bytes given back so before a jump, by its target."""
    known: bool = True

    def jump(self, target: int) -> None:
        self.jumps.add(target)
        self.left[target] = min(self.released, self.left.get(target, self.released))


def library_depths(path: Path) -> dict[str, int]:
    """Bytes of stack by function, with what it calls. What calls by pointers, itself, or moves
    the stack pointer to a dynamic position is left out."""
    program = Program(path)
    if not program.thumb:
        return {}
    marks = _marks(path)
    frames = {
        function.start: _frame(program, function, marks)
        for function in program.functions
        if (program.symbol(function.name) or 0) & 1
    }
    depths = {start: _depth(start, frames, program, ()) for start in frames}
    named = {name: depths.get(at & ~1) for name, at in program.symbols.items() if at & 1}
    return {name: depth for name, depth in named.items() if depth is not None}


def _depth(
    start: int, frames: Mapping[int, _Frame], program: Program, active: tuple[int, ...]
) -> int | None:
    """The frames of all that is reached by jumps, and the deepest call out of them; or the
    deepest last call that one of them makes after its own frame."""
    if start in active:
        return None
    together, ahead = set[int](), [start]
    deepest, ended = 0, list[tuple[int, int]]()
    while ahead:
        one = ahead.pop()
        if one in together:
            continue
        together.add(one)
        frame = frames.get(one)
        if frame is None or not frame.known:
            return None
        for target in (*frame.jumps, *frame.calls):
            function = program.function_at(target)
            if function is None:
                return None
            below = _depth(function.start, frames, program, (*active, start))
            if target in frame.jumps:
                if below is not None and frame.left[target] == frame.bytes:
                    ended.append((below, frame.bytes))
                else:
                    ahead.append(function.start)
                continue
            if below is None:
                return None
            deepest = max(deepest, below)
    whole = sum(frames[one].bytes for one in together)
    return whole + max(deepest, *(below - own for below, own in [(0, 0), *ended]))


def _marks(path: Path) -> list[tuple[int, bool]]:
    """Where code ($t) and data ($d) begin, by the mapping symbols of the Arm ELF standard."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
        return sorted(
            {
                (s["st_value"] & ~1, s.name.startswith("$t"))
                for s in symbols
                if s.name.startswith(("$t", "$d", "$a"))
            }
        )


def _frame(program: Program, function: Function, marks: list[tuple[int, bool]]) -> _Frame:
    frame = _Frame()
    for at, first, second in _instructions(program, function, marks):
        if second is None:
            _narrow(frame, function, at, first)
        else:
            _wide(frame, function, at, first, second)
        given_back = _given_back(first, second)
        frame.released = frame.released + given_back if given_back else 0
    return frame


def _given_back(first: int, second: int | None) -> int:
    """Bytes by which an instruction raises the stack pointer."""
    if second is None:
        if first & 0xFE00 == 0xBC00:
            return 4 * (first & 0x1FF).bit_count()
        return 4 * (first & 0x7F) if first & 0xFF80 == 0xB000 else 0
    if first == _POPPED_WIDE:
        return 4 * second.bit_count()
    if first & 0xFFBF == _FLOATS_POPPED:
        return 4 * (second & 0xFF)
    return second & 0xFF if first == _LOADED_ABOVE and second & 0x0F00 == 0x0B00 else 0


def _instructions(
    program: Program, function: Function, marks: list[tuple[int, bool]]
) -> Iterator[tuple[int, int, int | None]]:
    data = program.read(function.start, function.end - function.start) or b""
    code, ahead = True, [mark for mark in marks if mark[0] < function.end]
    for address, kind in ahead:
        if address <= function.start:
            code = kind
    ahead = [mark for mark in ahead if mark[0] > function.start]
    at = function.start
    while at + 2 <= function.start + len(data):
        while ahead and ahead[0][0] <= at:
            code = ahead.pop(0)[1]
        first = int.from_bytes(data[at - function.start :][:2], "little")
        wide = code and first >> 11 in (0b11101, 0b11110, 0b11111)
        if wide:
            second = int.from_bytes(data[at - function.start + 2 :][:2], "little")
            yield at, first, second
        elif code:
            yield at, first, None
        at += 4 if wide else 2


def _narrow(frame: _Frame, function: Function, at: int, code: int) -> None:
    """Instructions of 16 bits."""
    if code & 0xFE00 == 0xB400:
        frame.bytes += 4 * (code & 0x1FF).bit_count()
    elif code & 0xFF80 == 0xB080:
        frame.bytes += 4 * (code & 0x7F)
    elif code & 0xFD87 == 0x4485 or code & 0xFF80 == 0x4780:
        frame.known = False  # sp is computed, or a call by pointer
    elif code & 0xFF87 == 0x4700 and (code >> 3) & 0xF != LR:
        frame.known = False  # a last call by pointer; tables of jumps move to pc
    elif code & 0xF000 == 0xD000 and code & 0x0F00 < 0x0E00:
        _jump(frame, function, at + 4 + 2 * _signed(code & 0xFF, 8))
    elif code & 0xF800 == 0xE000:
        _jump(frame, function, at + 4 + 2 * _signed(code & 0x7FF, 11))


def _wide(frame: _Frame, function: Function, at: int, first: int, second: int) -> None:
    """Instructions of 32 bits."""
    if first == _PUSHED_WIDE:
        frame.bytes += 4 * second.bit_count()
    elif first == _STORED_BELOW and second & 0x0F00 == 0x0D00:
        frame.bytes += second & 0xFF
    elif first == _PAIR_STORED_BELOW or first & 0xFFBF == _FLOATS_PUSHED:
        frame.bytes += 4 * (second & 0xFF)
    elif first & 0xF800 == 0xF000 and second & 0x8000:
        _branch(frame, function, at, first, second)
    elif first & 0xF800 == 0xF000 and (second >> 8) & 0xF == SP:
        _computed(frame, first, second)
    elif first & 0xFE00 == 0xEA00 and (second >> 8) & 0xF == SP:
        frame.known = False
    elif first & 0xFE70 == 0xF850 and second >> 12 in (SP, 15) and first & 0xF != SP:
        frame.known = False  # sp or pc is loaded


def _computed(frame: _Frame, first: int, second: int) -> None:
    """Arithmetic whose result is sp."""
    plain, operation = first & 0x0200, (first >> 5) & 0xF
    if first & 0xF != SP or operation not in (0b1000, 0b1101, 0b0000, 0b0101):
        frame.known = False
    elif plain and operation == 0b0101:
        frame.bytes += _number(first, second)
    elif not plain and operation == 0b1101:
        frame.bytes += _expanded(_number(first, second))
    elif (plain != 0) != (operation == 0b0000):
        frame.known = False


def _number(first: int, second: int) -> int:
    return (first & 0x400) << 1 | (second & 0x7000) >> 4 | second & 0xFF


def _expanded(number: int) -> int:
    """ThumbExpandImm of 12 bits."""
    if number >> 10:
        value = 0x80 | number & 0x7F
        turn = number >> 7
        return (value >> turn | value << (32 - turn)) & 0xFFFFFFFF
    byte = number & 0xFF
    return byte * (1, 0x00010001, 0x01000100, 0x01010101)[number >> 8]


def _branch(frame: _Frame, function: Function, at: int, first: int, second: int) -> None:
    sign = (first >> 10) & 1
    if second & 0x5000 == 0x4000:
        return  # loops of the low-overhead kind, which stay inside
    if not second & 0x1000 and not second & 0x4000:
        if (first >> 6) & 0xF >= 0xE:
            return  # barriers and special registers
        high = (second >> 11 & 1) << 19 | (second >> 13 & 1) << 18 | (first & 0x3F) << 12
        offset = _signed(sign << 20 | high | (second & 0x7FF) << 1, 21)
        _jump(frame, function, at + 4 + offset)
        return
    i1, i2 = (1 ^ (second >> 13 & 1) ^ sign), (1 ^ (second >> 11 & 1) ^ sign)
    offset = sign << 24 | i1 << 23 | i2 << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1
    target = at + 4 + _signed(offset, 25)
    if second & 0x4000:
        frame.calls.add(target)
    else:
        _jump(frame, function, target)


def _jump(frame: _Frame, function: Function, target: int) -> None:
    if target not in function:
        frame.jump(target)


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number
