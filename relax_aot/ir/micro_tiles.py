"""Micro-kernels of integer contractions on cores with vectors of 16-bit numbers.

What windows hold becomes one operand of a tile: columns of places side by side, or rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from relax_aot.ir.micro import Array, MicroKernel, Operand, Sizes
from relax_aot.ir.types import DType

COLUMNS = 16
"""As RAOT_DOT_COLUMNS."""


def up(count: int, to: int) -> int:
    return -(-count // to) * to


def wrapped(total: Array) -> Array:
    return np.asarray(total.astype(np.uint64).astype(np.uint32).view(np.int32))


TILE = (
    "rows", "columns", "depth", "sum_step", "bias_row", "bias_column",
)  # fmt: skip


def tile_reach(sizes: Sizes) -> Sequence[int]:
    rows, columns, depth, sum_step, bias_row, bias_column = sizes
    if min(rows, columns) <= 0:
        return 0, 0, 0, 0
    wide = up(columns, COLUMNS)
    bias = (rows - 1) * bias_row + (wide - 1) * bias_column + 1
    return (rows - 1) * sum_step + wide, rows * depth, wide * depth, bias


def tile_of(group: int, operands: Sequence[Array], sizes: Sizes) -> None:
    """Of weights that lie `group` steps together."""
    sums, left, right, bias = operands
    rows, columns, depth, sum_step, bias_row, bias_column = sizes
    if min(rows, columns) <= 0:
        return
    wide = up(columns, COLUMNS)
    panels = right.reshape(wide // COLUMNS, depth // group, COLUMNS, group).swapaxes(1, 2)
    by = panels.reshape(wide, depth).astype(np.int64)
    found = left.reshape(rows, depth).astype(np.int64) @ by.T
    for r in range(rows):
        start = bias[r * bias_row + np.arange(wide) * bias_column]
        sums[r * sum_step : r * sum_step + wide] = wrapped(found[r] + start)


STRIP = (
    "zero", "channels", "row_phases", "column_phases", "lines", "places", "row_stride",
    "column_stride", "top", "left", "image_rows", "image_columns", "channel_step", "row_step",
    "column_step",
)  # fmt: skip


def _strip_reach(sizes: Sizes) -> Sequence[int]:
    s = dict(zip(STRIP, sizes, strict=True))
    strip = s["channels"] * s["row_phases"] * s["column_phases"] * s["lines"] * s["places"]
    last = [
        (s["channels"] - 1) * s["channel_step"],
        (s["image_rows"] - 1) * s["row_step"],
        (s["image_columns"] - 1) * s["column_step"],
    ]
    empty = min(s["channels"], s["image_rows"], s["image_columns"]) <= 0
    return strip, 0 if empty else sum(last) + 1


def _strip(operands: Sequence[Array], sizes: Sizes) -> None:
    strip, image = operands
    s = dict(zip(STRIP, sizes, strict=True))
    counts = [s[name] for name in ("channels", "row_phases", "column_phases", "lines", "places")]
    for at, (c, py, px, line, place) in enumerate(product(*map(range, counts))):
        y = s["top"] + line * s["row_stride"] + py
        x = s["left"] + place * s["column_stride"] + px
        inside = 0 <= y < s["image_rows"] and 0 <= x < s["image_columns"]
        far = c * s["channel_step"] + y * s["row_step"] + x * s["column_step"]
        strip[at] = image[far] if inside else s["zero"]


OFFSETS = (
    "channels", "rows", "columns", "row_dilation", "column_dilation", "row_stride",
    "column_stride", "channel_step", "row_phase_step", "column_phase_step", "line_step",
)  # fmt: skip


def _offsets(operands: Sequence[Array], sizes: Sizes) -> None:
    s = dict(zip(OFFSETS, sizes, strict=True))
    turns = product(range(s["channels"]), range(s["rows"]), range(s["columns"]))
    for at, (c, y, x) in enumerate(turns):
        line, row_phase = divmod(y * s["row_dilation"], s["row_stride"])
        place, column_phase = divmod(x * s["column_dilation"], s["column_stride"])
        operands[0][at] = (
            c * s["channel_step"]
            + row_phase * s["row_phase_step"]
            + line * s["line_step"]
            + column_phase * s["column_phase_step"]
            + place
        )


def _panel_reach(sizes: Sizes) -> Sequence[int]:
    depth, columns, extent = sizes
    if min(depth, columns) <= 0:
        return 0, 0, 0
    return up(depth, 2) * COLUMNS, extent, depth


def _panel(operands: Sequence[Array], sizes: Sizes) -> None:
    panel, image, offsets = operands
    depth, columns, _ = sizes
    if min(depth, columns) <= 0:
        return
    cells = panel.reshape(-1, COLUMNS, 2)
    for k in range(depth):
        part = image[offsets[k] : offsets[k] + columns].astype(np.int64)
        cells[k // 2, :columns, k % 2] = part
    if depth % 2:
        cells[depth // 2, :columns, 1] = 0


ROWS = (
    "zero", "rows", "row_step", "depth",
    *(f"{part}{level}" for level in range(3) for part in ("count", "first", "last", "step")),
)  # fmt: skip


def rows_reach(sizes: Sizes) -> Sequence[int]:
    rows, row_step, depth = sizes[1:4]
    levels = [(sizes[i + 1], sizes[i + 2], sizes[i + 3]) for i in range(4, 16, 4)]
    if rows <= 0:
        return 0, 0
    empty = any(last <= first for first, last, _ in levels)
    far = sum((last - first - 1) * step for first, last, step in levels)
    return rows * depth, 0 if empty else (rows - 1) * row_step + far + 1


def _rows(operands: Sequence[Array], sizes: Sizes) -> None:
    to, image = operands
    zero, rows, row_step, depth = sizes[:4]
    levels = [sizes[i : i + 4] for i in range(4, 16, 4)]
    for r in range(rows):
        to[r * depth : (r + 1) * depth] = 0
        for turn in product(*(range(first, last) for _, first, last, _ in levels)):
            place = sum((at - level[1]) * level[3] for at, level in zip(turn, levels, strict=True))
            i, j, t = turn
            k = (i * levels[1][0] + j) * levels[2][0] + t
            to[r * depth + k] = int(image[r * row_step + place]) - zero


def _lines_reach(sizes: Sizes) -> Sequence[int]:
    rows, columns, to_step, from_step = sizes
    if min(rows, columns) <= 0:
        return 0, 0
    return (rows - 1) * to_step + columns, (rows - 1) * from_step + columns


def _lines(operands: Sequence[Array], sizes: Sizes) -> None:
    rows, columns, to_step, from_step = sizes
    for r in range(rows):
        part = operands[1][r * from_step : r * from_step + columns]
        operands[0][r * to_step : r * to_step + columns] = part


def _places_reach(sizes: Sizes) -> Sequence[int]:
    taps, places, extent = sizes
    if places <= 0:
        return 0, 0, 0, 0, 0
    return up(places, COLUMNS), extent, taps, up(taps, 2), 1


def _places(operands: Sequence[Array], sizes: Sizes) -> None:
    sums, strip, offsets, weights, bias = operands
    taps, places, _ = sizes
    if places <= 0:
        return
    total = np.full(places, bias[0], np.int64)
    for t in range(taps):
        part = strip[offsets[t] : offsets[t] + places].astype(np.int64)
        total += part * int(weights[t])
    sums[:places] = wrapped(total)


CHANNELS = (
    "channels", "zero", "first0", "last0", "step0", "count1", "first1", "last1", "step1",
)  # fmt: skip


def _channels_reach(sizes: Sizes) -> Sequence[int]:
    channels, _, first0, last0, step0, count1, first1, last1, step1 = sizes
    if channels <= 0:
        return 0, 0, 0, 0
    if last0 <= first0 or last1 <= first1:
        return channels, 0, 0, channels
    image = (last0 - first0 - 1) * step0 + (last1 - first1 - 1) * step1 + channels
    return channels, image, ((last0 - 1) * count1 + last1) * channels, channels


def _channels(operands: Sequence[Array], sizes: Sizes) -> None:
    sums, image, weights, bias = operands
    channels, zero, first0, last0, step0, count1, first1, last1, step1 = sizes
    total = bias[:channels].astype(np.int64)
    for i, j in product(range(first0, last0), range(first1, last1)):
        at = (i - first0) * step0 + (j - first1) * step1
        by = weights[(i * count1 + j) * channels :][:channels].astype(np.int64)
        total += (image[at : at + channels].astype(np.int64) - zero) * by
    sums[:channels] = wrapped(total)


def _of_type(dtype: DType, suffix: str) -> tuple[MicroKernel, ...]:
    """What reads bytes, of one of both types."""
    sums, bias = Operand("sums", DType.I32, True), Operand("bias", DType.I32)
    weights, offsets = Operand("weights", DType.I16), Operand("offsets", DType.I32)
    image = Operand("image", dtype)
    gather, depthwise = "gather_codes.h", "depthwise_lanes.h"
    return (
        MicroKernel(
            f"raot_strip_{suffix}", gather, (Operand("strip", dtype, True), image), STRIP,
            _strip_reach, lambda sizes: 0, _strip,
        ),
        MicroKernel(
            f"raot_panel_s16_{suffix}", gather,
            (Operand("panel", DType.I16, True), image, offsets),
            ("depth", "columns", "extent"), _panel_reach, lambda sizes: 0, _panel,
        ),
        MicroKernel(
            f"raot_rows_s16_{suffix}", gather, (Operand("to", DType.I16, True), image), ROWS,
            rows_reach, lambda sizes: 0, _rows,
        ),
        MicroKernel(
            f"raot_lines_{suffix}", gather,
            (Operand("to", dtype, True), Operand("from", dtype)),
            ("rows", "columns", "to_step", "from_step"), _lines_reach, lambda sizes: 0, _lines,
        ),
        MicroKernel(
            f"raot_depthwise_places_{suffix}", depthwise,
            (sums, Operand("strip", dtype), offsets, weights, bias),
            ("taps", "places", "extent"), _places_reach,
            lambda sizes: sizes[0] * sizes[1], _places,
        ),
        MicroKernel(
            f"raot_depthwise_channels_{suffix}", depthwise, (sums, image, weights, bias), CHANNELS,
            _channels_reach,
            lambda sizes: sizes[0] * max(sizes[3] - sizes[2], 0) * max(sizes[7] - sizes[6], 0),
            _channels,
        ),
    )  # fmt: skip


MICRO_KERNELS = (
    MicroKernel(
        "raot_tile_s16",
        "tile_s16.h",
        (
            Operand("sums", DType.I32, True),
            Operand("left", DType.I16),
            Operand("right", DType.I16),
            Operand("bias", DType.I32),
        ),
        TILE,
        tile_reach,
        lambda sizes: sizes[0] * sizes[1] * sizes[2],
        partial(tile_of, 2),
    ),
    MicroKernel(
        "raot_offsets",
        "gather_codes.h",
        (Operand("offsets", DType.I32, True),),
        OFFSETS,
        lambda sizes: (sizes[0] * sizes[1] * sizes[2],),
        lambda sizes: 0,
        _offsets,
    ),
    *_of_type(DType.I8, "s8"),
    *_of_type(DType.U8, "u8"),
)
