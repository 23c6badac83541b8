# SPDX-License-Identifier: Apache-2.0
"""Sums of floats that become bytes keep their order on devices: a tie that rounds to the other byte
is a difference that later layers make larger."""

from __future__ import annotations

import numpy as np

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.targets.cuda import TARGET
from tests.transforms.examples import example_module

POOL = """
    kernel @pool(%x: i8[64, 8, 8]) -> (%y: i8[64]) {
      for c in 0..64 {
        local total: f32 = 0.0:f32
        for i in 0..8 {
          for j in 0..8 {
            local value: f32 = (cast(%x[c, i, j], f32, wrap) * 0.1270691454410553:f32)
            total = (total + value)
          }
        }
        %y[c] = cast(rint(((total / 64.0:f32) / 0.1270691454410553:f32)), i8, saturate)
      }
    }"""


def test_a_rounded_mean_has_the_bits_of_the_plain_loop() -> None:
    """Sums of 64 values that are ties of two bytes, up to the rounding of the sum."""
    module = example_module(POOL)
    (plain,), (device,) = module.kernels, schedule_device(module, TARGET).kernels
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 120, (64, 8, 8)).astype(np.int8)
    excess = (x.sum((1, 2), np.int64) - 32) % 64
    for channel, most in enumerate(excess):
        x[channel].reshape(-1)[:most] -= (x[channel].reshape(-1)[:most] > -128).astype(np.int8)
    (expected,), (found,) = (run_kernel(kernel, [x], {}) for kernel in (plain, device))
    np.testing.assert_array_equal(found, expected)
