# SPDX-License-Identifier: Apache-2.0
"""Eight bytes as half-precision values in registers of a thread of a CUDA device: what is done to
decode quantized weights. Weights of 4 bits are packed in words of eight. Integers less their zero
points are exact, and products are rounded once."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters, micro_kernels

BYTES: Parameters = {"T": ("i8", "u8")}
PUTS = micro_kernels(
    "decode.cuh",
    """kernel @raot_put8_f16(%from: f16[8]) -> (%to: f16[8]) {
      for i in 0..8 {
        %to[i] = %from[i]
      }
    }""",
)
"""To shared memory that nothing reads before the next barrier."""
MICRO_KERNELS = (
    *PUTS,
    *micro_kernels(
        "decode.cuh",
        """ahead 0..~64 by 8
        kernel @raot_load8_$T(%from: $T[ahead + 8]) -> (%to: $T[8]) {
          for i in 0..8 {
            %to[i] = %from[ahead + i]
          }
        }""",
        BYTES,
    ),
    *micro_kernels(
        "decode.cuh",
        """zero $zeros
        kernel @raot_widen8_$T(%from: $T[8]) -> (%to: f16[8]) {
          for i in 0..8 {
            local less: i32 = (cast(%from[i], i32, wrap) - cast(index(zero), i32, wrap))
            %to[i] = cast(cast(less, f32, wrap), f16, wrap)
          }
        }""",
        {**BYTES, "zeros": ("-128..127", "0..255")},
    ),
    *micro_kernels(
        "decode.cuh",
        """ahead 0..~64 by 4
        kernel @raot_load8_u4(%from: u8[ahead + 4]) -> (%to: u8[4]) {
          for i in 0..4 {
            %to[i] = %from[ahead + i]
          }
        }""",
    ),
    *micro_kernels(
        "decode.cuh",
        """zero 0..15
        kernel @raot_widen8_u4(%from: u8[4]) -> (%to: f16[8]) {
          for i in 0..8 {
            local bits: u8 = (%from[2*(i % 2) + i // 4] >> cast(index(4*(i // 2 % 2)), u8, wrap))
            local own: i32 = cast((bits & 15:u8), i32, wrap)
            %to[i] = cast(cast((own - cast(index(zero), i32, wrap)), f32, wrap), f16, wrap)
          }
        }""",
    ),
    *micro_kernels(
        "decode.cuh",
        """step 0..1
        kernel @raot_${way}8_f16(%by: f16[7*step + 1]) -> (%x: f16[8]) {
          for i in 0..8 {
            %x[i] = cast((cast(%x[i], f32, wrap) $op cast(%by[i*step], f32, wrap)), f16, wrap)
          }
        }""",
        {"way": ("subtract", "multiply"), "op": ("-", "*")},
    ),
)
