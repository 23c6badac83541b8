# SPDX-License-Identifier: Apache-2.0
"""The block that holds a model's weights apart from its code.

`raot/weights.h` has the layout and the checks that a program makes. The hash in the header
is of the code that reads the block, so that new weights of the same model fit the firmware
that is there, and those of another model, or of one whose code came out differently, do not.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from relax_aot.files import Block, Piece
from relax_aot.ir.types import DType

VERSION = 1
IDENTITY = struct.Struct("<8sII16sIII8x")
"""What the header begins with; three checksums follow."""
_HEADER_BYTES = IDENTITY.size + 12
_ENTRY = struct.Struct("<IIII")
LINE_BYTES = 64
"""A line of a host's cache. Vectors that cross lines take two accesses."""
_LARGE_BYTES = 4096
"""Constants from this size on begin with a line."""
_LOW = 2**32 - 1
_HIGH_SHIFT = 8
"""Upper bits of an offset follow the element type in the third word of an entry."""
_TYPE_NUMBERS = {dtype: number for number, dtype in enumerate(DType)}


@dataclass(frozen=True, slots=True)
class Part:
    """One constant: where its bytes begin in the block."""

    offset: int
    dtype: DType
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Layout:
    """Constants in order, each at a multiple of its alignment, and where it all ends."""

    data_offset: int
    parts: tuple[Part, ...]
    total_bytes: int

    def identity(self, code: str) -> bytes:
        """What a program expects at the start of its block; `code` is its text."""
        described = repr([(p.offset, len(p.data), p.dtype.value) for p in self.parts])
        digest = hashlib.sha256(f"{VERSION} {described}\n{code}".encode()).digest()
        low, high = self.total_bytes & _LOW, self.total_bytes >> 32
        return IDENTITY.pack(
            b"RAOTWGTS", VERSION, low, digest[:16], len(self.parts), self.data_offset, high
        )

    @property
    def end(self) -> int:
        """Where the last constant ends."""
        return max((p.offset + len(p.data) for p in self.parts), default=self.data_offset)

    def block(self, start: int) -> Block:
        """The data from byte `start` on."""
        return Block(partial(self.pieces, start), self.end - start)

    def pieces(self, start: int) -> Iterator[Piece]:
        """The data and what lies between them, from byte `start` on."""
        for part in self.parts:
            yield bytes(part.offset - start)
            yield part.data
            start = part.offset + len(part.data)

    def table(self) -> bytes:
        """One entry for each constant."""
        rows = []
        for part in self.parts:
            kind = _TYPE_NUMBERS[part.dtype] | part.offset >> 32 << _HIGH_SHIFT
            crc = zlib.crc32(part.data)
            rows.append(_ENTRY.pack(part.offset & _LOW, len(part.data), kind, crc))
        return b"".join(rows)

    def packed(self, expected: bytes) -> Block:
        """The block: header, table, data."""
        table = self.table()
        data_crc = 0
        for piece in self._data(len(table)):
            data_crc = zlib.crc32(piece, data_crc)
        header = expected + struct.pack("<II", data_crc, zlib.crc32(table))
        first = header + struct.pack("<I", zlib.crc32(header)) + table
        return Block(lambda: chain([first], self._data(len(table))), self.total_bytes)

    def _data(self, table_bytes: int) -> Iterator[Piece]:
        """What is behind the table, to the end."""
        yield from self.pieces(_HEADER_BYTES + table_bytes)
        yield bytes(self.total_bytes - self.end)


def lay_out(
    constants: Sequence[tuple[DType, bytes | memoryview]], alignment: int, line: int
) -> Layout:
    """Offsets are multiples of `alignment`, those of large constants of `line`."""
    units = [unit_of(len(data), alignment, line) for _, data in constants]
    start = _round_up(_HEADER_BYTES + _ENTRY.size * len(constants), max(units, default=alignment))
    parts, end = [], start
    for unit, (dtype, data) in zip(units, constants, strict=True):
        offset = _round_up(end, unit)
        parts.append(Part(offset, dtype, data))
        end = offset + len(data)
    return Layout(start, tuple(parts), _round_up(end, alignment))


def unit_of(count: int, alignment: int, line: int) -> int:
    """What the address of a constant of `count` bytes is a multiple of."""
    return max(alignment, line) if count >= _LARGE_BYTES else alignment


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
