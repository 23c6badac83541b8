# SPDX-License-Identifier: Apache-2.0
"""Sums of dequantized bytes in the order in which ONNX Runtime adds them, four channels at a time
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
MICRO_KERNELS = micro_kernels(
    "ordered_sums.h",
    """channels 1..~9, count0 1..~11, step0 ~channels | 40, count1 1..~4, step1 ~channels | 9,
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
