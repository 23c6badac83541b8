# SPDX-License-Identifier: Apache-2.0
"""Products of half-precision values with few columns, whose tiles say how their loops are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.devices.matrix_tiles import TILES, Tile
from relax_aot.scheduling.devices.matrix_units import matrix_product
from tests.scheduling.devices.kernels import device_form, inputs
from tests.scheduling.devices.test_matrix_units import matmul, whole


@pytest.mark.slow
@pytest.mark.parametrize("tile", TILES.slim, ids=lambda tile: str(tile.columns))
@pytest.mark.parametrize("w", ["k, j", "j, k"])
def test_few_columns_have_the_values_of_the_plain_loops(w: str, tile: Tile) -> None:
    """13 parts: more than are unrolled, of which one is left over and one is no whole one."""
    tiles = replace(TILES, slim=(replace(tile, rows=32, columns=16, steps=16, warps=(1, 1)),))
    text = matmul(200, 16, w=w)
    plain, device, _ = device_form(text, partial(matrix_product, tiles=tiles))
    assert device is not None
    for n in (9, 33):
        data = [whole(array) for array in inputs(plain, {"n": n})]
        (expected,) = run_kernel(plain, data, {"n": n})
        (found,) = run_kernel(device, data, {"n": n}, seed=1)
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(("columns", "warps"), [(1, 2), (16, 2), (17, 2), (64, 4), (65, 8)])
def test_few_columns_have_tiles_of_few_warps(columns: int, warps: int) -> None:
    _, device, _ = device_form(matmul(64, columns, w="j, k"), matrix_product)
    assert device is not None
    assert launches(device)[-1 if columns <= 64 else 0].threads == warps * 32
