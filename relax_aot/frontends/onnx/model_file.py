# SPDX-License-Identifier: Apache-2.0
"""A model's file without its large weights, which are read from there one by one.

A parser of Protocol Buffers holds each weight twice: in the bytes of the file, and in the message.
So fields of the file are read one after the other, and a large initializer becomes one with
external data, which lie in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no types shipped
from onnx import ModelProto, TensorProto, helper

from relax_aot.frontends import GREATEST_FILE

LARGE_BYTES = 1 << 20
_GRAPH = ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = 5
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    start: int
    """Where its tag begins; the value begins at `value`."""
    value: int
    end: int

    @property
    def large(self) -> bool:
        return self.end - self.value >= LARGE_BYTES


def without_weights(path: Path) -> ModelProto | None:
    """The model, or None where its file has nothing large, or is no plain file."""
    model = ModelProto()
    try:
        status = path.stat()
        plain = status.st_nlink == 1 and set(path.name).isdisjoint("\\:")
        if not plain or not LARGE_BYTES <= status.st_size <= GREATEST_FILE:
            return None
        with path.open("rb") as file:
            for field in _fields(file, 0, status.st_size):
                if field.number == _GRAPH and field.large:
                    _add_graph(model, file, field, path.name)
                else:
                    model.MergeFromString(_read(file, field.start, field.end))
    except (OSError, DecodeError):
        return None  # Whoever reads the whole file says what is wrong with it.
    return model


def _add_graph(model: ModelProto, file: BinaryIO, graph: _Field, name: str) -> None:
    start = graph.value
    for field in _fields(file, graph.value, graph.end):
        tensor = None
        if field.number == _INITIALIZER and field.large:
            tensor = _outside(file, field, name)
        if tensor is not None:
            model.graph.MergeFromString(_read(file, start, field.start))
            model.graph.initializer.append(tensor)
            start = field.end
    model.graph.MergeFromString(_read(file, start, graph.end))


def _outside(file: BinaryIO, tensor: _Field, name: str) -> TensorProto | None:
    """The tensor without its bytes; None where they are not as many as its shape needs."""
    fields = list(_fields(file, tensor.value, tensor.end))
    raw = [field for field in fields if field.number == _RAW_DATA]
    if len(raw) != 1:
        return None
    (data,) = raw
    found = TensorProto()
    found.MergeFromString(_read(file, tensor.value, data.start) + _read(file, data.end, tensor.end))
    bits = element_bits(found)
    if bits is None or found.HasField("data_location") or found.external_data:
        return None
    if min(found.dims, default=1) < 0 or prod(found.dims) * bits != 8 * (data.end - data.value):
        return None
    found.data_location = TensorProto.EXTERNAL
    for key, value in (
        ("location", name),
        ("offset", str(data.value)),
        ("length", str(data.end - data.value)),
    ):
        found.external_data.add(key=key, value=value)
    return found


def element_bits(tensor: TensorProto) -> int | None:
    """Bits per element in the file, where types of 4 bits are packed two to a byte; None for
    unknown types."""
    try:
        name = TensorProto.DataType.Name(tensor.data_type)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, ValueError):
        return None
    for bits in (2, 4):
        if name in (f"INT{bits}", f"UINT{bits}", f"FLOAT{bits}E2M1"):
            return bits
    return int(np.dtype(dtype).itemsize * 8)


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message that begins and ends there, in order."""
    while start < end:
        file.seek(start)
        tag = _varint(file)
        kind = tag & 7
        length = _varint(file) if kind in (_VARINT, _BYTES) else _FIXED.get(kind, end)
        value = file.tell()
        stop = value if kind == _VARINT else value + length
        if stop > end:
            raise DecodeError("a field is longer than its message")
        yield _Field(tag >> 3, start, value, stop)
        start = stop


def _varint(file: BinaryIO) -> int:
    number = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        number |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return number
    raise DecodeError("a number has no end")


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)
