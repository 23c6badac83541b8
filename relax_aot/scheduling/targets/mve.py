"""Arm with Helium: Cortex-M55, M85.

Floats: eight vectors of four, each in four of the registers s0..s31; factors come from the
core's own registers (`vfma` by a scalar). Integers: VMLADAVA adds sixteen products.
"""

from relax_aot.scheduling.strategies.dsp import depthwise, wide_columns
from relax_aot.scheduling.strategies.f32_im2col import im2col
from relax_aot.scheduling.strategies.f32_tiles import tiles
from relax_aot.scheduling.strategies.mve import pairs, rows
from relax_aot.scheduling.strategies.mve_depthwise import depthwise_windows
from relax_aot.scheduling.targets import Target

TARGET = Target(
    "mve",
    needs=("dsp", "fpu", "mve_float"),
    registers=32,
    pointers=9,
    reach=1020,
    block=96,
    code=16384,
    rows=6,
    panel=20480,
    strategies=(pairs, depthwise_windows, rows, wide_columns, depthwise),
    floats=(im2col, tiles),
)
