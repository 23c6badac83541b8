# SPDX-License-Identifier: Apache-2.0
"""Rows of states of recurrent layers whose functions are a table, for cores with an FPU and no
vectors of floats."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

HEADER = "state_rows.h"
MIX, MIX_RESET = micro_kernels(
    HEADER,
    """count 0..~19, apart count..~count + 3, %gates -6000000..6000000, %states -2000000..2000000
    kernel @raot_mix_$name(
      %gates: f32[span(3 * apart, count * 1)]$more
    ) -> (%states: f32[count], %y: f32[count]) {
      for i in 0..count {
        local update: f32 = %gates[i]
        local rest: f32 = ((1.0:f32 - update) * gate_tanh($candidate))
        %states[i] = fma(update, %states[i], rest)
        %y[i] = %states[i]
      }
    }""",
    {
        "name": ("states_f32", "reset_states_f32"),
        "more": ("", ", %x: f32[count]"),
        "candidate": (
            "%gates[2 * apart + i]", "(%x[i] + (%gates[apart + i] * %gates[2 * apart + i]))",
        ),
    },
)  # fmt: skip
(CELLS,) = micro_kernels(
    HEADER,
    """count 0..~19, apart count..~count + 3, %gates -6000000..6000000, %cells -2000000..2000000
    kernel @raot_cell_states_f32(
      %gates: f32[span(4 * apart, count * 1)]
    ) -> (%states: f32[count], %y: f32[count], %cells: f32[count]) {
      for i in 0..count {
        local kept: f32 = (gate_sigmoid(%gates[2 * apart + i]) * %cells[i])
        local fresh: f32 = (gate_sigmoid(%gates[i]) * gate_tanh(%gates[3 * apart + i]))
        %cells[i] = (kept + fresh)
        %states[i] = (gate_sigmoid(%gates[apart + i]) * gate_tanh(%cells[i]))
        %y[i] = %states[i]
      }
    }""",
)
MICRO_KERNELS = (MIX, MIX_RESET, CELLS)
