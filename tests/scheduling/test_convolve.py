# SPDX-License-Identifier: Apache-2.0
"""Convolutions as calls of one function (`--optimize size`) keep the bits of the plain loops."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from relax_aot import driver, planning, project, scheduling
from relax_aot.externs import read_externs
from relax_aot.ir.graph import Constant
from relax_aot.ir.parse import parse
from relax_aot.planning import order
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.scheduling.passes import fma
from relax_aot.scheduling.targets import find
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import Weights, model_of

SHAPES = {
    "padded": ((37, 3, 3, 3), (37,)),
    "strided": ((16, 37, 3, 3), (16,)),
    "point": ((16, 16, 1, 1), (16,)),
    "each": ((16, 1, 3, 3), (16,)),
    "apart": ((9, 16, 2, 3),),
}
SIGNATURE = "net (float[2, 3, 11, 17] x) => (float[2, 16, 6, 9] kept, float[2, 9, 6, 7] y)"
TEXT = """
    a = Conv <pads = [1, 1, 1, 1]> (x, padded0, padded1)
    b = Clip (a, low, high)
    c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, strided0, strided1)
    d = Conv (c, point0, point1)
    e = Add (d, c)
    f = Conv <pads = [0, 1, 2, 1], group = 16> (e, each0, each1)
    kept = Relu (f)
    y = Conv <pads = [1, 1, 1, 1], dilations = [2, 2]> (kept, apart0)
"""
LAST = """
func @main(%x: f32[1, 7, 9, 5], %w: f32[39, 3, 3, 5], %b: f32[39], %v: f32[2, 3, 39]) {
  %y: f32[1, 7, 5, 39] = call_kernel(%x, %w, %b) {kernel=@conv}
  %z: f32[1, 3, 5, 39] = call_kernel(%y, %v) {kernel=@each}
  return %z
}

kernel @conv(%x: f32[1, 7, 9, 5], %w: f32[39, 3, 3, 5], %b: f32[39]) -> (%y: f32[1, 7, 5, 39]) {
  for i0 in 0..7 {
    for i1 in 0..5 {
      for i2 in 0..39 {
        local total: f32 = %b[i2]
        for i3 in max(-i0 + 1, 0)..min(-i0 + 8, 3) {
          for i4 in max(-2*i1 + 1, 0)..min(-2*i1 + 10, 3) {
            for i5 in 0..5 {
              total = fma(%x[0, i0 + i3 - 1, 2*i1 + i4 - 1, i5], %w[i2, i3, i4, i5], total)
            }
          }
        }
        %y[0, i0, i1, i2] = max(total, 0.0:f32)
      }
    }
  }
}

kernel @each(%x: f32[1, 7, 5, 39], %w: f32[2, 3, 39]) -> (%y: f32[1, 3, 5, 39]) {
  for i0 in 0..3 {
    for i1 in 0..5 {
      for i2 in 0..39 {
        local total: f32 = 0.0:f32
        for i3 in 0..2 {
          for i4 in max(-i1 + 1, 0)..min(-i1 + 6, 3) {
            total = fma(%x[0, 2*i0 + i3, i1 + i4 - 1, i2], %w[i3, i4, i2], total)
          }
        }
        %y[0, i0, i1, i2] = total
      }
    }
  }
}
"""
CALLS = {
    "channels first": ["convolve_nchw", "depthwise_nchw"],
    "channels last": ["convolve_nhwc", "depthwise_nhwc"],
}


def _compiled(source: str, board: str, optimize: str) -> Project:
    rng = np.random.default_rng(0)
    if source == "channels first":
        weights: Weights = {"low": np.array(-0.5, np.float32), "high": np.array(0.75, np.float32)}
        for name, shapes in SHAPES.items():
            for part, shape in enumerate(shapes):
                weights[f"{name}{part}"] = rng.normal(size=shape).astype(np.float32)
        model = model_of(SIGNATURE, TEXT, weights)
        return driver.compile_model(model, board, driver.Options(optimize=optimize))
    module = parse(LAST)
    main, constants = module.main, []
    for var in main.params[1:]:
        extents = [dim.constant for dim in var.type.shape]
        data = rng.normal(size=extents).astype(np.float32)
        constants.append(Constant(var.name, var.type, data))
    alone = replace(main, params=main.params[:1])
    module = replace(module, functions=(alone,), constants=tuple(constants))
    target = load_board(board)
    module = scheduling.schedule(module, find(target.family, target.features), optimize)
    plan = planning.plan(order.run(module))
    return project.assemble(module, plan, "m", target, read_externs([], []), "auto", optimize)


@pytest.mark.parametrize(
    "board",
    ["host", *(pytest.param(b, marks=pytest.mark.qemu) for b in ("mps2-an386", "mps3-an547"))],
)
@pytest.mark.parametrize("source", CALLS)
def test_one_function_keeps_the_bits(
    source: str, board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = _compiled(source, board, "size")
    text = small.files[small.units[0]].decode()
    called = sorted(set(re.findall(r"raot_((?:convolve|depthwise)_\w*)_f32\(", text)))
    assert called == CALLS[source]
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule", lambda m, target, *_, **__: fma.run(m, target)
    )
    plain = _compiled(source, board, "speed")
    shape = [dim.constant for dim in small.interface.inputs[0].type.shape]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    name = small.interface.inputs[0].source
    found, wanted = (_outputs(each, {name: x}) for each in (small, plain))
    assert {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in wanted.items()}


def _outputs(built: Project, inputs: Weights) -> Weights:
    if built.board.family == "host":
        return host_model(built)(inputs)
    (run,) = emulate(built, [inputs])
    assert run.status == 0
    return run.outputs
