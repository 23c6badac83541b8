# SPDX-License-Identifier: Apache-2.0
"""Arm DSP extension: 3 x 3 convolutions of bytes by F(2 x 2, 3 x 3), two channels at a time."""

from __future__ import annotations

from string import Template

from relax_aot.microkernels._describe import micro_kernels

PANEL = 3
"""Tiles whose elements lie side by side."""
FILTER = """select((index($i) == index(0)), index(max(2 - 2 * $a, 0)),
                select((index($i) == index(3)), index(max(2 * $a - 2, 0)),
                select((index($i) == index(2)), index(1 - 2 * ($a % 2)), index(1))))"""
"""An element of 2 G, whose rows are 2 0 0, 1 1 1, 1 -1 1 and 0 0 2."""
IN_PANELS = """let across = min(3, tiles - 3 * (t // 3))
            let at = t // 3 * (96 * depth) + (x * depth + k) * 2 * across + 2 * (t % 3)"""

MICRO_KERNELS = (
    *micro_kernels(
        "winograd.h",
        """channels 2..~6 by 2, depth 1..~9
        kernel @raot_winograd_weights(%weights: i8[channels, depth, 18]) ->
          (%to: i16[channels // 2, 16, depth, 2, 2]) {
          for n in 0..channels, x in 0..16, k in 0..depth, h in 0..2 {
            local sum: i32 = 0:i32
            for a in 0..3, b in 0..3 {
              let t = 3 * a + b
              local value: i32 = i32(%weights[n, k, t // 2 * 4 + h * (2 - t // 8) + t % 2])
              local down: i32 = i32($down)
              local across: i32 = i32($across)
              sum = (sum + ((value * down) * across))
            }
            %to[n // 2, x, k, n % 2, h] = i16(sum)
          }
        }""",
        {
            "down": Template(FILTER).substitute(i="(x // 4)", a="a"),
            "across": Template(FILTER).substitute(i="(x % 4)", a="b"),
        },
    ),
    *micro_kernels(
        "winograd.h",
        f"""depth 1..~9, tiles 1..~7, wide 2 * tiles + 2..~2 * tiles + 4,
        %upper -255..255, %lower -255..255
        kernel @raot_winograd_input(
          %upper: i16[span(2 * (2 * depth * wide), depth * (2 * wide), (4 * tiles + 4) * 1)],
          %lower: i16[span(2 * (2 * depth * wide), depth * (2 * wide), (4 * tiles + 4) * 1)]
        ) -> (%to: i16[32 * depth * tiles]) {{
          for t in 0..tiles, x in 0..16, k in 0..depth, h in 0..2 {{
            {IN_PANELS}
            let i = x // 4
            let j = x % 4
            let left = (k * wide + 2 * t + j - 2 * (j // 3)) * 2 + h
            let right = (k * wide + 2 * t + 2 - j // 2 + 2 * (j // 3)) * 2 + h
            let one = 2 * depth * wide
            let own = min(i, 1) * one
            let other = i // 3 * one
            local a: i32 = select((index(i) == index(2)), i32(%lower[left]),
              i32(%upper[own + left]))
            local b: i32 = select((index(i) == index(2)), i32(%lower[right]),
              i32(%upper[own + right]))
            local c: i32 = select((index(i) == index(2)), i32(%upper[one + left]),
              i32(%lower[other + left]))
            local d: i32 = select((index(i) == index(2)), i32(%upper[one + right]),
              i32(%lower[other + right]))
            local upper: i32 = select((index(j) == index(1)), (a + b), (a - b))
            local lower: i32 = select((index(j) == index(1)), (c + d), (c - d))
            %to[at + h] = i16(select((index(i) == index(1)), (upper + lower), (upper - lower)))
          }}
        }}""",
    ),
    *micro_kernels(
        "winograd.h",
        f"""depth 1..~20, tiles 1..~7, %weights -1152..1152, %inputs -1020..1020
        kernel @raot_winograd_multiply(
          %weights: i16[16, depth, 2, 2], %inputs: i16[32 * depth * tiles]
        ) -> (%sums: i32[tiles, 2, 16]) {{
          for t in 0..tiles, n in 0..2, x in 0..16 {{
            local sum: i32 = 0:i32
            for k in 0..depth, h in 0..2 {{
              {IN_PANELS}
              sum = (sum + (i32(%weights[x, k, n, h]) * i32(%inputs[at + h])))
            }}
            %sums[t, n, x] = sum
          }}
        }}""",
    ),
    *micro_kernels(
        "winograd.h",
        """tiles 1..~7, line_step ~2 * channel_step | 3 * channel_step,
        channel_step 2 * tiles..~2 * tiles + 2
        kernel @raot_winograd_output(%sums: i32[tiles, 2, 4, 4], %bias: i32[2]) ->
          (%to: i32[line_step + channel_step + 2 * tiles]) {
          for l in 0..2, n in 0..2, t in 0..tiles, p in 0..2 {
            local sum: i32 = 0:i32
            for i in 0..3, j in 0..3 {
              local value: i32 = %sums[t, n, l + i, p + j]
              sum = select(($minus == index(1)), (sum - value), (sum + value))
            }
            %to[l * line_step + n * channel_step + 2 * t + p] = (%bias[n] + (sum >> 2:i32))
          }
        }""",
        # Rows of A^T: 1 1 1 0 and 0 1 -1 -1.
        {"minus": "index((l * ((i + 1) // 2) + p * ((j + 1) // 2)) % 2)"},
    ),
)  # fmt: skip
