# SPDX-License-Identifier: Apache-2.0
"""Arm with a single-precision FPU: Cortex-M4F, M7, M33, M55 without Helium.

32 registers s0..s31; `vldr` reaches 1020 bytes beyond its base (Armv7-M manual, A7.7.229).
"""

from relax_aot.scheduling.strategies.f32_panels import panels
from relax_aot.scheduling.strategies.f32_rows import rows
from relax_aot.scheduling.strategies.f32_tiles import im2col, tiles
from relax_aot.scheduling.targets import Target

TARGET = Target(
    "fpu",
    needs=("fpu",),
    registers=32,
    pointers=9,
    reach=1020,
    block=96,
    code=16384,
    rows=4,
    panel=20480,
    spare_panel=81920,
    lanes=4,
    halves=True,
    half_rows=16,
    half_sums=True,
    sigmoids=64,
    softmax=True,
    floats=(rows, panels, im2col, tiles),
)
