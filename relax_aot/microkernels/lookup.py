# SPDX-License-Identifier: Apache-2.0
"""Functions of bytes by tables of all their values. What is written may be what is read."""

from __future__ import annotations

from relax_aot.ir.types import DType
from relax_aot.microkernels._describe import micro_kernels

_TYPES = ((DType.U8, DType.U8), (DType.I8, DType.I8), (DType.U8, DType.I8), (DType.I8, DType.U8))
_NAMES = ("u8", "s8", "u8_s8", "s8_u8")
MICRO_KERNELS = micro_kernels(
    "lookup.h",
    """rows 0..~5, count 0..~40, row_step count..~count + 5, to_step count..~count + 9
    kernel @raot_lookup_rows_$name(
      %x: $from[span(rows * row_step, count * 1)], %table: $to[256]
    ) -> (%to: $to[span(rows * to_step, count * 1)]) {
      for r in 0..rows, i in 0..count {
        clamped code in 0..255 = i64(u8(%x[r * row_step + i]))
        %to[r * to_step + i] = %table[code]
      }
    }""",
    {
        "name": _NAMES,
        "from": tuple(source.value for source, _ in _TYPES),
        "to": tuple(target.value for _, target in _TYPES),
    },
)
LOOKUPS = {types: f"raot_lookup_rows_{name}" for types, name in zip(_TYPES, _NAMES, strict=True)}
"""The micro-kernels by the types of what is read and of what is stored."""
