# SPDX-License-Identifier: Apache-2.0
"""64-bit Arm (SDOT, SMMLA or SMULL): the matrix products of dot2.py with signed bytes. 128 is
subtracted from unsigned bytes."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters
from relax_aot.microkernels.dot2 import dot_products

DOT4_I8: Parameters = {
    "form": "dot4_i8", "I": "i8", "group": "4", "panel_offset": "$flip:i32",
    "row_offset": "$flip:i32",
}  # fmt: skip
MICRO_KERNELS = dot_products("dot4_i8.h", "dot4_i8.h", DOT4_I8)
