# SPDX-License-Identifier: Apache-2.0
"""What an ELF file says: functions, lines, sections, and the table of its model."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection


@dataclass(frozen=True, slots=True)
class Function:
    """Machine code from `start` to `end`, half-open; the Thumb bit is not part of addresses."""

    name: str
    start: int
    end: int

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    address: int
    size: int
    writable: bool
    code: bool
    filled: bool
    """Its contents are in the file, as opposed to memory that starts as zero."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """`raot_model` of an image: what a request must look like, and where the model's code is."""

    name: str
    arena_bytes: int
    state_bytes: int
    dim_count: int
    result_count: int
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    run_address: int


class Program:
    """An ELF file, read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            elf = ELFFile(file)
            self.word_bytes = 8 if elf.elfclass == 64 else 4
            self.thumb = elf["e_machine"] == "EM_ARM"
            self.sections = tuple(_sections(elf))
            self.symbols = _symbols(elf)
            self.functions = _functions(elf, 1 if self.thumb else 0)
            self._contents = tuple(
                (s["sh_addr"], s.data())
                for s in elf.iter_sections()
                if s["sh_flags"] & SH_FLAGS.SHF_ALLOC and s["sh_type"] != "SHT_NOBITS"
            )
        self._starts = [function.start for function in self.functions]

    def function_at(self, address: int) -> Function | None:
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address in self.functions[index]:
            return self.functions[index]
        return None

    def function(self, name: str) -> Function | None:
        return next((f for f in self.functions if f.name == name), None)

    def function_beginning(self, name: str) -> Function | None:
        """The function of that name, else the first whose name goes on with `_`."""
        exact = self.function(name)
        return exact or next((f for f in self.functions if f.name.startswith(f"{name}_")), None)

    def symbol(self, name: str) -> int | None:
        return self.symbols.get(name)

    def read(self, address: int, size: int) -> bytes | None:
        """Bytes of the file that are loaded at `address`."""
        for start, data in self._contents:
            if start <= address and address + size <= start + len(data):
                return bytes(data[address - start : address - start + size])
        return None

    def line_at(self, address: int) -> str | None:
        """`file.c:12` from the debugging information, where there is any."""
        return _line_at(self.path, self.path.stat().st_mtime_ns, address)

    def model_table(self) -> ModelTable:
        """Reads `const struct raot_model raot_model` of raot_model.h."""
        address = self.symbol("raot_model")
        assert address is not None, f"{self.path} has no raot_model"
        word = "Q" if self.word_bytes == 8 else "I"
        layout = struct.Struct(f"<4{word}4i5{word}")
        name, arena, state, _, dims, inputs, outputs, results, in_at, out_at, _, _, run = (
            layout.unpack(self._must_read(address, layout.size))
        )
        return ModelTable(
            name=self._text(name),
            arena_bytes=arena,
            state_bytes=state,
            dim_count=dims,
            result_count=results,
            input_bytes=self._words(in_at, inputs),
            output_bytes=self._words(out_at, outputs),
            run_address=run & ~1 if self.thumb else run,
        )

    def _must_read(self, address: int, size: int) -> bytes:
        data = self.read(address, size)
        assert data is not None, f"{self.path}: nothing is loaded at {address:#x}"
        return data

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        word = "Q" if self.word_bytes == 8 else "I"
        size = count * self.word_bytes
        return struct.unpack(f"<{count}{word}", self._must_read(address, size)) if count else ()

    def _text(self, address: int) -> str:
        characters = bytearray()
        while (byte := self._must_read(address + len(characters), 1)) != b"\0":
            characters += byte
        return characters.decode("ascii")


def _sections(elf: ELFFile) -> Iterator[Section]:
    for section in elf.iter_sections():
        flags = section["sh_flags"]
        if flags & SH_FLAGS.SHF_ALLOC and section["sh_size"]:
            yield Section(
                name=section.name,
                address=section["sh_addr"],
                size=section["sh_size"],
                writable=bool(flags & SH_FLAGS.SHF_WRITE),
                code=bool(flags & SH_FLAGS.SHF_EXECINSTR),
                filled=section["sh_type"] != "SHT_NOBITS",
            )


def _symbols(elf: ELFFile) -> dict[str, int]:
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return {}
    return {s.name: s["st_value"] for s in table.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"}


def _functions(elf: ELFFile, thumb_bit: int) -> tuple[Function, ...]:
    """Sorted by address, one per address. Assembly without a size reaches to the next one."""
    table = elf.get_section_by_name(".symtab")
    found: dict[int, tuple[str, int]] = {}
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        kind = symbol["st_info"]["type"]
        if kind in ("STT_FUNC", "STT_GNU_IFUNC") and symbol["st_shndx"] != "SHN_UNDEF":
            start = symbol["st_value"] & ~thumb_bit
            name, size = found.get(start, ("", 0))
            if not name or (symbol["st_info"]["bind"] == "STB_GLOBAL" and not size):
                name = symbol.name
            found[start] = (name, max(size, symbol["st_size"]))
    starts = sorted(found)
    nexts = [*starts[1:], starts[-1] + 4] if starts else []
    return tuple(
        Function(found[start][0], start, start + found[start][1] if found[start][1] else following)
        for start, following in zip(starts, nexts, strict=True)
    )


@lru_cache(maxsize=256)
def _line_at(path: Path, _changed: int, address: int) -> str | None:
    with path.open("rb") as file:
        elf = ELFFile(file)
        if not elf.has_dwarf_info():
            return None
        dwarf = elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            found = _entry_at(program.get_entries(), address)
            if found is not None:
                names = program["file_entry"]
                index = found.file - (1 if program["version"] < 5 else 0)
                name = names[index].name if 0 <= index < len(names) else b"?"
                return f"{Path(name.decode(errors='replace')).name}:{found.line}"
    return None


def _entry_at(entries: Sequence[object], address: int) -> _State | None:
    """The line that covers `address`: of the last entry at or before it in its sequence."""
    previous: _State | None = None
    for entry in entries:
        state = getattr(entry, "state", None)
        if state is None:
            continue
        if previous is not None and previous.address <= address < state.address:
            return previous
        previous = None if state.end_sequence else _State(state.address, state.file, state.line)
    return None


@dataclass(frozen=True, slots=True)
class _State:
    address: int
    file: int
    line: int
