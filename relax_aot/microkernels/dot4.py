# SPDX-License-Identifier: Apache-2.0
"""Matrix products of dot2.py with bytes: of signed ones on 64-bit Arm (SDOT, SMMLA or SMULL), of
unsigned by signed ones on hosts (VPDPBUSD). 128 is subtracted from bytes, or added, for the sign.
On hosts, gathered panels are 16-bit integers, which every processor reads."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters
from relax_aot.microkernels.dot2 import panels, tiles, windows

I8, U8 = "dot4_i8.h", "dot4_u8.h"
DOT4_I8: Parameters = {
    "form": "dot4_i8", "tile": "raot_$form", "L": "i8", "R": "i8", "deep": "4", "group": "4",
    "I": "i8", "panel_offset": "$flip:i32", "row_offset": "$flip:i32", "values": "",
}  # fmt: skip
DOT4_US: Parameters = {
    "form": "dot4_u8", "tile": "raot_dot4_us", "L": "u8", "R": "i8", "deep": "4", "group": "4",
    "I": "u8", "row_offset": "$lift:i32", "values": "",
}  # fmt: skip
DOT4_SU: Parameters = {
    "form": "dot4_u8", "tile": "raot_dot4_su", "L": "i8", "R": "i16", "deep": "4", "group": "2",
    "I": "i16", "panel_offset": "$lift:i32", "values": ", %right 0..255",
}  # fmt: skip
MICRO_KERNELS = (
    *tiles(I8, DOT4_I8), *panels(I8, DOT4_I8), *windows(I8, DOT4_I8),
    *tiles(U8, DOT4_US), *windows(U8, DOT4_US), *tiles(U8, DOT4_SU), *panels(U8, DOT4_SU),
)  # fmt: skip
