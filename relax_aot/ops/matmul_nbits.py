# SPDX-License-Identifier: Apache-2.0
"""matmul_nbits: matrix product with packed weights of 2, 4 or 8 bits.

    y[..., n] = sum over k of a[..., k] * (q[n, k] - zero[n, k // block]) * scale[n, k // block]

b[n, j, :] holds the bytes of block j, low bits first. Zero points are packed the same way, row
by row, or are numbers of the type of a; without them they are half of the range. f16 and bf16 are
summed in f32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Index, Lit, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_fit, require


@dataclass(frozen=True, kw_only=True)
class Packing:
    bits: int
    block: int


def deduce(
    attrs: Packing,
    a: TensorType,
    b: TensorType,
    scales: TensorType,
    zeros: TensorType | None = None,
) -> TensorType:
    bits, block = attrs.bits, attrs.block
    require(bits in (2, 4, 8), f"matmul_nbits of {bits} bits")
    require(a.dtype.is_float and a.rank >= 1, f"matmul_nbits of {a}")
    require(b.dtype is DType.U8 and b.rank == 3, f"matmul_nbits: packed weights, got {b}")
    require(
        block * bits % 8 == 0, f"matmul_nbits: {block} numbers of {bits} bits do not fill bytes"
    )
    require(scales.dtype is a.dtype and scales.rank == 2, f"matmul_nbits by {scales}")
    fits = zeros is None or (zeros.rank == 2 and zeros.dtype in (DType.U8, a.dtype))
    require(fits, f"matmul_nbits with the zero points {zeros}")
    return TensorType(a.dtype, (*a.shape[:-1], b.shape[0]))


def conditions(
    attrs: Packing,
    a: TensorType,
    b: TensorType,
    scales: TensorType,
    zeros: TensorType | None = None,
) -> list[Condition]:
    why = "sizes of packed weights"
    bits, block = attrs.bits, attrs.block
    blocks = ceildiv(a.shape[-1], block)
    rows = b.shape[0]
    packed = zeros is not None and zeros.dtype is DType.U8
    width = ceildiv(blocks * bits, 8) if packed else blocks
    return [
        *must_fit(b, (rows, blocks, block * bits // 8), why),
        *must_fit(scales, (rows, blocks), why),
        *must_fit(zeros, (rows, width), why),
    ]


def lower(
    attrs: Packing,
    k: KernelBuilder,
    a: Buffer,
    b: Buffer,
    scales: Buffer,
    zeros: Buffer | None,
    y: Buffer,
) -> None:
    depth, per_byte = a.shape[-1], 8 // attrs.bits
    wide = DType.F64 if a.dtype is DType.F64 else DType.F32

    def number(value: Expr) -> Expr:
        return value if value.dtype is wide else Cast(value, wide)

    def unpacked(byte: Expr, place: Dim) -> Expr:
        """The number at a place among those of a row, as an integer."""
        if attrs.bits == 8:
            return Cast(byte, DType.I32)
        shift = Cast(Index((place % per_byte) * attrs.bits), DType.U8)
        low = binary("&", binary(">>", byte, shift), Lit(2**attrs.bits - 1, DType.U8))
        return Cast(low, DType.I32)

    with k.loops(*y.shape) as at:
        *row, column = at
        total = k.local("total", wide, 0.0)
        with k.loops(b.shape[1]) as (part,):
            zero: Expr = Lit(2 ** (attrs.bits - 1), DType.I32)
            if zeros is not None and zeros.dtype is DType.U8:
                zero = unpacked(zeros[(column, part // per_byte)], part)
            elif zeros is not None:
                zero = zeros[(column, part)]
            least = k.local("least", wide, number(zero))
            sum_ = k.local("sum", wide, 0.0)
            start = k.let("start", part * attrs.block)
            with k.loops(dim_min(Dim.of(attrs.block), depth - start)) as (j,):
                code = unpacked(b[(column, part, j // per_byte)], j)
                left = number(a[(*row, start + j)])
                k.assign(sum_, sum_ + left * (Cast(code, wide) - least))
            k.assign(total, total + sum_ * number(scales[(column, part)]))
        k.store(y[at], total if y.dtype is wide else Cast(total, y.dtype))


def _unpacked(rows: Array, bits: int) -> Array:
    """[..., bytes] -> [..., numbers]."""
    shifts = np.arange(0, 8, bits)
    parts = rows[..., None] >> shifts.astype(np.uint8) & np.uint8(2**bits - 1)
    return np.asarray(parts.reshape(*rows.shape[:-1], -1))


def signed_weights(attrs: Packing, b: Array, zeros: Array | None, depth: int) -> Array | None:
    """Constant weights [column, k] of 4 or 8 bits less their zero points, if signed integers of as
    many bits hold them. `b` and `zeros` have the bytes of a column in a row."""
    columns, blocks = len(b), -(-depth // attrs.block)
    quantized = _unpacked(b, attrs.bits).reshape(columns, blocks, -1).astype(np.int16)
    least = np.full((columns, blocks), 2 ** (attrs.bits - 1), np.int16)
    if zeros is not None:
        least = _unpacked(zeros.reshape(columns, -1), attrs.bits)[:, :blocks].astype(np.int16)
    weights = (quantized - least[..., None]).reshape(columns, -1)[:, :depth]
    low, high = -(2 ** (attrs.bits - 1)), 2 ** (attrs.bits - 1) - 1
    return weights if low <= weights.min() and weights.max() <= high else None


def reference(
    attrs: Packing, a: Array, b: Array, scales: Array, zeros: Array | None = None
) -> Array:
    quantized = _unpacked(b, attrs.bits).astype(np.float64)
    least = np.full(scales.shape, 2.0 ** (attrs.bits - 1))
    if zeros is not None:
        packed = zeros.dtype == np.uint8
        least = (_unpacked(zeros, attrs.bits) if packed else zeros).astype(np.float64)
        least = least[:, : scales.shape[1]]
    weights = (quantized - least[..., None]) * scales.astype(np.float64)[..., None]
    matrix = weights.reshape(b.shape[0], -1)[:, : a.shape[-1]]
    return np.asarray(a.astype(np.float64) @ matrix.T).astype(a.dtype)


def samples(rng: np.random.Generator) -> list[Sample]:
    def case(bits: int, block: int, depth: int, zeros: str = "", kind: type = np.float32) -> Sample:
        blocks, columns = -(-depth // block), 3
        a: Array = rng.normal(size=(2, depth)).astype(kind)
        b = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
        scales: Array = rng.uniform(0.1, 1, (columns, blocks)).astype(kind)
        zero = {
            "": None,
            "packed": rng.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8),
            "numbers": rng.uniform(0, 9, (columns, blocks)).astype(kind),
        }[zeros]
        loose = 2e-3 if kind is np.float16 else 1e-4
        return Sample((a, b, scales, zero), {"bits": bits, "block": block}, symbolic=False,
                      rtol=loose, atol=loose)  # fmt: skip

    return [
        case(4, 16, 32), case(4, 16, 40, "packed"), case(4, 16, 33, "packed"),
        case(8, 16, 32, "packed"), case(2, 16, 48, "packed"), case(4, 32, 32, "numbers"),
        case(4, 16, 32, "", np.float16),
    ]  # fmt: skip


OP = Op("matmul_nbits", deduce, lower, reference, samples, conditions=conditions, record=Packing)
