# SPDX-License-Identifier: Apache-2.0
"""The DSP extension besides the FPU (fpu.py): SMLAD adds two products of 16-bit numbers
(Armv7E-M)."""

from dataclasses import replace

from relax_aot.scheduling.strategies.dsp import columns, depthwise
from relax_aot.scheduling.strategies.dsp_depthwise import depthwise_pairs
from relax_aot.scheduling.strategies.dsp_pairs import pairs
from relax_aot.scheduling.strategies.dsp_rows import rows
from relax_aot.scheduling.strategies.dsp_windows import depthwise_windows, filters
from relax_aot.scheduling.strategies.dsp_winograd import winograd
from relax_aot.scheduling.targets import fpu

TARGET = replace(
    fpu.TARGET,
    name="dsp",
    needs=("dsp", "fpu"),
    dots="_s16",
    parts="_s16",
    gates=1,
    fixed=32,
    rescales=True,
    quotients=True,
    byte_rows=True,
    wide_rows=True,
    scratch=16384,
    strategies=(
        rows,
        filters,
        winograd,
        pairs,
        columns,
        depthwise_pairs,
        depthwise_windows,
        depthwise,
    ),
)
