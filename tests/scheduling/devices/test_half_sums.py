# SPDX-License-Identifier: Apache-2.0
"""Partial sums of half-precision values are floats on devices, as scalars are in plain loops:
memory of halves would round each of them."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.targets.cuda import TARGET
from tests.transforms.examples import example_module

ROWS = """
    kernel @sums(%x: f16[{rows}, {columns}]) -> (%y: f16[{rows}]) {{
      for i in 0..{rows} {{
        local total: f16 = 0.0:f16
        for j in 0..{columns} {{
          total = (total + %x[i, j])
        }}
        %y[i] = total
      }}
    }}"""
WHOLE = """
    kernel @sums(%x: f16[40000]) -> (%y: f16[1]) {
      local total: f16 = 0.0:f16
      for j in 0..40000 {
        total = (total + %x[j])
      }
      %y[0] = total
    }"""


@pytest.mark.parametrize(
    "text, ulps",
    [
        pytest.param(ROWS.format(rows=40, columns=600), 0.51, id="warps"),
        pytest.param(ROWS.format(rows=1, columns=3000), 0.51, id="block"),
        # Five parts are a scalar each, with a quarter of the spacing of their sum.
        pytest.param(WHOLE, 0.51 + 5 * 0.125, id="parts"),
    ],
)
def test_each_scalar_is_rounded_once(text: str, ulps: float) -> None:
    (kernel,) = schedule_device(example_module(text), TARGET).kernels
    shape = [size.constant for size in kernel.inputs[0].shape]
    for seed in range(6):
        x = np.random.default_rng(seed).uniform(0, 0.4, shape).astype(np.float16)
        (found,) = run_kernel(kernel, [x], {})
        exact = x.astype(np.float64).sum(-1)
        # Sums of floats are 200 times as exact as the result.
        assert (np.abs(found - exact) <= np.spacing(exact.astype(np.float16)) * ulps).all()
