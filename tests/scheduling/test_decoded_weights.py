# SPDX-License-Identifier: Apache-2.0
"""A program that decodes 4-bit weights for a product, after the example of the Relax paper
(arXiv:2311.02103, section 4.2). The decoded matrix is never stored: each target reads it through
its tiles."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot import driver
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.dims import interval
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, Multiply, walk
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.scheduling import schedule, targets
from relax_aot.verify.host import HostModel, host_model

COLUMNS, GROUP, ROWS, GROUPS = 69, 32, 27, 3
PROGRAM = """
symbol n in 1..27
symbol g in 1..3

func @main(%x: f32[n, 32*g], %packed: u32[4*g, 69], %scales: f32[g, 69]) {
  %w: f32[32*g, 69] = call_kernel(%packed, %scales) {kernel=@decode}
  %y: f32[n, 69] = matmul(%x, %w)
  return %y
}

kernel @decode(%packed: u32[4*g, 69], %scales: f32[g, 69]) -> (%w: f32[32*g, 69]) {
  for i in 0..32*g {
    for j in 0..69 {
      %w[i, j] = ((cast(((%packed[i // 8, j] >> cast(index(4*(i % 8)), u32, wrap)) & 15:u32),
        f32, wrap) - 8.0:f32) * %scales[i // 32, j])
    }
  }
}"""
TARGETS = [target for target in targets.all_targets() if target.name != "scalar"]


@cache
def fused() -> Module:
    return fuse(lower(parse(PROGRAM))).module


def sample(n: int, g: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64]]:
    """Inputs, and the exact product."""
    rng = np.random.default_rng(n * 8 + g)
    x = rng.standard_normal((n, GROUP * g)).astype(np.float32)
    packed = rng.integers(0, 2**32, (4 * g, COLUMNS), np.uint32)
    scales = rng.uniform(0.1, 1, (g, COLUMNS)).astype(np.float32)
    nibbles = packed[:, None, :] >> np.arange(0, 32, 4, dtype=np.uint32)[:, None] & 15
    weights = (nibbles.reshape(-1, COLUMNS) - 8.0) * np.repeat(scales, GROUP, axis=0)
    return {"x": x, "packed": packed, "scales": scales}, x.astype(np.float64) @ weights


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_decoded_matrix_exists_only_in_panels(target: targets.Target) -> None:
    """One kernel is left. Its scratch memory is a panel of few columns, for every depth."""
    module = schedule(fused(), target)
    (kernel,) = module.kernels
    assert any(isinstance(stmt, Multiply | Micro) for stmt in walk(kernel.body))
    (panel,) = kernel.scratch
    assert interval(panel.type.bytes, module.bounds)[1] <= max(target.panel, GROUPS * GROUP * 128)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize(("n", "g"), [(1, 1), (7, 2), (ROWS, GROUPS)])
def test_interpreted(target: targets.Target, n: int, g: int) -> None:
    inputs, expected = sample(n, g)
    (kernel,) = schedule(fused(), target).kernels
    given = [inputs[buffer.name] for buffer in kernel.inputs]
    (y, *_) = run_kernel(kernel, given, {"n": n, "g": g})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("g", [1, 2, GROUPS])
def test_compiled(g: int) -> None:
    for n in (1, 5, 6, 23, 24, 25, ROWS):
        inputs, expected = sample(n, g)
        np.testing.assert_allclose(host()(**inputs)["y"], expected, rtol=1e-4, atol=1e-4)


@cache
def host() -> HostModel:
    return host_model(driver.compile_model(parse(PROGRAM)))
