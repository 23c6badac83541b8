# SPDX-License-Identifier: Apache-2.0
"""Whole float convolutions: one function each, for `--optimize size`. NCHW, NHWC with packed
weights, and depthwise in both layouts. `low` and `high` are the upper halves of floats."""

from __future__ import annotations

from relax_aot.microkernels._describe import micro_kernels

COLUMNS = 32
"""RAOT_TILE_COLUMNS: filters that a panel of packed weights holds."""

COMMON = {
    "scratch": "", "tile": "0", "taps": "y in 0..line_taps, x in 0..pixel_taps",
    "add": "if inside {\nsum = fma(%image[$pixel], %weights[$weight], sum)\n}",
}  # fmt: skip
NCHW = {
    "image": "channels * lines * pixels",
    "pixel": "(c * lines + line) * pixels + pixel",
    "at": "(f * out_lines + i) * out_pixels + j",
}
NHWC = {
    "image": "lines * pixels * channels",
    "pixel": "(line * pixels + pixel) * channels + c",
    "at": "(i * out_pixels + j) * filters + f",
}
DENSE = {"filters": "~1 | 5 | 9 | 35", "channels": "~1 | 3 | 7", "apart": "2"}
DEPTHWISE = {
    "filters": "channels", "channels": "~1 | 5 | 9 | 35", "apart": "2",
    "loops": "$taps, c in f..f + 1", "weights": "line_taps * pixel_taps * channels",
}  # fmt: skip
PANEL = (
    "f // 32 * 32 * line_taps * pixel_taps * channels + "
    "((y * pixel_taps + x) * channels + c) * min(filters - f // 32 * 32, 32) + f % 32"
)
FAMILY = (
    {
        **NCHW, **DENSE, "name": "raot_convolve_nchw_f32", "loops": "c in 0..channels, $taps",
        "add": "sum = fma(select(inside, %image[$pixel], 0.0:f32), %weights[$weight], sum)",
        "weights": "filters, channels, line_taps, pixel_taps", "weight": "f, c, y, x",
        "tile": "4..~32 by 4",
        "scratch": "scratch (%panel: f32[(1 - dense) * channels * line_taps * pixel_taps * tile])",
    },
    {
        **NHWC, **DENSE, "name": "raot_convolve_nhwc_f32", "loops": "$taps, c in 0..channels",
        "apart": "1", "weight": PANEL,
        "weights": "filters * line_taps * pixel_taps * channels",
    },
    {
        **NHWC, **DEPTHWISE, "name": "raot_depthwise_nhwc_f32",
        "weight": "(y * pixel_taps + x) * channels + c",
    },
    {
        **NCHW, **DEPTHWISE, "name": "raot_depthwise_nchw_f32",
        "weight": "(c * line_taps + y) * pixel_taps + x",
    },
)  # fmt: skip
MICRO_KERNELS = tuple(
    kernel
    for parts in FAMILY
    for kernel in micro_kernels(
        "convolve.h",
        """filters $filters, channels $channels,
        lines line_taps * line_apart..~line_taps * line_apart + 4,
        pixels pixel_taps * pixel_apart..~pixel_taps * pixel_apart + 4,
        out_lines (lines + 2 * line_pad - (line_taps - 1) * line_apart - 1) // line_step + 1,
        out_pixels (pixels + 2 * pixel_pad - (pixel_taps - 1) * pixel_apart - 1) // pixel_step + 1,
        line_taps ~1 | 3 | 4, pixel_taps ~1 | 3, line_step 1..~2, pixel_step 1..~2,
        line_pad 0..line_taps // 2, pixel_pad 0..pixel_taps // 2,
        line_apart 1..~2, pixel_apart 1..$apart, low ~-128 | 0,
        high ~32640 | 16576, starts 0..1, adds 0..1, dense ~0, tile $tile
        kernel @$name(
          %image: f32[$image], %weights: f32[$weights], %start: f32[starts * filters],
          %other: f32[adds * filters * out_lines * out_pixels]
        ) -> (%out: f32[filters * out_lines * out_pixels]) $scratch {
          for f in 0..filters, i in 0..out_lines, j in 0..out_pixels {
            local sum: f32 = 0.0:f32
            if (index(starts) != index(0)) {
              sum = %start[f]
            }
            for $loops {
              let line = i * line_step - line_pad + y * line_apart
              let pixel = j * pixel_step - pixel_pad + x * pixel_apart
              local inside: bool = within(0 <= line < lines, 0 <= pixel < pixels)
              $add
            }
            let at = $at
            if (index(adds) != index(0)) {
              sum = (sum + %other[at])
            }
            local low: f32 = cast(i32(index(low % 65536 * 65536)), f32, bits)
            local high: f32 = cast(i32(index(high % 65536 * 65536)), f32, bits)
            %out[at] = min(max(sum, low), high)
          }
        }""",
        {**COMMON, **parts}, table="raot_convolve",
    )
)  # fmt: skip
