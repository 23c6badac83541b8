# SPDX-License-Identifier: Apache-2.0
"""Reads files of the format safetensors: a header in JSON, then the bytes of all tensors.

    u64 length of the header | header | bytes, which the tensors cover one after another

Nothing of a file is trusted: every number in the header is checked before it is used. Tensors are
views of the mapped file, so that a tensor takes memory when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError
from relax_aot.frontends.bounds import GREATEST, printable
from relax_aot.frontends.llm.json_file import json_object
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array

GREATEST_HEADER = 100_000_000
"""Bytes; the limit of the format."""
LENGTH_BYTES = 8
GREATEST_RANK = 8
METADATA = "__metadata__"
FIELDS = {"dtype", "shape", "data_offsets"}
BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2,
    "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip
"""Bytes of an element."""
FLOATS = {"F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16}
"""The types that weights may have."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file; `bytes` is a view of the file."""

    file: str
    kind: str
    shape: tuple[int, ...]
    bytes: Array

    @property
    def is_read(self) -> bool:
        return self.kind in FLOATS

    @property
    def kinds(self) -> str:
        """The types that are supported."""
        return ", ".join(FLOATS)

    def array(self) -> Array:
        """The elements, of a kind of FLOATS."""
        little = FLOATS[self.kind].numpy.newbyteorder("<")
        return self.bytes.view(little).reshape(self.shape)


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by their names."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            start = LENGTH_BYTES + length
            if size < LENGTH_BYTES or length > GREATEST_HEADER or start > size:
                raise ModelError(
                    f"{path} is no safetensors file: its header would have {length} bytes, the file"
                    f" has {size}"
                )
            text = file.read(length)
        header = json_object(text, f"the header of {path}")
        data = np.memmap(path, np.uint8, "r") if size > start else np.empty(size, np.uint8)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    return dict(_tensors(path, header, data[start:]))


def _tensors(path: Path, header: Mapping[str, Any], data: Array) -> Iterator[tuple[str, Tensor]]:
    """In the order of their bytes, which have neither gaps nor overlaps."""
    fields = [(name, _fields(path, name, f)) for name, f in header.items() if name != METADATA]
    end = 0
    for name, (kind, shape, first, last) in sorted(fields, key=lambda one: one[1][2:]):
        if first != end:
            problem = "overlaps another tensor" if first < end else "follows bytes of no tensor"
            raise _wrong(path, name, f"it {problem}, at the offset {first}")
        if last - first != prod(shape) * BYTES[kind]:
            raise _wrong(path, name, f"{kind} {list(shape)} does not take {last - first} bytes")
        if last > data.size:
            raise _wrong(
                path, name, f"it ends at {last}, but the file has {data.size} bytes of data"
            )
        end = last
        yield name, Tensor(path.name, kind, shape, data[first:last])
    if end != data.size:
        raise ModelError(f"{path}: its tensors take {end} bytes, but the file has {data.size}")


def _fields(path: Path, name: str, fields: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape, and first and last offset of a tensor."""
    if not isinstance(fields, dict) or set(fields) != FIELDS:
        raise _wrong(path, name, f"its fields are not {', '.join(sorted(FIELDS))}")
    kind, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(kind, str) or kind not in BYTES:
        raise _wrong(path, name, f"its type {printable(str(kind))!r} is unknown")
    if not _are_sizes(shape, GREATEST) or len(shape) > GREATEST_RANK:
        raise _wrong(path, name, "its shape is not a list of sizes")
    if not _are_sizes(offsets, 2**63) or len(offsets) != 2:
        raise _wrong(path, name, "its offsets are not two numbers")
    return kind, tuple(shape), offsets[0], offsets[1]


def _are_sizes(values: Any, greatest: int) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= greatest for v in values
    )


def _wrong(path: Path, name: str, problem: str) -> ModelError:
    return ModelError(f"{path}: tensor {printable(name)!r}: {problem}")
