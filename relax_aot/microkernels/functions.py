# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of contiguous floats, with Helium four at a time, and gates of quantized
recurrent layers. What is written may be what is read."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

FUNCTIONS = {
    "exp": "raot_exp_f32", "expm1": "raot_expm1_f32", "tanh": "raot_tanh_f32",
    "sigmoid": "raot_sigmoid_f32", "erf": "raot_erf_f32",
}  # fmt: skip
GATES = {"gate_sigmoid": "raot_gate_sigmoid_f32", "gate_tanh": "raot_gate_tanh_f32"}
"""The micro-kernels by their scalar functions (`ir.loops.FUNCTIONS`)."""
_FORM = """count 0..~70, %from -20000000..20000000
    kernel @${name}(%from: f32[count]) -> (%values: f32[count]) {
      for i in 0..count {
        %values[i] = $function(%from[i])
      }
    }"""
MICRO_KERNELS = tuple(
    kernel
    for header, functions in (("functions_f32.h", FUNCTIONS), ("gates.h", GATES))
    for kernel in micro_kernels(
        header, _FORM, {"function": tuple(functions), "name": tuple(functions.values())}
    )
)
