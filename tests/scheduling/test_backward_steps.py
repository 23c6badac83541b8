# SPDX-License-Identifier: Apache-2.0
"""Micro-kernels get no steps that they do not describe: what they read follows from these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper, parser

from relax_aot import transforms
from relax_aot.driver import Options, check_stage, load
from relax_aot.evaluation.reference import evaluate
from relax_aot.fusion import fuse
from relax_aot.ir.check import CheckError
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Micro, Stmt, walk
from relax_aot.ir.rewrite import map_statements
from relax_aot.lowering import lower
from relax_aot.scheduling import schedule
from relax_aot.scheduling.targets import all_targets

TRANSPOSED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1, 1, h, w] x) => (float[1, 1, p, q] y)
{ y = ConvTranspose <dilations = [2, 2]> (x, k) }
"""
"""Windows go backwards through the only filter."""


def transposed() -> Module:
    model = parser.parse_model(TRANSPOSED)
    filters = np.random.default_rng(0).normal(size=(1, 1, 2, 2)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(filters, "k"))
    return load(model, Options(bounds={"h": (0, 9), "w": (0, 40)}))


def scheduled(module: Module, name: str) -> Module:
    target = next(target for target in all_targets() if target.name == name)
    return schedule(fuse(lower(transforms.run(module))).module, target)


@pytest.mark.parametrize("target", ["host", "asimd", "fpu"])
def test_windows_that_go_backwards_stay_inside(target: str) -> None:
    plain = transposed()
    module = scheduled(plain, target)
    check_stage("scheduling", module)
    for h, w in ((1, 1), (3, 3), (2, 40), (9, 0)):
        x = np.random.default_rng(1).normal(size=(1, 1, h, w)).astype(np.float32)
        found, wanted = (evaluate(m, {"x": x}, {"h": h, "w": w})["y"] for m in (module, plain))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_sizes_outside_of_their_ranges_are_found() -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]>'
        " g (float[n, 8] x, float[8, 40] w) => (float[n, 40] y) { y = MatMul(x, w) }"
    )
    module = scheduled(load(model, Options(bounds={"n": (1, 30)})), "host")
    (kernel,) = module.kernels
    assert any(isinstance(stmt, Micro) for stmt in walk(kernel.body))

    def backwards(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Micro):
            return stmt
        return replace(stmt, sizes=tuple(-s if s.is_constant else s for s in stmt.sizes))

    body = map_statements(kernel.body, backwards)
    with pytest.raises(CheckError, match=r"is -\d+, not 0\.\."):
        check_stage("scheduling", replace(module, kernels=(replace(kernel, body=body),)))
