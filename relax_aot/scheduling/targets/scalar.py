# SPDX-License-Identifier: Apache-2.0
"""Any core with C and integer registers alone: Cortex-M0, M3. Floats live in integer registers
and their arithmetic is a call, so that few values are kept, and tiles multiply integers."""

from relax_aot.microkernels.integers import ROWS
from relax_aot.scheduling.strategies.dsp_pairs import pairs
from relax_aot.scheduling.strategies.dsp_windows import depthwise_windows
from relax_aot.scheduling.strategies.f32_padded_rows import padded_rows
from relax_aot.scheduling.strategies.f32_tiles import im2col, tiles
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
    rows=ROWS,
    panel=20480,
    spare_panel=81920,
    lanes=4,
    integers=True,
    quotients=True,
    strip=4096,
    floats=(padded_rows, im2col, tiles),
)
