# SPDX-License-Identifier: Apache-2.0
"""Any core with C and integer registers alone: Cortex-M0, M3. Floats live in integer registers
and their arithmetic is a call, so that few values are kept."""

from relax_aot.scheduling.strategies.dsp_pairs import pairs
from relax_aot.scheduling.strategies.dsp_windows import depthwise_windows
from relax_aot.scheduling.targets import Target

TARGET = Target(
    "scalar",
    needs=(),
    registers=7,
    pointers=4,
    reach=124,
    block=16,
    code=4096,
    strategies=(pairs, depthwise_windows),
)
