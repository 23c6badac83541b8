# SPDX-License-Identifier: Apache-2.0
"""Rows of floats as columns."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

MICRO_KERNELS = micro_kernels(
    "transpose_f32.h",
    """rows 0..~21, columns 0..~21, row_step columns..~columns + 5, to_step rows..~rows + 5
    kernel @raot_transpose_f32(
      %x: f32[span(rows * row_step, columns * 1)]
    ) -> (%to: f32[span(columns * to_step, rows * 1)]) {
      for r in 0..rows, c in 0..columns {
        %to[c * to_step + r] = %x[r * row_step + c]
      }
    }""",
)
