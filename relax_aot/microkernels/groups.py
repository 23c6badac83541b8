# SPDX-License-Identifier: Apache-2.0
"""Products with quantized weights that have a scale for each group of k: float activations, and
activations that are quantized bytes, with one scale for a row or for each group."""

from __future__ import annotations

from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.types import DType
from relax_aot.microkernels._describe import Parameters, micro_kernels

COLUMNS = 32
"""RAOT_TILE_COLUMNS: columns of a panel of weights."""
FLOATS: Parameters = {
    "bits": ("8", "4"),
    "weights": ("i8[depth, 32]", "u8[depth, 16]"),
    "weight": (
        "i32(%weights[k, c])",
        "((((i32(%weights[k, c % 16]) >> i32(index(c // 16 * 4))) & 15:i32) ^ 8:i32) - 8:i32)",
    ),
}
HALF = "((((i32(%weights[$place]) >> i32(index($shift))) & 15:i32) ^ $sign) - 8:i32)"
WEIGHTS: Parameters = {
    "bits": ("8", "4"),
    "kind": ("i8", "u8"),
    "per": ("$K", "2 * $K"),
    "lanes": ("$C", "$C"),
    "width": ("$K", "$K"),
    "weight": ("i32(%weights[$place])", HALF),
}
PAIRS = {
    "kind": ("i16", "u8"),
    "width": ("2", "$K"),
    "weight": (
        """((((i32(%weights[c // 4, k // 4, c % 4, k % 4 // 2]) + 128:i32)
                  >> i32(index(k % 2 * 8))) & i32(index(255 - k % 2 * 256)))
                  - i32(index(128 - k % 2 * 128)))""",
        HALF,
    ),
}
"""Of the form _s16: two weights of 8 bits are a halfword, the second one 256 times."""
COLUMN_PAIRS = {"per": ("$K", "$K"), "lanes": ("$C", "$C // 2")}
"""Of the form _asimd: two columns share the bytes of weights of 4 bits."""
HALVES = {
    "16": ("c // 16, k // 8, c % 16, k % 4", "k % 8 // 4 * 4"),
    "_s16": ("c // 4, k // 8, c % 4, k % 4 // 2 * 2 + k % 8 // 4", "k % 2 * 4"),
    "_mve": ("c // 4, k // 32, c % 4, k % 16", "k % 32 // 16 * 4"),
    "_asimd": ("c // 32, k // 4, c % 16, k % 4", "c % 32 // 16 * 4"),
}
"""Where the byte of a weight of 4 bits is, and how far it is shifted."""
SIGNS = {"_asimd": "i32(index(c % 32 // 16 * 8))"}
"""8 where the bits are a two's complement, else 0: they are then 8 more than the weight."""


SIZES = """rows 1..~7, columns 1..$most, groups 1..~2, group 32..~64 by 32,
        left_row groups * group..~groups * group + 3, %left -127..127"""
MEANING = """kernel @raot_dot_$family${form}_q${bits}(
          %left: i8[span(rows * left_row, (groups * group) * 1)],
          %weights: $kind[up(columns, $C) // $C, groups * group // ($per), $lanes, $width],
          %scales: $scales[$panels]$own
        ) -> (%sums: f32[rows, $row]) {
          for r in 0..rows, c in 0..columns {
            local total: f32 = 0.0:f32
            for g in 0..groups {
              local sum: i32 = 0:i32
              for k in g * group..g * group + group {
                sum = (sum + (i32(%left[r * left_row + k]) * $weight))
              }
              total = fma(f32(sum), $scale, total)
            }
            %sums[r, c] = total
          }
        }"""
GROUPS: Parameters = {
    "family": "groups", "scales": "f32", "own": "", "scale": "%scales[$at]",
}  # fmt: skip
OWN: Parameters = {
    "family": "blocks",
    "own": ", %own: f32[span(rows * own_row, groups * 1)]",
    "scale": "(f32(%scales[$at]) * %own[r * own_row + g])",
}
"""A scale for each group of a row of the left operand."""
BLOCK_SCALES = {"16": DType.F16, "_asimd": DType.F16, "_s16": DType.F32, "_mve": DType.F32}
"""The type of the scales of weights in blocks: F16 where vectors convert it."""
PANEL = {"most": "32", "panels": "groups, 32", "at": "g, c", "row": "32"}
PANELS = {
    "most": "~130",
    "panels": "up(columns, 32) // 32, groups, 32",
    "at": "c // 32, g, c % 32",
    "row": "up(columns, 32)",
}
WIDE = ("_s16",)
"""Forms that take several panels of columns, for which they convert the left operand once."""


def _dots(form: str, columns: str, steps: str) -> tuple[MicroKernel, ...]:
    """Quantized bytes by weights in blocks of some columns and steps."""
    place, shift = HALVES[form]
    whole = f"c // {columns}, k // {steps}, c % {columns}, k % {steps}"
    sign = SIGNS.get(form, "8:i32")
    parts: Parameters = {"form": form, "C": columns, "K": steps, "shift": shift, "sign": sign}
    parts = {**parts, **(PANELS if form in WIDE else PANEL)}
    own_bits = {"_s16": PAIRS, "_asimd": COLUMN_PAIRS}.get(form, {})
    bits: Parameters = {**WEIGHTS, **own_bits, "place": (whole, place)}
    own = {**OWN, "scales": BLOCK_SCALES[form].value}
    if BLOCK_SCALES[form] is DType.F32:
        own["scale"] = "(%scales[$at] * %own[r * own_row + g])"
    return (
        *micro_kernels(
            "dot_groups.h", f"{SIZES}\n{MEANING}", parts, bits, GROUPS, struct="raot_dot_groups"
        ),
        *micro_kernels(
            "dot_blocks.h", f"{SIZES}, own_row groups..~groups + 2\n{MEANING}", parts, bits, own,
            struct="raot_dot_blocks",
        ),
    )  # fmt: skip


FLOAT_PRODUCTS = micro_kernels(
    "multiply_groups.h",
    """rows 1..~7, columns 1..32, depth 1..~70, group ~8 | 32 | 40 | 96,
    left_row depth..~depth + 3
    kernel @raot_multiply_q${bits}_f32(
      %left: f32[span(rows * left_row, depth * 1)], %weights: $weights,
      %scales: f32[up(depth, group) // group, 32]
    ) -> (%sums: f32[rows, 32]) {
      for r in 0..rows, c in 0..columns {
        local total: f32 = 0.0:f32
        for g in 0..up(depth, group) // group {
          local sum: f32 = 0.0:f32
          let last = min(g * group + group, depth)
          for k in g * group..last {
            sum = fma(%left[r * left_row + k], f32($weight), sum)
          }
          total = fma(sum, %scales[g, c], total)
        }
        %sums[r, c] = total
      }
    }""",
    FLOATS, struct="raot_groups",
)  # fmt: skip
BLOCKS = {"16": (16, 4), "_asimd": (32, 4), "_s16": (4, 4), "_mve": (4, 16)}
"""Columns and steps of a block of weights, by the form of the micro-kernel."""
DOTS = {form: _dots(form, *map(str, block)) for form, block in BLOCKS.items()}
MICRO_KERNELS = (*FLOAT_PRODUCTS, *(kernel for kernels in DOTS.values() for kernel in kernels))
