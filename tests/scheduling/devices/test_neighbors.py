# SPDX-License-Identifier: Apache-2.0
"""Neighbors share the quotients of divisors that are multiples of their number."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Load, expressions, walk
from relax_aot.scheduling.devices.neighbors import shared_quotients
from relax_aot.scheduling.devices.products import product
from tests.scheduling.devices.kernels import device_form, inputs
from tests.scheduling.devices.test_products import TILES

FIRST, NEAR = Dim.of("first"), Dim.of("e")


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 6, 8, 12, 64])
@pytest.mark.parametrize("index", ["quotient", "remainder", "both"])
def test_values_are_the_same(index: str, divisor: int) -> None:
    at = FIRST + NEAR
    dim = {
        "quotient": at // divisor * 5 + at,
        "remainder": at % divisor + 7,
        "both": at // divisor % 2 * (at % divisor // 2),
    }[index]
    found = shared_quotients(dim, FIRST, NEAR, 4)
    for first in range(0, 160, 4):
        for e in range(4):
            sizes = {"first": first, "e": e}
            assert found.evaluate(sizes) == dim.evaluate(sizes)


def test_only_the_first_element_is_divided() -> None:
    assert shared_quotients((FIRST + NEAR) // 64, FIRST, NEAR, 4) == FIRST // 64
    other = (FIRST + NEAR + 1) // 64
    assert shared_quotients(other, FIRST, NEAR, 4) == other, "perhaps in the next group"
    assert shared_quotients((FIRST + NEAR) // 6, FIRST, NEAR, 4) == (FIRST + NEAR) // 6


@pytest.mark.parametrize("depth", [16, 32, 48])
def test_weights_in_groups_have_the_bits_of_the_plain_loops(depth: int) -> None:
    text = f"""
    symbol n in 0..40
    kernel @dot(%x: f32[n, {depth}], %w: i8[24, {depth}], %s: SCALES) -> (%y: f32[n, 24]) {{
      for i in 0..n {{
        for j in 0..24 {{
          local sum: f32 = 0.0:f32
          for k in 0..{depth} {{
            sum = fma(%x[i, k], (cast(%w[j, k], f32, wrap) * %s[j, k//8]), sum)
          }}
          %y[i, j] = sum
        }}
      }}
    }}"""
    text = text.replace("SCALES", f"f32[24, {depth // 8}]")
    plain, device, _ = device_form(text, partial(product, tiles=TILES))
    assert device is not None
    loads = (e for stmt in walk(device.body) for e in expressions(stmt) if isinstance(e, Load))
    places = [load.index[1] for load in loads if load.buffer.name == "s"]
    assert places and all(len(place.symbols) <= 1 for place in places), "none of each neighbor"
    for n in (1, 17, 40):
        data = inputs(plain, {"n": n})
        (expected,) = run_kernel(plain, data, {"n": n})
        (found,) = run_kernel(device, data, {"n": n}, seed=1)
        np.testing.assert_array_equal(found, expected)
