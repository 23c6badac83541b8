# SPDX-License-Identifier: Apache-2.0
"""Keys that a model transposes before their product with queries are stored as rows."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.fusion import fuse
from relax_aot.ir.check import check
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Load, Micro, expressions, walk
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.ops import deduce
from relax_aot.scheduling.devices.attention import run
from relax_aot.scheduling.targets.cuda_mma import TARGET

TEXT = """
symbol s in 1..40
symbol n in 1..50
func @main(%q: f16[2, s, DEPTH], %x: f16[n, 64], %u: f16[64, BOTH], %v: f16[2, n, 16]) {
  %k: f16[n, BOTH] = matmul(%x, %u)
  %heads: f16[n, 2, DEPTH] = reshape(%k) {shape=[n, 2, DEPTH]}
  %kt: f16[2, DEPTH, n] = transpose(%heads) {perm=[1, 2, 0]}
  %scores: f16[2, s, n] = matmul(%q, %kt)
  %w: f16[2, s, n] = softmax(%scores) {axis=2}
  %y: f16[2, s, 16] = matmul(%w, %v)
  RETURN
}
"""


def scheduled(depth: int, results: str = "return %y") -> Module:
    text = TEXT.replace("DEPTH", str(depth)).replace("BOTH", str(2 * depth))
    text = text.replace("RETURN", results)
    module = run(fuse(lower(parse(text))).module, TARGET)
    check(module, deduce)
    return module


def test_rows_of_keys_are_copied_as_vectors() -> None:
    module = scheduled(16)
    keys, attention = module.kernels
    (made,) = keys.outputs
    assert attention.parallel and str(made.shape[-1]) == "16"
    copies = (s for s in walk(attention.body) if isinstance(s, Micro) and "copy_async" in s.name)
    loads = (e for s in copies for e in expressions(s) if isinstance(e, Load))
    assert {made.name, "v"} <= {load.buffer.name for load in loads}
    for n in (1, 7, 50):
        rng = np.random.default_rng(n)
        x, u = (rng.normal(size=shape).astype(np.float16) for shape in ((n, 64), (64, 32)))
        given = {"x": x, "u": u}
        (rows,) = run_kernel(keys, [given[buffer.name] for buffer in keys.inputs], {"n": n})
        wanted = (x.astype(float) @ u.astype(float)).reshape(n, 2, 16).transpose(1, 0, 2)
        np.testing.assert_allclose(rows, wanted, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize(("depth", "results"), [(12, "return %y"), (16, "return %y, %kt")])
def test_other_keys_keep_their_layout(depth: int, results: str) -> None:
    """Rows that are no whole vectors, and keys that are a result."""
    keys = scheduled(depth, results).kernels[0]
    assert [str(buffer.shape[-1]) for buffer in keys.outputs] == ["n"]
