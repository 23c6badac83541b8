# SPDX-License-Identifier: Apache-2.0
"""FlatBuffers, read by bytes that are not trusted: every offset is checked before it is used.

The format: https://flatbuffers.dev/internals. A table points back to its vtable, which says
for each field where in the table it lies, or 0 where it has its default.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import ModelError

ELEMENTS_PER_BYTE = 4
"""How many elements of vectors are read in all: tables may share vectors, but not without end."""


class Damaged(ModelError):
    """Bytes that are no FlatBuffer of the schema."""


@dataclass(slots=True)
class _Budget:
    left: int


@dataclass(frozen=True, slots=True)
class File:
    """The bytes, and how much may still be read of them."""

    data: bytes
    budget: _Budget = field(compare=False)

    def spend(self, elements: int) -> None:
        self.budget.left -= elements
        if self.budget.left < 0:
            raise Damaged("its tables share so much data that no model can mean it")

    def number(self, kind: str, at: int) -> Any:
        """One little-endian number; `kind` as for `struct`."""
        size = struct.calcsize(f"<{kind}")
        if at < 0 or at + size > len(self.data):
            raise Damaged(f"an offset points to byte {at} of {len(self.data)}")
        return struct.unpack_from(f"<{kind}", self.data, at)[0]

    def follow(self, at: int) -> int:
        """Where the offset at `at` points to."""
        return at + int(self.number("I", at))

    def extent(self, at: int, width: int) -> tuple[int, int]:
        """The first element of the vector at `at` and how many there are."""
        count = int(self.number("I", at))
        if at + 4 + count * width > len(self.data):
            raise Damaged(f"a vector of {count} elements at byte {at} leaves the file")
        return at + 4, count


@dataclass(frozen=True, slots=True)
class Table:
    """One table; fields go by their number in the schema."""

    file: File
    at: int

    def _place(self, slot: int) -> int:
        """Where the field lies; 0 where it is absent."""
        vtable = self.at - int(self.file.number("i", self.at))
        size = int(self.file.number("H", vtable))
        entry = 4 + 2 * slot
        if entry + 2 > size:
            return 0
        offset = int(self.file.number("H", vtable + entry))
        return self.at + offset if offset else 0

    def has(self, slot: int) -> bool:
        return self._place(slot) != 0

    def number(self, slot: int, kind: str, default: Any = 0) -> Any:
        place = self._place(slot)
        return self.file.number(kind, place) if place else default

    def table(self, slot: int) -> Table | None:
        place = self._place(slot)
        return Table(self.file, self.file.follow(place)) if place else None

    def text(self, slot: int) -> str:
        data = self.bytes(slot)
        try:
            return (data or b"").decode()
        except UnicodeDecodeError as error:
            raise Damaged(f"a name in it is not UTF-8 ({error.reason})") from None

    def bytes(self, slot: int) -> bytes | None:
        """A vector of bytes; None where it is absent."""
        place = self._place(slot)
        if not place:
            return None
        start, count = self.file.extent(self.file.follow(place), 1)
        return self.file.data[start : start + count]

    def numbers(self, slot: int, kind: str) -> NDArray[Any] | None:
        """A vector of numbers; `kind` as for NumPy."""
        place = self._place(slot)
        if not place:
            return None
        dtype = np.dtype(f"<{kind}")
        start, count = self.file.extent(self.file.follow(place), dtype.itemsize)
        self.file.spend(count)
        return np.frombuffer(self.file.data, dtype, count, start)

    def tables(self, slot: int) -> list[Table]:
        """A vector of tables; empty where it is absent."""
        place = self._place(slot)
        if not place:
            return []
        start, count = self.file.extent(self.file.follow(place), 4)
        self.file.spend(count)
        return [Table(self.file, self.file.follow(start + 4 * i)) for i in range(count)]


def root(data: bytes) -> Table:
    """The table that the file begins with."""
    file = File(data, _Budget(ELEMENTS_PER_BYTE * len(data)))
    return Table(file, file.follow(0))
