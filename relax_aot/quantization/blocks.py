# SPDX-License-Identifier: Apache-2.0
"""The block forms of GGUF: 32 weights along the inner axis share a scale of half precision.

    q8_0    bytes; the scale is the largest magnitude divided by 127
    q4_0    integers of -8..7; the scale is the weight with the largest magnitude divided by -8

Source: quantize_row_q8_0_ref and quantize_row_q4_0_ref of ggml's src/ggml-quants.c, whose bits
these are. Weights that were in such blocks keep their bits: the same scale follows from them.
"""

from __future__ import annotations

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array

BLOCK = 32


def q8_0(rows: Array) -> tuple[Array, Array]:
    """The scales of the blocks of each row in half precision, and quantized values."""
    blocks = _blocks(rows)
    scales = np.abs(blocks).max(axis=2) / np.float32(127)
    scaled = blocks * _inverse(scales)[:, :, None]
    # Halves are rounded away from zero, as roundf does.
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    return scales.astype(np.float16), codes.astype(np.int8).reshape(rows.shape)


def q4_0(rows: Array) -> tuple[Array, Array]:
    """The same with integers of -8..7."""
    blocks = _blocks(rows)
    at = np.abs(blocks).argmax(axis=2)[:, :, None]
    scales = np.take_along_axis(blocks, at, axis=2)[:, :, 0] / np.float32(-8)
    shifted = blocks * _inverse(scales)[:, :, None] + np.float32(8.5)
    codes = np.minimum(15, shifted.astype(np.int8)) - 8
    return scales.astype(np.float16), codes.astype(np.int8).reshape(rows.shape)


def _blocks(rows: Array) -> Array:
    return rows.astype(np.float32).reshape(rows.shape[0], -1, BLOCK)


def _inverse(scales: Array) -> Array:
    return np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)


FORMS = {8: q8_0, 4: q4_0}
"""By bits."""


class Calls:
    """Calls that stand for one, with values named after its result."""

    def __init__(self, call: Call) -> None:
        self.before, self.made = call, list[Call]()

    def add(self, op: str, args: tuple[Var, ...], type_: TensorType, **attrs: Attr) -> Var:
        out = Var(f"{self.before.out.name}.{op}{len(self.made)}", type_)
        self.made.append(Call((out,), op, args, attrs_of(attrs), self.before.origin))
        return out

    def reshape(self, x: Var, *shape: Dim) -> Var:
        return self.add("reshape", (x,), TensorType(x.type.dtype, shape), shape=shape)

    def cast(self, x: Var, dtype: DType) -> Var:
        type_ = TensorType(dtype, x.type.shape)
        return self.add("cast", (x,), type_, to=dtype, saturate=False)


def quantized_rows(x: Var, call: Call) -> tuple[tuple[Var, Var], tuple[Call, ...]]:
    """Each block of a row as bytes with a scale of its own."""
    *rows, depth = x.type.shape
    calls, inner = Calls(call), (*rows, depth // BLOCK, Dim.of(BLOCK))
    blocks = calls.reshape(x, *inner)
    codes = Var(f"{x.name}.bytes", TensorType(DType.I8, inner))
    scales = Var(f"{x.name}.steps", TensorType(DType.F32, inner[:-1]))
    attrs = attrs_of({"multiple": BLOCK})
    calls.made.append(Call((codes, scales), "quantize_rows", (blocks,), attrs, call.origin))
    return (calls.reshape(codes, *rows, depth), scales), tuple(calls.made)


def gathered_rows(call: Call, codes: Var, scales: Var) -> tuple[Var, tuple[Call, ...]]:
    """Rows of a quantized table in f32, and the calls that compute them."""
    calls, shape, index = Calls(call), call.out.type.shape, call.inputs[1]
    groups = shape[-1] // BLOCK
    parts = []
    for table, last in ((codes, Dim.of(BLOCK)), (scales, Dim.of(1))):
        type_ = TensorType(table.type.dtype, (*shape[:-1], table.type.shape[1]))
        rows = calls.cast(calls.add("gather", (table, index), type_, axis=0), DType.F32)
        parts.append(calls.reshape(rows, *shape[:-1], groups, last))
    values = calls.add("mul", (parts[0], parts[1]), parts[0].type)
    wide = calls.reshape(values, *shape)
    return wide, tuple(calls.made)
