# SPDX-License-Identifier: Apache-2.0
"""The text of micro-kernels of warps and vectors computes what their meaning says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.microkernels import all_micro_kernels
from relax_aot.microkernels.warp import MICRO_KERNELS, VECTORS
from tests.cuda.shim import Job, Shim

COLLECTIVES = [kernel for kernel in MICRO_KERNELS if kernel.name.startswith("raot_warp_")]
HEAD = "symbol n in 1..9\n\nfunc @main(%x: f32[n]) {\n  return %x\n}\n"
REDUCE = """
kernel @call_NAME(%x: TYPE[n, 32]) -> (%y: TYPE[n, 32]) {
  for b in 0..n parallel(block) {
    for w in 0..1 parallel(warp) {
      reserve %own: TYPE[32] in lane
      for l in 0..32 parallel(lane) {
        %own[l] = %x[b, l]
      }
      micro NAME(%own[0]) []
      for l in 0..32 parallel(lane) {
        %y[b, l] = %own[l]
      }
    }
  }
}
"""
COPY = """
kernel @copy_TYPE(%x: TYPE[n, ALL]) -> (%y: TYPE[n, ALL]) {
  for b in 0..n parallel(block) {
    for t in 0..32 parallel(thread) {
      reserve %some: TYPE[COUNT] in register
      micro raot_loadCOUNT_TYPE(%some[0], %x[b, COUNT*t]) []
      micro raot_storeCOUNT_TYPE(%y[b, COUNT*t], %some[0]) []
    }
  }
}
"""
ANY = """
kernel @any_TYPE(%x: TYPE[n, 259]) -> (%y: TYPE[n, 256]) {
  for b in 0..n parallel(block) {
    for t in 0..32 parallel(thread) {
      reserve %some: TYPE[8] in register
      micro raot_load_any8_TYPE(%some[0], %x[b, 8*t + 3]) []
      micro raot_store8_TYPE(%y[b, 8*t], %some[0]) []
    }
  }
}
"""
"""From addresses in the middle of words and at their beginning, up to the last element."""


@pytest.mark.slow
def test_every_lane_has_the_bits_of_the_meaning(tmp_path: Path) -> None:
    texts = {}
    for one in COLLECTIVES:
        dtype = one.operands[0].dtype
        texts[one.name] = REDUCE.replace("NAME", one.name).replace("TYPE", dtype.value)
    for dtype in VECTORS:
        count = 16 // dtype.bytes
        text = COPY.replace("TYPE", dtype.value).replace("COUNT", str(count))
        texts[dtype.value] = text.replace("ALL", str(32 * count))
    texts |= {f"any {kind}": ANY.replace("TYPE", kind) for kind in ("f16", "bf16")}
    module = parse(HEAD + "".join(texts.values()), micro_kernels=all_micro_kernels())
    shim = Shim(module.kernels, module.bounds, tmp_path)
    jobs = []
    generator = np.random.default_rng(2)
    for kernel in module.kernels:
        shape = (9, kernel.inputs[0].shape[1].constant)
        dtype = kernel.inputs[0].dtype
        x = generator.standard_normal(shape).astype(np.float64)
        if dtype.is_float:
            x[0], x[1, 5], x[2] = np.where(np.arange(shape[1]) % 3 == 1, 0.0, -0.0), np.nan, np.inf
        else:
            x = np.abs(x) if dtype is DType.U8 else x
            x = x * 2.0 ** (8 * dtype.bytes - 4)
        jobs.append(Job(kernel.name, (x.astype(dtype.numpy),), {"n": 9}))
    for job, answer in zip(jobs, shim.run(jobs), strict=True):
        (y,) = answer.outputs
        if "copy" in job.kernel:
            assert y.tobytes() == job.inputs[0].tobytes()
            continue
        if "any" in job.kernel:
            assert y.tobytes() == job.inputs[0][:, 3:].tobytes()
            continue
        (wanted,) = run_kernel(module.kernel_table[job.kernel], job.inputs, job.sizes)
        if "_sum_" in job.kernel:
            np.testing.assert_array_equal(y, wanted)
        else:  # of 0 and -0, either is a maximum
            np.testing.assert_array_equal(y + 0, wanted + 0)
        rows = y.view(f"u{y.itemsize}")
        assert (rows == rows[:, :1]).all(), job.kernel
