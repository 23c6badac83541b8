# SPDX-License-Identifier: Apache-2.0
"""Arm Helium (MVE): contractions by VMLADAVA, depthwise convolutions of interleaved rows, and the
requantization of their sums."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels
from relax_aot.microkernels.dot2 import rescaling

BLOCK = 16
"""Bytes of a vector: weights of a channel are padded to a multiple."""
SHORT = 48
"""Bytes of windows at most, of which no more are read than there are."""
WINDOW = 16
"""Bytes that are read for each window of four interleaved rows."""


def channel_order(channels: int) -> list[int]:
    """Which channel stands at each place of the groups of four; -1 where none does."""
    order: list[int] = []
    for n in range(0, channels, 8):
        lanes = [0, 2, 4, 6, 1, 3, 5, 7] if channels - n > 4 else [0, 1, 2, 3]
        order += [n + lane if n + lane < channels else -1 for lane in lanes]
    return order


WINDOWS, LINES = "multiply_nhwc.h", "depthwise_interleaved4.h"
COLUMNS = "depthwise_columns.h"
MULTIPLIERS = "1073741824..2147483647"
ROUNDED = "((product + 1073741824:i64) >> 31:i64)"
LOWERED = f"{ROUNDED}\nhigh = (high - select((high < 0:i64), 1:i64, 0:i64))"
BY_SHIFT = """local product: i64 = (i64(sum) * i64($scale))
            local high: i64 = $high
            local by: i64 = (0:i64 - i64($shift))
            local value: i64 = ((high + ((1:i64 << by) >> 1:i64)) >> by)"""
SCALED: Parameters = {
    "form": ("f32", "nearest", "above", "twice"),
    "F": ("f32", "i32", "i32", "i32"),
    "parts": ("", "2, ", "2, ", "2, "),
    "part": ("", "0, ", "0, ", "0, "),
    "scales": ("100..10000", *(f"{MULTIPLIERS}, %$table[1] -11..-{n}" for n in (4, 3, 3))),
    "value": ("local value: i64 = i64(rint((f32(sum) * $scale)))", *(BY_SHIFT,) * 3),
    "high": ("", "(product >> 32:i64)", ROUNDED, LOWERED),
    "limits": "zero $zeros, low $low, high $high_limit, %$table $scales",
    "clipped": "$T(min(max((value + index(zero)), index(low)), index(high)))",
}
"""Sums scaled in float, or by a multiplier and a shift, and clipped."""
MICRO_KERNELS = (
    *micro_kernels(
        LINES,
        """zero -128..127, count 1..~70
        kernel @raot_fill_interleaved4() -> (%rows4: i8[count]) {
          for i in 0..count {
            %rows4[i] = i8(index(zero))
          }
        }""",
    ),
    *micro_kernels(
        "requantize.h",
        """rows 1..~4, columns 1..~40, out_step columns.., a_step columns.., b_step columns..,
        a_factor ~-4194304 | -65521 | 3 | 4194304, b_factor ~-4194304 | -65521 | 3 | 4194304,
        offset ~-268435456 | -7 | 0 | 268435456,
        shift 18..23
        kernel @raot_qadd_s8(
          %a: i8[span(rows * a_step, columns * 1)], %b: i8[span(rows * b_step, columns * 1)]
        ) -> (%out: i8[span(rows * out_step, columns * 1)]) {
          for r in 0..rows, c in 0..columns {
            local sum: i32 = (i32(index(offset)) + (i32(%a[r * a_step + c]) * i32(index(a_factor))))
            sum = (sum + (i32(%b[r * b_step + c]) * i32(index(b_factor))))
            %out[r * out_step + c] = cast((sum >> i32(index(shift))), i8, saturate)
          }
        }""",
        struct="raot_qadd",
    ),
    *micro_kernels(
        "requantize.h",
        """rows 1..~4, columns 1..~40, out_step columns.., a_step columns.., b_step columns..,
        a_factor ~-32768 | -3 | 31586 | 32767, b_factor ~-32768 | -3 | 4303 | 32767,
        offset ~-8388608 | -7 | 0 | 8388608,
        a_low ~-32768 | -17350 | 32767, b_low ~-32768 | 18126 | 32767,
        offset_low ~-32768 | 0 | 32767, shift 1..~17
        kernel @raot_qadd_wide_s8(
          %a: i8[span(rows * a_step, columns * 1)], %b: i8[span(rows * b_step, columns * 1)]
        ) -> (%out: i8[span(rows * out_step, columns * 1)]) {
          for r in 0..rows, c in 0..columns {
            local low: i32 = (i32(index(offset_low)) +
              (i32(%a[r * a_step + c]) * i32(index(a_low))))
            low = (low + (i32(%b[r * b_step + c]) * i32(index(b_low))))
            local sum: i32 = (i32(index(offset)) + (i32(%a[r * a_step + c]) * i32(index(a_factor))))
            sum = ((sum + (i32(%b[r * b_step + c]) * i32(index(b_factor)))) + (low >> 16:i32))
            %out[r * out_step + c] = cast((sum >> i32(index(shift))), i8, saturate)
          }
        }""",
        struct="raot_qadd_wide",
    ),
    *micro_kernels(
        WINDOWS,
        """groups 1..~5, depth 1..~150, positions 1..~5, row_step 0..~depth + 4
        kernel @raot_multiply_nhwc_s8(
          %weights: i32[groups, 8 + up(depth, 16)],
          %rows: i8[span(positions * row_step,
            (depth + (up(depth, 16) - depth) * min(depth // ($short + 1), 1)) * 1)]
        ) -> (%sums: i32[up(positions, 2) // 2, groups, 2, 4]) {
          for p in 0..positions, g in 0..groups, n in 0..4 {
            local sum: i32 = %weights[g, p % 2 * 4 + n]
            for k in 0..depth {
              let word = 8 + k // 16 * 16 + n * 4 + k % 16 // 4
              local weight: i32 = i32(i8((%weights[g, word] >> i32(index(8 * (k % 4))))))
              sum = (sum + (weight * i32(%rows[p * row_step + k])))
            }
            %sums[p // 2, g, p % 2, n] = sum
          }
        }""",
        {"short": str(SHORT)},
    ),
    *micro_kernels(
        WINDOWS,
        """by ~-128 | -3 | 1 | 128, groups 1..~5, depth 1..~150, positions 1..~5,
        row_step 0..~depth + 4
        kernel @raot_add_windows_nhwc_s8(
          %rows: i8[span(positions * row_step, depth * 1)]
        ) -> (%sums: i32[up(positions, 2) // 2, groups, 2, 4]) {
          for p in 0..positions {
            local total: i32 = 0:i32
            for k in 0..depth {
              total = (total + i32(%rows[p * row_step + k]))
            }
            total = (total * i32(index(by)))
            for g in 0..groups, n in 0..4 {
              %sums[p // 2, g, p % 2, n] = (%sums[p // 2, g, p % 2, n] + total)
            }
          }
        }""",
    ),
    *micro_kernels(
        LINES,
        """blocks 1..~3, outs 1..2, count 1..~30, stride 1..2,
        length count * stride..~count * stride + 3
        kernel @raot_depthwise_interleaved4_s8(
          %rows4: i8[span(blocks * (4 * length), count * (4 * stride), 16 * 1)],
          %weights: i8[outs, 16]
        ) -> (%sums: i32[blocks, outs, count]) {
          for b in 0..blocks, o in 0..outs, p in 0..count {
            local sum: i32 = 0:i32
            for k in 0..16 {
              local value: i32 = i32(%rows4[(b * length + p * stride) * 4 + k])
              sum = (sum + (value * i32(%weights[o, k])))
            }
            %sums[b, o, p] = sum
          }
        }""",
    ),
    *rescaling("requantize.h", "raot_requantize_$form", {"T": "i8"})[:2],
    *micro_kernels(
        WINDOWS,
        """zero -128..127, flip $flip, channels 1..~40, channel_step ~1 | 200, lines 1..~3,
        first1 0..lines, last1 first1..lines, line_step ~8000, columns 1..~12,
        first ~-3 | 0 | 2 | 4, width 1..~14, column_step ~channels | 3
        kernel @raot_im2col_nhwc_$S(%image: $T[span(channels * channel_step,
          last1 - first1 * line_step, min(first + columns, width) * column_step,
          min(first + columns, width) - max(first, 0))]
        ) -> (%strip: i8[columns, lines, channels]) {
          for x in 0..columns, y in 0..lines, c in 0..channels {
            let column = first + x
            let at = (y - first1) * line_step + column * column_step + c * channel_step
            local byte: u8 = select(within(first1 <= y < last1, 0 <= column < width),
              (u8(%image[at]) ^ u8(index(flip))), u8(index(zero)))
            %strip[x, y, c] = i8(byte)
          }
        }""",
        BYTES, struct="raot_im2col_nhwc",
    ),
    *micro_kernels(
        LINES,
        """count 1..~70
        kernel @raot_add_sums(%more: i32[count]) -> (%sums: i32[count]) {
          for i in 0..count {
            %sums[i] = (%sums[i] + %more[i])
          }
        }""",
    ),
    *micro_kernels(
        LINES,
        """flip $flip, blocks 1..~4, length 4..~40, top ~-3 | -1 | 0 | 3,
        left ~-3 | -1 | 0 | 2, lines 4..~10, columns 3..~40, line_step columns * step..,
        step ~1 | 2 | 5 | 17 | 18 | 64
        kernel @raot_interleave4_$S(%image: $T[span(min(lines, top + 2 * blocks + 2) * line_step,
          min(columns, left + length) * step, min(lines, top + 2 * blocks + 2) - max(top, 0),
          min(columns, left + length) - max(left, 0))]) -> (%rows4: i8[blocks, length, 4]) {
          for b in 0..blocks, c in 0..length, j in 0..4 {
            let y = top + 2 * b + j
            let x = left + c
            %rows4[b, c, j] = select(within(0 <= y < lines, 0 <= x < columns),
              i8((u8(%image[y * line_step + x * step]) ^ u8(index(flip)))), %rows4[b, c, j])
          }
        }""",
        BYTES, struct="raot_interleave4",
    ),
    *micro_kernels(
        LINES,
        """flip $flip, zero -128..127, channels 1..16, apart ~blocks * length * 4 |
        blocks * length * 4 + 8, blocks 1..~4, length 4..~40, top ~-3 | -1 | 0 | 3,
        left ~-3 | -1 | 0 | 2, lines 1..~10, columns 1..~40, line_step columns * step..,
        step channels..
        kernel @raot_interleave4_channels_$S(
          %image: $T[span(min(lines, top + 2 * blocks + 2) * line_step,
          min(columns, left + length) * step, channels * 1,
          min(lines, top + 2 * blocks + 2) - max(top, 0),
          min(columns, left + length) - max(left, 0))]
        ) -> (%rows4: i8[span(up(channels, 4) * apart, blocks * (4 * length), length * 4,
          4 * 1)]) {
          for n in 0..channels, b in 0..blocks, c in 0..length, j in 0..4 {
            let y = top + 2 * b + j
            let x = left + c
            local byte: u8 = select(within(0 <= y < lines, 0 <= x < columns),
              (u8(%image[y * line_step + x * step + n]) ^ u8(index(flip))), u8(index(zero)))
            %rows4[n * apart + (b * length + c) * 4 + j] = i8(byte)
          }
        }""",
        BYTES, struct="raot_interleave4_channels",
    ),
    *micro_kernels(
        LINES,
        """flip $flip, zero -128..127, channels 1..16, apart ~length * 8 | length * 8 + 12,
        length 4..~40, top ~-7 | -1 | 0 | 3, left ~-3 | -1 | 0 | 2, lines 1..~12, columns 1..~40,
        line_step columns * step.., step channels..
        kernel @raot_interleave8_channels_$S(
          %image: $T[span(min(lines, top + 8) * line_step,
          min(columns, left + length) * step, channels * 1,
          min(lines, top + 8) - max(top, 0), min(columns, left + length) - max(left, 0))]
        ) -> (%rows8: i8[span(up(channels, 4) * apart, length * 8, 8 * 1)]) {
          for n in 0..channels, c in 0..length, j in 0..8 {
            let y = top + j
            let x = left + c
            local byte: u8 = select(within(0 <= y < lines, 0 <= x < columns),
              (u8(%image[y * line_step + x * step + n]) ^ u8(index(flip))), u8(index(zero)))
            %rows8[n * apart + c * 8 + j] = i8(byte)
          }
        }""",
        BYTES, struct="raot_interleave8_channels",
    ),
    *micro_kernels(
        "requantize_nhwc.h",
        """channels 1..~37, positions 1..~5, out_step channels * channel_step..,
        channel_step ~1 | 40, $limits
        kernel @raot_requantize_nhwc_$form$U(
          %sums: i32[up(positions, 2) // 2, up(channels, 4) // 4, 2, 4],
          %scales: $F[up(channels, 4) // 4, $parts 4]
        ) -> (%out: $T[span(positions * out_step, channels * channel_step)]) {
          for p in 0..positions, c in 0..channels {
            let wide = min(1, max(0, channels - c // 8 * 8 - 4))
            let lane = wide * (c % 2 * 4 + c % 8 // 2) + (1 - wide) * (c % 8)
            let group = c // 8 * 2 + lane // 4
            local sum: i32 = %sums[p // 2, group, p % 2, lane % 4]
            $value
            %out[p * out_step + c * channel_step] = $clipped
          }
        }""",
        BYTES, SCALED, {
            "table": "scales", "scale": "%scales[group, ${part}lane % 4]",
            "shift": "%scales[group, 1, lane % 4]",
        },
        struct="raot_requantize_nhwc",
    ),
    *micro_kernels(
        "requantize_channels.h",
        """channels 1..~5, count 1..~30, channel_step ~count * step | 1,
        step ~1 | channels | 7, $limits
        kernel @raot_requantize_channels_$form$U(
          %sums: i32[channels, up(count, 8)], %start: i32[channels],
          %scale: $F[channels, ${parts}1]
        ) -> (%out: $T[span(channels * channel_step, count * step)]) {
          for r in 0..channels, c in 0..count {
            local sum: i32 = (%sums[r, c] + %start[r])
            $value
            %out[r * channel_step + c * step] = $clipped
          }
        }""",
        BYTES, SCALED,
        {"table": "scale", "scale": "%scale[r, ${part}0]", "shift": "%scale[r, 1, 0]"},
        struct="raot_requantize_channels",
    ),
    *micro_kernels(
        "quantize_lines.h",
        """lines 1..~3, count 0..~300, line_step ~count * step | 1, x_step ~count | count + 3,
        step ~1 | lines | 7, $literal%x -30000000..30000000, %scale 1000..2000000
        kernel @raot_quantize_lines${form}_$S(
          %x: f32[span(lines * x_step, count * 1)], %scale: f32[1]$operand
        ) -> (%out: $T[span(lines * line_step, count * step)]) {
          for j in 0..lines, i in 0..count {
            local quotient: f32 = (%x[j * x_step + i] / %scale[0])
            %out[j * line_step + i * step] = cast((rint(quotient) + $zero), $T, saturate)
          }
        }""",
        BYTES,
        {
            "form": ("", "_from"), "literal": ("zero $zeros, ", ""),
            "operand": ("", ", %zero: $T[1]"), "zero": ("f32(index(zero))", "f32(%zero[0])"),
        },
        struct="raot_quantize_lines$form",
    ),
    *micro_kernels(
        "sum_bytes.h",
        """channels 1..~20, channel_step ~1 | 400, count0 0..~3, step0 ~count1 * step1 | 90,
        count1 0..~40, step1 ~channels | 1
        kernel @raot_sum_bytes_$S(
          %image: $T[span(channels * channel_step, count0 * step0, count1 * step1)]
        ) -> (%sums: i32[channels]) {
          for c in 0..channels {
            local sum: i32 = 0:i32
            for i in 0..count0, j in 0..count1 {
              sum = (sum + i32(%image[c * channel_step + i * step0 + j * step1]))
            }
            %sums[c] = sum
          }
        }""",
        BYTES, struct="raot_sum_bytes",
    ),
    *micro_kernels(
        COLUMNS,
        """zero -128..127, flip $flip, channels 1..~4, channel_step ~1 | 200, lines 1..~3,
        first1 0..lines, last1 first1..lines, line_step ~8000, columns 1..~30,
        first ~-3 | 0 | 2 | 4, width 1..~34, column_step ~channels | 3,
        pitch columns * lines..~columns * lines + 9
        kernel @raot_depthwise_strips_$S(%image: $T[span(channels * channel_step,
          last1 - first1 * line_step, min(first + columns, width) * column_step,
          min(first + columns, width) - max(first, 0))]
        ) -> (%strips: i8[span(channels * pitch, max(columns * lines, 16) * 1)]) {
          for c in 0..channels, x in 0..columns, y in 0..lines {
            let column = first + x
            let at = c * channel_step + (y - first1) * line_step + column * column_step
            local byte: u8 = select(within(first1 <= y < last1, 0 <= column < width),
              (u8(%image[at]) ^ u8(index(flip))), u8(index(zero)))
            %strips[c * pitch + x * lines + y] = i8(byte)
          }
        }""",
        BYTES, struct="raot_depthwise_strips",
    ),
    *micro_kernels(
        COLUMNS,
        """channels 1..~4, count 1..~30, depth 1..~40, step 1..~3,
        width count * step + depth..~count * step + depth + 8
        kernel @raot_depthwise_columns_s8(
          %strips: i8[span(channels * width, count * step, up(depth, 16) * 1)],
          %weights: i8[channels, up(depth, 16)]
        ) -> (%sums: i32[channels, up(count, 8)]) {
          for c in 0..channels, p in 0..count {
            local sum: i32 = 0:i32
            for k in 0..depth {
              sum = (sum + (i32(%weights[c, k]) * i32(%strips[c * width + p * step + k])))
            }
            %sums[c, p] = sum
          }
        }""",
    ),
    *micro_kernels(
        "depthwise_bytes.h",
        """channels 1..~5, count 1..~30, shared ~1 | 4, depth 1..~16 - (shared - 1) * step,
        step 1..~3, width count * step + 16..~count * step + 40,
        channel_step ~count * out_step | 1, out_step ~1 | channels | 7, $limits
        kernel @raot_depthwise_bytes_$form$U(
          %strips: i8[span(channels * width, up(count, 4) // shared * (shared * step), 16 * 1)],
          %weights: i8[channels, shared, 16], %start: i32[channels],
          %scale: $F[channels, ${parts}1]
        ) -> (%out: $T[span(channels * channel_step, count * out_step)]) {
          for r in 0..channels, p in 0..count {
            local sum: i32 = %start[r]
            for k in 0..depth {
              let at = p % shared * step + k
              let first = r * width + p // shared * (shared * step)
              sum = (sum + (i32(%weights[r, p % shared, at]) * i32(%strips[first + at])))
            }
            $value
            %out[r * channel_step + p * out_step] = $clipped
          }
        }""",
        BYTES, SCALED,
        {"table": "scale", "scale": "%scale[r, ${part}0]", "shift": "%scale[r, 1, 0]"},
        struct="raot_depthwise_bytes",
    ),
    *micro_kernels(
        "requantize_channel.h",
        """lines 1..~5, count 1..~30, line_step count * step..~count * step + 1,
        step ~1 | 2 | 7, $limits
        kernel @raot_requantize_channel_$form$U(
          %sums: i32[max((lines - 1) * count + up(count, 8), up(lines * count, 8))],
          %start: i32[1], %scale: $F[${parts}1]
        ) -> (%out: $T[span(lines * line_step, count * step)]) {
          for r in 0..lines, c in 0..count {
            local sum: i32 = (%sums[r * count + c] + %start[0])
            $value
            %out[r * line_step + c * step] = $clipped
          }
        }""",
        BYTES, SCALED, {"table": "scale", "scale": "%scale[${part}0]", "shift": "%scale[1, 0]"},
        struct="raot_requantize_channel",
    ),
)  # fmt: skip
