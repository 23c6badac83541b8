"""Micro-kernels that make bytes of sums, on cores with vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.ir.micro import Array, MicroKernel, Operand, Sizes
from relax_aot.ir.types import DType

EIGHT = 8
"""Sums that are read at once."""
RESCALE = (
    "rows", "columns", "out_step", "sum_step", "scale_row", "scale_column", "zero",
)  # fmt: skip


def _reach(sizes: Sizes) -> Sequence[int]:
    rows, columns, out_step, sum_step, scale_row, scale_column = sizes[:6]
    if min(rows, columns) <= 0:
        return 0, 0, 0
    scales = (rows - 1) * scale_row + (columns - 1) * scale_column + 1
    eights = -(-columns // EIGHT) * EIGHT
    return (rows - 1) * out_step + columns, (rows - 1) * sum_step + eights, scales


def _reach_with_shifts(sizes: Sizes) -> Sequence[int]:
    out, sums, scales = _reach(sizes)
    return out, sums, scales, scales


def _run(operands: Sequence[Array], sizes: Sizes) -> None:
    out, sums, scale = operands[:3]
    rows, columns, out_step, sum_step, scale_row, scale_column, zero = sizes[:7]
    low, high = (0, 255) if out.dtype == np.uint8 else (-128, 127)
    for r in range(rows):
        part = sums[r * sum_step : r * sum_step + columns]
        at = r * scale_row + np.arange(columns) * scale_column
        if scale.dtype == np.float32:
            found: Array = np.rint(part.astype(np.float32) * scale[at]).astype(np.float64)
        else:
            shift = operands[3][at].astype(np.int64) if len(operands) > 3 else sizes[7]
            total = part.astype(np.int64) * scale[at].astype(np.int64)
            found = (total + (np.int64(1) << (shift - 1))) >> shift
        codes = np.clip(found + zero, low, high).astype(out.dtype)
        out[r * out_step : r * out_step + columns] = codes


def _of_type(dtype: DType, suffix: str) -> tuple[MicroKernel, ...]:
    header, none = "requantize_lanes.h", lambda sizes: 0
    out, sums = Operand("out", dtype, True), Operand("sums", DType.I32)
    scale, shifts = Operand("scale", DType.I32), Operand("shifts", DType.I32)
    return (
        MicroKernel(
            f"raot_rescale_f32_{suffix}", header, (out, sums, Operand("scale", DType.F32)),
            RESCALE, _reach, none, _run,
        ),
        MicroKernel(
            f"raot_rescale_i32_{suffix}", header, (out, sums, scale), (*RESCALE, "shift"),
            _reach, none, _run,
        ),
        MicroKernel(
            f"raot_rescale_shifts_{suffix}", header, (out, sums, scale, shifts), RESCALE,
            _reach_with_shifts, none, _run,
        ),
    )  # fmt: skip


MICRO_KERNELS = (*_of_type(DType.I8, "s8"), *_of_type(DType.U8, "u8"))
