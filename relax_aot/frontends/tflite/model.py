# SPDX-License-Identifier: Apache-2.0
"""Bytes -> Model: tensors, operators and constant data, each checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import ModelError
from relax_aot.frontends.tflite import schema
from relax_aot.frontends.tflite.flatbuffer import Damaged, Table, root
from relax_aot.ir.types import DType

Array = NDArray[Any]
GREATEST_ELEMENTS = 2**31 - 1
GREATEST_RANK = 8
"""As the runtime's own kernels have it."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """real = (quantized - zero) * scale; one pair for all, or one per element of `axis`."""

    scales: Array
    zeros: Array
    axis: int

    @property
    def is_single(self) -> bool:
        return self.scales.size == 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value: its type as the file has it, and its bytes where it is constant."""

    number: int
    name: str
    kind: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    """The shape with -1 for each size that the exporter left open; empty for none."""
    data: bytes | None
    quantization: Quantization | None
    problem: str
    """Why nothing can be done with it; empty where that is not so."""
    variable: bool

    @property
    def dtype(self) -> DType | None:
        """Our element type; None where we have none."""
        return DType(self.kind) if self.kind in _OURS else None

    def array(self) -> Array | None:
        """The elements of a constant."""
        dtype = self.dtype
        if self.data is None or dtype is None:
            return None
        count = prod(self.shape)
        needed = -(-count * dtype.bits // 8)
        if len(self.data) != needed:
            raise ModelError(
                f"tensor {self.name!r} holds {len(self.data)} bytes, its shape"
                f" {list(self.shape)} of {self.kind} needs {needed}"
            )
        if dtype.bits < 8:
            return _unpacked(self.data, count, dtype).reshape(self.shape)
        kind = dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "iuf" else dtype.numpy
        return np.frombuffer(self.data, kind).astype(dtype.numpy).reshape(self.shape)


_OURS = {dtype.value for dtype in DType}


def _unpacked(data: bytes, count: int, dtype: DType) -> Array:
    """Elements of 2 or 4 bits, the first in the low bits of a byte."""
    codes = np.frombuffer(data, np.uint8)
    parts = [codes >> shift for shift in range(0, 8, dtype.bits)]
    low = np.stack(parts, axis=1).reshape(-1)[:count] & (2**dtype.bits - 1)
    wide = low.astype(np.int16)
    if dtype.is_signed:
        wide = np.where(wide >= 2 ** (dtype.bits - 1), wide - 2**dtype.bits, wide)
    return np.asarray(wide).astype(dtype.numpy)


@dataclass(frozen=True, slots=True)
class Operator:
    """One node. Inputs and outputs are numbers of tensors; -1 is an input that is absent."""

    number: int
    name: str
    version: int
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Table | None

    def option(self, name: str) -> Any:
        """An option's number, or its vector of them."""
        field = schema.OPTIONS[self.name][name]
        if field.kind == "v":
            found = None if self.options is None else self.options.numbers(field.slot, "i4")
            return None if found is None else [int(v) for v in found]
        if self.options is None:
            return field.default
        return self.options.number(field.slot, field.kind, field.default)


@dataclass(frozen=True, slots=True)
class Graph:
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: Mapping[int, str]
    """What the model's signature calls its inputs and outputs, where it has just one."""


def read_model(data: bytes) -> Graph:
    """The main graph. Nothing in the bytes is trusted."""
    if len(data) < 8 or data[4:8] != schema.IDENTIFIER:
        raise Damaged("it does not begin as a TensorFlow Lite model does (TFL3)")
    model = root(data)
    version = model.number(0, "I")
    if version != schema.VERSION:
        raise Damaged(f"its schema has version {version}, only {schema.VERSION} is known")
    codes = [_code(table) for table in model.tables(1)]
    graphs = model.tables(2)
    if not graphs:
        raise Damaged("it has no graph")
    buffers = [_buffer(table, data) for table in model.tables(4)]
    graph = graphs[0]
    tensors = tuple(_tensor(i, t, buffers) for i, t in enumerate(graph.tables(0)))
    operators = tuple(_operator(i, t, codes, len(tensors)) for i, t in enumerate(graph.tables(3)))
    inputs, outputs = (_indices(graph, slot, len(tensors)) for slot in (1, 2))
    return Graph(tensors, operators, inputs, outputs, _names(model, len(graphs)))


def _code(table: Table) -> tuple[str, int, bool]:
    """Name and version of an operator. Old files have its number in one byte."""
    number = max(int(table.number(0, "b")), int(table.number(3, "i")))
    version = int(table.number(2, "i", 1))
    if number == schema.CUSTOM:
        return table.text(1) or "without a name", version, True
    known = 0 <= number < len(schema.OPERATORS)
    return schema.OPERATORS[number] if known else f"number {number}", version, False


