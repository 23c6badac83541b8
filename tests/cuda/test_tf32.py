# SPDX-License-Identifier: Apache-2.0
"""Products of floats by matrix units that round their factors: only where that is asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.parse import parse
from relax_aot.microkernels import all_micro_kernels
from relax_aot.project import Project
from relax_aot.scheduling.devices.matrix_tiles import Tile
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.targets import cuda_mma
from relax_aot.verify.job import Job, run_job
from tests.cuda.emulated import Emulated
from tests.cuda.shim import Job as Run
from tests.cuda.shim import Shim
from tests.cuda.test_host import OK
from tests.scheduling.devices.kernels import device_form, inputs
from tests.scheduling.devices.test_matrix_units import TILES, whole

pytestmark = pytest.mark.slow
Array = NDArray[np.float32]
NOISE = np.random.default_rng(5)
W = NOISE.standard_normal((37, 72)).astype(np.float32)
BIAS = NOISE.standard_normal(72).astype(np.float32)


def model(*, transposed: bool) -> onnx.ModelProto:
    """y = x w + b with w by steps, or by columns as Gemm has it; then z = y' t for each matrix."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["v"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "v" if transposed else "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
        helper.make_node("Transpose", ["y"], ["u"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["u", "t"], ["z"]),
    ]
    ends: dict[str, list[str | int | None]] = {
        "x": ["a", "m", 37],
        "t": ["a", "m", "j"],
        "y": ["a", "m", 72],
        "z": ["a", 72, "j"],
    }
    x, t, y, z = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in ends.items()
    )
    constants = {"w": W.T.copy() if transposed else W, "b": BIAS}
    initializers = [numpy_helper.from_array(one, name) for name, one in constants.items()]
    graph = helper.make_graph(nodes, "g", [x, t], [y, z], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def compiled(*, transposed: bool, numerics: str = "tf32") -> Project:
    options = Options(
        bounds={"a": (1, 2), "m": (1, 150), "j": (1, 96)}, numerics=numerics, emit="cuda-source",
        name=f"{numerics}{int(transposed)}",
    )  # fmt: skip
    return driver.compile_model(model(transposed=transposed), "jetson-orin-nano", options)


def rounded(x: Array) -> Array:
    """To 11 significant bits, halfway cases away from zero, by the magnitude alone."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    steps = np.floor(np.abs(fraction) * 2**11 + 0.5)
    return np.asarray(np.copysign(np.ldexp(steps, exponent - 11), x), np.float32)


def product(x: Array, w: Array, *, short: bool) -> Array:
    if short:
        x, w = rounded(x), rounded(w)
    return np.asarray(x.astype(np.float64) @ w.astype(np.float64))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.long
def test_factors_are_rounded_and_sums_are_not(transposed: bool) -> None:
    found = Emulated(compiled(transposed=transposed))
    assert found.init(a=1, m=1, j=1) == OK
    for a, m, j in ((2, 150, 96), (1, 4, 33), (2, 129, 95), (1, 1, 1)):
        x = NOISE.standard_normal((a, m, 37)).astype(np.float32)
        t = NOISE.standard_normal((a, m, j)).astype(np.float32)
        y, z = np.zeros((a, m, 72), np.float32), np.zeros((a, 72, j), np.float32)
        assert found.run([x, t], [y, z], a=a, m=m, j=j) == OK
        # fewer than four rows are computed without matrix units, and factors keep their bits
        real = product(x.reshape(-1, 37), W, short=a * m >= 4).reshape(y.shape) + BIAS
        np.testing.assert_allclose(y, real, rtol=0, atol=1e-5 * np.abs(real).max())
        real = product(y.transpose(0, 2, 1), t, short=True)
        np.testing.assert_allclose(z, real, rtol=0, atol=1e-5 * np.abs(real).max())
    found.close()


@pytest.mark.long
def test_without_the_option_nothing_is_rounded() -> None:
    project = compiled(transposed=False, numerics="blocked")
    assert b"tf32.tf32" not in project.files["blocked0.cu"]
    assert b"tf32.tf32" in compiled(transposed=False).files["tf320.cu"]


@pytest.mark.long
def test_verification_knows_of_the_rounding() -> None:
    """The bounds of the option hold, those of plain floats do not."""
    short = compiled(transposed=True)
    plain = replace(short, view=replace(short.view, tf32=False))
    source, at = model(transposed=True), ({"a": 1, "m": 32, "j": 32},)
    assert [run_job(Job(source, (one,), at=at)).ok for one in (short, plain)] == [True, False]
    assert [one.view.numerics for one in (short, plain)] == ["tf32", "blocked"]


UNIT = """
symbol n in 0..4

func @main(%x: f32[n]) {
  return %x
}

kernel @dot(%x: f32[16, 8], %w: f32[8, 16], %some: f32[4]) -> (%y: f32[16, 16], %copied: f32[4]) {
  for b in 0..1 parallel(block) {
    reserve %left_tile: f32[LEFT] in shared
    reserve %right_tile: f32[RIGHT] in shared
    reserve %part: f32[4] in shared
    for warp in 0..1 parallel(warp) {
      reserve %left: f32[32, 4] in lane
      reserve %right: f32[32, 4] in lane
      reserve %sums: f32[32, 2, 4] in lane
      for l in 0..32 parallel(lane) {
        for i in 0..4 {
          %left_tile[LEFT_AT] = %x[l // 2, l % 2 * 4 + i]
          %right_tile[RIGHT_AT] = %w[l % 2 * 4 + i, l // 2]
          %sums[l, 0, i] = 0.0:f32
          %sums[l, 1, i] = 0.0:f32
        }
        if (index(l) == index(0)) {
          micro raot_copy_async_f32(%part[0], %some[0]) [n, 0, 0, 0, 0, 0]
        }
      }
      micro raot_wait_copies() []
      barrier warp
      micro raot_load_leftORDER_f32(%left[0, 0], %left_tile[0, 0]) [PITCH, 0, 4]
      micro raot_load_rightORDER_f32(%right[0, 0], %right_tile[0, 0]) [PITCH, 0, 4]
      for i in 0..2 {
        micro raot_mma_m16n8k8_f32(%sums[0, i, 0], %left[0, 0], %right[0, i * 2]) [8, 4, 4]
      }
      for l in 0..32 parallel(lane) {
        for i in 0..2 {
          for j in 0..4 {
            %y[l // 4 + j // 2 * 8, l % 4 * 2 + j % 2 + i * 8] = %sums[l, i, j]
          }
        }
        if (index(l) < index(4)) {
          %copied[l] = %part[l]
        }
      }
    }
  }
}
"""
PLACES = {
    "": ("16, 20", "l // 2, l % 2 * 4 + i", "20"),
    "_steps": ("8, 24", "l % 2 * 4 + i, l // 2", "24"),
}


@pytest.mark.parametrize("order", PLACES)
def test_instructions_do_what_they_mean(order: str, tmp_path: Path) -> None:
    shape, place, pitch = PLACES[order]
    text = UNIT.replace("ORDER", order).replace("PITCH", pitch)
    for side in ("LEFT", "RIGHT"):
        text = text.replace(f"{side}_AT", place).replace(f"f32[{side}]", f"f32[{shape}]")
    module = parse(text, micro_kernels=all_micro_kernels())
    x, w = (NOISE.standard_normal(s).astype(np.float32) for s in ((16, 8), (8, 16)))
    x[0, :4] = [np.inf, -0.0, 3e-42, -(1 + 2**-11)]  # infinity, zero, subnormal, halfway
    w[:4, 0], w[4:, 0] = [1, 2, 3, 1], 0
    x[3, 2] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)  # what a GPU computes as NaN
    some = np.arange(4, dtype=np.float32) + 1
    jobs = [Run("dot", (x, w, some), {"n": n}, seed=n) for n in (0, 3, 4)]
    answers, exchanged = (
        Shim(module.kernels, module.bounds, tmp_path, exchanges=exchanges).run(jobs)
        for exchanges in (False, True)
    )
    for job, answer in zip(2 * jobs, answers + exchanged, strict=True):
        meant = run_kernel(module.kernels[0], job.inputs, job.sizes)
        for one, other in zip(meant, answer.outputs, strict=True):
            np.testing.assert_array_equal(one, other)
        real = product(x, w, short=True)
        np.testing.assert_allclose(meant[0], real, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(meant[1], some * (np.arange(4) < job.sizes["n"]))


LENGTHS = """
    symbol n in 1..70
    symbol k in 0..20
    symbol m in 1..20
    kernel @dot(%x: f32[n, 4*k], %w: f32[SHAPE]) -> (%y: f32[n, 4*m]) {
      for i in 0..n {
        for j in 0..4*m {
          local sum: f32 = 0.0:f32
          for d in 0..4*k {
            sum = fma(%x[i, d], %w[AXES], sum)
          }
          %y[i, j] = sum
        }
      }
    }"""


@pytest.mark.parametrize(("shape", "axes"), [("4*k, 4*m", "d, j"), ("4*m, 4*k", "j, d")])
def test_sums_of_dynamic_lengths_are_those_of_plain_loops(shape: str, axes: str) -> None:
    """Whole numbers are exact in every order."""
    text = LENGTHS.replace("SHAPE", shape).replace("AXES", axes)
    target = replace(cuda_mma.TARGET, tf32=True)
    small = replace(TILES, narrow=Tile(32, 32, 32, (2, 1)), rounding=Tile(32, 16, 32, (1, 1)))
    plain, device, _ = device_form(text, partial(matrix_product, tiles=small), target=target)
    assert device is not None
    for sizes in ({"n": 1, "k": 1, "m": 1}, {"n": 33, "k": 9, "m": 11}, {"n": 70, "k": 20, "m": 20},
                  {"n": 5, "k": 0, "m": 3}, {"n": 40, "k": 13, "m": 4}):  # fmt: skip
        data = [whole(one) for one in inputs(plain, sizes)]
        (wanted,), (found,) = (run_kernel(one, data, sizes) for one in (plain, device))
        np.testing.assert_array_equal(found, wanted)


REFUSED = {
    "host": "--numerics tf32 is for boards with a GPU; host has none",
    "jetson-xavier": "--numerics tf32 needs matrix units for it; jetson-xavier has none",
}


@pytest.mark.parametrize("board", REFUSED)
def test_boards_that_cannot_round_refuse_it(board: str) -> None:
    options = Options(bounds={"a": (1, 2), "m": (1, 9), "j": (1, 9)}, numerics="tf32")
    with pytest.raises(RelaxAotError, match=REFUSED[board]):
        driver.compile_model(model(transposed=False), board, options)
