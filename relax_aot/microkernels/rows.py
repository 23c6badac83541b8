# SPDX-License-Identifier: Apache-2.0
"""A few rows of floats by a matrix; products are rounded before they are added, or not. Sums begin
with zero, or with a row of starts where the matrix is packed in panels of eight columns."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

_FORMS = ("", "rounded_")


def _added(right: str) -> tuple[str, str]:
    """A product added to the sum, in both forms."""
    left = "%left[r * left_row + k]"
    return (f"fma({left}, {right}, sum)", f"(({left} * {right}) + sum)")


FUSED, ROUNDED = _FROM_ZERO = micro_kernels(
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
    {"form": _FORMS, "add": _added("%right[k * right_row + c]")},
)
PANELS, ROUNDED_PANELS = _IN_PANELS = micro_kernels(
    "multiply_rows.h",
    """rows 0..~5, columns 0..~70, depth 0..~20, left_row 0..~depth + 3,
    to_row columns..~columns + 5
    kernel @raot_multiply_${form}panels_f32(
      %left: f32[span(rows * left_row, depth * 1)],
      %right: f32[up(columns, 8) // 8, depth, 8], %starts: f32[columns]
    ) -> (%to: f32[span(rows * to_row, columns * 1)]) {
      for r in 0..rows, c in 0..columns {
        local sum: f32 = %starts[c]
        for k in 0..depth {
          sum = $add
        }
        %to[r * to_row + c] = sum
      }
    }""",
    {"form": _FORMS, "add": _added("%right[c // 8, k, c % 8]")},
    struct="raot_multiply_panels",
)
MICRO_KERNELS = (*_FROM_ZERO, *_IN_PANELS)
