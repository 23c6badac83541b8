# SPDX-License-Identifier: Apache-2.0
"""Depthwise windows of floats with channels last, at adjacent output positions."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

(POSITIONS,) = MICRO_KERNELS = micro_kernels(
    "depthwise_f32.h",
    """positions 1..~13, channels 1..~70, step 0..~channels + 3, rows 0..~4, row_step 0..~90,
    taps 0..~4, tap_step 0..~channels + 5, weight_row taps * channels..~taps * channels + 9
    kernel @raot_depthwise_f32(
      %x: f32[span(positions * step, rows * row_step, taps * tap_step, channels * 1)],
      %weights: f32[span(rows * weight_row, taps * channels, channels * 1)],
      %start: f32[channels]
    ) -> (%sums: f32[positions, channels]) {
      for p in 0..positions, c in 0..channels {
        local sum: f32 = %start[c]
        for i in 0..rows, j in 0..taps {
          let at = p * step + i * row_step + j * tap_step + c
          sum = fma(%x[at], %weights[i * weight_row + j * channels + c], sum)
        }
        %sums[p, c] = sum
      }
    }""",
    struct="raot_depthwise",
)
