# SPDX-License-Identifier: Apache-2.0
"""Products with quantized weights that have a scale for each group of k: float activations, and
activations that are quantized bytes."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters, micro_kernels

COLUMNS = 32
"""RAOT_TILE_COLUMNS: columns of a panel of weights."""
FLOATS: Parameters = {
    "bits": ("8", "4"),
    "weights": ("i8[depth, 32]", "u8[depth, 16]"),
    "weight": (
        "i32(%weights[k, c])",
        "((((i32(%weights[k, c % 16]) >> i32(index(c // 16 * 4))) & 15:i32) ^ 8:i32) - 8:i32)",
    ),
}
MICRO_KERNELS = micro_kernels(
    "multiply_groups.h",
    """rows 1..~24, columns 1..32, depth 1..~150, group ~8 | 32 | 40 | 128,
    left_row depth..~depth + 3
    kernel @raot_multiply_q${bits}_f32(
      %left: f32[span(rows * left_row, depth * 1)], %weights: $weights,
      %scales: f32[up(depth, group) // group, 32]
    ) -> (%sums: f32[rows, 32]) {
      for r in 0..rows, c in 0..columns {
        local total: f32 = 0.0:f32
        for g in 0..up(depth, group) // group {
          local sum: f32 = 0.0:f32
          let last = min(g * group + group, depth)
          for k in g * group..last {
            sum = fma(%left[r * left_row + k], f32($weight), sum)
          }
          total = fma(sum, %scales[g, c], total)
        }
        %sums[r, c] = total
      }
    }""",
    FLOATS, struct="raot_groups",
)  # fmt: skip
