# SPDX-License-Identifier: Apache-2.0
"""Elements of half precision as floats."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

MICRO_KERNELS = micro_kernels(
    "multiply_half.h",
    """count 0..~100
    kernel @raot_widen_$T(%x: $T[count]) -> (%out: f32[count]) {
      for i in 0..count {
        %out[i] = cast(%x[i], f32, wrap)
      }
    }""",
    {"T": ("f16", "bf16")},
)
