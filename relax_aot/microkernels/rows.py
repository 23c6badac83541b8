# SPDX-License-Identifier: Apache-2.0
"""A few rows of floats by a matrix; products are rounded before they are added, or not."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

FUSED, ROUNDED = MICRO_KERNELS = micro_kernels(
    "multiply_rows.h",
    """rows 0..~5, columns 0..~70, depth 0..~20, left_row 0..~depth + 3,
    right_row 0..~columns + 5
    kernel @raot_multiply_${form}rows_f32(
      %left: f32[span(rows * left_row, depth * 1)],
      %right: f32[span(depth * right_row, columns * 1)]
    ) -> (%to: f32[rows, columns]) {
      for r in 0..rows, c in 0..columns {
        local sum: f32 = 0.0:f32
        for k in 0..depth {
          sum = $add
        }
        %to[r, c] = sum
      }
    }""",
    {
        "form": ("", "rounded_"),
        "add": (
            "fma(%left[r * left_row + k], %right[k * right_row + c], sum)",
            "((%left[r * left_row + k] * %right[k * right_row + c]) + sum)",
        ),
    },
)
