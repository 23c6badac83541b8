# SPDX-License-Identifier: Apache-2.0
"""Tiles of sums of products of floats for cores without instructions for floats, which round parts
of the factors to integers. Results differ from those of the meaning as sums in another order do.
"""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

ROWS = 8
"""Rows of a tile where memory is short; RAOT_INTEGER_ROWS."""
TALL = 16
"""Rows of a tile elsewhere: columns are rounded half as often."""


def words(rows: int) -> int:
    """Of scratch: places of the factors of a part, and lines of integers with their exponent."""
    return 64 + (max(-(-rows // 4) * 4, ROWS) + 1) * 33


PARTS = f"64 + (max(up(rows, 4), {ROWS}) + 1) * 33"
(TILE,) = MICRO_KERNELS = micro_kernels(
    "multiply_integers.h",
    f"""rows 1..{TALL}, columns 1..32, lines 0..~3, taps 0..~3, depth 0..~40,
    left_row 0..~20, left_line 0..~40, left_tap 0..~10, left_step 0..~2,
    right_line 0..~300, right_tap 0..~100, right_step 0..~columns + 3
    kernel @raot_multiply_integers_f32(
      %left: f32[span(rows * left_row, lines * left_line, taps * left_tap, depth * left_step)],
      %right: f32[span(lines * right_line, taps * right_tap, depth * right_step, columns * 1)]
    ) -> (%sums: f32[span(rows * 32, columns * 1)]) scratch (%parts: i32[{PARTS}]) {{
      for r in 0..rows, c in 0..columns {{
        local sum: f32 = %sums[r * 32 + c]
        for i in 0..lines, j in 0..taps, k in 0..depth {{
          let from = r * left_row + i * left_line + j * left_tap + k * left_step
          sum = fma(%left[from], %right[i * right_line + j * right_tap + k * right_step + c], sum)
        }}
        %sums[r * 32 + c] = sum
      }}
    }}""",
    struct="raot_multiply_integers",
)
