# SPDX-License-Identifier: Apache-2.0
"""Whether indices are outside of a range, with Helium by minima and maxima of vectors."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

MICRO_KERNELS = micro_kernels(
    "outside.h",
    """count 0..~70, low ~-100 | -2000000000 | 0, high ~100 | 2000000000 | -1,
    %indices -104..100
    kernel @raot_outside_$T(%indices: $T[count]) -> (%outside: i32[1]) {
      local found: i32 = 0:i32
      for i in 0..count {
        local at: i64 = cast(%indices[i], i64, wrap)
        if ((at < index(low)) || (index(high) < at)) {
          found = 1:i32
        }
      }
      %outside[0] = found
    }""",
    {"T": ("i32", "i64")},
)
