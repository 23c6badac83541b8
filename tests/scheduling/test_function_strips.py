# SPDX-License-Identifier: Apache-2.0
"""Elementary functions in strips: the interpreter gives the numbers of the loop before, and the C
on a core with Helium gives the bits of single calls."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.parser import parse_model

import relax_aot as rx
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Load, Micro, expressions, walk
from relax_aot.scheduling.passes import function_strips
from relax_aot.scheduling.targets import find
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import HostModel, host_model
from tests.transforms.examples import example_module

SUMS = """local r: f32 = (((%x[i] + 1.0:f32) * %w[i, 0]) + ((%x[i] + 2.0:f32) * %w[i, 1]))
    local s: f32 = (((%x[i] + 3.0:f32) * %w[i, 2]) + r)
    """
KERNELS = {
    "row": "%y[i] = erf(%x[i])",
    "sum": "%y[i] = exp((%x[i] - 1.0:f32))\n    total = (total + %y[i])",
    "product": "%y[i] = (%x[i] * sigmoid((%x[i] + 0.5:f32)))",
    "kept": SUMS + "%y[i] = (s * sigmoid(s))",
    "kept by two": SUMS + "local u: f32 = (s * 0.5:f32)\n    %y[i] = ((u * tanh(u)) + sigmoid(s))",
    "two": "local a: f32 = tanh(%x[i])\n    %y[i] = (sigmoid((a * %x[i])) + a)",
    "columns": "%y[i] = (2.0:f32 * exp(%w[i, 1]))",
    "backwards": "%y[-i + n - 1] = tanh(%x[i])",
    "chosen": "%y[i] = select((%x[i] < 0.0:f32), expm1(%x[i]), %x[i])",
}
KEPT = {
    "running": "total = (total + %x[i])\n    %y[i] = exp(total)",
    "chosen": "%y[i] = select((%x[i] < 0.0:f32), exp(%w[i, 1]), %x[i])",
    "stored": "%y[i] = %x[i]\n    %y[i] = tanh(%y[i])",
    "next": "%y[i] = tanh(%y[max(0, i - 1)])",
}
SIZES = (0, 1, 3, 4, 5, 31, 32, 33, 63, 64, 70)


def scheduled(line: str) -> tuple[Module, Module]:
    text = f"""
symbol n in 0..70
kernel @k(%x: f32[n], %w: f32[n, 3]) -> (%y: f32[n], %t: f32[1]) {{
  local total: f32 = 0.0:f32
  for i in 0..n {{
    {line}
  }}
  %t[0] = total
}}"""
    module = example_module(text)
    return module, function_strips.run(module, find("cortex_m", ("dsp", "fpu", "mve_float")))


@pytest.mark.parametrize("name", KERNELS)
def test_numbers_are_those_of_the_loop(name: str) -> None:
    before, after = scheduled(KERNELS[name])
    assert any(isinstance(stmt, Micro) for stmt in walk(after.kernels[0].body))
    rng = np.random.default_rng(0)
    for n in SIZES:
        x, w = (rng.normal(size=s).astype(np.float32) * 3 for s in ((n,), (n, 3)))
        wanted, found = (run_kernel(m.kernels[0], [x, w], {"n": n}) for m in (before, after))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["kept", "kept by two"])
def test_arguments_of_many_operations_are_computed_once(name: str) -> None:
    _, after = scheduled(KERNELS[name])
    reads = [e for stmt in walk(after.kernels[0].body) for e in expressions(stmt)]
    assert [isinstance(e, Load) and e.buffer.name for e in reads].count("w") == 3


def test_a_sum_and_its_function_take_the_products_of_one() -> None:
    """Depthwise 3x3 with SiLU: each position has nine multiply-adds."""
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 20]>'
        "g (float[1, 8, 12, 12] x) => (float[1, 8, 12, 12] y) <float[8, 1, 3, 3] w> {"
        " c = Conv <group = 8, pads = [1, 1, 1, 1]> (x, w)"
        " s = Sigmoid (c)  y = Mul (c, s) }"
    )
    weights = np.ones((8, 1, 3, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    text = rx.compile(model, name="silu").files["silu.c"].decode()
    assert "raot_sigmoid_f32(" in text
    assert text.count("raot_fmaf(") == 9
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_a_loop(name: str) -> None:
    """An argument that another iteration or an earlier statement computes, or a choice reads."""
    before, after = scheduled(KEPT[name])
    assert before.kernels == after.kernels


BOTH = """
symbol n in 0..70
func @main(%x: f32[n]) {
  %y: f32[n], %one: f32[n] = call_kernel(%x) {kernel=@both}
  return %y, %one
}
kernel @both(%x: f32[n]) -> (%y: f32[n], %one: f32[n]) {
  for i in 0..n {
    %y[i] = $f(%x[i])
  }
  for i in 0..n {
    for j in 0..1 {
      %one[i] = $f(%x[i + j])
    }
  }
}"""


def arguments() -> np.ndarray:
    """Numbers of every size, ends of the ranges of each function, infinities and NaN; no subnormal
    numbers, which Helium flushes to zero."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 400, np.uint32).view(np.float32)
    near = rng.normal(size=(400,)).astype(np.float32) * np.exp2(rng.integers(-20, 8, 400))
    ends = [0, 0.85, 1, 3.93, 9.1, 87, 88.8, 103, 104, 105, 1e-30, 3e38, np.inf, np.nan, 16, 0.35]
    each = np.concatenate([bits, near, ends, -np.array(ends)]).astype(np.float32)
    return np.where(np.abs(each) < 2.0**-120, np.float32(0), each)


