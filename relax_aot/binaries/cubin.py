# SPDX-License-Identifier: Apache-2.0
"""What a cubin says of its kernels: registers, local and shared memory, and which drivers load it.

A cubin is an ELF file. The attributes of `.nv.info` are not documented; their numbers are those
that `cuobjdump -elf` and `readelf` print by name (EIATTR_*).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_REGISTERS, _FRAME = 0x2F, 0x11
_OLD_ABI = (51, 7)
_RESERVED = 1024
"""Of the shared memory of a block, what the system keeps; from sm_90 on the file counts it."""
_SHORT, _LONG = 0x03, 0x04
"""Forms of an attribute: a number of 16 bits, a size and that many bytes; others have none."""


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A kernel. `local_bytes`: of a thread, where spilled registers and arrays that are indexed by
    variables are; `shared_bytes`: of a block."""

    name: str
    registers: int
    local_bytes: int
    shared_bytes: int
    code_bytes: int


@dataclass(frozen=True, slots=True)
class Cubin:
    """`abi`: the bytes EI_OSABI and EI_ABIVERSION of the file, which drivers check."""

    abi: tuple[int, int]
    sm: int
    functions: tuple[DeviceFunction, ...]

    def function(self, name: str) -> DeviceFunction:
        return next(function for function in self.functions if function.name == name)


def read_cubin(data: bytes) -> Cubin:
    elf = ELFFile(io.BytesIO(data))
    abi = (data[7], data[8])
    flags = int(elf["e_flags"])
    sm = flags & 0xFF if abi == _OLD_ABI else flags >> 8 & 0xFF
    return Cubin(abi, sm, tuple(_functions(elf, sm)))


def local_bytes(data: bytes) -> dict[str, int]:
    """Those of a thread, by the kernels that have any."""
    return {own.name: own.local_bytes for own in read_cubin(data).functions if own.local_bytes}


def _functions(elf: ELFFile, sm: int) -> Iterator[DeviceFunction]:
    symbols = elf.get_section_by_name(".symtab")
    assert isinstance(symbols, SymbolTableSection)
    info = elf.get_section_by_name(".nv.info")
    found = dict[tuple[int, str], int]()
    for attribute, payload in _attributes(info.data() if info else b""):
        if attribute in (_REGISTERS, _FRAME):
            symbol, value = struct.unpack("<II", payload)
            found[attribute, symbols.get_symbol(symbol).name] = value
    for section in elf.iter_sections():
        name = section.name.removeprefix(".text.")
        if name != section.name and elf.get_section_by_name(f".nv.info.{name}"):
            shared = elf.get_section_by_name(f".nv.shared.{name}")
            own = int(shared["sh_size"]) - _RESERVED * (sm >= 90) if shared else 0
            yield DeviceFunction(
                name, found.get((_REGISTERS, name), 0), found.get((_FRAME, name), 0),
                own, int(section["sh_size"]),
            )  # fmt: skip


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        form, attribute = data[at], data[at + 1]
        size = struct.unpack_from("<H", data, at + 2)[0] if form == _LONG else 0
        yield attribute, data[at + 4 : at + 4 + size]
        at += 4 + size
