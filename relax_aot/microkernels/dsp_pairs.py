# SPDX-License-Identifier: Apache-2.0
"""Arm DSP extension (SMLAD): contractions of 8-bit weights and windows of pairs, three positions
and two channels at a time, and the requantization of their sums."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels
from relax_aot.microkernels.mve import BY_SHIFT, LOWERED, MULTIPLIERS, ROUNDED

POSITIONS, WIDE = 12, 24
"""Positions that are computed by one call."""
TAPS: Parameters = {
    "taps": ("1", "3", "1", "3"), "form": ("1", "3", "1_wide", "3_wide"),
    "most": ("12", "12", "24", "24"), "pairs": ("12", "14", "24", "26"),
}  # fmt: skip
BOTH = """local both: i32 = i32($weight)
              local first: i32 = i32(i8(both))
              local weight: i32 = select(($second == index(1)), ((both - first) >> 8:i32), first)"""
"""The weight of one of two channels: the first one is the lower byte."""
QUAD = {
    "both": BOTH,
    "weight": "%weights[n // 4, k // 2, n % 4 // 2, k % 2, h]",
    "second": "index(n % 2)",
}
"""Weights of four channels together."""
WORD = """local word: i32 = %scales[n * scale_step]
            local scale: i32 = ((word & 1073741823:i32) + 1073741824:i32)
            local shift: i32 = (%base[0] - ((word >> 30:i32) & 3:i32))"""
"""A multiplier and a shift in one word."""
ROUNDINGS = ("(product >> 32:i64)", ROUNDED, LOWERED)
SCALED: Parameters = {
    "form": ("f32", "nearest", "above", "twice", "nearest_word", "above_word", "twice_word"),
    "F": ("f32", *("i32",) * 6),
    "shifts": ("", *(", %shifts: i8[span(channels * scale_step)]",) * 3,
               *(", %base: i32[1]",) * 3),
    "table": ("100..10000", *(f"{MULTIPLIERS}, %shifts -11..-1",) * 3,
              *("-2147483648..2147483647, %base -8..-1",) * 3),
    "value": ("local value: i64 = i64(rint((f32(sum) * %scales[n * scale_step])))",
              *(by.replace("$scale", "%scales[n * scale_step]").replace(
                "$shift", "%shifts[n * scale_step]") for by in (BY_SHIFT,) * 3),
              *(f"{WORD}\n{BY_SHIFT}".replace("$scale", "scale").replace("$shift", "shift"),) * 3),
    "high": ("", *ROUNDINGS, *ROUNDINGS),
    "clipped": "$T(min(max((value + index(zero)), index(low)), index(high)))",
}  # fmt: skip
"""Sums scaled in float, or by a multiplier and a shift, and clipped."""

MICRO_KERNELS = (
    *micro_kernels(
        "gather_pairs.h",
        """zero $zeros, channels 1..~9, channel_step ~1 | 40, lines 1..~4, first1 0..lines,
        last1 first1..lines, line_step ~400, taps 1..~3, dilation 1..~2, columns 1..wide,
        first ~-5 | -1 | 0 | 2, stride 1..~3, width 1..~26, column_step ~1 | 3 | channels,
        wide ~1 | 12 | 26
        kernel @raot_gather_pairs_$S(%image: $T[span(channels * channel_step,
          last1 - first1 * line_step,
          min(width, first + (taps - 1) * dilation + (columns - 1) * stride + 1) * column_step)]
        ) -> (%pairs: i16[span(up(lines * channels, 2) // 2 * (2 * taps * wide),
          taps * (2 * wide), columns * 2, 2 * 1)]) {
          for j in 0..up(lines * channels, 2) // 2, t in 0..taps, p in 0..columns, h in 0..2 {
            let y = (2 * j + h) // channels
            let x = first + t * dilation + p * stride
            let at = (y - first1) * line_step + (2 * j + h - y * channels) * channel_step
            let to = j * (2 * taps * wide) + t * (2 * wide) + 2 * p + h
            %pairs[to] = select(within(first1 <= y < last1, 0 <= x < width),
              i16(%image[at + x * column_step]), i16(index(zero)))
          }
        }""",
        BYTES, struct="raot_gather_pairs",
    ),
    *micro_kernels(
        "multiply_pairs.h",
        """channels 2..~10 by 2, positions 1..$most, lines 1..~70, %pairs -128..255
        kernel @raot_multiply_pairs_$form(
          %weights: i16[channels // 2, lines, $taps, 2], %pairs: i16[lines, $pairs, 2],
          %bias: i32[channels]
        ) -> (%sums: i32[channels, $most]) {
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
          %weights: i16[channels // 4, count // 2, 2, 2, 2], %pairs: i16[count, 2],
          %bias: i32[channels]
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
        QUAD,
    ),
    *micro_kernels(
        "multiply_pairs.h",
        """channels 1..~14, count 2..~300 by 2, %pairs -128..127
        kernel @raot_multiply_pair_row_f32(
          %weights: i16[up(channels, 4) // 4, count // 2, 2, 2, 2], %pairs: i16[count, 2],
          %scales: f32[channels], %row: f32[1], %starts: f32[channels]
        ) -> (%out: f32[channels]) {
          for n in 0..channels {
            local sum: i32 = 0:i32
            for k in 0..count, h in 0..2 {
              $both
              sum = (sum + (weight * i32(%pairs[k, h])))
            }
            %out[n] = (((f32(sum) * %scales[n]) * %row[0]) + %starts[n])
          }
        }""",
        QUAD,
    ),
    *micro_kernels(
        "multiply_pair_rows.h",
        """channels 1..~14, count 2..~300 by 2, %pairs -128..127
        kernel @raot_multiply_pair_rows_f32(
          %weights: i16[up(channels, 4) // 4, count // 2, 2, 2, 2], %pairs: i16[count, 3, 2],
          %scales: f32[channels], %rows: f32[3], %starts: f32[channels]
        ) -> (%out: f32[3, channels]) {
          for n in 0..channels, r in 0..3 {
            local sum: i32 = 0:i32
            for k in 0..count, h in 0..2 {
              $both
              sum = (sum + (weight * i32(%pairs[k, r, h])))
            }
            %out[r, n] = (((f32(sum) * %scales[n]) * %rows[r]) + %starts[n])
          }
        }""",
        QUAD,
    ),
    *micro_kernels(
        "requantize_rows.h",
        """channels 1..~9, positions 1..~12, channel_step positions * step..~positions * step + 1,
        step ~1 | 2 | 7, sum_step positions..~12, scale_step 0..1, zero $zeros, low $low,
        high $high_limit, %scales $table
        kernel @raot_requantize_rows_$form$U(
          %sums: i32[span(channels * sum_step, positions * 1)],
          %scales: $F[span(channels * scale_step)]$shifts
        ) -> (%out: $T[span(channels * channel_step, positions * step)]) {
          for n in 0..channels, p in 0..positions {
            local sum: i32 = %sums[n * sum_step + p]
            $value
            %out[n * channel_step + p * step] = $clipped
          }
        }""",
        BYTES, SCALED, struct="raot_requantize_rows",
    ),
    *micro_kernels(
        "depthwise_pairs.h",
        """zero $zeros, rows 1..32, top ~-3 | -2 | -1 | 0 | 1 | 4, image_rows 1..~36,
        row_step ~1 | 9, columns 1..~9, left ~-2 | -1 | 0 | 2, image_columns 1..~12,
        column_step ~1 | 40
        kernel @raot_gather_columns_$S(
          %image: $T[span(image_rows * row_step, image_columns * column_step)]
        ) -> (%pairs: i16[columns, 32]) {
          for c in 0..columns, r in 0..rows {
            let y = top + r
            let x = left + c
            %pairs[c, r] = select(within(0 <= y < image_rows, 0 <= x < image_columns),
              i16(%image[y * row_step + x * column_step]), i16(index(zero)))
          }
        }""",
        BYTES, struct="raot_gather_columns",
    ),
    *micro_kernels(
        "depthwise_pairs.h",
        """columns 1..~6, rows 1..$rows, step 1..~3
        kernel @raot_depthwise_pairs_$stride(
          %pairs: i16[(columns - 1) * step + 3, 32], %weights: i8[3, 3], %bias: i32[1]
        ) -> (%sums: i32[columns, up(rows, 4)]) {
          for c in 0..columns, r in 0..rows {
            local sum: i32 = %bias[0]
            for x in 0..3, y in 0..3 {
              local value: i32 = i32(%pairs[c * step + x, r * $stride + y])
              sum = (sum + (value * i32(%weights[x, y])))
            }
            %sums[c, r] = sum
          }
        }""",
        {"stride": ("1", "2"), "rows": ("28", "12")},
    ),
    *micro_kernels(
        "depthwise_windows.h",
        """zero $zeros, lines 1..~6, top ~-3 | -2 | -1 | 0 | 1 | 4, image_lines 1..~7,
        line_step ~1 | 70, length 1..~24, left ~-7 | -2 | -1 | 0 | 3, image_columns 1..~23,
        advance 1..~3, step ~1 | 3, pitch up(length, 2)..~up(length, 2) + 4 by 2
        kernel @raot_gather_lines_$S(
          %image: $T[span(image_lines * line_step, image_columns * step)]
        ) -> (%to: i16[lines, pitch]) {
          for l in 0..lines, e in 0..length {
            let y = top + l
            let x = left + e * advance
            %to[l, e] = select(within(0 <= y < image_lines, 0 <= x < image_columns),
              i16(%image[y * line_step + x * step]), i16(index(zero)))
          }
        }""",
        BYTES, struct="raot_gather_lines",
    ),
    *micro_kernels(
        "depthwise_windows.h",
        """height 1..~5, width 1..~9, count 1..~6
        kernel @raot_widen_window_$phases(%weights: i8[height, width]) ->
          (%to: i16[height, count, $phases, 2]) {
          for i in 0..height, j in 0..count, f in 0..$phases, h in 0..2 {
            let k = 2 * j + h - f
            %to[i, j, f, h] = select(within(0 <= k < width), i16(%weights[i, k]), 0:i16)
          }
        }""",
        {"phases": ("1", "2")},
    ),
    *micro_kernels(
        "depthwise_windows.h",
        """rows 1..~4, positions 1..~13, height 1..~5, count 1..~6, line_step ~1 | 2 | 3,
        dilation 1..~3, pitch up(positions, 4) + 2 * count - 2..~up(positions, 4) + 2 * count by 2,
        %weights -255..255, %lines -255..255
        kernel @raot_depthwise_windows_1(
          %lines: i16[(rows - 1) * line_step + (height - 1) * dilation + 1, pitch],
          %weights: i16[height, count, 2, 2], %bias: i32[1]
        ) -> (%sums: i32[rows, up(positions, 4)]) {
          for r in 0..rows, p in 0..positions {
            local sum: i32 = %bias[0]
            for i in 0..height, k in 0..2 * count {
              local value: i32 = i32(%lines[r * line_step + i * dilation, p - p % 2 + k])
              sum = (sum + (value * i32(%weights[i, k // 2, p % 2, k % 2])))
            }
            %sums[r, p] = sum
          }
        }""",
        struct="raot_depthwise_windows_1_sizes",
    ),
    *micro_kernels(
        "depthwise_windows.h",
        """rows 1..~4, positions 1..~13, height 1..~5, count 1..~6, line_step ~1 | 2 | 3,
        dilation 1..~3, apart 1..~3,
        pitch 2 * apart * (up(positions, 4) - 1) + 2 * count
        ..~2 * apart * up(positions, 4) + 2 * count by 2,
        %weights -255..255, %lines -255..255
        kernel @raot_depthwise_windows_2(
          %lines: i16[(rows - 1) * line_step + (height - 1) * dilation + 1, pitch],
          %weights: i16[height, count, 1, 2], %bias: i32[1]
        ) -> (%sums: i32[rows, up(positions, 4)]) {
          for r in 0..rows, p in 0..positions {
            local sum: i32 = %bias[0]
            for i in 0..height, k in 0..2 * count {
              local value: i32 = i32(%lines[r * line_step + i * dilation, 2 * apart * p + k])
              sum = (sum + (value * i32(%weights[i, k // 2, 0, k % 2])))
            }
            %sums[r, p] = sum
          }
        }""",
        struct="raot_depthwise_windows_2_sizes",
    ),
)  # fmt: skip
