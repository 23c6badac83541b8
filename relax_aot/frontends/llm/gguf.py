# SPDX-License-Identifier: Apache-2.0
"""Reads files of the format GGUF, versions 2 and 3: metadata, then tensors.

    "GGUF" | u32 version | u64 tensors | u64 entries | entries of metadata | tensors | data
    entry   key | u32 type | value         string   u64 bytes | bytes
    tensor  name | u32 axes | u64 sizes, the innermost first | u32 type | u64 offset in the data

Source: ggml's docs/gguf.md. Nothing of a file is trusted: every number is checked before it is
used. Tensors are views of the mapped file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import GREATEST, printable
from relax_aot.frontends.llm.gguf_blocks import KINDS, Kind
from relax_aot.ops._op import Array

MAGIC = b"GGUF"
VERSIONS = (2, 3)
GREATEST_RANK, GREATEST_NAME, GREATEST_TEXT = 4, 256, 1 << 24
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Types of values, by what `struct` calls them."""
STRING, ARRAY = 8, 9
ALIGNMENT = "general.alignment"


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file; `bytes` is a view of the file. Rows of `heads` heads, if there are any,
    are in the order of pairs, which ggml rotates. `added`: what the file adds to the weights."""

    file: str
    type: Kind
    shape: tuple[int, ...]
    bytes: Array
    heads: int = 0
    added: float = 0.0

    @property
    def kind(self) -> str:
        return self.type.name

    @property
    def is_read(self) -> bool:
        return self.type.decode is not None

    @property
    def kinds(self) -> str:
        return ", ".join(kind.name for kind in KINDS.values() if kind.decode)

    def array(self) -> Array:
        """The elements; blocks of quantized ones as f32."""
        assert self.type.decode is not None, self
        values = self.type.decode(self.bytes).reshape(self.shape)
        if self.added:
            values = values - values.dtype.type(self.added)
        if not self.heads:
            return values
        pairs = values.reshape(self.heads, -1, 2, *self.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(self.shape)


@dataclass
class _Cursor:
    """What is left of the bytes in front of the data."""

    path: Path
    data: memoryview
    at: int = 0

    def wrong(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}: {problem}, at the offset {self.at}")

    def take(self, count: int, what: str) -> memoryview:
        if count > len(self.data) - self.at:
            raise self.wrong(f"{what} takes {count} bytes, the file ends")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str, what: str) -> Any:
        (found,) = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))
        return found

    def text(self, what: str, most: int = GREATEST_TEXT) -> str:
        count = self.number("Q", f"the length of {what}")
        if count > most:
            raise self.wrong(f"{what} would have {count} bytes")
        # Words of a vocabulary may be parts of characters.
        return bytes(self.take(count, what)).decode("utf-8", "surrogateescape")

    def value(self, kind: int, what: str) -> Any:
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self._array(what)
        if kind not in NUMBERS:
            raise self.wrong(f"{what} has the unknown type {kind}")
        return self.number(NUMBERS[kind], what)

    def _array(self, what: str) -> list[Any]:
        kind, count = self.number("I", what), self.number("Q", what)
        if kind != STRING and kind not in NUMBERS:
            raise self.wrong(f"{what} is an array of the type {kind}")
        least = 8 if kind == STRING else struct.calcsize(f"<{NUMBERS[kind]}")
        if count > (len(self.data) - self.at) // least:
            raise self.wrong(f"{what} would have {count} elements, the file ends")
        if kind == STRING:
            return [self.text(what) for _ in range(count)]
        code = f"<{count}{NUMBERS[kind]}"
        return list(struct.unpack(code, self.take(struct.calcsize(code), what)))


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """Metadata and tensors by their names."""
    try:
        size = path.stat().st_size
        data: Array = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    cursor = _Cursor(path, data.data)
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise ModelError(f"{path} is no GGUF file: it does not begin with {MAGIC.decode()}")
    cursor.at = len(MAGIC)
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        raise UnsupportedError(f"{path}: version {version} of GGUF is not supported, only 2 and 3")
    tensors, entries = cursor.number("Q", "the header"), cursor.number("Q", "the header")
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        key = cursor.text("a key of the metadata", GREATEST_TEXT)
        if key in metadata:
            raise cursor.wrong(f"the key {printable(key)!r} is there twice")
        metadata[key] = cursor.value(cursor.number("I", "a type"), f"the value of {printable(key)}")
    return metadata, _tensors(cursor, tensors, data, _alignment(path, metadata))


def _alignment(path: Path, metadata: Mapping[str, Any]) -> int:
    given = metadata.get(ALIGNMENT, 32)
    if not isinstance(given, int) or given < 1 or given & (given - 1) or given > GREATEST:
        raise ModelError(f"{path}: {ALIGNMENT} is {given!r}, expected a power of two")
    return given


def _tensors(cursor: _Cursor, count: int, data: Array, align: int) -> dict[str, GgufTensor]:
    listed: dict[str, tuple[Kind, tuple[int, ...], int]] = {}
    for _ in range(count):
        name = cursor.text("the name of a tensor", GREATEST_NAME)
        if name in listed:
            raise cursor.wrong(f"tensor {printable(name)!r} is there twice")
        listed[name] = _described(cursor, name, align)
    start = -(-cursor.at // align) * align
    found, end = {}, 0
    for name, (kind, shape, offset) in sorted(listed.items(), key=lambda one: one[1][2]):
        taken = prod(shape) // kind.elements * kind.bytes
        where = f"{cursor.path}: tensor {printable(name)!r}"
        if offset < end:
            raise ModelError(f"{where} overlaps another one, at the offset {offset} of the data")
        if start + offset + taken > data.size:
            raise ModelError(
                f"{where} ends at {start + offset + taken}, but the file has {data.size} bytes"
            )
        end = offset + taken
        content = data[start + offset : start + end]
        found[name] = GgufTensor(cursor.path.name, kind, shape, content)
    return found


def _described(cursor: _Cursor, name: str, align: int) -> tuple[Kind, tuple[int, ...], int]:
    """Type, shape and offset of a tensor."""
    what = f"tensor {printable(name)!r}"
    axes = cursor.number("I", what)
    if not 1 <= axes <= GREATEST_RANK:
        raise cursor.wrong(f"{what} has {axes} axes")
    shape = tuple(reversed([cursor.number("Q", what) for _ in range(axes)]))
    if any(size < 1 for size in shape) or prod(shape) > GREATEST:
        raise cursor.wrong(f"{what} has the shape {list(shape)}")
    number, offset = cursor.number("I", what), cursor.number("Q", what)
    kind = KINDS.get(number)
    if kind is None:
        raise UnsupportedError(
            f"{cursor.path}: {what} has the type {number} of ggml, which is unknown"
        )
    if shape[-1] % kind.elements:
        raise cursor.wrong(f"{what}: rows of {shape[-1]} are no blocks of {kind.elements}")
    if offset % align:
        raise cursor.wrong(f"{what}: its offset {offset} is no multiple of {align}")
    return kind, shape, offset
