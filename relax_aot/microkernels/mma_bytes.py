# SPDX-License-Identifier: Apache-2.0
"""Tensor cores of CUDA devices for bytes: a warp multiplies matrices of signed or unsigned bytes
with sums of 32 bits, exactly. Source: PTX ISA 8.5, 9.7.14.5.10 (m16n8k32) and 9.7.9.25.

A lane has `..._row` elements of a buffer. Of a matrix of rows r and steps k, lane (r % 8) * 4 +
k % 16 // 4 has the bytes k % 4; those of rows from 8 on or steps from 16 on are behind them."""

from __future__ import annotations

from relax_aot.ir.axes import LANES
from relax_aot.microkernels._describe import Parameters, micro_kernels

BYTES: Parameters = {"T": ("i8", "u8")}
SIDES: Parameters = {
    "side": ("left", "right"),
    "place": ("k % 4 + r // 8 * 4 + k // 16 * 8", "k % 4 + k // 16 * 4 + r // 8 * 8"),
}
"""Elements of a lane: rows before steps on the left, steps before columns on the right."""
LOADS = micro_kernels(
    "mma_bytes.cuh",
    f"""pitch 32..~80 by 16, far 0..~64 by 16, lane_row 16..~48 by 16
    kernel @raot_load_${{side}}_$T(
      %from: $T[far + span(16 * pitch, 32 * 1)]
    ) -> (%to: $T[{LANES - 1} * lane_row + 16]) {{
      for r in 0..16, k in 0..32 {{
        %to[lane_row * (r % 8 * 4 + k % 16 // 4) + $place] = %from[far + r * pitch + k]
      }}
    }}""",
    SIDES, BYTES,
)  # fmt: skip
PRODUCTS = micro_kernels(
    "mma_bytes.cuh",
    f"""sums_row 4..~12 by 4, left_row 16..~48 by 16, right_row 8..~24 by 8
    kernel @raot_mma_m16n8k32_${{L}}_$R(
      %left: $L[{LANES - 1} * left_row + 16], %right: $R[{LANES - 1} * right_row + 8]
    ) -> (%sums: i32[{LANES - 1} * sums_row + 4]) {{
      for r in 0..16, c in 0..8 {{
        let sum = sums_row * (r % 8 * 4 + c // 2) + c % 2 + r // 8 * 2
        local total: i32 = %sums[sum]
        for k in 0..32 {{
          let a = left_row * (r % 8 * 4 + k % 16 // 4) + k % 4 + r // 8 * 4 + k // 16 * 8
          let b = right_row * (c * 4 + k % 16 // 4) + k % 4 + k // 16 * 4
          total = (total + (cast(%left[a], i32, wrap) * cast(%right[b], i32, wrap)))
        }}
        %sums[sum] = total
      }}
    }}""",
    {"L": ("i8", "u8")},
    {"R": ("i8", "u8")},
)
LINE_SUMS = (
    *micro_kernels(
        "mma_bytes.cuh",
        f"""lane_row 16..~48 by 16, sums_row 2..~6 by 2
        kernel @raot_add_${{side}}_$T(
          %from: $T[{LANES - 1} * lane_row + 16]
        ) -> (%sums: i32[{LANES - 1} * sums_row + 2]) {{
          for r in 0..16, k in 0..32 {{
            let own = r % 8 * 4 + k % 16 // 4
            let sum = sums_row * own + r // 8
            %sums[sum] = (%sums[sum] + cast(%from[lane_row * own + $place], i32, wrap))
          }}
        }}""",
        SIDES,
        BYTES,
    ),
    *micro_kernels(
        "mma_bytes.cuh",
        f"""from_row 2..~6 by 2, to_row $own..~12 by $own
        kernel @raot_total_${{side}}_i32(
          %from: i32[{LANES - 1} * from_row + 2]
        ) -> (%to: i32[{LANES - 1} * to_row + $own]) {{
          for l in 0..{LANES}, n in 0..$own {{
            local total: i32 = 0:i32
            for s in 0..4 {{
              total = (total + %from[from_row * ($line * 4 + s) + $half])
            }}
            %to[to_row * l + n] = total
          }}
        }}""",
        {
            "side": ("left", "right"), "own": ("2", "4"), "half": ("n", "n // 2"),
            "line": ("(l // 4)", "(l % 4 * 2 + n % 2)"),
        },
    ),
)  # fmt: skip
"""Sums of the elements of each row, or column, first of a lane, then of the four that share it. A
lane has those of its sums: two rows, or two columns of two matrices."""
COPIES = micro_kernels(
    "mma_bytes.cuh",
    """count 0..16, ahead 0..~64 by 16, part 0..~4, apart 0..~32 by 16,
    near 0..~32 by 16, far 0..~64 by 16
    kernel @raot_copy_async_$T(
      %from: $T[min(1, count) * (ahead + part * apart + near) + count]
    ) -> (%to: $T[far + 16]) {
      let first = ahead + part * apart + near
      for i in 0..16 {
        %to[far + i] = select((index(i) < index(count)), %from[first + i], 0:$T)
      }
    }""",
    BYTES,
)
MICRO_KERNELS = (*LOADS, *PRODUCTS, *LINE_SUMS, *COPIES)
