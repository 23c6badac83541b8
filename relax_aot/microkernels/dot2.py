# SPDX-License-Identifier: Apache-2.0
"""Hosts (PMADDWD, VPDPWSSD): matrix products of 16-bit integers, the packing of their operands,
depthwise convolutions, and the requantization of sums."""

from __future__ import annotations

from relax_aot.ir.microkernel import MicroKernel
from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels

COLUMNS = 16
"""RAOT_DOT2_COLUMNS: columns of a tile that are computed at once."""
EIGHT = 8
"""Sums that are rescaled at once."""
GATHER, DEPTHWISE = "gather.h", "depthwise_lanes.h"


def tiles(header: str, operands: Parameters) -> tuple[MicroKernel, ...]:
    """Tiles of dot products: `$L` rows of `$deep` steps by `$R` columns of `$group` steps."""
    return micro_kernels(
        header,
        """rows 1..~14, columns 1..~50, depth $deep..~40 by $deep,
        sum_step up(columns, 16).., bias_row 0..1, bias_column 1 - bias_row$values
        kernel @$tile(
          %left: $L[rows, depth],
          %right: $R[up(columns, 16) // 16, depth // $group, 16, $group],
          %bias: i32[span(rows * bias_row, up(columns, 16) * bias_column)]
        ) -> (%sums: i32[span(rows * sum_step, up(columns, 16) * 1)]) {
          for r in 0..rows, c in 0..columns {
            local sum: i32 = %bias[r * bias_row + c * bias_column]
            for k in 0..depth {
              sum = (sum +
                (i32(%left[r, k]) * i32(%right[c // 16, k // $group, c % 16, k % $group])))
            }
            %sums[r * sum_step + c] = sum
          }
        }""",
        operands, struct="raot_${form}_sizes",
    )  # fmt: skip


def panels(header: str, operands: Parameters) -> tuple[MicroKernel, ...]:
    """Gathers of right operands, which subtract an offset."""
    return micro_kernels(
        header,
        """depth 1..~20, columns 1..16, extent columns..~80, %offsets 0..extent - columns
        kernel @raot_panel_${form}_$S(%image: $T[extent], %offsets: i32[depth]) ->
          (%panel: $I[up(depth, $group) // $group, 16, $group]) {
          for k in 0..depth {
            clamped at in 0..extent - columns = %offsets[k]
            for c in 0..columns {
              %panel[k // $group, c, k % $group] = $I((i32(%image[at + c]) - $panel_offset))
            }
          }
        }""",
        operands, BYTES,
    )  # fmt: skip


def windows(header: str, operands: Parameters) -> tuple[MicroKernel, ...]:
    """Gathers of left operands, which subtract an offset."""
    return micro_kernels(
        header,
        """zero $zeros, rows 1..~3, row_step 0..~9,
        depth up(count0 * count1 * count2, $group), count0 1..~3, first0 0..count0,
        last0 first0..count0,
        step0 step1 * count1..~step1 * count1 + 1,
        count1 1..~3, first1 0..count1, last1 first1..count1,
        step1 step2 * count2..~step2 * count2 + 1,
        count2 1..~40, first2 0..count2, last2 first2..count2, step2 1..~2
        kernel @raot_rows_${form}_$S(%image: $T[span(rows * row_step,
          last0 - first0 * step0, last1 - first1 * step1, last2 - first2 * step2)]
        ) -> (%to: $I[rows, depth]) {
          for r in 0..rows, i in 0..count0, j in 0..count1, t in 0..count2 {
            let at = (i - first0) * step0 + (j - first1) * step1 + (t - first2) * step2
            local value: i32 = select(
              within(first0 <= i < last0, first1 <= j < last1, first2 <= t < last2),
              i32(%image[r * row_step + at]), i32(index(zero)))
            %to[r, (i * count1 + j) * count2 + t] = $I((value - $row_offset))
          }
        }""",
        operands, BYTES, struct="raot_rows_$form",
    )  # fmt: skip


DOT2_I16: Parameters = {
    "form": "dot2_i16", "tile": "raot_$form", "L": "i16", "R": "i16", "deep": "2", "group": "2",
    "I": "i16", "panel_offset": "0:i32", "row_offset": "i32(index(zero))", "values": "",
}  # fmt: skip
ROUNDED = """local product: i64 = (i64(sum) * i64(%scale[r * scale_step]))
            local value: i64 = ((product + (1:i64 << ($by - 1:i64))) >> $by)"""
RESCALED: Parameters = {
    "form": ("f32", "i32", "shifts"),
    "F": ("f32", "i32", "i32"),
    "ranges": ("%scale 10..100000", "shift 33..62", "%shifts 33..62"),
    "shifts": ("", "", ", %shifts: i32[span(rows * scale_step)]"),
    "value": (
        "local value: i64 = i64(rint((f32(sum) * %scale[r * scale_step])))", ROUNDED, ROUNDED,
    ),
    "by": ("", "index(shift)", "i64(%shifts[r * scale_step])"),
}  # fmt: skip
"""Scales as floats, as multipliers with one shift, and with a shift each."""


