# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels in their device form."""

from __future__ import annotations

import pytest

from relax_aot.ir.check import check
from relax_aot.ops import deduce
from relax_aot.scheduling.devices.launches import launches
from tests.transforms.examples import example_module

TEXT = """
    symbol n in 1..999
    kernel @k(%x: f32[n], %w: f32[8]) -> (%y: f32[n], %z: f32[8]) scratch (%s: f32[n]) {
      let twice = 2*n
      let count = (twice + 63) // 64
      for b in 0..count parallel(block) {
        for t in 0..32 parallel(thread) {
          let i = 32*b + t
          if (index(i) < index(n)) {
            %s[i] = %x[i]
          }
        }
      }
      for b in 0..(n + 255) // 256 parallel(block) {
        reserve %tile: f32[32] in shared
        if (index(n) < 256:i64) {
          for w in 0..8 parallel(warp) {
            for l in 0..32 parallel(lane) {
              let i = 256*b + 32*w + l
              if (index(i) < index(n)) {
                %y[i] = %s[i]
                %z[0] = %w[0]
              }
            }
          }
        }
      }
    }"""


def test_each_loop_over_blocks_is_a_launch() -> None:
    module = example_module(TEXT)
    check(module, deduce)
    (kernel,) = module.kernels
    first, second = launches(kernel)
    assert (str(first.grid), first.threads) == ("count", 32)
    assert [type(stmt).__name__ for stmt in first.kernel.body] == ["Let", "Let", "For"]
    assert [buffer.name for buffer in first.kernel.buffers] == ["x", "s"]
    assert first.kernel.outputs == ()
    assert (str(second.grid), second.threads) == ("(n + 255) // 256", 256)
    assert [type(stmt).__name__ for stmt in second.kernel.body] == ["For"]
    assert [buffer.name for buffer in second.kernel.buffers] == ["w", "y", "z", "s"]
    assert second.kernel.scratch == kernel.scratch


def test_another_loop_is_refused() -> None:
    (kernel,) = example_module(TEXT.replace("parallel(block)", "")).kernels
    with pytest.raises(AssertionError, match="k: b"):
        launches(kernel)
