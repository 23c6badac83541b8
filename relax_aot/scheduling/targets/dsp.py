"""Arm with a single-precision FPU and the DSP extension: Cortex-M4F, M7, M33 and above.

Floats as in fpu.py; SMLAD adds two products of 16-bit numbers (Armv7E-M).
"""

from relax_aot.scheduling.strategies.dsp import columns, depthwise
from relax_aot.scheduling.strategies.f32_im2col import im2col
from relax_aot.scheduling.strategies.f32_tiles import tiles
from relax_aot.scheduling.targets import Target

TARGET = Target(
    "dsp",
    needs=("dsp", "fpu"),
    registers=32,
    pointers=9,
    reach=1020,
    block=96,
    code=16384,
    rows=4,
    panel=20480,
    lanes=4,
    strategies=(columns, depthwise),
    floats=(im2col, tiles),
)
