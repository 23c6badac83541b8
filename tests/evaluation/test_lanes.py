# SPDX-License-Identifier: Apache-2.0
"""Registers of lanes, and barriers under conditions that are the same in all iterations."""

from __future__ import annotations

import numpy as np
import pytest

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.check import CheckError, check
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.ops import deduce
from relax_aot.scheduling.passes import barriers
from relax_aot.scheduling.targets import all_targets
from tests.transforms.examples import example_module

HEAD = """
    symbol n in 1..9
    kernel @k(%x: f32[64], %at: i32[2]) -> (%y: f32[64]) {"""
LANES = """
      for w in 0..2 parallel(warp) {
        reserve %t: f32[32, 2] in lane
        for l in 0..32 parallel(lane) {
          %t[l, 0] = %x[32*w + l]
          %t[l, 1] = (%t[l, 0] + 1.0:f32)
        }
        local first: f32 = %t[3, 1]
        for l in 0..32 parallel(lane) {
          %y[32*w + l] = (%t[l, 1] * first)
        }
      }"""
UNIFORM = """
      for b in 0..1 parallel(block) {
        clamped steps in 0..4 = min(max(%at[0], 0:i32), 4:i32)
        for t in 0..64 parallel(thread) {
          %y[t] = %x[t]
          barrier thread
          local sum: f32 = 0.0:f32
          for step in 0..steps {
            local other: f32 = %y[63 - t]
            barrier thread
            %y[t] = (%y[t] + other)
            sum = (sum + %x[step])
            barrier thread
          }
          if (sum < %x[0]) {
            local other: f32 = %y[(t + 1) % 64]
            barrier thread
            %y[t] = other
          }
        }
      }"""


def module_of(body: str) -> Module:
    module = example_module(f"{HEAD}{body}\n    }}")
    check(module, deduce)
    return module


def kernel_of(body: str) -> Kernel:
    return module_of(body).kernels[0]


def result(body: str, seed: int) -> np.ndarray:
    x = np.arange(64, dtype=np.float32)
    (y,) = run_kernel(kernel_of(body), [x, np.array([3, 9], np.int32)], {}, seed=seed)
    return y


@pytest.mark.parametrize("seed", range(3))
def test_lanes_have_registers_that_all_may_read(seed: int) -> None:
    x = np.arange(64, dtype=np.float32) + 1
    assert (result(LANES, seed) == x * np.repeat(x[[3, 35]], 32)).all()


@pytest.mark.parametrize("seed", range(3))
def test_barriers_stand_under_conditions_of_all_iterations(seed: int) -> None:
    y = np.arange(64, dtype=np.float32)
    for _ in range(3):
        y = y + y[::-1]
    assert (result(UNIFORM, seed) == y).all()


REFUSED = {
    "another lane": (LANES.replace("%t[l, 0] +", "%t[l + 1, 0] +"), "in registers of another lane"),
    "a store for all": (
        LANES.replace("local first", "%t[3, 1] = 0.0:f32\n        local first"),
        "stored to outside of a loop over lanes",
    ),
    "a lane from data": (
        LANES.replace("%t[3, 1]", "%t[16*w, 1]"),
        "of a lane that is not the same everywhere",
    ),
    "too few": (LANES.replace("f32[32, 2]", "f32[16, 2]"), "the first axis of registers of lanes"),
    "no warp": (
        LANES.replace("parallel(warp)", "parallel(block)"),
        "reserved in a loop over warps",
    ),
    "steps of one thread": (
        UNIFORM.replace("clamped", "clamped s in 0..4 = 1:i32\n        clamped").replace(
            "0..steps", "0..t"
        ),
        "the range of step differs",
    ),
    "a condition of one thread": (UNIFORM.replace("(sum <", "(%y[t] <"), "a condition differs"),
    "a sum of one thread": (UNIFORM.replace("%x[step]", "%x[t]"), "a condition differs"),
    "a sum over steps of one thread": (
        UNIFORM.replace("barrier thread\n          }", "}\n          barrier thread").replace(
            "sum = (sum + %x[step])", "for r in 0..t {\n sum = (sum + %x[step])\n}\n"
        ),
        "a condition differs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_between_iterations_is_refused(name: str) -> None:
    body, said = REFUSED[name]
    with pytest.raises(CheckError, match=said):
        kernel_of(body)


def test_a_barrier_under_a_condition_is_refused_for_c() -> None:
    body = """
      for t in 0..64 parallel(thread) {
        %y[t] = %x[t]
        if (%x[0] < 1.0:f32) {
          barrier thread
        }
      }"""
    with pytest.raises(RelaxAotError, match="a barrier of the loop over t is under a condition"):
        barriers.run(module_of(body), all_targets()[0])
