# SPDX-License-Identifier: Apache-2.0
"""Arm with Helium: Cortex-M55, M85.

Floats: eight vectors of four, each in four of the registers s0..s31; factors come from the
core's own registers (`vfma` by a scalar). Integers: VMLADAVA adds sixteen products.
"""

from dataclasses import replace

from relax_aot.scheduling.strategies.dsp import columns, depthwise
from relax_aot.scheduling.strategies.f32_rows import rows
from relax_aot.scheduling.strategies.f32_tiles import im2col, tiles
from relax_aot.scheduling.strategies.mve import pairs
from relax_aot.scheduling.strategies.mve_columns import depthwise_columns
from relax_aot.scheduling.strategies.mve_depthwise import depthwise_windows
from relax_aot.scheduling.strategies.mve_tall import tall_windows
from relax_aot.scheduling.targets import fpu
from relax_aot.scheduling.weighted import each_channel, with_channel

TARGET = replace(
    fpu.TARGET,
    name="mve",
    needs=("dsp", "fpu", "mve_float"),
    rows=6,
    lanes=8,
    half_rows=0,
    dots="_mve",
    parts="_mve",
    functions=32,
    gates=32,
    fixed=32,
    rescales=True,
    sigmoids=0,
    softmax=False,
    scans=True,
    byte_rows=True,
    wide_rows=True,
    channels_last=True,
    lookups=True,
    strategies=(
        each_channel(depthwise_windows),
        pairs,
        depthwise_windows,
        tall_windows,
        depthwise_columns,
        columns,
        depthwise,
        with_channel(pairs),
    ),
    floats=(rows, im2col, tiles),
)
