# SPDX-License-Identifier: Apache-2.0
"""The block forms of GGUF: 32 weights along the inner axis share a scale of half precision.

    q8_0    bytes; the scale is the largest magnitude divided by 127
    q4_0    integers of -8..7; the scale is the weight with the largest magnitude divided by -8
    q4_k    integers of -8..7 and an offset of half precision; scales and offsets are multiples of
            two numbers that 256 weights share

Source: quantize_row_q8_0_ref, quantize_row_q4_0_ref and quantize_row_q4_K_ref of ggml's
src/ggml-quants.c. The first two have its bits: weights that were in such blocks keep theirs, since
the same scale follows from them. Scales of q4_k are found in the same way, but not always the same;
their products with integers of 6 bits are stored, rounded to half precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array

BLOCK = 32
SUPER = 8
"""Blocks that share two numbers in q4_k; those at the end of a row may be fewer."""
STEPS = 21
"""Scales that q4_k tries."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """Rows [n, k]: `codes` of integers [n, k], `scales` and `offsets` [n, k / 32]. A weight is
    scale * code + offset, or without offsets scale * code."""

    scales: Array
    codes: Array
    offsets: Array | None = None


def q8_0(rows: Array) -> Quantized:
    """Bytes."""
    blocks = _blocks(rows)
    scales = np.abs(blocks).max(axis=2) / np.float32(127)
    scaled = blocks * _inverse(scales)[:, :, None]
    # Halves are rounded away from zero, as roundf does.
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    return Quantized(scales.astype(np.float16), codes.astype(np.int8).reshape(rows.shape))


def q4_0(rows: Array) -> Quantized:
    """Integers of -8..7."""
    blocks = _blocks(rows)
    at = np.abs(blocks).argmax(axis=2)[:, :, None]
    scales = np.take_along_axis(blocks, at, axis=2)[:, :, 0] / np.float32(-8)
    shifted = blocks * _inverse(scales)[:, :, None] + np.float32(8.5)
    codes = np.minimum(15, shifted.astype(np.int8)) - 8
    return Quantized(scales.astype(np.float16), codes.astype(np.int8).reshape(rows.shape))


def q4_k(rows: Array) -> Quantized:
    """Integers of -8..7, with offsets."""
    blocks = _blocks(rows)
    scales, least = _fitted(blocks)
    scales, least = _in_63_steps(scales), _in_63_steps(least)
    scaled = (blocks + least[:, :, None]) * _inverse(scales)[:, :, None]
    codes = np.clip(np.rint(scaled), 0, 15) - 8
    halves = scales.astype(np.float16), (8 * scales - least).astype(np.float16)
    return Quantized(halves[0], codes.astype(np.int8).reshape(rows.shape), halves[1])


def _in_63_steps(values: Array) -> Array:
    """Multiples of 1/63 of the largest one in each SUPER blocks, which is rounded to a half."""
    count = values.shape[1]
    padded = np.pad(values, ((0, 0), (0, -count % SUPER))).reshape(values.shape[0], -1, SUPER)
    step = padded.max(axis=2, keepdims=True) / np.float32(63)
    number = np.minimum(63, np.rint(padded * _inverse(step)))
    exact = step.astype(np.float16).astype(np.float32) * number
    return np.asarray(exact.reshape(values.shape[0], -1)[:, :count])


def _fitted(blocks: Array) -> tuple[Array, Array]:
    """A scale s and a least value -m for each block, so that x is near s * q - m with integers q of
    0..15: least squares for each of some scales (make_qkx2_quants)."""
    weights = np.sqrt((blocks**2).mean(axis=2, keepdims=True)) + np.abs(blocks)
    least = np.minimum(blocks.min(axis=2), 0)
    span = blocks.max(axis=2) - least
    inverse = _inverse(span)
    sum_w, sum_x = weights.sum(axis=2), (weights * blocks).sum(axis=2)
    shifted = blocks - least[:, :, None]

    def error(scale: Array, low: Array, codes: Array) -> Array:
        off = scale[:, :, None] * codes + low[:, :, None] - blocks
        return np.asarray((weights * off**2).sum(axis=2))

    best, low = span / np.float32(15), least
    codes = np.clip(np.rint(shifted * (np.float32(15) * inverse)[:, :, None]), 0, 15)
    found = error(best, low, codes)
    for number in range(STEPS):
        rate = np.float32(14 + 0.1 * number) * inverse
        codes = np.clip(np.rint(shifted * rate[:, :, None]), 0, 15)
        sum_l, sum_l2 = (weights * codes).sum(axis=2), (weights * codes**2).sum(axis=2)
        sum_xl = (weights * codes * blocks).sum(axis=2)
        inside = _inverse(sum_w * sum_l2 - sum_l**2)
        scale = (sum_w * sum_xl - sum_x * sum_l) * inside
        start = (sum_l2 * sum_x - sum_l * sum_xl) * inside
        above = start > 0
        scale = np.where(above, sum_xl * _inverse(sum_l2), scale)
        start = np.where(above, 0, start)
        off = error(scale, start, codes)
        better = (off < found) & (inside > 0)
        found, best = np.where(better, off, found), np.where(better, scale, best)
        low = np.where(better, start, low)
    return np.asarray(best), np.asarray(-low)


def _blocks(rows: Array) -> Array:
    return rows.astype(np.float32).reshape(rows.shape[0], -1, BLOCK)


def _inverse(scales: Array) -> Array:
    return np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)


FORMS = {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k}


class Calls:
    """Calls that stand for one, with values named after its result."""

    def __init__(self, call: Call, part: str = "") -> None:
        self.before, self.made, self.part = call, list[Call](), part

    def add(self, op: str, args: tuple[Var, ...], type_: TensorType, **attrs: Attr) -> Var:
        out = Var(f"{self.before.out.name}.{self.part}{op}{len(self.made)}", type_)
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


def sums_of_blocks(x: Var, call: Call) -> tuple[Var, tuple[Call, ...]]:
    """The sum of each block of a row."""
    *rows, depth = x.type.shape
    calls, groups = Calls(call, "of_"), depth // BLOCK
    blocks = calls.reshape(x, *rows, groups, Dim.of(BLOCK))
    type_ = TensorType(DType.F32, (*rows, groups))
    axes = (len(rows) + 1,)
    sums = calls.add("reduce", (blocks,), type_, kind="sum", axes=axes, keepdims=False)
    return sums, tuple(calls.made)


def gathered_rows(
    call: Call, codes: Var, scales: Var, offsets: Var | None = None
) -> tuple[Var, tuple[Call, ...]]:
    """Rows of a quantized table in f32, and the calls that compute them."""
    calls, shape, index = Calls(call), call.out.type.shape, call.inputs[1]
    groups = shape[-1] // BLOCK

    def rows_of(table: Var, last: int) -> Var:
        type_ = TensorType(table.type.dtype, (*shape[:-1], table.type.shape[1]))
        rows = calls.cast(calls.add("gather", (table, index), type_, axis=0), DType.F32)
        return calls.reshape(rows, *shape[:-1], groups, Dim.of(last))

    numbers = rows_of(codes, BLOCK)
    values = calls.add("mul", (numbers, rows_of(scales, 1)), numbers.type)
    if offsets is not None:
        values = calls.add("add", (values, rows_of(offsets, 1)), values.type)
    wide = calls.reshape(values, *shape)
    return wide, tuple(calls.made)
