# SPDX-License-Identifier: Apache-2.0
"""Eight or four bytes as half-precision values in registers of a thread of a CUDA device: what is
done to decode quantized weights. Weights of 4 bits are packed in words of eight. Integers less
their zero points are exact, and products are rounded once."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters, micro_kernels

BYTES: Parameters = {"T": ("i8", "u8"), "zeros": ("-128..127", "0..255")}
COUNTS: Parameters = {"N": ("8", "4")}
PACKED: Parameters = {
    "N": ("8", "4"),
    "part": ("", ", part 0..1"),
    "byte": ("2*(i % 2) + i // 4", "2*(i % 2) + part"),
}
"""Eight elements of a word, or four."""
ZEROS: Parameters = {
    "by": ("", "by_"),
    "size": ("zero $zeros", "%zero $zeros"),
    "operand": ("", ", %zero: i32[1]"),
    "value": ("cast(index(zero), i32, wrap)", "%zero[0]"),
}
"""A zero point that is a number, or in memory."""
PUTS = micro_kernels(
    "decode.cuh",
    """kernel @raot_put${N}_$T(%from: $T[$N]) -> (%to: $T[$N]) {
      for i in 0..$N {
        %to[i] = %from[i]
      }
    }""",
    COUNTS,
    {"T": ("f16", "bf16")},
)
"""To shared memory that nothing reads before the next barrier."""
MICRO_KERNELS = (
    *PUTS,
    *micro_kernels(
        "decode.cuh",
        """ahead 0..~64 by $N, near 0..~64 by $N
        kernel @raot_load${N}_$T(%from: $T[ahead + near + $N]) -> (%to: $T[$N]) {
          for i in 0..$N {
            %to[i] = %from[ahead + near + i]
          }
        }""",
        COUNTS,
        BYTES,
    ),
    *micro_kernels(
        "decode.cuh",
        """$size
        kernel @raot_widen${N}_$by$T(%from: $T[$N]$operand) -> (%to: f16[$N]) {
          for i in 0..$N {
            local less: i32 = (cast(%from[i], i32, wrap) - $value)
            %to[i] = cast(cast(less, f32, wrap), f16, wrap)
          }
        }""",
        COUNTS,
        BYTES,
        ZEROS,
    ),
    *micro_kernels(
        "decode.cuh",
        """ahead 0..~64 by 4, near 0..~64 by 4
        kernel @raot_load4_f16(%from: f16[ahead + near + 4]) -> (%to: f16[4]) {
          for i in 0..4 {
            %to[i] = %from[ahead + near + i]
          }
        }""",
    ),
    *micro_kernels(
        "decode.cuh",
        """ahead 0..~64 by 4, near 0..~64 by 4
        kernel @raot_load8_u4(%from: u8[ahead + near + 4]) -> (%to: u8[4]) {
          for i in 0..4 {
            %to[i] = %from[ahead + near + i]
          }
        }""",
    ),
    *micro_kernels(
        "decode.cuh",
        """$size$part
        kernel @raot_widen${N}_${by}u4$tail(%from: u8[4]$operand) -> (%to: $T[$N]) {
          for i in 0..$N {
            local bits: u8 = (%from[$byte] >> cast(index(4*(i // 2 % 2)), u8, wrap))
            local own: i32 = cast((bits & 15:u8), i32, wrap)
            %to[i] = cast(cast((own - $value), f32, wrap), $T, wrap)
          }
        }""",
        PACKED,
        {"zeros": "0..15"},
        {"T": ("f16", "bf16"), "tail": ("", "_bf16")},
        ZEROS,
    ),
    *micro_kernels(
        "decode.cuh",
        """step 0..1
        kernel @raot_$way${N}_$T(%by: $T[${last}*step + 1]) -> (%x: $T[$N]) {
          for i in 0..$N {
            %x[i] = cast((cast(%x[i], f32, wrap) $op cast(%by[i*step], f32, wrap)), $T, wrap)
          }
        }""",
        {"N": ("8", "4"), "last": ("7", "3")},
        {
            "way": ("subtract", "multiply", "multiply"),
            "op": ("-", "*", "*"),
            "T": ("f16", "f16", "bf16"),
        },
    ),
)
