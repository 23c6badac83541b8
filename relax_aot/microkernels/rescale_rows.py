# SPDX-License-Identifier: Apache-2.0
"""Rows of sums of gates of integer LSTMs: sums are rescaled, and other ones added."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

MICRO_KERNELS = micro_kernels(
    "rescale_rows.h",
    """count 0..~19, factor 1073741824..2147483647, shift 1..~20, %sums -2147483648..2147483647
    kernel @raot_rescale_add_s16(%sums: i32[count], %added: i16[count]) -> (%out: i16[count]) {
      for i in 0..count {
        local wide: i64 = (i64(%sums[i]) * i64(index(factor)))
        local high: i32 = i32(((wide + 1073741824:i64) >> 31:i64))
        local lower: i32 = (high + (high >> 31:i32))
        local scaled: i32 = (((lower >> (i32(index(shift)) - 1:i32)) + 1:i32) >> 1:i32)
        %out[i] = cast((i32(%added[i]) + scaled), i16, saturate)
      }
    }""",
)
