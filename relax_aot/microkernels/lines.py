# SPDX-License-Identifier: Apache-2.0
"""Sums and products of contiguous floats. What is written may be what is read."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

SUM, PRODUCT, SCALED, SCALED_PRODUCT, SCALED_SUM, THREE = MICRO_KERNELS = micro_kernels(
    "lines_f32.h",
    """count 0..~40
    kernel @raot_line_$name(
      %left: f32[count], $more
    ) -> (%values: f32[count]) {
      for i in 0..count {
        %values[i] = $value
      }
    }""",
    {
        "name": (
            "sum_f32", "product_f32", "scaled_f32", "scaled_product_f32", "scaled_sum_f32",
            "product_of_three_f32",
        ),
        "more": (
            "%right: f32[count]",
            "%right: f32[count]",
            "%by: f32[1]",
            "%by: f32[1], %right: f32[count]",
            "%by: f32[1], %right: f32[count]",
            "%right: f32[count], %third: f32[count]",
        ),
        "value": (
            "(%left[i] + %right[i])",
            "(%left[i] * %right[i])",
            "(%left[i] * %by[0])",
            "((%left[i] * %by[0]) * %right[i])",
            "((%left[i] * %by[0]) + %right[i])",
            "((%left[i] * %right[i]) * %third[i])",
        ),
    },
)  # fmt: skip
