# SPDX-License-Identifier: Apache-2.0
"""Arm DSP extension (SMLAD): contractions of two output positions from packed 16-bit columns, and
3 x 3 depthwise convolutions of padded rows."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels

SLACK = 16
"""Elements that may be read at the last row of each 3 x 3 window."""
PRODUCTS: Parameters = {"S": ("s16", "s8"), "T": ("i16", "i8"), "at": ("2 * h + l", "2 * l + h")}
"""The two weights in the middle of four bytes are exchanged, as SXTB16 takes every second one."""

COLUMN = "zero $zeros, " + ", ".join(
    f"count{n} 1..~4, first{n} 0..count{n}, last{n} first{n}..count{n}, step{n} 0..~40"
    for n in range(4)
)
COLUMNS = ", ".join(f"count{n} 1..~4, step{n} 0..~40" for n in range(4))
MICRO_KERNELS = (
    *micro_kernels(
        "multiply_s16.h",
        COLUMN
        + """
        kernel @raot_column_$S(%image: $T[span(last0 - first0 * step0, last1 - first1 * step1,
          last2 - first2 * step2, last3 - first3 * step3)]
        ) -> (%column: i16[max(0, 4 * count0 * count1 * (up(count2, 2) // 2) * count3 - 2)]) {
          for i in 0..count0, j in 0..count1, k in 0..count2, t in 0..count3 {
            let outer = (i - first0) * step0 + (j - first1) * step1
            let inner = (k - first2) * step2 + (t - first3) * step3
            let pair = ((i * count1 + j) * (up(count2, 2) // 2) + k // 2) * count3 + t
            %column[4 * pair + k % 2] = select(
              within(first0 <= i < last0, first1 <= j < last1, first2 <= k < last2,
                first3 <= t < last3),
              i16(%image[outer + inner]), i16(index(zero)))
          }
        }""",
        BYTES, struct="raot_column",
    ),
    *micro_kernels(
        "multiply_s16.h",
        COLUMNS
        + """
        kernel @raot_columns_$S(
          %left: $T[span(count0 * step0, count1 * step1, count2 * step2, count3 * step3)],
          %right: $T[span(count0 * step0, count1 * step1, count2 * step2, count3 * step3)]
        ) -> (%columns: i16[count0, count1, up(count2, 2) // 2, count3, 2, 2]) {
          for i in 0..count0, j in 0..count1, k in 0..count2, t in 0..count3 {
            let at = i * step0 + j * step1 + k * step2 + t * step3
            %columns[i, j, k // 2, t, 0, k % 2] = i16(%left[at])
            %columns[i, j, k // 2, t, 1, k % 2] = i16(%right[at])
          }
        }""",
        BYTES, struct="raot_columns",
    ),
    *micro_kernels(
        "multiply_s16.h",
        """channels 2..~12 by 2, blocks 0..~30
        kernel @raot_multiply_$S(
          %weights: $T[channels // 2, blocks, 2, 4], %columns: i16[blocks, 2, 2, 2],
          %bias: i32[channels]
        ) -> (%sums: i32[channels, 2]) {
          for n in 0..channels, p in 0..2 {
            local sum: i32 = %bias[n]
            for q in 0..blocks, h in 0..2, l in 0..2 {
              local weight: i32 = i32(%weights[n // 2, q, n % 2, $at])
              sum = (sum + (weight * i32(%columns[q, h, p, l])))
            }
            %sums[n, p] = sum
          }
        }""",
        PRODUCTS,
    ),
    *micro_kernels(
        "depthwise_3x3.h",
        """zero $zeros, rows 1..~5, width 1..~12, top ~-2 | -1 | 0 | 2, left ~-2 | -1 | 0 | 1,
        image_rows ~4, image_columns 1..~9, row_step ~30, step 1..~3
        kernel @raot_pad_$S(%image: $T[span(image_rows * row_step, image_columns * step)]) ->
          (%plane: $T[up(rows * width, 4)]) {
          for r in 0..rows, c in 0..width {
            let y = top + r
            let x = left + c
            %plane[r * width + c] = select(within(0 <= y < image_rows, 0 <= x < image_columns),
              %image[y * row_step + x * step], $T(index(zero)))
          }
        }""",
        BYTES, struct="raot_pad",
    ),
    *micro_kernels(
        "depthwise_3x3.h",
        """rows 1..~6, columns 1..~20, width (columns - 1) * stride + 3.., stride 1..2,
        sum_step columns + 1.., %weights -255..255
        kernel @raot_depthwise_3x3_$S(
          %plane: $T[((rows - 1) * stride + 2) * width + (columns - 1) * stride + 16],
          %weights: i16[10], %bias: i32[1]
        ) -> (%sums: i32[(rows - 1) * sum_step + columns + 1]) {
          for r in 0..rows, c in 0..columns {
            local sum: i32 = %bias[0]
            for y in 0..3, x in 0..3 {
              local value: i32 = i32(%plane[(r * stride + y) * width + c * stride + x])
              local weight: i32 = i32(%weights[x % 2 * (6 + y) + (1 - x % 2) * (2 * y + x // 2)])
              sum = (sum + (value * weight))
            }
            %sums[r * sum_step + c] = sum
          }
        }""",
        BYTES, struct="raot_depthwise_3x3",
    ),
)  # fmt: skip
