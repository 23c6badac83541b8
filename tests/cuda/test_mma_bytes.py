# SPDX-License-Identifier: Apache-2.0
"""Matrix units for bytes, as they are emulated and as their meaning says, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.microkernels import all_micro_kernels
from tests.cuda.shim import Job, Shim

HEAD = "symbol n in 1..32\n\nfunc @main(%x: f32[n]) {\n  return %x\n}\n"
PRODUCT = """
kernel @dot_LEFT_RIGHT(
    %x: LEFT[16, 32], %w: RIGHT[16, 32], %b: i32[16, 16]
  ) -> (%y: i32[16, 16], %rows: i32[16], %columns: i32[16]) {
  for b in 0..1 parallel(block) {
    reserve %left_tile: LEFT[16, 48] in shared
    reserve %right_tile: RIGHT[16, 48] in shared
    for warp in 0..1 parallel(warp) {
      reserve %left: LEFT[32, 16] in lane
      reserve %right: RIGHT[32, 16] in lane
      reserve %sums: i32[32, 2, 4] in lane
      reserve %left_sums: i32[32, 2] in lane
      reserve %right_sums: i32[32, 2] in lane
      reserve %row_sums: i32[32, 2] in lane
      reserve %column_sums: i32[32, 4] in lane
      for l in 0..32 parallel(lane) {
        micro raot_copy_async_LEFT(
          %left_tile[l // 2, l % 2 * 16], %x[l // 2, l % 2 * 16]) [n, 0, 0, 0, 0, 0]
        micro raot_copy_async_RIGHT(
          %right_tile[l // 2, l % 2 * 16], %w[l // 2, l % 2 * 16]) [16, 0, 0, 0, 0, 0]
        for i in 0..2 {
          %left_sums[l, i] = 0:i32
          %right_sums[l, i] = 0:i32
          for j in 0..4 {
            %sums[l, i, j] = %b[l // 4 + j // 2 * 8, l % 4 * 2 + j % 2 + i * 8]
          }
        }
      }
      micro raot_wait_copies() []
      barrier warp
      micro raot_load_left_LEFT(%left[0, 0], %left_tile[0, 0]) [48, 0, 16]
      micro raot_load_right_RIGHT(%right[0, 0], %right_tile[0, 0]) [48, 0, 16]
      for i in 0..2 {
        micro raot_mma_m16n8k32_LEFT_RIGHT(
          %sums[0, i, 0], %left[0, 0], %right[0, i * 8]) [8, 16, 16]
      }
      micro raot_add_left_LEFT(%left_sums[0, 0], %left[0, 0]) [16, 2]
      micro raot_add_right_RIGHT(%right_sums[0, 0], %right[0, 0]) [16, 2]
      micro raot_total_left_i32(%row_sums[0, 0], %left_sums[0, 0]) [2, 2]
      micro raot_total_right_i32(%column_sums[0, 0], %right_sums[0, 0]) [2, 4]
      for l in 0..32 parallel(lane) {
        for i in 0..2 {
          if (index(l % 4) == index(0)) {
            %rows[l // 4 + i * 8] = %row_sums[l, i]
          }
          for j in 0..4 {
            %y[l // 4 + j // 2 * 8, l % 4 * 2 + j % 2 + i * 8] = %sums[l, i, j]
          }
          if (index(l // 4) == index(0)) {
            for j in 0..2 {
              %columns[l % 4 * 2 + j + i * 8] = %column_sums[l, i * 2 + j]
            }
          }
        }
      }
    }
  }
}
"""


MIXED, ALIKE = [("i8", "u8"), ("u8", "i8")], [("i8", "i8"), ("u8", "u8")]


@pytest.mark.parametrize("types", [MIXED, pytest.param(ALIKE, marks=pytest.mark.long)])
def test_sums_of_matrices_of_bytes_are_exact(types: list[tuple[str, str]], tmp_path: Path) -> None:
    """They wrap around where 32 bits do. Copies leave zeros behind the elements that they have."""
    texts = [PRODUCT.replace("LEFT", left).replace("RIGHT", right) for left, right in types]
    module = parse(HEAD + "".join(texts), micro_kernels=all_micro_kernels())
    random, jobs = np.random.default_rng(1), []
    for kernel, pair, n in zip(module.kernels, types, (7, 16), strict=True):
        limits = (DType(name).limits for name in pair)
        factors = [random.integers(low, high + 1, (16, 32)) for low, high in limits]
        factors[0][:2], factors[1][:2] = DType(pair[0]).limits[0], DType(pair[1]).limits[1]
        bias = random.choice([-(2**31), 2**31 - 1], (16, 16)).astype(np.int32)
        types_of = [DType(name).numpy for name in pair]
        x, w = (one.astype(dtype) for one, dtype in zip(factors, types_of, strict=True))
        jobs.append(Job(kernel.name, (x, w, bias), {"n": n}, seed=n))
    answers, exchanged = (
        Shim(module.kernels, module.bounds, tmp_path, exchanges=exchanges).run(jobs)
        for exchanges in (False, True)
    )
    for job, answer, other in zip(jobs, answers, exchanged, strict=True):
        x, w, start = (one.astype(np.int64) for one in job.inputs)
        x[:, np.arange(32) % 16 >= job.sizes["n"]] = 0
        wanted = ((start + x @ w.T).astype(np.int32), x.sum(1), w.sum(1))
        meant = run_kernel(module.kernel_table[job.kernel], job.inputs, job.sizes)
        for outputs in (meant, answer.outputs, other.outputs):
            for found, one in zip(outputs, wanted, strict=True):
                np.testing.assert_array_equal(found, one, job.kernel)
