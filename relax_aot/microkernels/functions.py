# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of contiguous floats, with Helium four at a time. What is written may be
what is read."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

FUNCTIONS = ("exp", "tanh", "sigmoid", "erf")
MICRO_KERNELS = micro_kernels(
    "functions_f32.h",
    """count 0..~70, %from -20000000..20000000
    kernel @raot_${function}_f32(%from: f32[count]) -> (%values: f32[count]) {
      for i in 0..count {
        %values[i] = $function(%from[i])
      }
    }""",
    {"function": FUNCTIONS},
)
