# SPDX-License-Identifier: Apache-2.0
"""Arm DSP extension (SMLAD): contractions of 8-bit weights and windows of pairs, three positions
and two channels at a time, and the requantization of their sums."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels
from relax_aot.microkernels.mve import SCALED

POSITIONS = 12
"""RAOT_PAIR_POSITIONS: positions that are computed by one call."""
TAPS: Parameters = {"taps": ("1", "3")}
BOTH = """local both: i32 = i32($weight)
              local first: i32 = i32(i8(both))
              local weight: i32 = select(($second == index(1)), ((both - first) >> 8:i32), first)"""
"""The weight of one of two channels: the first one is the lower byte."""

MICRO_KERNELS = (
    *micro_kernels(
        "gather_pairs.h",
        """zero -128..127, channels 1..~9, channel_step ~1 | 40, lines 1..~4, first1 0..lines,
        last1 first1..lines, line_step ~400, taps 1..~3, dilation 1..~2, columns 1..wide,
        first ~-5 | -1 | 0 | 2, stride 1..~3, width 1..~14, column_step ~1 | 3 | channels,
        wide ~1 | 12 | 14
        kernel @raot_gather_pairs_$S(%image: $T[span(channels * channel_step,
          last1 - first1 * line_step,
          min(width, first + (taps - 1) * dilation + (columns - 1) * stride + 1) * column_step)]
        ) -> (%pairs: i16[up(lines * channels, 2) // 2, taps, wide, 2]) {
          for j in 0..up(lines * channels, 2) // 2, t in 0..taps, p in 0..columns, h in 0..2 {
            let y = (2 * j + h) // channels
            let x = first + t * dilation + p * stride
            let at = (y - first1) * line_step + (2 * j + h - y * channels) * channel_step
            %pairs[j, t, p, h] = select(within(first1 <= y < last1, 0 <= x < width),
              i16(%image[at + x * column_step]), i16(index(zero)))
          }
        }""",
        BYTES, struct="raot_gather_pairs",
    ),
    *micro_kernels(
        "multiply_pairs.h",
        """channels 2..~10 by 2, positions 1..12, lines 1..~70, %pairs -128..255
        kernel @raot_multiply_pairs_$taps(
          %weights: i16[channels // 2, lines, $taps, 2], %pairs: i16[lines, 11 + $taps, 2],
          %bias: i32[channels]
        ) -> (%sums: i32[channels, 12]) {
          for n in 0..channels, p in 0..positions {
            local sum: i32 = %bias[n]
            for j in 0..lines, t in 0..$taps, h in 0..2 {
              $both
              sum = (sum + (weight * i32(%pairs[j, p + t, h])))
            }
            %sums[n, p] = sum
          }
        }""",
        TAPS, {"both": BOTH, "weight": "%weights[n // 2, j, t, h]", "second": "index(n % 2)"},
    ),
    *micro_kernels(
        "multiply_pairs.h",
        """channels 4..~16 by 4, count 2..~300 by 2, %pairs -128..255
        kernel @raot_multiply_pair_row(
          %weights: i16[channels // 4, count, 2, 2], %pairs: i16[count, 2], %bias: i32[channels]
        ) -> (%sums: i32[channels]) {
          for n in 0..channels {
            local sum: i32 = %bias[n]
            for k in 0..count, h in 0..2 {
              $both
              sum = (sum + (weight * i32(%pairs[k, h])))
            }
            %sums[n] = sum
          }
        }""",
        {"both": BOTH, "weight": "%weights[n // 4, k, n % 4 // 2, h]", "second": "index(n % 2)"},
    ),
    *micro_kernels(
        "requantize_rows.h",
        """channels 1..~9, positions 1..~12, channel_step positions * step..~positions * step + 1,
        step ~1 | 2 | 7, sum_step positions..~12, $limits
        kernel @raot_requantize_rows_$form$U(
          %sums: i32[span(channels * sum_step, positions * 1)], %scales: $F[channels, $parts 1]
        ) -> (%out: $T[span(channels * channel_step, positions * step)]) {
          for n in 0..channels, p in 0..positions {
            local sum: i32 = %sums[n * sum_step + p]
            $value
            %out[n * channel_step + p * step] = $clipped
          }
        }""",
        BYTES, SCALED, {
            "table": "scales", "scale": "%scales[n, ${part}0]", "shift": "%scales[n, 1, 0]",
        },
        struct="raot_requantize_rows",
    ),
)  # fmt: skip
