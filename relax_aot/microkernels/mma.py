# SPDX-License-Identifier: Apache-2.0
"""Tensor cores of CUDA devices: a warp multiplies matrices of half-precision values whose elements
are spread over the registers of its lanes, in the layouts of mma.sync, and threads copy to shared
memory without waiting. Source: PTX ISA 8.5, 9.7.14 (Warp Level Matrix Multiply-Accumulate) and
9.7.9.25 (Asynchronous copy).

A lane has `..._row` elements of a buffer. Of a matrix of rows r and steps k, lane (r % 8) * 4 +
k % 8 // 2 has k % 2; elements of rows or steps from 8 on are behind them."""

from __future__ import annotations

from relax_aot.ir.axes import LANES
from relax_aot.microkernels._describe import Parameters, micro_kernels

HALVES: Parameters = {"T": ("f16", "bf16")}
SIDES: Parameters = {
    "side": ("left", "right"),
    "place": ("k % 2 + r // 8 * 2 + k // 8 * 4", "k % 2 + k // 8 * 2 + r // 8 * 4"),
}
"""Elements of a lane: rows before steps on the left, steps before columns on the right."""
ORDERS: Parameters = {
    "order": ("", "_steps"), "from": ("r * pitch + k", "k * pitch + r"),
}  # fmt: skip
"""Whether the elements of a line or those of a step are neighbors in memory."""
LOADS = micro_kernels(
    "mma.cuh",
    f"""pitch 16..~40 by 8, far 0..~64 by 8, lane_row 8..~24 by 8
    kernel @raot_load_${{side}}${{order}}_$T(
      %from: $T[far + span(16 * pitch, 16 * 1)]
    ) -> (%to: $T[{LANES - 1} * lane_row + 8]) {{
      for r in 0..16, k in 0..16 {{
        %to[lane_row * (r % 8 * 4 + k % 8 // 2) + $place] = %from[far + $from]
      }}
    }}""",
    ORDERS, SIDES, HALVES,
)  # fmt: skip
STEPS: Parameters = {"steps": ("16", "8"), "left_each": ("8", "4"), "right_each": ("4", "2")}
"""Of a product, and the elements of a lane."""
PRODUCTS = micro_kernels(
    "mma.cuh",
    f"""sums_row 4..~12 by 4, left_row $left_each..~24 by $left_each,
    right_row $right_each..~12 by $right_each
    kernel @raot_mma_m16n8k${{steps}}_$T(
      %left: $T[{LANES - 1} * left_row + $left_each],
      %right: $T[{LANES - 1} * right_row + $right_each]
    ) -> (%sums: f32[{LANES - 1} * sums_row + 4]) {{
      for r in 0..16, c in 0..8 {{
        let sum = sums_row * (r % 8 * 4 + c // 2) + c % 2 + r // 8 * 2
        local total: f32 = %sums[sum]
        for k in 0..$steps {{
          let a = left_row * (r % 8 * 4 + k % 8 // 2) + k % 2 + r // 8 * 2 + k // 8 * 4
          let b = right_row * (c * 4 + k % 8 // 2) + k % 2 + k // 8 * 2
          total = fma(cast(%left[a], f32, wrap), cast(%right[b], f32, wrap), total)
        }}
        %sums[sum] = total
      }}
    }}""",
    STEPS, HALVES,
)  # fmt: skip
WIDTHS: Parameters = {"width": ("8", "4", "2"), "of": ("", "4", "2")}
FLOATS: Parameters = {"T": ("f32",)}
COPY = """count 0..$width, ahead 0..~64 by $width, part 0..~4, apart 0..~32 by $width,
    near 0..~32 by $width, far 0..~64 by $width
    kernel @raot_copy_async${of}_$T(
      %from: $T[min(1, count) * (ahead + part * apart + near) + count]
    ) -> (%to: $T[far + $width]) {
      let first = ahead + part * apart + near
      for i in 0..$width {
        %to[far + i] = select((index(i) < index(count)), %from[first + i], 0.0:$T)
      }
    }"""
COPIES = (
    *micro_kernels("mma.cuh", COPY, HALVES, WIDTHS),
    *micro_kernels("mma.cuh", COPY, FLOATS, {"width": ("1",), "of": ("1",)}),
)
"""Of 16 bytes, or of fewer."""
SHARED = micro_kernels(
    "mma.cuh",
    """far 0..~64 by 4
    kernel @raot_load_shared_i32(%from: i32[far + 4]) -> (%to: i32[4]) {
      for i in 0..4 {
        %to[i] = %from[far + i]
      }
    }""",
)
WAITS = tuple(
    kernel
    for name in ("wait_copies", "end_copies", "wait_ended_copies", "wait_older_copies")
    for kernel in micro_kernels("mma.cuh", f"kernel @raot_{name}() -> () {{\n}}")
)
MICRO_KERNELS = (*LOADS, *PRODUCTS, *COPIES, *SHARED, *WAITS)
