"""Micro-kernels of integer contractions whose channels lie side by side (Helium)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_aot.ir.micro import Array, MicroKernel, Operand, Sizes
from relax_aot.ir.types import DType

HEADER = "multiply_last.h"
BLOCK = 16
STRIP = (
    "zero", "flip", "channels", "channel_step", "lines", "first1", "last1", "line_step",
    "columns", "first", "width", "column_step",
)  # fmt: skip


def channel_order(channels: int) -> list[int]:
    """Which channel stands at each place of the groups of four; -1 where none does."""
    order: list[int] = []
    for n in range(0, channels, 8):
        lanes = [0, 2, 4, 6, 1, 3, 5, 7] if channels - n > 4 else [0, 1, 2, 3]
        order += [n + lane if n + lane < channels else -1 for lane in lanes]
    return order


def stream_bytes(depth: int) -> int:
    """What the starts and the weights of four channels take."""
    return 32 + 4 * (-(-depth // BLOCK) * BLOCK)


# The strip


def _strip_reach(sizes: Sizes) -> Sequence[int]:
    s = dict(zip(STRIP, sizes, strict=True))
    strip = s["columns"] * s["lines"] * s["channels"]
    lines, last = s["last1"] - s["first1"], min(s["first"] + s["columns"], s["width"]) - 1
    if min(lines, s["channels"], s["columns"]) <= 0 or last < max(s["first"], 0):
        return strip, 0
    image = (s["channels"] - 1) * s["channel_step"] + (lines - 1) * s["line_step"]
    return strip, image + last * s["column_step"] + 1


def _strip(operands: Sequence[Array], sizes: Sizes) -> None:
    strip, image = operands
    s = dict(zip(STRIP, sizes, strict=True))
    shape = (s["columns"], s["lines"], s["channels"])
    found = np.full(shape, s["zero"] & 0xFF, np.uint8)
    for column in range(s["columns"]):
        across = s["first"] + column
        for line in range(max(s["first1"], 0), min(s["last1"], s["lines"])):
            if 0 <= across < s["width"]:
                start = (line - s["first1"]) * s["line_step"] + across * s["column_step"]
                at = start + np.arange(s["channels"]) * s["channel_step"]
                found[column, line] = image[at].astype(np.uint8) ^ s["flip"]
    strip[: found.size] = found.reshape(-1).view(np.int8)


def _gather(name: str, dtype: DType) -> MicroKernel:
    """Columns of lines of an image one after the other, so that windows are without gaps."""
    return MicroKernel(
        name,
        HEADER,
        (Operand("strip", DType.I8, True), Operand("image", dtype)),
        STRIP,
        _strip_reach,
        lambda sizes: 0,
        _strip,
    )


# The product


def _multiply_reach(sizes: Sizes) -> Sequence[int]:
    groups, depth, places, step = sizes
    if min(groups, places) <= 0:
        return 0, 0, 0
    sums = (places + 1) // 2 * groups * 8
    return sums, groups * stream_bytes(depth) // 4, (places - 1) * step + depth


def _multiply(operands: Sequence[Array], sizes: Sizes) -> None:
    sums, weights, rows = operands
    groups, depth, places, step = sizes
    stream = weights[: groups * stream_bytes(depth) // 4].reshape(groups, -1)
    starts = stream[:, :8].astype(np.int64)
    packed = np.ascontiguousarray(stream[:, 8:]).view(np.int8)
    cut = packed.reshape(groups, -1, 4, BLOCK).swapaxes(1, 2).reshape(groups, 4, -1)
    by = cut[:, :, :depth].astype(np.int64)
    for p in range((places + 1) // 2 * 2):
        at = min(p, places - 1) * step
        total = by @ rows[at : at + depth].astype(np.int64)
        half = p % 2 * 4
        total += starts[:, half : half + 4]
        place = np.arange(groups)[:, None] * 8 + np.arange(4) + p // 2 * groups * 8 + half
        sums[place] = total.astype(np.uint64).astype(np.uint32).view(np.int32)


# Sums to bytes

SCALE = ("channels", "places", "out_step", "channel_step", "zero", "low", "high")


def _scaled_reach(sizes: Sizes) -> Sequence[int]:
    channels, places, step, channel_step = sizes[:4]
    groups = (channels + 3) // 4
    if min(channels, places) <= 0:
        return 0, 0, 0
    reach = (places - 1) * step + (channels - 1) * channel_step + 1
    return reach, (places + 1) // 2 * groups * 8, groups * 8


def _floats_reach(sizes: Sizes) -> Sequence[int]:
    out, sums, scales = _scaled_reach(sizes)
    return out, sums, scales // 2


def _floats(sums: Array, scales: Array) -> Array:
    return np.rint(sums.astype(np.float32) * scales.reshape(-1, 4)).astype(np.int64)


def _rounded(high: Array, shifts: Array) -> Array:
    by = -shifts.astype(np.int64)
    return np.asarray((high + ((np.int64(1) << by) >> 1)) >> by)


def _nearest(sums: Array, scales: Array) -> Array:
    parts = scales.reshape(-1, 2, 4).astype(np.int64)
    return _rounded((sums.astype(np.int64) * parts[:, 0]) >> 32, parts[:, 1])


def _above(sums: Array, scales: Array) -> Array:
    parts = scales.reshape(-1, 2, 4).astype(np.int64)
    return _rounded((sums.astype(np.int64) * parts[:, 0] + (1 << 30)) >> 31, parts[:, 1])


def _twice(sums: Array, scales: Array) -> Array:
    parts = scales.reshape(-1, 2, 4).astype(np.int64)
    high = (sums.astype(np.int64) * parts[:, 0] + (1 << 30)) >> 31
    return _rounded(high - (high < 0), parts[:, 1])


FORMS = {"f32": _floats, "nearest": _nearest, "twice": _twice, "above": _above}


def _requantize(form: str, dtype: DType) -> MicroKernel:
    def run(operands: Sequence[Array], sizes: Sizes) -> None:
        out, sums, scales = operands
        channels, places, step, apart, zero, low, high = sizes
        order = channel_order(channels)
        lanes = {channel: lane for lane, channel in enumerate(order) if channel >= 0}
        lane = [lanes[channel] for channel in range(channels)]
        groups = len(order) // 4
        for p in range(places):
            start = p // 2 * groups * 8 + p % 2 * 4
            part = sums[start + np.arange(groups)[:, None] * 8 + np.arange(4)]
            found = FORMS[form](part, scales).reshape(-1)[lane]
            out[p * step + np.arange(channels) * apart] = np.clip(found + zero, low, high)

    kind = DType.F32 if form == "f32" else DType.I32
    return MicroKernel(
        f"raot_last_{form}{'_u8' if dtype is DType.U8 else ''}",
        "requantize_last.h",
        (Operand("out", dtype, True), Operand("sums", DType.I32), Operand("scales", kind)),
        SCALE,
        _floats_reach if form == "f32" else _scaled_reach,
        lambda sizes: 0,
        run,
    )


MICRO_KERNELS = (
    _gather("raot_beside_s8", DType.I8),
    _gather("raot_beside_u8", DType.U8),
    MicroKernel(
        "raot_multiply_last_s8",
        HEADER,
        (
            Operand("sums", DType.I32, True),
            Operand("weights", DType.I32),
            Operand("rows", DType.I8),
        ),
        ("groups", "depth", "places", "row_step"),
        _multiply_reach,
        lambda sizes: 4 * sizes[0] * sizes[1] * sizes[2],
        _multiply,
    ),
    *(_requantize(form, dtype) for form in FORMS for dtype in (DType.I8, DType.U8)),
)