@pytest.mark.qemu
@pytest.mark.parametrize("function", ["exp", "expm1", "tanh", "sigmoid", "erf"])
def test_vectors_have_the_bits_of_single_calls_on_helium(function: str) -> None:
    project = rx.compile(rx.parse(BOTH.replace("$f", function)), board="mps3-an547")
    text = project.files["model.c"].decode()
    assert f"raot_{function}_f32(" in text and f"raot_{function}f(" in text
    x = arguments()
    cases = [x[at : at + 70] for at in range(0, x.size, 70)] + [x[:n] for n in (0, 1, 3, 4, 5, 9)]
    for case, run in zip(cases, emulate(project.built, [{"x": c} for c in cases]), strict=True):
        assert run.status == 0
        y, one = (run.outputs[name] for name in ("y", "one"))
        y, one = (
            np.where(np.abs(v) < 2.0**-126, np.copysign(np.float32(0), v), v) for v in (y, one)
        )
        y, one = (np.where(np.isnan(v), np.float32(np.nan), v) for v in (y, one))
        np.testing.assert_array_equal(np.isnan(y), np.isnan(case))
        np.testing.assert_array_equal(y.view(np.uint32), one.view(np.uint32), f"{case}")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_strip_of_few_rows_builds_without_a_warning(few_rows: HostModel, rows: int) -> None:
    """Also where all rows fit one strip: GCC warns of calls that may read an empty one."""
    x = np.linspace(-4, 4, rows * 30, dtype=np.float32).reshape(rows, 30)
    wanted = 1 / (1 + np.exp(-x[:, 14:22].astype(np.float64)))
    np.testing.assert_allclose(few_rows(x=x)["y"], wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
def test_gates_of_few_images_build_without_a_warning(gates: HostModel, rows: int) -> None:
    """Sums are one tile of all images, and so is the strip."""
    x = np.linspace(-4, 4, rows * 20 * 45, dtype=np.float32).reshape(rows, 20, 9, 5)
    peaks = x.max((2, 3)).astype(np.float64)
    wanted = peaks / (1 + np.exp(-peaks))
    np.testing.assert_allclose(gates(x=x)["y"].max((2, 3)), wanted, rtol=1e-5)


@pytest.fixture(scope="module")
def gates() -> HostModel:
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float[b,20,h,5] x) => (float[b,20,?,?] y) <float[4] twice = {1, 1, 2, 2}> {"
        " v = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)  a = GlobalMaxPool (v)"
        " c = Conv (a, w)  s = Sigmoid (c)  z = Mul (v, s)  r = Resize (z, , twice)"
        " y = Conv (r, w) }"
    )
    one = np.eye(20, dtype=np.float32).reshape(20, 20, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(one, "w"))
    return host_model(rx.compile(model, name="gates", bounds={"b": (1, 2), "h": (3, 9)}).built)


@pytest.fixture(scope="module")
def few_rows() -> HostModel:
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float[b, 30] x) => (float[b, 8] y) <int64[3] parts = {14, 8, 8}> {"
        " a, c, d = Split <axis = 1> (x, parts)  y = Sigmoid (c) }"
    )
    return host_model(rx.compile(model, name="gate", bounds={"b": (1, 3)}).built)
