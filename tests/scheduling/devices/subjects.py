# SPDX-License-Identifier: Apache-2.0
"""Kernels of text whose loops take every way through the schedules of devices."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from relax_aot.ir.check import check
from relax_aot.ir.graph import Module
from relax_aot.ops import deduce
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.devices import forms, nests, reductions
from relax_aot.scheduling.targets import find
from tests.transforms.examples import example_module

SMALL = replace(find("cuda", ()), threads=32, team=2, nests=())
"""Blocks of one warp or two; no strategies for products."""
SYMBOLS = "symbol n in 1..37\nsymbol m in 1..33\n"

KERNELS = {
    "elements": """
        kernel @k(%x: f32[n, m], %b: f32[m]) -> (%y: f32[n, m]) in_place (%x = %y) {
          for i in 0..n {
            for j in 0..m {
              %y[i, j] = (%x[i, j] + %b[j])
            }
          }
        }""",
    "quantized elements": """
        kernel @k(%x: f32[n, m], %at: i32[n]) -> (%y: i8[n, m]) {
          for i in 0..n {
            for j in 0..m {
              %y[i, j] = cast((rint((%x[i, j] * 40.0:f32)) + cast(%at[i], f32, wrap)), i8, saturate)
            }
          }
        }""",
    "parts of rows": """
        kernel @k(%x: f32[n, 3, 64], %b: f32[24]) -> (%y: f32[n, 24]) {
          for i in 0..n {
            for j in 0..24 {
              %y[i, j] = ((%x[i, 2, j + 8] * %b[j]) + %x[i, 0, 2*j + 1])
            }
          }
        }""",
    "rows of which one is chosen": """
        kernel @k(%x: f32[n, 8], %b: f32[n, 16]) -> (%y: f32[n, 24]) {
          for i in 0..n {
            for j in 0..24 {
              %y[i, j] = select((index(j) < index(8)), %x[i, j], %b[i, j - 8])
            }
          }
        }""",
    "transposed": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[m, n]) {
          for i in 0..m {
            for j in 0..n {
              %y[i, j] = %x[j, i]
            }
          }
        }""",
    "softmax": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[n, m]) in_place (%x = %y) {
          for i in 0..n {
            local peak: f32 = -inf:f32
            for j in 0..m {
              peak = max(peak, %x[i, j])
            }
            local total: f32 = 0.0:f32
            for j in 0..m {
              %y[i, j] = exp((%x[i, j] - peak))
              total = (total + %y[i, j])
            }
            for j in 0..m {
              %y[i, j] = (%y[i, j] / total)
            }
          }
        }""",
    "columns": """
        kernel @k(%x: f32[n, 600]) -> (%y: f32[600]) {
          for j in 0..600 {
            local total: f32 = 0.0:f32
            for i in 0..n {
              total = (total + %x[i, j])
            }
            %y[j] = total
          }
        }""",
    "scratch of rows": """
        kernel @k(%x: f32[n, m], %w: f32[m, m]) -> (%y: f32[n, m]) scratch (%s: f32[m]) {
          for i in 0..n {
            for j in 0..m {
              local total: f32 = 0.0:f32
              for k in 0..m {
                total = fma(%x[i, k], %w[j, k], total)
              }
              %s[j] = total
            }
            for j in 0..m {
              %y[i, j] = (%s[m - j - 1] + %s[0])
            }
          }
        }""",
    "recurrence": """
        kernel @k(%x: f32[n, m], %w: f32[m, m]) -> (%y: f32[n, m]) scratch (%h: f32[m]) {
          for j in 0..m {
            %h[j] = 0.0:f32
          }
          for t in 0..n {
            for j in 0..m {
              local total: f32 = %x[t, j]
              for k in 0..m {
                total = fma(%h[k], %w[j, k], total)
              }
              %y[t, j] = tanh(total)
            }
            for j in 0..m {
              %h[j] = %y[t, j]
            }
          }
        }""",
    "recurrences of a batch": """
        kernel @k(%x: f32[n, 3, m]) -> (%y: f32[n, 3, m]) scratch (%h: f32[3, m], %s: f32[m]) {
          for i in 0..3 {
            for j in 0..m {
              %h[i, j] = 0.0:f32
            }
          }
          for t in 0..n {
            for i in 0..3 {
              for j in 0..m {
                %s[j] = (%h[i, m - j - 1] + %x[t, i, j])
              }
              for j in 0..m {
                %h[i, j] = %s[j]
                %y[t, i, j] = (%s[j] * %s[m - j - 1])
              }
            }
          }
        }""",
    "steps of data": """
        kernel @k(%x: f32[n, m], %count: i32[1]) -> (%y: f32[n, m]) {
          for i in 0..n {
            for j in 0..m {
              %y[i, j] = 0.0:f32
            }
          }
          clamped steps in 0..n = min(max(%count[0], 0:i32), cast(index(n), i32, wrap))
          for t in 1..steps {
            if (%x[t, 0] < 1.5:f32) {
              for j in 0..m {
                %y[t, j] = (%y[t - 1, m - j - 1] + %x[t, j])
              }
            }
          }
        }""",
    "a whole tensor": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[n, m], %z: f32[2]) {
          local total: f32 = 0.0:f32
          local peak: f32 = -inf:f32
          for i in 0..n {
            for j in 0..m {
              total = (total + %x[i, j])
              peak = max(peak, %x[i, j])
            }
          }
          local mean: f32 = (total / cast(index(n*m), f32, wrap))
          for i in 0..n {
            for j in 0..m {
              %y[i, j] = ((%x[i, j] - mean) * peak)
            }
          }
          %z[0] = mean
          %z[1] = peak
        }""",
    "products, bits and choices": """
        kernel @k(%x: f32[n, m], %at: i32[n]) -> (%y: f32[n], %z: i32[n], %c: bool[n]) {
          for i in 0..n {
            local product: f32 = 1.0:f32
            local bits: i32 = 0:i32
            local all: bool = true:bool
            for j in 0..m {
              product = (product * %x[i, j])
              bits = (bits ^ cast(%x[i, j], i32, wrap))
              all = (all && (%x[i, j] < 1.75:f32))
            }
            %y[i] = product
            %z[i] = (bits + %at[i])
            %c[i] = all
          }
        }""",
    "the place of the largest": """
        kernel @k(%x: f32[n, m]) -> (%y: i64[n]) {
          for i in 0..n {
            local peak: f32 = -inf:f32
            local place: i64 = 0:i64
            for j in 0..m {
              if (peak < %x[i, j]) {
                peak = %x[i, j]
                place = index(j)
              }
            }
            %y[i] = place
          }
        }""",
    "loops under a condition": """
        kernel @k(%x: f32[n, m], %at: i32[n]) -> (%y: f32[n, m], %z: f32[n]) {
          if (%at[0] < 5:i32) {
            for i in 0..n {
              for j in 0..m {
                %y[i, j] = (%x[i, j] * 2.0:f32)
              }
            }
            for i in 0..n {
              %z[i] = %x[i, 0]
            }
          } else {
            for i in 0..n {
              %z[i] = 0.0:f32
              for j in 0..m {
                %y[i, j] = %x[i, m - j - 1]
              }
            }
          }
        }""",
    "a condition that changes": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[n, m]) {
          for i in 0..n {
            for j in 0..m {
              %y[i, j] = %x[i, j]
            }
          }
          if (%y[0, 0] < 1.0:f32) {
            for i in 0..n {
              for j in 0..m {
                %y[i, j] = (%y[i, j] + 1.0:f32)
              }
            }
          }
        }""",
    "gathered rows": """
        kernel @k(%x: f32[n, m], %at: i32[n]) -> (%y: f32[n, m]) {
          for i in 0..n {
            bind k in 0..n - 1 = %at[i]
            for j in 0..m {
              %y[i, j] = %x[k, j]
            }
          }
        }""",
    "scattered sums": """
        kernel @k(%x: f32[n, m], %at: i32[n]) -> (%y: f32[n, m]) {
          for i in 0..n {
            for j in 0..m {
              %y[i, j] = 0.0:f32
            }
          }
          for i in 0..n {
            clamped k in 0..n - 1 = min(max(%at[i], 0:i32), cast(index(n - 1), i32, wrap))
            for j in 0..m {
              %y[k, j] = (%y[k, j] + %x[i, j])
            }
          }
        }""",
    "running sums": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[n, m]) {
          for i in 0..n {
            local total: f32 = 0.0:f32
            for j in 0..m {
              total = (total + %x[i, j])
              %y[i, j] = total
            }
          }
        }""",
    "a triangle": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[n, n]) {
          for i in 0..n {
            for j in 0..n {
              %y[i, j] = 0.0:f32
            }
            for j in 0..i + 1 {
              for k in 0..m {
                %y[i, j] = fma(%x[i, k], %x[j, k], %y[i, j])
              }
            }
          }
        }""",
    "sums of quantized values": """
        kernel @k(%at: i32[n]) -> (%y: f32[]) {
          local total: f32 = 0.0:f32
          for i in 0..n {
            total = (total + (cast(%at[i], f32, wrap) * 0.1:f32))
          }
          %y[] = total
        }""",
    "threads of another schedule": """
        kernel @k(%x: f32[n, m]) -> (%y: f32[n, m]) scratch (%s: f32[n, m]) {
          for i in 0..n parallel(thread) {
            for j in 0..m {
              %s[i, j] = (%x[i, j] * 2.0:f32)
            }
            barrier thread
            for j in 0..m {
              %y[i, j] = %s[n - i - 1, j]
            }
          }
        }""",
}  # fmt: skip

VARIANTS: dict[str, dict[str, int]] = {
    "usual": {},
    "blocks for rows": {"LONG": 4, "FEW": 10**9},
    "copies of scratch": {"LONG": 4, "FEW": 10**9, "CELLS": 48 << 10, "COPIES": 3},
    "parts": {"PART": 16},
}
"""Figures of the schedules, changed so that small sizes take the ways of large ones."""
OWNERS = {"LONG": (forms,), "FEW": (forms, nests), "CELLS": (forms,), "COPIES": (forms,),
          "PART": (reductions,)}  # fmt: skip


def source(name: str) -> Module:
    return example_module(SYMBOLS + KERNELS[name])


def on_device(module: Module, variant: str = "usual") -> Module:
    """The module for small blocks, where other figures hold."""
    with ExitStack() as stack:
        for name, value in VARIANTS[variant].items():
            for owner in OWNERS[name]:
                stack.enter_context(patch.object(owner, name, value))
        made = schedule_device(module, SMALL)
    check(made, deduce)
    return made