def rescaling(header: str, name: str, types: Parameters) -> tuple[MicroKernel, ...]:
    """Rows of sums times a scale, as bytes: the three forms of scales for each type."""
    return micro_kernels(
        header,
        """rows 1..~5, columns 1..~30, out_step columns.., sum_step columns.., scale_step 0..1,
        zero -128..255, $ranges
        kernel @$name(
          %sums: i32[span(rows * sum_step, up(columns, 8) * 1)],
          %scale: $F[span(rows * scale_step)]$shifts
        ) -> (%out: $T[span(rows * out_step, columns * 1)]) {
          for r in 0..rows, c in 0..columns {
            local sum: i32 = %sums[r * sum_step + c]
            $value
            %out[r * out_step + c] = cast((value + index(zero)), $T, saturate)
          }
        }""",
        {"name": name}, types, RESCALED, struct=name.partition("_$")[0],
    )  # fmt: skip


MICRO_KERNELS = (
    *tiles("dot2_i16.h", DOT2_I16),
    *panels(GATHER, DOT2_I16),
    *windows(GATHER, DOT2_I16),
    *micro_kernels(
        GATHER,
        """channels 1..~4, rows 1..~4, columns 1..~4, row_dilation 1..~4,
        column_dilation 1..~4, row_stride 1..~4, column_stride 1..~4, channel_step 1..~4,
        row_phase_step 0..~4, column_phase_step 0..~4, line_step 0..~4
        kernel @raot_tap_offsets() -> (%offsets: i32[channels, rows, columns]) {
          for c in 0..channels, y in 0..rows, x in 0..columns {
            let line = y * row_dilation // row_stride
            let row_phase = y * row_dilation % row_stride
            let place = x * column_dilation // column_stride
            let column_phase = x * column_dilation % column_stride
            let moved = row_phase * row_phase_step + column_phase * column_phase_step
            %offsets[c, y, x] = i32(index(c * channel_step + line * line_step + place + moved))
          }
        }""",
        struct="raot_tap_sizes",
    ),
    *micro_kernels(
        GATHER,
        """zero $zeros, channels 1..~3, row_phases 1..row_stride, column_phases 1..column_stride,
        lines 1..~5, positions 1..~30, row_stride 1..~3, column_stride 1..~3,
        top ~-3 | -1 | 0 | 3, left ~-3 | -1 | 0 | 3, image_rows 1..~5, image_columns 1..~25,
        channel_step image_rows * row_step.., row_step image_columns * column_step..,
        column_step 1..~2
        kernel @raot_padded_rows_$S(%image: $T[
          span(channels * channel_step, image_rows * row_step, image_columns * column_step)]
        ) -> (%strip: $T[channels, row_phases, column_phases, lines, positions]) {
          for c in 0..channels, py in 0..row_phases, px in 0..column_phases, line in 0..lines,
              place in 0..positions {
            let y = top + line * row_stride + py
            let x = left + place * column_stride + px
            %strip[c, py, px, line, place] = select(
              within(0 <= y < image_rows, 0 <= x < image_columns),
              %image[c * channel_step + y * row_step + x * column_step], $T(index(zero)))
          }
        }""",
        BYTES, struct="raot_padded_rows",
    ),
    *micro_kernels(
        GATHER,
        """rows 1.., columns 1..~40, to_step columns.., from_step columns..
        kernel @raot_copy_rows_$S(%from: $T[span(rows * from_step, columns * 1)]) ->
          (%to: $T[span(rows * to_step, columns * 1)]) {
          for r in 0..rows, c in 0..columns {
            %to[r * to_step + c] = %from[r * from_step + c]
          }
        }""",
        BYTES,
    ),
    *micro_kernels(
        DEPTHWISE,
        """taps 1.., positions 1..~60, extent positions..~positions + 60,
        %offsets 0..extent - positions, %weights -255..255
        kernel @raot_depthwise_positions_$S(
          %strip: $T[extent], %offsets: i32[taps], %weights: i16[up(taps, 2)], %bias: i32[1]
        ) -> (%sums: i32[up(positions, 16)]) {
          for p in 0..positions {
            local sum: i32 = %bias[0]
            for t in 0..taps {
              clamped at in 0..extent - positions = %offsets[t]
              sum = (sum + (i32(%strip[at + p]) * i32(%weights[t])))
            }
            %sums[p] = sum
          }
        }""",
        BYTES,
    ),
    *micro_kernels(
        DEPTHWISE,
        """channels 1..~40, zero $zeros, first0 ~0 | 1, last0 first0..~first0 + 2,
        step0 ~6 * channels, count1 ~6, first1 ~0 | 1 | 2, last1 first1..~first1 + 3,
        step1 ~channels, %weights -255..255
        kernel @raot_depthwise_channels_$S(
          %image: $T[span(channels * 1, last0 - first0 * step0, last1 - first1 * step1)],
          %weights: i16[((last0 - 1) * count1 + last1) * channels], %bias: i32[channels]
        ) -> (%sums: i32[channels]) {
          for c in 0..channels {
            local sum: i32 = %bias[c]
            for i in first0..last0, j in first1..last1 {
              local value: i32 = i32(%image[(i - first0) * step0 + (j - first1) * step1 + c])
              local weight: i32 = i32(%weights[(i * count1 + j) * channels + c])
              sum = (sum + ((value - i32(index(zero))) * weight))
            }
            %sums[c] = sum
          }
        }""",
        BYTES, struct="raot_depthwise_channels",
    ),
    *rescaling("requantize_lanes.h", "raot_rescale_${form}_$S", BYTES),
)  # fmt: skip
