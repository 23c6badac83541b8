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
SIGNS = {
    "_asimd": "i32(index(c % 32 // 16 * 8))",
    "_s16": "i32(index(k % 8 // 4 * (k % 2) * 8))",
}
"""8 where the bits are a two's complement, else 0: they are then 8 more than the weight."""


SIZES = """rows 1..~7, columns 1..$most, groups 1..~2, group 32..~64 by 32,
        left_row groups * group..~groups * group + 3, %left -127..127"""
MEANING = """kernel @raot_dot_$family${form}_q${bits}(
          %left: i8[span(rows * left_row, (groups * group) * 1)],
          %weights: $kind[$blocks, groups * group // ($per), $lanes, $width],
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
PANEL = {
    "most": "32", "panels": "groups, 32", "at": "g, c", "row": "32",
    "blocks": "up(columns, $C) // $C",
}  # fmt: skip
PANELS = {
    "most": "~130",
    "panels": "up(columns, 32) // 32, groups, 32",
    "at": "c // 32, g, c % 32",
    "row": "up(columns, 32)",
    "blocks": "up(columns, 8) // 8 * 2",
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
    """rows 1..~14, columns 1..32, depth 1..~70, group ~8 | 32 | 40 | 96,
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
PARTS: Parameters = {
    "bits": ("8", "4"),
    "per": ("$K", "2 * $K"),
    "T": ("i8", "u8"),
    "weight": (
        "i32(%weights[$whole])",
        """((((i32(%weights[$half]) >> i32(index($shift))) & 15:i32) ^ i32(index(8 - $raised)))
              - i32(index(8 - $raised)))""",
    ),
    "exact": ("", " - i32(index($raised))"),
    "offsets": ("", ", %offsets: i32[$lines, 2]"),
    "ranges": ("", ", %offsets -9999..9999"),
    "low": ("0:i32", "%offsets[line, 0]"),
    "high": ("0:i32", "%offsets[line, 1]"),
    "begin": ("", """
          local raised_low: i32 = 0:i32
          local raised_high: i32 = 0:i32"""),
    "add": ("", """
            raised_low = (raised_low + (low * i32(index($raised))))
            raised_high = (raised_high + (high * i32(index($raised))))"""),
    "end": ("", """
          %offsets[line, 0] = (0:i32 - raised_low)
          %offsets[line, 1] = (0:i32 - raised_high)"""),
}  # fmt: skip
"""Rows of floats as two integers of 16 bits for each element. Some weights of 4 bits have 8 added,
which `offsets` subtract."""
PART_FORMS: Parameters = {
    "form": ("_mve", "_s16"),
    "K": ("8", "4"),
    "C": ("4", "2"),
    "whole": (
        "c // 4, k // 8, c % 4, k % 8",
        "c // 2, k // 4, c % 2, k % 2 * 2 + k % 4 // 2",
    ),
    "half": (
        "c // 4, k // 16, c % 4, k % 8",
        "c // 2, k // 8, c % 2, k % 2 * 2 + k % 8 // 4",
    ),
    "shift": ("k % 16 // 8 * 4", "k % 4 // 2 * 4"),
    "raised": ("8 - k % 16 // 8 * 8", "8"),
}
"""Blocks of C columns by K steps, or twice as many with weights of 4 bits, which are `raised` by 8
or not."""
SPLITS = micro_kernels(
    "dot_parts.h",
    """depth 1..~97
    kernel @raot_split${form}_q${bits}_f32(%left: f32[depth]) -> (
      %parts: i16[$lines * 32 // $K, 2, $K], %units: f32[$lines], %small: i32[$lines]$offsets
    ) {
      for line in 0..$lines {
        local peak: i32 = 0:i32
        let last = min(line * 32 + 32, depth)
        for k in line * 32..last {
          local size: i32 = (cast(%left[k], i32, bits) & 2147483647:i32)
          peak = max(peak, select((size < 2139095040:i32), size, 0:i32))
        }
        local exponent: i32 = max(((peak + 256:i32) >> 23:i32), 31:i32)
        local factor: f32 = cast(((284:i32 - exponent) << 23:i32), f32, bits)
        local least: i32 = ((exponent - 10:i32) << 23:i32)
        local flags: i32 = 0:i32$begin
        for bit in 0..32 {
          let k = line * 32 + bit
          local x: f32 = select((index(k) < index(depth)), %left[k], 0.0:f32)
          local size: i32 = (cast(x, i32, bits) & 2147483647:i32)
          local fits: bool = ((least <= size) && (size < 2139095040:i32))
          local whole: i32 = select(fits, i32(rint((x * factor))), 0:i32)
          local high: i32 = ((whole + 32768:i32) >> 16:i32)
          local low: i32 = (whole - (high * 65536:i32))
          %parts[k // $K, 0, k % $K] = i16(low)
          %parts[k // $K, 1, k % $K] = i16(high)$add
          flags = select((fits || (size == 0:i32)), flags, (flags | (1:i32 << i32(index(bit)))))
        }
        %units[line] = cast(((exponent - 14:i32) << 23:i32), f32, bits)
        %small[line] = flags$end
      }
    }""",
    {"lines": "up(depth, 32) // 32"}, PART_FORMS, PARTS,
)  # fmt: skip
PART_PRODUCTS = micro_kernels(
    "dot_parts.h",
    """columns 1..~70, lines 1..~3, group_lines 1..~3, depth lines * 32 - 31..lines * 32$ranges
    kernel @raot_dot_parts${form}_q${bits}(
      %parts: i16[lines * 32 // $K, 2, $K], %units: f32[lines], %small: i32[lines]$offsets,
      %left: f32[depth], %weights: $T[up(columns, $C) // $C, lines * 32 // ($per), $C, $K],
      %scales: f32[up(columns, 32) // 32, up(lines, group_lines) // group_lines, 32]
    ) -> (%sums: f32[up(columns, 32)]) {
      for c in 0..columns {
        local total: f32 = 0.0:f32
        for line in 0..lines {
          local low: i32 = $low
          local high: i32 = $high
          for k in line * 32..line * 32 + 32 {
            low = (low + (i32(%parts[k // $K, 0, k % $K]) * $weight))
            high = (high + (i32(%parts[k // $K, 1, k % $K]) * $weight))
          }
          local value: f32 = (f32(high) + (f32(low) * 0.0000152587890625:f32))
          total = fma((value * %units[line]), %scales[c // 32, line // group_lines, c % 32],
            total)
        }
        for k in 0..depth {
          if (((%small[k // 32] >> i32(index(k % 32))) & 1:i32) == 1:i32) {
            total = fma(
              (%left[k] * f32(($weight$exact))), %scales[c // 32, k // 32 // group_lines,
              c % 32], total)
          }
        }
        %sums[c] = total
      }
    }""",
    {"lines": "lines"}, PART_FORMS, PARTS, struct="raot_dot_parts",
)  # fmt: skip
BLOCKS = {
    "16": (16, 4), "_asimd": (32, 4), "_s16": (4, 4), "_mve": (4, 16), "_parts_mve": (4, 8),
    "_parts_s16": (2, 4),
}  # fmt: skip
"""Columns and steps of a block of weights, by the form of the micro-kernel."""
DOTS = {form: _dots(form, *map(str, block)) for form in HALVES for block in [BLOCKS[form]]}
MICRO_KERNELS = (
    *FLOAT_PRODUCTS,
    *SPLITS,
    *PART_PRODUCTS,
    *(kernel for kernels in DOTS.values() for kernel in kernels),
)
