# SPDX-License-Identifier: Apache-2.0
"""Rows of sigmoid and tanh of integers, with Helium eight at a time. What is written may be what is
read. Arguments have `bits` integer bits."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

FIXED = {"fixed_sigmoid": "raot_fixed_sigmoid_s16", "fixed_tanh": "raot_fixed_tanh_s16"}
"""The micro-kernels by their scalar functions (`ir.loops.FUNCTIONS`)."""
MICRO_KERNELS = micro_kernels(
    "fixed_gates.h",
    """count 0..~70, bits 0..6
    kernel @${name}(%from: i16[count]) -> (%values: i16[count]) {
      for i in 0..count {
        %values[i] = cast($function((cast(%from[i], i32, wrap) << i32(index(bits)))), i16, wrap)
      }
    }""",
    {"function": tuple(FIXED), "name": tuple(FIXED.values())},
)
