# SPDX-License-Identifier: Apache-2.0
"""Maxima of windows of bytes, as max pools find them: of contiguous channels, or along a row that
borders may cut off."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels

MOST_TAPS = 32
_LEAST: Parameters = {"least": ("-128:i32", "0:i32")}
_BOTH: Parameters = {**BYTES, **_LEAST}
MICRO_KERNELS = (
    *micro_kernels(
        "byte_peaks.h",
        """channels 0..~40, count0 0..~4, step0 ~channels | 40, count1 0..~4, step1 ~channels | 9
        kernel @raot_peak_channels_$S(
          %image: $T[span(channels * 1, count0 * step0, count1 * step1)]
        ) -> (%out: $T[channels]) {
          for c in 0..channels {
            local peak: i32 = $least
            for i in 0..count0, j in 0..count1 {
              peak = max(peak, i32(%image[c + i * step0 + j * step1]))
            }
            %out[c] = $T(peak)
          }
        }""",
        _BOTH, struct="raot_peak_channels",
    ),
    *micro_kernels(
        "byte_peaks.h",
        f"""count 0..~90, step ~1 | 3, rows 0..~4, row_step ~width | width + 5,
        taps 1..{MOST_TAPS}, stride 1..~3, first ~-3 | -1 | 0 | 2, width 0..~150
        kernel @raot_peak_rows_$S(%image: $T[span(rows * row_step, width * 1)]) ->
          (%out: $T[span(count * step)]) {{
          for j in 0..count {{
            local peak: i32 = $least
            for i in 0..rows, t in 0..taps {{
              let x = j * stride + t + first
              local value: i32 = select(within(0 <= x < width), i32(%image[i * row_step + x]),
                $least)
              peak = max(peak, value)
            }}
            %out[j * step] = $T(peak)
          }}
        }}""",
        _BOTH, struct="raot_peak_rows",
    ),
)  # fmt: skip
