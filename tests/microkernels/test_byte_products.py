# SPDX-License-Identifier: Apache-2.0
"""Products of bytes on x86-64 are exact for every instruction set, also where 16-bit sums of
products would saturate: compared with NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from platform import machine

import numpy as np
import pytest

from relax_aot.ir.microkernel import MicroKernel
from relax_aot.microkernels import all_micro_kernels
from tests.microkernels.calls import Called, differences, in_process
from tests.microkernels.samples import Array, Sample

TILES = tuple(all_micro_kernels()[name] for name in ("raot_dot4_us", "raot_dot4_su"))
WITHOUT_VNNI = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
FLAGS = {
    "sse2": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512bw": ("-mavx2", "-mfma", *WITHOUT_VNNI),
    "avx512_vnni": ("-mavx2", "-mfma", *WITHOUT_VNNI, "-mavx512vnni"),
    "avx512vl avx512_vnni": (
        "-mavx2", "-mfma", "-mavx512vl", "-mavx512vnni", "-D__AVXVNNI__",
        "-D_mm256_dpbusd_avx_epi32=_mm256_dpbusd_epi32",
        "-D_mm256_dpwssd_avx_epi32=_mm256_dpwssd_epi32",
    ),
}  # fmt: skip
"""By the features that the processor must have. The last one is the code for AVX-VNNI with the
instructions of AVX-512 for vectors of its size."""
SIZES = [
    (1, 1, 4), (1, 70, 132), (2, 64, 8), (3, 17, 36), (5, 33, 128), (9, 16, 260), (24, 15, 64),
    (25, 8, 140), (49, 40, 576),
]  # fmt: skip
"""Rows, columns and steps."""


@cache
def call(name: str) -> Called:
    return in_process(TILES, FLAGS[name])


def packed(x: Array, group: int) -> Array:
    """A matrix [steps, columns] as a right operand, padded with other numbers."""
    depth, columns = x.shape
    filled = np.full((depth, -(-columns // 16) * 16), 77, x.dtype)
    filled[:, :columns] = x
    return filled.reshape(depth // group, group, -1, 16).transpose(2, 0, 3, 1).reshape(-1)


def product(kernel: MicroKernel, sizes: tuple[int, int, int], kind: str, by_row: bool) -> Sample:
    rows, columns, depth = sizes
    rng = np.random.default_rng(depth)
    image_left = kernel.name == "raot_dot4_us"
    shapes = [(rows, depth), (depth, columns)]
    image, weights = shapes if image_left else shapes[::-1]
    if kind == "random":
        x, w = rng.integers(0, 256, image), rng.integers(-128, 128, weights)
    else:
        x, w = np.full(image, 255), np.full(weights, -128 if kind == "lowest" else 127)
    left, right = (x, w) if image_left else (w, x)
    wide = -(-columns // 16) * 16
    step = wide + 16
    bias = rng.integers(-(2**31), 2**31, rows if by_row else wide)
    exact = left @ right + (bias[:, None] if by_row else bias[:columns])
    sums = np.zeros((rows, step), np.int64)
    sums[:, :columns] = exact
    stored = np.ones((rows, step), bool)
    stored[:, :columns] = False
    end = (rows - 1) * step + wide
    types = {buffer.name: buffer.dtype.numpy for buffer in kernel.operands}
    return Sample(
        (rows, columns, depth, step, int(by_row), int(not by_row)),
        {
            "sums": np.zeros(end, np.int32),
            "left": left.astype(types["left"]).reshape(-1),
            "right": packed(right.astype(types["right"]), 4 if image_left else 2),
            "bias": bias.astype(np.int32),
        },
        {
            "sums": np.ma.masked_array(
                sums.astype(np.uint32).view(np.int32).reshape(-1)[:end], stored.reshape(-1)[:end]
            )
        },
    )


def has(features: str) -> bool:
    if machine() != "x86_64":
        return False
    return {*features.split()} <= {*Path("/proc/cpuinfo").read_text().split()}


@pytest.mark.parametrize("kind", ["random", "lowest", "highest"])
@pytest.mark.parametrize("name", [name for name in FLAGS if has(name)])
def test_products_are_exact(name: str, kind: str) -> None:
    for kernel in TILES:
        samples = [
            product(kernel, sizes, kind, by_row) for sizes in SIZES for by_row in (False, True)
        ]
        assert not differences(kernel, samples, call(name))
