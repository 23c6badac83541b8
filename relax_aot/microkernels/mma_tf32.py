# SPDX-License-Identifier: Apache-2.0
"""Tensor cores of CUDA devices for floats whose factors are rounded to TF32, 11 significant bits,
as they are loaded; halfway cases are rounded away from zero. Source: PTX ISA 8.5, 9.7.14.5.4
(m16n8k8) and 9.7.9.21 (cvt.rna.tf32.f32).

A lane has `..._row` elements of a buffer. Of a matrix of rows r and steps k, lane (r % 8) * 4 +
k % 4 has one; elements of rows from 8 on or steps from 4 on are behind it."""

from __future__ import annotations

from relax_aot.ir.axes import LANES
from relax_aot.microkernels._describe import Parameters, micro_kernels

SIDES: Parameters = {
    "side": ("left", "right"),
    "place": ("r // 8 + k // 4 * 2", "k // 4 + r // 8 * 2"),
}
"""Elements of a lane: rows before steps on the left, steps before columns on the right."""
ORDERS: Parameters = {
    "order": ("", "_steps"), "from": ("r * pitch + k", "k * pitch + r"),
    "span": ("span(16 * pitch, 8 * 1)", "span(8 * pitch, 16 * 1)"),
}  # fmt: skip
"""Whether the elements of a line or those of a step are neighbors in memory."""
LOADS = micro_kernels(
    "mma_tf32.cuh",
    f"""pitch 20..~40 by 4, far 0..~64 by 4, lane_row 4..~12 by 4
    kernel @raot_load_${{side}}${{order}}_f32(
      %from: f32[far + $span]
    ) -> (%to: f32[{LANES - 1} * lane_row + 4]) {{
      for r in 0..16, k in 0..8 {{
        local x: f32 = %from[far + $from]
        local bits: u32 = ((cast(x, u32, bits) + 4096:u32) & 4294959104:u32)
        local rounded: f32 = cast(bits, f32, bits)
        %to[lane_row * (r % 8 * 4 + k % 4) + $place] = select((x == x), rounded, x)
      }}
    }}""",
    ORDERS, SIDES,
)  # fmt: skip
PRODUCTS = micro_kernels(
    "mma_tf32.cuh",
    f"""sums_row 4..~12 by 4, left_row 4..~12 by 4, right_row 2..~6 by 2
    kernel @raot_mma_m16n8k8_f32(
      %left: f32[{LANES - 1} * left_row + 4], %right: f32[{LANES - 1} * right_row + 2]
    ) -> (%sums: f32[{LANES - 1} * sums_row + 4]) {{
      for r in 0..16, c in 0..8 {{
        let sum = sums_row * (r % 8 * 4 + c // 2) + c % 2 + r // 8 * 2
        local total: f32 = %sums[sum]
        for k in 0..8 {{
          let a = left_row * (r % 8 * 4 + k % 4) + r // 8 + k // 4 * 2
          let b = right_row * (c * 4 + k % 4) + k // 4
          total = fma(%left[a], %right[b], total)
        }}
        %sums[sum] = total
      }}
    }}""",
)
COPIES = micro_kernels(
    "mma_tf32.cuh",
    """count 0..4, ahead 0..~64 by 4, part 0..~4, apart 0..~32 by 4,
    near 0..~32 by 4, far 0..~64 by 4
    kernel @raot_copy_async_f32(
      %from: f32[min(1, count) * (ahead + part * apart + near) + count]
    ) -> (%to: f32[far + 4]) {
      let first = ahead + part * apart + near
      for i in 0..4 {
        %to[far + i] = select((index(i) < index(count)), %from[first + i], 0.0:f32)
      }
    }""",
)
MICRO_KERNELS = (*LOADS, *PRODUCTS, *COPIES)
