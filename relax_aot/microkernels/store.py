# SPDX-License-Identifier: Apache-2.0
"""Tiles of float contractions whose sums begin with rows or with zero, and to which a row and
another array may be added before they are clipped. `low` and `high`: upper halves of floats."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

(TILE,) = MICRO_KERNELS = micro_kernels(
    "multiply_store.h",
    """rows 1..~27, columns 1..64, lines 0..~3, taps 0..~3, depth 0..~9,
    left_row 0..~20, left_line 0..~40, left_tap 0..~10, left_step 0..~2,
    right_line 0..~300, right_tap 0..~100, right_step 0..~columns + 3,
    to_row columns..~columns + 5, start_row 0..~columns + 5, other_row 0..~columns + 5,
    starts 0..2, adds 0..1,
    low ~-128 | 0, high ~32640 | 16576
    kernel @raot_multiply_store_f32(
      %left: f32[span(rows * left_row, lines * left_line, taps * left_tap, depth * left_step)],
      %right: f32[span(lines * right_line, taps * right_tap, depth * right_step, columns * 1)],
      %start: f32[min(starts, 1) * span(rows * start_row, columns * 1)],
      %other: f32[adds * span(rows * other_row, columns * 1)]
    ) -> (%to: f32[span(rows * to_row, columns * 1)]) {
      for r in 0..rows, c in 0..columns {
        local sum: f32 = 0.0:f32
        if (index(starts) == index(1)) {
          sum = %start[r * start_row + c]
        }
        for i in 0..lines, j in 0..taps, k in 0..depth {
          let from = r * left_row + i * left_line + j * left_tap + k * left_step
          sum = fma(%left[from], %right[i * right_line + j * right_tap + k * right_step + c], sum)
        }
        if (index(starts) == index(2)) {
          sum = (sum + %start[r * start_row + c])
        }
        if (index(adds) != index(0)) {
          sum = (sum + %other[r * other_row + c])
        }
        local low: f32 = cast(i32(index(low % 65536 * 65536)), f32, bits)
        local high: f32 = cast(i32(index(high % 65536 * 65536)), f32, bits)
        %to[r * to_row + c] = min(max(sum, low), high)
      }
    }""",
    struct="raot_multiply_store",
)
