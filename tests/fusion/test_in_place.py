# SPDX-License-Identifier: Apache-2.0
"""The permission to write a result over an operand is proven by other means than it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

import relax_aot as rx
from relax_aot import fusion
from relax_aot.fusion.checking.dependences import unproven_pairs
from relax_aot.ir.graph import Module

RIGHT = {
    "elements": "%y[i, j] = exp(%x[i, j])",
    "an element more than once": "%y[i, j] = (%x[i, j] * %x[i, j])",
    "what is stored is read": "%y[i, j] = %x[i, j]\n %y[i, j] = (%y[i, j] + %y[i, j])",
    "borders after the inside": """for j in 1..n - 1 {
        %y[i, j] = (%x[i, j] + 1.0:f32)
      }
      for b in 0..2 {
        let j = b*(n - 1)
        %y[i, j] = %x[i, j]
      }""",
    "in tiles": """for t in 0..(n + 3) // 4 {
        for k in 0..min(n - 4*t, 4) {
          %y[i, 4*t + k] = exp(%x[i, 4*t + k])
        }
      }""",
}
WRONG = {
    "backwards": "%y[i, j] = %x[i, n - 1 - j]",
    "transposed": "%y[i, j] = %x[j, i]",
    "first element": "%y[i, j] = (%x[i, 0] + %x[i, j])",
    "first row": "%y[i, j] = (%x[0, j] + %x[i, j])",
    "the inside after borders that it reads": """for b in 0..2 {
        let j = b*(n - 1)
        %y[i, j] = %x[i, j]
      }
      for j in 1..n - 1 {
        %y[i, j] = (%x[i, j] + %x[i, j - 1])
      }""",
    "in tiles, read from the next": """for t in 0..(n + 3) // 4 {
        for k in 0..min(n - 4*t, 4) {
          %y[i, 4*t + k] = exp(%x[i, min(4*t + k + 1, n - 1)])
        }
      }""",
    "in overlapping tiles": """for t in 0..(n + 3) // 4 {
        for k in 0..min(n - 4*t, 5) {
          %y[i, 4*t + k] = exp(%x[i, 4*t + k])
        }
      }""",
    "at an index from data": """bind p in 0..i = cast(%x[i, j], i64, wrap)
      %y[i, j] = %x[p, j]""",
    "read after it is written": "%y[i, j] = exp(%x[i, j])\n %y[i, j] = (%y[i, j] + %x[i, j])",
}


def module(body: str) -> Module:
    return rx.parse(
        f"""
        symbol n in 2..9

        func @main(%x: f32[n, n]) {{
          %y: f32[n, n] = call_kernel(%x) {{kernel=@work}}
          return %y
        }}

        kernel @work(%x: f32[n, n]) -> (%y: f32[n, n]) {{
          for i in 0..n {{
            {body if body.startswith("for") else f"for j in 0..n {{{body}}}"}
          }}
        }}
        """
    )


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_right_permissions_are_proven(body: str) -> None:
    fused = fusion.fuse(module(body)).module
    (kernel,) = fused.kernels
    assert kernel.in_place == (("x", "y"),) or body.startswith("for")
    assert unproven_pairs(replace(kernel, in_place=(("x", "y"),)), fused.bounds) == ()


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_wrong_permissions_are_refused(body: str) -> None:
    fused = fusion.fuse(module(body)).module
    (kernel,) = fused.kernels
    assert kernel.in_place == ()
    wrong = (("x", "y"),)
    assert unproven_pairs(replace(kernel, in_place=wrong), fused.bounds) == wrong
