# SPDX-License-Identifier: Apache-2.0
"""Products of floats in tiles: the bits of the plain loops at every size around the edges of tiles,
and planted faults that are found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import RaceError, run_kernel
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import For, Kernel, Micro, Store, walk
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.devices.products import Tile, Tiles, product
from relax_aot.scheduling.targets import Target
from tests.scheduling.devices.kernels import (
    ORDERED,
    device_form,
    inputs,
    without_barriers,
    without_conditions,
)

TILES = Tiles(Tile(32, 64, 4, (4, 8)), Tile(16, 32, 4, (4, 4)), Tile(16, 32, 8, (4, 4)), enough=2)
"""Small ones: two blocks or more take the large tile."""
MATMUL = """
    symbol n in 0..40
    kernel @dot(%x: f32[SHAPE], %w: f32[WEIGHTS], %b: f32[COLUMNS]) -> (%y: f32[n, COLUMNS]) {
      for i in 0..n {
        for j in 0..COLUMNS {
          local sum: f32 = START
          for k in 0..DEPTH {
            sum = fma(LEFT, RIGHT, sum)
          }
          %y[i, j] = VALUE
        }
      }
    }"""


def matmul(
    depth: int, columns: int, *, rows: bool = True, steps: bool = True,
    start: str = "0.0:f32", value: str = "max((sum + %b[j]), 0.0:f32)",
) -> str:  # fmt: skip
    """`rows`, `steps`: whether the left and the right factor have rows of the plain order."""
    texts = {
        "SHAPE": f"n, {depth}" if rows else f"{depth}, n",
        "LEFT": "%x[i, k]" if rows else "%x[k, i]",
        "WEIGHTS": f"{depth}, {columns}" if steps else f"{columns}, {depth}",
        "RIGHT": "%w[k, j]" if steps else "%w[j, k]",
        "COLUMNS": str(columns), "DEPTH": str(depth), "START": start, "VALUE": value,
    }  # fmt: skip
    text = MATMUL
    for name, filled in texts.items():
        text = text.replace(name, filled)
    return text


BATCH = """
    symbol n in 1..3
    symbol k in 0..9
    kernel @dot(%x: f32[n, 5, k], %w: f32[n, k, 7]) -> (%y: f32[n, 5, 7]) {
      for b in 0..n {
        for i in 0..5 {
          for j in 0..7 {
            local sum: f32 = 0.0:f32
            for d in 0..k {
              sum = fma(%x[b, i, d], %w[b, d, j], sum)
            }
            %y[b, i, j] = sum
          }
        }
      }
    }"""
CONVOLUTION = """
    symbol n in 1..2
    const %w: f32[6, 2, 3, 3] = splat 0.5
    kernel @conv(%x: f32[n, 2, 6, 5], %w: f32[6, 2, 3, 3], %b: f32[6]) -> (%y: f32[n, 6, 6, 3]) {
      for b in 0..n {
        for c in 0..6 {
          for i in 0..6 {
            for j in 0..3 {
              local sum: f32 = %b[c]
              for d in 0..2 {
                for k in max(-i + 1, 0)..min(-i + 7, 3) {
                  for l in max(-2*j + 1, 0)..min(-2*j + 6, 3) {
                    sum = fma(%x[b, d, i + k - 1, 2*j + l - 1], %w[c, d, k, l], sum)
                  }
                }
              }
              %y[b, c, i, j] = sum
            }
          }
        }
      }
    }"""
DECODED = """
    symbol n in 1..9
    kernel @dot(%x: f32[n, 8], %packed: u8[4, 12], %scales: f32[12]) -> (%y: f32[n, 12]) {
      for i in 0..n {
        for j in 0..12 {
          local sum: f32 = 0.0:f32
          for k in 0..8 {
            sum = fma(%x[i, k], ((cast(((%packed[k // 2, j] >> cast(index(4*(k % 2)), u8, wrap))
              & 15:u8), f32, wrap) - 8.0:f32) * %scales[j]), sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
GATHERED = """
    symbol n in 1..5
    kernel @dot(%table: f32[9, 8], %at: i64[n], %w: f32[8, 5]) -> (%y: f32[n, 5]) {
      for i in 0..n {
        checked row in 0..8 = %at[i]
        for j in 0..5 {
          local sum: f32 = 0.0:f32
          for k in 0..8 {
            sum = fma(%table[row, k], %w[k, j], sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
HALF = """
    symbol n in 1..9
    kernel @dot(%x: f16[n, 7], %w: f16[7, 12], %b: f16[12]) -> (%y: f16[n, 12]) {
      for i in 0..n {
        for j in 0..12 {
          local sum: f16 = 0.0:f16
          for k in 0..7 {
            sum = (sum + (%x[i, k] * %w[k, j]))
          }
          %y[i, j] = (cast(cast(sum, f32, wrap), f16, wrap) + %b[j])
        }
      }
    }"""
FIRST_LAYER = """
    symbol n in 1..2
    symbol h in 1..5
    const %w: f32[4, 2, 7, 5] = splat 0.5
    kernel @conv(%x: f32[n, 2, h, 5], %w: f32[4, 2, 7, 5]) -> (%y: f32[n, 4, h, 3]) {
      for b in 0..n {
        for c in 0..4 {
          for i in 0..h {
            for j in 0..3 {
              local sum: f32 = 0.0:f32
              for d in 0..2 {
                for k in max(-i + 3, 0)..min(-i + h + 3, 7) {
                  for l in max(-2*j + 2, 0)..min(-2*j + 7, 5) {
                    sum = fma(%x[b, d, i + k - 3, 2*j + l - 2], %w[c, d, k, l], sum)
                  }
                }
              }
              %y[b, c, i, j] = max(sum, 0.0:f32)
            }
          }
        }
      }
    }"""
CHANNELS_LAST = FIRST_LAYER.replace("n, 2, h, 5", "n, h, 5, 2").replace("4, 2, 7, 5", "4, 7, 5, 2")
CHANNELS_LAST = CHANNELS_LAST.replace(
    "b, d, i + k - 3, 2*j + l - 2", "b, i + k - 3, 2*j + l - 2, d"
)
CHANNELS_LAST = CHANNELS_LAST.replace("%w[c, d, k, l]", "%w[c, k, l, d]")
REFLECTED = """
    symbol n in 1..5
    const %w: f32[6, 8] = splat 0.5
    kernel @conv(%x: f32[n, 9], %w: f32[6, 8]) -> (%y: f32[n, 6, 5]) {
      for b in 0..n {
        for c in 0..6 {
          for i in 0..5 {
            local sum: f32 = 0.0:f32
            for k in 0..8 {
              sum = fma(%x[b, -max(-2*i - k + 8, 2*i + k - 8) + 8], %w[c, k], sum)
            }
            %y[b, c, i] = sum
          }
        }
      }
    }"""
CASES: dict[str, tuple[str, tuple[dict[str, int], ...]]] = {
    "rows below, at and above a tile": (matmul(6, 33), tuple({"n": n} for n in (0, 1, 16, 17, 40))),
    "both sides of the edges of columns": (matmul(4, 33), ({"n": 3}, {"n": 33})),
    "transposed factors": (matmul(5, 8, rows=False, steps=False), ({"n": 9},)),
    "transposed left": (matmul(8, 8, rows=False), ({"n": 9},)),
    "whole tiles": (matmul(8, 32), ({"n": 16},)),
    "sums that begin with a bias": (matmul(5, 9, start="%b[j]", value="sum"), ({"n": 9},)),
    "a batch of dynamic depth": (BATCH, ({"n": 3, "k": 0}, {"n": 1, "k": 9})),
    "a convolution with borders and strides": (CONVOLUTION, ({"n": 2},)),
    "a first layer": (FIRST_LAYER, ({"n": 1, "h": 1}, {"n": 2, "h": 5})),
    "a first layer with channels last": (CHANNELS_LAST, ({"n": 1, "h": 3},)),
    "a reflected border": (REFLECTED, ({"n": 1}, {"n": 5})),
    "weights of four bits": (DECODED, ({"n": 9},)),
    "half precision": (HALF, ({"n": 9},)),
    "another half precision": (HALF.replace("f16", "bf16"), ({"n": 9},)),
    "rows at indices from data": (GATHERED, ({"n": 5},)),
}


UNAWAITED = replace(ORDERED, needs=("cp_async",))
"""A target whose threads do not wait for copies."""


@cache
def both(case: str, target: Target = ORDERED) -> tuple[Kernel, Kernel]:
    """The plain kernel and its device form."""
    strategy = partial(product, tiles=TILES)
    plain, device, _ = device_form(CASES[case][0], strategy, target=target)
    assert device is not None
    return plain, device


@pytest.mark.parametrize("target", [ORDERED, UNAWAITED], ids=["awaited", "unawaited"])
@pytest.mark.parametrize("case", CASES)
def test_tiles_have_the_bits_of_the_plain_loops(case: str, target: Target) -> None:
    plain, device = both(case, target)
    for sizes in CASES[case][1]:
        data = inputs(plain, sizes)
        (expected,) = run_kernel(plain, data, sizes)
        (found,) = run_kernel(device, data, sizes, seed=1)
        np.testing.assert_array_equal(found, expected)


THIN = (Tile(16, 64, 4, (4, 8)), Tile(64, 16, 4, (8, 4)))
"""Tiles of twice as many lines as threads."""
LOW = """
    symbol n in 0..140
    kernel @dot(%x: f32[n, 6], %w: f32[13, 6], %b: f32[13]) -> (%y: f32[13, n]) {
      for c in 0..13 {
        for i in 0..n {
          local sum: f32 = %b[c]
          for k in 0..6 {
            sum = fma(%x[i, k], %w[c, k], sum)
          }
          %y[c, i] = sum
        }
      }
    }"""


@pytest.mark.parametrize("target", [ORDERED, UNAWAITED], ids=["awaited", "unawaited"])
@pytest.mark.parametrize(
    "text",
    [LOW, LOW.replace("n, 6", "6, n").replace("%x[i, k]", "%x[k, i]"), matmul(9, 12),
     matmul(5, 16, rows=False, steps=False)],
    ids=["rows", "rows of steps", "columns", "columns of steps"],
)  # fmt: skip
def test_thin_tiles_have_the_bits_of_the_plain_loops(text: str, target: Target) -> None:
    tiles = replace(TILES, thin=THIN, enough=1)
    plain, device, _ = device_form(
        text.replace("0..40", "0..140"), partial(product, tiles=tiles), target=target
    )
    assert device is not None
    assert [launch.threads for launch in launches(device)] == [32, 32]
    for n in (0, 1, 63, 64, 65, 140):
        data = inputs(plain, {"n": n})
        (expected,) = run_kernel(plain, data, {"n": n})
        (found,) = run_kernel(device, data, {"n": n}, seed=1)
        np.testing.assert_array_equal(found, expected)


def test_one_launch_of_each_size_has_blocks() -> None:
    _, device = both("rows below, at and above a tile")
    for n, expected in ((0, [0, 0]), (1, [0, 2]), (32, [0, 4]), (33, [2, 0]), (40, [2, 0])):
        grids = [launch.grid.evaluate({"n": n}) for launch in launches(device)]
        assert grids == expected, n


def test_no_tile_is_half_empty_at_all_sizes() -> None:
    """That of small sizes excepted."""
    tiles = replace(TILES, thin=(TILES.small, replace(TILES.small, columns=8, own=(4, 2))))
    _, device, _ = device_form(matmul(8, 30), partial(product, tiles=tiles))
    assert device is not None and len(launches(device)) == 1, "30 of 64 columns"
    _, device, _ = device_form(matmul(8, 40), partial(product, tiles=tiles))
    assert device is not None and len(launches(device)) == 2


def test_few_steps_are_two_parts() -> None:
    """Compilers load all steps of a single part ahead: spills."""
    tile = Tile(128, 128, 8, (8, 8))
    steps = {total: tile.for_steps(Dim.of(total)).steps for total in (1, 4, 5, 8, 9)}
    assert steps == {1: 4, 4: 4, 5: 4, 8: 4, 9: 8}
    assert tile.for_steps(Dim.of("n")) == tile


@pytest.mark.parametrize("target", [ORDERED, UNAWAITED], ids=["awaited", "unawaited"])
def test_two_parts_are_copied_before_their_loop(target: Target) -> None:
    _, device, _ = device_form(matmul(6, 33), partial(product, tiles=TILES), target=target)
    assert device is not None
    every = (one for one in walk(device.body) if isinstance(one, For))
    loops = [one for one in every if one.variable.startswith("half")]
    assert len(loops) == 2, "one of each tile"
    for one in walk(tuple(loops)):
        assert not (isinstance(one, Micro) and "copy" in one.name and "wait" not in one.name)
        assert not (isinstance(one, Store) and one.buffer.scope == "shared")


@pytest.mark.parametrize("target", [ORDERED, UNAWAITED], ids=["awaited", "unawaited"])
def test_planted_faults_are_found(target: Target) -> None:
    plain, device = both("rows below, at and above a tile", target)
    data = inputs(plain, {"n": 17})
    with pytest.raises(RaceError):
        run_kernel(without_barriers(device), data, {"n": 17})
    with pytest.raises(AssertionError):
        run_kernel(without_conditions(device, "row"), data, {"n": 17})
