# SPDX-License-Identifier: Apache-2.0
"""Ranges of floats, and the quantization of floats to bytes by a factor and an offset."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, micro_kernels

HEADER = "quantize_range.h"
MICRO_KERNELS = (
    *micro_kernels(
        HEADER,
        """count 0..~70
        kernel @raot_peak_f32(%x: f32[count]) -> (%bits: i32[1]) {
          local most: i32 = 0:i32
          for i in 0..count {
            most = max(most, (cast(%x[i], i32, bits) & 2147483647:i32))
          }
          %bits[0] = most
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70
        kernel @raot_greatest_f32(%x: f32[count]) -> (%bits: i32[1]) {
          local most: i32 = 0:i32
          for i in 0..count {
            most = max(most, cast(%x[i], i32, bits))
          }
          %bits[0] = most
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70
        kernel @raot_range_f32(%x: f32[count]) -> (%bits: i32[2]) {
          local high: i32 = 0:i32
          local low: u32 = 0:u32
          for i in 0..count {
            high = max(high, cast(%x[i], i32, bits))
            low = max(low, cast(%x[i], u32, bits))
          }
          %bits[0] = high
          %bits[1] = cast(low, i32, bits)
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70
        kernel @raot_fill_bytes_$S(%value: $T[1]) -> (%out: $T[count]) {
          for i in 0..count {
            %out[i] = %value[0]
          }
        }""",
        BYTES,
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70, step ~1 | 7, %x -3000000..3000000, %by -90000000..90000000
        kernel @raot_quantize_by_s8(%x: f32[count], %by: f32[2]) -> (%out: i8[span(count * step)]) {
          for i in 0..count {
            %out[i * step] = cast(min(max(round(((%x[i] * %by[0]) + %by[1])), -128.0:f32),
              127.0:f32), i8, wrap)
          }
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70, %kept -1..0, %by 1..90000
        kernel @raot_quantize_row_s8(
          %x: f32[count], %by: f32[1], %kept: i32[1]
        ) -> (%out: i8[count]) {
          for i in 0..count {
            %out[i] = cast((cast(((%x[i] / %by[0]) + 12582912.0:f32), i32, bits) & %kept[0]), i8,
              wrap)
          }
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70, step ~1 | 3, %kept -1..0, %by 1..90000
        kernel @raot_quantize_pairs_s16(
          %x: f32[count], %by: f32[1], %kept: i32[1]
        ) -> (%pairs: i16[span(up(count, 4) // 2 * (2 * step), 2 * 1)]) {
          for k in 0..up(count, 4) // 2, h in 0..2 {
            let i = 2 * k + h
            %pairs[k * (2 * step) + h] = select(within(0 <= i < count),
              i16(i8((cast(((%x[i] / %by[0]) + 12582912.0:f32), i32, bits) & %kept[0]))), 0:i16)
          }
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70, %kept -1..0
        kernel @raot_quantize_row_s16(
          %x: f32[count], %by: f32[1], %kept: i32[1]
        ) -> (%out: i16[count]) {
          for i in 0..count {
            %out[i] = cast((cast(((%x[i] * %by[0]) + 12582912.0:f32), i32, bits) & %kept[0]), i16,
              wrap)
          }
        }""",
    ),
    *micro_kernels(
        HEADER,
        """count 0..~70
        kernel @raot_product_peak_f32(
          %x: f32[count], %factors: f32[count]
        ) -> (%products: f32[count], %bits: i32[1]) {
          local most: i32 = 0:i32
          for i in 0..count {
            %products[i] = (%x[i] * %factors[i])
            most = max(most, (cast(%products[i], i32, bits) & 2147483647:i32))
          }
          %bits[0] = most
        }""",
    ),
)  # fmt: skip
