# SPDX-License-Identifier: Apache-2.0
"""Softmax of contiguous floats. What is written may be what is read."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

PLAIN, MASKED = MICRO_KERNELS = micro_kernels(
    "softmax.h",
    """count 0..~70, %from -40000000..40000000
    kernel @$name(%from: f32[count]) -> (%values: f32[count]) {
      local peak: f32 = -inf:f32
      for i in 0..count {
        peak = max(peak, %from[i])
      }
      $peak
      local total: f32 = 0.0:f32
      for j in 0..count {
        %values[j] = exp_below(%from[j], peak)
        total = (total + %values[j])
      }
      $total
      for k in 0..count {
        %values[k] = (%values[k] / total)
      }
    }""",
    {
        "name": ("raot_softmax_f32", "raot_softmax_masked_f32"),
        "peak": ("", "peak = select((peak == -inf:f32), 0.0:f32, peak)"),
        "total": ("", "total = select((total == 0.0:f32), 1.0:f32, total)"),
    },
)
"""A row of nothing but -infinity gives zeros where it is masked."""
