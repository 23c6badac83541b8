# SPDX-License-Identifier: Apache-2.0
"""Rows of matrices in the registers of a warp, in the layout of the sums of mma.sync.m16n8k16.

Four lanes share a row: lane (r % 8) * 4 + c // 2 has the columns c % 8 // 2 * 2 and the next one of
each eight. Of two rows of a lane, the second is eight rows on. A lane has `lane_row` elements of
the matrices. Source: PTX ISA 8.5, 9.7.14.5.8.
"""

from __future__ import annotations

from relax_aot.ir.axes import LANES
from relax_aot.microkernels._describe import micro_kernels

MICRO_KERNELS = (
    *micro_kernels(
        "fragments.cuh",
        f"""count 1..~8, lane_row 4 * count..~48 by 4, peaks_row 2..~4 by 2
        kernel @raot_row_peaks_f32(
          %scores: f32[{LANES - 1} * lane_row + 4 * count]
        ) -> (%peaks: f32[{LANES - 1} * peaks_row + 2]) {{
          for r in 0..16 {{
            let first = peaks_row * (4 * (r % 8)) + r // 8
            local peak: f32 = %peaks[first]
            for t in 0..count, c in 0..8 {{
              let own = lane_row * (r % 8 * 4 + c // 2)
              peak = max(peak, %scores[own + 4 * t + c % 2 + r // 8 * 2])
            }}
            for l in 0..4 {{
              %peaks[first + peaks_row * l] = peak
            }}
          }}
        }}""",
    ),
    *micro_kernels(
        "fragments.cuh",
        """count 1..~8
        kernel @raot_powers_of_2_f32() -> (%x: f32[count]) {
          for i in 0..count {
            %x[i] = exp2(%x[i])
          }
        }""",
    ),
    *micro_kernels(
        "fragments.cuh",
        """kernel @raot_round4_$T(%from: f32[4]) -> (%to: $T[4]) {
          for i in 0..4 {
            %to[i] = cast(%from[i], $T, wrap)
          }
        }""",
        {"T": ("f16", "bf16")},
    ),
)
