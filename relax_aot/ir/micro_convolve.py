"""Convolutions of whole images as one function each, for programs that shall be small."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from relax_aot.ir.micro import Array, MicroKernel, Operand, Sizes
from relax_aot.ir.types import DType

TABLE = "raot_convolve"
"""The C struct that holds the sizes."""
SIZES = (
    "filters", "channels", "lines", "pixels", "out_lines", "out_pixels", "line_taps",
    "pixel_taps", "line_step", "pixel_step", "line_pad", "pixel_pad", "line_apart", "pixel_apart",
    "low", "high", "starts", "adds", "direct", "tile",
)  # fmt: skip
COLUMNS = 32
"""As RAOT_TILE_COLUMNS."""


def _named(sizes: Sizes) -> dict[str, int]:
    return dict(zip(SIZES, sizes, strict=True))


def _reach(packed: bool, sizes: Sizes) -> list[int]:
    s = _named(sizes)
    taps = s["channels"] * s["line_taps"] * s["pixel_taps"]
    out = s["filters"] * s["out_lines"] * s["out_pixels"]
    filters = -(-s["filters"] // COLUMNS) * COLUMNS if packed else s["filters"]
    image = s["channels"] * s["lines"] * s["pixels"]
    start = s["filters"] if s["starts"] else 0
    return [out, image, filters * taps, start, out if s["adds"] else 0]


def _multiply_adds(sizes: Sizes) -> int:
    s = _named(sizes)
    taps = s["channels"] * s["line_taps"] * s["pixel_taps"]
    return s["filters"] * s["out_lines"] * s["out_pixels"] * taps


def _fused(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float32, rounded once: in double to odd, which a second rounding keeps."""
    product_, add = a.astype(np.float64) * b, c.astype(np.float64)
    total = np.atleast_1d(product_ + add)
    part = total - product_
    error = (product_ - (total - part)) + (add - part)
    bits = total.view(np.int64)
    inexact = np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    bits += np.where(inexact, np.where((error > 0) == (total > 0), 1, -1), 0)
    return total.astype(np.float32)


def _run(last: bool, operands: Sequence[Array], sizes: Sizes) -> None:
    s = _named(sizes)
    out, image, weights, start, other = operands[:5]
    extents = (s["lines"], s["pixels"], s["channels"])
    places = (s["out_lines"], s["out_pixels"])
    taps = (s["line_taps"], s["pixel_taps"])
    if last:
        image = image.reshape(extents)
        weights = weights.reshape(-1, *taps, s["channels"], COLUMNS)
        weights = np.moveaxis(weights, -1, 1).reshape(-1, *taps, s["channels"])[: s["filters"]]
        shape = (*places, s["filters"])
        order = [(y, x, c) for y, x, c in product(*map(range, (*taps, s["channels"])))]
    else:
        image = np.moveaxis(image.reshape(s["channels"], *extents[:2]), 0, -1)
        weights = np.moveaxis(weights.reshape(s["filters"], s["channels"], *taps), 1, -1)
        shape = (s["filters"], *places)
        order = [(y, x, c) for c, y, x in product(*map(range, (s["channels"], *taps)))]
    sums = np.zeros((*places, s["filters"]), np.float32)
    sums += start if s["starts"] else np.float32(0)
    lines, pixels = np.meshgrid(*map(np.arange, places), indexing="ij")
    for y, x, c in order:
        i = lines * s["line_step"] - s["line_pad"] + y * s["line_apart"]
        j = pixels * s["pixel_step"] - s["pixel_pad"] + x * s["pixel_apart"]
        inside = (i >= 0) & (i < s["lines"]) & (j >= 0) & (j < s["pixels"])
        factor = np.where(
            inside, image[i.clip(0, s["lines"] - 1), j.clip(0, s["pixels"] - 1), c], 0
        )
        found = _fused(factor[..., None].astype(np.float32), weights[:, y, x, c], sums)
        sums = np.where(inside[..., None] | (not last), found, sums)
    if not last:
        sums = np.moveaxis(sums, -1, 0)
    if s["adds"]:
        sums = sums + other.reshape(shape)
    low, high = (np.array(s[name] & 0xFFFF, np.uint32) << np.uint32(16) for name in ("low", "high"))
    clipped = np.minimum(np.maximum(sums, low.view(np.float32)), high.view(np.float32))
    out[:] = clipped.reshape(-1)


def _run_each(operands: Sequence[Array], sizes: Sizes) -> None:
    """As the others do for each channel by itself."""
    s = _named(sizes)
    out, image, weights, start, other = operands
    depth, one = s["channels"], {**s, "filters": 1, "channels": 1}
    for c in range(depth):
        made = np.empty(len(out) // depth, np.float32)
        added = other[c::depth] if s["adds"] else other
        begun = start[c : c + 1] if s["starts"] else start
        packed = np.zeros((s["line_taps"] * s["pixel_taps"], COLUMNS), np.float32)
        packed[:, 0] = weights[c::depth]
        mine = (made, image[c::depth], packed.reshape(-1), begun, added)
        _run(True, mine, [one[name] for name in SIZES])
        out[c::depth] = made


def _run_planes(operands: Sequence[Array], sizes: Sizes) -> None:
    """As for channels last, turned."""
    s = _named(sizes)
    depth = s["channels"]
    turned = [a.reshape(depth, -1).T.reshape(-1) for a in operands[:3]]
    other = operands[4]
    if s["adds"]:
        other = other.reshape(depth, -1).T.reshape(-1)
    _run_each((*turned, operands[3], other), sizes)
    operands[0][:] = turned[0].reshape(-1, depth).T.reshape(-1)


def _each_reach(sizes: Sizes) -> Sequence[int]:
    s = _named(sizes)
    out, image, _, start, other = _reach(False, sizes)
    return [out, image, s["channels"] * s["line_taps"] * s["pixel_taps"], start, other]


def _panel_reach(sizes: Sizes) -> Sequence[int]:
    s = _named(sizes)
    taps = s["channels"] * s["line_taps"] * s["pixel_taps"]
    return [*_reach(False, sizes), 0 if s["direct"] else taps * s["tile"]]


OPERANDS = (
    Operand("out", DType.F32, True),
    Operand("image", DType.F32),
    Operand("weights", DType.F32),
    Operand("start", DType.F32),
    Operand("other", DType.F32),
)
MICRO_KERNELS = (
    MicroKernel(
        "raot_convolve_f32",
        "convolve.h",
        (*OPERANDS, Operand("panel", DType.F32, True)),
        SIZES,
        _panel_reach,
        _multiply_adds,
        lambda operands, sizes: _run(False, operands, sizes),
        TABLE,
    ),
    MicroKernel(
        "raot_convolve_last_f32",
        "convolve.h",
        OPERANDS,
        SIZES,
        lambda sizes: _reach(True, sizes),
        _multiply_adds,
        lambda operands, sizes: _run(True, operands, sizes),
        TABLE,
    ),
    *(
        MicroKernel(
            name,
            "convolve.h",
            OPERANDS,
            SIZES,
            _each_reach,
            lambda sizes: _multiply_adds(sizes) // sizes[1],
            run,
            TABLE,
        )
        for name, run in (
            ("raot_convolve_each_f32", _run_each),
            ("raot_convolve_planes_f32", _run_planes),
        )
    ),
)
