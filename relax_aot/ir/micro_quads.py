"""Micro-kernels of convolutions of one channel, four lines at a time (Helium)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.ir.micro import Array, MicroKernel, Operand, Sizes
from relax_aot.ir.micro_last import FORMS
from relax_aot.ir.types import DType

HEADER = "depthwise_quads.h"
QUADS = (
    "flip", "blocks", "length", "top", "left", "lines", "columns", "line_step", "step",
)  # fmt: skip
WINDOW = 16
"""Bytes that are read for each window."""


def _fill(operands: Sequence[Array], sizes: Sizes) -> None:
    zero, count = sizes
    operands[0][:count] = zero


def _inside(sizes: Sizes) -> tuple[range, range]:
    """Lines and columns of the image that blocks hold."""
    s = dict(zip(QUADS, sizes, strict=True))
    lines = range(max(s["top"], 0), min(s["lines"], s["top"] + 2 * s["blocks"] + 2))
    return lines, range(max(s["left"], 0), min(s["columns"], s["left"] + s["length"]))


def _quads_reach(sizes: Sizes) -> Sequence[int]:
    lines, columns = _inside(sizes)
    image = 0
    if lines and columns:
        image = lines[-1] * sizes[-2] + columns[-1] * sizes[-1] + 1
    return sizes[1] * sizes[2] * 4, image


def _quads(operands: Sequence[Array], sizes: Sizes) -> None:
    quads, image = operands
    s = dict(zip(QUADS, sizes, strict=True))
    lines, columns = _inside(sizes)
    for y in lines:
        for x in columns:
            code = (int(image[y * s["line_step"] + x * s["step"]]) & 0xFF) ^ s["flip"]
            for block in range(s["blocks"]):
                line = y - s["top"] - 2 * block
                if 0 <= line < 4:
                    at = (block * s["length"] + x - s["left"]) * 4 + line
                    quads[at] = np.uint8(code).view(np.int8)


def _gather(name: str, dtype: DType) -> MicroKernel:
    """Lays out an image as blocks of four lines, byte by byte in turn; what is outside stays."""
    return MicroKernel(
        name,
        HEADER,
        (Operand("quads", DType.I8, True), Operand("image", dtype)),
        QUADS,
        _quads_reach,
        lambda sizes: 0,
        _quads,
    )


def _product_reach(sizes: Sizes) -> Sequence[int]:
    blocks, outs, count, stride, length = sizes
    if min(blocks, count) <= 0:
        return 0, 0, outs * WINDOW
    quads = ((blocks - 1) * length + (count - 1) * stride) * 4 + WINDOW
    return blocks * outs * count, quads, outs * WINDOW


def _product(operands: Sequence[Array], sizes: Sizes) -> None:
    sums, quads, weights = operands
    blocks, outs, count, stride, length = sizes
    by = weights[: outs * WINDOW].reshape(outs, WINDOW).astype(np.int64)
    for block in range(blocks):
        for p in range(count):
            at = (block * length + p * stride) * 4
            found = by @ quads[at : at + WINDOW].astype(np.int64)
            sums[(block * outs + np.arange(outs)) * count + p] = found


SCALE = ("lines", "count", "line_step", "step", "zero", "low", "high")


def _requantize(form: str, dtype: DType) -> MicroKernel:
    parts = 1 if form == "f32" else 2

    def reach(sizes: Sizes) -> Sequence[int]:
        lines, count, line_step, step = sizes[:4]
        if min(lines, count) <= 0:
            return 0, 0, 1, parts
        sums = max((lines - 1) * count - (-count // 8) * 8, -(-lines * count // 8) * 8)
        return (lines - 1) * line_step + (count - 1) * step + 1, sums, 1, parts

    def run(operands: Sequence[Array], sizes: Sizes) -> None:
        out, sums, start, scale = operands
        lines, count, line_step, step, zero, low, high = sizes
        total = (sums[: lines * count].astype(np.int64) + int(start[0])).astype(np.uint64)
        wrapped = total.astype(np.uint32).view(np.int32)
        each = np.repeat(scale.reshape(parts, 1), 4, axis=1).reshape(-1)
        fours = np.resize(wrapped, (-(-len(wrapped) // 4), 4))
        codes = np.concatenate([FORMS[form](four[None], each).reshape(-1) for four in fours])
        codes = np.clip(codes[: lines * count] + zero, low, high).reshape(lines, count)
        for r in range(lines):
            out[r * line_step + np.arange(count) * step] = codes[r]

    kind = DType.F32 if form == "f32" else DType.I32
    return MicroKernel(
        f"raot_channel_{form}{'_u8' if dtype is DType.U8 else ''}",
        "requantize_channel.h",
        (
            Operand("out", dtype, True),
            Operand("sums", DType.I32),
            Operand("start", DType.I32),
            Operand("scale", kind),
        ),
        SCALE,
        reach,
        lambda sizes: 0,
        run,
    )


MICRO_KERNELS = (
    MicroKernel(
        "raot_frame_quads",
        HEADER,
        (Operand("quads", DType.I8, True),),
        ("zero", "count"),
        lambda sizes: (sizes[1],),
        lambda sizes: 0,
        _fill,
    ),
    _gather("raot_quads_s8", DType.I8),
    _gather("raot_quads_u8", DType.U8),
    MicroKernel(
        "raot_multiply_quads_s8",
        HEADER,
        (
            Operand("sums", DType.I32, True),
            Operand("quads", DType.I8),
            Operand("weights", DType.I8),
        ),
        ("blocks", "outs", "count", "stride", "length"),
        _product_reach,
        lambda sizes: WINDOW * sizes[0] * sizes[1] * sizes[2],
        _product,
    ),
    *(_requantize(form, dtype) for form in FORMS for dtype in (DType.I8, DType.U8)),
)