def _buffer(table: Table, data: bytes) -> bytes | None:
    """Bytes of a buffer; those of great models lie behind the FlatBuffer."""
    inside = table.bytes(0)
    offset, size = int(table.number(1, "Q")), int(table.number(2, "Q"))
    if offset > 1:
        if offset + size > len(data):
            raise Damaged(f"a buffer of {size} bytes at byte {offset} leaves the file")
        return data[offset : offset + size]
    return inside


def _tensor(number: int, table: Table, buffers: list[bytes | None]) -> Tensor:
    name = table.text(3) or f"tensor_{number}"
    code = int(table.number(1, "b"))
    kind = schema.TYPES[code] if 0 <= code < len(schema.TYPES) else f"number {code}"
    shape = tuple(int(n) for n in _sizes(table, 0))
    signature = tuple(int(n) for n in _sizes(table, 7))
    if any(n < 0 for n in shape) or prod(shape) > GREATEST_ELEMENTS:
        raise ModelError(f"tensor {name!r} has impossible sizes {list(shape)}")
    if len(signature) != len(shape) or any(n < -1 for n in signature):
        signature = ()
    buffer = int(table.number(2, "I"))
    if buffer >= max(len(buffers), 1):
        raise Damaged(f"tensor {name!r} is in buffer {buffer} of {len(buffers)}")
    data = buffers[buffer] if buffer else None
    quantization, problem = _quantization(table.table(4), len(shape))
    if table.has(6):
        problem = f"tensor {name!r} is stored sparsely; export with dense weights"
    if kind not in _OURS:
        problem = f"tensor {name!r} has element type {kind}, which is not supported"
    return Tensor(
        number, name, kind, shape, signature, data or None, quantization, problem,
        bool(table.number(5, "B")),
    )  # fmt: skip


def _sizes(table: Table, slot: int) -> Array:
    found = table.numbers(slot, "i4")
    found = np.zeros(0, np.int32) if found is None else found
    if found.size > GREATEST_RANK:
        raise Damaged(f"a tensor has {found.size} axes; {GREATEST_RANK} are the most")
    return found


def _quantization(table: Table | None, rank: int) -> tuple[Quantization | None, str]:
    if table is None:
        return None, ""
    if table.number(4, "B"):
        return None, "it is quantized in another way than by scales and zero points"
    scales, zeros = table.numbers(2, "f4"), table.numbers(3, "i8")
    if scales is None or scales.size == 0:
        return None, ""
    zeros = np.zeros(scales.size, np.int64) if zeros is None or not zeros.size else zeros
    if zeros.size == 1 and scales.size > 1:
        zeros = np.broadcast_to(zeros, scales.shape)
    axis = int(table.number(6, "i"))
    if zeros.size != scales.size or (scales.size > 1 and not 0 <= axis < rank):
        raise Damaged("a tensor's scales and zero points do not fit it")
    if not np.all(np.isfinite(scales)) or np.any(scales < 0):
        raise ModelError("a tensor's scales are not positive numbers")
    if np.any(np.abs(zeros) > 2**31 - 1):
        raise ModelError("a tensor's zero point is outside of 32 bits")
    return Quantization(scales, zeros, axis), ""


def _operator(
    number: int, table: Table, codes: list[tuple[str, int, bool]], tensors: int
) -> Operator:
    code = int(table.number(0, "I"))
    if code >= len(codes):
        raise Damaged(f"operator {number} has code {code} of {len(codes)}")
    name, version, custom = codes[code]
    inputs, outputs = (_indices(table, slot, tensors) for slot in (1, 2))
    intermediates = _indices(table, 8, tensors)
    if -1 in outputs:
        raise Damaged(f"operator {number} has a result without a tensor")
    return Operator(
        number, name, version, custom, inputs, outputs, intermediates, table.table(4)
    )  # fmt: skip


def _indices(table: Table, slot: int, tensors: int) -> tuple[int, ...]:
    found = table.numbers(slot, "i4")
    indices = () if found is None else tuple(int(n) for n in found)
    for index in indices:
        if not -1 <= index < tensors:
            raise Damaged(f"tensor {index} of {tensors} is named")
    return indices


def _names(model: Table, graphs: int) -> Mapping[int, str]:
    signatures = model.tables(7)
    if len(signatures) != 1 or graphs != 1:
        return {}
    (signature,) = signatures
    pairs = [*signature.tables(0), *signature.tables(1)]
    return {int(pair.number(1, "I")): pair.text(0) for pair in pairs}
