# SPDX-License-Identifier: Apache-2.0
"""Strips of bytes as 32-bit integers and back: compilers make vectors of the loops over these
integers on Helium."""

from __future__ import annotations

from relax_aot.microkernels._describe import BYTES, micro_kernels

MICRO_KERNELS = (
    *micro_kernels(
        "byte_strips.h",
        """count 0..~70
        kernel @raot_widen_strip_$S(%x: $T[count]) -> (%values: i32[count]) {
          for i in 0..count {
            %values[i] = i32(%x[i])
          }
        }""",
        BYTES,
    ),
    *micro_kernels(
        "byte_strips.h",
        """count 0..~70, step 1..~3
        kernel @raot_narrow_strip_$S(%values: i32[count]) -> (%out: $T[span(count * step)]) {
          for i in 0..count {
            %out[i * step] = $T(%values[i])
          }
        }""",
        BYTES,
    ),
)
