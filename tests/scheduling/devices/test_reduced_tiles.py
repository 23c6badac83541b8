# SPDX-License-Identifier: Apache-2.0
"""Smaller tiles, for launches for which registers did not suffice."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.lowering import lower
from relax_aot.scheduling import fusion_policy, schedule_device
from relax_aot.scheduling.devices.launches import array_registers, launches
from relax_aot.scheduling.devices.matrix_tiles import DOT_TILES, FORGETFUL, TILES, Tile
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.devices.products import TILES as FLOAT_TILES
from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets.cuda_mma import TARGET
from tests.cuda.test_spills import known_weights
from tests.scheduling.devices import test_matrix_units as halves
from tests.scheduling.devices import test_products as floats
from tests.scheduling.devices.kernels import device_form, inputs
from tests.transforms.examples import example_module


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("depth", [16, 40, 200])
def test_reduced_products_of_halves_have_the_bits_of_others(depth: int, times: int) -> None:
    tiles = replace(halves.TILES, slim=(), small=Tile(32, 32, 16, (1, 1)), enough=1)
    made = partial(matrix_product, tiles=tiles)
    text = halves.matmul(depth, 40, w="j, k")
    plain, usual, _ = device_form(text, made)
    _, reduced, _ = device_form(text, made, reduced=(0, 1) * times)
    assert usual is not None and reduced is not None
    assert depth == 16 or usual.body != reduced.body, "few parts keep no addresses"
    for n in (9, 33):
        data = [halves.whole(array) for array in inputs(plain, {"n": n})]
        (expected,) = run_kernel(usual, data, {"n": n})
        (found,) = run_kernel(reduced, data, {"n": n}, seed=1)
        np.testing.assert_array_equal(found.astype(float), expected.astype(float))


def test_reduced_products_of_floats_have_the_bits_of_the_plain_loops() -> None:
    text = floats.matmul(24, 40)
    made = partial(product, tiles=floats.TILES)
    plain, usual, _ = device_form(text, made)
    _, reduced, _ = device_form(text, made, reduced=(0,))
    assert usual is not None and reduced is not None
    few, many = (
        [array_registers(one.kernel) for one in launches(kernel)] for kernel in (reduced, usual)
    )
    assert few[0] < many[0] and few[1] == many[1], "the first launch alone"
    for n in (1, 33, 40):
        data = inputs(plain, {"n": n})
        (expected,) = run_kernel(plain, data, {"n": n})
        (found,) = run_kernel(reduced, data, {"n": n}, seed=1)
        np.testing.assert_array_equal(found, expected)


def test_reduced_tiles_keep_their_threads() -> None:
    """Whose warps have whole matrices."""
    tiles = [getattr(every, one.name) for every in (TILES, DOT_TILES) for one in fields(every)]
    for tile in (one for one in (*tiles, *TILES.slim) if isinstance(one, Tile)):
        assert tile.reduced(0) == tile
        assert tile.rounds == FORGETFUL or tile.reduced(1) == replace(tile, rounds=FORGETFUL)
        for times in range(5):
            one = tile.reduced(times)
            assert one.threads == tile.threads and (one.is_whole or one.lines == tile.lines)
    for every in (FLOAT_TILES.large, FLOAT_TILES.small, *FLOAT_TILES.thin):
        assert {every.reduced(times).threads for times in range(4)} == {every.threads}
    assert [FLOAT_TILES.large.reduced(n).own for n in range(4)] == [(8, 8), (8, 4), (4, 4), (4, 4)]
    assert TILES.large.reduced(2).own == (32, 32)


@pytest.mark.parametrize("channels", [24, 64])
def test_reduced_convolutions_have_other_warps(channels: int) -> None:
    """Patches of an image have warps with fewer results, at last those of a product."""
    module = example_module(known_weights("f16", channels, 96, 3, 1))
    module = fuse(lower(module), fusion_policy(TARGET)).module
    (kernel,) = module.kernels
    forms = [
        schedule_device(module, replace(TARGET, reduced=((kernel.name, 0),) * times))
        for times in range(4)
    ]
    registers = [max(map(array_registers, [*one.kernels])) for one in forms]
    assert registers[3] < registers[0]
