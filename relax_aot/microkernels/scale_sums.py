# SPDX-License-Identifier: Apache-2.0
"""Floats of integer sums: times a scale and a factor, plus a bias, limited."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

HEADER = "scale_sums.h"
VALUES = "%scale -3000000..3000000, %bias -3000000..3000000, %by 100..900000"
FROM = {
    "form": ("", "_from"),
    "lines": ("", "%start: i32[span(lines * start_step)], "),
    "line_steps": ("", "start_step 0..1, "),
    "line_sum": ("", " + %start[r * start_step]"),
    "channels": ("", "%start: i32[channels], "),
    "channel_sum": ("", " + %start[c]"),
}
"""Sums, and sums that a start is added to."""
MICRO_KERNELS = (
    *micro_kernels(
        HEADER,
        f"""lines 1..~4, count 1..~30, line_step ~count * step | 1, step ~1 | lines | 7,
        sum_line ~count | count + 3, scale_step 0..1, bias_step 0..1, $line_steps{VALUES}
        kernel @raot_scale_lines${{form}}_f32(
          %sums: i32[span(lines * sum_line, count * 1)], $lines
          %scale: f32[span(lines * scale_step)], %bias: f32[span(lines * bias_step)], %by: f32[3]
        ) -> (%out: f32[span(lines * line_step, count * step)]) {{
          for r in 0..lines, c in 0..count {{
            local sum: i32 = (%sums[r * sum_line + c]$line_sum)
            local x: f32 = ((f32(sum) * %scale[r * scale_step]) * %by[0])
            x = (x + %bias[r * bias_step])
            %out[r * line_step + c * step] = min(max(x, %by[1]), %by[2])
          }}
        }}""",
        FROM, struct="raot_scale_lines$form",
    ),
    *micro_kernels(
        HEADER,
        f"""channels 1..~20, positions 1..~6, channel_step ~1 | 7,
        out_step ~channels * channel_step | channels * channel_step + 3, scale_step 0..1,
        bias_step 0..1, {VALUES}
        kernel @raot_scale_nhwc${{form}}_f32(
          %sums: i32[up(positions, 2) // 2, up(channels, 4) // 4, 2, 4], $channels
          %scale: f32[span(channels * scale_step)], %bias: f32[span(channels * bias_step)],
          %by: f32[3]
        ) -> (%out: f32[span(positions * out_step, channels * channel_step)]) {{
          for p in 0..positions, c in 0..channels {{
            local sum: i32 = (%sums[p // 2, c // 4, p % 2, c % 4]$channel_sum)
            local x: f32 = ((f32(sum) * %scale[c * scale_step]) * %by[0])
            x = (x + %bias[c * bias_step])
            %out[p * out_step + c * channel_step] = min(max(x, %by[1]), %by[2])
          }}
        }}""",
        FROM, struct="raot_scale_nhwc",
    ),
    *micro_kernels(
        HEADER,
        """rows 1..~3, columns 1..~30, out_row ~columns | columns + 3, row_step 0..1
        kernel @raot_scale_columns_f32(
          %sums: i32[rows, columns], %row_scales: f32[span(rows * row_step)],
          %column_scales: f32[columns]
        ) -> (%out: f32[span(rows * out_row, columns * 1)]) {
          for r in 0..rows, c in 0..columns {
            %out[r * out_row + c] = ((f32(%sums[r, c]) * %row_scales[r * row_step])
              * %column_scales[c])
          }
        }""",
        struct="raot_scale_columns",
    ),
)  # fmt: skip
