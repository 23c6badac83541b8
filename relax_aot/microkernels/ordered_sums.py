# SPDX-License-Identifier: Apache-2.0
"""Sums of dequantized bytes in the order in which ONNX Runtime adds them: four channels at a time
on Helium."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels

_VALUE = (
    "local value: f32 = (f32((i32(%image[c + i * step0 + $j * step1]) - i32(index(zero))))"
    " * %scale[0])"
)
ORDERS: Parameters = {
    "order": ("rows", "columns"),
    "body": (
        f"""local total: f32 = 0.0:f32
          for i in 0..count0, j in 0..count1 {{
            {_VALUE.replace("$j", "j")}
            total = (total + value)
          }}""",
        f"""local total: f32 = 0.0:f32
          for j in 0..count1 {{
            local column: f32 = 0.0:f32
            for i in 0..count0 {{
              {_VALUE.replace("$j", "j")}
              column = (column + value)
            }}
            total = (total + column)
          }}""",
    ),
}
_LANE = _VALUE.replace("c + i * step0 + $j * step1", "c * channel_step + i")
_SUMS = micro_kernels(
    "ordered_sums.h",
    """channels 0..~9, count0 0..~11, step0 ~channels | 40, count1 0..~4, step1 ~channels | 9,
    zero $zeros, %scale 10000..2000000
    kernel @raot_sum_${order}_f32_$S(
      %image: $T[span(channels * 1, count0 * step0, count1 * step1)], %scale: f32[1]
    ) -> (%sums: f32[channels]) {
      for c in 0..channels {
        $body
        %sums[c] = total
      }
    }""",
    BYTES, ORDERS, struct="raot_ordered_sums",
)  # fmt: skip

_LANES = micro_kernels(
    "ordered_sums.h",
    """channels 0..~5, channel_step ~count | 40, count 0..~23, zero $zeros, %scale 10000..2000000
    kernel @raot_sum_lanes_f32_$S(
      %image: $T[span(channels * channel_step, count * 1)], %scale: f32[1]
    ) -> (%sums: f32[channels]) {
      for c in 0..channels {
        $lanes
        local total: f32 = ((lane0 + lane2) + (lane1 + lane3))
        for r in 0..count - count // 4 * 4 {
          let i = count // 4 * 4 + r
          $value
          total = (total + value)
        }
        %sums[c] = total
      }
    }""",
    BYTES,
    {
        "value": _LANE,
        "lanes": "\n".join(
            f"""local lane{k}: f32 = 0.0:f32
        for t in 0..count // 4 {{
          let i = 4 * t + {k}
          {_LANE}
          lane{k} = (lane{k} + value)
        }}"""
            for k in range(4)
        ),
    },
    struct="raot_ordered_lanes",
)
MICRO_KERNELS = (*_SUMS, *_LANES)
