# SPDX-License-Identifier: Apache-2.0
"""Matrix units for half-precision values, as they are emulated and as their meaning says, against
NumPy: all products and sums here are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.microkernels import all_micro_kernels
from tests.cuda.shim import Job, Shim

HEAD = "symbol n in 1..2\n\nfunc @main(%x: f32[n]) {\n  return %x\n}\n"
PRODUCT = """
kernel @dot_TYPE_STEPS(%x: TYPE[n, 16, STEPS], %w: TYPE[n, 8, STEPS], %b: f32[n, 16, 8]) ->
    (%y: f32[n, 16, 8]) {
  for b in 0..n parallel(block) {
    for warp in 0..1 parallel(warp) {
      reserve %left: TYPE[32, LEFT] in lane
      reserve %right: TYPE[32, RIGHT] in lane
      reserve %sums: f32[32, 4] in lane
      for l in 0..32 parallel(lane) {
        for i in 0..LEFT {
          %left[l, i] = %x[b, l // 4 + i // 2 % 2 * 8, l % 4 * 2 + i % 2 + i // 4 * 8]
        }
        for i in 0..RIGHT {
          %right[l, i] = %w[b, l // 4, l % 4 * 2 + i % 2 + i // 2 * 8]
        }
        for i in 0..4 {
          %sums[l, i] = %b[b, l // 4 + i // 2 * 8, l % 4 * 2 + i % 2]
        }
      }
      micro raot_mma_m16n8kSTEPS_TYPE(%sums[0, 0], %left[0, 0], %right[0, 0]) [4, LEFT, RIGHT]
      for l in 0..32 parallel(lane) {
        for i in 0..4 {
          %y[b, l // 4 + i // 2 * 8, l % 4 * 2 + i % 2] = %sums[l, i]
        }
      }
    }
  }
}
"""
EACH = (("LEFT", 2), ("RIGHT", 4), ("STEPS", 1))
"""What a lane has of a product: steps divided by these numbers."""


def text_of(kind: str, steps: int) -> str:
    text = PRODUCT.replace("TYPE", kind).replace("->\n    ", "-> ")
    for name, divisor in EACH:
        text = text.replace(name, str(steps // divisor))
    return text


@pytest.mark.slow
def test_products_of_matrices_of_halves_are_exact(tmp_path: Path) -> None:
    """Also where one of them changes signs alone, so that a sum becomes what it has lost by being
    rounded."""
    forms = [(kind, steps) for kind in ("f16", "bf16") for steps in (8, 16)]
    text = HEAD + "".join(text_of(*form) for form in forms)
    module = parse(text, micro_kernels=all_micro_kernels())
    random, jobs, wanted = np.random.default_rng(2), [], []
    for kernel, (kind, steps) in zip(module.kernels, forms, strict=True):
        dtype = DType(kind).numpy
        x, w = (random.integers(-9, 10, (2, rows, steps)).astype(dtype) for rows in (16, 8))
        start = random.integers(-99, 100, (2, 16, 8)).astype(np.float32)
        weights = random.random((16, 8)).astype(np.float32)
        x[1] = 0
        x[1, :, :8] = weights.astype(dtype)
        w[1] = -np.eye(8, steps)
        start[1] = weights
        wide = x.astype(np.float64) @ w.astype(np.float64).transpose(0, 2, 1)
        wanted.append((start.astype(np.float64) + wide).astype(np.float32))
        jobs.append(Job(kernel.name, (x, w, start), {"n": 2}, seed=steps))
    answers, exchanged = (
        Shim(module.kernels, module.bounds, tmp_path, exchanges=exchanges).run(jobs)
        for exchanges in (False, True)
    )
    for job, answer, other, one in zip(jobs, answers, exchanged, wanted, strict=True):
        meant = run_kernel(module.kernel_table[job.kernel], job.inputs, job.sizes)
        for outputs in (meant, answer.outputs, other.outputs):
            np.testing.assert_array_equal(outputs[0], one, job.kernel)
