# SPDX-License-Identifier: Apache-2.0
"""Fractions of a total by its reciprocal, and the powers of softmax."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.ops._op import Array
from relax_aot.scheduling.passes import fractions
from relax_aot.scheduling.targets import find
from tests.ops.c_executor import c_kernels
from tests.transforms.examples import example_module

SHARE = """
symbol n in 1..9999
kernel @share(%x: f32[n], %t: f32[1]) -> (%y: f32[n]) {
  local total: f32 = %t[0]
  for i in 0..n {
    %y[i] = fraction(%x[i], total)
  }
}"""
INSIDE = """
symbol n in 1..9999
kernel @inside(%x: f32[n], %t: f32[n]) -> (%y: f32[n]) {
  for i in 0..n {
    local total: f32 = %t[i]
    %y[i] = fraction(%x[i], total)
  }
}"""
LOADED = """
symbol n in 1..9999
kernel @loaded(%x: f32[n], %t: f32[n]) -> (%y: f32[n]) {
  for i in 0..n {
    %y[i] = fraction(%x[i], %t[i])
  }
}"""


def scheduled(text: str) -> Kernel:
    (kernel,) = example_module(text).kernels
    return fractions.run(Module((), (kernel,)), find("host", ())).kernels[0]


def parts(total: np.float32) -> Array:
    """Numbers up to the total, zeros and subnormal numbers among them."""
    rng = np.random.default_rng(int(total) % 1000)
    even = rng.uniform(0, 1, 2000) * total
    small = even * np.exp2(-rng.integers(0, 150, 2000).astype(np.float64))
    return np.concatenate([[0, 1e-45, 3e-42, total], even, small]).astype(np.float32)


@pytest.mark.parametrize("total", [1, 1.5, 3, 1023.7, 2.0**31, 2.0**64, 1 + 2.0**-23, np.nan])
def test_fractions_have_the_bits_of_the_interpreter_and_are_rounded_well(total: float) -> None:
    t, kernel = np.float32(total), scheduled(SHARE)
    x = parts(np.float32(1) if np.isnan(t) else t)
    (found,) = c_kernels({"share": kernel}, ("-O3", "-march=native", "-fno-trapping-math"))(
        "share", [x, np.array([t])], {"n": x.size}
    )
    few = x[::7]
    (wanted,) = run_kernel(kernel, [few, np.array([t])], {"n": few.size})
    np.testing.assert_array_equal(found[::7], wanted)
    exact = x.astype(np.longdouble) / np.longdouble(t)
    if np.isnan(t):
        assert np.isnan(found).all()
        return
    unit = np.maximum(np.spacing(found), np.float32(2.0**-149)).astype(np.longdouble)
    assert (np.abs(found - exact) <= 0.501 * unit)[exact >= 2.0**-110].all()
    assert (np.abs(found - exact) <= 1.001 * unit).all()


@pytest.mark.parametrize("text", [INSIDE, LOADED], ids=["inside", "loaded"])
def test_a_total_of_each_element(text: str) -> None:
    """The same operations, and so the same bits, as with one total."""
    x = parts(np.float32(7.3))[:64]
    t = np.full_like(x, 7.3)
    (found,) = run_kernel(scheduled(text), [x, t], {"n": x.size})
    (wanted,) = run_kernel(scheduled(SHARE), [x, t[:1]], {"n": x.size})
    np.testing.assert_array_equal(found, wanted)


SOFTMAX = """
symbol n in 1..9  # input x, axis 0
symbol k in 1..999  # input x, axis 1
func @main(%x: f32[n, k]) {
  %y: f32[n, k] = softmax(%x) {axis=1}  # softmax
  return %y
}
"""


def test_softmax_keeps_subnormal_numbers_infinities_and_nan() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-104, 0, (4, 200)), rng.normal(size=(4, 200)) * 1e30])
    x[0, :3], x[1, :2], x[5, 7] = -np.inf, [-3e38, 3e38], np.nan
    x = x.astype(np.float32)
    found = rx.compile(rx.parse(SOFTMAX)).host()(x=x)["y"]
    with np.errstate(all="ignore"):
        power = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.longdouble))
    exact = power / power.sum(axis=1, keepdims=True)
    assert np.isnan(found[5]).all()
    rest = np.arange(8) != 5
    units = np.abs(found - exact)[rest] / np.spacing(exact[rest].astype(np.float32))
    assert units.max() < 4
    assert ((found > 0) & (found < 2.0**-126)).any()
    assert (found[0, :3] == 0).all()
    assert found[1, :2].tolist() == [0, 1]
