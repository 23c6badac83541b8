# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of contiguous floats, with Helium four at a time. What is written may be
what is read."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

FUNCTIONS = {
    "exp": "raot_exp_f32", "tanh": "raot_tanh_f32", "sigmoid": "raot_sigmoid_f32",
    "erf": "raot_erf_f32",
}  # fmt: skip
"""The micro-kernels by their scalar functions (`ir.loops.FUNCTIONS`)."""
MICRO_KERNELS = micro_kernels(
    "functions_f32.h",
    """count 0..~70, %from -20000000..20000000
    kernel @${name}(%from: f32[count]) -> (%values: f32[count]) {
      for i in 0..count {
        %values[i] = $function(%from[i])
      }
    }""",
    {"function": tuple(FUNCTIONS), "name": tuple(FUNCTIONS.values())},
)
