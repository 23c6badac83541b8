# SPDX-License-Identifier: Apache-2.0
"""What a lane loads for products of windows: a group of elements of a pixel in shared memory, of 16
bytes or of 8, and 16 bytes of weights. How far these are ahead of an address, which threads compute
once, is a number that threads compute, and one that is part of an instruction."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters, micro_kernels

TYPES: Parameters = {"T": ("f16", "bf16", "i8", "u8"), "width": ("8", "8", "16", "16")}
SHORT: Parameters = {"T": TYPES["T"], "width": ("4", "4", "8", "8")}
LOAD = """ahead 0..~64 by $width, near 0..~32 by $width
    kernel @raot_load_$what${width}_$T(%from: $T[ahead + near + $width]) -> (%to: $T[$width]) {
      for i in 0..$width {
        %to[i] = %from[ahead + near + i]
      }
    }"""
MICRO_KERNELS = (
    *micro_kernels("patches.cuh", LOAD, TYPES, {"what": ("group", "weights")}),
    *micro_kernels("patches.cuh", LOAD, SHORT, {"what": ("group",)}),
    *micro_kernels(
        "patches.cuh",
        """kernel @raot_store_group${width}_$T(%from: $T[$width]) -> (%to: $T[$width]) {
          for i in 0..$width {
            %to[i] = %from[i]
          }
        }""",
        SHORT,
    ),
    *micro_kernels(
        "patches.cuh",
        """ahead 0..~64, near 0..~32
        kernel @raot_load_offset_i32(%from: i32[ahead + near + 1]) -> (%to: i32[1]) {
          %to[0] = %from[ahead + near]
        }""",
    ),
)
