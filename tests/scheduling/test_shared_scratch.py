# SPDX-License-Identifier: Apache-2.0
"""Scratch buffers of one kernel share memory only where no value is lost."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.parse import parse
from relax_aot.scheduling.passes import shared_scratch
from relax_aot.scheduling.targets import find

KERNEL = """
module "shared"
symbol n in 0..9  # input x, axis 0
func @main(%x: f32[n, 5]) {
  %y: f32[n, 5], %y.a: f32[5], %y.b: f32[5] = call_kernel(%x) {kernel=@k}  # k
  return %y
}

kernel @k(%x: f32[n, 5]) -> (%y: f32[n, 5]) scratch (%a: f32[5], %b: f32[5]) {
  for i in 0..n {
    for j in 0..5 {
      %a[j] = (%x[i, j] * 2.0:f32)
    }
    for j in 0..5 {
      BODY
    }
    for j in 0..5 {
      %y[i, j] = RESULT
    }
  }
}
"""
CASES = {
    "read at the same place": ("%b[j] = (%a[j] + 1.0:f32)", "%b[j]", True),
    "read twice before it is written": ("%b[j] = (%a[j] * %a[j])", "%b[(4 - j)]", True),
    "read at another place": ("%b[j] = (%a[(4 - j)] + 1.0:f32)", "%b[j]", False),
    "read later": ("%b[j] = (%a[j] + 1.0:f32)", "(%a[j] * %b[j])", False),
    "written before it is read": (
        "%b[j] = 1.0:f32\n      %b[j] = (%b[j] + %a[j])", "%b[j]", False,
    ),
    "every element at one place": ("%b[0] = (%a[0] + 1.0:f32)", "%b[0]", False),
    "kept from the row before": (
        "%b[j] = select((index(i) == index(0)), %a[j], (%a[j] + %b[j]))", "%b[j]", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_values_that_are_read_no_more_are_overwritten(case: str) -> None:
    body, result, shares = CASES[case]
    module = parse(KERNEL.replace("BODY", body).replace("RESULT", result), {})
    after = shared_scratch.run(module, find("", ["fpu"]))
    plain, shared = (one.kernel_table["k"] for one in (module, after))
    assert len(shared.scratch) == (1 if shares else 2)
    assert len(after.main.body[0].outs) == 1 + len(shared.scratch)
    for n in (0, 1, 9):
        x = np.random.default_rng(n).normal(size=(n, 5)).astype(np.float32)
        one, other = (run_kernel(kernel, [x], {"n": n})[0] for kernel in (plain, shared))
        assert one.tobytes() == other.tobytes()
