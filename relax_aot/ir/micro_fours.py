"""Micro-kernels of integer contractions on cores with vectors that multiply fours of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from relax_aot.ir.micro import Array, MicroKernel, Operand, Sizes
from relax_aot.ir.micro_tiles import COLUMNS, ROWS, TILE, rows_reach, tile_of, tile_reach, up
from relax_aot.ir.types import DType

GROUP = 4
HEADER = "tile_s8.h"


def _panel_reach(sizes: Sizes) -> Sequence[int]:
    depth, columns, extent = sizes
    if min(depth, columns) <= 0:
        return 0, 0, 0
    return up(depth, GROUP) * COLUMNS, extent, depth


def _panel(operands: Sequence[Array], sizes: Sizes) -> None:
    panel, image, offsets = operands
    depth, columns, _ = sizes
    if min(depth, columns) <= 0:
        return
    cells = panel.reshape(-1, COLUMNS, GROUP)
    for k in range(depth):
        part = image[offsets[k] : offsets[k] + columns].astype(np.int64)
        cells[k // GROUP, :columns, k % GROUP] = part - moved(image)


def moved(image: Array) -> int:
    """How much less the codes of a tile are than those of an image."""
    return 128 if image.dtype == np.uint8 else 0


def _rows(operands: Sequence[Array], sizes: Sizes) -> None:
    to, image = operands
    zero, rows, row_step, depth = sizes[:4]
    levels = [sizes[i : i + 4] for i in range(4, 16, 4)]
    cut = any(last - first != count for count, first, last, _ in levels)
    for r in range(rows):
        if cut:
            to[r * depth : (r + 1) * depth] = (zero - moved(image) + 128) % 256 - 128
        for turn in product(*(range(first, last) for _, first, last, _ in levels)):
            place = sum((at - level[1]) * level[3] for at, level in zip(turn, levels, strict=True))
            i, j, t = turn
            k = (i * levels[1][0] + j) * levels[2][0] + t
            to[r * depth + k] = int(image[r * row_step + place]) - moved(image)


def _of_type(dtype: DType, suffix: str) -> tuple[MicroKernel, ...]:
    image = Operand("image", dtype)
    return (
        MicroKernel(
            f"raot_panel_s8_{suffix}", HEADER,
            (Operand("panel", DType.I8, True), image, Operand("offsets", DType.I32)),
            ("depth", "columns", "extent"), _panel_reach, lambda sizes: 0, _panel,
        ),
        MicroKernel(
            f"raot_rows_s8_{suffix}", HEADER, (Operand("to", DType.I8, True), image), ROWS,
            rows_reach, lambda sizes: 0, _rows,
        ),
    )  # fmt: skip


MICRO_KERNELS = (
    MicroKernel(
        "raot_tile_s8",
        HEADER,
        (
            Operand("sums", DType.I32, True),
            Operand("left", DType.I8),
            Operand("right", DType.I8),
            Operand("bias", DType.I32),
        ),
        TILE,
        tile_reach,
        lambda sizes: sizes[0] * sizes[1] * sizes[2],
        partial(tile_of, GROUP),
    ),
    *_of_type(DType.I8, "s8"),
    *_of_type(DType.U8, "u8"),
)
