# SPDX-License-Identifier: Apache-2.0
"""Rows by a matrix of bytes, both computed while a model runs, as those of quantized attention. A
row of bytes is widened to 16 bits without its zero point; that of the matrix is part of a start.
Rows of 16 bits are multiplied as they are."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, Parameters, micro_kernels

PRODUCTS: Parameters = {
    "name": ("dot", "add", "dot", "add"), "S": ("s8", "s8", "u8", "u8"),
    "T": ("i8", "i8", "u8", "u8"),
    "shape": ("columns * step, depth * 1", "depth * step, columns * 1") * 2,
    "at": ("n * step + k", "k * step + n") * 2,
    "steps": ("~depth | depth + 3", "~columns | columns + 3") * 2,
}  # fmt: skip
"""Columns whose elements are contiguous, and lines of contiguous columns."""
MICRO_KERNELS = (
    *micro_kernels(
        "byte_rows.h",
        """depth 1..~40, step ~1 | 3, zero -128..255, other -128..255
        kernel @raot_widen_row_$S(%x: $T[span(depth * step)]) ->
          (%row: i16[depth], %start: i32[1]) {
          local sum: i32 = 0:i32
          for k in 0..depth {
            local value: i32 = (i32(%x[k * step]) - i32(index(zero)))
            %row[k] = i16(value)
            sum = (sum + value)
          }
          %start[0] = (0:i32 - (i32(index(other)) * sum))
        }""",
        BYTES,
    ),
    *micro_kernels(
        "byte_rows.h",
        """columns 1..~21, depth 0..~40, step $steps, %row -383..383
        kernel @raot_${name}_rows_$S(
          %matrix: $T[span($shape)], %row: i16[depth], %start: i32[1]
        ) -> (%sums: i32[columns]) {
          for n in 0..columns {
            local sum: i32 = %start[0]
            for k in 0..depth {
              sum = (sum + (i32(%row[k]) * i32(%matrix[$at])))
            }
            %sums[n] = sum
          }
        }""",
        PRODUCTS,
    ),
    *micro_kernels(
        "wide_rows.h",
        """rows 1..~5, columns 1..~11, depth 0..~300, left_row depth..~depth + 3,
        step ~depth | depth + 3
        kernel @raot_dot_wide_rows_s8(
          %left: i16[span(rows * left_row, depth * 1)],
          %matrix: i8[span(columns * step, depth * 1)]
        ) -> (%sums: i32[rows, columns]) {
          for r in 0..rows, c in 0..columns {
            local sum: i32 = 0:i32
            for k in 0..depth {
              sum = (sum + (i32(%left[r * left_row + k]) * i32(%matrix[c * step + k])))
            }
            %sums[r, c] = sum
          }
        }""",
    ),
)  # fmt: skip
